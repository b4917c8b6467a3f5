# SPDX-License-Identifier: Apache-2.0
"""What a condition on events can compare: the fields of an event, and which values each of them takes."""

from __future__ import annotations

import difflib
import ipaddress
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from hopscope.errors import UsageError
from hopscope.model.condition import Comparison, Joined, Time, joined, parse, replaced, written

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from hopscope.model.condition import Condition, Value


class Kind(Enum):
    """What a field's values are."""

    NUMBER = "a whole number"
    TIME = "a time with a unit, such as 1.5ms"
    TEXT = "a name"
    ADDRESS = "an IP address, or a network such as 10.0.0.0/8"
    PROTOCOL = "tcp, udp or a number"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an event."""

    name: str
    kind: Kind
    meaning: str


FIELDS: Final = (
    Field("point", Kind.TEXT, "probe point, or SUBSYSTEM:EVENT of `record -e`"),
    Field("time_ns", Kind.NUMBER, "time, CLOCK_MONOTONIC"),
    Field(
        "hop_ns",
        Kind.TIME,
        "time since the packet's event before this one; only of packets, and only where it is known",
    ),
    Field("cpu", Kind.NUMBER, "CPU"),
    Field("tid", Kind.NUMBER, "running thread; 0: idle task"),
    Field("pid", Kind.NUMBER, "process of that thread"),
    Field("comm", Kind.TEXT, "name of that thread; where it changed, the last one that is known"),
    Field("interface", Kind.TEXT, "name of the device"),
    Field("ifindex", Kind.NUMBER, "number of the device in its namespace"),
    Field("netns", Kind.NUMBER, "inode of the network namespace"),
    Field("flow", Kind.NUMBER, "number of the flow"),
    Field("source", Kind.ADDRESS, "source address of the flow"),
    Field("source_port", Kind.NUMBER, "source port of the flow"),
    Field("destination", Kind.ADDRESS, "destination address of the flow"),
    Field("destination_port", Kind.NUMBER, "destination port of the flow"),
    Field("protocol", Kind.PROTOCOL, "protocol of the flow"),
    Field("len_bytes", Kind.NUMBER, "length, as the event's table has it"),
    Field("header_bytes", Kind.NUMBER, "length of the headers before the TCP or UDP payload; 0: not looked at"),
    Field("seq", Kind.NUMBER, "sequence number, as the event's table has it"),
    Field("tcp_flags", Kind.NUMBER, "FIN 1, SYN 2, RST 4, PSH 8, ACK 16"),
    Field("skb", Kind.NUMBER, "address of the packet's struct sk_buff"),
    Field("sock", Kind.NUMBER, "address of the struct sock"),
    Field("value", Kind.NUMBER, "value, as the event's table has it"),
    Field("reason", Kind.TEXT, "why the packet was dropped; only of drops"),
)
BY_NAME: Final = {each.name: each for each in FIELDS}
# Either of two fields, and a short name.
OTHERS: Final = {
    "port": ("source_port", "destination_port"),
    "address": ("source", "destination"),
    "hop": ("hop_ns",),
}
_PROTOCOLS: Final = {"tcp": 6, "udp": 17}
_MOST: Final = 1 << 63
_EQUALITY: Final = ("==", "!=")


@dataclass(frozen=True, slots=True)
class Known:
    """What else a condition can name.

    Attributes
    ----------
    points
        Names of probe points, and of tables of tracepoints and functions (``e_tcp_tcp_probe``).
    own
        Columns of those tables, by name; where :data:`FIELDS` have the name, too, what it means depends on the event.
    """

    points: Collection[str]
    own: Mapping[str, Kind] = field(default_factory=dict[str, Kind])


def event_condition(text: str, known: Known) -> Condition:
    """Return a condition on events, whose comparisons are of fields with values that those can have.

    ``port`` and ``address`` are replaced by the fields of both ends, a probe point as a field by ``point`` and
    ``hop_ns``, and protocols by numbers. Times are numbers of nanoseconds.

    Parameters
    ----------
    text
        As :func:`~hopscope.model.condition.parse` reads it.
    known
        Points, and fields besides :data:`FIELDS`.

    Raises
    ------
    UsageError
        It is no condition, or it compares what cannot be compared.
    """
    return replaced(parse(text), lambda comparison: _checked(comparison, known))


def is_in_network(address: str, network: str) -> bool:
    """Tell whether an address is this one, or in this network; a text that is no address is in none."""
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _checked(comparison: Comparison, known: Known) -> Condition:
    name, sign, value = comparison.field, comparison.sign, comparison.value
    if ends := OTHERS.get(name):
        # Not equal: neither is.
        parts = [_checked(Comparison(end, sign, value), known) for end in ends]
        return joined(parts, both=sign == "!=")
    if name in known.points:
        late = _checked(Comparison("hop_ns", sign, value), known)
        return Joined(both=True, left=Comparison("point", "==", name), right=late)
    kind = BY_NAME[name].kind if name in BY_NAME else known.own.get(name)
    if kind is None:
        fields = [*BY_NAME, *OTHERS, *known.own]
        close = difflib.get_close_matches(name, [*fields, *known.points], 3)
        raise UsageError(
            f"Events have no field {name}",
            f"Did you mean {' or '.join(close)}?" if close else f"The fields are {', '.join(fields)}",
        )
    if kind in {Kind.TEXT, Kind.ADDRESS} and sign not in _EQUALITY:
        raise UsageError(f"{name} is {kind.value}, which {sign} does not compare", "Use ==, != or in")
    if name == "point" and value not in known.points:
        close = difflib.get_close_matches(str(value), known.points, 3)
        raise UsageError(
            f"{written(value)} is not a probe point",
            f"Did you mean {' or '.join(close)}?" if close else "`hopscope probes` lists them: record.*",
        )
    return Comparison(name, sign, _value(name, kind, value))


def _value(name: str, kind: Kind, value: Value) -> int | str:  # noqa: PLR0911 # one a kind of value
    match kind, value:
        case Kind.NUMBER, int(number) if -_MOST <= number < 2 * _MOST:
            # Addresses in the kernel are in the upper half of 64 bits, and columns are signed.
            return number - 2 * _MOST if number >= _MOST else number
        case Kind.TIME, Time(ns=ns) if abs(ns) < _MOST:
            return ns
        case Kind.TIME, 0:
            return 0
        case Kind.PROTOCOL, str(text) if text.lower() in _PROTOCOLS:
            return _PROTOCOLS[text.lower()]
        case Kind.PROTOCOL, int(number) if 0 <= number < 1 << 8:
            return number
        case Kind.TEXT, str(text):
            return text
        case Kind.TEXT, int(number):
            return str(number)
        case Kind.ADDRESS, str(address) if _is_network(address):
            return address
    raise UsageError(f"{name} is {kind.value}, and cannot be compared with {written(value)}")


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True
