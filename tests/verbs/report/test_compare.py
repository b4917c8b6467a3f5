# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.model.histogram import slot_of
from hopscope.store.trace import Trace
from hopscope.trace.selection import Selection
from hopscope.verbs.report.compare import compare
from tests.lab.traces import NETNS, STARTED_NS, MadeTrace
from tests.verbs.report.test_outliers import EVERY, busy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hopscope.model.report import Report


# The first duration of a bucket.
BOUNDARY_NS = next(each for each in range(1_000, 2_000) if slot_of(each) != slot_of(each - 1))


def compared(
    folder: Path, one: Callable[[int], dict[str, int]], other: Callable[[int], dict[str, int]], count: int = 600
) -> Report:
    traces = []
    for seed, late in enumerate((one, other)):
        made = MadeTrace()
        busy(made, count, late, seed).write(made)
        traces.append(made.write(folder / str(seed)))
    with Trace(traces[0]) as before, Trace(traces[1]) as after:
        return compare(before, after, Selection())


def test_two_runs_of_the_same_kind_do_not_differ(tmp_path: Path) -> None:
    report = compared(tmp_path, lambda _: {}, lambda _: {})
    assert set(report.column("verdict")) == {"same"}
    assert report.heading[0].startswith("no hop differs: 13 hops compared (false discovery rate 1%;")


def test_the_hop_that_got_slower_is_named_first(tmp_path: Path) -> None:
    report = compared(tmp_path, lambda _: {}, lambda _: {"rx.l4": 3_000})
    rows = dict(zip(report.column("hop"), report.column("verdict"), strict=True))
    assert {hop for hop, verdict in rows.items() if verdict != "same"} == {"rx.core → rx.l4", "message, in all"}
    place = report.column("hop").index("rx.core → rx.l4")
    assert place < 2
    assert report.column("mean_change_ns")[place] in range(2_800, 3_200)
    assert report.column("delta")[place] > 0.8


def test_a_tail_that_got_longer_is_named(tmp_path: Path) -> None:
    report = compared(tmp_path, lambda _: {}, lambda number: {"tx.start": 900_000} if number % 20 == 3 else {})
    rows = dict(zip(report.column("hop"), report.column("verdict"), strict=True))
    assert rows["tx.queue → tx.start"] == "longer tail"
    assert rows["rx.core → rx.l4"] == "same"


def test_the_largest_effect_is_said_first(tmp_path: Path) -> None:
    report = compared(tmp_path, lambda _: {}, lambda _: {"rx.l4": 3_000, "tx.start": 700})
    different = [
        hop for hop, verdict in zip(report.column("hop"), report.column("verdict"), strict=True) if verdict != "same"
    ]
    effects = [abs(float(each or 0)) for each in report.column("delta")][: len(different)]
    assert effects == sorted(effects, reverse=True)
    assert different[:2] == ["rx.core → rx.l4", "message, in all"] or different[0] == "message, in all"
    assert report.heading[0] == f"{len(different)} of 13 hops differ (false discovery rate 1%)"
    assert report.heading[1].startswith(f"largest effect: {different[0]}, slower, effect size 0.9")


def test_change_of_a_few_nanoseconds_is_not_reported(tmp_path: Path) -> None:
    """Durations that are all alike, on either side of the boundary of two buckets, have a delta of 1."""
    traces = []
    for number, duration_ns in enumerate((BOUNDARY_NS - 1, BOUNDARY_NS)):
        made = MadeTrace()
        flow = made.flow("10.0.0.1:4000", "10.0.0.2:80")
        for packet in range(400):
            at = packet * EVERY
            made.packet("rx.driver", at, skb=8 * packet, packet=packet, flow=flow, len_bytes=100)
            made.packet("rx.core", at + duration_ns, skb=8 * packet, packet=packet, flow=flow, len_bytes=100)
        traces.append(made.write(tmp_path / str(number)))
    with Trace(traces[0]) as before, Trace(traces[1]) as after:
        report = compare(before, after, Selection())
    assert (report.column("delta"), report.column("verdict")) == ([1.0], ["same"])


def test_different_set_up_is_reported(tmp_path: Path) -> None:
    traces = []
    for number, (inode, buffer, offload, qdisc) in enumerate(
        [(NETNS, 212_992, "on", "fq_codel"), (NETNS + 9, 425_984, "off", "fq_codel")]
    ):
        made = MadeTrace()
        busy(made, 60, lambda _: {}).write(made)
        own = {"time_ns": STARTED_NS, "netns": inode, "present": 1}
        made.add("readings", time_ns=STARTED_NS, until_ns=STARTED_NS + 1)
        made.add("counters", **own, source="sysctl", name="net.core.rmem_max", value=buffer)
        made.add("counters", **own, source="snmp", name="UdpInDatagrams", value=7 + number)
        made.add("settings", **own, source="features", subject="eth0", name="tcp-segmentation-offload", value=offload)
        made.add("settings", **own, source="link_setting", subject="eth0", name="qdisc", value=qdisc)
        made.add("settings", **own, source="link_setting", subject=f"veth{number}", name="qdisc", value="noqueue")
        made.host = {"release": f"6.{number}", "name": "server"}
        traces.append(made.write(tmp_path / str(number)))
    with Trace(traces[0]) as before, Trace(traces[1]) as after:
        notes = compare(before, after, Selection()).notes
    assert [note for note in notes if note.startswith("different set-up: ")] == [
        "different set-up: kernel release 6.0, then 6.1",
        "different set-up: features eth0 tcp-segmentation-offload on, then off",
        "different set-up: sysctl net.core.rmem_max 212992, then 425984",
    ]


def test_settings_that_were_not_recorded_are_said(tmp_path: Path) -> None:
    report = compared(tmp_path, lambda _: {}, lambda _: {}, count=60)
    assert report.notes == ["the kernels' settings are not compared: not recorded in the first and the second trace"]


def test_what_only_one_has_is_said(tmp_path: Path) -> None:
    made = MadeTrace()
    busy(made, 100, lambda _: {}).write(made)
    one = made.write(tmp_path / "one")
    other = made.write(tmp_path / "other", left_out=["rx.core"])
    with Trace(one) as before, Trace(other) as after:
        report = compare(before, after, Selection())
    assert "only in the first trace: rx.core → rx.l4 (100), rx.driver → rx.core (100)" in report.notes
    assert "only in the second trace: rx.driver → rx.l4 (100)" in report.notes


def test_too_few_are_not_compared(tmp_path: Path) -> None:
    report = compared(tmp_path, lambda _: {}, lambda _: {}, count=7)
    assert not len(report)
    assert report.notes[0].startswith("the traces have no hop in common")
