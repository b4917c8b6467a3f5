# SPDX-License-Identifier: Apache-2.0
"""Sockets as rows of one array: what the kernel's sock_diag tells of each, as it came, and which of it it told."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hopscope.kernel.sockets import tcp_info

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

TCP: Final = 6
UDP: Final = 17
UDPLITE: Final = 136
PROTOCOLS: Final = {TCP: "tcp", UDP: "udp", UDPLITE: "udplite"}


class State(IntEnum):
    """States of sockets (include/net/tcp_states.h); UDP has ESTABLISHED (connected) and CLOSE."""

    ESTABLISHED = 1
    SYN_SENT = 2
    SYN_RECV = 3
    FIN_WAIT1 = 4
    FIN_WAIT2 = 5
    TIME_WAIT = 6
    CLOSE = 7
    CLOSE_WAIT = 8
    LAST_ACK = 9
    LISTEN = 10
    CLOSING = 11
    NEW_SYN_RECV = 12
    BOUND_INACTIVE = 13


# As ss names them in filters, and as in our tables.
STATE_NAMES: Final = {
    State.ESTABLISHED: "established",
    State.SYN_SENT: "syn-sent",
    State.SYN_RECV: "syn-recv",
    State.FIN_WAIT1: "fin-wait-1",
    State.FIN_WAIT2: "fin-wait-2",
    State.TIME_WAIT: "time-wait",
    State.CLOSE: "unconnected",
    State.CLOSE_WAIT: "close-wait",
    State.LAST_ACK: "last-ack",
    State.LISTEN: "listening",
    State.CLOSING: "closing",
    State.NEW_SYN_RECV: "syn-recv",
    State.BOUND_INACTIVE: "bound-inactive",
}

# idiag_timer, as ss names it.
TIMERS: Final = ("", "on", "keepalive", "timewait", "persist")


class Seen(IntFlag):
    """Attributes (include/uapi/linux/inet_diag.h) that a socket came with, by 1 << their number."""

    MEMINFO = 1 << 1
    INFO = 1 << 2
    VEGASINFO = 1 << 3
    CONG = 1 << 4
    TOS = 1 << 5
    TCLASS = 1 << 6
    SKMEMINFO = 1 << 7
    SHUTDOWN = 1 << 8
    DCTCPINFO = 1 << 9
    SKV6ONLY = 1 << 11
    MARK = 1 << 15
    BBRINFO = 1 << 16
    CLASS_ID = 1 << 17
    ULP_INFO = 1 << 20
    CGROUP_ID = 1 << 21
    SOCKOPT = 1 << 22


# struct inet_diag_msg with its inet_diag_sockid; ports, addresses are in network order. Addresses of IPv4 are the first
# word.
MESSAGE: Final = np.dtype(
    [
        ("family", "u1"), ("state", "u1"), ("timer", "u1"), ("retrans", "u1"),
        ("sport", ">u2"), ("dport", ">u2"), ("src", ">u4", 4), ("dst", ">u4", 4), ("ifindex", "<u4"),
        ("cookie", "<u4", 2),
        ("expires_ms", "<u4"), ("rqueue", "<u4"), ("wqueue", "<u4"), ("uid", "<u4"), ("inode", "<u4"),
    ]
)  # fmt: skip

# SK_MEMINFO_* (include/uapi/linux/sock_diag.h) in order, in bytes but for the drops, which are packets.
_MEMORY: Final = "rmem_alloc rcvbuf wmem_alloc sndbuf fwd_alloc wmem_queued optmem backlog drops"
MEMORY: Final = np.dtype([(name, "<u4") for name in _MEMORY.split()])

BBR: Final = np.dtype([
    (name, "<u4") for name in ("bw_lo", "bw_hi", "min_rtt_us", "pacing_gain", "cwnd_gain")
])  # fmt: skip
VEGAS: Final = np.dtype([(name, "<u4") for name in ("enabled", "rttcnt", "rtt_us", "minrtt_us")])
DCTCP: Final = np.dtype(
    [("enabled", "<u2"), ("ce_state", "<u2"), ("alpha", "<u4"), ("ab_ecn", "<u4"), ("ab_tot", "<u4")]
)

# One socket. What it came without is 0, and missing from `seen`.
ROW: Final = np.dtype(
    [
        ("netns", "<i8"), ("seen", "<u4"), ("protocol", "u1"),
        ("tos", "u1"), ("tclass", "u1"), ("v6only", "u1"), ("shutdown", "u1"), ("autobound", "u1"), ("sockopt", "<u2"),
        ("mark", "<u4"), ("class_id", "<u4"), ("cgroup_id", "<u8"),
        ("cong", "S16"), ("ulp", "S16"),
        ("message", MESSAGE), ("memory", MEMORY), ("control", "V20"), ("tcp", tcp_info.DTYPE),
    ]
)  # fmt: skip

Rows = np.ndarray[Any, np.dtype[np.void]]


@dataclass(frozen=True, slots=True)
class Unread:
    """Sockets that could not be read: of which namespace, and why, a sentence without a full stop."""

    netns: int
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Sockets:
    """All sockets that were asked for, at one moment.

    Attributes
    ----------
    rows
        Of dtype :data:`ROW`.
    time_ns, until_ns
        CLOCK_MONOTONIC, when reading began and ended: each row was so at some time in between.
    tcp_info_bytes
        How much of ``struct tcp_info`` this kernel sends; 0 where no socket had one.
    twice
        Sockets that the kernel gave twice, because its tables changed while it walked them; the later one is in `rows`.
    interrupted
        Dumps that the kernel itself called inconsistent (NLM_F_DUMP_INTR).
    namespaces
        Names of the network namespaces that were read, by inode.
    devices
        Names of interfaces that sockets are bound to, by namespace and index.
    unread
        What could not be read.
    """

    rows: Rows
    time_ns: int
    until_ns: int
    tcp_info_bytes: int = 0
    twice: int = 0
    interrupted: int = 0
    namespaces: Mapping[int, str] = field(default_factory=dict)
    devices: Mapping[tuple[int, int], str] = field(default_factory=dict)
    unread: Sequence[Unread] = ()

    def __len__(self) -> int:
        """Return the number of sockets."""
        return len(self.rows)


def join(parts: Sequence[Rows]) -> Rows:
    """Return rows one behind the other."""
    if len(parts) == 1:
        return parts[0]
    # As plain bytes: NumPy would copy field by field.
    whole = [part.view(f"V{ROW.itemsize}") for part in parts]
    return np.concatenate(whole).view(ROW) if whole else np.zeros(0, ROW)


class Growing:
    """Rows that come part by part, in memory that grows without being copied."""

    def __init__(self) -> None:
        self._rows = np.zeros(0, f"V{ROW.itemsize}")

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._rows)

    def append(self, rows: Rows) -> None:
        """Add rows behind the others."""
        begin = len(self._rows)
        # Nobody else has a view of them before `taken`. The C library moves large memory by its pages.
        self._rows.resize(begin + len(rows), refcheck=False)
        self._rows[begin:] = rows.view(self._rows.dtype)

    def cut(self, length: int) -> None:
        """Forget all but the first ones."""
        self._rows.resize(length, refcheck=False)

    def taken(self) -> Rows:
        """Return the rows, and begin anew."""
        rows, self._rows = self._rows, np.zeros(0, self._rows.dtype)
        return rows.view(ROW)


def has(rows: Rows, attribute: Seen) -> NDArray[np.bool_]:
    """Return which rows came with an attribute."""
    found: NDArray[np.bool_] = (rows["seen"] & np.uint32(attribute)) != 0
    return found


def cookies(rows: Rows) -> NDArray[np.uint64]:
    """Return the kernel's own number of each socket, unique on a host until it boots."""
    pairs = rows["message"]["cookie"]
    return pairs[:, 0].astype(np.uint64) | pairs[:, 1].astype(np.uint64) << np.uint64(32)
