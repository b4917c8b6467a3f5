# SPDX-License-Identifier: Apache-2.0
"""Ioctls of network interfaces that take a buffer (``ifr_data`` of ``struct ifreq``), those for stamps among them."""

from __future__ import annotations

import array
import errno
import fcntl
import os
import socket
import struct
from typing import Final, NamedTuple

# include/uapi/linux/if.h
IFNAMSIZ: Final = 16
IFREQ: Final = struct.Struct("16sP16x")
# include/uapi/linux/sockios.h, net_tstamp.h
SIOCSHWTSTAMP: Final = 0x89B0
SIOCGHWTSTAMP: Final = 0x89B1
HWTSTAMP_CONFIG: Final = struct.Struct("=iii")


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


class StampConfig(NamedTuple):
    """What an interface's hardware stamps now (``struct hwtstamp_config``): `rx_filter` is a ``HWTSTAMP_FILTER_*``."""

    flags: int
    tx_type: int
    rx_filter: int


def stamp_config(interface: str) -> StampConfig:
    """Return what an interface's hardware stamps at present.

    Raises
    ------
    OSError
        There is no such interface, or its driver does not tell (EOPNOTSUPP).
    """
    return StampConfig._make(
        HWTSTAMP_CONFIG.unpack(device_ioctl(interface, SIOCGHWTSTAMP, bytes(HWTSTAMP_CONFIG.size)))
    )


def set_stamp_config(interface: str, config: StampConfig) -> StampConfig:
    """Make an interface's hardware stamp so, and return what the driver made of it.

    Raises
    ------
    OSError
        As `stamp_config`; or the driver cannot (ERANGE), or a right is missing.
    """
    return StampConfig._make(
        HWTSTAMP_CONFIG.unpack(device_ioctl(interface, SIOCSHWTSTAMP, HWTSTAMP_CONFIG.pack(*config)))
    )
