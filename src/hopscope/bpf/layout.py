# SPDX-License-Identifier: Apache-2.0
"""The structs and enums that the BPF programs share with Python.

Made by ``python -m hopscope.libbpf.stub`` from the BTF of the objects, and compared with it by the tests: change the C
headers, not this file.
"""

from enum import IntEnum
from typing import Final

import numpy as np


class HopHist(IntEnum):
    """``enum hop_hist``."""

    HOP_HIST_SLOTS = 226


class HopLimits(IntEnum):
    """``enum hop_limits``."""

    HOP_STAMPS = 65536
    HOP_CPUS = 1024
    HOP_SEGMENTS = 128
    HOP_FILTERS = 16


class HopProtocolGroup(IntEnum):
    """``enum hop_protocol_group``."""

    HOP_GROUP_TCP = 1
    HOP_GROUP_UDP = 2


class HopRxDiscard(IntEnum):
    """``enum hop_rx_discard``."""

    HOP_RX_NO_STAMP = 0
    HOP_RX_NO_ENTRY = 1
    HOP_RX_AGAIN = 2
    HOP_RX_BACKWARDS = 3
    HOP_RX_MERGED = 4
    HOP_RX_DUPLICATE = 5
    HOP_RX_UNSEEN = 6
    HOP_RX_NO_MEMORY = 7
    HOP_RX_OUTSIDE = 8
    HOP_RX_OUT_OF_ORDER = 9
    HOP_RX_SKIPPED_STAGE = 10
    HOP_RX_DISCARDS = 11


class HopRxGroupBy(IntEnum):
    """``enum hop_rx_group_by``."""

    HOP_GROUP_NONE = 0
    HOP_GROUP_INTERFACE = 1
    HOP_GROUP_NETNS = 2
    HOP_GROUP_CGROUP = 3
    HOP_GROUP_PROCESS = 4
    HOP_GROUP_PROTOCOL = 5


class HopRxHop(IntEnum):
    """``enum hop_rx_hop``."""

    HOP_RX_SOFTIRQ = 0
    HOP_RX_NAPI = 1
    HOP_RX_CORE = 2
    HOP_RX_IP = 3
    HOP_RX_TCP = 4
    HOP_RX_TCP_QUEUE = 5
    HOP_RX_TCP_ORDER = 6
    HOP_RX_TCP_WAKE = 7
    HOP_RX_TCP_READ = 8
    HOP_RX_TCP_TOTAL = 9
    HOP_RX_UDP = 10
    HOP_RX_UDP_QUEUE = 11
    HOP_RX_UDP_WAKE = 12
    HOP_RX_UDP_READ = 13
    HOP_RX_UDP_TOTAL = 14
    HOP_RX_HOPS = 15


class HopRxOrder(IntEnum):
    """``enum hop_rx_order``."""

    HOP_ORDER_APART = 0
    HOP_ORDER_INCLUDE = 1
    HOP_ORDER_EXCLUDE = 2


class HopRxStage(IntEnum):
    """``enum hop_rx_stage``."""

    HOP_STAGE_NONE = 0
    HOP_STAGE_UNWANTED = 1
    HOP_STAGE_DRIVER = 2
    HOP_STAGE_CORE = 3
    HOP_STAGE_IP = 4
    HOP_STAGE_L4 = 5
    HOP_STAGE_QUEUE = 6


# struct hop_comm
HOP_COMM_DTYPE: Final = np.dtype(
    {
        "names": [
            "name",
        ],
        "formats": [
            "|S16",
        ],
        "offsets": [
            0,
        ],
        "itemsize": 16,
    }
)

# struct hop_group
HOP_GROUP_DTYPE: Final = np.dtype(
    {
        "names": [
            "key",
            "name",
        ],
        "formats": [
            {
                "names": [
                    "id",
                    "netns",
                    "pad",
                ],
                "formats": [
                    "<u8",
                    "<u4",
                    "<u4",
                ],
                "offsets": [
                    0,
                    8,
                    12,
                ],
                "itemsize": 16,
            },
            "|S16",
        ],
        "offsets": [
            0,
            16,
        ],
        "itemsize": 32,
    }
)

# struct hop_group_key
HOP_GROUP_KEY_DTYPE: Final = np.dtype(
    {
        "names": [
            "id",
            "netns",
            "pad",
        ],
        "formats": [
            "<u8",
            "<u4",
            "<u4",
        ],
        "offsets": [
            0,
            8,
            12,
        ],
        "itemsize": 16,
    }
)

# struct hop_hist_row
HOP_HIST_ROW_DTYPE: Final = np.dtype(
    {
        "names": [
            "sum_ns",
            "max_ns",
            "slots",
        ],
        "formats": [
            "<u8",
            "<u8",
            ("<u8", (226,)),
        ],
        "offsets": [
            0,
            8,
            16,
        ],
        "itemsize": 1824,
    }
)

# struct hop_interface
HOP_INTERFACE_DTYPE: Final = np.dtype(
    {
        "names": [
            "ifindex",
            "netns",
        ],
        "formats": [
            "<u4",
            "<u4",
        ],
        "offsets": [
            0,
            4,
        ],
        "itemsize": 8,
    }
)

# struct hop_prefix
HOP_PREFIX_DTYPE: Final = np.dtype(
    {
        "names": [
            "word",
            "mask",
        ],
        "formats": [
            ("<u4", (4,)),
            ("<u4", (4,)),
        ],
        "offsets": [
            0,
            16,
        ],
        "itemsize": 32,
    }
)

# struct hop_rx_counters
HOP_RX_COUNTERS_DTYPE: Final = np.dtype(
    {
        "names": [
            "discarded",
            "group_overflow",
            "packets",
            "sampled",
            "pad",
        ],
        "formats": [
            ("<u8", (165,)),
            "<u8",
            "<u8",
            "<u8",
            ("<u8", (5,)),
        ],
        "offsets": [
            0,
            1320,
            1328,
            1336,
            1344,
        ],
        "itemsize": 1384,
    }
)
