# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL's protocol 3: messages of a type and a length, after a first one that has no type.

https://www.postgresql.org/docs/current/protocol-message-formats.html
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.model.protocols.turn import Named, Turn, number

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME: Final = "postgresql"
_FRONTEND: Final = frozenset(b"BCDEFHPQScdfp")
_BACKEND: Final = frozenset(b"123ACDEGHIKNRSTVWZcdnstv")
_HEAD_BYTES: Final = 5
_LENGTH_BYTES: Final = 4
_MOST_BYTES: Final = 1 << 30
_STARTUPS: Final = {3 << 16: "startup", 3 << 16 | 2: "startup"}
# These are answered by one byte.
_ENCRYPTION: Final = {(1234 << 16) + 5679: "SSLRequest", (1234 << 16) + 5680: "GSSENCRequest"}
_ENCRYPTION_BYTES: Final = 8
# Without backtracking: a client could send comments for which that takes for ever.
_KEYWORD: Final = re.compile(rb"(?:\s|;|--[^\n]*\n|(?>/\*.*?\*/))*+([A-Za-z]{2,30})\b", re.DOTALL)
# A message of the extended query protocol that says what is done only by the name that it got earlier.
_OTHERS: Final = {
    "B": "Execute", "E": "Execute", "D": "Describe", "C": "Close", "S": "Sync", "H": "Flush", "F": "FunctionCall",
    "p": "password", "d": "CopyData", "c": "CopyDone", "f": "CopyFail",
}  # fmt: skip
_SQLSTATE: Final = re.compile(rb"\x00C([0-9A-Z]{5})\x00")


class _Message(NamedTuple):
    kind: str
    body: bytes
    whole: bool


def postgresql(request: Turn, answer: Turn) -> Named | None:
    """Return the request if it is one of PostgreSQL: the first keyword of its SQL."""
    if named := _first_of_connection(request, answer):
        return named
    asked, said = _messages(request, _FRONTEND), _messages(answer, _BACKEND)
    if not asked or not said:
        return None
    if any(message.kind == "Q" and message.whole and not message.body.endswith(b"\0") for message in asked):
        return None
    return Named(NAME, _operation(asked, said), _status(said))


def _first_of_connection(request: Turn, answer: Turn) -> Named | None:
    length, code = number(request.data, 0, 4), number(request.data, 4, 4)
    if length is None or code is None or length != request.len_bytes:
        return None
    if code in _ENCRYPTION and length == _ENCRYPTION_BYTES:
        status = answer.data.decode("latin-1") if answer.data in {b"S", b"N", b"G"} else None
        return Named(NAME, _ENCRYPTION[code], status)
    if code not in _STARTUPS or not re.match(rb"[a-z_]+\0", request.data[8:]):
        return None
    said = _messages(answer, _BACKEND)
    if answer.data and not said:
        return None
    return Named(NAME, _STARTUPS[code], _status(said or ()))


def _messages(turn: Turn, kinds: frozenset[int]) -> list[_Message] | None:
    """Return the messages that were recorded at least in part; None where the bytes are no messages of these kinds."""
    data, at = turn.data, 0
    found: list[_Message] = []
    most = _MOST_BYTES if turn.len_bytes is None else turn.len_bytes
    while at < len(data):
        length = number(data, at + 1, 4)
        if data[at] not in kinds:
            return None
        if length is None:
            return None if turn.is_whole else found
        end = at + 1 + length
        if length < _LENGTH_BYTES or end > most:
            return None
        found.append(_Message(chr(data[at]), data[at + _HEAD_BYTES : end], end <= len(data)))
        at = end
    return found


def _operation(asked: Sequence[_Message], said: Sequence[_Message]) -> str | None:
    for message in asked:
        if message.kind in "QP":
            text = message.body if message.kind == "Q" else message.body.partition(b"\0")[2]
            keyword = _KEYWORD.match(text)
            # The last word of what was recorded may go on.
            if keyword and (message.whole or keyword.end() < len(text)):
                return keyword[1].decode().upper()
            return "Query" if message.whole else None
    tags = (message.body for message in said if message.kind == "C" and message.whole)
    tag = re.match(rb"[A-Z]+", next(tags, b""))
    return tag[0].decode() if tag else _OTHERS[asked[0].kind]


def _status(said: Sequence[_Message]) -> str | None:
    """Return the code of the first error, or that the request succeeded, if that was recorded."""
    for message in said:
        if message.kind == "E":
            code = _SQLSTATE.search(message.body)
            return code[1].decode() if code else None
        if message.kind == "Z":
            return "OK"
    # A command of a simple query is complete before others of it fail.
    return None
