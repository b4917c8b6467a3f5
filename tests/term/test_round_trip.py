# SPDX-License-Identifier: Apache-2.0
"""What goes out as JSON comes back as it was, and what is not as the schema says is refused with a sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.errors import FormatError
from hopscope.model.checked_json import Fields
from hopscope.model.cpu import Counted, CpuRow, CpuSnapshot, Part
from hopscope.model.drops import DropRow, DropSnapshot
from hopscope.model.histogram import Histogram
from hopscope.model.message import (
    CAUSES,
    CONGESTION_STATES,
    STAGES,
    Device,
    Flow,
    Message,
    ReceivedMessage,
    SentMessage,
)
from hopscope.model.parts import PARTS
from hopscope.model.slowest import Slowest
from hopscope.model.snapshot import Discard, HopRow, Kind, Overhead, PlanRow, PlanStatus, ProgramCost, Snapshot
from hopscope.model.stacks import Stack
from hopscope.term.cpu_json import cpu_from_json, cpu_to_json, stacks_from_json, stacks_to_json
from hopscope.term.drops_json import drops_from_json, drops_to_json
from hopscope.term.json_lines import from_json, line, to_json
from hopscope.term.message_json import message_from_json, message_to_json, slowest_from_json, slowest_to_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.term.json_lines import Json

OFFSET_NS = 1_767_323_045_250_000_000

texts = st.text(max_size=8)
counts = st.integers(0, 2**63 - 1)
times = st.none() | st.integers(1, 2**62)
# To the precision of the JSON: a microsecond, and a tenth of a nanosecond.
moments = st.integers(0, 4 * 10**15).map(lambda us: us * 1000)
tenths = st.none() | st.integers(0, 10**7).map(lambda value: value / 10)
figures = st.just(0.0) | st.floats(1e-3, 1e6)
labels = st.dictionaries(texts, texts, max_size=2)
notes = st.lists(texts, max_size=2)
kinds = st.sampled_from(get_args(Kind))

histograms = st.lists(st.integers(0, 20 * 10**9), max_size=20).map(Histogram.from_values)
hops = st.builds(
    HopRow, texts, texts, texts, texts, labels, histograms, chain=st.none() | texts, error_ns=st.none() | counts
)
programs = st.builds(ProgramCost, texts, counts, tenths, tenths, counts)
overheads = st.builds(Overhead, counts, tenths, st.none() | figures, figures, counts, st.lists(programs, max_size=2))
plans = st.lists(
    st.builds(PlanRow, texts, texts, st.sampled_from(get_args(PlanStatus)), texts, texts, texts), max_size=2
)
snapshots = st.builds(
    Snapshot,
    st.sampled_from(["rx", "tx"]),
    kinds,
    moments,
    figures,
    st.lists(hops, max_size=3),
    overheads,
    lost=counts,
    discarded=st.lists(st.builds(Discard, texts, texts, counts, texts), max_size=2),
    plan=plans,
    sampling_1_in=st.integers(1, 2**20),
    filters=labels,
    notes=notes,
)
drops = st.builds(
    DropSnapshot,
    kinds,
    moments,
    figures,
    st.lists(st.builds(DropRow, labels, counts), max_size=3),
    counts,
    counts,
    overheads,
    plans,
    labels,
    notes,
)
counters = st.none() | counts
part = st.builds(Part, counts, counts, counts, counts, st.none() | st.builds(Counted, counters, counters, counters))
rows = st.builds(CpuRow, labels, st.fixed_dictionaries(dict.fromkeys(PARTS, part)))
stacks = st.lists(
    st.builds(
        Stack, st.sampled_from(list(PARTS)), st.lists(texts, max_size=4).map(tuple), st.integers(0, 2**40), texts
    ),
    max_size=4,
)
cpus = st.builds(
    CpuSnapshot,
    kinds,
    moments,
    figures,
    st.integers(1, 4096),
    rows,
    st.lists(rows, max_size=2),
    overheads,
    hz=st.integers(1, 20_000),
    stacks=stacks,
    lost=counts,
    energy_j=st.none() | figures,
    plan=plans,
    notes=notes,
)
PID = 1234
ports = st.integers(1, 65535)
flows = st.none() | st.builds(
    Flow, st.sampled_from(["tcp", "udp"]), texts, ports, texts, ports, texts, st.just(PID), texts
)

stages = st.none() | st.fixed_dictionaries(
    {}, optional={"cwnd": counts, "srtt_ns": times, "state": st.sampled_from(CONGESTION_STATES)}
)
states = st.fixed_dictionaries(dict.fromkeys(STAGES, stages))


@st.composite
def any_message(draw: st.DrawFn) -> SentMessage:
    datagram = draw(st.booleans())
    return SentMessage(
        flow=draw(flows),
        cookie=draw(counts),
        pid=PID,
        len_bytes=draw(counts),
        end_byte=0 if datagram else draw(counts),
        entry_ns=draw(times),
        handed_ns=draw(times),
        sched_ns=draw(times),
        driver_ns=draw(times),
        nic_ns=draw(times),
        done_ns=draw(times),
        qdisc_ns=draw(times),
        devices=draw(st.lists(st.builds(Device, texts, counts), max_size=2)),
        retransmits=draw(counts),
        cause=draw(st.sampled_from(list(CAUSES))),
        slept=draw(st.booleans()),
        datagram=datagram,
        aborted=draw(st.booleans()),
        tcp=draw(st.none() | states),
    )


def sent(document: object) -> Fields:
    """Return a document as it is on the other side."""
    return Fields(json.loads(line(document)), "It")  # type: ignore[arg-type]


@given(snapshots)
def test_hops_come_back_as_they_went(snapshot: Snapshot) -> None:
    assert from_json(sent(to_json(snapshot)), snapshot.verb) == snapshot


@given(drops)
def test_drops_come_back_as_they_went(snapshot: DropSnapshot) -> None:
    assert drops_from_json(sent(drops_to_json(snapshot))) == snapshot


@given(cpus)
def test_cpu_time_and_stacks_come_back_as_they_went(snapshot: CpuSnapshot) -> None:
    document = cpu_to_json(replace(snapshot, stacks=[]))
    found = stacks_from_json(sent(stacks_to_json(snapshot.stacks)))
    assert cpu_from_json(sent(document), found) == snapshot


@st.composite
def received(draw: st.DrawFn) -> ReceivedMessage:
    datagram = draw(st.booleans())
    named = draw(st.one_of(st.none(), flows))
    times_of = ("entry", "core", "ip", "transport", "queued", "ordered", "asleep", "runnable", "done")
    return ReceivedMessage(
        flow=named and replace(named, pid=0, comm=""),
        cookie=draw(counts),
        pid=PID,
        reader=draw(texts),
        len_bytes=draw(counts),
        end_byte=0 if datagram else draw(counts),
        datagram=datagram,
        **{f"{name}_ns": draw(times) for name in times_of},
    )


@given(st.one_of(any_message(), received()))
def test_messages_come_back_as_they_went(message: Message) -> None:
    assert message_from_json(sent(message_to_json(message, OFFSET_NS))) == message


@given(st.sampled_from(["rx", "tx"]), st.data(), kinds, counts)
def test_slowest_come_back_as_they_went(verb: str, data: st.DataObject, kind: Kind, seen: int) -> None:
    found = data.draw(st.lists(received() if verb == "rx" else any_message(), max_size=2))
    slowest = Slowest(kind, 10, seen, 3, found)
    assert slowest_from_json(sent(slowest_to_json(slowest, verb, 0, 1.0, OFFSET_NS))) == slowest


def test_message_of_a_socket_that_another_process_had_first_is_shown_alike(
    messages: list[SentMessage],
) -> None:
    for message in messages:
        document = message_to_json(replace(message, pid=PID), OFFSET_NS)
        assert message_to_json(message_from_json(sent(document)), OFFSET_NS) == document


def changed(document: Json | list[Json]) -> Iterator[str]:
    """Put into each member of a document, at any depth, what it cannot be; yield its name each time, then undo it."""
    members = document.items() if isinstance(document, dict) else enumerate(document)
    for name, value in [*members]:
        document[name] = object_like(value)  # type: ignore[call-overload]
        yield str(name)
        document[name] = value
        if isinstance(value, dict | list):
            yield from changed(value)


def object_like(value: object) -> object:
    """Return something of another type."""
    return [[]] if isinstance(value, dict | str) or value is None else {"": []}


def test_whatever_does_not_fit_the_schema_is_refused() -> None:
    hop = HopRow("rx.ip", "a", "b", "packet", {"cpu": "1"}, Histogram.from_values([3, 99, 10**10]), "", 7)
    cost = Overhead(1, 2.5, 0.5, 0.25, 0, [ProgramCost("rx_core", 1, 2.0, 1.0, 0)])
    plan = [PlanRow("rx.core", "kprobe", "attached")]
    snapshot = Snapshot("rx", "total", 0, 1.0, [hop], cost, 1, [Discard("a", "b", 1, "c")], plan, 1, {"a": "b"}, ["n"])
    said = set()
    document = to_json(snapshot)
    for _ in changed(document):
        try:
            found = from_json(Fields(document, "A snapshot"), "rx")
        except FormatError as error:
            said.add(str(error))
        else:  # what follows from other members is not read: it cannot contradict them
            assert found == snapshot
    assert "A snapshot has no valid lost" in said
    assert "buckets of hops of A snapshot has no valid count" in said
    assert len(said) > 40


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": "hopscope.rx/2"}, "no valid schema"),
        ({"time": "yesterday"}, "yesterday is not a time"),
        ({"interval_s": -1}, "no valid interval_s"),
        ({"interval_s": float("inf")}, "no valid interval_s"),
        ({"lost": True}, "no valid lost"),
        ({"lost": 2**64}, "no valid lost"),
        ({"lost": None}, "no valid lost"),
        ({"notes": ["a", 1]}, "no valid notes"),
        ({"sampling_1_in": 0}, "no valid sampling_1_in"),
    ],
)
def test_what_is_refused_is_said(change: dict[str, object], said: str, tcp_snapshot: Snapshot) -> None:
    with pytest.raises(FormatError, match=said):
        from_json(Fields(to_json(tcp_snapshot) | change, "It"), "rx")


def test_stack_without_names_is_refused() -> None:
    document = stacks_to_json([Stack("send", ("a", "b"), 1)])
    document["names"].pop()
    with pytest.raises(FormatError, match="function without a name"):
        stacks_from_json(sent(document))


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(FormatError, match=r"^It is not a JSON object$"):
        Fields([1], "It")
