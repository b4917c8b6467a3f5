# SPDX-License-Identifier: Apache-2.0
"""Packets that are followed while they come: as many as there is room for, and the others are counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from hopscope.live.stream.hops import MOST, PACKET_COLUMNS, Hops, forgotten_note
from hopscope.store.schema import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

NUMBERS = {"rx.driver": 1, "rx.core": 2, "skb.free": 3, "tx.start": 4, "tx.driver": 5, "tcp.retransmit": 6}
BEYOND = 1009
# What fits in all, where each has one event.
ROOM = 3 * MOST


@pytest.fixture
def hops() -> Iterator[Hops]:
    made = Hops(NUMBERS)
    yield made
    made.close()


def packets(point: str, addresses: NDArray[np.int64], begin_ns: int) -> dict[str, NDArray[np.int64]]:
    columns = {
        column.name: np.zeros(len(addresses), column.dtype)
        for column in BY_NAME["packets"].columns
        if column.name in PACKET_COLUMNS
    }
    columns["point"][:] = NUMBERS[point]
    columns["skb"][:] = columns["head"][:] = addresses
    columns["time_ns"][:] = begin_ns + np.arange(len(addresses))
    return columns


def test_the_oldest_packets_are_forgotten_and_counted(hops: Hops) -> None:
    every = np.arange(1, ROOM + BEYOND + 1)
    hops.of(packets("rx.driver", every, 1))
    assert hops.forgotten == ROOM + BEYOND - MOST
    known = hops.of(packets("rx.core", every, ROOM * 2)).known
    assert np.flatnonzero(known).tolist() == list(range(len(every) - MOST, len(every)))


def test_those_that_came_to_their_end_are_no_loss(hops: Hops) -> None:
    under_way = np.arange(1, MOST)
    hops.of(packets("rx.driver", under_way, 1))
    for turn in range(1, 5):
        over = np.arange(turn * MOST, (turn + 1) * MOST)
        for point in ("rx.driver", "skb.free"):
            hops.of(packets(point, over, (2 * turn + (point == "skb.free")) * MOST))
    assert hops.forgotten == 0
    assert hops.of(packets("rx.core", under_way, 4 * ROOM)).known.all()


def test_how_many_is_said() -> None:
    assert (
        forgotten_note(1009) == "the next hop of 1,009 packets is unknown, as more than 65,536 were under way at once"
    )
