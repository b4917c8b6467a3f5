# SPDX-License-Identifier: Apache-2.0
"""A budget under a flood: what the kernel says that programs took, and results beside those of a whole measurement."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from hopscope.lab import Workload
from hopscope.libbpf import enable_stats
from hopscope.live.budget import Account
from tests.lab.command import attached, complaint, count_of, ended, hopscope, objects, only, start
from tests.waiting import eventually

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from hopscope.lab import Lab
    from tests.lab.command import Json
    from tests.lab.measure import NetworkPath

BUDGET: Final = 1.0
TICKS_S: Final = 100


def taken_s(child: subprocess.Popen[str]) -> float:
    """Return the CPU time of a process, and of the programs that it holds, which are in statistics."""
    fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
    programs: dict[str, int] = {}
    for each in Path(f"/proc/{child.pid}/fdinfo").iterdir():
        words = dict(line.split(":\t", 1) for line in each.read_text().splitlines() if ":\t" in line)
        if "run_time_ns" in words:
            programs[words["prog_id"]] = int(words["run_time_ns"])
    return (int(fields[11]) + int(fields[12])) / TICKS_S + sum(programs.values()) / 1e9


@pytest.fixture
def flood(veth: NetworkPath) -> Iterator[None]:
    with (
        Workload(veth.receiver, "udp-sink", "--bind", veth.host, "--limit", 60) as sink,
        Workload(veth.sender, "udp-send", veth.host, sink.port, "--size", 64, "--limit", 60),
    ):
        yield


@pytest.mark.root
@pytest.mark.alone
@pytest.mark.usefixtures("flood")
def test_a_flood_is_measured_within_the_budget(lab: Lab) -> None:
    """The same flood, measured whole at the same time, costs several times as much, and says the same."""
    with enable_stats():
        whole = start("rx", *only(lab), "--json", "-i", 60)
        part = start("rx", *only(lab), "--json", "-i", 60, "--budget", BUDGET)
        eventually(lambda: attached(whole) and attached(part))
        time.sleep(3)  # what it takes to start is no part of it
        before_s, begun_s = [taken_s(whole), taken_s(part)], time.monotonic()
        time.sleep(10)
        length_s = time.monotonic() - begun_s
        spent = [
            100 * (taken_s(child) - early_s) / length_s for child, early_s in zip((whole, part), before_s, strict=True)
        ]
    totals = [last(child) for child in (whole, part)]
    assert spent[0] > 2 * BUDGET, "no flood"
    assert spent[1] < 1.5 * BUDGET, spent
    assert totals[1]["coverage"]["slices"] > 1
    check_agreement(*totals)


def last(child: subprocess.Popen[str]) -> Json:
    child.terminate()
    return objects(ended(child)[1])[-1]


def check_agreement(whole: Json, part: Json) -> None:
    for hop in ("rx.ip", "rx.udp"):
        (exact,) = [each for each in whole["hops"] if each["hop"] == hop]
        (found,) = [each for each in part["hops"] if each["hop"] == hop]
        bounds = found["bounds"]["p50_ns"]
        # The last slice may not have counted yet: then there was one, which says nothing of others.
        assert bounds or part["coverage"]["slices"] <= 2, found
        # Twice the bound: it holds 95 times of 100, and both did not begin at once. Few slices have no upper one.
        if bounds:
            assert bounds["least_ns"] / 2 < exact["p50_ns"] < (bounds["most_ns"] or math.inf) * 2
    assert count_of(whole, "rx.udp") / 2 < count_of(part, "rx.udp") < count_of(whole, "rx.udp") * 2


@pytest.mark.root
def test_what_has_a_budget_has_no_single_messages() -> None:
    said = complaint(hopscope("rx", "--budget", 1, "--slowest", 3), 2)
    assert "--budget measures a part, which --slowest cannot have" in said


def test_an_account_is_charged_with_all_that_was_taken() -> None:
    account = Account(0.5)
    assert 0.9 < account.saved_s() <= 1.0  # two seconds of it
    account.set_rate("one", 40.0)
    account.set_rate("other", 60.0)
    account.others = 1.0
    assert account.excess > 100
    time.sleep(0.05)  # takes 5 s at least, and gives 25 ms
    account.set_rate("one", None)
    account.set_rate("other", 0.0)
    assert account.saved_s() < -3.5
    assert account.programs == 1.0
