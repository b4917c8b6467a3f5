# SPDX-License-Identifier: Apache-2.0
"""DNS (RFC 1035): a question, and the code of the response with its number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.model.protocols.turn import MORE, Named, Turn, number

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME: Final = "dns"
_HEAD_BYTES: Final = 12
_IS_RESPONSE: Final = 0x8000
_OPCODE: Final = 0x7800
_RESERVED: Final = 0x0040
_RCODE: Final = 0x000F
_MOST_LABEL: Final = 63
_MOST_NAME: Final = 255
# IANA's registry of DNS parameters.
_OPCODES: Final = {0: "", 4: "NOTIFY ", 5: "UPDATE "}
_CLASSES: Final = frozenset({1, 3, 4, 254, 255})
_TYPES: Final = {
    1: "A", 2: "NS", 5: "CNAME", 6: "SOA", 12: "PTR", 13: "HINFO", 15: "MX", 16: "TXT", 28: "AAAA", 33: "SRV",
    35: "NAPTR", 41: "OPT", 43: "DS", 46: "RRSIG", 47: "NSEC", 48: "DNSKEY", 50: "NSEC3", 52: "TLSA", 64: "SVCB",
    65: "HTTPS", 251: "IXFR", 252: "AXFR", 255: "ANY", 257: "CAA",
}  # fmt: skip
_RCODES: Final = (
    "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET", "NXRRSET", "NOTAUTH",
    "NOTZONE",
)  # fmt: skip


class _Message(NamedTuple):
    id: int
    flags: int
    question: str | None  # None: it has none, or not all of it was recorded


def dns_datagrams(requests: Sequence[Turn], answers: Sequence[Turn]) -> Named | None:
    """Return the request that these datagrams are, if they are of DNS: its first question."""
    asked, said = [_message(each) for each in requests], [_message(each) for each in answers]
    return _named(asked, said) if requests else None


def dns_stream(request: Turn, answer: Turn) -> Named | None:
    """Return the same of a stream, in which each message comes behind its length."""
    return _named(_framed(request), _framed(answer))


def _named(asked: Sequence[_Message | None], said: Sequence[_Message | None]) -> Named | None:
    """Return the request if all of its messages are queries, and all that was recorded of answers responses to them."""
    queries = [each for each in asked if each and not each.flags & _IS_RESPONSE]
    replies = [each for each in said if each and each.flags & _IS_RESPONSE]
    if not queries or len(queries) < len(asked) or len(replies) < len(said) or not replies:
        return None
    if not {each.id for each in replies} <= {each.id for each in queries}:
        return None
    first = queries[0]
    reply = next((each for each in replies if each.id == first.id), None)
    if reply and (first.flags ^ reply.flags) & _OPCODE:
        return None
    code = None if reply is None else reply.flags & _RCODE
    status = None if code is None else _RCODES[code] if code < len(_RCODES) else str(code)
    opcode = _OPCODES[(first.flags & _OPCODE) >> 11]
    more = MORE if len({each.question for each in queries}) > 1 else ""
    return Named(NAME, f"{opcode}{first.question}{more}" if first.question else None, status)


def _framed(turn: Turn) -> list[_Message | None]:
    found: list[_Message | None] = []
    at = 0
    while at < len(turn.data):
        length = number(turn.data, at, 2)
        if length is None or length < _HEAD_BYTES:
            return [*found, None]
        body = turn.data[at + 2 : at + 2 + length]
        if turn.len_bytes is not None and at + 2 + length > turn.len_bytes:
            return [*found, None]
        found.append(_message(Turn(body, length)))
        at += 2 + length
    return found


def _message(turn: Turn) -> _Message | None:
    data = turn.data
    words = [number(data, at, 2) for at in range(0, _HEAD_BYTES, 2)]
    if None in words:
        return None
    ident, flags, questions, answers, authorities, more = (word or 0 for word in words)
    opcode = (flags & _OPCODE) >> 11
    if opcode not in _OPCODES or flags & _RESERVED or questions > 1:
        return None
    is_query = not flags & _IS_RESPONSE
    if is_query and (questions != 1 or (opcode == 0 and (answers or authorities > 1)) or more > 2):
        return None
    if not questions:
        return _Message(ident, flags, None)
    return _with_question(turn, ident, flags, bare=is_query and not answers + authorities + more)


def _with_question(turn: Turn, ident: int, flags: int, *, bare: bool) -> _Message | None:
    """Return a message with its question; `bare`: it has nothing else."""
    labels, at = [], _HEAD_BYTES
    while length := number(turn.data, at, 1):
        if length > _MOST_LABEL or at - _HEAD_BYTES + length > _MOST_NAME:
            return None
        labels.append(turn.data[at + 1 : at + 1 + length].decode("latin-1"))
        at += 1 + length
    kind, group = number(turn.data, at + 1, 2), number(turn.data, at + 3, 2)
    if kind is None or group is None:
        return None if turn.is_whole else _Message(ident, flags, None)
    name = ".".join(labels) or "."
    if group & 0x7FFF not in _CLASSES or (bare and turn.len_bytes not in {None, at + 5}):
        return None
    return _Message(ident, flags, f"{_TYPES.get(kind, f'TYPE{kind}')} {name}")
