# SPDX-License-Identifier: Apache-2.0
"""A recording has all that was seen, however somebody has it end."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from typing import TYPE_CHECKING

import pytest

from hopscope.store.meta import Metadata
from tests.lab.command import ended, only, start, waits
from tests.lab.terminal import in_terminal
from tests.shared import first
from tests.verbs.record.test_command import events, sending
from tests.waiting import TIMEOUT_S, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.lab import Lab

pytestmark = pytest.mark.root

FLIGHT = ("--flight", "600")


def assert_whole(folder: Path) -> None:
    assert Metadata.read(folder).state == "complete"
    assert events(folder)["rx.core"] == 101


@pytest.mark.parametrize("options", first([(FLIGHT,), ((),)]))
def test_the_terminal_ends(kept_lab: Lab, tmp_path: Path, options: tuple[str, ...]) -> None:
    folder = tmp_path / "t"
    with in_terminal("record", "-o", folder, *options, *only(kept_lab)) as (child, close):
        eventually((folder / "hopscope.json").exists, "never began")
        subprocess.run(sending(kept_lab, 101), check=True)
        close()
        assert child.wait(TIMEOUT_S) == 0
    assert_whole(folder)


def test_the_terminal_ends_and_it_is_to_go_on(kept_lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    without = ("sh", "-c", "trap '' HUP; exec \"$@\"", "sh")  # as nohup(1), which would also take away the terminal
    with in_terminal("record", "-o", folder, *only(kept_lab), before=without) as (child, close):
        eventually((folder / "hopscope.json").exists, "never began")
        close()
        # From here on it cannot write a line to its terminal, which it does each second.
        subprocess.run(sending(kept_lab, 101), check=True)
        eventually((folder / "packets" / "000001.parquet").exists, "it does not go on")
        os.kill(child.pid, signal.SIGTERM)
        assert child.wait(TIMEOUT_S) == 0
    assert_whole(folder)


@pytest.mark.parametrize("number", first([signal.SIGHUP, signal.SIGQUIT]))
@pytest.mark.parametrize("options", [(), FLIGHT])
def test_a_signal_and_nobody_who_reads(
    kept_lab: Lab, tmp_path: Path, options: tuple[str, ...], number: signal.Signals
) -> None:
    folder = tmp_path / "t"
    child = start("record", "-o", folder, *options, *only(kept_lab))
    eventually((folder / "hopscope.json").exists, "never began")
    subprocess.run(sending(kept_lab, 101), check=True)
    for pipe in (child.stdout, child.stderr):
        assert pipe
        pipe.close()
    child.send_signal(number)
    assert child.wait(TIMEOUT_S) == 0
    assert_whole(folder)


def test_it_says_where_its_folder_was_moved(kept_lab: Lab, tmp_path: Path) -> None:
    folder, moved = tmp_path / "t", tmp_path / "moved"
    child = start("record", "-o", folder, "--mode", 644, *only(kept_lab))
    eventually((folder / "hopscope.json").exists, "never began")
    folder.rename(moved)
    subprocess.run(sending(kept_lab, 101), check=True)
    child.terminate()
    code, _, err = ended(child)
    assert (code, err.splitlines()[-1]) == (0, f"hopscope report summary {moved}")
    assert_whole(moved)
    assert stat.S_IMODE((moved / "hopscope.json").stat().st_mode) == 0o644


@pytest.mark.parametrize("verb", ["rx", "tx", "drops", "counters"])
@pytest.mark.parametrize("number", first([signal.SIGHUP, signal.SIGQUIT]))
def test_other_verbs_give_their_total(verb: str, number: signal.Signals) -> None:
    child = start(verb, "--json", "-i", 60)
    eventually(lambda: waits(child), "never began")
    child.send_signal(number)
    code, out, err = ended(child)
    assert (code, err) == (0, "")
    assert '"kind":"total"' in out.splitlines()[-1]


def test_files_are_written_though_nobody_reads_the_output(tmp_path: Path) -> None:
    svg = tmp_path / "flame.svg"
    with in_terminal("cpu", "--flame", svg, "-i", 0.2) as (child, close):
        eventually(lambda: waits(child), "never began")
        close()
        child.wait(TIMEOUT_S)
    assert svg.read_text().endswith("</svg>\n")
