# SPDX-License-Identifier: Apache-2.0
"""Ask the kernel for the sockets of a network namespace (NETLINK_SOCK_DIAG), as arrays.

TCP of both families comes in one walk of the kernel's table, which is the larger part of the cost where there are few
sockets: the request that does so is the oldest one (TCPDIAG_GETSOCK), and the others are by family.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from hopscope.errors import FormatError
from hopscope.kernel.netlink import HEADER, NLM_F_DUMP, NLM_F_REQUEST, attribute
from hopscope.kernel.sockets.decode import Decoded, decode
from hopscope.kernel.sockets.table import TCP

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from numpy.typing import NDArray

    Decoder = Callable[[NDArray[np.uint8], NDArray[np.int64], int], Decoded]

_NETLINK_SOCK_DIAG: Final = 4
_TCPDIAG_GETSOCK: Final = 18
_SOCK_DIAG_BY_FAMILY: Final = 20
_REQ_BYTECODE: Final = 1
_UNKNOWN_IDENTITY: Final = bytes(48)  # struct inet_diag_sockid: any
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
# The kernel has no such protocol, or no module that tells of its sockets.
_NOT_THERE: Final = {errno.ENOENT, errno.EINVAL, errno.EOPNOTSUPP, errno.EPROTONOSUPPORT}

# Bits of idiag_ext: INFO, VEGASINFO (which stands for whatever the congestion control tells), CONG, TOS, TCLASS (which
# stands for the class id as well), SKMEMINFO, SHUTDOWN. MEMINFO is a part of SKMEMINFO.
EXTENSIONS: Final = 0xFE
SKMEMINFO: Final = 1 << 6
# struct inet_diag_bc_op: INET_DIAG_BC_AUTO, then the end for yes and beyond it for no.
AUTOBOUND: Final = struct.pack("=BBH", 6, 4, 8)
ALL_STATES: Final = 0xFFFF_FFFF

_WAIT: Final = int(socket.MSG_TRUNC)
_IF_THERE: Final = int(socket.MSG_TRUNC | socket.MSG_DONTWAIT)
# One datagram has 32 KiB at most, unless a single message is larger.
_LEAST_ROOM: Final = 1 << 16
# Datagrams that are decoded together.
_CHUNK_BYTES: Final = 1 << 23


class Request(NamedTuple):
    """What is asked for.

    Attributes
    ----------
    protocol
        A key of :data:`hopscope.kernel.sockets.table.PROTOCOLS`.
    states
        Bits ``1 << state``.
    extensions
        Bits of ``idiag_ext``.
    bytecode
        A filter that the kernel runs (``INET_DIAG_BC_*``).
    """

    protocol: int
    states: int = ALL_STATES
    extensions: int = EXTENSIONS
    bytecode: bytes = b""


class SockDiag:
    """A netlink socket of the network namespace that the calling thread is in; it may be used from other threads.

    The namespace lives on as long as this is open.

    Raises
    ------
    OSError
        The kernel has no NETLINK_SOCK_DIAG.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG)
        self._sequence = 0

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def dump(self, requests: Sequence[Request], arena: Arena | None = None) -> Iterator[Decoded]:
        """Yield the sockets of all requests, part by part; a protocol that the kernel does not have has none.

        Raises
        ------
        OSError
            The kernel refuses.
        FormatError
            The answer cannot be decoded.
        """
        arena = arena or Arena()
        for request in requests:
            yield from self._answers(request, arena)

    def _answers(self, request: Request, arena: Arena) -> Iterator[Decoded]:
        if request.protocol == TCP:
            body = struct.pack("=4B48sII", 0, 0, 0, request.extensions, _UNKNOWN_IDENTITY, request.states, 0)
            if (yield from self._answer(request, _TCPDIAG_GETSOCK, body, arena)):
                return
        for family in _FAMILIES:
            body = struct.pack(
                "=4BI48s", family, request.protocol, request.extensions, 0, request.states, _UNKNOWN_IDENTITY
            )
            yield from self._answer(request, _SOCK_DIAG_BY_FAMILY, body, arena)

    def _answer(self, request: Request, kind: int, body: bytes, arena: Arena) -> Generator[Decoded, None, bool]:
        """Yield what comes; return whether the kernel knows what was asked for."""
        if request.bytecode:
            body += attribute(_REQ_BYTECODE, request.bytecode)
        self._sequence += 1
        flags = NLM_F_REQUEST | NLM_F_DUMP
        self._socket.send(HEADER.pack(HEADER.size + len(body), kind, flags, self._sequence, 0) + body)
        code, ended, empty = 0, False, True
        while not ended:
            part = arena.receive(self._socket, self._sequence)
            code, ended = part.error, part.ended
            if len(part.rows) or part.interrupted:
                part.rows["protocol"] = request.protocol
                empty = False
                yield part
        if code in _NOT_THERE and empty:
            return False
        if code:
            raise OSError(code, os.strerror(code))
        return True


class Arena:
    """Memory for what comes, used again and again.

    Parameters
    ----------
    decoder
        What makes sockets of it, as :func:`hopscope.kernel.sockets.decode.decode` does.
    """

    def __init__(self, size: int = _CHUNK_BYTES, decoder: Decoder = decode) -> None:
        self._decode = decoder
        self._bytes = np.zeros(size, np.uint8)
        self._view = self._bytes.data

    def receive(self, netlink: socket.socket, sequence: int) -> Decoded:
        """Receive until it is full or the answer ends, and decode that.

        Raises
        ------
        OSError, FormatError
            As :meth:`SockDiag.dump`.
        """
        filled, ends = 0, list[int]()
        while len(self._view) - filled >= _LEAST_ROOM:
            # The kernel makes the next datagram while it hands out one: only the first has to be waited for.
            try:
                length = netlink.recv_into(self._view[filled:], 0, _IF_THERE if ends else _WAIT)
            except BlockingIOError:
                break
            if length > len(self._view) - filled:
                raise FormatError(f"A netlink datagram has {length:,} bytes, more than there is room for")
            ends.append(filled + length)
            filled += length + 3 & ~3
        return self._decode(self._bytes[:filled], np.array(ends, np.int64), sequence)
