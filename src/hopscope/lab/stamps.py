# SPDX-License-Identifier: Apache-2.0
"""Time stamps that the sending application takes itself (SO_TIMESTAMPING), read from its socket's error queue."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket
from typing import Final

from hopscope.lab._libc import Mmsghdr, libc

# include/uapi/asm-generic/socket.h, include/uapi/linux/net_tstamp.h
_SO_TIMESTAMPING: Final = 37
_TX_SOFTWARE: Final = 1 << 1
_SOFTWARE: Final = 1 << 4
_OPT_ID: Final = 1 << 7
_TX_SCHED: Final = 1 << 8
_TX_ACK: Final = 1 << 9
_OPT_TSONLY: Final = 1 << 11
_FLAGS: Final = _TX_SCHED | _TX_SOFTWARE | _TX_ACK | _SOFTWARE | _OPT_ID | _OPT_TSONLY
_MSG_ERRQUEUE: Final = 0x2000
_MSG_DONTWAIT: Final = 0x40
# They count against the receive buffer, which must not fill up.
_READ_EVERY: Final = 16
_BATCH: Final = 64
_CONTROL_BYTES: Final = 256
_OF_EACH: Final = 3
_LAST_ONES_S: Final = 2.0


class Stamps:
    """Has every message of a TCP socket stamped: SCHED, SND and ACK, by number, without its payload.

    They are read many at a time and are not decoded, the least that an application can do with them.

    Parameters
    ----------
    sock
        Connected, with nothing unacknowledged.

    Raises
    ------
    OSError
        The kernel does not know the option.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._messages = 0
        self._stamps = 0
        self._control = ctypes.create_string_buffer(_BATCH * _CONTROL_BYTES)
        self._headers = (Mmsghdr * _BATCH)()
        for index, header in enumerate(self._headers):
            header.hdr.control = ctypes.addressof(self._control) + index * _CONTROL_BYTES
            header.hdr.controllen = _CONTROL_BYTES
        # The kernel writes into them what it used; one copy, for a loop here would be part of what is measured.
        self._unused = bytes(self._headers)
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, _FLAGS)

    def message(self) -> None:
        """Read what is there, after one message in a few."""
        self._messages += 1
        if self._messages % _READ_EVERY == 0:
            self._read()

    def finish(self) -> int:
        """Wait a moment for the last ones, if there are any more to come; return how many were read in all."""
        poll = select.poll()
        poll.register(self._sock, 0)  # POLLERR comes unasked
        self._read()
        while self._stamps < _OF_EACH * self._messages and poll.poll(_LAST_ONES_S * 1e3) and self._read():
            pass
        return self._stamps

    def _read(self) -> int:
        before = self._stamps
        read = _BATCH
        while read == _BATCH:
            read = self._batch()
            self._stamps += read
        return self._stamps - before

    def _batch(self) -> int:
        ctypes.memmove(self._headers, self._unused, len(self._unused))
        read = int(libc.recvmmsg(self._sock.fileno(), self._headers, _BATCH, _MSG_ERRQUEUE | _MSG_DONTWAIT, None))
        if read >= 0:
            return read
        number = ctypes.get_errno()
        if number == errno.EAGAIN:
            return 0
        raise OSError(number, os.strerror(number))
