# SPDX-License-Identifier: Apache-2.0
"""Recordings of several hosts, joined on one time axis."""
