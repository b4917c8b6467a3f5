# SPDX-License-Identifier: Apache-2.0
"""The tables of a trace, as data: each column's type, unit and meaning.

Integers are signed, as Spark reads unsigned 64-bit ones as decimals. Times are CLOCK_MONOTONIC of the recording host.
A number that is not known is 0, except where the meaning says otherwise.

A trace may have tables of its own besides these, such as the kernel's tracepoints with their fields: its metadata has
them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import DTypeLike

VERSION: Final = 1

TEXT: Final = "object"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: a NumPy type (:data:`TEXT` for text) and what it says."""

    name: str
    dtype: DTypeLike
    meaning: str


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
    Column("time_ns", np.int64, "when, CLOCK_MONOTONIC"),
    Column("cpu", np.int16, "where"),
    Column("point", np.int16, "which probe point: `points` has the name"),
    Column("tid", np.int32, "the thread that ran; in a softirq the one that was interrupted, 0 for the idle task"),
)
_DEVICE: Final = (
    Column("ifindex", np.int32, "number of the device in its namespace; 0 where the packet is at none"),
    Column("netns", np.int64, "inode of the network namespace"),
)
_READING: Final = (
    Column("time_ns", np.int64, "of the reading (`readings`)"),
    Column("netns", np.int64, "inode of the network namespace; 0: the host, whatever the namespace"),
    Column("source", TEXT, "from where: snmp, link, ethtool, … (docs/counters.md)"),
    Column("subject", TEXT, "which of several: an interface, a CPU, a queue"),
    Column("name", TEXT, "of the counter, as nstat, ip, tc, ethtool or sysctl call it"),
)
_HOST: Final = Column("host", np.int16, "its number; a CPU of it has 1024 times that added to its own")
_PRESENT: Final = Column("present", np.int8, "0: it was gone at that reading, and the value says nothing")

TABLES: Final = (
    Table(
        "packets",
        "a packet passes a probe point",
        (
            *_EVENT,
            Column("skb", np.int64, "address of the packet's struct sk_buff; used again when the packet is gone"),
            Column("head", np.int64, "address of its data, which clones share"),
            Column(
                "flow",
                np.int64,
                "of the outermost IP header, sender to receiver (`flows`); 0 where it was not looked at",
            ),
            Column("len_bytes", np.int32, "of the packet, as the kernel has it at that point (skb->len)"),
            Column("header_bytes", np.int32, "of them before TCP's or UDP's payload"),
            Column(
                "seq",
                np.int64,
                "TCP: sequence number of its first byte; else the IP identification (IPv6: 0), of UDP + 65536 * a hash"
                " (16 bits) of the payload's first 8 bytes, 0 where they are fewer or in pages",
            ),
            Column("tcp_flags", np.int16, "FIN 1, SYN 2, RST 4, PSH 8, ACK 16; 0: not TCP"),
            *_DEVICE,
        ),
    ),
    Table(
        "sockets",
        "something happens to a socket, or in a call on one",
        (
            *_EVENT,
            Column("sock", np.int64, "address of the struct sock; used again when the socket is gone"),
            Column("flow", np.int64, "in the direction of the data: tx.* from here, rx.* to here"),
            Column("seq", np.int64, "TCP: the next byte to be written (tx.*), to be read (rx.*)"),
            Column(
                "len_bytes",
                np.int32,
                "tx.send: asked for; tx.sent, rx.received: done, or below 0 the errno",
            ),
            Column("value", np.int64, "tcp.state: old state * 256 + new state; rx.received: flags; call.enter: number"),
            Column("protocol", np.int16, "6 TCP, 17 UDP"),
            Column("netns", np.int64, "inode of the network namespace"),
        ),
    ),
    Table(
        "cpu",
        "interrupts, softirqs, polls, the scheduler, XDP, netfilter",
        (
            *_EVENT,
            Column(
                "subject",
                np.int64,
                "number of the interrupt or softirq; address of the NAPI instance or (nf.verdict) skb; thread",
            ),
            Column(
                "value",
                np.int64,
                "irq.exit: handled; napi.poll: packets; sched.switch: state; nf.verdict: below 0 dropped",
            ),
            Column("extra", np.int32, "napi.poll: budget; xdp.*: -errno; nf.verdict: protocol family * 256 + hook"),
            *_DEVICE,
        ),
    ),
    Table(
        "drops",
        "why a packet was dropped; `packets` has the same time_ns, cpu and skb",
        (
            *_EVENT,
            Column("skb", np.int64, "address of the struct sk_buff"),
            Column("flow", np.int64, "as in `packets`"),
            Column("location", np.int64, "address of the instruction that dropped it: `symbols` has the name"),
            Column("reason", np.int32, "`reasons` has the name"),
            Column("stack", np.int32, "`stacks` has the frames; below 0: none"),
            *_DEVICE,
        ),
    ),
    Table(
        "losses",
        "events that are missing, because the ring was full or the disk too slow",
        (
            Column("from_ns", np.int64, "not before"),
            Column("until_ns", np.int64, "not after"),
            Column("cpu", np.int16, "where"),
            Column("lost", np.int64, "how many"),
        ),
    ),
    Table(
        "flows",
        "whose packets a flow has",
        (
            Column("flow", np.int64, "hash of what follows"),
            Column("source", TEXT, "address"),
            Column("source_port", np.int32, "0: none"),
            Column("destination", TEXT, "address"),
            Column("destination_port", np.int32, "0: none"),
            Column("protocol", np.int16, "of IP: 6 TCP, 17 UDP"),
        ),
        once=("flow",),
    ),
    Table(
        "threads",
        "a thread's name, from that time on",
        (
            Column("time_ns", np.int64, "since when"),
            Column("tid", np.int32, "thread"),
            Column("pid", np.int32, "its process"),
            Column("comm", TEXT, "its name"),
            Column("cgroup", np.int64, "inode of its cgroup"),
        ),
        once=("tid", "time_ns"),
    ),
    Table(
        "devices",
        "a device's name",
        (
            *_DEVICE,
            Column("name", TEXT, "such as eth0"),
            Column("type", np.int32, "ARPHRD_*: 1 Ethernet, 772 loopback"),
        ),
        once=("netns", "ifindex", "name"),
    ),
    Table(
        "stacks",
        "frames of stacks",
        (
            Column("stack", np.int32, "number"),
            Column("depth", np.int16, "0: the innermost"),
            Column("address", np.int64, "`symbols` has the name"),
        ),
        once=("stack", "depth"),
    ),
    Table(
        "symbols",
        "names of addresses in the kernel",
        (
            Column("address", np.int64, "as in `stacks`, `drops`, and `e_function_*`, `e_return_*`"),
            Column("name", TEXT, "function+offset"),
        ),
        once=("address",),
    ),
    Table(
        "readings",
        "the kernel's counters and settings were read",
        (
            Column("time_ns", np.int64, "when that began, CLOCK_MONOTONIC"),
            Column("until_ns", np.int64, "when it ended"),
            Column("host", np.int16, "of a joined trace: whose (`hosts`)"),
        ),
    ),
    Table(
        "counters",
        "a counter, a gauge, or a setting that is a number: what it was at the first reading, then each change",
        (*_READING, Column("value", np.int64, "from then on"), _PRESENT),
    ),
    Table(
        "settings",
        "a setting that is words: what it was at the first reading, then each change",
        (*_READING, Column("value", TEXT, "from then on"), _PRESENT),
    ),
    Table(
        "unread",
        "what could not be read at a reading, if that is another than at the one before",
        (
            Column("time_ns", np.int64, "since which reading"),
            Column("netns", np.int64, "inode of the network namespace; 0: the host"),
            Column("source", TEXT, "as in `counters`"),
            Column("reason", TEXT, "why; empty: it can be read again"),
        ),
    ),
    Table(
        "namespaces",
        "a network namespace's name",
        (
            Column("netns", np.int64, "its inode"),
            Column("name", TEXT, "as people call it, or its first process"),
        ),
        once=("netns", "name"),
    ),
    Table(
        "hosts",
        "a host of a trace that was joined from several (docs/join.md)",
        (
            _HOST,
            Column("name", TEXT, "as it was called when it was recorded"),
            Column("boot", TEXT, "id of its boot: after another one it is another host, with another clock"),
            Column("release", TEXT, "of its kernel"),
            Column("machine", TEXT, "its kind of CPU"),
        ),
        once=("host",),
    ),
    Table(
        "clocks",
        "how far a host's clock was ahead of the trace's, each half second",
        (
            _HOST,
            Column("time_ns", np.int64, "when, a multiple of 500,000,000"),
            Column(
                "offset_ns",
                np.int64,
                "most likely so far: taken off the times of its events, along a line to the next row",
            ),
            Column(
                "low_ns", np.int64, "at least so far: until the next row, it is by `offset_ns - low_ns` less at most"
            ),
            Column(
                "high_ns", np.int64, "at most so far: until the next row, it is by `high_ns - offset_ns` more at most"
            ),
        ),
    ),
    Table(
        "absences",
        "nothing was recorded of a host",
        (
            _HOST,
            Column("from_ns", np.int64, "since when"),
            Column("until_ns", np.int64, "until when"),
            Column("reason", TEXT, "why"),
        ),
    ),
)
BY_NAME: Final = {table.name: table for table in TABLES}

# What a column can be, and what SQL calls it.
SQL_TYPES: Final = {"int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", TEXT: "STRING"}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def described_table(description: Mapping[str, Any]) -> Table:
    """Return a table that only one trace has, as the trace's metadata describes it.

    Raises
    ------
    ValueError, KeyError, TypeError
        It is not described as :class:`Table` is, or its name is taken, or a name is none for a folder and for SQL.
    """
    columns = tuple(Column(each["name"], each["dtype"], each["meaning"]) for each in description["columns"])
    table = Table(description["name"], description["meaning"], columns, tuple(description.get("once", ())))
    for name in (table.name, *(column.name for column in columns), *table.once):
        if not _NAME.fullmatch(name):
            raise ValueError(f"'{name}' cannot be a name in it")
    if table.name in BY_NAME or not columns or any(column.dtype not in SQL_TYPES for column in columns):
        raise ValueError(f"it cannot have a table {table.name} like that")
    return table
