# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from bench import agent
from bench.agent import Taken, run, transfers_table


def test_the_table_compares_with_ssh_alone() -> None:
    taken = [{"agent, ssh": Taken(mb, 0.5, 1.0), "ssh b cat": Taken(100.0, None, 0.25)} for mb in (90.0, 120.0, 110.0)]
    lines = transfers_table(taken).splitlines()
    assert lines[1].split() == [
        "agent,",
        "ssh",
        "110",
        "(100..115)",
        "110",
        "%",
        "0.50",
        "(0.50..0.50)",
        "1.00",
        "(1.00..1.00)",
    ]
    assert lines[2].split() == ["ssh", "b", "cat", "100", "(100..100)", "100", "%", "0.25", "(0.25..0.25)"]


@pytest.mark.root
def test_all_ways_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "MEGABYTES", 5)
    text = "".join(run(1))
    assert text.startswith("5 MB in blocks of 1 MiB, medians of 1 rounds\n")
    assert [line.partition("  ")[0] for line in text.splitlines()[2:]] == [
        "agent, local",
        "agent, ssh",
        "agent, TLS",
        "ssh b cat",
    ]
