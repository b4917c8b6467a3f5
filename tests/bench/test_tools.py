# SPDX-License-Identifier: Apache-2.0
"""The tools that are compared: a run in which one does not work must not count."""

from __future__ import annotations

import pytest

from bench import tools


def saying(script: str, *seen: str) -> tools.Tool:
    return tools.Tool("it", ("sh", "-c", script), seen)


def test_block_begins_when_the_tool_is_attached() -> None:
    tool = saying("echo Attaching 5 probes...; echo attached; exec sleep 30")
    with tools.started(tool) as pid:
        assert pid > 0


def test_tool_that_ends_at_once_is_refused_with_its_words() -> None:
    tool = saying("echo no right to do so >&2; exit 1")
    with pytest.raises(tools.ToolError, match="did not attach: no right to do so"), tools.started(tool):
        pass


@pytest.mark.parametrize("said", ["rx.core", "  rx.core  unavailable", "rx.core:", "tx.core 5"])
def test_tool_that_saw_no_packets_is_refused(said: str) -> None:
    seen = tools.hopscope("rx", hops=("rx.core",)).seen
    tool = saying(f"trap 'echo \"{said}\"; exit' INT; echo attached; while :; do sleep 0.05; done", *seen)
    with pytest.raises(tools.ToolError, match=r"it printed no .*rx\\\.core"), tools.running(tool):
        pass


def test_tool_that_saw_packets_is_taken() -> None:
    seen = tools.hopscope("rx", hops=("rx.core", "rx.tcp_read")).seen
    table = r"hop count\n rx.core 0.1 5\nrx.tcp_read  7"
    tool = saying(f"trap 'printf \"{table}\"; exit' INT; echo attached; while :; do sleep 0.05; done", *seen)
    with tools.running(tool):
        pass


def test_signal_that_a_tool_misses_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "_END_AGAIN_S", 1.0)
    tool = saying("n=0; trap 'n=$((n+1))' INT; echo attached; while [ $n -lt 2 ]; do sleep 0.02; done; echo $n")
    with tools.started(tool):
        pass


def test_tool_that_does_not_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "_END_AGAIN_S", 0.05)
    tool = saying("trap '' INT; echo attached; exec sleep 30")
    with pytest.raises(tools.ToolError, match="does not end"), tools.started(tool):
        pass
