# SPDX-License-Identifier: Apache-2.0
"""The line of a recording that goes on, and what is said at its end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hopscope.term.recording import Recording, render_end, render_hosts, render_hosts_end, render_progress, size

MUCH = Recording(elapsed_s=86_400.0 * 365, events=10**15, lost=10**12, size_bytes=10**16)
LITTLE = Recording(elapsed_s=0.04, events=0, lost=0, size_bytes=0)
BEFORE = Recording(elapsed_s=11.34, events=1_134_444, lost=0, size_bytes=0)
SOME = Recording(elapsed_s=12.34, events=1_234_567, lost=0, size_bytes=9_876_543)


def test_progress_fits_a_line_whatever_there_is() -> None:
    for recording in (LITTLE, SOME, MUCH):
        line = render_progress(recording, LITTLE)
        assert len(line) <= 79
        assert "\n" not in line
    assert render_progress(SOME, BEFORE) == "    12.3 s  1,234,567 events  100k/s  0 lost  9.42 MiB"


def test_the_end_says_what_there_is_and_what_to_do() -> None:
    assert render_end(SOME, "my trace").splitlines() == [
        "1,234,567 events in 12.3 s, none lost; 9.42 MiB, 8.0 bytes per event",
        "hopscope report summary my trace",
    ]
    taken = replace(SOME, cost={"bpf_cpu_percent": 0.3, "reader_cpu_percent": 1.5, "ns_per_hit": 120.4})
    assert render_end(taken, "t").splitlines()[0] == "cost: 0.3% CPU in BPF (120 ns/hit), 1.5% reader"
    assert render_end(LITTLE, "t").splitlines()[0] == "0 events in 0.0 s, none lost; 0 B"
    assert "1,000,000,000,000 lost;" in render_end(MUCH, "t")


def test_each_host_has_a_line_of_its_own() -> None:
    lines = render_hosts(
        ["a", "db2"], [SOME, SOME], [BEFORE, BEFORE], ["", "missing: its agent was killed by signal 9"]
    )
    assert lines == [
        "a        12.3 s  1,234,567 events  100k/s  0 lost  9.42 MiB",
        "db2  missing: its agent was killed by signal 9",
    ]
    assert all(len(line) <= 79 for line in render_hosts(["x" * 64], [MUCH], [LITTLE], [""]))


def test_the_end_of_several_hosts() -> None:
    assert render_hosts_end([("a", SOME, 1.25), ("db2", LITTLE, 0.1)], "t").splitlines() == [
        "a    1,234,567 events in 12.3 s, none lost; 9.42 MiB, 8.0 bytes per event; 1.2 s CPU",
        "db2  0 events in 0.0 s, none lost; 0 B; 0.1 s CPU",
        "hopscope report summary t",
    ]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1000 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1_572_864, "1.5 MiB"),
        (1023 << 20, "1023 MiB"),
        (1 << 30, "1 GiB"),
        ((1 << 40) * 12_345, "1.23e+04 TiB"),
    ],
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text
