# SPDX-License-Identifier: Apache-2.0
"""A peer on another host, asked by messages: what it answers is checked before it is believed."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from hopscope.clock.adjustment import Adjustment
from hopscope.clock.change import Look
from hopscope.clock.domain import ClockDomain
from hopscope.clock.nic_clocks import MOST
from hopscope.clock.phc import Domain
from hopscope.clock.probe import Refusal
from hopscope.clock.relation import ClockReading
from hopscope.errors import ConnectionLostError, FormatError, HopscopeError, StreamClosedError
from hopscope.gate import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hopscope.clock.peer import Line

    Answer: TypeAlias = Mapping[str, Any]

ANSWER_S: Final = 5.0
_MOST_STAMPS: Final = 4096
_MOST_DAEMONS: Final = 16
_REASONS: Final = {str(reason) for reason in Refusal}


@dataclass(frozen=True, slots=True)
class Taken:
    """What a peer has stamped since the last time.

    Attributes
    ----------
    sent, received
        Stamps by the number of the packet.
    bound_ns
        How far they may be off because they were taken by another clock.
    was_set
        That clock was set meanwhile: there are no stamps.
    lost, refused, answered
        As of `hopscope.clock.exchange.Harvest`.
    look
        How its clocks were when that was told.
    nic_sent, nic_received, nic_bound_ns
        As `sent`, `received` and `bound_ns`, by its NIC's stamps.
    """

    sent: dict[int, int]
    received: dict[int, int]
    bound_ns: int
    was_set: bool
    lost: int
    refused: dict[str, int]
    answered: int
    look: Look
    nic_sent: dict[int, int]
    nic_received: dict[int, int]
    nic_bound_ns: int


class Remote:
    """A peer at the other end of a line.

    Parameters
    ----------
    line
        To it.
    address
        Where its host is reached by the other one.
    name
        What the host is called; its boot id if none.
    port
        Where it is to listen; any port if 0.
    answer_s
        How long it may take to answer.

    Attributes
    ----------
    domain
        The clock of its stamps.
    port
        Where it listens.
    bound_ns
        How far its stamps may be off because they are of another clock.

    Raises
    ------
    FormatError
        It does not answer as it should.
    HopscopeError
        What it could not do.
    """

    def __init__(self, line: Line, address: str, name: str = "", *, port: int = 0, answer_s: float = ANSWER_S) -> None:
        self._line = line
        self._answer_s = answer_s
        self._named = name or address
        self.address = address
        opened = self.ask("open", address=address, port=port)
        self.port = _integer(opened, "port")
        self.bound_ns = _integer(opened, "bound_ns")
        self.domain = ClockDomain(name or _printable(opened.get("host"), 64))

    def close(self) -> None:
        """End the peer; idempotent."""
        self._line.close()

    def ask(self, verb: str, **fields: object) -> Answer:
        """Return the answer to a command."""
        self.tell(verb, **fields)
        return self.answer()

    def tell(self, verb: str, **fields: object) -> None:
        """Give a command, and do not wait."""
        try:
            self._line.send({"do": verb, **fields})
        except (ConnectionLostError, StreamClosedError) as error:
            raise self._gone(error) from error

    def answer(self) -> Answer:
        """Wait for the answer to the command before."""
        try:
            answer = self._line.receive(self._answer_s)
        except TimeoutError as error:
            raise HopscopeError(f"{self._named} did not answer for {self._answer_s:g} s") from error
        except ConnectionLostError as error:
            raise self._gone(error) from error
        if answer is None:
            raise HopscopeError(f"{self._named} ended the comparison of clocks")
        if "error" in answer:
            raise HopscopeError(f"{self._named}: {_printable(answer['error'], 200)}")
        return answer

    def daemons(self) -> list[str]:
        """Return what runs there that sets clocks, in words."""
        found = self.ask("daemons").get("daemons")
        if not isinstance(found, list) or len(found) > _MOST_DAEMONS:
            raise FormatError("A peer does not say what sets its clocks")
        return [_printable(name, 200) for name in found]

    def taken(self) -> Taken:
        """Wait for the answer to ``take``."""
        answer = self.answer()
        return Taken(
            _stamps(answer, "sent"),
            _stamps(answer, "received"),
            _integer(answer, "bound_ns"),
            answer.get("was_set") is True,
            _integer(answer, "lost"),
            _refused(answer),
            _integer(answer, "answered"),
            _look(answer.get("clock")),
            _stamps(answer, "nic_sent"),
            _stamps(answer, "nic_received"),
            _integer(answer, "nic_bound_ns"),
        )

    def _gone(self, error: HopscopeError) -> HopscopeError:
        return HopscopeError(f"{self._named} left the comparison of clocks: {error.what}", error.next_step)


def _printable(text: object, length: int) -> str:
    """Return the beginning of what a peer says, without what would steer a terminal."""
    return one_line(str(text)[:length])


def _integer(answer: Answer, name: str) -> int:
    value = answer.get(name)
    if type(value) is not int or not -(1 << 62) < value < 1 << 62:
        raise FormatError(f"A peer's {name[:32]} is no number")
    return value


def _stamps(answer: Answer, name: str) -> dict[int, int]:
    found = answer.get(name)
    if not isinstance(found, list) or len(found) > _MOST_STAMPS:
        raise FormatError(f"A peer's {name} are no stamps")
    stamps = {}
    for pair in found:
        if not isinstance(pair, list) or len(pair) != 2:
            raise FormatError(f"A peer's {name} are no stamps")
        number, time_ns = pair
        stamps[_integer({name: number}, name)] = _integer({name: time_ns}, name)
    return stamps


def _refused(answer: Answer) -> dict[str, int]:
    refused = answer.get("refused")
    if not isinstance(refused, dict):
        raise FormatError("A peer does not say what it refused")
    if refused.keys() - _REASONS:
        raise FormatError("A peer refused packets for no reason that is known here")
    return {reason: _integer(refused, reason) for reason in refused}


def _look(clock: object) -> Look:
    if not isinstance(clock, dict):
        raise FormatError("A peer does not say how its clocks are")
    rate, difference = clock.get("rate"), clock.get("to_monotonic")
    if not isinstance(rate, float) or not math.isfinite(rate):
        raise FormatError("A peer's rate is no number")
    if not isinstance(difference, list) or len(difference) != len(Domain._fields):
        raise FormatError("A peer does not say how its clocks differ")
    adjustment = Adjustment(
        _integer(clock, "at_ns"),
        rate,
        clock.get("synchronized") is True,
        *(_integer(clock, name) for name in ("max_error_ns", "estimated_error_ns", "tai_offset_s")),
    )
    offset_ns, bound_ns = (_integer({"to_monotonic": part}, "to_monotonic") for part in difference)
    return Look(adjustment, Domain(offset_ns, bound_ns), _phcs(clock.get("phcs")))


def _phcs(found: object) -> dict[str, ClockReading]:
    if not isinstance(found, list) or len(found) > MOST:
        raise FormatError("A peer's hardware clocks are none")
    readings = {}
    for entry in found:
        if not isinstance(entry, list) or len(entry) != 1 + len(fields(ClockReading)):
            raise FormatError("A peer's hardware clock is none")
        name, *numbers = entry
        readings[_printable(name, 64)] = ClockReading(*(_integer({"reading": part}, "reading") for part in numbers))
    return readings
