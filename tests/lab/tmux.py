# SPDX-License-Identifier: Apache-2.0
"""A terminal that shows what a user sees."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

from tests.lab.command import environ
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path


class Tmux:
    """A terminal with a shell in it, which is ready.

    Parameters
    ----------
    folder
        Where its socket is.
    width, height
        In characters.
    """

    def __init__(self, folder: Path, width: int = 80, height: int = 24) -> None:
        self._tmux = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]
        self._run("new-session", "-d", "-x", str(width), "-y", str(height), "env PS1=ready: sh")
        self.until("ready:")

    def _run(self, *words: str) -> str:
        return subprocess.run(
            [*self._tmux, *words], env=environ(TERM="xterm"), capture_output=True, text=True, check=True
        ).stdout

    def text(self) -> str:
        return self._run("capture-pane", "-p")

    def keys(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def until(self, pattern: str) -> re.Match[str]:
        """Wait until what is shown matches; return the match."""
        try:
            return eventually(lambda: re.search(pattern, self.text()), f"no {pattern}")
        except AssertionError as error:
            error.add_note(self.text())
            raise

    def settings(self) -> str:
        """Return the settings of the terminal: echo, signals, and so on."""
        tty = self._run("display-message", "-p", "#{pane_tty}").strip()
        return subprocess.run(["stty", "-a", "-F", tty], capture_output=True, text=True, check=True).stdout

    def alternate(self) -> bool:
        """Tell whether the alternate screen is shown."""
        return self._run("display-message", "-p", "#{alternate_on}").strip() == "1"

    def close(self) -> None:
        self._run("kill-server")
