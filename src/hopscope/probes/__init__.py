# SPDX-License-Identifier: Apache-2.0
"""Probe points: what they mark, by which ways they attach, and which way this kernel grants."""
