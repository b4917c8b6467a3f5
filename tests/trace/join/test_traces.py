# SPDX-License-Identifier: Apache-2.0
"""Traces of several hosts as one: nothing is mixed up, nothing is missing, and what is missing is said."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hopscope.clock.change import Change
from hopscope.errors import FormatError, UsageError
from hopscope.store.hosts import CHANGES
from hopscope.store.meta import FILE, Metadata
from hopscope.store.probes import change_columns
from hopscope.store.schema import Column, Table
from hopscope.store.trace import Trace
from hopscope.trace.clock_bounds import SLOT_NS, bounds_ns
from hopscope.trace.each_host import each_host
from hopscope.trace.host_numbers import ADDRESSES, NAMESPACES, THREADS, hosts
from hopscope.trace.join.clocks import Axis
from hopscope.trace.join.hosts import absence_notes, host_lines
from hopscope.trace.join.numbers import Numbers
from hopscope.trace.join.samples import changes
from hopscope.trace.join.sources import sources
from hopscope.trace.join.traces import join
from hopscope.trace.recorded_counters import first_and_last, times
from hopscope.trace.relation import build
from hopscope.trace.selection import Selection
from hopscope.verbs.check.findings import evaluate, together
from hopscope.verbs.report.counters import counter_history
from hopscope.verbs.report.events import write_events
from hopscope.verbs.report.hops import hop_times
from hopscope.verbs.report.messages import messages
from hopscope.verbs.report.moments import moments
from hopscope.verbs.report.network import network
from hopscope.verbs.report.requests import requests
from tests.lab.recordings import AHEAD_NS, SECOND, Recording
from tests.lab.traces import ENDED_NS, STARTED_NS, TCP, MadeTrace, columns, points, write

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

EVENT = Table("e_tcp_probe", "a tracepoint", (Column("time_ns", "int64", "when"), Column("cpu", "int16", "where"),
              Column("tid", "int32", "who"), Column("address", "int64", "u64 address")))  # fmt: skip


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording(tmp_path / "r", "a", "b")


def event(at: int = SECOND, **columns_: int) -> MadeTrace:
    made = MadeTrace()
    made.packet("rx.core", at, skb=-4096, head=-8192, ifindex=2, netns=7, tid=5, cpu=3, **columns_)
    return made


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ([0, 0], " (time-stamped by the kernels)"),
        ([1, 1], " (time-stamped by the NICs)"),
        ([0, 1], " (62 time-stamped by the NICs, the rest by the kernels)"),
        (None, ""),
    ],
)
def test_who_stamped_the_probes_is_said_where_it_is_known(
    recording: Recording, kinds: list[int] | None, said: str
) -> None:
    for name in "ab":
        recording.part(name, event())
    for start_s, by_nics in zip((0, 5), kinds or [0, 0], strict=True):
        recording.probe("a", "b", from_s=start_s, until_s=start_s + 5, by_nics=by_nics)
    if kinds is None:
        recording.grow_old()
    with recording.joined() as trace:
        assert (
            host_lines(trace)[2]
            == f"clocks of a and b: compared using 62 probes in one direction and 62 in the other{said}"
        )


def test_times_are_of_one_axis_within_the_bound(recording: Recording) -> None:
    for name in "ab":
        recording.part(name, event())
    recording.probe("a", "b")
    with recording.joined() as trace:
        here, there = (trace.rows(f"SELECT time_ns FROM packets WHERE cpu = {cpu}")[0][0] for cpu in (3, 1027))
        assert here == STARTED_NS + SECOND
        (bound,) = bounds_ns(trace, 1, np.array([there]))
        assert abs(there - here) <= bound
        assert 500 <= bound <= 1000
        assert bounds_ns(trace, 0, np.array([here])) == [0]
        assert bounds_ns(trace, 1, np.array([0])) == [-1]
        assert hosts(trace) == {0: "a", 1: "b"}
        assert host_lines(trace)[0].startswith("a: its clock is the time axis")
        assert (
            host_lines(trace)[2] == "clocks of a and b: compared using 61 probes in one direction and 61 in the other"
            " (time-stamped by the kernels)"
        )
        assert trace.metadata.ended_ns is not None
        assert abs(trace.metadata.started_ns - STARTED_NS) <= bound
        assert abs(trace.metadata.ended_ns - ENDED_NS) <= bound


def test_numbers_are_those_of_one_host_alone(recording: Recording) -> None:
    for name in "ab":
        made = event(flow=77)
        made.work("sched.wake", 10, subject=5, tid=0)
        made.work("napi.poll", 20, subject=-4096, value=64, netns=0)
        made.work("irq.enter", 30, subject=24)
        made.socket("tx.send", 40, sock=-512, flow=77, netns=7, tid=5)
        made.drop(50, skb=-4096, location=-300, stack=2, netns=7, ifindex=2)
        made.add("stacks", stack=2, depth=0, address=-300)
        made.add("symbols", address=-300, name="f+0x1")
        made.thread(5, "app", 4)
        made.device("eth0", 2, 7)
        made.lose(60, 70, cpu=3)
        recording.part(name, made, reasons={2: "NOT_SPECIFIED"})
    recording.probe("a", "b")
    with recording.joined() as trace:
        found = trace.rows(
            "SELECT skb, head, netns, tid, flow, ifindex FROM packets p JOIN points USING (point)"
            " WHERE name = 'rx.core' ORDER BY cpu"
        )
        assert found == [
            (-4096, -8192, 7, 5, 77, 2),
            (-4096 + ADDRESSES, -8192 + ADDRESSES, 7 + NAMESPACES, 5 + THREADS, 77, 2),
        ]
        assert trace.rows(
            "SELECT name, subject, tid, netns FROM cpu JOIN points USING (point) WHERE cpu >= 1024 ORDER BY time_ns"
        ) == [("sched.wake", 5 + THREADS, 0, 0), ("napi.poll", -4096 + ADDRESSES, 0, 0), ("irq.enter", 24, 0, 0)]
        assert trace.rows("SELECT sock FROM sockets ORDER BY cpu") == [(-512,), (-512 + ADDRESSES,)]
        assert trace.rows(
            "SELECT stack, s.name FROM drops d JOIN stacks USING (stack) JOIN symbols s USING (address) ORDER BY d.cpu"
        ) == [(2, "f+0x1"), (5, "f+0x1")]
        assert trace.rows("SELECT cpu FROM losses ORDER BY cpu") == [(3,), (1027,)]
        build(trace, "thread_names", "device_names", "cpu_names")
        assert trace.rows("SELECT name, thread FROM thread_names ORDER BY tid") == [
            ("app (4)@a", "app-5@a"),
            ("app (4)@b", "app-5@b"),
        ]
        assert trace.rows("SELECT label FROM device_names ORDER BY netns") == [("eth0@a",), ("eth0@b",)]
        assert trace.rows("SELECT name FROM cpu_names ORDER BY cpu") == [("a:0",), ("a:3",), ("b:0",), ("b:3",)]
        assert hop_times(trace, Selection()).columns  # whatever is divided or multiplied: it fits


def test_points_and_reasons_go_by_their_names(recording: Recording) -> None:
    made = event()
    made.drop(50, skb=1, reason=2)
    recording.part("a", made, reasons={2: "NO_SOCKET", 3: "OTHERHOST"})
    folder = recording.part("b", made, reasons={2: "OTHERHOST", 9: "NEW"})
    metadata = Metadata.read(folder)
    number = points()["rx.core"]
    metadata.points = {**metadata.points, number: "rx.other", 127: "rx.core"}  # another version's numbers
    (folder / "hopscope.json").write_bytes(metadata.packed())
    recording.probe("a", "b")
    with recording.joined() as trace:
        named = "SELECT p.cpu, n.name FROM packets p JOIN points n USING (point) WHERE cpu % 1024 = 3 ORDER BY cpu"
        assert trace.rows(named) == [(3, "rx.core"), (1027, "rx.other")]
        assert trace.rows("SELECT r.name FROM drops JOIN reasons r USING (reason) ORDER BY cpu") == [
            ("NO_SOCKET",),
            ("OTHERHOST",),
        ]


def own(address: int) -> dict[str, NDArray[Any]]:
    times = np.array([STARTED_NS + 5])
    return {"time_ns": times, "cpu": np.array([1]), "tid": np.array([9]), "address": np.array([address])}


def test_tables_of_the_kernels_own_are_merged_where_they_are_alike(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "r", "a", "b", "c-1")
    other = replace(EVENT, columns=(*EVENT.columns[:3], Column("port", "int32", "u16 port")))
    call = replace(EVENT, name="e_function_f")
    values = {**own(0), "port": np.array([80])}
    del values["address"]
    recording.part("a", event(), own={EVENT: own(-10), call: own(-20)})
    recording.part("b", event(), own={EVENT: own(-10), call: own(-20)})
    recording.part("c-1", event(), own={other: values})
    recording.probe("a", "b")
    recording.probe("b", "c-1")
    with recording.joined() as trace:
        # The field of a tracepoint is what it is; a function's caller is an address that `symbols` has.
        found = trace.rows("SELECT cpu, tid, address FROM e_tcp_probe ORDER BY cpu")
        assert found == [(1, 9, -10), (1025, 9 + THREADS, -10)]
        assert trace.rows("SELECT address FROM e_function_f ORDER BY cpu") == [(-20,), (-20 + ADDRESSES,)]
        assert trace.rows("SELECT cpu, port FROM e_tcp_probe_c_1") == [(2049, 80)]


def test_stacks_of_functions_are_numbered_as_those_of_drops() -> None:
    still = Axis(np.array([0, SLOT_NS]), np.zeros(2, np.int64), np.zeros(2, np.int64))
    columns = {**own(-20), "stack": np.array([3])}
    for name, expected in (("e_function_f", 10), ("e_tcp_probe", 3)):
        table = replace(EVENT, name=name, columns=(*EVENT.columns, Column("stack", "int32", "number")))
        assert Numbers(0, still, {}, {}, {}, first_stack=7).converted(table, columns)["stack"].tolist() == [expected]


def test_flows_of_one_host_alone_are_not_those_of_another(recording: Recording) -> None:
    for name in "ab":
        made = MadeTrace()
        loopback = made.flow("127.0.0.1:5000", "127.0.0.1:80")
        inside = made.flow("10.0.0.1:5000", "10.0.0.1:80")
        between = made.flow("10.0.0.1:5000", "10.0.0.2:80")
        both_ends = made.flow("10.0.0.3:5000", "10.0.0.4:80")
        for flow in (loopback, inside, between, both_ends):
            made.packet("tx.queue", 10, skb=1, flow=flow)
        made.socket("tx.send" if name == "a" else "rx.read", 10, flow=between)
        made.socket("tx.send", 10, flow=both_ends)
        made.socket("rx.read", 20, flow=both_ends)
        recording.part(name, made)
    recording.probe("a", "b")
    with recording.joined() as trace:
        counted = trace.rows(
            "SELECT source, count(DISTINCT flow), count(DISTINCT p.cpu) FROM packets p JOIN flows USING (flow)"
            " GROUP BY source, destination ORDER BY source, destination"
        )
        assert counted == [("10.0.0.1", 2, 2), ("10.0.0.1", 1, 2), ("10.0.0.3", 2, 2), ("127.0.0.1", 2, 2)]


def test_a_host_that_was_missing_is_said_and_nothing_continues_meanwhile(recording: Recording) -> None:
    recording.part("a", event())
    before, after = MadeTrace(), MadeTrace()
    before.packet("tx.queue", 2 * SECOND, skb=-4096, head=1)
    after.packet("tx.start", 5 * SECOND, skb=-4096, head=1)
    first = recording.part("b", before)
    ended_ns = STARTED_NS + 3 * SECOND + AHEAD_NS
    recording.writer.absent("b", ended_ns, ended_ns + SECOND, "the connection broke")
    second = recording.part("b", after)
    for folder, values in ((first, {"ended_ns": ended_ns}), (second, {"started_ns": ended_ns + SECOND})):
        metadata = replace(Metadata.read(folder), **values)
        (folder / "hopscope.json").write_bytes(metadata.packed())
    recording.probe("a", "b")
    with recording.joined() as trace:
        assert "b: no data from 3.000 s to 4.000 s: the connection broke" in absence_notes(trace)
        build(trace, "skb_step_lifetimes")
        assert trace.rows("SELECT count(DISTINCT packet) FROM skb_step_lifetimes WHERE cpu >= 1024") == [(2,)]
        assert hosts(trace) == {0: "a", 1: "b"}


def test_single_traces_of_one_boot_are_parts_of_one_host(tmp_path: Path) -> None:
    """A talks to b all the while, and is recorded again after a gap; both folders are given later part first."""
    ends = ("10.0.0.1:4000", "10.0.0.2:80")
    made = {name: MadeTrace() for name in ("a", "later", "b")}
    for step in range(9):
        if step == 4:
            continue
        here = made["a"] if step < 4 else made["later"]
        for place, (one, other) in enumerate(((here, made["b"]), (made["b"], here))):
            at, seq = step * SECOND + 10_000 * place, 1_000 + 100 * step
            flow = one.flow(*ends[:: 1 - 2 * place])
            assert other.flow(*ends[:: 1 - 2 * place]) == flow
            told = {"flow": flow, "seq": seq, "header_bytes": 54, "tcp_flags": 16, "len_bytes": 154}
            one.socket("tx.send", at, flow=flow, seq=seq, len_bytes=100, protocol=TCP)
            one.packet("tx.queue", at + 100, skb=step + 1, head=1, **told)
            one.packet("tx.start", at + 200, skb=step + 1, head=1, len_bytes=154)
            other.packet("rx.driver", at + 900, skb=step + 50, head=1, **told)
            other.socket("rx.read", at + 2_000, flow=flow, seq=seq + 100, protocol=TCP)
    spans = {"a": (0, 4), "later": (5, 10), "b": (0, 10)}
    for name, each in made.items():
        host = {"name": name[0].replace("l", "a"), "boot": f"boot of {name[0].replace('l', 'a')}"}
        write(tmp_path / name, {table: columns(rows, table) for table, rows in each.rows.items()}, host=host)
        started_ns, ended_ns = (STARTED_NS + second * SECOND for second in spans[name])
        shifted = replace(Metadata.read(tmp_path / name), started_ns=started_ns, ended_ns=ended_ns)
        (tmp_path / name / FILE).write_bytes(shifted.packed())
    done = join([tmp_path / "later", tmp_path / "b", tmp_path / "a"], tmp_path / "out")
    assert sorted(done.hosts) == ["a", "b"]
    with Trace(tmp_path / "out") as trace:
        assert trace.rows("SELECT count(DISTINCT flow) FROM sockets") == [(2,)]
        found = messages(trace, Selection())
        assert len(found.column("flow")) == 16
        assert set(found.column("until")) == {"rx.read"}
        gaps = [note for note in absence_notes(trace) if note.startswith("a: ")]
        assert gaps == ["a: no data from 4.000 s to 5.000 s: its recording had ended"]


@pytest.mark.parametrize("given", ["alone", "without packets"])
def test_reports_open_what_has_hardly_anything(given: str, tmp_path: Path) -> None:
    """One host alone in a folder of hosts; a host of which nothing passed."""
    recording = Recording(tmp_path / "r", *("a" if given == "alone" else "ab"))
    recording.part("a", event())
    if given == "without packets":
        recording.part("b", MadeTrace())
        recording.probe("a", "b")
    with recording.joined() as trace:
        assert list(hosts(trace).values()) == list("a" if given == "alone" else "ab")
        assert not messages(trace, Selection()).column("flow")
        assert not requests(trace, Selection()).column("flow")
        assert hop_times(trace, Selection()).columns
        assert len(host_lines(trace)) == (1 if given == "alone" else 3)
        if given == "alone":
            with pytest.raises(UsageError, match="contains only one host"):
                network(trace, Selection())
        else:
            assert (
                "no packets with a payload were sent from one recorded host to another"
                in network(trace, Selection()).notes
            )


def test_after_a_boot_it_is_another_host(recording: Recording) -> None:
    recording.part("a", event())
    recording.part("b", event(), boot="first")
    recording.probe("a", "b", until_s=4)
    recording.part("b", event(), boot="second")
    recording.probe("a", "b", from_s=6, error_ns=77_000)
    with recording.joined() as trace:
        assert trace.rows("SELECT name, boot FROM hosts ORDER BY host") == [
            ("a", "boot of a"), ("b", "first"), ("b.2", "second"),
        ]  # fmt: skip
        found = dict(trace.rows("SELECT cpu, time_ns FROM packets"))
        assert abs(found[1027] - found[3]) <= 1000
        assert abs(found[2051] - found[3] + 77_000) <= 1000


def test_counters_are_of_each_host_alone(recording: Recording) -> None:
    for name, shift in (("a", 0), ("b", 300_000_000)):
        made = event()
        for number in range(4):
            at_ns = STARTED_NS + number * SECOND + shift
            made.add("readings", time_ns=at_ns, until_ns=at_ns + 1000)
            for netns, source, counter in ((0, "softnet", "processed"), (7, "netstat", "TcpExtTCPTimeouts")):
                value = 100 + number * (1 if name == "a" else 5)
                key = {"netns": netns, "source": source, "name": counter}
                made.add("counters", time_ns=at_ns, **key, value=value, present=1)
        made.add("namespaces", netns=7, name="blue")
        recording.part(name, made)
    recording.probe("a", "b")
    with recording.joined() as trace:
        report = counter_history(trace, Selection())
        places = zip(report.column("netns"), report.column("name"), strict=True)
        rows = dict(zip(places, report.column("count"), strict=True))
        assert rows == {
            ("@a", "processed"): 3, ("blue@a", "TcpExtTCPTimeouts"): 3,
            ("@b", "processed"): 15, ("blue@b", "TcpExtTCPTimeouts"): 15,
        }  # fmt: skip
        assert trace.rows("SELECT count(*) FROM packets") == [(2,)]  # all of them again
        assert [len(times(trace)) for _ in each_host(trace)] == [4, 4]
        assert moments(trace, Selection()).notes == []  # each has readings enough
        checks = {name: evaluate(*first_and_last(trace)) for name in each_host(trace)}
        both = together(checks)
        assert len(both.findings) == sum(len(check.findings) for check in checks.values())
        assert all(finding.namespace.endswith(("@a", "@b")) for finding in both.findings)


def test_changes_of_clocks_are_known(recording: Recording) -> None:
    for name in "ab":
        recording.part(name, event())
    recording.probe("b", "a")
    at_ns = STARTED_NS + 5 * SECOND
    told = [Change(at_ns + AHEAD_NS, at_ns + AHEAD_NS + 10, float("inf"), 0), Change(at_ns, at_ns + 20, 3.5e-8, -7)]
    recording.writer.append(change_columns(0, told), CHANGES)
    recording.writer.append(change_columns(0, [None, told[1]]), CHANGES)
    recording.writer.close()
    given = sources([recording.folder])
    assert changes(given.probed) == {(0, 1): ([told[1]] * 2, [told[0]])}
    with recording.joined() as trace:
        found = trace.columns("SELECT time_ns, high_ns - offset_ns AS bound_ns FROM clocks WHERE host = 1")
        # On one side of a change nothing is known of the other side's frequency.
        beside = np.abs(found["time_ns"] - at_ns) <= SECOND
        assert found["bound_ns"][beside].max() > 1.2 * np.median(found["bound_ns"])


def test_a_wall_clock_that_is_set_changes_nothing(tmp_path: Path) -> None:
    found = []
    for step_ns in (0, -3_600 * SECOND):
        recording = Recording(tmp_path / str(step_ns), "a", "b")
        for name in "ab":
            recording.part(name, event())
        recording.probe("a", "b")
        if step_ns:
            at_ns = STARTED_NS + 5 * SECOND
            both = [Change(at_ns + ahead_ns, at_ns + ahead_ns + 20, 0.0, step_ns) for ahead_ns in (0, AHEAD_NS)]
            recording.writer.append(change_columns(0, both), CHANGES)
        with recording.joined() as trace:
            assert host_lines(trace)[0] == "a: its clock is the time axis; the date is from its wall clock at the start"
            found.append((trace.rows("SELECT * FROM clocks"), trace.metadata.realtime_ns))
    assert found[0] == found[1]


def test_packets_that_the_probes_contradict_are_left_out(recording: Recording) -> None:
    # The first copy's event is missing, of which nobody knows: the kernel suppressed it.
    sender, receiver = MadeTrace(), MadeTrace()
    flow = sender.flow("10.0.0.1:5000", "10.0.0.2:80")
    receiver.flow("10.0.0.1:5000", "10.0.0.2:80")
    header = {"flow": flow, "header_bytes": 54, "tcp_flags": 16, "len_bytes": 154, "ifindex": 2}
    sender.socket("tx.send", 1, flow=flow, seq=1000, protocol=TCP)
    for number, (left, came) in enumerate([(1_000_000, 900_000), (3_000_000, 3_009_000)]):
        sender.packet("tx.queue", left, skb=1, seq=1000 + 100 * number, **header)
        sender.packet("tx.start", left + 10, skb=1, len_bytes=154, ifindex=2)
        receiver.packet("rx.driver", came, skb=1, seq=1000 + 100 * number, **header)
    recording.part("a", sender, missed=1)
    recording.part("b", receiver)
    recording.probe("a", "b")
    with recording.joined() as trace:
        (pair,) = trace.metadata.joined["pairs"]
        assert (pair["packets"], pair["refused"], pair["contradictory"]) == ((1, 0), 1, 0)
        (came,) = trace.rows("SELECT max(time_ns) FROM packets WHERE cpu >= 1024")[0]
        assert abs(came - STARTED_NS - 3_009_000) <= bounds_ns(trace, 1, np.array([came]))[0]


def test_clocks_that_cannot_be_compared(recording: Recording) -> None:
    for name in "ab":
        recording.part(name, event())
    with pytest.raises(UsageError, match=r"The clock of b cannot be compared .* `hopscope join --without b`"):
        recording.joined()
    with pytest.raises(UsageError, match=r"No host is named x\. The hosts are a, b"):
        recording.joined(without=["x"])
    with recording.joined(without=["b"]) as trace:
        assert hosts(trace) == {0: "a"}
        assert trace.rows("SELECT count(*) FROM packets") == [(1,)]


def test_two_hosts_that_only_a_third_one_probed(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "r", "a", "b", "c")
    for name in "abc":
        recording.part(name, event())
    recording.probe("c", "a")
    recording.probe("b", "c")
    with recording.joined() as trace:
        times = [time_ns for (time_ns,) in trace.rows("SELECT time_ns FROM packets ORDER BY cpu")]
        assert max(times) - min(times) <= 2500


def test_what_each_trace_lacks_is_said_with_its_host(recording: Recording) -> None:
    recording.part("a", event(), missed=3)
    folder = recording.part("b", event())
    metadata = replace(Metadata.read(folder), state="recording", ended_ns=None)
    (folder / "hopscope.json").write_bytes(metadata.packed())
    (folder / "packets" / "000002.parquet").write_bytes(b"PAR1 cut off")
    recording.probe("a", "b")
    with recording.joined() as trace:
        warnings = " | ".join(trace.warnings)
        assert "b: 1 of 2 files of packets are cut off: left out" in warnings
        assert "b: the recorder was killed" in warnings
        assert trace.metadata.missed == 3
        assert trace.rows("SELECT count(*) FROM packets") == [(2,)]


def test_a_part_that_is_damaged_is_left_out_and_said(recording: Recording) -> None:
    recording.part("a", event())
    recording.part("b", event())
    recording.probe("a", "b")
    (recording.part("b", event()) / FILE).write_text("{")
    with recording.joined() as trace:
        assert any("b: " in warning and "cannot be read" in warning for warning in trace.warnings)
        assert trace.rows("SELECT count(*) FROM packets") == [(2,)]


def test_a_joined_trace_is_not_joined_again(recording: Recording, tmp_path: Path) -> None:
    for name in "ab":
        recording.part(name, event())
    recording.probe("a", "b")
    with recording.joined() as trace:
        folder = trace.folder
    with pytest.raises(UsageError, match="is already a joined trace"):
        join([folder, folder], tmp_path / "again")


def test_a_joined_trace_without_one_of_its_tables_is_refused(recording: Recording) -> None:
    for name in "ab":
        recording.part(name, event())
    recording.probe("a", "b")
    with recording.joined() as trace:
        folder = trace.folder
    shutil.rmtree(folder / "clocks")
    with pytest.raises(FormatError, match=r"has no clocks/000001\.parquet, which belongs to the joined trace"):
        Trace(folder)
    (folder / "checksums").unlink()  # as it was made earlier
    with pytest.raises(FormatError, match="has no clocks, which belongs to the joined trace"):
        Trace(folder)


def test_single_traces_are_joined_by_their_packets_and_called_as_their_hosts(tmp_path: Path) -> None:
    ends = ("10.0.0.1:4000", "10.0.0.2:80")
    for place, (name, here, there) in enumerate((("one", *ends), ("two", *ends[::-1]))):
        made = MadeTrace()
        device = made.device("eth0", 2)
        forth, back = made.flow(here, there), made.flow(there, here)
        made.socket("tx.send", 1, flow=forth, seq=1000, protocol=TCP)
        for step in range(8):
            at = step * SECOND
            header = {"header_bytes": 54, "tcp_flags": 16, "len_bytes": 154, **device}
            number = 1000 + 100 * step
            made.packet("tx.queue", at + 100, skb=step + 1, head=1, flow=forth, seq=number, **header)
            made.packet("tx.start", at + 200, skb=step + 1, head=1, len_bytes=154, **device)
            made.packet("rx.driver", at + 900, skb=step + 50, head=1, flow=back, seq=number, **header)
        tables = {table: columns(rows, table) for table, rows in made.rows.items()}
        for table in tables.values():
            if "time_ns" in table:
                table["time_ns"] = table["time_ns"] + place * AHEAD_NS
        write(tmp_path / f"t{place}", tables, host={"name": name})
        meta = Metadata.read(tmp_path / f"t{place}")
        later = replace(meta, started_ns=meta.started_ns + place * AHEAD_NS, ended_ns=ENDED_NS + place * AHEAD_NS)
        (tmp_path / f"t{place}" / FILE).write_bytes(later.packed())
    done = join([tmp_path / "t0", tmp_path / "t1"], tmp_path / "out")
    assert done.hosts == ["one", "two"]
    assert (done.compared[0].probes, done.compared[0].packets) == ((0, 0), (8, 8))
    with Trace(tmp_path / "out") as trace:
        start, driver = (
            trace.rows(f"SELECT min(time_ns) FROM packets p JOIN points n USING (point) WHERE name = '{name}' AND {of}")
            for name, of in (("tx.start", "cpu < 1024"), ("rx.driver", "cpu >= 1024"))
        )
        assert abs(driver[0][0] - start[0][0] - 700) <= done.bounds_ns[1][1]


def test_events_say_of_which_host_they_are(recording: Recording, tmp_path: Path) -> None:
    for name in "ab":
        made = event()
        made.thread(5, "app")
        recording.part(name, made)
    recording.probe("a", "b")
    with recording.joined() as trace, (tmp_path / "lines").open("wb") as out:
        write_events(trace, Selection(), "text", out)
    lines = (tmp_path / "lines").read_text().splitlines()
    assert all(line.startswith("~") for line in lines)  # at the same time: the clocks do not say which came first
    first, second = sorted(line[1:].split()[1:4] for line in lines)
    assert first == ["[a:3]", "rx.core", "app-5@a"]
    assert second == ["[b:3]", "rx.core", "app-5@b"]
