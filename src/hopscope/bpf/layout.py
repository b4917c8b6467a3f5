# SPDX-License-Identifier: Apache-2.0
"""The structs and enums that the BPF programs share with Python.

Made by ``python -m hopscope.libbpf.stub`` from the BTF of the objects, and compared with it by the tests: change the C
headers, not this file.
"""

from enum import IntEnum
from typing import Final

import numpy as np


class HopCpuLimits(IntEnum):
    """``enum hop_cpu_limits``."""

    HOP_FRAMES = 124
    HOP_TASKS = 65536
    HOP_CALLBACKS = 4096


class HopCpuPart(IntEnum):
    """``enum hop_cpu_part``."""

    HOP_CPU_NOTHING = 0
    HOP_CPU_IRQ = 1
    HOP_CPU_NET_RX = 2
    HOP_CPU_NET_TX = 3
    HOP_CPU_TIMER = 4
    HOP_CPU_TASKLET = 5
    HOP_CPU_KSOFTIRQD = 6
    HOP_CPU_NAPI_THREAD = 7
    HOP_CPU_WORKQUEUE = 8
    HOP_CPU_BUSY_POLL = 9
    HOP_CPU_SEND = 10
    HOP_CPU_RECEIVE = 11
    HOP_CPU_CONTROL = 12
    HOP_CPU_IO_URING = 13
    HOP_CPU_UNDECIDED = 14
    HOP_CPU_PARTS = 15


class HopFetchFrom(IntEnum):
    """``enum hop_fetch_from``."""

    HOP_FETCH_RESULT = 6


class HopFetchIs(IntEnum):
    """``enum hop_fetch_is``."""

    HOP_FETCH_IS_EQUAL = 0
    HOP_FETCH_IS_OTHER = 1
    HOP_FETCH_IS_LESS = 2
    HOP_FETCH_IS_AT_MOST = 3
    HOP_FETCH_IS_MORE = 4
    HOP_FETCH_IS_AT_LEAST = 5
    HOP_FETCH_HAS_BITS = 6


class HopFetchKind(IntEnum):
    """``enum hop_fetch_kind``."""

    HOP_FETCH_NUMBER = 0
    HOP_FETCH_RAW = 1
    HOP_FETCH_TEXT = 2


class HopFetchLimits(IntEnum):
    """``enum hop_fetch_limits``."""

    HOP_FETCHES = 16
    HOP_FETCH_HOPS = 8
    HOP_FETCH_TESTS = 16
    HOP_FETCH_BYTES = 64
    HOP_FETCH_WORDS = 128


class HopFetchNext(IntEnum):
    """``enum hop_fetch_next``."""

    HOP_FETCH_PASSES = 254
    HOP_FETCH_FAILS = 255


class HopGroupBy(IntEnum):
    """``enum hop_group_by``."""

    HOP_GROUP_NONE = 0
    HOP_GROUP_INTERFACE = 1
    HOP_GROUP_NETNS = 2
    HOP_GROUP_CGROUP = 3
    HOP_GROUP_PROCESS = 4
    HOP_GROUP_PROTOCOL = 5
    HOP_GROUP_COMM = 6
    HOP_GROUP_THREAD = 7
    HOP_GROUP_PORT = 8
    HOP_GROUP_PEER = 9
    HOP_GROUP_FLOW = 10


class HopHist(IntEnum):
    """``enum hop_hist``."""

    HOP_HIST_SLOTS = 258


class HopLimit(IntEnum):
    """``enum hop_limit``."""

    HOP_LIMIT_NONE = 0
    HOP_LIMIT_HANDSHAKE = 1
    HOP_LIMIT_PACING = 2
    HOP_LIMIT_CONGESTION_WINDOW = 3
    HOP_LIMIT_RECEIVER_WINDOW = 4
    HOP_LIMIT_NAGLE = 5
    HOP_LIMIT_CORK = 6
    HOP_LIMIT_SMALL_QUEUE = 7
    HOP_LIMIT_OTHER = 8
    HOP_LIMIT_SEND_BUFFER = 9


class HopLimitValue(IntEnum):
    """``enum hop_limit_value``."""

    HOP_LIMIT_STATE_SHIFT = 8
    HOP_LIMIT_DETAIL_SHIFT = 16
    HOP_LIMIT_RATE_SET = 1


class HopLimits(IntEnum):
    """``enum hop_limits``."""

    HOP_STAMPS = 65536
    HOP_CPUS = 1024
    HOP_SEGMENTS = 128
    HOP_THREADS = 2048
    HOP_RUNS = 128
    HOP_FILTERS = 16
    HOP_WAITING = 32768
    HOP_REASONS = 256


class HopPmuCounter(IntEnum):
    """``enum hop_pmu_counter``."""

    HOP_PMU_CYCLES = 0
    HOP_PMU_INSTRUCTIONS = 1
    HOP_PMU_CACHE_MISSES = 2
    HOP_PMU_COUNTERS = 3


class HopPoint(IntEnum):
    """``enum hop_point``."""

    HOP_POINT_RX_DRIVER = 1
    HOP_POINT_RX_CORE = 2
    HOP_POINT_RX_IP = 3
    HOP_POINT_RX_L4 = 4
    HOP_POINT_RX_TCP_QUEUE = 5
    HOP_POINT_RX_COPY = 6
    HOP_POINT_SKB_FREE = 7
    HOP_POINT_SKB_DROP = 8
    HOP_POINT_TX_QUEUE = 9
    HOP_POINT_TX_ENQUEUE = 10
    HOP_POINT_TX_DEQUEUE = 11
    HOP_POINT_TX_START = 12
    HOP_POINT_TX_DRIVER = 13
    HOP_POINT_TCP_RETRANSMIT = 14
    HOP_POINT_TX_NEIGHBOUR = 15
    HOP_POINT_CALL_ENTER = 32
    HOP_POINT_TX_SEND = 33
    HOP_POINT_TX_SENT = 34
    HOP_POINT_RX_READY = 35
    HOP_POINT_RX_READ = 36
    HOP_POINT_RX_RECEIVED = 37
    HOP_POINT_TCP_STATE = 38
    HOP_POINT_RX_FULL = 39
    HOP_POINT_TX_LIMIT = 40
    HOP_POINT_CALL_EXIT = 41
    HOP_POINT_TLS_WRITE = 42
    HOP_POINT_TLS_READ = 43
    HOP_POINT_TLS_SOCKET = 44
    HOP_POINT_URING_SUBMIT = 45
    HOP_POINT_URING_WORK = 46
    HOP_POINT_URING_COMPLETE = 47
    HOP_POINT_IRQ_ENTER = 64
    HOP_POINT_IRQ_EXIT = 65
    HOP_POINT_SOFTIRQ_RAISE = 66
    HOP_POINT_SOFTIRQ_ENTER = 67
    HOP_POINT_SOFTIRQ_EXIT = 68
    HOP_POINT_NAPI_POLL = 69
    HOP_POINT_SCHED_SWITCH = 70
    HOP_POINT_SCHED_WAKE = 71
    HOP_POINT_XDP_EXCEPTION = 72
    HOP_POINT_XDP_REDIRECT = 73
    HOP_POINT_NF_VERDICT = 74
    HOP_POINT_NF_RULES = 75
    HOP_POINT_SCHED_TURN = 76
    HOP_POINT_SOFTIRQ_WAIT = 77
    HOP_POINT_GRO_HOLD = 78
    HOP_POINT_DROP = 96
    HOP_POINT_FLOW = 97
    HOP_POINT_THREAD = 98
    HOP_POINT_DEVICE = 99
    HOP_POINT_QDISC = 100
    HOP_POINT_TCP_PROBE = 128


class HopProtocolGroup(IntEnum):
    """``enum hop_protocol_group``."""

    HOP_GROUP_TCP = 1
    HOP_GROUP_UDP = 2


class HopRecordLimits(IntEnum):
    """``enum hop_record_limits``."""

    HOP_DROP_FRAMES = 32
    HOP_FLOW_WORDS = 10
    HOP_OWN_FLOWS = 256
    HOP_RULES_NS = 1000
    HOP_WAIT_NS = 100000


class HopRule(IntEnum):
    """``enum hop_rule``."""

    HOP_RULE_KEEP = 1
    HOP_RULE_DROP = 2
    HOP_RULES = 2
    HOP_RULE_CLASS = 3
    HOP_RULE_POINTS = 160
    HOP_CLASSES = 5


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
    HOP_RX_NO_NIC_STAMP = 11
    HOP_RX_CLOCK_SET = 12
    HOP_RX_NO_HISTORY = 13
    HOP_RX_MPTCP = 14
    HOP_RX_DISCARDS = 15


class HopRxEnd(IntEnum):
    """``enum hop_rx_end``."""

    HOP_END_READ_UDP = 0
    HOP_END_READ_TCP = 1
    HOP_END_JOINED = 2
    HOP_END_MERGED = 3
    HOP_END_REPEATED = 4
    HOP_END_MPTCP = 5
    HOP_END_NO_MEMORY = 6
    HOP_END_UNREAD = 7
    HOP_END_DUPLICATE = 8
    HOP_END_SLOT_TAKEN = 9
    HOP_RX_ENDS = 10


class HopRxFlags(IntEnum):
    """``enum hop_rx_flags``."""

    HOP_RX_DATAGRAM = 1
    HOP_RX_OFF_UNKNOWN = 2


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
    HOP_RX_NIC = 15
    HOP_RX_TCP_ASLEEP = 16
    HOP_RX_TCP_RUNNABLE = 17
    HOP_RX_UDP_ASLEEP = 18
    HOP_RX_UDP_RUNNABLE = 19
    HOP_RX_HOPS = 20


class HopRxLife(IntEnum):
    """``enum hop_rx_life``."""

    HOP_LIFE_NONE = 0
    HOP_LIFE_OPEN = 1
    HOP_LIFE_ENDED = 2


class HopRxOrder(IntEnum):
    """``enum hop_rx_order``."""

    HOP_ORDER_APART = 0
    HOP_ORDER_INCLUDE = 1
    HOP_ORDER_EXCLUDE = 2


class HopRxPlace(IntEnum):
    """``enum hop_rx_place``."""

    HOP_PLACE_DRIVER = 0
    HOP_PLACE_CORE = 1
    HOP_PLACE_IP = 2
    HOP_PLACE_FORWARD = 3
    HOP_PLACE_TCP = 4
    HOP_PLACE_UDP = 5
    HOP_PLACE_QUEUE = 6
    HOP_PLACES = 7


class HopRxStage(IntEnum):
    """``enum hop_rx_stage``."""

    HOP_STAGE_NONE = 0
    HOP_STAGE_UNWANTED = 1
    HOP_STAGE_DRIVER = 2
    HOP_STAGE_CORE = 3
    HOP_STAGE_IP = 4
    HOP_STAGE_L4 = 5
    HOP_STAGE_QUEUE = 6


class HopSwitchExtra(IntEnum):
    """``enum hop_switch_extra``."""

    HOP_SWITCH_CALL = 65535
    HOP_SWITCH_THROTTLED = 65536


class HopTxCause(IntEnum):
    """``enum hop_tx_cause``."""

    HOP_CAUSE_NONE = 0
    HOP_CAUSE_CWND = 1
    HOP_CAUSE_RWND = 2
    HOP_CAUSE_NAGLE = 3
    HOP_CAUSE_CORK = 4
    HOP_CAUSE_PACING = 5
    HOP_CAUSE_TSQ = 6
    HOP_CAUSE_OTHER = 7
    HOP_CAUSES = 8


class HopTxDiscard(IntEnum):
    """``enum hop_tx_discard``."""

    HOP_TX_COALESCED = 0
    HOP_TX_NO_STAMP = 1
    HOP_TX_BACKWARDS = 2
    HOP_TX_MERGED = 3
    HOP_TX_CLOSED = 4
    HOP_TX_NO_MEMORY = 5
    HOP_TX_DROPPED = 6
    HOP_TX_NO_SEND = 7
    HOP_TX_UNSTAMPED = 8
    HOP_TX_SPLIT = 9
    HOP_TX_FAST_OPEN = 10
    HOP_TX_MPTCP = 11
    HOP_TX_DISCARDS = 12


class HopTxFlags(IntEnum):
    """``enum hop_tx_flags``."""

    HOP_TX_SLEPT = 1
    HOP_TX_DATAGRAM = 2
    HOP_TX_ABORTED = 4


class HopTxHop(IntEnum):
    """``enum hop_tx_hop``."""

    HOP_TX_TCP = 0
    HOP_TX_TCP_SNDBUF = 1
    HOP_TX_SCHED = 2
    HOP_TX_SCHED_CWND = 3
    HOP_TX_SCHED_RWND = 4
    HOP_TX_SCHED_NAGLE = 5
    HOP_TX_SCHED_CORK = 6
    HOP_TX_SCHED_PACING = 7
    HOP_TX_SCHED_TSQ = 8
    HOP_TX_SCHED_OTHER = 9
    HOP_TX_QDISC = 10
    HOP_TX_DRIVER = 11
    HOP_TX_NIC = 12
    HOP_TX_HOST = 13
    HOP_TX_ACK = 14
    HOP_TX_TOTAL = 15
    HOP_TX_UDP = 16
    HOP_TX_UDP_QDISC = 17
    HOP_TX_UDP_DRIVER = 18
    HOP_TX_UDP_FREE = 19
    HOP_TX_UDP_TOTAL = 20
    HOP_TX_HOPS = 21


class HopTxLimits(IntEnum):
    """``enum hop_tx_limits``."""

    HOP_MESSAGES = 64
    HOP_PASSES = 32768
    HOP_DEVICES = 4


class HopTxStage(IntEnum):
    """``enum hop_tx_stage``."""

    HOP_TX_HANDED = 0
    HOP_TX_LEAVES = 1
    HOP_TX_DRIVEN = 2
    HOP_TX_ACKED = 3
    HOP_TX_STAGES = 4


# struct hop_beside
HOP_BESIDE_DTYPE: Final = np.dtype(
    {
        "names": [
            "comm",
            "interface",
            "pid",
            "reason",
        ],
        "formats": [
            "|S16",
            "|S16",
            "<u4",
            "<u4",
        ],
        "offsets": [
            0,
            16,
            32,
            36,
        ],
        "itemsize": 40,
    }
)

# struct hop_capture
HOP_CAPTURE_DTYPE: Final = np.dtype(
    {
        "names": [
            "time_ns",
            "skb",
            "flow",
            "seq",
            "ifindex",
            "netns",
            "len_bytes",
            "captured_bytes",
            "point",
            "is_payload",
            "pad",
        ],
        "formats": [
            "<u8",
            "<u8",
            "<u8",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u2",
            "|u1",
            "|u1",
            "<u4",
        ],
        "offsets": [
            0,
            8,
            16,
            24,
            28,
            32,
            36,
            40,
            42,
            43,
            44,
        ],
        "itemsize": 48,
    }
)

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

# struct hop_count_counters
HOP_COUNT_COUNTERS_DTYPE: Final = np.dtype(
    {
        "names": [
            "group_overflow",
            "pad",
        ],
        "formats": [
            "<u8",
            ("<u8", (7,)),
        ],
        "offsets": [
            0,
            8,
        ],
        "itemsize": 64,
    }
)

# struct hop_cpu_counters
HOP_CPU_COUNTERS_DTYPE: Final = np.dtype(
    {
        "names": [
            "group_overflow",
            "samples",
            "lost",
            "no_memory",
            "unseen",
            "unread",
            "uring",
            "ticks",
        ],
        "formats": [
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
        ],
        "offsets": [
            0,
            8,
            16,
            24,
            32,
            40,
            48,
            56,
        ],
        "itemsize": 64,
    }
)

# struct hop_cpu_row
HOP_CPU_ROW_DTYPE: Final = np.dtype(
    {
        "names": [
            "ns",
            "runs",
            "packets",
            "bytes",
        ],
        "formats": [
            ("<u8", (15,)),
            ("<u8", (15,)),
            ("<u8", (15,)),
            ("<u8", (15,)),
        ],
        "offsets": [
            0,
            120,
            240,
            360,
        ],
        "itemsize": 480,
    }
)

# struct hop_cpu_sample
HOP_CPU_SAMPLE_DTYPE: Final = np.dtype(
    {
        "names": [
            "time_ns",
            "pid",
            "part",
            "group",
            "len_bytes",
            "pad",
            "frames",
        ],
        "formats": [
            "<u8",
            "<u4",
            "<u2",
            "<u2",
            "<i4",
            "<u4",
            ("<u8", (124,)),
        ],
        "offsets": [
            0,
            8,
            12,
            14,
            16,
            20,
            24,
        ],
        "itemsize": 1016,
    }
)

# struct hop_device
HOP_DEVICE_DTYPE: Final = np.dtype(
    {
        "names": [
            "time_ns",
            "point",
            "pad",
            "type",
            "ifindex",
            "netns",
            "name",
            "handle",
            "pad_2",
        ],
        "formats": [
            "<u8",
            "|u1",
            "|u1",
            "<u2",
            "<u4",
            "<u4",
            "|S16",
            "<u4",
            ("<u4", (4,)),
        ],
        "offsets": [
            0,
            8,
            9,
            10,
            12,
            16,
            20,
            36,
            40,
        ],
        "itemsize": 56,
    }
)

# struct hop_drop
HOP_DROP_DTYPE: Final = np.dtype(
    {
        "names": [
            "time_ns",
            "point",
            "pad",
            "tid",
            "skb",
            "flow",
            "location",
            "reason",
            "stack",
            "ifindex",
            "netns",
        ],
        "formats": [
            "<u8",
            "|u1",
            ("|u1", (3,)),
            "<u4",
            "<u8",
            "<u8",
            "<u8",
            "<u4",
            "<i4",
            "<u4",
            "<u4",
        ],
        "offsets": [
            0,
            8,
            9,
            12,
            16,
            24,
            32,
            40,
            44,
            48,
            52,
        ],
        "itemsize": 56,
    }
)

# struct hop_fetch
HOP_FETCH_DTYPE: Final = np.dtype(
    {
        "names": [
            "offset",
            "from",
            "hops",
            "kind",
            "size",
            "left",
            "right",
            "is_signed",
            "swapped",
            "word",
            "pad",
        ],
        "formats": [
            ("<u4", (8,)),
            "|u1",
            "|u1",
            "|u1",
            "|u1",
            "|u1",
            "|u1",
            "|u1",
            "|u1",
            "|u1",
            ("|u1", (3,)),
        ],
        "offsets": [
            0,
            32,
            33,
            34,
            35,
            36,
            37,
            38,
            39,
            40,
            41,
        ],
        "itemsize": 44,
    }
)

# struct hop_fetch_test
HOP_FETCH_TEST_DTYPE: Final = np.dtype(
    {
        "names": [
            "number",
            "fetch",
            "is",
            "is_signed",
            "if_true",
            "if_false",
            "pad",
        ],
        "formats": [
            "<u8",
            "|u1",
            "|u1",
            "|u1",
            "|u1",
            "|u1",
            ("|u1", (3,)),
        ],
        "offsets": [
            0,
            8,
            9,
            10,
            11,
            12,
            13,
        ],
        "itemsize": 16,
    }
)

# struct hop_fetched
HOP_FETCHED_DTYPE: Final = np.dtype(
    {
        "names": [
            "caller",
            "stack",
            "unread",
            "word",
        ],
        "formats": [
            "<u8",
            "<i4",
            "<u4",
            ("<u8", (128,)),
        ],
        "offsets": [
            0,
            8,
            12,
            16,
        ],
        "itemsize": 1040,
    }
)

# struct hop_flow
HOP_FLOW_DTYPE: Final = np.dtype(
    {
        "names": [
            "time_ns",
            "point",
            "pad",
            "protocol",
            "port",
            "flow",
            "source",
            "destination",
        ],
        "formats": [
            "<u8",
            "|u1",
            "|u1",
            "<u2",
            ("<u2", (2,)),
            "<u8",
            ("<u4", (4,)),
            ("<u4", (4,)),
        ],
        "offsets": [
            0,
            8,
            9,
            10,
            12,
            16,
            24,
            40,
        ],
        "itemsize": 56,
    }
)

# struct hop_group
HOP_GROUP_DTYPE: Final = np.dtype(
    {
        "names": [
            "key",
            "name",
            "local",
            "peer",
            "local_port",
            "peer_port",
            "protocol",
            "pad",
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
            ("<u4", (4,)),
            ("<u4", (4,)),
            "<u2",
            "<u2",
            "<u2",
            "<u2",
        ],
        "offsets": [
            0,
            16,
            32,
            48,
            64,
            66,
            68,
            70,
        ],
        "itemsize": 72,
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
            ("<u8", (258,)),
        ],
        "offsets": [
            0,
            8,
            16,
        ],
        "itemsize": 2080,
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

# struct hop_message_flow
HOP_MESSAGE_FLOW_DTYPE: Final = np.dtype(
    {
        "names": [
            "local",
            "peer",
            "local_port",
            "peer_port",
            "netns",
            "cgroup",
            "family",
            "protocol",
            "pid",
            "comm",
        ],
        "formats": [
            ("<u4", (4,)),
            ("<u4", (4,)),
            "<u2",
            "<u2",
            "<u4",
            "<u8",
            "<u2",
            "<u2",
            "<u4",
            "|S16",
        ],
        "offsets": [
            0,
            16,
            32,
            34,
            36,
            40,
            48,
            50,
            52,
            56,
        ],
        "itemsize": 72,
    }
)

# struct hop_nic_clock
HOP_NIC_CLOCK_DTYPE: Final = np.dtype(
    {
        "names": [
            "nic_ns",
            "monotonic_ns",
            "drift",
            "bound_ns",
        ],
        "formats": [
            "<u8",
            "<u8",
            "<i8",
            "<u8",
        ],
        "offsets": [
            0,
            8,
            16,
            24,
        ],
        "itemsize": 32,
    }
)

# struct hop_own
HOP_OWN_DTYPE: Final = np.dtype(
    {
        "names": [
            "ports",
            "count",
            "pad",
            "flows",
        ],
        "formats": [
            ("<u8", (1024,)),
            "<u4",
            "<u4",
            (
                {
                    "names": [
                        "word",
                        "mask",
                    ],
                    "formats": [
                        ("<u4", (10,)),
                        ("<u4", (10,)),
                    ],
                    "offsets": [
                        0,
                        40,
                    ],
                    "itemsize": 80,
                },
                (256,),
            ),
        ],
        "offsets": [
            0,
            8192,
            8196,
            8200,
        ],
        "itemsize": 28680,
    }
)

# struct hop_own_flow
HOP_OWN_FLOW_DTYPE: Final = np.dtype(
    {
        "names": [
            "word",
            "mask",
        ],
        "formats": [
            ("<u4", (10,)),
            ("<u4", (10,)),
        ],
        "offsets": [
            0,
            40,
        ],
        "itemsize": 80,
    }
)

# struct hop_packet
HOP_PACKET_DTYPE: Final = np.dtype(
    {
        "names": [
            "time_ns",
            "point",
            "tcp_flags",
            "header_bytes",
            "tid",
            "skb",
            "head",
            "flow",
            "len_bytes",
            "seq",
            "ifindex",
            "netns",
        ],
        "formats": [
            "<u8",
            "|u1",
            "|u1",
            "<u2",
            "<u4",
            "<u8",
            "<u8",
            "<u8",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
        ],
        "offsets": [
            0,
            8,
            9,
            10,
            12,
            16,
            24,
            32,
            40,
            44,
            48,
            52,
        ],
        "itemsize": 56,
    }
)

# struct hop_plaintext
HOP_PLAINTEXT_DTYPE: Final = np.dtype(
    {
        "names": [
            "time_ns",
            "tid",
            "captured_bytes",
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

# struct hop_pmu_row
HOP_PMU_ROW_DTYPE: Final = np.dtype(
    {
        "names": [
            "counted",
        ],
        "formats": [
            ("<u8", (45,)),
        ],
        "offsets": [
            0,
        ],
        "itemsize": 360,
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

# struct hop_record_counters
HOP_RECORD_COUNTERS_DTYPE: Final = np.dtype(
    {
        "names": [
            "lost",
            "captures_lost",
            "plaintexts_lost",
            "class_lost",
        ],
        "formats": [
            "<u8",
            "<u8",
            "<u8",
            ("<u8", (5,)),
        ],
        "offsets": [
            0,
            8,
            16,
            24,
        ],
        "itemsize": 64,
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
            "entered",
            "ended",
            "gone",
            "dropped",
            "events",
            "lost",
            "pad",
        ],
        "formats": [
            ("<u8", (300,)),
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            ("<u8", (10,)),
            ("<u8", (7,)),
            ("<u8", (1792,)),
            "<u8",
            "<u8",
            ("<u8", (1,)),
        ],
        "offsets": [
            0,
            2400,
            2408,
            2416,
            2424,
            2432,
            2512,
            2568,
            16904,
            16912,
            16920,
        ],
        "itemsize": 16928,
    }
)

# struct hop_rx_event
HOP_RX_EVENT_DTYPE: Final = np.dtype(
    {
        "names": [
            "cookie",
            "end_byte",
            "entry_ns",
            "core_ns",
            "ip_ns",
            "l4_ns",
            "queued_ns",
            "ordered_ns",
            "read_ns",
            "off_ns",
            "runnable_ns",
            "len_bytes",
            "pid",
            "flags",
            "pad",
            "comm",
        ],
        "formats": [
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "|S16",
        ],
        "offsets": [
            0,
            8,
            16,
            24,
            32,
            40,
            48,
            56,
            64,
            72,
            80,
            88,
            92,
            96,
            100,
            104,
        ],
        "itemsize": 120,
    }
)

# struct hop_sampling
HOP_SAMPLING_DTYPE: Final = np.dtype(
    {
        "names": [
            "since_ns",
            "epoch",
            "mask",
            "open",
        ],
        "formats": [
            "<u8",
            "<u8",
            "<u4",
            "<u4",
        ],
        "offsets": [
            0,
            8,
            16,
            20,
        ],
        "itemsize": 24,
    }
)

# struct hop_socket
HOP_SOCKET_DTYPE: Final = np.dtype(
    {
        "names": [
            "time_ns",
            "point",
            "pad",
            "protocol",
            "tid",
            "sock",
            "flow",
            "value",
            "seq",
            "len_bytes",
            "netns",
            "pad_2",
        ],
        "formats": [
            "<u8",
            "|u1",
            "|u1",
            "<u2",
            "<u4",
            "<u8",
            "<u8",
            "<i8",
            "<u4",
            "<i4",
            "<u4",
            "<u4",
        ],
        "offsets": [
            0,
            8,
            9,
            10,
            12,
            16,
            24,
            32,
            40,
            44,
            48,
            52,
        ],
        "itemsize": 56,
    }
)

# struct hop_tcp
HOP_TCP_DTYPE: Final = np.dtype(
    {
        "names": [
            "time_ns",
            "point",
            "state",
            "in_flight",
            "tid",
            "flow",
            "snd_una",
            "snd_nxt",
            "snd_wnd",
            "rcv_wnd",
            "snd_cwnd",
            "ssthresh",
            "srtt_us",
            "netns",
        ],
        "formats": [
            "<u8",
            "|u1",
            "|u1",
            "<u2",
            "<u4",
            "<u8",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
        ],
        "offsets": [
            0,
            8,
            9,
            10,
            12,
            16,
            24,
            28,
            32,
            36,
            40,
            44,
            48,
            52,
        ],
        "itemsize": 56,
    }
)

# struct hop_thread
HOP_THREAD_DTYPE: Final = np.dtype(
    {
        "names": [
            "time_ns",
            "point",
            "pad",
            "tid",
            "pid",
            "pad_2",
            "cgroup",
            "comm",
            "pad_3",
        ],
        "formats": [
            "<u8",
            "|u1",
            ("|u1", (3,)),
            "<u4",
            "<u4",
            "<u4",
            "<u8",
            "|S16",
            "<u8",
        ],
        "offsets": [
            0,
            8,
            9,
            12,
            16,
            20,
            24,
            32,
            48,
        ],
        "itemsize": 56,
    }
)

# struct hop_tx_counters
HOP_TX_COUNTERS_DTYPE: Final = np.dtype(
    {
        "names": [
            "discarded",
            "group_overflow",
            "messages",
            "sampled",
            "acked",
            "retransmits",
            "events",
            "lost",
        ],
        "formats": [
            ("<u8", (252,)),
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
        ],
        "offsets": [
            0,
            2016,
            2024,
            2032,
            2040,
            2048,
            2056,
            2064,
        ],
        "itemsize": 2072,
    }
)

# struct hop_tx_device
HOP_TX_DEVICE_DTYPE: Final = np.dtype(
    {
        "names": [
            "ifindex",
            "after_ns",
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

# struct hop_tx_event
HOP_TX_EVENT_DTYPE: Final = np.dtype(
    {
        "names": [
            "cookie",
            "end_byte",
            "entry_ns",
            "handed_ns",
            "sched_ns",
            "driver_ns",
            "nic_ns",
            "done_ns",
            "qdisc_ns",
            "len_bytes",
            "pid",
            "device",
            "retransmits",
            "cause",
            "flags",
            "group",
            "pad",
        ],
        "formats": [
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u4",
            "<u4",
            (
                {
                    "names": [
                        "ifindex",
                        "after_ns",
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
                },
                (4,),
            ),
            "<u2",
            "|u1",
            "|u1",
            "<u2",
            "<u2",
        ],
        "offsets": [
            0,
            8,
            16,
            24,
            32,
            40,
            48,
            56,
            64,
            72,
            76,
            80,
            112,
            114,
            115,
            116,
            118,
        ],
        "itemsize": 120,
    }
)

# struct hop_tx_event_tcp
HOP_TX_EVENT_TCP_DTYPE: Final = np.dtype(
    {
        "names": [
            "event",
            "tcp",
        ],
        "formats": [
            {
                "names": [
                    "cookie",
                    "end_byte",
                    "entry_ns",
                    "handed_ns",
                    "sched_ns",
                    "driver_ns",
                    "nic_ns",
                    "done_ns",
                    "qdisc_ns",
                    "len_bytes",
                    "pid",
                    "device",
                    "retransmits",
                    "cause",
                    "flags",
                    "group",
                    "pad",
                ],
                "formats": [
                    "<u8",
                    "<u8",
                    "<u8",
                    "<u8",
                    "<u8",
                    "<u8",
                    "<u8",
                    "<u8",
                    "<u8",
                    "<u4",
                    "<u4",
                    (
                        {
                            "names": [
                                "ifindex",
                                "after_ns",
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
                        },
                        (4,),
                    ),
                    "<u2",
                    "|u1",
                    "|u1",
                    "<u2",
                    "<u2",
                ],
                "offsets": [
                    0,
                    8,
                    16,
                    24,
                    32,
                    40,
                    48,
                    56,
                    64,
                    72,
                    76,
                    80,
                    112,
                    114,
                    115,
                    116,
                    118,
                ],
                "itemsize": 120,
            },
            (
                {
                    "names": [
                        "seen",
                        "snd_cwnd",
                        "ssthresh",
                        "in_flight",
                        "unacked_bytes",
                        "snd_wnd",
                        "rcv_wnd",
                        "srtt_us",
                        "retransmits",
                        "ca_state",
                    ],
                    "formats": [
                        "<u4",
                        "<u4",
                        "<u4",
                        "<u4",
                        "<u4",
                        "<u4",
                        "<u4",
                        "<u4",
                        "<u4",
                        "<u4",
                    ],
                    "offsets": [
                        0,
                        4,
                        8,
                        12,
                        16,
                        20,
                        24,
                        28,
                        32,
                        36,
                    ],
                    "itemsize": 40,
                },
                (4,),
            ),
        ],
        "offsets": [
            0,
            120,
        ],
        "itemsize": 280,
    }
)

# struct hop_tx_tcp
HOP_TX_TCP_DTYPE: Final = np.dtype(
    {
        "names": [
            "seen",
            "snd_cwnd",
            "ssthresh",
            "in_flight",
            "unacked_bytes",
            "snd_wnd",
            "rcv_wnd",
            "srtt_us",
            "retransmits",
            "ca_state",
        ],
        "formats": [
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
        ],
        "offsets": [
            0,
            4,
            8,
            12,
            16,
            20,
            24,
            28,
            32,
            36,
        ],
        "itemsize": 40,
    }
)

# struct hop_work
HOP_WORK_DTYPE: Final = np.dtype(
    {
        "names": [
            "time_ns",
            "point",
            "pad",
            "tid",
            "subject",
            "value",
            "extra",
            "ifindex",
            "netns",
            "pad_2",
        ],
        "formats": [
            "<u8",
            "|u1",
            ("|u1", (3,)),
            "<u4",
            "<u8",
            "<i8",
            "<i4",
            "<u4",
            "<u4",
            ("<u4", (3,)),
        ],
        "offsets": [
            0,
            8,
            9,
            12,
            16,
            24,
            32,
            36,
            40,
            44,
        ],
        "itemsize": 56,
    }
)
