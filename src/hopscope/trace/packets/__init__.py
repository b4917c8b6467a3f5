# SPDX-License-Identifier: Apache-2.0
"""Packets of a recording: the lifetimes of skbs, and what happened to them from device to device and host to host."""
