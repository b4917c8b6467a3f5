# SPDX-License-Identifier: Apache-2.0
"""Three hosts that are threads of this process, over lo: they all probe each other."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from hopscope.clock.pairs import Host, Pairs
from hopscope.clock.peer import serve
from hopscope.errors import HopscopeError
from tests.clock.lines import QueueLine, line, opener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LO = "127.0.0.1"
NAMES = ("a", "b", "c")
SOON_S = 60.0


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def three(stack: ExitStack, **instead: Callable[[], QueueLine]) -> list[Host]:
    opened = opener(stack)
    return [Host(name, LO, instead.get(name, opened)) for name in NAMES]


def seen(pairs: Pairs, wanted: set[int], until: Callable[[], bool] = lambda: True) -> set[int]:
    """Return of which pairs windows with packets come, until all that are wanted have come."""
    found: set[int] = set()
    deadline_s = time.monotonic() + SOON_S
    while time.monotonic() < deadline_s and not (wanted <= found and until()):
        window = pairs.take(0.1)
        if window and len(window.samples.there) and len(window.samples.back):
            found.add(window.pair)
    return found


def test_all_pairs_are_probed_and_their_ports_are_known_before(stack: ExitStack) -> None:
    with Pairs(three(stack)) as pairs:
        assert pairs.ends == [(0, 1), (0, 2), (1, 2)]
        ports = pairs.ports
        assert [len(of) for of in ports] == [2, 2, 2]
        assert len({port for of in ports for port in of}) == 6
        assert pairs.take(0) is None
        before_ns = time.monotonic_ns()
        pairs.start()
        window = pairs.take(SOON_S)
        after_ns = time.monotonic_ns()
        assert window
        names = window.samples.first.host, window.samples.second.host
        assert names == tuple(NAMES[host] for host in pairs.ends[window.pair])
        there, back, bound_ns = window.samples.there, window.samples.back, window.samples.bound_ns
        for times_ns in (there.sent_ns, there.received_ns, back.sent_ns, back.received_ns):
            assert ((before_ns - bound_ns <= times_ns) & (times_ns <= after_ns + bound_ns)).all()
        assert [look.at_ns > 0 for look in window.looks] == [True, True]
        assert seen(pairs, {0, 1, 2}) == {0, 1, 2}
        assert not pairs.failed


def test_ports_can_be_chosen_one_for_each_other_host(stack: ExitStack) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((LO, 0))
        port = sock.getsockname()[1] % 60_000 + 2_000
    # These hosts have one address, so that the ports of the second are in use already.
    with pytest.raises(HopscopeError, match=rf"UDP port \d+ of {LO} is nothing to bind to: Address already in use"):
        Pairs(three(stack), port=port)
    with Pairs(
        [host._replace(address=f"127.0.0.{number + 2}") for number, host in enumerate(three(stack))], port=port
    ) as pairs:
        assert pairs.ports == [[port, port + 1]] * 3


class Dying:
    """Serves for a while, then no more."""

    def __init__(self) -> None:
        self.lines: list[QueueLine] = []

    def __call__(self, theirs: QueueLine) -> None:
        self.lines.append(theirs)
        serve(theirs)

    def die(self) -> None:
        for theirs in self.lines:
            theirs.close()
        self.lines.clear()


def test_who_dies_ends_its_own_pairs_and_can_come_back(stack: ExitStack) -> None:
    dying = Dying()
    opened = opener(stack, dying)
    with Pairs(three(stack, b=opened)) as pairs:
        pairs.start()
        assert seen(pairs, {0, 1, 2}) == {0, 1, 2}
        dying.die()
        seen(pairs, set(), lambda: len(pairs.failed) == 2)
        assert pairs.failed == dict.fromkeys((0, 2), "b ended the comparison of clocks")
        while pairs.take(0):
            pass
        assert seen(pairs, {1}) == {1}
        pairs.replace(1, Host("b", LO, opened))
        assert seen(pairs, {0, 1, 2}) == {0, 1, 2}
        assert not pairs.failed


@pytest.mark.slow
def test_who_does_not_answer_keeps_nobody_else(stack: ExitStack) -> None:
    hang = False

    class Hanging(QueueLine):
        def send(self, message: dict[str, object]) -> None:  # type: ignore[override]
            if not hang:
                super().send(message)

    opened = opener(stack)

    def hanging() -> QueueLine:
        made = opened()
        made.__class__ = Hanging
        return made

    with Pairs(three(stack, c=hanging), answer_s=4) as pairs:
        pairs.start()
        assert seen(pairs, {0, 1, 2}) == {0, 1, 2}
        hang = True
        seen(pairs, set(), lambda: len(pairs.failed) == 2)
        assert pairs.failed == dict.fromkeys((1, 2), "c did not answer for 4 s")
        assert seen(pairs, {0}) == {0}


def test_a_host_that_cannot_take_part_is_said_before_anything_is_sent(stack: ExitStack) -> None:
    hosts = three(stack)
    hosts[2] = hosts[2]._replace(address="203.0.113.7")
    with pytest.raises(HopscopeError, match=r"c: 203\.0\.113\.7 is nothing to bind to"):
        Pairs(hosts)


def test_where_no_packet_comes_through_it_is_said_between_whom(stack: ExitStack) -> None:
    with Pairs(three(stack)) as pairs:
        # Whoever is between drops all that a and b send each other.
        for side in pairs.pairs[0].sides:
            side._line = Deaf(side._line)
        pairs.start()
        seen(pairs, {1, 2}, lambda: bool(pairs.silent(4.0)))
        (sentence,) = pairs.silent(4.0)
        ports = [side.port for side in pairs.pairs[0].sides]
        assert sentence.startswith(f"No UDP packet comes through between a ({LO}:{ports[0]}) and b ({LO}:{ports[1]})")


class Deaf:
    """A line to a peer that sends, and to which nothing comes."""

    def __init__(self, real: QueueLine) -> None:
        self._real = real
        self.send, self.close = real.send, real.close

    def receive(self, timeout_s: float | None = None) -> dict[str, object] | None:
        answer = self._real.receive(timeout_s)
        return answer and {**answer, **({"received": []} if "received" in answer else {})}


def test_a_line_that_ends_is_none() -> None:
    ours, theirs = line()
    theirs.close()
    assert ours.receive() is None
