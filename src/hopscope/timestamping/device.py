# SPDX-License-Identifier: Apache-2.0
"""Ioctls of network interfaces that take a buffer (``ifr_data`` of ``struct ifreq``), those for stamps among them."""

from __future__ import annotations

import array
import errno
import fcntl
import os
import socket
import struct
from typing import TYPE_CHECKING, Final, NamedTuple, Self

if TYPE_CHECKING:
    from types import TracebackType

# include/uapi/linux/if.h
IFNAMSIZ: Final = 16
IFREQ: Final = struct.Struct("16sP16x")
# include/uapi/linux/sockios.h, net_tstamp.h
SIOCSHWTSTAMP: Final = 0x89B0
SIOCGHWTSTAMP: Final = 0x89B1
HWTSTAMP_CONFIG: Final = struct.Struct("=iii")


class DeviceControl:
    """A socket for the ioctls of the interfaces of the network namespace in which the calling thread is."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the socket."""
        self._socket.close()

    def hand_over(self, interface: str | bytes, request: int, buffer: array.array[int]) -> None:
        """Let the kernel change a buffer for an interface.

        For some requests the kernel writes as much as it has, however long the buffer is: give it room.

        Raises
        ------
        OSError
            As from the ioctl; ENODEV as well for a name that is too long.
        """
        name = os.fsencode(interface)
        if len(name) >= IFNAMSIZ:
            # The kernel would cut it off and answer for another interface.
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), interface)
        fcntl.ioctl(self._socket, request, IFREQ.pack(name, buffer.buffer_info()[0]))

    def ioctl(self, interface: str | bytes, request: int, data: bytes) -> bytes:
        """Hand a buffer to an interface; return what the kernel made of it.

        Raises
        ------
        OSError
            As `hand_over`.
        """
        buffer = array.array("B", data)
        self.hand_over(interface, request, buffer)
        return buffer.tobytes()


def device_ioctl(interface: str | bytes, request: int, data: bytes) -> bytes:
    """As `DeviceControl.ioctl`, with a socket of its own.

    Raises
    ------
    OSError
        As there.
    """
    with DeviceControl() as control:
        return control.ioctl(interface, request, data)


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
