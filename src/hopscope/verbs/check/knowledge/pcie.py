# SPDX-License-Identifier: Apache-2.0
"""What is known of the link of PCI Express between a network card and its host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.verbs.check.conditions import Figure, Hit, Judged, standing
from hopscope.verbs.check.findings import Entry
from hopscope.verbs.check.knowledge.refs import Ref

if TYPE_CHECKING:
    from hopscope.verbs.check.scene import Place, Scene

_PORT: Final = Ref("driver", ("speed_mbps",))
_PCIE: Final = tuple(
    Ref("driver", (name,), since="NICs on PCI Express")
    for name in ("pcie_mt_per_s", "pcie_max_mt_per_s", "pcie_lanes", "pcie_max_lanes")
)
# From the third generation on 130 bits carry 128, from the sixth on all do.
_PCIE_3: Final = 8000
_PCIE_6: Final = 64_000


def _gbit_per_s(mt_per_s: int, lanes: int) -> float:
    """Return what a link of PCI Express carries, without what its encoding takes (PCIE_SPEED2MBS_ENC)."""
    part = 8 / 10 if mt_per_s < _PCIE_3 else 128 / 130 if mt_per_s < _PCIE_6 else 1.0
    return mt_per_s * lanes * part / 1000


def _link(mt_per_s: int, lanes: int) -> Figure:
    speed = f"{mt_per_s / 1000:g} GT/s on {lanes} lane{'' if lanes == 1 else 's'}"
    return Figure(f"{speed} ({_gbit_per_s(mt_per_s, lanes):.0f} Gbit/s)", "text", "first")


def _pcie_below(scene: Scene, place: Place) -> Hit | None:
    speed, most, lanes, most_lanes = (scene.value(ref, place) or 0 for ref in _PCIE)
    if speed >= most and lanes >= most_lanes:
        return None
    rows = [row for ref in _PCIE for row in standing(ref, scene, place)]
    return Hit(tuple(rows), {"link": _link(speed, lanes), "most": _link(most, most_lanes)})


def _pcie_below_port(scene: Scene, place: Place) -> Hit | None:
    speed, _, lanes, _ = (scene.value(ref, place) or 0 for ref in _PCIE)
    port = scene.value(_PORT, place) or 0
    if port <= 0 or _gbit_per_s(speed, lanes) * 1000 >= port:
        return None
    rows = [row for ref in (_PCIE[0], _PCIE[2], _PORT) for row in standing(ref, scene, place)]
    return Hit(tuple(rows), {"link": _link(speed, lanes), "port": Figure(f"{port / 1000:g} Gbit/s", "text", "first")})


ENTRIES: Final = (
    Entry(
        "nic-pcie-link",
        "notice",
        "nic",
        Judged(_PCIE, _pcie_below),
        "The PCIe link of {where} runs at {link}; the NIC can do {most}",
        "The slot has fewer lanes or is older than the NIC, the NIC is not seated properly, or the link has fallen "
        "back after errors.",
        ("dmesg | grep -i 'available PCIe bandwidth'  # which bridge limits it?", "lspci -vv  # LnkCap and LnkSta"),
        "drivers/pci/pci-sysfs.c current_link_speed, max_link_speed; drivers/pci/pci.c __pcie_print_link_status",
        "Any difference: it may be meant, where the slot suffices for the NIC's port.",
    ),
    Entry(
        "nic-pcie-slow",
        "warning",
        "nic",
        Judged((*_PCIE, _PORT), _pcie_below_port),
        "The PCIe link of {where} carries less than its port: {link} for {port}",
        "The NIC cannot hand over packets as fast as they arrive; it pauses the sender or loses them.",
        ("lspci -vv  # LnkCap and LnkSta", " # another slot: with more lanes, or of a newer generation"),
        "drivers/pci/pci.h PCIE_SPEED2MBS_ENC; Documentation/networking/ethtool-netlink.rst LINKMODES_GET",
        "The link's raw bandwidth, from which packet headers on PCIe take a further 5 to 20%: less than the port's "
        "speed never suffices.",
    ),
)
