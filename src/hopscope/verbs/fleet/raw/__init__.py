# SPDX-License-Identifier: Apache-2.0
"""Reports over the recordings of a fleet, on one machine or on Spark."""
