# SPDX-License-Identifier: Apache-2.0
"""Which rules of nftables dropped packets, judged by their counters: named only where no other one can have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.errors import FormatError
from hopscope.kernel import netns
from hopscope.kernel.nft import drop_rules
from hopscope.term.format import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from hopscope.kernel.nft import DropRule

    # Rules and what they have counted, by namespace; None where they cannot be read.
    Rules = dict[int, list[DropRule] | None]

# More are not listed.
_LISTED: Final = 4


class RuleNames:
    """Says of intervals, and of the time since it was made, which rules dropped packets."""

    def __init__(self) -> None:
        self._first = _read()
        self._before = dict(self._first)
        self._next: Rules = {}

    def before_records(self) -> None:
        """Be called before the records of an interval are taken: what is counted later is of the next one."""
        self._next = _read(self._next)

    def interval(self, dropped: Mapping[int, int], name: Callable[[int], str]) -> list[str]:
        """Return a sentence for each namespace in which rules dropped packets, after their records were taken.

        Parameters
        ----------
        dropped
            Packets that rules dropped in the interval, by the inode of the namespace.
        name
            Returns the name of a namespace.
        """
        said = _sentences(self._before, dropped, name)
        self._before |= self._next
        # Where no rule has dropped anything yet, the first reading is the one to compare with.
        self._next |= dict.fromkeys(dropped)
        return said

    def total(self, dropped: Mapping[int, int], name: Callable[[int], str]) -> list[str]:
        """Return the same of the time since this was made."""
        return _sentences(self._first, dropped, name)


def _sentences(before: Rules, dropped: Mapping[int, int], name: Callable[[int], str]) -> list[str]:
    now = _read(dropped)
    return [
        f"{plural(count, 'packet')} in namespace {name(inode)} dropped by "
        f"{by_which(before.get(inode, []), now.get(inode), count)}"
        for inode, count in dropped.items()
    ]


def _read(namespaces: Collection[int] | None = None) -> Rules:
    """Return the rules that drop in these namespaces; in all that there are, if None is given."""
    if namespaces is not None and not namespaces:
        return {}
    rules: Rules = {}
    for inode, each in netns.namespaces().items():
        if namespaces is None or inode in namespaces:
            try:
                rules[inode] = netns.inside(each, drop_rules)
            except (OSError, FormatError):
                rules[inode] = None
    return rules


def by_which(before: list[DropRule] | None, now: list[DropRule] | None, count: int) -> str:
    """Return which rules may have dropped so many packets between two readings of them.

    These are those whose counters counted, and those that do not count. One that was made or deleted in between is
    among them unless its counter says that it dropped nothing.
    """
    if before is None or now is None:
        return "an nftables rule; the rules cannot be read"
    counted = {rule._replace(packets=None): rule.packets or 0 for rule in before}
    moved = {rule._replace(packets=None): (rule.packets or 0) for rule in now}
    gone = [rule for rule in counted if rule not in moved]
    silent = [rule._replace(packets=None) for rule in now if rule.packets is None]
    moved = {rule: packets - counted.get(rule, 0) for rule, packets in moved.items()}
    candidates = [rule for rule in moved if rule in silent or moved[rule]] + gone
    if not candidates or (sum(moved.values()) < count and not silent and not gone):
        return "an nftables rule that could not be determined"
    if len(candidates) == 1:
        return f"the nftables rule {candidates[0]}"
    more = f" and {len(candidates) - _LISTED} more" if len(candidates) > _LISTED else ""
    return f"one or more of the nftables rules {', '.join(map(str, candidates[:_LISTED]))}{more}"
