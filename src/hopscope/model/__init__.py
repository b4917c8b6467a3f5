# SPDX-License-Identifier: Apache-2.0
"""What others pass on: histograms, snapshots, reports, as plain data. Arrays only, no kernel."""
