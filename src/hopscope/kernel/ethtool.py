# SPDX-License-Identifier: Apache-2.0
"""What interfaces tell by the ethtool ioctl: their driver and its own counters.

Settings come better by netlink, which lists all interfaces at once and leaves out what a driver does not have; for
these two there is only the ioctl.
"""

from __future__ import annotations

import array
import errno
import functools
import itertools
import struct
from typing import Final, NamedTuple

from hopscope.kernel.netlink import printable
from hopscope.timestamping.device import DeviceControl

# include/uapi/linux/sockios.h
SIOCETHTOOL: Final = 0x8946

# include/uapi/linux/ethtool.h
ETHTOOL_GDRVINFO: Final = 0x00000003
ETHTOOL_GSTRINGS: Final = 0x0000001B
ETHTOOL_GSTATS: Final = 0x0000001D
ETHTOOL_GSSET_INFO: Final = 0x00000037
ETH_SS_STATS: Final = 1
ETH_GSTRING_LEN: Final = 32
_DRVINFO: Final = struct.Struct("=I32s32s32s32s64x")
_SSET_INFO: Final = struct.Struct("=I4xQI")
_GSTRINGS: Final = struct.Struct("=III")
_GSTATS: Final = struct.Struct("=II")

# A driver's counters become more or fewer when somebody changes the number of its queues.
_ATTEMPTS: Final = 3
_SPARE: Final = 1024


class Driver(NamedTuple):
    """Who drives an interface (``ethtool -i``); what a driver does not say is empty."""

    driver: str
    version: str
    firmware_version: str
    bus_info: str


class Ethtool(DeviceControl):
    """The ethtool ioctl, for the interfaces of the network namespace in which the calling thread is.

    All methods raise OSError: EOPNOTSUPP where a driver does not tell, ENODEV where there is no such interface.
    """

    def __init__(self) -> None:
        super().__init__()
        self._buffer = array.array("B")

    def command(self, interface: str | bytes, command: int, size: int) -> bytes:
        """Return what the kernel makes of a struct of `size` bytes that begins with the command."""
        return self.ioctl(interface, SIOCETHTOOL, struct.pack("=I", command).ljust(size, b"\0"))

    def driver(self, interface: str | bytes) -> Driver:
        """Return who drives an interface."""
        _, *texts = _DRVINFO.unpack(self.command(interface, ETHTOOL_GDRVINFO, _DRVINFO.size))
        return Driver(*map(printable, texts))

    def statistics(self, interface: str | bytes) -> list[tuple[str, int]]:
        """Return a driver's own counters by its names for them, in its order (``ethtool -S``).

        Raises
        ------
        OSError
            Also EAGAIN: there were more or fewer of them each time.
        """
        for _ in range(_ATTEMPTS):
            count = self._count(interface)
            if count == 0:
                return []
            names = self._table(interface, _GSTRINGS, (ETHTOOL_GSTRINGS, ETH_SS_STATS, count), ETH_GSTRING_LEN)
            values = self._table(interface, _GSTATS, (ETHTOOL_GSTATS, count), 8)
            if names is not None and values is not None:
                named = zip(counter_names(names), struct.unpack(f"={count}Q", values), strict=True)
                return [(name, value) for name, value in named if name]
        raise OSError(errno.EAGAIN, "its counters become more or fewer while they are read")

    def _count(self, interface: str | bytes) -> int:
        request = _SSET_INFO.pack(ETHTOOL_GSSET_INFO, 1 << ETH_SS_STATS, 0)
        _, sets, count = _SSET_INFO.unpack(self.ioctl(interface, SIOCETHTOOL, request))
        return int(count) if sets else 0

    def _table(
        self, interface: str | bytes, head: struct.Struct, request: tuple[int, ...], entry_bytes: int
    ) -> bytes | None:
        """Return the entries behind a head that ends with their number, None if that is not the one asked for."""
        count = request[-1]
        # net/ethtool/ioctl.c writes as many as there are by then, which may be more than were asked for.
        room = head.size + (2 * count + _SPARE) * entry_bytes
        if len(self._buffer) < room:
            self._buffer = array.array("B", bytes(room))
        head.pack_into(self._buffer, 0, *request)
        self.hand_over(interface, SIOCETHTOOL, self._buffer)
        if head.unpack_from(self._buffer)[-1] != count:
            return None
        return self._buffer[head.size : head.size + count * entry_bytes].tobytes()


# Interfaces of one driver have the same names, and have them each time.
@functools.lru_cache(maxsize=256)
def counter_names(strings: bytes) -> tuple[str, ...]:
    """Return the names in a table of strings of fixed size, empty where a driver has none for a counter.

    Some drivers pad them, and some give one name twice: the second is ``rx_bytes #2``.
    """
    names: list[str] = []
    taken = {""}
    for at in range(0, len(strings), ETH_GSTRING_LEN):
        name = printable(strings[at : at + ETH_GSTRING_LEN]).strip()
        others = itertools.count(2)
        unique = name
        while name and unique in taken:
            unique = f"{name} #{next(others)}"
        taken.add(unique)
        names.append(unique)
    return tuple(names)


def is_absent(error: OSError) -> bool:
    """Tell whether an interface has no such setting, or is gone: nothing is wrong then."""
    return error.errno in {errno.EOPNOTSUPP, errno.ENODEV}


def of_interface(error: OSError, name: str) -> OSError:
    """Return an error that says which interface it is about."""
    return OSError(error.errno, error.strerror, name)
