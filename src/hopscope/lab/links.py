# SPDX-License-Identifier: Apache-2.0
"""Interface flags and offloads through the old ioctls, which need no library and a few microseconds.

Each function works on the network namespace of the calling thread: use `Namespace.call`.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from typing import TYPE_CHECKING

from hopscope.errors import KernelError, UsageError
from hopscope.timestamping.device import device_ioctl

if TYPE_CHECKING:
    from collections.abc import Mapping

_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_SIOCETHTOOL = 0x8946
_IFF_UP = 0x1

_IFREQ_FLAGS = struct.Struct("16sh14x")

# ETHTOOL_SRXCSUM, STXCSUM, STSO, SGSO, SGRO
_OFFLOAD_COMMANDS = {"rx": 0x15, "tx": 0x17, "tso": 0x1F, "gso": 0x24, "gro": 0x2C}


def set_up(ifname: str) -> None:
    """Set an interface up.

    Raises
    ------
    OSError
        ENODEV, EPERM.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as control:
        answer = fcntl.ioctl(control, _SIOCGIFFLAGS, _IFREQ_FLAGS.pack(ifname.encode(), 0))
        _, flags = _IFREQ_FLAGS.unpack(answer)
        fcntl.ioctl(control, _SIOCSIFFLAGS, _IFREQ_FLAGS.pack(ifname.encode(), flags | _IFF_UP))


def set_offloads(ifname: str, offloads: Mapping[str, bool]) -> None:
    """Switch offloads of an interface, as ``ethtool -K`` does.

    Parameters
    ----------
    ifname
        The interface.
    offloads
        Any of ``rx``, ``tx`` (checksums), ``tso``, ``gso``, ``gro``.

    Raises
    ------
    UsageError
        An offload of another name.
    KernelError
        The driver refuses.
    """
    for name, wanted in offloads.items():
        if name not in _OFFLOAD_COMMANDS:
            msg = f"There is no offload {name!r} to switch"
            raise UsageError(msg, f"Choose from {', '.join(_OFFLOAD_COMMANDS)}.")
        try:
            device_ioctl(ifname, _SIOCETHTOOL, struct.pack("=II", _OFFLOAD_COMMANDS[name], wanted))
        except OSError as error:
            msg = f"{ifname} does not let {name} be switched {'on' if wanted else 'off'}: {error.strerror}"
            raise KernelError(msg, "Leave this offload as it is.") from error
