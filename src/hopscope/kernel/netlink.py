# SPDX-License-Identifier: Apache-2.0
"""Netlink, raw: asking the kernel, and taking apart what it answers.

Nothing here knows what the messages are about. Numbers are in the byte order of the machine, as netlink has them.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from hopscope.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

# include/uapi/linux/netlink.h
NETLINK_ROUTE: Final = 0
NETLINK_GENERIC: Final = 16
NLM_F_REQUEST: Final = 0x1
NLM_F_ACK: Final = 0x4
NLM_F_DUMP: Final = 0x300
NLM_F_DUMP_INTR: Final = 0x10
NLMSG_ERROR: Final = 2
NLMSG_DONE: Final = 3
HEADER: Final = struct.Struct("=IHHII")
_CODE: Final = struct.Struct("=i")
ATTRIBUTE: Final = struct.Struct("=HH")
_NLA_F_NESTED: Final = 0x8000
TYPE_MASK: Final = 0x3FFF  # without NLA_F_NESTED and NLA_F_NET_BYTEORDER
_ALIGNED: Final = 3
_WIDEST_BYTES: Final = 8

# include/uapi/linux/genetlink.h
_GENL: Final = struct.Struct("=BBxx")
_GENL_ID_CTRL: Final = 16
_CTRL_CMD_GETFAMILY: Final = 3
_CTRL_ATTR_FAMILY_ID: Final = 1
_CTRL_ATTR_FAMILY_NAME: Final = 2

# The kernel fills at most 32 KiB at a time, more only with a single message that needs it (an interface and its VFs).
_BUFFER_BYTES: Final = 1 << 18
# On a busy host something may come or go during each of them.
_ATTEMPTS: Final = 4


class Message(NamedTuple):
    """A netlink message: its `kind` (``nlmsg_type``), flags and sequence number, and what follows the header."""

    kind: int
    flags: int
    sequence: int
    body: bytes


@dataclass(slots=True)
class Listed:
    """What the kernel listed.

    Attributes
    ----------
    messages
        What came.
    failure
        Why more did not: the kernel's error in the middle, or EINTR where the list changed while it was made, so that
        something may be missing or be there twice.
    """

    messages: list[Message] = field(default_factory=list)
    failure: OSError | None = None

    def check(self) -> None:
        """Raise the failure, if there is one: to be called when what came is used up."""
        if self.failure is not None:
            raise self.failure


class Netlink:
    """A netlink socket of the network namespace in which the calling thread is.

    Parameters
    ----------
    protocol
        ``NETLINK_ROUTE``, ...

    Raises
    ------
    OSError
        The kernel has no such protocol, or lets us have no socket.
    """

    def __init__(self, protocol: int) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._buffer = bytearray(_BUFFER_BYTES)
        self._sequence = 0

    def __enter__(self) -> Self:
        """Return the socket."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self._socket.close()

    def dump(self, kind: int, body: bytes) -> Listed:
        """Return what the kernel lists; asked again, a few times, where that changed while it was listed.

        Raises
        ------
        OSError
            Nothing can be asked or received.
        FormatError
            What came cannot be taken apart.
        """
        for _ in range(_ATTEMPTS):
            listed = self._dump_once(kind, body)
            if listed.failure is None or listed.failure.errno != errno.EINTR:
                break
        return listed

    def ask(self, kind: int, body: bytes) -> Message | None:
        """Return the answer to one question; None where the kernel only says that it heard.

        Raises
        ------
        OSError
            The kernel refuses, or nothing can be asked.
        FormatError
            What came cannot be taken apart.
        """
        self._send(kind, NLM_F_REQUEST | NLM_F_ACK, body)
        answer = None
        while True:
            for message in self._receive():
                if message.kind == NLMSG_ERROR:
                    if (failure := _failure(message)) is not None:
                        raise failure
                    return answer
                answer = message

    def _dump_once(self, kind: int, body: bytes) -> Listed:
        self._send(kind, NLM_F_REQUEST | NLM_F_DUMP, body)
        listed = Listed()
        changed = False
        while True:
            for message in self._receive():
                changed |= bool(message.flags & NLM_F_DUMP_INTR)
                if message.kind in {NLMSG_DONE, NLMSG_ERROR}:
                    listed.failure = _failure(message)
                    if changed and listed.failure is None:
                        listed.failure = OSError(errno.EINTR, "it changed while the kernel listed it")
                    return listed
                listed.messages.append(message)

    def _send(self, kind: int, flags: int, body: bytes) -> None:
        self._sequence += 1
        header = HEADER.pack(HEADER.size + len(body), kind, flags, self._sequence, 0)
        self._socket.sendto(header + body, (0, 0))

    def _receive(self) -> list[Message]:
        """Return the messages of the next buffer that answer the last question."""
        # With MSG_TRUNC the kernel tells how long it was, however much of it there is room for.
        length, (sender, _) = self._socket.recvfrom_into(self._buffer, 0, socket.MSG_TRUNC)
        if length > len(self._buffer):
            raise FormatError(f"a netlink message of {length} bytes is longer than any that is known of")
        if sender:
            return []  # another process wrote to our socket
        data = bytes(memoryview(self._buffer)[:length])
        return [message for message in messages(data) if message.sequence == self._sequence]


class Generic(Netlink):
    """A socket to a family of generic netlink, such as ``ethtool``.

    Raises
    ------
    OSError
        ENOENT where the kernel has no such family.
    """

    def __init__(self, family: str) -> None:
        super().__init__(NETLINK_GENERIC)
        try:
            self._family = self._resolve(family)
        except BaseException as error:
            self._socket.close()
            if isinstance(error, OSError) and error.errno == errno.ENOENT:
                raise OSError(error.errno, error.strerror, f"netlink family {family}") from None
            raise

    def dump_command(self, command: int, body: bytes = b"") -> Listed:
        """As `dump`: `body` and the bodies of what comes are attributes."""
        listed = self.dump(self._family, _GENL.pack(command, 1) + body)
        listed.messages = [_without_genl(message) for message in listed.messages]
        return listed

    def ask_command(self, command: int, body: bytes = b"") -> Message | None:
        """As `ask`: `body` and the answer's body are attributes."""
        answer = self.ask(self._family, _GENL.pack(command, 1) + body)
        return None if answer is None else _without_genl(answer)

    def _resolve(self, family: str) -> int:
        name = attribute(_CTRL_ATTR_FAMILY_NAME, family.encode() + b"\0")
        answer = self.ask(_GENL_ID_CTRL, _GENL.pack(_CTRL_CMD_GETFAMILY, 1) + name)
        found = {} if answer is None else attributes(answer.body[_GENL.size :])
        if _CTRL_ATTR_FAMILY_ID not in found:
            raise FormatError(f"generic netlink does not say what number its family {family} has")
        return number(found[_CTRL_ATTR_FAMILY_ID])


def messages(data: bytes) -> Iterator[Message]:
    """Yield the messages of what one call received.

    Raises
    ------
    FormatError
        A message does not end where it says.
    """
    at, end = 0, len(data)
    while at < end:
        if end - at < HEADER.size:
            raise FormatError(f"{end - at} bytes are no netlink message")
        length, kind, flags, sequence, _ = HEADER.unpack_from(data, at)
        if not HEADER.size <= length <= end - at:
            raise FormatError(f"a netlink message of {length} bytes in {end - at} bytes")
        yield Message(kind, flags, sequence, data[at + HEADER.size : at + length])
        at += length + _ALIGNED & ~_ALIGNED


def each_attribute(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield type and value of each attribute, without the flags of the type.

    Raises
    ------
    FormatError
        An attribute does not end where it says.
    """
    at, end = 0, len(data)
    while at < end:
        if end - at < ATTRIBUTE.size:
            raise FormatError(f"{end - at} bytes are no netlink attribute")
        length, kind = ATTRIBUTE.unpack_from(data, at)
        if not ATTRIBUTE.size <= length <= end - at:
            raise FormatError(f"a netlink attribute of {length} bytes in {end - at} bytes")
        yield kind & TYPE_MASK, data[at + ATTRIBUTE.size : at + length]
        at += length + _ALIGNED & ~_ALIGNED


def attributes(data: bytes) -> dict[int, bytes]:
    """Return the attributes by type; of several of one type, the last.

    Raises
    ------
    FormatError
        As `each_attribute`.
    """
    return dict(each_attribute(data))


def attribute(kind: int, value: bytes) -> bytes:
    """Return an attribute as the kernel takes it."""
    length = ATTRIBUTE.size + len(value)
    return ATTRIBUTE.pack(length, kind) + value + bytes(-length & _ALIGNED)


def nested(kind: int, *inner: bytes) -> bytes:
    """Return an attribute of attributes as the kernel takes it."""
    return attribute(kind | _NLA_F_NESTED, b"".join(inner))


def number(value: bytes) -> int:
    """Return an unsigned integer of whatever width it was sent with; 0 of nothing.

    Raises
    ------
    FormatError
        No kernel sends integers so wide.
    """
    if len(value) > _WIDEST_BYTES:
        raise FormatError(f"a number of {len(value)} bytes")
    return int.from_bytes(value, sys.byteorder)


def printable(name: bytes) -> str:
    r"""Return a name as one word for people and programs; different names give different words.

    The kernel lets an interface be called almost anything: what is not printable becomes ``\x1b`` or ``\u2003``, and
    a backslash is doubled.
    """
    text = name.partition(b"\0")[0].replace(b"\\", b"\\\\").decode(errors="backslashreplace")
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(char: str) -> str:
    # Two digits are of a byte: those that are no UTF-8 look so as well.
    return char if char.isprintable() else f"\\x{ord(char):02x}" if char.isascii() else f"\\u{ord(char):04x}"


def _failure(message: Message) -> OSError | None:
    """Return what the code of an acknowledgement or of an end says, if it is an error."""
    if len(message.body) < _CODE.size:
        raise FormatError("netlink ends without saying whether that is an error")
    (code,) = _CODE.unpack_from(message.body)
    return OSError(-code, os.strerror(-code)) if code < 0 else None


def _without_genl(message: Message) -> Message:
    return message._replace(body=message.body[_GENL.size :])
