# SPDX-License-Identifier: Apache-2.0
"""Which messages are kept, out of records made up here."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hopscope.bpf.layout import HOP_TX_EVENT_DTYPE
from hopscope.live.messages.keeper import SlowestKeeper
from hopscope.model.message import SentMessage
from hopscope.verbs.tx.messages import SentRecords

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hopscope.model.slowest import Slowest

START = 10**9
TEMPLATE = SentMessage(
    flow=None,
    cookie=0,
    pid=0,
    len_bytes=0,
    end_byte=0,
    entry_ns=None,
    handed_ns=None,
    sched_ns=START,
    driver_ns=START,
    nic_ns=None,
    done_ns=None,
    qdisc_ns=None,
    devices=(),
    retransmits=0,
    cause="none",
    slept=False,
    datagram=False,
    aborted=False,
)
# Durations of messages in batches as they are read; None for one that was not acknowledged.
batches = st.lists(st.lists(st.one_of(st.none(), st.integers(0, 50)), max_size=12), max_size=6)


def records(durations: list[int | None]) -> Any:  # noqa: ANN401 - a structured array
    made = np.zeros(len(durations), HOP_TX_EVENT_DTYPE)
    made["handed_ns"] = START
    made["done_ns"] = [0 if duration is None else START + duration for duration in durations]
    return made


class Decoder:
    """Makes messages of what was made up, and counts them."""

    totals_ns = staticmethod(SentRecords.totals_ns)

    def __init__(self) -> None:
        self.decoded = 0

    def decode(self, some: Iterable[np.void]) -> list[SentMessage]:
        seen = ("entry_ns", "handed_ns", "done_ns")
        found = [replace(TEMPLATE, **{name: int(each[name]) or None for name in seen}) for each in some]
        self.decoded += len(found)
        return found


def totals(slowest: Slowest) -> list[int | None]:
    return [message.total_ns for message in slowest.messages]


@given(batches, batches, st.integers(1, 8))
def test_slowest_are_those_that_sorting_all_of_them_gives(
    first: list[list[int | None]], second: list[list[int | None]], most: int
) -> None:
    keeper = SlowestKeeper(most, Decoder())
    everything: list[int | None] = []
    for interval in (first, second):
        for batch in interval:
            keeper.add(records(batch))
        flat = [duration for batch in interval for duration in batch]
        everything += flat
        known = sorted((duration for duration in flat if duration is not None), reverse=True)
        found = keeper.interval()
        assert (found.kind, found.asked, totals(found)) == ("interval", most, known[:most])
        assert (found.seen, found.unfinished) == (len(known), len(flat) - len(known))
    known = sorted((duration for duration in everything if duration is not None), reverse=True)
    found = keeper.total()
    assert (found.kind, found.asked, totals(found)) == ("total", most, known[:most])
    assert (found.seen, found.unfinished) == (len(known), len(everything) - len(known))


def test_only_those_that_may_be_kept_are_decoded() -> None:
    decoder = Decoder()
    keeper = SlowestKeeper(5, decoder)
    keeper.add(records(list(range(10_000))))
    keeper.add(records(list(range(9_996))))
    assert decoder.decoded == 5
    keeper.add(records([20_000]))
    assert decoder.decoded == 6
    assert totals(keeper.interval()) == [20_000, 9_999, 9_998, 9_997, 9_996]


def test_start_is_the_send_call_where_it_was_seen() -> None:
    made = records([100, 100, 100])
    made["entry_ns"] = [START - 50, 0, 0]
    made["handed_ns"][2] = 0  # neither was seen
    keeper = SlowestKeeper(3, Decoder())
    keeper.add(made)
    found = keeper.interval()
    assert (totals(found), found.seen, found.unfinished) == ([150, 100], 2, 1)
    made["done_ns"][1] = START + 120  # later since TCP had it, but not since the call
    only = SlowestKeeper(1, Decoder())
    only.add(made)
    assert totals(only.interval()) == [150]


def test_held_counts_the_layers_of_the_slowest() -> None:
    keeper = SlowestKeeper(3, Decoder())
    keeper.add(records([10, 20, 30, 40]))
    assert keeper.interval().held() == {"network and receiver": 3}
