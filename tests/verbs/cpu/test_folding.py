# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hopscope.verbs.cpu import folding
from hopscope.verbs.cpu.folding import Folding, FunctionNumbers, Seen

SAMPLES = st.lists(
    st.tuples(st.lists(st.integers(1, 2000), min_size=1, max_size=4), st.integers(1, 3), st.integers(0, 2)), max_size=40
)


class Symbols:
    """An address is in the function of its hundred; those from 1000 on come and go."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.known_as = "f"

    def names(self, addresses: np.ndarray) -> list[str]:
        self.asked += addresses.tolist()
        return [f"{self.known_as}{address // 100}" for address in addresses.tolist()]

    def lasting(self, addresses: np.ndarray) -> np.ndarray:
        return addresses < 1000


def as_it_is(part: int, frames: tuple[str, ...]) -> Seen:
    return f"part {part}", frames


def arrays(samples: list[tuple[list[int], int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    addresses = np.zeros((len(samples), 4), np.uint64)
    for row, (frames, _, _) in zip(addresses, samples, strict=True):
        row[: len(frames)] = frames
    numbers = np.array([sample[1:] for sample in samples], np.uint16).reshape(len(samples), 2)
    return addresses, numbers[:, 0], numbers[:, 1]


def one_by_one(samples: list[tuple[list[int], int, int]]) -> Counter[tuple[Seen, int]]:
    counted: Counter[tuple[Seen, int]] = Counter()
    for (innermost, *callers), part, group in samples:
        places = [innermost, *(address - 1 for address in callers)]
        # The address before 1 is no function, and ends the stack as an unknown place would.
        frames = tuple(f"f{place // 100}" for place in reversed(places) if place)
        counted[as_it_is(part, frames), group] += 1
    return counted


@given(SAMPLES, SAMPLES)
def test_batches_are_counted_as_one_sample_after_the_other(
    first: list[tuple[list[int], int, int]], second: list[tuple[list[int], int, int]]
) -> None:
    folded = Folding(Symbols(), as_it_is)
    assert folded.fold(*arrays(first)) == one_by_one(first)
    assert folded.fold(*arrays(second)) == one_by_one(second)


def test_a_caller_is_looked_up_before_the_address_that_it_returns_to() -> None:
    counted = Folding(Symbols(), as_it_is).fold(*arrays([([300, 200, 101], 1, 0)]))
    assert counted == {(("part 1", ("f1", "f1", "f3")), 0): 1}


def test_each_different_stack_is_looked_at_once() -> None:
    looked: list[tuple[int, tuple[str, ...]]] = []

    def look(part: int, frames: tuple[str, ...]) -> Seen | None:
        looked.append((part, frames))
        return ("send", frames[1:]) if part == 1 else None

    folded = Folding(Symbols(), look)
    samples = [([310, 205], 1, 0), ([320, 206], 1, 1), ([320, 206], 2, 0), ([310, 305], 1, 1)]
    for _ in range(2):
        assert folded.fold(*arrays(samples)) == {(("send", ("f3",)), 0): 1, (("send", ("f3",)), 1): 2}
    assert sorted(looked) == [(1, ("f2", "f3")), (1, ("f3", "f3")), (2, ("f2", "f3"))]


def test_lasting_names_are_asked_for_once_and_others_each_time() -> None:
    symbols = Symbols()
    numbers = FunctionNumbers(symbols)
    before = numbers.of(np.array([[250, 0], [1250, 250]], np.uint64))
    symbols.known_as = "g"
    after = numbers.of(np.array([[250, 0], [1250, 250]], np.uint64))
    assert [[numbers.name(number) for number in row] for row in before.tolist()] == [["f2", ""], ["f12", "f2"]]
    assert [[numbers.name(number) for number in row] for row in after.tolist()] == [["f2", ""], ["g12", "f2"]]
    assert symbols.asked == [250, 1250, 1250]


def test_addresses_that_share_a_slot_are_told_apart() -> None:
    addresses = np.arange(1, 1 << 20, dtype=np.uint64)
    slots = folding._slots(addresses)
    same = addresses[slots == slots[249]][:2]
    none = addresses[slots == 0][:1]
    assert len(same) == 2
    assert len(none) == 1
    numbers = FunctionNumbers(Symbols())
    asked = np.array([same[0], same[1], none[0], 0], np.uint64)
    for _ in range(2):
        found = [numbers.name(number) for number in numbers.of(asked).tolist()]
        assert found == [f"f{address // 100}" for address in asked[:3].tolist()] + [""]
