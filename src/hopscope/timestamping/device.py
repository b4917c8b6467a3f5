# SPDX-License-Identifier: Apache-2.0
"""Ioctls of network interfaces that take a buffer (``ifr_data`` of ``struct ifreq``)."""

from __future__ import annotations

import array
import errno
import fcntl
import os
import socket
import struct
from typing import Final

# include/uapi/linux/if.h
IFNAMSIZ: Final = 16
IFREQ: Final = struct.Struct("16sP16x")


def device_ioctl(interface: str, request: int, data: bytes) -> bytes:
    """Hand a buffer to an interface of the calling thread's network namespace; return what the kernel made of it.

    Raises
    ------
    OSError
        As from the ioctl; ENODEV as well for a name that is too long.
    """
    name = os.fsencode(interface)
    if len(name) >= IFNAMSIZ:
        # The kernel would cut it off and answer for another interface.
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), interface)
    buffer = array.array("B", data)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as control:
        fcntl.ioctl(control, request, IFREQ.pack(name, buffer.buffer_info()[0]))
    return buffer.tobytes()
