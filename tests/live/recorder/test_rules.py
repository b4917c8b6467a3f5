# SPDX-License-Identifier: Apache-2.0
"""Conditions of ``record --keep`` and ``--drop``: the kernel selects what NumPy and SQL do, whatever the condition."""

from __future__ import annotations

import ctypes
import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import build_bpf
from hopscope.bpf.layout import HOP_BESIDE_DTYPE, HopRule
from hopscope.errors import UsageError
from hopscope.libbpf import BpfObject
from hopscope.live.recorder.options import EventClass
from hopscope.live.recorder.rules import Rules
from hopscope.live.recorder.tables import EVENTS, POINTS_PER_TABLE
from hopscope.model.event_batch import Numbers, Texts
from tests.libbpf.judge import RunOptions
from tests.live.replayed import Replayed, conditions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hopscope.live.stream.events import Events

MOST = 4096
EVENT_DTYPE = np.dtype(
    [
        ("record", np.uint8, 56),
        ("address", np.uint8, (2, 16)),
        ("port", ">u2", 2),
        ("protocol", np.uint32),
        ("beside", HOP_BESIDE_DTYPE),
        ("rule", np.uint32),
        ("unused", np.uint32),
    ]
)
PLAIN = {
    "time_ns",
    "tid",
    "ifindex",
    "netns",
    "flow",
    "len_bytes",
    "header_bytes",
    "seq",
    "tcp_flags",
    "skb",
    "sock",
    "value",
}
# Decided by where the event is, or by the packet's event before, which the kernel does not know.
NOT_HERE = ("cpu", "hop", "hop_ns", "rx.core", "tx.driver", "skb.free")


def values(events: Events, name: str) -> list[Any]:
    """Return a column of events as plain values; None where it is not known."""
    column = events.column(name)
    if isinstance(column, Texts):
        return [column.names[code] if code >= 0 else None for code in column.codes]
    assert isinstance(column, Numbers)
    known = np.ones(len(column.values), bool) if column.known is None else column.known
    return [value if each else None for value, each in zip(column.values.tolist(), known.tolist(), strict=True)]


def packed(text: str | None) -> np.ndarray[Any, np.dtype[np.uint8]]:
    address = ipaddress.ip_address(text or "::")
    raw = b"\0" * 10 + b"\xff\xff" + address.packed if address.version == 4 else address.packed
    return np.frombuffer(raw, np.uint8)


class InKernel:
    """Events of a recording as the recorder's programs would have them."""

    def __init__(self, replayed: Replayed) -> None:
        self.replayed = replayed
        self.reasons = replayed.trace.metadata.reasons
        numbers = {name: number for number, name in replayed.trace.metadata.points.items()}
        parts = [self._events(part, numbers) for part in replayed.parts]
        self.events = np.concatenate([events for events, _ in parts])[:MOST]
        self.times = [time for _, times in parts for time in times][:MOST]

    def _events(self, part: Events, numbers: dict[str, int]) -> tuple[np.ndarray[Any, Any], list[tuple[int, int]]]:
        points, times, cpus = (values(part, name) for name in ("point", "time_ns", "cpu"))
        # Events of -e have no record in these rings.
        own = np.array([point in numbers for point in points], bool)
        events = np.zeros(len(points), EVENT_DTYPE)
        names = {name for _, dtype in EVENTS.values() for name in dtype.names or ()}
        columns = {name: values(part, name) for name in names & PLAIN}
        of_flow = {name: values(part, name) for name in ("source", "destination", "source_port", "destination_port")}
        protocols, reasons = values(part, "protocol"), values(part, "reason")
        by_name = {name: number for number, name in self.reasons.items()}
        beside = {name: values(part, name) for name in ("comm", "interface", "pid")}
        for at in np.flatnonzero(own).tolist():
            number = numbers[points[at]]
            _, dtype = EVENTS[number // POINTS_PER_TABLE]
            record = np.zeros((), dtype)
            for name in dtype.names or ():
                if name in columns and columns[name][at] is not None and name != "protocol":
                    record[name] = np.array(columns[name][at]).astype(dtype[name])
            record["point"] = number
            events[at]["record"] = np.frombuffer(record.tobytes(), np.uint8)
            events[at]["address"] = [packed(of_flow[name][at]) for name in ("source", "destination")]
            events[at]["port"] = [of_flow[f"{name}_port"][at] or 0 for name in ("source", "destination")]
            events[at]["protocol"] = protocols[at] or 0
            for name, column in beside.items():
                events[at]["beside"][name] = column[at] or (0 if name == "pid" else b"")
            events[at]["beside"]["reason"] = by_name.get(reasons[at], 0)
        pairs = list(zip(times, cpus, strict=True))
        return events[own], [pairs[at] for at in np.flatnonzero(own).tolist()]

    def rules(self, program: Path, keep: str, drop: str, classes: Sequence[str]) -> list[int]:
        """Return which condition leaves out each of the events, or which class it is of, as the kernel says."""
        named = [EventClass(f"class{number}", text) for number, text in enumerate(classes)]
        checked = Rules(keep, drop, named).checked(list(self.replayed.trace.metadata.points.values()))
        with BpfObject.open(program, checked.functions(self.reasons)) as bpf:
            bpf.set_const("cfg_rules", 1)
            bpf.maps["unrecorded"].set_max_entries(320)
            bpf.load()
            rows = bpf.maps["events"].array(EVENT_DTYPE)
            rows[: len(self.events)] = self.events
            rows["rule"] = 99
            bpf.data(".bss")["used"] = len(self.events)
            options = RunOptions(sz=ctypes.sizeof(RunOptions))
            run = ctypes.CDLL("libbpf.so.1", use_errno=True).bpf_prog_test_run_opts
            assert run(bpf.programs["judge_all"].fd, ctypes.byref(options)) == 0
            return [int(rule) for rule in rows["rule"][: len(self.events)]]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("bpf") / "rules.bpf.o"
    build_bpf.compile_object(Path(__file__).parent / "bpf" / "rules.bpf.c", target, build_bpf.host_arch())
    return target


@pytest.fixture(scope="module")
def recorded() -> Iterator[dict[str, InKernel]]:
    found = {name: InKernel(Replayed(name)) for name in ("udp", "events", "drops")}
    yield found
    for each in found.values():
        each.replayed.close()


@pytest.mark.root
@settings(max_examples=15, deadline=None)
@given(
    name=st.sampled_from(["udp", "events", "drops"]),
    left_out=st.tuples(conditions(NOT_HERE), conditions(NOT_HERE)),
    classes=st.lists(conditions(NOT_HERE), max_size=int(HopRule.HOP_CLASSES)),
)
@example("drops", ("reason == NETFILTER_DROP or comm != a_name_of_more_than_15_bytes", "not interface == server0"), [])
@example("udp", ("destination == 10.77.0.0/24 and not port == 1", "source == ::/0 or comm == client"), ["tid > 0"])
@example("udp", ("time_ns > 0", "point == rx.copy"), ["port == 1", "len_bytes & 1", "comm == client", "cpu >= 0"])
def test_the_kernel_selects_what_numpy_and_sql_do(
    program: Path, recorded: dict[str, InKernel], name: str, left_out: tuple[str, str], classes: list[str]
) -> None:
    each = recorded[name]
    every = [*left_out, *classes]
    kept, dropped, *of_classes = (set(each.replayed.recorded(text)) for text in every)
    assert [kept, dropped, *of_classes] == [set(each.replayed.selected(text)) for text in every]
    numbers = range(HopRule.HOP_RULE_CLASS, HopRule.HOP_RULE_CLASS + len(classes))
    expected = [
        1
        if time not in kept
        else 2
        if time in dropped
        else next((number for number, events in zip(numbers, of_classes, strict=True) if time in events), 0)
        for time in each.times
    ]
    assert each.rules(program, *left_out, classes) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rx.core > 1ms", "the kernel does not know a packet's event before"),
        ("hop < 1ms or port == 1", "the kernel does not know a packet's event before"),
        ("point == rx.ip", "this recording does not have"),
        ("snd_cwnd > 1", "no field snd_cwnd"),
        (" or ".join(["address == fd00::1:2:3:4"] * 60), "too long"),
    ],
)
def test_what_it_cannot_evaluate_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Rules(text).checked(["rx.core"]).functions({})["rules"](8 * 2046)
