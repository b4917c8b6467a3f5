# SPDX-License-Identifier: Apache-2.0
"""What is known of packets that a firewall's rules drop."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hopscope.verbs.check.conditions import Figure, Hit, Judged, counted, rising
from hopscope.verbs.check.figures import Advice
from hopscope.verbs.check.findings import Entry
from hopscope.verbs.check.knowledge.refs import Ref, optional

if TYPE_CHECKING:
    from hopscope.verbs.check.scene import Place, Scene

_RULES: Final = Ref("nft", ("drop_rules",), subjects="", since="kernels with nftables")
_DROPS: Final = optional(Ref("nft", ("drops",)))
_AT_LEAST: Final = 10


def _places(scene: Scene) -> list[Place]:
    """Return the rules that count, and the namespaces, which are well if no rule of theirs drops."""
    return sorted({*scene.places(_RULES), *scene.places(_DROPS)})


def _dropped(scene: Scene, place: Place) -> Hit | None:
    by = scene.by(_DROPS, place)
    return Hit(tuple(counted(_DROPS, scene, place)), rising("by", by, scene)) if by >= _AT_LEAST else None


@dataclass(frozen=True, slots=True)
class _Chain(Advice):
    """Family, table and chain of a rule, as nft takes them."""

    def _figure(self, scene: Scene, place: Place) -> Figure | None:  # noqa: ARG002 # of all advice
        return Figure(shlex.join(place.subject.split(" ")[:3]), "text", "first")


@dataclass(frozen=True, slots=True)
class _Handle(Advice):
    """The handle of a rule; a policy has none."""

    def _figure(self, scene: Scene, place: Place) -> Figure | None:  # noqa: ARG002 # of all advice
        _, _, handle = place.subject.partition(" handle ")
        return Figure(handle, "text", "first") if handle else None


ENTRIES: Final = (
    Entry(
        "nft-drop",
        "notice",
        "ip",
        Judged((_RULES, _DROPS), _dropped, _places),
        "{by} packets were dropped by the nftables rule {where}",
        "A firewall drops what it is told to: whether that is intended, only its rules say. Rules without a counter "
        "drop packets that are counted nowhere.",
        (
            "nft -a list chain {chain}  # which packets does it match?",
            "hopscope drops -g reason -g flow  # NETFILTER_DROP: which flows?",
            "nft delete rule {chain} handle {handle}  # if it is not intended",
        ),
        "net/netfilter/nf_tables_core.c nft_do_chain; man 8 nft",
        "Firewalls drop scans all the time, so it is a notice, from 10; only rules whose counter counts exactly what "
        "they drop.",
        advice={"chain": _Chain(), "handle": _Handle()},
    ),
)
