# SPDX-License-Identifier: Apache-2.0
"""Collectors on other hosts: frames on a byte stream, streams over one connection, and who serves them there."""
