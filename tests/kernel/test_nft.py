# SPDX-License-Identifier: Apache-2.0
"""Rules that drop, as the kernel lists them."""

from __future__ import annotations

import pytest

from hopscope.kernel.nft import Hook, drop_rules, hooks_with_rules
from hopscope.lab import Namespace

pytestmark = pytest.mark.root

# Rule, and what its counter is known to have counted of drops: None where it has none, or counts other packets, too.
RULES = {
    "udp dport 7 counter drop": 0,
    "udp dport 7 counter log drop": 0,
    "udp dport { 7, 8 } counter reject": 0,
    "udp dport 7 drop": None,
    "counter udp dport 7 drop": None,
    "tcp dport vmap { 1 : drop, 2 : accept }": None,
}
OTHERS = ("udp dport 7 counter accept", "counter", "jump x")


def test_rules_that_drop_are_listed_and_their_counters_only_where_they_count_that() -> None:
    with Namespace() as namespace:
        assert namespace.call(drop_rules) == []
        script = "table inet f { chain x { }; chain i { type filter hook input priority 0; policy drop; }; }"
        namespace.run(["nft", script], check=True)
        for rule in (*RULES, *OTHERS):
            namespace.run(["nft", f"add rule inet f i {rule}"], check=True)
        policy, *found = namespace.call(drop_rules)
        listed = namespace.run(["nft", "-a", "list", "ruleset"], capture_output=True, text=True).stdout
    assert (str(policy), policy.packets) == ("inet f i policy", None)
    assert [rule.packets for rule in found] == list(RULES.values())
    assert {(rule.family, rule.table, rule.chain) for rule in found} == {("inet", "f", "i")}
    assert all(f"# handle {rule.handle}\n" in listed for rule in found)


def test_hooks_with_rules_are_those_of_base_chains_and_of_old_tables() -> None:
    with Namespace() as namespace:
        assert namespace.call(hooks_with_rules) == set()
        script = "table inet f { chain x { }; chain i { type filter hook input priority 0; }; }"
        script += "; table ip n { chain o { type nat hook postrouting priority 100; }; }"
        namespace.run(["nft", script], check=True)
        assert namespace.call(hooks_with_rules) == {Hook(2, 1), Hook(10, 1), Hook(2, 4)}
        namespace.run(["iptables-legacy", "-A", "OUTPUT", "-j", "ACCEPT"], check=True)
        assert namespace.call(hooks_with_rules) == {*(Hook(2, number) for number in range(5)), Hook(10, 1)}
