# SPDX-License-Identifier: Apache-2.0
"""The tools that are compared: a run in which one does not work must not count."""

from __future__ import annotations

import pytest

from bench import tools


def say(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setitem(tools.COMMANDS, "rx", ("sh", "-c", script))


def test_block_begins_when_the_tool_is_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, "echo Attaching 5 probes...; echo attached; exec sleep 30")
    with tools.started("rx") as pid:
        assert pid > 0


def test_tool_that_ends_at_once_is_refused_with_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, "echo no right to do so >&2; exit 1")
    with pytest.raises(tools.ToolError, match="did not attach: no right to do so"), tools.started("rx"):
        pass


def test_tool_that_saw_no_packets_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, "trap 'echo rx.core rx.udp_read; exit' INT; echo attached; while :; do sleep 0.05; done")
    with pytest.raises(tools.ToolError, match=r"rx saw no rx\.tcp_read"), tools.running("rx"):
        pass


def test_signal_that_a_tool_misses_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "_END_AGAIN_S", 0.1)
    say(monkeypatch, "n=0; trap 'n=$((n+1))' INT; echo attached; while [ $n -lt 2 ]; do sleep 0.02; done; echo $n")
    with tools.started("rx"):
        pass


def test_tool_that_does_not_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "_END_AGAIN_S", 0.05)
    say(monkeypatch, "trap '' INT; echo attached; exec sleep 30")
    with pytest.raises(tools.ToolError, match="does not end"), tools.started("rx"):
        pass
