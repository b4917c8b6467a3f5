# SPDX-License-Identifier: Apache-2.0
"""What many hosts measured, in one directory: months of histograms, and recordings."""
