# SPDX-License-Identifier: Apache-2.0
"""TLS (RFC 8446): records, of which nothing but their type can be read."""

from __future__ import annotations

import re
from typing import Final

from hopscope.model.protocols.turn import Named, Turn, number

NAME: Final = "tls"
_RECORD: Final = re.compile(rb"[\x14-\x17]\x03[\x00-\x04]")
_HELLO: Final = re.compile(rb"\x16\x03[\x00-\x04]..\x01\x00", re.DOTALL)
_MOST_BYTES: Final = (1 << 14) + 2048


def tls(request: Turn, answer: Turn) -> Named | None:
    """Return the request if both ends sent records, or the client its hello."""
    if not _is_record(request.data) or (answer.data and not _is_record(answer.data)):
        return None
    return Named(NAME) if answer.data or _HELLO.match(request.data) else None


def _is_record(data: bytes) -> bool:
    length = number(data, 3, 2)
    return bool(_RECORD.match(data)) and length is not None and 0 < length <= _MOST_BYTES
