# SPDX-License-Identifier: Apache-2.0
"""Names that somebody chose, in what a check says and in the commands that it proposes."""

from __future__ import annotations

import shlex

import pytest

from hopscope.model.counters.readings import Key, Readings
from hopscope.verbs.check.conditions import Rises
from hopscope.verbs.check.findings import Entry, evaluate
from hopscope.verbs.check.scene import Ref

NETNS = 4026532001
# Each a name that the kernel lets an interface have (dev_valid_name), or a file in /run/netns.
NAMES = ["$(reboot)", "a;b", "{by}", "a'b", "`id`", "a|b&", "*", "[x]", "%s", "\\1", "eth0.100"]
ENTRY = Entry(
    "made-up",
    "warning",
    "device",
    Rises(Ref("link", ("rx_dropped",))),
    "{by} packets were lost at {where}",
    "",
    ("ip link show dev {device}  # which?",),
    "",
    "",
)


@pytest.mark.parametrize("name", NAMES)
def test_names_are_words_of_a_command(name: str) -> None:
    key = Key(NETNS, "link", name, "rx_dropped")
    before, now = (Readings(at, at, {key: count}, namespaces={NETNS: name}) for at, count in ((0, 3), (10**9, 10)))
    (finding,) = evaluate(before, now, [ENTRY]).findings
    assert finding.sentence == f"7 packets were lost at {name}"
    (fix,) = finding.fixes
    command, _, note = fix.partition("  # ")
    assert shlex.split(command) == ["ip", "netns", "exec", name, "ip", "link", "show", "dev", name]
    assert note == "which?"
