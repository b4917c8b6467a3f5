# SPDX-License-Identifier: Apache-2.0
"""The tables of a trace, as data: each column's type, unit and meaning.

Integers are signed, as Spark reads unsigned 64-bit ones as decimals. Times are CLOCK_MONOTONIC of the recording host.
A number that is not known is 0, except where the meaning says otherwise.

A trace may have tables of its own besides these, such as the kernel's tracepoints with their fields: its metadata has
them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from hopscope.store.declared import read_as

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import DTypeLike

VERSION: Final = 1

TEXT: Final = "object"


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Parameters
    ----------
    name, meaning
        What it is called, and what it says.
    dtype
        A NumPy type, :data:`TEXT` for text.
    nullable
        It may be NULL: recorders before it was added have not written it. All other columns have a value in each row.
    """

    name: str
    dtype: DTypeLike
    meaning: str
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """One table: a folder of Parquet files.

    Parameters
    ----------
    name
        Of the folder, and of the view in SQL.
    meaning
        What a row is.
    columns
        In the order of the files.
    once
        Columns that together say which rows mean the same thing: of several, the first is right.
    """

    name: str
    meaning: str
    columns: tuple[Column, ...]
    once: tuple[str, ...] = ()


_EVENT: Final = (
    Column("time_ns", np.int64, "time, CLOCK_MONOTONIC"),
    Column("cpu", np.int16, "where"),
    Column("point", np.int16, "probe point (name: `points`)"),
    Column("tid", np.int32, "running thread; in a softirq, the interrupted one; 0: idle task"),
)
_DEVICE: Final = (
    Column("ifindex", np.int32, "number of the device in its namespace; 0: no device"),
    Column("netns", np.int64, "inode of the network namespace"),
)
_READING: Final = (
    Column("time_ns", np.int64, "time of the reading (`readings`)"),
    Column("netns", np.int64, "inode of the network namespace; 0: applies to the whole host"),
    Column("source", TEXT, "source: snmp, link, ethtool, … (docs/counters.md)"),
    Column("subject", TEXT, "the interface, CPU, queue or the like"),
    Column("name", TEXT, "name of the counter, as in nstat, ip, tc, ethtool or sysctl"),
)
_HOST: Final = Column("host", np.int16, "number of the host; its CPUs are numbered from 1024 times this on")
_PRESENT: Final = Column("present", np.int8, "0: it did not exist at that reading, and the value is meaningless")

TABLES: Final = (
    Table(
        "packets",
        "an event of a packet at a probe point",
        (
            *_EVENT,
            Column("skb", np.int64, "address of the packet's struct sk_buff; reused after the packet is freed"),
            Column("head", np.int64, "address of its data buffer, which clones share"),
            Column(
                "flow",
                np.int64,
                "flow of the outermost IP header, sender to receiver (`flows`); 0: headers not inspected",
            ),
            Column("len_bytes", np.int32, "length of the packet at that point (skb->len)"),
            Column("header_bytes", np.int32, "length of the headers before the TCP or UDP payload"),
            Column(
                "seq",
                np.int64,
                "TCP: sequence number of the first byte; otherwise the IP identification (IPv6: 0), for UDP "
                "plus 65536 times a 16-bit hash of the first 8 bytes of the payload (0 if it is shorter or not "
                "in the linear part)",
            ),
            Column("tcp_flags", np.int16, "FIN 1, SYN 2, RST 4, PSH 8, ACK 16; 0: not TCP"),
            *_DEVICE,
        ),
    ),
    Table(
        "sockets",
        "an event of a socket, or in a call on one",
        (
            *_EVENT,
            Column(
                "sock",
                np.int64,
                "address of the struct sock; reused after the socket is freed; tls.*: of the library's object for the "
                "connection",
            ),
            Column("flow", np.int64, "flow in the direction of the data: from this socket (tx.*) or to it (rx.*)"),
            Column(
                "seq",
                np.int64,
                "TCP: sequence number of the next byte to be written (tx.*) or read (rx.*); call.enter: its first "
                "argument; tls.*: number of the goroutine's call, 0: it was of a thread; uring.*: of the "
                "request",
            ),
            Column(
                "len_bytes",
                np.int32,
                "tx.send: requested; tx.sent, rx.received, tls.socket: transferred, or the negative errno; call.enter: "
                "its third argument; call.exit: what it returns; tls.read, tls.write: plaintext bytes, or what a "
                "call that failed returned; uring.submit: file descriptor; uring.complete: result",
            ),
            Column(
                "value",
                np.int64,
                "tcp.state: old state * 256 + new state; rx.received: flags; call.enter, call.exit: number of the "
                "call; tls.read, tls.write: how long the call took that returns, ns; tls.socket: the socket's point; "
                "uring.*: user_data; tx.limit: see the relation tcp_limits",
            ),
            Column("protocol", np.int16, "6 TCP, 17 UDP; uring.*: opcode of the request"),
            Column("netns", np.int64, "inode of the network namespace"),
        ),
    ),
    Table(
        "cpu",
        "an event of a CPU: interrupts, softirqs, NAPI, the scheduler, XDP, netfilter",
        (
            *_EVENT,
            Column(
                "subject",
                np.int64,
                "number of the interrupt or softirq; address of the NAPI instance or (nf.verdict, gro.hold) of the "
                "skb; flow (nf.rules); thread; sched.turn: the one that waited, 0: the receive softirq",
            ),
            Column(
                "value",
                np.int64,
                "irq.enter: address of the handler (name: `symbols`); irq.exit: handled; napi.poll: packets; "
                "sched.switch: state; nf.rules, sched.turn, softirq.wait, gro.hold: how long they took, ns; "
                "nf.verdict: negative if dropped",
            ),
            Column(
                "extra",
                np.int32,
                "napi.poll: budget; xdp.*: -errno; nf.rules, nf.verdict: protocol family * 256 + hook; "
                "sched.switch: the system call that it sleeps in + 1, 65536: throttled; "
                "softirq.wait: the softirq that ran for most of it + 1",
            ),
            *_DEVICE,
        ),
    ),
    Table(
        "tcp",
        "the state of a TCP connection when a segment comes, before TCP looks at it; once an end has closed, when it "
        "sends, and when it changes its state",
        (
            *_EVENT,
            Column("flow", np.int64, "flow in the direction in which this socket sends"),
            Column("snd_una", np.int64, "first sequence number that the peer has not acknowledged"),
            Column("snd_nxt", np.int64, "next sequence number to be sent"),
            Column("snd_wnd", np.int64, "the peer's receive window, bytes"),
            Column("rcv_wnd", np.int64, "the socket's own receive window, bytes"),
            Column("snd_cwnd", np.int64, "congestion window, packets"),
            Column("ssthresh", np.int64, "slow start threshold, packets; 2147483647: not set yet"),
            Column("srtt_us", np.int64, "smoothed round-trip time, µs; 0: not measured yet"),
            Column("in_flight", np.int32, "packets in flight, as the kernel estimates them; 65535: as many or more"),
            Column("state", np.int16, "of congestion control: 0 open, 1 disorder, 2 CWR (reduced), 3 recovery, 4 loss"),
            Column("netns", np.int64, "inode of the network namespace"),
        ),
    ),
    Table(
        "payloads",
        "the first bytes of what a packet carries for TCP or UDP (`record --bytes`); `packets` has a row with the same "
        "time_ns, point and flow",
        (
            Column("time_ns", np.int64, "time, CLOCK_MONOTONIC"),
            Column("point", np.int16, "probe point: rx.driver or tx.queue (name: `points`)"),
            Column("flow", np.int64, "as in `packets`"),
            Column("seq", np.int64, "TCP: sequence number of the first of these bytes; UDP: as in `packets`"),
            Column("len_bytes", np.int32, "length of all that the packet carries"),
            Column("data", TEXT, "its first bytes, two hexadecimal digits each"),
            *_DEVICE,
        ),
    ),
    Table(
        "drops",
        "a dropped packet, with the reason; `packets` has a row with the same time_ns, cpu and skb",
        (
            *_EVENT,
            Column("skb", np.int64, "address of the struct sk_buff"),
            Column("flow", np.int64, "as in `packets`"),
            Column("location", np.int64, "address of the instruction that dropped it (name: `symbols`)"),
            Column("reason", np.int32, "drop reason (name: `reasons`)"),
            Column("stack", np.int32, "number of the stack (frames: `stacks`); negative: none"),
            *_DEVICE,
        ),
    ),
    Table(
        "losses",
        "lost events, because a ring was full or the disk too slow",
        (
            Column("from_ns", np.int64, "earliest time"),
            Column("until_ns", np.int64, "latest time"),
            Column("cpu", np.int16, "where"),
            Column("lost", np.int64, "number of events"),
        ),
    ),
    Table(
        "flows",
        "the addresses and ports of a flow",
        (
            Column("flow", np.int64, "hash of the following columns"),
            Column("source", TEXT, "address"),
            Column("source_port", np.int32, "0: none"),
            Column("destination", TEXT, "address"),
            Column("destination_port", np.int32, "0: none"),
            Column("protocol", np.int16, "IP protocol number: 6 TCP, 17 UDP"),
        ),
        once=("flow",),
    ),
    Table(
        "threads",
        "the name of a thread, from that time on",
        (
            Column("time_ns", np.int64, "beginning"),
            Column("tid", np.int32, "thread"),
            Column("pid", np.int32, "process of the thread"),
            Column("comm", TEXT, "name of the thread"),
            Column("cgroup", np.int64, "inode of its cgroup"),
            Column("cgroup_path", TEXT, "path of the cgroup that limits its CPU time; empty: not known", nullable=True),
        ),
        once=("tid", "time_ns"),
    ),
    Table(
        "devices",
        "the name of a device",
        (
            *_DEVICE,
            Column("name", TEXT, "such as eth0"),
            Column("type", np.int32, "ARPHRD_*: 1 Ethernet, 772 loopback"),
        ),
        once=("netns", "ifindex", "name"),
    ),
    Table(
        "qdiscs",
        "a queueing discipline through which a device sends, from that time on",
        (
            Column("time_ns", np.int64, "when the first packet came to it"),
            *_DEVICE,
            Column("handle", np.int64, "its handle: the major number times 65536; 0: none"),
            Column("kind", TEXT, "its kind, such as fq_codel"),
        ),
    ),
    Table(
        "stacks",
        "a frame of a stack",
        (
            Column("stack", np.int32, "number"),
            Column("depth", np.int16, "0: the innermost"),
            Column("address", np.int64, "address of the function (name: `symbols`)"),
        ),
        once=("stack", "depth"),
    ),
    Table(
        "symbols",
        "the name of an address in the kernel",
        (
            Column(
                "address", np.int64, "as in `stacks`, `drops`, irq.enter in `cpu`, and `e_function_*`, `e_return_*`"
            ),
            Column("name", TEXT, "the function"),
            Column("offset_bytes", np.int32, "how far behind its begin; -1: not known", nullable=True),
        ),
        once=("address",),
    ),
    Table(
        "lines",
        "the line of source of an address in the kernel, where its debug information was on the host",
        (
            Column("address", np.int64, "as in `drops`"),
            Column("source", TEXT, "file:line of the call that returns there"),
        ),
        once=("address",),
    ),
    Table(
        "readings",
        "a reading of the kernel's counters and settings",
        (
            Column("time_ns", np.int64, "when the reading began, CLOCK_MONOTONIC"),
            Column("until_ns", np.int64, "when it ended"),
            Column("host", np.int16, "in a joined trace: the host (`hosts`)"),
        ),
    ),
    Table(
        "counters",
        "the value of a counter, gauge or numeric setting at the first reading, then each change",
        (*_READING, Column("value", np.int64, "value from then on"), _PRESENT),
    ),
    Table(
        "settings",
        "the value of a textual setting at the first reading, then each change",
        (*_READING, Column("value", TEXT, "value from then on"), _PRESENT),
    ),
    Table(
        "unread",
        "a source that could not be read, or that can be read again",
        (
            Column("time_ns", np.int64, "time of the first such reading"),
            Column("netns", np.int64, "inode of the network namespace; 0: the host"),
            Column("source", TEXT, "as in `counters`"),
            Column("reason", TEXT, "reason; empty: it can be read again"),
        ),
    ),
    Table(
        "namespaces",
        "the name of a network namespace",
        (
            Column("netns", np.int64, "inode of the namespace"),
            Column("name", TEXT, "its name, or its first process"),
        ),
        once=("netns", "name"),
    ),
    Table(
        "hosts",
        "a host of a trace that was joined from several (docs/join.md)",
        (
            _HOST,
            Column("name", TEXT, "name of the host when it was recorded"),
            Column("boot", TEXT, "ID of its boot; after a reboot it counts as another host, with another clock"),
            Column("release", TEXT, "kernel release"),
            Column("machine", TEXT, "machine type"),
        ),
        once=("host",),
    ),
    Table(
        "clocks",
        "the offset of a host's clock from the time axis, every half second",
        (
            _HOST,
            Column("time_ns", np.int64, "time, a multiple of 500,000,000"),
            Column(
                "offset_ns",
                np.int64,
                "estimated offset, subtracted from the times of its events (interpolated linearly to the next row)",
            ),
            Column(
                "low_ns",
                np.int64,
                "lower bound of the offset: until the next row, it is at most `offset_ns - low_ns` less",
            ),
            Column(
                "high_ns",
                np.int64,
                "upper bound of the offset: until the next row, it is at most `high_ns - offset_ns` more",
            ),
        ),
    ),
    Table(
        "absences",
        "a period in which a host was not recorded",
        (
            _HOST,
            Column("from_ns", np.int64, "beginning"),
            Column("until_ns", np.int64, "end"),
            Column("reason", TEXT, "reason"),
        ),
    ),
)
BY_NAME: Final = {table.name: table for table in TABLES}
# Those of probe points.
EVENT_TABLES: Final = ("packets", "sockets", "cpu", "tcp")
# What numbers of one host are below, by the column; in a joined trace, the host's number times this is added.
_THREADS: Final = 1 << 22  # PID_MAX_LIMIT, include/linux/threads.h
HOST_UNITS: Final = {"host": 1, "cpu": 1 << 10, "tid": _THREADS, "pid": _THREADS, "netns": 1 << 34}

# What a column can be, and what SQL calls it.
SQL_TYPES: Final = {"int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", TEXT: "STRING"}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


# Linux' own names of events and fields are shorter than 64 characters; a joined trace adds that of a host.
_NAME_CHARACTERS: Final = 200
_MOST_COLUMNS: Final = 1000


@dataclass(frozen=True, slots=True)
class _DescribedColumn:
    name: str
    dtype: Literal["int8", "int16", "int32", "int64", "object"]
    meaning: str


@dataclass(frozen=True, slots=True)
class _Described:
    name: str
    meaning: str
    columns: list[_DescribedColumn]
    once: list[str] = field(default_factory=list)


def described_table(description: Mapping[str, Any]) -> Table:
    """Return a table that only one trace has, as the trace's metadata describes it.

    Raises
    ------
    ValueError
        It is not described as :class:`Table` is, or its name is taken, or a name is none for a folder and for SQL.
    """
    table = read_as(_Described, description)
    columns = tuple(Column(each.name, each.dtype, each.meaning) for each in table.columns)
    names = [column.name for column in columns]
    for name in (table.name, *names, *table.once):
        if not _NAME.fullmatch(name) or len(name) > _NAME_CHARACTERS:
            raise ValueError(f"'{name[:_NAME_CHARACTERS]}' cannot be a name in it")
    if table.name in BY_NAME or not columns or len(columns) > _MOST_COLUMNS:
        raise ValueError(f"it cannot have a table {table.name} like that")
    if len({name.lower() for name in names}) < len(names):
        raise ValueError(f"two columns of its table {table.name} have one name")
    return Table(table.name, table.meaning, columns, tuple(table.once))
