# SPDX-License-Identifier: Apache-2.0
"""What numbers mean: histograms, snapshots, shares. Arrays only, no kernel."""
