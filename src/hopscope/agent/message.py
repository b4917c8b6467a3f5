# SPDX-License-Identifier: Apache-2.0
"""JSON objects between two hosts: bounded in length and depth, and nothing in them that JSON or UTF-8 does not know."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NoReturn

from hopscope.errors import FormatError
from hopscope.gate import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _typeshed import ReadableBuffer

MESSAGE_BYTES: Final = 1 << 20
DEPTH: Final = 32
_TEXT_CHARACTERS: Final = 2000


def encode(message: Mapping[str, Any], limit_bytes: int = MESSAGE_BYTES) -> bytes:
    """Return a message's bytes.

    Raises
    ------
    FormatError
        It has more bytes than `limit_bytes`.
    """
    raw = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    if len(raw) > limit_bytes:
        raise FormatError(f"A message of {len(raw):,} bytes is longer than {limit_bytes:,}")
    return raw


def decode(raw: ReadableBuffer) -> dict[str, Any]:
    """Return the message of these bytes.

    Raises
    ------
    FormatError
        They are not an object of JSON, are nested more than `DEPTH` deep, or hold text that is none.
    """
    octets = bytes(raw)
    try:
        message = json.loads(octets.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise FormatError("A message is not JSON") from error
    if not isinstance(message, dict):
        raise FormatError("A message is not an object of JSON")
    # Each level has a bracket, each half of a surrogate pair is escaped: most messages need no second look.
    if octets.count(b"[") + octets.count(b"{") > DEPTH and _is_deep(message):
        raise FormatError(f"A message is nested more than {DEPTH} deep")
    if b"\\ud" in octets.lower() and not _is_text(message):
        raise FormatError("A message holds half a character")
    return message


def printable(text: object, limit: int = _TEXT_CHARACTERS) -> str:
    """Return what may be shown of a text that another host sent."""
    shown = one_line(str(text)[: limit + 1])
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def _refuse(constant: str) -> NoReturn:
    msg = f"{constant} is no number"
    raise ValueError(msg)


def _is_deep(message: dict[str, Any]) -> bool:
    level: list[Any] = [message]
    for _ in range(DEPTH):
        level = [
            inner
            for value in level
            for inner in (value.values() if isinstance(value, dict) else value)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _is_text(message: dict[str, Any]) -> bool:
    try:
        json.dumps(message, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
