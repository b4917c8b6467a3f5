# SPDX-License-Identifier: Apache-2.0
"""Which time stamps each network interface can take, as its driver says (``ethtool -T``)."""

from __future__ import annotations

import errno
import os
import socket
import struct
from dataclasses import dataclass
from typing import Final

from hopscope.errors import KernelError, UsageError
from hopscope.kernel.ethtool import Ethtool
from hopscope.model.snapshot import HostFact
from hopscope.timestamping.flags import HwFilter, HwTx, Sof

# include/uapi/linux/ethtool.h
ETHTOOL_GET_TS_INFO: Final = 0x00000041
_TS_INFO: Final = struct.Struct("=IIiI12xI12x")

# The names, in the order of the bits
SOF_TIMESTAMPING: Final = tuple(f"SOF_TIMESTAMPING_{flag.name}" for flag in Sof)
HWTSTAMP_TX: Final = tuple(f"HWTSTAMP_TX_{kind.name}" for kind in HwTx)
HWTSTAMP_FILTER: Final = tuple(f"HWTSTAMP_FILTER_{kind.name}" for kind in HwFilter)


@dataclass(frozen=True, slots=True)
class TimestampInfo:
    """What an interface's driver says of time stamps (``struct ethtool_ts_info``).

    Attributes
    ----------
    interface
        Its name in the network namespace of the calling thread.
    capabilities
        Names of the ``SOF_TIMESTAMPING_*`` flags that work on it.
    phc_index
        N of its hardware clock ``/dev/ptpN``, None where it has none.
    rx_filters
        ``HWTSTAMP_FILTER_*``: the received packets that its hardware can stamp.
    tx_types
        ``HWTSTAMP_TX_*``: the ways in which its hardware can stamp sent packets.
    driver
        The driver's name, empty where the kernel gives none (as for ``lo``).

    A bit that is newer than this program is ``bit N``.
    """

    interface: str
    capabilities: list[str]
    phc_index: int | None
    rx_filters: list[str]
    tx_types: list[str]
    driver: str


def timestamp_info(interface: str) -> TimestampInfo:
    """Ask the kernel what time stamps an interface can take; needs no rights.

    Raises
    ------
    UsageError, KernelError
        As `timestamps`.
    """
    with Ethtool() as ethtool:
        return timestamps(interface, ethtool)


def timestamps(interface: str, ethtool: Ethtool) -> TimestampInfo:
    """As `timestamp_info`, for many interfaces by one socket.

    Raises
    ------
    UsageError
        The calling thread's network namespace has no such interface, or it is suspended.
    KernelError
        The kernel does not tell (EOPNOTSUPP), or refuses.
    """
    try:
        reply = ethtool.command(interface, ETHTOOL_GET_TS_INFO, _TS_INFO.size)
    except OSError as error:
        if error.errno == errno.ENODEV:
            raise UsageError(
                f"there is no interface {interface} in this network namespace, or it is suspended",
                "See `ip link` for the names",
            ) from error
        what = f"the kernel does not tell what time stamps {interface} can take: {error.strerror}"
        raise KernelError(what, f"See the output of `ethtool -T {interface}`") from error
    return _decode(interface, reply, _driver(interface, ethtool))


def nic_facts() -> list[HostFact]:
    """Return a fact for each interface of the calling thread's network namespace, in the kernel's order.

    It is `ok` if packets that arrive can be stamped at all: a hardware clock is a gift that a user cannot add.
    """
    try:
        names = [name for _, name in socket.if_nameindex()]
    except OSError as error:
        value = f"unknown: the interfaces cannot be listed: {error.strerror}"
        return [HostFact("nic", value, ok=False, next_step="Run hopscope where it may open sockets")]
    with Ethtool() as ethtool:
        facts = [_fact(name, ethtool) for name in names]
    return [fact for fact in facts if fact is not None]


def describe(info: TimestampInfo) -> str:
    """Return in words who can stamp what on an interface: software, its hardware, and by which clock."""
    software = _directions(info, "SOFTWARE")
    hardware = _directions(info, "HARDWARE")
    parts = [f"software {software}" if software else "no software stamps"]
    if hardware:
        parts.append(f"hardware {hardware}")
    if "SOF_TIMESTAMPING_RX_HARDWARE" in info.capabilities and "HWTSTAMP_FILTER_ALL" not in info.rx_filters:
        parts.append("hardware stamps only some kinds of received packets, such as PTP")
    parts.append("no hardware clock" if info.phc_index is None else f"hardware clock /dev/ptp{info.phc_index}")
    if info.driver:
        parts.append(f"driver {info.driver}")
    return "; ".join(parts)


def _directions(info: TimestampInfo, who: str) -> str:
    words = {"receive": f"SOF_TIMESTAMPING_RX_{who}", "transmit": f"SOF_TIMESTAMPING_TX_{who}"}
    return " and ".join(word for word, flag in words.items() if flag in info.capabilities)


def _fact(interface: str, ethtool: Ethtool) -> HostFact | None:
    # The kernel allows any bytes in a name but white space and slashes; a terminal does not.
    name = f"nic {os.fsencode(interface).decode(errors='backslashreplace')}"
    try:
        info = timestamps(interface, ethtool)
    except UsageError:
        return None  # it went away since it was listed
    except KernelError as error:
        return HostFact(name, f"unknown: {error.what}", ok=False, next_step=error.next_step)
    if "SOF_TIMESTAMPING_RX_SOFTWARE" in info.capabilities:
        return HostFact(name, describe(info), ok=True)
    return HostFact(name, describe(info), ok=False, next_step="Use a driver that stamps received packets")


def _decode(interface: str, reply: bytes, driver: str) -> TimestampInfo:
    _, capabilities, phc_index, tx_types, rx_filters = _TS_INFO.unpack(reply)
    return TimestampInfo(
        interface,
        capabilities=_names(capabilities, SOF_TIMESTAMPING),
        phc_index=None if phc_index < 0 else phc_index,
        rx_filters=_names(rx_filters, HWTSTAMP_FILTER),
        tx_types=_names(tx_types, HWTSTAMP_TX),
        driver=driver,
    )


def _names(bits: int, names: tuple[str, ...]) -> list[str]:
    set_bits = (bit for bit in range(bits.bit_length()) if bits >> bit & 1)
    return [names[bit] if bit < len(names) else f"bit {bit}" for bit in set_bits]


def _driver(interface: str, ethtool: Ethtool) -> str:
    try:
        return ethtool.driver(interface).driver
    except OSError:
        return ""
