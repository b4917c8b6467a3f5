# SPDX-License-Identifier: Apache-2.0
"""What drivers count, and say of themselves (``ethtool -S``, ``ethtool -i``, ``ethtool``, ``ethtool -T``)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeAlias

from hopscope.errors import HopscopeError
from hopscope.kernel.counters.ethtool_settings import LINK_MODES, LINK_STATE, settings_of
from hopscope.kernel.counters.link import interfaces
from hopscope.kernel.counters.sysfs import devices
from hopscope.kernel.ethtool import Ethtool, is_absent, of_interface
from hopscope.kernel.netlink import printable
from hopscope.kernel.nic import timestamps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hopscope.kernel.counters.text import Said

    Ask: TypeAlias = Callable[[Ethtool, bytes], Iterable[tuple[str, int | str]]]


def statistics() -> Iterator[Said]:
    """Yield the drivers' own counters."""
    return _of_each(Ethtool.statistics)


def drivers() -> Iterator[Said]:
    """Yield who drives each interface, its link, the time stamps it can take, its NUMA node and PCIe link."""
    failure: OSError | None = None
    for part in (_of_each(_driver, _timestamps), settings_of(LINK_MODES), settings_of(LINK_STATE), devices()):
        try:
            yield from part
        except OSError as error:  # the other parts are told all the same
            failure = error
    if failure is not None:
        raise failure


def _driver(ethtool: Ethtool, interface: bytes) -> Iterator[tuple[str, str]]:
    said = ethtool.driver(interface)._asdict().items()
    return ((name, value) for name, value in said if value)


def _timestamps(ethtool: Ethtool, interface: bytes) -> Iterator[tuple[str, int | str]]:
    try:
        info = timestamps(os.fsdecode(interface), ethtool)
    except HopscopeError:
        return  # older kernels do not tell of every driver
    for name, bits, prefix in (
        ("timestamps", info.capabilities, "SOF_TIMESTAMPING_"),
        ("tx_types", info.tx_types, "HWTSTAMP_TX_"),
        ("rx_filters", info.rx_filters, "HWTSTAMP_FILTER_"),
    ):
        if bits:
            yield name, ",".join(bit.removeprefix(prefix).lower() for bit in bits)
    if info.phc_index is not None:
        yield "phc_index", info.phc_index


def _of_each(*questions: Ask) -> Iterator[Said]:
    """Yield what each interface answers, and raise at the end what one of them could not."""
    failure: OSError | None = None
    with Ethtool() as ethtool:
        for _, name in interfaces():
            subject = printable(name)
            for ask in questions:
                try:
                    answer = list(ask(ethtool, name))
                except OSError as error:
                    if not is_absent(error):
                        failure = of_interface(error, subject)
                    continue
                yield from ((subject, what, value) for what, value in answer)
    if failure is not None:
        raise failure
