# SPDX-License-Identifier: Apache-2.0
"""``record --keep`` and ``--drop``: records of what is wanted alone, and counts of all else."""

from __future__ import annotations

import contextlib
import socket
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from hopscope.errors import UsageError
from hopscope.live.recorder.collector import Recorder
from hopscope.live.recorder.options import RecordOptions
from hopscope.live.stream.events import Assembler
from hopscope.model.event_batch import Numbers, Texts, selected
from hopscope.model.event_fields import event_condition
from tests.lab.measure import ping, tcp_pair, udp_pair, way
from tests.verbs.record.measure import recording

if TYPE_CHECKING:
    import numpy as np

    from hopscope.lab import Lab
    from hopscope.live.stream.events import Events
    from tests.verbs.record.measure import Seen

pytestmark = pytest.mark.root

MESSAGES = 23
POINTS = (
    *("rx.driver", "rx.core", "rx.l4", "rx.tcp_queue", "rx.copy", "skb.free", "skb.drop"),
    *("tx.queue", "tx.start", "tx.driver", "tx.send", "tx.sent", "rx.received", "rx.ready", "tcp.probe"),
)
COLUMNS = ("point", "cpu", "tid", "comm", "interface", "flow", "source", "destination_port", "len_bytes", "reason")


# What the conditions would be that leave nothing out.
DEFAULTS = {"keep": "time_ns > 0", "drop": "time_ns < 0"}


def masked(seen: Seen, events: Events, text: str) -> np.ndarray[Any, Any]:
    return selected(event_condition(text, Assembler(seen.metadata).known), events)


def events_of(seen: Seen) -> Events:
    assembler = Assembler(seen.metadata)
    for table in ("flows", "threads", "devices", "packets", "sockets", "tcp", "drops"):
        rows = seen.rows(table)
        if len(rows):
            assembler.add(table, {name: rows[name] for name in seen.columns(table)})
    return assembler.ready(1 << 62)


def values(events: Events, name: str) -> list[Any]:
    column = events.column(name)
    if isinstance(column, Texts):
        return [column.names[code] if code >= 0 else None for code in column.codes.tolist()]
    assert isinstance(column, Numbers)
    return [int(value) for value in column.values]


def told(events: Events, mask: np.ndarray[Any, Any] | None = None) -> Counter[tuple[Any, ...]]:
    """Return what is recorded of events, except for their times, which each recorder takes itself."""
    rows = zip(*(values(events, name) for name in COLUMNS), strict=True)
    return Counter(row for at, row in enumerate(rows) if mask is None or mask[at])


def test_records_are_those_that_the_condition_selects_of_all(lab: Lab) -> None:
    path = way(lab, "veth-4")
    with udp_pair(path) as (sender, receiver), tcp_pair(path) as connection, contextlib.ExitStack() as stack:
        port, comm = receiver.getsockname()[1], "python"
        rules = [
            {
                "keep": f"port == {port} and not point == rx.copy",
                "drop": f"interface == {path.ifname} or len_bytes > 200",
            },
            {"keep": f"protocol == tcp and (tcp_flags & 8 or comm == {comm} or point == tcp.probe)"},
            {"drop": f"source == {path.host}/32 and cpu >= 0 or point in (rx.received, tx.driver)"},
        ]
        # It has all events, and looks at headers at each point as the others do.
        every = stack.enter_context(recording(lab, profiles=(), points=POINTS, keep="seq >= 0 or time_ns > 0"))
        some = [stack.enter_context(recording(lab, profiles=(), points=POINTS, **each)) for each in rules]
        ping(sender, receiver, MESSAGES)
        ping(*connection, MESSAGES)
        for seen in (every, *some):
            seen.take()
    events = events_of(every)
    assert every.counts()["tx.sent"] == 2 * MESSAGES
    for each, seen in zip(rules, some, strict=True):
        kept, dropped = (masked(every, events, each.get(rule, text)) for rule, text in DEFAULTS.items())
        assert told(events_of(seen)) == told(events, kept & ~dropped), each
        assert 0 < int((kept & ~dropped).sum()) < len(events)
        counted = seen.rows("unrecorded")
        for condition, mask in (("keep", ~kept), ("drop", kept & dropped)):
            rows = counted.having(condition=condition)
            by_point = Counter(dict.fromkeys(set(rows["point"].tolist()), 0))
            for number, count in zip(rows["point"].tolist(), rows["events"].tolist(), strict=True):
                by_point[seen.metadata.points[number]] += count
            points = values(events, "point")
            assert +by_point == Counter(point for point, out in zip(points, mask.tolist(), strict=True) if out), each


def test_drops_by_reason(lab: Lab) -> None:
    path = way(lab, "veth-4")
    with (
        udp_pair(path) as (sender, receiver),
        recording(lab, profiles=["drops"], keep="reason == NO_SOCKET and destination_port == 9") as seen,
    ):
        with lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as closed:
            for _ in range(5):
                with contextlib.suppress(ConnectionRefusedError):
                    closed.sendto(b"x", (path.host, 9))
        ping(sender, receiver, MESSAGES)
        seen.take()
    assert len(seen.rows("packets")) == len(seen.rows("drops")) == 5
    assert set(seen.reasons()) == {"NO_SOCKET"}


def test_events_of_tracepoints_have_filters_of_their_own() -> None:
    with pytest.raises(UsageError, match="those of -e have filters of their own"):
        Recorder(RecordOptions(tracepoints=["tcp:tcp_probe"], keep="port == 1"))
