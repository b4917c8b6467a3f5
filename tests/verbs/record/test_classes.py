# SPDX-License-Identifier: Apache-2.0
"""``record --class``: events with rings of their own, which a flood of others costs nothing."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from hopscope.errors import UsageError
from hopscope.live.recorder.collector import Recorder
from hopscope.live.recorder.options import EventClass, RecordOptions
from hopscope.live.stream.events import Assembler
from hopscope.model.event_batch import selected
from hopscope.model.event_fields import event_condition
from hopscope.store.trace import Trace
from hopscope.verbs.record.asked import SENT, asked
from hopscope.verbs.record.command import command
from tests.lab.command import hopscope
from tests.lab.measure import ping, udp_pair, way
from tests.verbs.record.measure import Seen, recording

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from hopscope.lab import Lab

POINTS = ("tx.queue", "tx.start", "rx.driver", "rx.core")
PACKETS = 1009
# Room for 64 records.
SMALL = 4096


def port_of(flow: tuple[socket.socket, socket.socket]) -> int:
    port: int = flow[1].getsockname()[1]
    return port


def by_class(seen: Seen, column: str) -> dict[str, int]:
    rows = seen.rows("classes")
    return {name: int(rows.having(**{"class": name})[column].sum()) for name in sorted(set(rows["class"]))}


@pytest.mark.root
def test_a_flood_costs_no_event_of_a_class_and_each_ring_counts_its_own_losses(kept_lab: Lab) -> None:
    path = way(kept_lab, "veth-4")
    with contextlib.ExitStack() as stack:
        wanted, narrow, _ = flows = [stack.enter_context(udp_pair(path)) for _ in range(3)]
        classes = [
            EventClass("wanted", f"port == {port_of(wanted)}", 1 << 20),
            EventClass("narrow", f"port == {port_of(narrow)}", SMALL),
            # What is of a class is not of a later one.
            EventClass("all", f"port in ({port_of(wanted)}, {port_of(narrow)})", SMALL),
        ]
        ports = list(map(port_of, flows))
        options = RecordOptions(profiles=(), points=POINTS, ports=ports, ring_bytes=SMALL, classes=classes)
        with Recorder(options) as recorder:
            seen = Seen(recorder)
            for _ in range(PACKETS):
                assert [ping(*flow, 1) for flow in flows] == [1, 1, 1]
            assert recorder.fullness() > 0.9
            seen.take()
            delivered = [sum(seen.counts(flow=seen.flow_of(flow[0])).values()) for flow in (wanted, narrow)]
            rest = len(seen.rows("packets")) - sum(delivered)
            events, lost = by_class(seen, "events"), by_class(seen, "lost")
            entered = PACKETS * len(POINTS)
            assert events == {"narrow": delivered[1], "wanted": entered}
            assert delivered[0] == entered
            assert lost == {"narrow": entered - delivered[1], "wanted": 0}
            assert 0 < rest < entered
            assert recorder.lost == seen.rows("losses")["lost"].sum() == lost["narrow"] + entered - rest
            # Names came through, too.
            assert len(seen.devices(seen.rows("packets"))) == 2
            assert set(seen.rows("packets")["tid"]) <= {0, *seen.rows("threads")["tid"]}


@pytest.mark.root
def test_classes_are_what_the_conditions_select_of_all(lab: Lab) -> None:
    path = way(lab, "veth-4")
    with udp_pair(path) as first, udp_pair(path) as second:
        texts = {"big": "len_bytes > 60 and point != rx.core", "first": f"port == {port_of(first)}"}
        options: dict[str, Any] = {"profiles": (), "points": POINTS}
        with recording(lab, **options, classes=[EventClass(*each) for each in texts.items()]) as seen:
            assert [ping(*flow, 23) for flow in (first, second)] == [23, 23]
            second[0].send(b"x" * 100)
            seen.take()
    assembler = Assembler(seen.metadata)
    for table in ("flows", "threads", "devices", "packets"):
        rows = seen.rows(table)
        assembler.add(table, {name: rows[name] for name in seen.columns(table)})
    events = assembler.ready(1 << 62)
    big, of_first = (selected(event_condition(text, assembler.known), events) for text in texts.values())
    assert by_class(seen, "events") == {"big": int(big.sum()), "first": int((of_first & ~big).sum())}
    assert 0 < int(big.sum()) < len(events)


@pytest.mark.root
def test_the_end_and_the_summary_name_each_class(lab: Lab, tmp_path: Path) -> None:
    classes = ["--class", "sent=point == tx.start", "--class", "none=port == 1", "--class-buffer", "none=1"]
    words = ["-P", "packets", "--netns", str(lab.client.inode), *classes, "-o", str(tmp_path / "trace")]
    done = hopscope("record", *words, "--", "sleep", "0")
    assert "class none: 0 events, none lost" in done.stderr
    with Trace(tmp_path / "trace") as trace:
        assert trace.metadata.options["classes"] == {"sent": "point == tx.start", "none": "port == 1"}
    assert "class none: 0 events, none lost" in hopscope("report", "summary", str(tmp_path / "trace")).stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--class", "port == 1"], "has no name before a `=`"),
        (["--class", "a="], "has no name before a `=`"),
        (["--class", "a=port == 1", "--class", "a=port == 2"], "--class a is given twice"),
        (["--class-buffer", "a=1"], "there is no class a"),
        (["--class", "a=port == 1", "--class-buffer", "a=3"], "a ring cannot have this size"),
        ([word for name in "abcdef" for word in ("--class", f"{name}=port == 1")], "there can be 5 classes"),
    ],
)
def test_what_is_no_class_is_refused(words: list[str], said: str) -> None:
    values = command.make_context("record", words).params
    with pytest.raises(UsageError, match=said):
        asked({name: value for name, value in values.items() if name in SENT})


def test_a_class_by_how_long_a_hop_took_is_refused() -> None:
    with pytest.raises(UsageError, match="--class slow cannot compare how long a hop took"):
        Recorder(RecordOptions(classes=[EventClass("slow", "rx.core > 1ms")]))
