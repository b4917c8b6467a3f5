# SPDX-License-Identifier: Apache-2.0
"""Numbers and layouts of the kernel that Python's `socket` does not know, and recvmmsg(2)."""

from __future__ import annotations

import ctypes
import errno as errnos
import os
import struct
from typing import Final

# include/uapi/asm-generic/socket.h, for x86 and arm64
SO_TIMESTAMPING_OLD: Final = 37
SO_PROTOCOL: Final = 38
SO_RXQ_OVFL: Final = 40
SCM_TIMESTAMPING_OPT_STATS: Final = 54
SO_MEMINFO: Final = 55
SCM_TIMESTAMPING_PKTINFO: Final = 58
SO_TIMESTAMPING_NEW: Final = 65
SCM_TS_OPT_ID: Final = 81

# include/uapi/linux/in.h, in6.h, if_packet.h, sockios.h
IP_PKTINFO: Final = 8
IP_RECVERR: Final = 11
IPV6_RECVERR: Final = 25
IPV6_PKTINFO: Final = 50
SOL_PACKET: Final = 263
PACKET_TX_TIMESTAMP: Final = 16
SIOCOUTQ: Final = 0x5411

# include/uapi/linux/errqueue.h
SO_EE_ORIGIN_TIMESTAMPING: Final = 4
SCM_TSTAMP_SND: Final = 0
SCM_TSTAMP_SCHED: Final = 1
SCM_TSTAMP_ACK: Final = 2
SCM_TSTAMP_COMPLETION: Final = 3

# struct so_timestamping; scm_timestamping64 (of _NEW) and scm_timestamping (of _OLD): sec and nsec of three stamps
SO_TIMESTAMPING: Final = struct.Struct("=ii")
SCM_TIMESTAMPING: Final = {SO_TIMESTAMPING_NEW: struct.Struct("=6q"), SO_TIMESTAMPING_OLD: struct.Struct("@6l")}
SCM_TS_PKTINFO: Final = struct.Struct("=II8x")
SOCK_EXTENDED_ERR: Final = struct.Struct("=IBBBBII")
IN_PKTINFO: Final = struct.Struct("=i4s4s")
IN6_PKTINFO: Final = struct.Struct("=16si")
# sk_get_meminfo: the first two of SK_MEMINFO_*, bytes charged for receiving and their limit
MEMINFO: Final = struct.Struct("=II")
CMSGHDR: Final = struct.Struct("@Nii")
U32: Final = struct.Struct("=I")

_BATCH: Final = 64
_CONTROL_BYTES: Final = 1024
_PAYLOAD_BYTES: Final = 256
_MSG_DONTWAIT: Final = 0x40
_MSG_ERRQUEUE: Final = 0x2000

_libc = ctypes.CDLL(None, use_errno=True)


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("len", ctypes.c_size_t))


class _Msghdr(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("namelen", ctypes.c_uint32),
        ("iov", ctypes.c_void_p),
        ("iovlen", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("controllen", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Mmsghdr(ctypes.Structure):
    _fields_ = (("hdr", _Msghdr), ("len", ctypes.c_uint32))


# What recvmmsg writes there: msg_controllen and msg_len
_MMSGHDR_SIZES: Final = struct.Struct("@40xN8xI4x")

ControlMessage = tuple[int, int, bytes]


class Batch:
    """Buffers to read many messages of an error queue with one call.

    Unlike `socket.recvmsg`, it never waits, whatever time-out the Python socket has, and takes less time a stamp.
    """

    def __init__(self) -> None:
        self._control = ctypes.create_string_buffer(_BATCH * _CONTROL_BYTES)
        self._payload = ctypes.create_string_buffer(_BATCH * _PAYLOAD_BYTES)
        self._iovecs = (_Iovec * _BATCH)()
        self._headers = (_Mmsghdr * _BATCH)()
        for index in range(_BATCH):
            self._iovecs[index].base = ctypes.addressof(self._payload) + index * _PAYLOAD_BYTES
            self._iovecs[index].len = _PAYLOAD_BYTES
            header = self._headers[index].hdr
            header.iov = ctypes.addressof(self._iovecs) + index * ctypes.sizeof(_Iovec)
            header.iovlen = 1
            header.control = ctypes.addressof(self._control) + index * _CONTROL_BYTES
            header.controllen = _CONTROL_BYTES
        self._fresh = bytes(self._headers)

    def read(self, fd: int) -> list[tuple[list[ControlMessage], bytes]]:
        """Take what a socket's error queue holds, at most a batch.

        Returns
        -------
        list
            Control messages and the first bytes of the payload, for each; empty where the queue is.

        Raises
        ------
        OSError
            The descriptor is closed or no socket.
        """
        ctypes.memmove(self._headers, self._fresh, len(self._fresh))
        flags = _MSG_ERRQUEUE | _MSG_DONTWAIT
        while (count := _libc.recvmmsg(fd, self._headers, _BATCH, flags, None)) < 0:
            error = ctypes.get_errno()
            if error == errnos.EAGAIN:
                return []
            if error != errnos.EINTR:
                raise OSError(error, os.strerror(error))
        controls, payloads = self._control.raw, self._payload.raw
        sizes = _MMSGHDR_SIZES.iter_unpack(memoryview(self._headers)[:count])
        return [
            (_split(controls, index * _CONTROL_BYTES, control_bytes), payloads[at : at + payload_bytes])
            for index, (control_bytes, payload_bytes) in enumerate(sizes)
            for at in (index * _PAYLOAD_BYTES,)
        ]


def _split(controls: bytes, at: int, size_bytes: int) -> list[ControlMessage]:
    found = []
    end = at + size_bytes
    while at < end:
        length, level, kind = CMSGHDR.unpack_from(controls, at)
        found.append((level, kind, controls[at + CMSGHDR.size : at + length]))
        at += -(-length // 8) * 8  # CMSG_ALIGN on 64 bits
    return found
