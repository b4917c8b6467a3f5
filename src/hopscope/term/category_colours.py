# SPDX-License-Identifier: Apache-2.0
"""A colour for each category, light enough for dark text; neighbours in the stack are far apart in hue."""

from __future__ import annotations

from typing import Final

NEUTRAL: Final = "#d5d9de"
COLOURS: Final = {
    "interrupt": "#b9aea4",
    "driver_poll": "#e8a157",
    "busy_poll": "#f5bd3f",
    "gro": "#f3d96b",
    "xdp": "#ff9a6e",
    "tc": "#ff8383",
    "bpf": "#e98fd0",
    "receive_core": "#8cc5ea",
    "bridge": "#4fb0dc",
    "tunnel": "#3fc0c4",
    "virtual_device": "#86d8c6",
    "conntrack": "#c9a0ee",
    "nat": "#dfbdf5",
    "netfilter": "#ad8ae6",
    "ip_input": "#a3d768",
    "local_delivery": "#c6e68f",
    "forwarding": "#72c65a",
    "routing": "#d8ee7c",
    "ip_output": "#7fcf98",
    "neighbour": "#bcd9a4",
    "tcp": "#74a9f7",
    "udp": "#9bc2ff",
    "other_transport": "#bccdf6",
    "copy": "#f7b4a0",
    "transmit_core": "#cdb48d",
    "qdisc": "#dcc56f",
    "driver_transmit": "#edb877",
    "checksum": "#d8a995",
    "socket": "#b3c3d8",
    "memory": "#f5a0ab",
    "locks": "#f57373",
    "scheduling": "#ffb8d6",
    "crypto": "#93e3d2",
    "accounting": "#cccbb8",
    "other": "#f0f0f0",
    "unsampled": "#fafafa",
}
