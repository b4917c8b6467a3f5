# SPDX-License-Identifier: Apache-2.0
"""Traces that have something of everything, and all reports, for what must hold of every statement that they make."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.trace.recorded_counters import first_and_last
from hopscope.trace.selection import Selection
from hopscope.verbs.report.after import after
from hopscope.verbs.report.calls import calls
from hopscope.verbs.report.calls import summary as calls_summary
from hopscope.verbs.report.compare import compare
from hopscope.verbs.report.counters import counter_history
from hopscope.verbs.report.cpu import BY as CPU_BY
from hopscope.verbs.report.cpu import report_cpu
from hopscope.verbs.report.drops import drop_reasons
from hopscope.verbs.report.events import write_events
from hopscope.verbs.report.flows import flows
from hopscope.verbs.report.hops import BY, hop_times
from hopscope.verbs.report.interrupts import interrupts
from hopscope.verbs.report.messages import messages
from hopscope.verbs.report.moments import moments
from hopscope.verbs.report.netdev_times import received, sent
from hopscope.verbs.report.network import network
from hopscope.verbs.report.outliers import LEAST_MESSAGES, outliers
from hopscope.verbs.report.packets import packet_trees
from hopscope.verbs.report.requests import requests
from hopscope.verbs.report.summary import summary
from hopscope.verbs.report.tcp import connections, history
from hopscope.verbs.report.tls import summary as tls_summary
from hopscope.verbs.report.tls import tls
from tests.lab.joined import JoinedTrace
from tests.lab.small_trace import small
from tests.lab.traces import STARTED_NS, columns, write
from tests.trace.packets.test_translations import connection, flows_of
from tests.verbs.report.test_events import OPENED, PATHS
from tests.verbs.report.test_network import MS, datagrams, stream
from tests.verbs.report.test_outliers import busy
from tests.verbs.report.test_requests import Connection

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hopscope.store.trace import Trace

_ALL: Final = Selection()
_SOME: Final = Selection(ports=(80,), from_s=0.0)
_OF_PROCESS: Final = Selection(processes=("client",))
_OF_DEVICE: Final = Selection(interfaces=("eth0",))
_EVENTS: Final = 40


def alone(folder: Path) -> Path:
    """Write a trace of one host and return its folder."""
    made = small()
    busy(made, LEAST_MESSAGES + 3, lambda number: {"rx.l4": 90_000} if number % 9 == 0 else {}).write(made)
    asking = Connection(made, "10.0.0.7:40001", "10.0.0.8:81")
    for number in range(3):
        asking.ask(900_000_000 + number * 1_000_000)
    connection(made, flows_of(made, "both"), 950_000_000, count=2)
    for number in range(3):
        made.drop(960_000_000 + number, skb=0x7000 + number, flow=asking.forth, location=-4096, stack=1, ifindex=2)
    made.add("symbols", address=-4096, name="tcp_v4_rcv+0x12")
    for depth in range(2):
        made.add("stacks", stack=1, depth=depth, address=-4096 - depth)
    made.lose(970_000_000, 971_000_000, lost=3)
    for number, value in enumerate((5, 9, 4)):
        at = STARTED_NS + 1_000_000_000 * number
        made.add("readings", time_ns=at, until_ns=at + 1)
        made.add("counters", time_ns=at, source="snmp", name="UdpInErrors", value=value, present=1)
    made.add("unread", time_ns=STARTED_NS, source="ethtool", reason="no such device")
    tables = {name: columns(rows, name) for name, rows in made.rows.items()}
    tables[OPENED.name] = {
        "time_ns": STARTED_NS + 1_200 + 1_000 * np.arange(len(PATHS)),
        "cpu": np.zeros(len(PATHS), np.int16),
        "tid": np.array([17, 18, 0], np.int32),
        "ptr": np.array([-(1 << 47), -11, 5]),
        "order": np.arange(len(PATHS), dtype=np.int32),
        "path": np.array(PATHS, dtype=object),
    }
    return write(folder, tables, tables=[OPENED], reasons={2: "NO_SOCKET"})


def joined(folder: Path) -> Path:
    """Write a trace of two hosts and return its folder."""
    made = JoinedTrace()
    stream(made, [(0, 100), (100, 300), (200, 300)], [(0, 100), (100, 250)])
    # No two events of an address are at the same time: which of them is first, no engine knows.
    for row in made.made.rows["packets"]:
        row |= {"time_ns": row["time_ns"] + 500, "skb": row["skb"] + (1 << 20), "head": row["head"] + (1 << 20)}
    datagrams(made, (65536 * 7 + number % 5 for number in range(11)), lost=[3, 7])
    made.socket(0, "tx.send", 199 * MS, tid=17, flow=made.made.flow("10.0.0.1:4000", "10.0.0.2:80"), len_bytes=100)
    made.absent(1, 500 * MS, 700 * MS)
    return made.write(folder)


_REPORTS: Final[dict[str, Callable[[Trace], object]]] = {
    "hops": lambda trace: hop_times(trace, _ALL),
    **{f"hops by {by}": (lambda trace, by=by: hop_times(trace, _SOME, by=by)) for by in BY},
    "messages": lambda trace: messages(trace, _ALL),
    "messages of some": lambda trace: messages(trace, _SOME),
    "requests": lambda trace: requests(trace, _ALL),
    "packets": lambda trace: packet_trees(trace, _ALL, limit=7, slowest=True),
    "packets of some": lambda trace: packet_trees(trace, _SOME, limit=None, slowest=False),
    "calls": lambda trace: (calls(trace, _SOME), calls_summary(trace, _ALL)),
    "tls": lambda trace: (tls(trace, _SOME), tls_summary(trace, _ALL)),
    "cpu": lambda trace: (report_cpu(trace, _SOME), *(report_cpu(trace, _ALL, by=by) for by in CPU_BY)),
    "interrupts": lambda trace: (interrupts(trace, _ALL), interrupts(trace, _SOME)),
    "flows": lambda trace: flows(trace, _ALL),
    "tcp": lambda trace: (connections(trace, _SOME), history(trace, _ALL)),
    "drops": lambda trace: drop_reasons(trace, _ALL, stacks=True),
    "netdev-times": lambda trace: (received(trace, _ALL), sent(trace, _ALL)),
    "outliers": lambda trace: outliers(trace, _ALL),
    "compare": lambda trace: compare(trace, trace, _ALL),
    "summary": lambda trace: summary(trace, _ALL),
    "counters": lambda trace: counter_history(trace, _ALL),
    "moments": lambda trace: moments(trace, _ALL),
    "after": lambda trace: after(trace, _ALL, "rx.core", 1.0),
    "events": lambda trace: write_events(trace, _ALL, "text", BytesIO()),
    "events of some": lambda trace: write_events(trace, _SOME, "json", BytesIO(), limit=_EVENTS),
    "events as csv": lambda trace: write_events(trace, _ALL, "csv", BytesIO()),
}
_OF_ONE_HOST: Final[dict[str, Callable[[Trace], object]]] = {
    "hops of a process": lambda trace: hop_times(trace, _OF_PROCESS),
    "requests of a process": lambda trace: requests(trace, _OF_PROCESS),
    "packets of a device": lambda trace: packet_trees(trace, _OF_DEVICE, limit=None, slowest=False),
    "readings": first_and_last,
}
# Name → what writes the trace, and its reports.
TRACES: Final = {
    "alone": (alone, _REPORTS | _OF_ONE_HOST),
    "joined": (joined, _REPORTS | {"network": lambda trace: network(trace, _ALL)}),
}
