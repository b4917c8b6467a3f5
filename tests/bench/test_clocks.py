# SPDX-License-Identifier: Apache-2.0
"""The benchmark of clocks: what it makes of what is known."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest

from bench import clocks, ptp4l, trace_cmd
from bench.clock_hosts import Hosts

if TYPE_CHECKING:
    from pathlib import Path

_SAID = "ptp4l[1.0]: master offset {offset:10} s0 freq +3 path delay 900"


def test_errors_above_their_bound_are_counted() -> None:
    figures = clocks.Figures([10, 20, 30], [15, 15, 15])
    assert figures.outside == 2
    assert figures.row("online, moved") == ["online, moved", "20", "29", "30", "15", "15", "2 of 3", "50"]


def test_who_has_no_bound_or_says_nothing_is_shown_so() -> None:
    rows = [clocks.Figures([700]).row("ptp4l -S"), clocks.Figures().row("ptp4l -S")]
    assert rows[0] == ["ptp4l -S", "700", "700", "700", "none", "none", "none", ""]
    assert "nothing" in clocks.errors_table(rows)


@pytest.mark.root
def test_ptp4l_is_heard_and_may_set_no_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A stand-in that says what it may do: linuxptp is not to be installed for this.
    sys_time = 1 << 25
    lines = "\\n".join(_SAID.format(offset=offset) for offset in (-9000, 1, -2, 3))
    script = f"""#!{sys.executable}
import re, time
text = open("/proc/self/status").read()
able = int(re.search("CapEff:\\\\s+(\\\\w+)", text)[1], 16) & {sys_time}
print("{lines}" if not able else "master offset 999999999 ", flush=True)
time.sleep(60)
"""
    (tmp_path / "ptp4l").write_text(script)
    (tmp_path / "ptp4l").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with Hosts(2) as hosts:
        ends = [(hosts.namespaces[host], hosts.ifname(host, 1 - host)) for host in (0, 1)]
        assert ptp4l.offsets_ns(ends, 6.0) == [1, -2, 3]


@pytest.mark.root
def test_all_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptp4l, "missing", lambda: "ptp4l")
    monkeypatch.setattr(trace_cmd, "sync", lambda *_: "trace-cmd's word")
    *reports, left_out = clocks.run(rounds=1, seconds=5.5)
    assert reports.pop(2) == "trace-cmd's word\n\n"
    assert [report.partition("\n")[0].split(", ")[:2] for report in reports] == [
        [f"round 1: {count} hosts", load] for count in (2, 4) for load in ("idle", "loaded")
    ]
    assert all(re.search(r"^offline .* 0 of \d+ ", report, re.MULTILINE) for report in reports)
    assert "no ptp4l here" in left_out


@pytest.mark.root
def test_how_far_trace_cmd_gets_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Stand-ins: an agent that waits, and a recorder that does not record.
    for does, said, seconds in (
        ("echo no such luck; exit 3", "record ended with 3 (no such luck)", 60),
        ("trap '' INT; exec sleep 60", "record waits for its agent for ever", 5),
        ("exit 0", "it recorded", 60),
    ):
        program = tmp_path / "trace-cmd"
        program.write_text(f'#!/bin/sh\nif [ "$1" = agent ]; then exec sleep 60; fi\n{does}\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        monkeypatch.setattr(trace_cmd, "_END_S", 0.5)
        with Hosts(2) as hosts:
            assert said in trace_cmd.sync(hosts, seconds)
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert "was left out" in trace_cmd.sync(hosts, 0.5)
