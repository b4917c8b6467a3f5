# SPDX-License-Identifier: Apache-2.0
"""ss's filter language as text: ``state established and ( dport = :443 or src 10.0.0.0/8 )``.

As ss(8) documents it: `or` binds less than `and`, which binds less than `not`, and `and` may be left out. (ss up to
now reads `or` and `and` from left to right. Parentheses make both read the same.)
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
from typing import TYPE_CHECKING, Final, NoReturn, cast

from hopscope.errors import UsageError
from hopscope.kernel.sockets.filter import And, Autobound, Cgroup, Device, Filter, Host, Mark, Network, Not, Or, Port
from hopscope.kernel.sockets.table import STATE_NAMES, State

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hopscope.kernel.sockets.address import End
    from hopscope.kernel.sockets.filter import Comparison, Condition

_NOT: Final = {"not", "!"}
_AND: Final = {"and", "&", "&&"}
_OR: Final = {"or", "|", "||"}
_COMPARISONS: Final[dict[str, Comparison]] = {
    "=": "=", "==": "=", "eq": "=", "!=": "!=", "ne": "!=", "neq": "!=", "<": "<", "lt": "<", ">": ">", "gt": ">",
    "<=": "<=", "le": "<=", "leq": "<=", ">=": ">=", "ge": ">=", "geq": ">=",
}  # fmt: skip
_ENDS: Final[dict[str, End]] = {"src": "local", "dst": "peer", "sport": "local", "dport": "peer"}
_ANY_ADDRESS: Final = {"", "*", "any", "all", "default"}
_FAMILIES: Final = {"inet:": socket.AF_INET, "inet6:": socket.AF_INET6}
_MOST_PORTS: Final = 0xFFFF
_MOST_NESTED: Final = 100
_HELP: Final = "See ss(8), EXPRESSION, or docs/sockets.md"

_MINI: Final = 1 << State.SYN_RECV | 1 << State.TIME_WAIT
ALL: Final = sum(1 << state for state in State if state != State.NEW_SYN_RECV)
# Neither time-wait sockets, which are many and do nothing, nor such as have a port and no use for it.
USUAL: Final = ALL & ~(1 << State.TIME_WAIT | 1 << State.BOUND_INACTIVE)
_UNCONNECTED: Final = 1 << State.CLOSE | 1 << State.LISTEN | 1 << State.BOUND_INACTIVE
_STATES: Final = {
    **{name: 1 << state for state, name in STATE_NAMES.items() if state != State.NEW_SYN_RECV},
    "all": ALL,
    "connected": ALL & ~_UNCONNECTED,
    "synchronized": ALL & ~_UNCONNECTED & ~(1 << State.SYN_SENT),
    "bucket": _MINI,
    "big": ALL & ~_MINI,
    "close": 1 << State.CLOSE,
    "closed": 1 << State.CLOSE,
    "syn-rcv": 1 << State.SYN_RECV,
    "listen": 1 << State.LISTEN,
}


def parse(arguments: Sequence[str], cgroup_id: Callable[[str], int]) -> Filter:
    """Return the filter that the words of a command line are.

    Parameters
    ----------
    arguments
        Words, or several of them in one, as ss takes them.
    cgroup_id
        Returns the number of a cgroup by its path, or raises UsageError.

    Raises
    ------
    UsageError
        They are none; says where.
    """
    words = _words(" ".join(arguments))
    states, begin = _states(words)
    if begin == len(words):
        return Filter(states)
    parser = _Parser(words, begin, cgroup_id)
    return Filter(states, parser.whole())


def _words(text: str) -> list[str]:
    """Split at blanks, and at the parentheses and ``!`` that stand before or behind a word."""
    found = []
    for blank_free in text.split():
        word, behind = blank_free, 0
        while len(word) > 1 and (word[0] == "(" or (word[0] == "!" and word[1] != "=")):
            found.append(word[0])
            word = word[1:]
        while len(word) > 1 and word[-1] == ")":
            behind += 1
            word = word[:-1]
        found += [word, *")" * behind]
    return found


def _states(words: Sequence[str]) -> tuple[int | None, int]:
    """Return what `state` and `exclude` at the beginning say, and where the rest begins."""
    states: int | None = None
    at = 0
    while at < len(words) and words[at] in {"state", "exclude", "excl"}:
        if at + 1 == len(words):
            raise UsageError(f"A state is missing after `{words[at]}` at the end of the filter", _HELP)
        name = words[at + 1].lower()
        if name not in _STATES:
            raise UsageError(f"There is no state `{words[at + 1]}`", f"States are {', '.join(sorted(_STATES))}")
        if words[at] == "state":
            states = (states or 0) | _STATES[name]
        else:
            states = (ALL if states is None else states) & ~_STATES[name]
        at += 2
    return states, at


class _Parser:
    """Reads words one after the other; each method returns what it read."""

    def __init__(self, words: Sequence[str], begin: int, cgroup_id: Callable[[str], int]) -> None:
        self._words = list(words)
        self._at = begin
        self._nested = 0
        self._cgroup_id = cgroup_id

    def whole(self) -> Condition:
        found = self._either()
        if self._at < len(self._words):
            self._refuse("is not expected")
        return found

    def _next(self) -> str:
        return self._words[self._at] if self._at < len(self._words) else ""

    def _take(self, among: set[str]) -> bool:
        if self._next() not in among:
            return False
        self._at += 1
        return True

    def _refuse(self, what: str) -> NoReturn:
        if self._at < len(self._words):
            raise UsageError(f"In the filter, `{self._next()}` (word {self._at + 1}) {what}", _HELP)
        raise UsageError("The filter ends too soon", _HELP)

    def _either(self) -> Condition:
        found = self._both()
        while self._take(_OR):
            found = Or(found, self._both())
        return found

    def _both(self) -> Condition:
        found = self._one()
        while self._next() and self._next() not in _OR | {")"}:
            self._take(_AND)
            found = And(found, self._one())
        return found

    def _one(self) -> Condition:
        self._nested += 1
        if self._nested > _MOST_NESTED:
            raise UsageError(f"The filter has more than {_MOST_NESTED} nested conditions", _HELP)
        try:
            if self._take(_NOT):
                return Not(self._one())
            if self._take({"("}):
                found = self._either()
                if not self._take({")"}):
                    self._refuse("is where a `)` is missing")
                return found
            return self._predicate()
        finally:
            self._nested -= 1

    def _predicate(self) -> Condition:
        kind = self._next()
        if kind == "autobound":
            self._at += 1
            return Autobound()
        if kind not in {*_ENDS, "dev", "fwmark", "cgroup"}:
            self._refuse("is not a condition; these are: src, dst, sport, dport, dev, fwmark, cgroup, autobound")
        self._at += 1
        comparison = self._comparison(kind)
        if not self._next():
            self._refuse("")
        try:
            found = self._of(kind, comparison, self._next())
        except ValueError as error:
            self._refuse(f"is not a valid {error}")
        self._at += 1
        return Not(found) if comparison == "!=" and kind not in {"sport", "dport"} else found

    def _comparison(self, kind: str) -> Comparison:
        found = _COMPARISONS.get(self._next())
        if found is None:
            return "="
        allowed = {"sport": set(_COMPARISONS.values()), "dport": set(_COMPARISONS.values())}.get(kind, {"=", "!="})
        if found not in allowed:
            self._refuse(f"is not supported by `{kind}`, which has only = and !=")
        self._at += 1
        return found

    def _of(self, kind: str, comparison: Comparison, value: str) -> Condition:
        if kind in {"sport", "dport"}:
            family, text = _family(value)
            text = text.removeprefix("*")
            compared = Port(_ENDS[kind], comparison, _port(text.removeprefix(":")))
            return And(Host(_ENDS[kind], family=family), compared) if family else compared
        if kind in _ENDS:
            return _host(_ENDS[kind], value)
        if kind == "dev":
            return Device(int(value) if value.isdecimal() else value)
        if kind == "fwmark":
            mark, _, mask = value.partition("/")
            return Mark(_number(mark, "mark"), _number(mask, "mask of a mark") if mask else 0xFFFFFFFF)
        return Cgroup(self._cgroup_id(value))


def _number(text: str, what: str) -> int:
    with contextlib.suppress(ValueError):
        if 0 <= (found := int(text, 0)) <= 0xFFFFFFFF:
            return found
    raise ValueError(what)


def _port(text: str) -> int:
    if text.isdecimal() and int(text) <= _MOST_PORTS:
        return int(text)
    for protocol in ("tcp", "udp"):
        with contextlib.suppress(OSError):
            return socket.getservbyname(text, protocol)
    raise ValueError("port, neither a number up to 65535 nor a service")


def _family(text: str) -> tuple[int, str]:
    for prefix, family in _FAMILIES.items():
        if text.startswith(prefix):
            return family, text.removeprefix(prefix)
    return 0, text


def _host(end: End, value: str) -> Host:
    """Read ``[FAMILY:]ADDRESS[/LENGTH][:PORT]``, IPv6 in brackets where there is a port."""
    family, text = _family(value)
    if text.startswith("["):
        address, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError("address in brackets, with :PORT or nothing behind it")
        port = rest[1:]
    elif text.count(":") > 1:
        address, port = text, ""
    else:
        address, _, port = text.partition(":")
    number = None if port in {"", "*"} else _port(port)
    networks = () if address in _ANY_ADDRESS else tuple(_networks(address, family))
    return Host(end, networks, number, family)


def _networks(address: str, family: int) -> list[Network]:
    """Return the network that is written, or those of a host's name."""
    if re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3}){0,2}(/.*)?", address):
        plain, slash, length = address.partition("/")  # as in 10/8
        address = plain + ".0" * (3 - plain.count(".")) + slash + length
    with contextlib.suppress(ValueError):
        return [_network(ipaddress.ip_network(address, strict=False))]
    if not re.fullmatch(r"(?=.*[A-Za-z])[A-Za-z0-9._-]+", address):
        raise ValueError("address")
    try:
        found = socket.getaddrinfo(address, None, cast("socket.AddressFamily", family), socket.SOCK_STREAM)
    except OSError:
        raise ValueError("address, nor the name of a host that can be found") from None
    return [_network(ipaddress.ip_network(each[4][0])) for each in found]


def _network(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> Network:
    packed = network.network_address.packed
    words = tuple(int.from_bytes(packed[at : at + 4], "big") for at in range(0, len(packed), 4))
    family = socket.AF_INET if network.version == 4 else socket.AF_INET6
    return Network(family, words, network.prefixlen)
