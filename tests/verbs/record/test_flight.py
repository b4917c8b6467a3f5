# SPDX-License-Identifier: Apache-2.0
"""The flight recorder: what it keeps, and what sets it off."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hopscope.bpf.layout import HopPoint
from hopscope.errors import KernelError, UsageError
from hopscope.kernel.drop_reasons import drop_reasons
from hopscope.store.schema import TABLES
from hopscope.verbs.record.flight import Kept, Trigger, Watch

S = 1_000_000_000
RX, CORE, COPY, FREE, QUEUE = (
    HopPoint[f"HOP_POINT_{name}"] for name in ("RX_DRIVER", "RX_CORE", "RX_COPY", "SKB_FREE", "TX_QUEUE")
)
DROP = HopPoint.HOP_POINT_SKB_DROP

Columns = dict[str, np.ndarray[Any, np.dtype[Any]]]


def packets(*rows: tuple[int, int, int]) -> Columns:
    """Return columns of (time_ns, skb, point)."""
    table = np.array(rows, np.int64).reshape(-1, 3)
    return {"time_ns": table[:, 0], "skb": table[:, 1], "point": table[:, 2].astype(np.int16)}


def times(kept: Kept) -> list[int]:
    return [int(time) for _, columns in kept.take() for time in columns["time_ns"]]


def test_only_the_last_seconds_are_kept() -> None:
    kept = Kept(2 * S, 1 << 30)
    for second in range(10):
        assert list(kept.add("packets", packets((second * S, 1, RX)))) == []
    assert times(kept) == [7 * S, 8 * S, 9 * S]
    assert times(kept) == []
    assert not kept.cut


# Names that the kernel has by numbers, which a joined trace or readings of counters have elsewhere.
@pytest.mark.parametrize(
    "table", [table.name for table in TABLES if table.once and table.name not in {"hosts", "namespaces"}]
)
def test_what_numbers_mean_goes_through_at_once(table: str) -> None:
    columns = {"any": np.array([1])}
    assert list(Kept(S, 1 << 30).add(table, columns)) == [(table, columns)]


def test_losses_are_kept_by_their_end() -> None:
    kept = Kept(S, 1 << 30)
    list(kept.add("losses", {"from_ns": np.array([0]), "until_ns": np.array([5 * S]), "lost": np.array([23])}))
    list(kept.add("packets", packets((5 * S, 1, RX))))
    assert [table for table, _ in kept.take()] == ["losses", "packets"]


def test_what_goes_on_knows_since_when_all_is_kept() -> None:
    kept = Kept(2 * S, 1 << 30)
    for second in range(4):
        list(kept.add("packets", packets((second * S, 1, RX))))
    assert (kept.since_ns, [int(columns["time_ns"][0]) for _, columns in kept.rows()]) == (0, [S, 2 * S, 3 * S])
    kept.expire(60 * S)
    assert (kept.since_ns, list(kept.rows()), kept.size_bytes) == (3 * S, [], 0)


def test_memory_is_bounded_and_said_to_be_short() -> None:
    one = packets((1, 1, RX))
    size = sum(column.nbytes for column in one.values())
    kept = Kept(100 * S, 3 * size)
    for second in range(10):
        list(kept.add("packets", packets((second * S, 1, RX))))
    assert times(kept) == [7 * S, 8 * S, 9 * S]
    assert kept.cut


@pytest.mark.parametrize(
    ("text", "point", "least_ns"),
    [("drop", None, 0), ("rx.core>1ms", CORE, 1_000_000), ("rx.core > 1.5 us", CORE, 1_500), ("rx.core>7ns", CORE, 7)],
)
def test_trigger_is_read(text: str, point: int | None, least_ns: int) -> None:
    trigger = Trigger.parse(text)
    assert (trigger.point, trigger.least_ns) == (point, least_ns)


@pytest.mark.parametrize(
    "text", ["", "drops", "rx.core", "rx.core>", "rx.core>5", "rx.core>ms", "rx.nowhere>1ms", ">1ms"]
)
def test_what_is_no_trigger_is_said(text: str) -> None:
    with pytest.raises(UsageError, match="is not a trigger"):
        Trigger.parse(text)


@pytest.mark.parametrize("point", ["sched.switch", "rx.ready", "irq.enter", "tcp.state"])
def test_point_that_no_packet_passes_is_refused(point: str) -> None:
    with pytest.raises(UsageError, match=f"cannot fire: .* do not pass {point}") as refused:
        Trigger.parse(f"{point}>1ms")
    assert refused.value.next_step.startswith("The points of packets are rx.driver, rx.core,")


def test_point_that_is_not_recorded_is_refused() -> None:
    Trigger.parse("rx.core>1ms").require_recorded({"rx.core"})
    with pytest.raises(UsageError, match=r"rx.ip>1ms cannot fire: rx.ip is not recorded") as refused:
        Trigger.parse("rx.ip>1ms").require_recorded({"rx.core", "sched.wake", "skb.free"})
    assert refused.value.next_step == "Add --point rx.ip, or use a point that is: rx.core, skb.free"
    with pytest.raises(UsageError, match=r"drop cannot fire: skb.drop is not recorded"):
        Trigger.parse("drop").require_recorded({"sched.wake"})


def test_point_that_the_kernel_does_not_allow_is_refused() -> None:
    Trigger.parse("rx.l4>1ms").require_attached(["rx.ip"])
    with pytest.raises(KernelError, match=r"rx.l4>1ms cannot fire: this kernel supports no attach method for rx.l4"):
        Trigger.parse("rx.l4>1ms").require_attached(["rx.l4"])


def test_delay_of_many_readings_sets_off() -> None:
    watch = Watch([Trigger.parse("rx.copy>1s")])
    assert watch.seen([("packets", packets((0, 1, RX), (1, 1, CORE)))]) is None
    for number in range(20):
        assert watch.seen([("packets", packets((S * number // 20, 2 + number, RX)))]) is None
    assert watch.seen([("packets", packets((S + 1, 1, COPY)))]) is not None


def test_address_that_was_freed_unseen_does_not() -> None:
    watch = Watch([Trigger.parse(f"{name}>1ms") for name in ("rx.driver", "tx.queue")])
    assert watch.seen([("packets", packets((1, 1, RX), (2, 1, COPY), (3, 2, CORE), (4, 2, COPY)))]) is None
    assert watch.seen([("packets", packets((S, 1, RX), (S, 2, QUEUE)))]) is None
    assert watch.seen([("packets", packets((2 * S, 2, RX)))]) is not None  # over a virtual device


def test_drop_sets_off() -> None:
    watch = Watch([Trigger.parse("drop")])
    assert watch.seen([("packets", packets((1, 1, RX), (2, 1, FREE)))]) is None
    assert watch.seen([("cpu", {}), ("packets", packets((3, 2, RX), (4, 2, DROP)))]) is not None


def test_drop_of_another_reason_does_not() -> None:
    names = {name: number for number, name in drop_reasons().items()}
    watch = Watch([Trigger.parse("drop:NO_SOCKET")])
    for reason in ("SOCKET_FILTER", "NO_SOCKET"):
        row = ("drops", {"time_ns": np.array([1]), "reason": np.array([names[reason]])})
        seen = watch.seen([("packets", packets((1, 1, DROP))), row])
        assert (seen is not None) == (reason == "NO_SOCKET")


def test_reason_that_this_kernel_does_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match="drop:NONE cannot fire: this kernel has no reason NONE"):
        Trigger.parse("drop:NONE")


def test_late_packet_sets_off() -> None:
    watch = Watch([Trigger.parse("rx.core>100ns")])
    assert watch.seen([("packets", packets((1, 1, RX), (100, 1, CORE), (50, 2, RX), (149, 2, CORE)))]) is None
    found = watch.seen([("packets", packets((1000, 3, RX), (1100, 3, CORE)))])
    assert found is not None
    assert found.text == "rx.core>100ns"


def test_packet_that_is_read_in_two_parts_sets_off() -> None:
    watch = Watch([Trigger.parse("rx.core>100ns")])
    assert watch.seen([("packets", packets((1000, 3, RX)))]) is None
    assert watch.seen([("packets", packets((1500, 3, CORE)))]) is not None


def test_address_of_a_packet_that_is_gone_does_not() -> None:
    watch = Watch([Trigger.parse("rx.core>100ns")])
    assert watch.seen([("packets", packets((1, 1, RX), (2, 1, FREE), (5000, 1, CORE)))]) is None


def test_nothing_sets_off_without_triggers() -> None:
    assert Watch([]).seen([("packets", packets((1, 1, DROP)))]) is None
