# SPDX-License-Identifier: Apache-2.0
"""Switch the stamping of a NIC on, for all sockets of the host, and put back what was there before."""

from __future__ import annotations

import contextlib
import errno as errnos
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hopscope.errors import HopscopeError, KernelError, PrivilegeError, UsageError
from hopscope.timestamping.device import StampConfig, set_stamp_config, stamp_config
from hopscope.timestamping.flags import HwFilter, HwTx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True)
class HardwareConfig:
    """How a NIC stamps (``struct hwtstamp_config``).

    Attributes
    ----------
    tx
        `HwTx`: what it does with sent packets.
    rx
        `HwFilter`: which received packets it stamps.
    flags
        ``HWTSTAMP_FLAG_*``, for bonds.

    A value that is newer than this program is a plain number.
    """

    tx: int
    rx: int
    flags: int = 0


def hardware_config(interface: str) -> HardwareConfig:
    """Ask how a NIC stamps now; needs no rights.

    Raises
    ------
    UsageError
        There is no such interface in the network namespace of the calling thread.
    KernelError
        It cannot stamp, or its driver does not tell.
    """
    return _config(interface, stamp_config)


@contextlib.contextmanager
def hardware_stamping(interface: str, *, tx: HwTx = HwTx.ON, rx: HwFilter = HwFilter.ALL) -> Iterator[HardwareConfig]:
    """Have a NIC stamp while the context lasts; afterwards it stamps as it did before.

    Needs CAP_NET_ADMIN. It is for the whole host: a running PTP daemon finds its settings changed. After SIGKILL
    nothing is put back.

    Parameters
    ----------
    interface
        In the network namespace of the calling thread.
    tx, rx
        What to stamp; a driver may stamp more received packets than that.

    Yields
    ------
    HardwareConfig
        What the driver granted.

    Raises
    ------
    PrivilegeError
        CAP_NET_ADMIN is missing.
    UsageError
        There is no such interface, or its NIC cannot stamp these packets.
    KernelError
        The NIC cannot stamp, or its driver does not tell how it does now, so that it could not be put back.
    """
    before = hardware_config(interface)
    granted = _switched(interface, HardwareConfig(tx, rx, before.flags))
    try:
        yield granted
    finally:
        _switched(interface, before)


def _switched(interface: str, config: HardwareConfig) -> HardwareConfig:
    wanted = StampConfig(config.flags, config.tx, config.rx)
    return _config(interface, lambda name: set_stamp_config(name, wanted))


def _config(interface: str, ask: Callable[[str], StampConfig]) -> HardwareConfig:
    try:
        flags, tx, rx = ask(interface)
    except OSError as error:
        raise _refusal(interface, error) from error
    return HardwareConfig(HwTx(tx) if tx in set(HwTx) else tx, HwFilter(rx) if rx in set(HwFilter) else rx, flags)


def _refusal(interface: str, error: OSError) -> HopscopeError:
    if error.errno == errnos.ENODEV:
        return UsageError(f"There is no interface {interface} in this network namespace", "See `ip link`")
    if error.errno == errnos.EPERM:
        what = f"The stamping of {interface} cannot be changed without CAP_NET_ADMIN"
        return PrivilegeError(what, "Run it as root, or have an administrator switch it on")
    if error.errno == errnos.ERANGE:
        return UsageError(f"{interface} cannot stamp these packets", f"See `ethtool -T {interface}`")
    if error.errno in {errnos.EOPNOTSUPP, errnos.EINVAL, errnos.ENOTTY}:
        return KernelError(f"{interface} has no hardware stamps that can be switched", "Use software stamps")
    return KernelError(f"The stamping of {interface} cannot be switched: {error.strerror}", "See dmesg")
