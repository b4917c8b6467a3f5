# SPDX-License-Identifier: Apache-2.0
"""The kernel's counters: where they come from, what they count, and what changed between two readings."""
