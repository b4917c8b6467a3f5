# SPDX-License-Identifier: Apache-2.0
"""The screen over a recording, by Textual's Pilot: what pages show at 80x24, and what keys do."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hopscope import gate
from hopscope.store.trace import Trace
from hopscope.term.terminal import Terminal
from hopscope.verbs.top.command import command
from hopscope.verbs.top.pages import Page
from hopscope.verbs.top.replay import ReplaySource
from hopscope.verbs.top.screen import TopApp
from tests.lab.command import complaint, hopscope
from tests.test_gate import poison, steering
from tests.waiting import TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from textual.pilot import Pilot

RECORDINGS = Path(__file__).resolve().parents[2] / "recordings"
GOLDEN = Path(__file__).parent / "golden"


def play(folder: Path, script: Callable[[Shown], Awaitable[None]], interval_s: float = 1.0) -> None:
    """Run the screen over a recording, and a script that presses keys."""

    async def run() -> None:
        with Trace(folder) as trace:
            app = TopApp(ReplaySource(trace, {}, interval_s, Terminal()), command, {}, Terminal(), interval_s)
            async with app.run_test(size=(80, 24)) as pilot:
                try:
                    await script(Shown(app, pilot))
                finally:
                    app.exit()
            app.end()
            assert app.error is None

    asyncio.run(run())


class Shown:
    """What the screen shows, and keys."""

    def __init__(self, app: TopApp, pilot: Pilot[Any]) -> None:
        self.app = app
        self.pilot = pilot

    def lines(self) -> list[str]:
        return ["".join(text for text, _ in parts).rstrip() for parts in self.app._lines._strips]

    async def until(self, text: str) -> str:
        """Wait until it shows a text; return all of it."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while text not in (shown := "\n".join(self.lines())):
            assert time.monotonic() < deadline_s, f"no {text} in\n{shown}"
            await self.pilot.pause(0.01)
        return shown

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)


def assert_golden(name: str, shown: str) -> None:
    path = GOLDEN / f"{name}.txt"
    text = shown.replace(str(RECORDINGS), "recordings") + "\n"
    if os.environ.get("HOPSCOPE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def test_from_the_overview_down_to_one_message_and_back() -> None:
    async def script(screen: Shown) -> None:
        assert_golden("overview", await screen.until("QUEUE_PURGE"))
        await screen.press("down", "down", "enter")
        await screen.until("overview > tx")
        await screen.press("s")
        assert_golden("hops", await screen.until("sorted by p99"))
        await screen.press("enter")
        await screen.until("10.77.0.1:50964")
        await screen.press("enter")
        await screen.until("held by")
        await screen.press("enter")
        assert_golden("message", await screen.until("not seen:"))
        await screen.press("y")
        await screen.until("hopscope explain --message=")
        await screen.press("escape", "escape", "escape", "escape")
        await screen.until("findings")

    play(RECORDINGS / "events", script)


def test_cpu_time_of_a_recording_by_process_and_cgroup() -> None:
    async def script(screen: Shown) -> None:
        await screen.until("interrupts, softirqs and threads with sockets take")
        await screen.press(*["down"] * 5)
        while ">" not in next(line for line in screen.lines() if " cpu " in line)[:2]:
            await screen.press("up")
        await screen.press("enter")
        await screen.until("softirq  NET_RX")
        await screen.press("enter")
        await screen.until("CPU time by process")
        await screen.until("client (6927)  thread")
        await screen.press("y")
        await screen.until("hopscope report cpu --from=")
        await screen.press("tab")
        await screen.until("in which cgroups processes were")
        await screen.press("tab")
        await screen.until("CPU time by cpu")

    play(RECORDINGS / "tcp-rx", script)


def test_time_filter_and_resize() -> None:
    async def script(screen: Shown) -> None:
        await screen.until("paused 1/4")
        await screen.press("t", "t")
        await screen.until("paused 3/4")
        await screen.press("T")
        await screen.until("paused 2/4")
        await screen.press("j", "-", "0", "enter")
        await screen.until("paused 4/4")
        await screen.press("j", "x", "enter")
        await screen.until("'x' is not a number of seconds")
        await screen.press("slash", *"--port x", "enter")
        await screen.until("'x' is not a valid integer")
        await screen.press("slash", *"--port 9", "enter")
        await screen.until("only --port=9")
        await screen.press("slash", *["backspace"] * 20, *"--cgroup x", "enter")
        await screen.until("a recording cannot be searched for it")
        await screen.press("r")
        await screen.until("This is a recording already")
        await screen.pilot.resize_terminal(40, 10)
        await screen.until("hopscope top")
        assert len(screen.lines()) == 10
        assert max(map(len, screen.lines())) <= 40

    play(RECORDINGS / "events", script, interval_s=0.1)


@pytest.mark.parametrize("everything", [False, True])
def test_no_name_in_a_recording_steers_the_screen(tmp_path: Path, *, everything: bool) -> None:
    folder = tmp_path / "events"
    shutil.copytree(RECORDINGS / "events", folder)
    poison(folder, everything=everything)
    seen: list[str] = []

    async def script(screen: Shown) -> None:
        await screen.until("findings")
        for keys in (["down", "enter"], ["enter"], ["tab"], ["enter"], ["enter"], ["y"], ["escape"] * 5):
            await screen.press(*keys)
            await screen.pilot.pause(0.3)
            seen.extend(screen.lines())

    if everything:  # it is no recording any more, in whichever way
        assert steering(hopscope("top", folder).stderr) == set()
        return
    play(folder, script)
    assert any("pwned" in line for line in seen)
    assert {char for line in seen for char in steering(line)} == set()
    assert not any("\n" in line or "\t" in line for line in seen)


def test_the_cursor_stays_on_what_it_is_on_when_lines_change_places() -> None:
    cpu, sockets, drops = (("", Page("area", area)) for area in ("cpu", "sockets", "drops"))
    page = Page("overview")
    page.follow([cpu, sockets, drops])
    page.move(1, [cpu, sockets, drops])
    for rows, at in (([sockets, cpu, drops], 0), ([cpu, drops, sockets], 2), ([cpu, drops], 1), ([], 0), ([cpu], 0)):
        page.follow(rows)
        assert (page.cursor, page.on) == (at, rows[at][1] if rows else None)


def test_a_terminal_is_needed() -> None:
    assert complaint(hopscope("top"), 2) == (
        "hopscope top needs a terminal. For programs, each verb has --json, such as `hopscope rx --json`"
    )


def test_of_what_draws_a_screen_only_control_sequences_pass(capfd: pytest.CaptureFixture[str]) -> None:
    screen = gate.Screen()
    screen.write("\x1b[2;1H\x1b[?25l\x1b[38;5;3mtext\x1b]0;title\x07\x9b1m\u202e\x1bc")
    screen.flush()
    assert capfd.readouterr().out == "\x1b[2;1H\x1b[?25l\x1b[38;5;3mtext?]0;title??1m??c"
