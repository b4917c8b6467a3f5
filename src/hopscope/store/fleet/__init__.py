# SPDX-License-Identifier: Apache-2.0
"""Months of histograms of many hosts, in one directory."""
