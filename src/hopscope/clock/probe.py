# SPDX-License-Identifier: Apache-2.0
"""A probe packet, and who may pass: bytes in, a verdict out. No socket in here.

Each side numbers what it sends. A packet carries the session's token, its sender's role, its number and a keyed hash
(BLAKE2s, RFC 7693) over all that, so that nobody between the hosts can make one up or change one: who delays it makes
the bound larger, and that is all.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from collections import Counter, deque
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple, Self

from hopscope.errors import UsageError

_HEADER: Final = struct.Struct("!4sBBBx8sI")  # magic, version, kind, role, token, number
_MAC_BYTES: Final = 16
_MAGIC: Final = b"hsck"
_VERSION: Final = 1
SIZE_BYTES: Final = _HEADER.size + _MAC_BYTES
TOKEN_BYTES: Final = 8
KEY_BYTES: Final = 32
LAST_NUMBER: Final = 2**32 - 1
_REMEMBERED: Final = 1024


class Kind(IntEnum):
    """What a packet is for. Both are stamped alike."""

    PROBE = 1
    REPLY = 2


class Refusal(StrEnum):
    """Why a packet was not taken."""

    SIZE = "size"  # no packet of ours has it
    FOREIGN = "foreign"  # another sender, program, version or session
    GARBLED = "garbled"  # the hash does not fit
    REFLECTED = "reflected"  # our own came back
    DUPLICATE = "duplicate"  # it was here before
    REORDERED = "reordered"  # a later one was here before
    REPLAYED = "replayed"  # older than what is remembered
    UNSTAMPED = "unstamped"  # the kernel put no stamp on it
    OVER_RATE = "over_rate"  # more than a pair may exchange


@dataclass(frozen=True, slots=True)
class Session:
    """What two sides agree on beforehand, over a channel that is safe.

    Attributes
    ----------
    token
        In every packet, in the clear.
    key
        Never in a packet.

    Raises
    ------
    UsageError
        One has another length.
    """

    token: bytes
    key: bytes

    def __post_init__(self) -> None:
        if len(self.token) != TOKEN_BYTES or len(self.key) != KEY_BYTES:
            raise UsageError(f"A session has a token of {TOKEN_BYTES} bytes and a key of {KEY_BYTES}")

    @classmethod
    def new(cls) -> Self:
        """Return one that nobody can guess."""
        return cls(secrets.token_bytes(TOKEN_BYTES), secrets.token_bytes(KEY_BYTES))


class Accepted(NamedTuple):
    """A packet of the other side."""

    kind: Kind
    number: int


def packet(session: Session, role: int, kind: Kind, number: int) -> bytes:
    """Return the bytes of a packet."""
    header = _HEADER.pack(_MAGIC, _VERSION, kind, role, session.token, number)
    return header + _mac(session, header)


class Gate:
    """Lets each packet of the other side pass once, in order.

    Parameters
    ----------
    session
        Whose packets.
    role
        Ours, 0 or 1.

    Attributes
    ----------
    refused
        How many did not pass, by reason.
    """

    def __init__(self, session: Session, role: int) -> None:
        self._session = session
        self._role = role
        self._last = -1
        self._seen: deque[int] = deque(maxlen=_REMEMBERED)
        self.refused: Counter[Refusal] = Counter()

    def admit(self, data: bytes) -> Accepted | None:
        """Return what a packet says, or None if it is refused, which is counted."""
        verdict = self._verdict(data)
        if isinstance(verdict, Refusal):
            self.refused[verdict] += 1
            return None
        self._last = verdict.number
        self._seen.append(verdict.number)
        return verdict

    def _verdict(self, data: bytes) -> Accepted | Refusal:
        if len(data) != SIZE_BYTES:
            return Refusal.SIZE
        header, mac = data[: _HEADER.size], data[_HEADER.size :]
        magic, version, kind, role, token, number = _HEADER.unpack(header)
        if (magic, version, token) != (_MAGIC, _VERSION, self._session.token):
            return Refusal.FOREIGN
        if not hmac.compare_digest(mac, _mac(self._session, header)):
            return Refusal.GARBLED
        if role == self._role:
            return Refusal.REFLECTED
        if number <= self._last:
            return self._stale(number)
        return Accepted(Kind(kind), number)

    def _stale(self, number: int) -> Refusal:
        if number in self._seen:
            return Refusal.DUPLICATE
        return Refusal.REORDERED if number > self._seen[0] else Refusal.REPLAYED


def _mac(session: Session, header: bytes) -> bytes:
    return hashlib.blake2s(header, key=session.key, digest_size=_MAC_BYTES).digest()
