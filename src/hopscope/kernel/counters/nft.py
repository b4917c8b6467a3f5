# SPDX-License-Identifier: Apache-2.0
"""How many packets the rules of nftables have dropped, of those rules that count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.kernel.nft import drop_rules, has_nftables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.kernel.counters.text import Said


def drops() -> Iterator[Said]:
    """Yield ``drops`` of each rule or policy of the calling thread's namespace that counts what it drops.

    The subject is ``inet filter input handle 5`` or ``inet filter input policy``. Subject "" has how many rules and
    policies drop, and how many of them do not count what they drop.

    Raises
    ------
    OSError, FormatError
        As :func:`hopscope.kernel.nft.drop_rules`.
    """
    if not has_nftables():
        return
    rules = drop_rules()
    yield "", "drop_rules", len(rules)
    yield "", "drop_rules_without_counter", sum(rule.packets is None for rule in rules)
    for rule in rules:
        if rule.packets is not None:
            yield str(rule), "drops", rule.packets
