# SPDX-License-Identifier: Apache-2.0
"""What several intervals or hosts found, put together, is what one look at all of it would have found."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hopscope.model.cpu import Counted, CpuRow, CpuSnapshot, Part, added
from hopscope.model.drops import DropRow, DropSnapshot
from hopscope.model.histogram import Histogram
from hopscope.model.merge import beside, in_turn, labelled
from hopscope.model.parts import PARTS
from hopscope.model.snapshot import Discard, Ending, HopRow, Overhead, PacketAccount, PlanRow, ProgramCost, Snapshot
from hopscope.model.stacks import Stack

NO_COST = Overhead(0, None, None, 0.0, 0)
ATTACHED = [PlanRow("rx.core", "kprobe", "attached")]
durations = st.lists(st.integers(0, 20 * 10**9), max_size=30)


def row(hop: str, values: list[int], group: str = "", error_ns: int | None = None) -> HopRow:
    groups = {"interface": group} if group else {}
    return HopRow(hop, "rx.driver", hop, "packet", groups, Histogram.from_values(values), "", error_ns)


def hops(*rows: HopRow, started_ns: int = 0, duration_s: float = 1.0, notes: list[str] | None = None) -> Snapshot:
    return Snapshot("rx", "interval", started_ns, duration_s, [*rows], NO_COST, plan=ATTACHED, notes=notes or [])


@given(st.lists(durations, min_size=1, max_size=5))
def test_histograms_of_hosts_are_the_histogram_of_all_their_samples(values: list[list[int]]) -> None:
    hosts = {f"h{number}": hops(row("rx.ip", each)) for number, each in enumerate(values)}
    (merged,) = beside(hosts).hops
    assert merged.histogram == Histogram.from_values([value for each in values for value in each])


@given(st.lists(durations, min_size=1, max_size=5))
def test_histograms_of_intervals_are_the_histogram_of_the_run(values: list[list[int]]) -> None:
    (merged,) = in_turn([hops(row("rx.ip", each)) for each in values]).hops
    assert merged.histogram == Histogram.from_values([value for each in values for value in each])


def test_intervals_that_follow_each_other_take_as_long_as_all_of_them() -> None:
    merged = in_turn([hops(started_ns=5, duration_s=1.5), hops(started_ns=9, duration_s=2.0)])
    assert (merged.started_ns, merged.duration_s, merged.plan) == (5, 3.5, ATTACHED)
    one = hops(row("rx.ip", [1]))
    assert in_turn([one]) is one


def test_hosts_beside_each_other_take_as_long_as_the_longest() -> None:
    merged = beside({"a": hops(duration_s=1.5, notes=["x"]), "b": hops(duration_s=2.0, notes=["x"])})
    assert (merged.duration_s, merged.notes, merged.plan) == (2.0, ["a: x", "b: x"], [])


def test_hops_keep_the_order_of_a_packets_way_also_those_that_only_one_host_has() -> None:
    one = hops(row("rx.core", [1]), row("rx.ip", [1]), row("rx.udp", [1]))
    other = hops(row("rx.nic", [1]), row("rx.core", [1]), row("rx.ip", [1]), row("rx.tcp", [1]))
    assert [each.hop for each in beside({"a": one, "b": other}).hops] == [
        "rx.nic",
        "rx.core",
        "rx.ip",
        "rx.tcp",
        "rx.udp",
    ]


def test_hosts_are_groups_below_each_other_at_each_hop() -> None:
    hosts = {name: labelled(hops(row("rx.ip", [1], "eth0"), row("rx.tcp", [2], "eth0")), name) for name in ("a", "b")}
    assert [(each.hop, each.group) for each in beside(hosts).hops] == [
        (hop, {"host": host, "interface": "eth0"}) for hop in ("rx.ip", "rx.tcp") for host in ("a", "b")
    ]


def test_groups_of_one_name_are_one_where_hosts_are_not_told_apart() -> None:
    one, other = hops(row("rx.ip", [1], "eth0")), hops(row("rx.ip", [2], "eth1"), row("rx.ip", [3], "eth0"))
    found = {each.group["interface"]: each.histogram.sum_ns for each in beside({"a": one, "b": other}).hops}
    assert found == {"eth0": 4, "eth1": 2}


def test_the_larger_error_counts() -> None:
    (merged,) = beside({"a": hops(row("rx.nic", [1], error_ns=7)), "b": hops(row("rx.nic", [1]))}).hops
    assert merged.error_ns == 7
    (merged,) = beside({"a": hops(row("rx.nic", [1])), "b": hops(row("rx.nic", [1]))}).hops
    assert merged.error_ns is None


def test_what_is_missing_adds_up_by_reason() -> None:
    def missing(stale: int, lost: int) -> Snapshot:
        return replace(
            hops(), lost=lost, discarded=[Discard("rx.ip", "stale", stale, ""), Discard("rx.ip", "gone", 1, "")]
        )

    merged = beside({"a": missing(3, 5), "b": missing(20, 2)})
    assert merged.lost == 7
    assert [(each.reason, each.count) for each in merged.discarded] == [("stale", 23), ("gone", 2)]


def test_cost_is_weighted_by_time_and_by_runs() -> None:
    quick = Overhead(100, 10.0, 1.0, 2.0, 1, [ProgramCost("rx_core", 100, 10.0, 5.0)])
    slow = Overhead(
        300, 30.0, 5.0, 6.0, 0, [ProgramCost("rx_core", 300, 30.0, 5.0, missed=2), ProgramCost("x", 0, None)]
    )
    turns = in_turn([replace(hops(duration_s=3.0), overhead=quick), replace(hops(), overhead=slow)]).overhead
    assert (turns.hits, turns.ns_per_hit, turns.missed) == (400, 25.0, 1)
    assert (turns.bpf_cpu_percent, turns.reader_cpu_percent) == (2.0, 3.0)
    assert turns.by_program == [ProgramCost("rx_core", 400, 25.0, 5.0, missed=2), ProgramCost("x", 0, None)]
    hosts = beside({"a": replace(hops(), overhead=quick), "b": replace(hops(), overhead=slow)}).overhead
    assert (hosts.bpf_cpu_percent, hosts.reader_cpu_percent) == (6.0, 8.0)


def test_cost_that_one_kernel_does_not_tell_is_that_of_the_others() -> None:
    told = replace(NO_COST, hits=3, ns_per_hit=2.0, bpf_cpu_percent=1.0)
    merged = beside({"a": replace(hops(), overhead=told), "b": replace(hops(), overhead=replace(NO_COST, hits=1))})
    assert (merged.overhead.hits, merged.overhead.ns_per_hit, merged.overhead.bpf_cpu_percent) == (4, 2.0, 1.0)


def drops(**counts: int) -> DropSnapshot:
    rows = [DropRow({"reason": reason}, count) for reason, count in counts.items()]
    return DropSnapshot("interval", 0, 1.0, rows, sum(counts.values()), 1, NO_COST, ATTACHED)


def test_drops_add_up_the_most_frequent_first() -> None:
    merged = beside({"a": drops(NO_SOCKET=3, TCP_RESET=4), "b": drops(NO_SOCKET=20)})
    assert [(each.group["reason"], each.count) for each in merged.rows] == [("NO_SOCKET", 23), ("TCP_RESET", 4)]
    assert (merged.dropped, merged.lost) == (27, 2)
    apart = beside({name: labelled(each, name) for name, each in {"a": drops(X=1), "b": drops(X=2)}.items()})
    assert [(each.group, each.count) for each in apart.rows] == [
        ({"host": "b", "reason": "X"}, 2),
        ({"host": "a", "reason": "X"}, 1),
    ]


def cpu_row(ns: int, counted: Counted | None = None, **group: str) -> CpuRow:
    return CpuRow(group, dict.fromkeys(PARTS, Part(0, 0, 0, 0)) | {"send": Part(ns, 2, 3, 4, counted)})


def cpu(*rows: CpuRow, stacks: list[Stack] | None = None, energy_j: float | None = None) -> CpuSnapshot:
    return CpuSnapshot(
        "interval",
        0,
        1.0,
        2,
        CpuRow({}, added(rows)),
        [*rows],
        NO_COST,
        stacks=stacks or [],
        energy_j=energy_j,
    )


def test_cpu_time_adds_up_by_row_and_in_all() -> None:
    hosts = {"a": cpu(cpu_row(5, cpu="0"), cpu_row(7, cpu="1")), "b": cpu(cpu_row(11, cpu="0"))}
    merged = beside(hosts)
    assert [(each.group["cpu"], each.ns) for each in merged.rows] == [("0", 16), ("1", 7)]
    assert merged.total.parts["send"] == Part(23, 6, 9, 12)
    assert merged.cpus == 4
    assert in_turn([*hosts.values()]).cpus == 2


def test_processes_come_with_the_busiest_first_once_merged() -> None:
    merged = in_turn([cpu(cpu_row(5, process="x"), cpu_row(4, process="y")), cpu(cpu_row(9, process="y"))])
    assert [(each.group["process"], each.ns) for each in merged.rows] == [("y", 13), ("x", 5)]


def test_counters_that_one_host_has_not_are_not_known() -> None:
    one, other = Counted(10, 20, None), Counted(1, 2, 3)
    merged = beside({"a": cpu(cpu_row(5, one, cpu="0")), "b": cpu(cpu_row(5, other, cpu="0"))})
    assert merged.rows[0].parts["send"].counted == Counted(11, 22, None)


def test_stacks_are_counted_together_and_have_their_host_where_that_is_asked_for() -> None:
    stacks = [Stack("send", ("f", "g"), 3), Stack("send", ("f", "g"), 2, "nginx")]
    one = cpu(cpu_row(5, cpu="0"), stacks=stacks)
    assert in_turn([one, one]).stacks == [Stack("send", ("f", "g"), 6), Stack("send", ("f", "g"), 4, "nginx")]
    assert [each.group for each in labelled(one, "a").stacks] == ["a", "a nginx"]


def test_energy_is_known_if_all_hosts_say() -> None:
    row_of_one = cpu_row(5, cpu="0")
    assert beside({"a": cpu(row_of_one, energy_j=2.5), "b": cpu(row_of_one, energy_j=1.5)}).energy_j == 4.0
    assert beside({"a": cpu(row_of_one, energy_j=2.5), "b": cpu(row_of_one)}).energy_j is None


def account(before: int, entered: int, queued: int, **dropped: int) -> PacketAccount:
    endings = [Ending("dropped", reason, "rx.ip", count) for reason, count in dropped.items()]
    read = before + entered - queued - sum(dropped.values())
    return PacketAccount(before, entered, read, queued, 0, 0, endings)


def test_what_one_interval_leaves_the_next_one_has_and_hosts_add_up() -> None:
    snapshots = [
        replace(hops(), packets=account(2, 10, 3, NO_SOCKET=4)),
        replace(hops(), packets=account(3, 7, 1, NO_SOCKET=1, TCP_CSUM=2)),
    ]
    assert in_turn(snapshots).packets == account(2, 17, 1, NO_SOCKET=5, TCP_CSUM=2)
    assert beside({"a": snapshots[0], "b": snapshots[1]}).packets == account(5, 17, 4, NO_SOCKET=5, TCP_CSUM=2)
    assert in_turn([*snapshots, hops()]).packets is None
