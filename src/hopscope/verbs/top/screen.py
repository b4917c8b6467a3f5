# SPDX-License-Identifier: Apache-2.0
"""The screen in a terminal, with Textual: one widget that draws the lines that changed."""

from __future__ import annotations

import asyncio
import signal
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from hopscope.gate import Screen, styled_parts
from hopscope.term.terminal import Terminal, columns
from hopscope.verbs.top.guard import guarded_terminal
from hopscope.verbs.top.view import View

if TYPE_CHECKING:
    from collections.abc import Mapping

    import click
    from textual import events

    from hopscope.verbs.frames.source import Event, Request, Source

_BY_SIGNAL: Final = 128
# Looks of hopscope.gate.
_STYLES: Final = {
    "": Style(), "dim": Style(dim=True), "bold": Style(bold=True), "warn": Style(color="yellow"),
    **{name: Style(color=name) for name in ("cyan", "red", "yellow", "magenta", "green")},
}  # fmt: skip
_CHOSEN: Final = Style(reverse=True)


class Lines(Widget, can_focus=True):
    """Lines of text, which have passed the gate: nothing in them is markup, or steers the terminal."""

    def __init__(self) -> None:
        super().__init__()
        self._strips: list[tuple[tuple[str, str], ...]] = []
        self._chosen = -1

    def show(self, lines: list[str], chosen: int) -> None:
        """Draw those lines that are not as they were."""
        strips = [tuple(styled_parts(line)) for line in lines]
        before, before_chosen = self._strips, self._chosen
        self._strips, self._chosen = strips, chosen
        width = self.size.width
        changed = [
            Region(0, number, width, 1)
            for number in range(max(len(strips), len(before)))
            if _at(strips, number) != _at(before, number) or ((number == chosen) != (number == before_chosen))
        ]
        if changed:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        """Return a line, as Textual asks for it."""
        chosen = _CHOSEN if y == self._chosen else Style()
        parts = _at(self._strips, y)
        segments = [Segment(text, _STYLES[look] + chosen) for text, look in parts]
        width = sum(columns(text) for text, _ in parts)
        return Strip(segments, width).adjust_cell_length(self.size.width, chosen).crop(0, self.size.width)


def _at(strips: list[tuple[tuple[str, str], ...]], number: int) -> tuple[tuple[str, str], ...]:
    return strips[number] if number < len(strips) else ()


class _Driver(LinuxDriver):
    """Writes to the gate."""

    def __init__(self, app: App[Any], **options: Any) -> None:  # noqa: ANN401 # as Textual's
        super().__init__(app, **options)
        if isinstance(app, TopApp) and app.out:
            self._file: Any = app.out


class TopApp(App[int]):
    """Runs a source in a thread, and shows what it sends.

    Parameters
    ----------
    source, command, chosen
        As of :class:`~hopscope.verbs.top.view.View`.
    terminal
        What can be shown; the size is that of the screen.
    interval_s
        How often a recording that is played goes on.
    out
        The terminal; None: there is none, as in tests.
    """

    CSS: ClassVar[str] = "Screen, Lines { background: ansi_default; color: ansi_default; } Lines { height: 100%; }"
    ENABLE_COMMAND_PALETTE: ClassVar[bool] = False

    def __init__(  # noqa: PLR0913, PLR0917 # what it is made of
        self,
        source: Source,
        command: click.Command,
        chosen: Mapping[str, Any],
        terminal: Terminal,
        interval_s: float,
        out: Screen | None = None,
    ) -> None:
        self.out = out
        super().__init__(driver_class=_Driver if out else None, ansi_color=True)
        self._source = source
        self._requests: SimpleQueue[Request] = SimpleQueue()
        self._terminal = terminal
        self._interval_s = interval_s
        self._lines = Lines()
        self.view = View(source, command, chosen, terminal, 24, self._requests.put)
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run_source, name="frames", daemon=True)

    def compose(self) -> Any:  # noqa: ANN401 # as Textual has it
        """Give the one widget."""
        yield self._lines

    def on_mount(self) -> None:
        """Start the source, and have signals end the screen, not the process."""
        self._lines.focus()
        # The terminal's screen is empty then, and Textual takes it to be as it was.
        self.app_resume_signal.subscribe(self._lines, lambda _: self._lines.refresh())
        self._own_loop = asyncio.get_running_loop()
        if self.out:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                self._own_loop.add_signal_handler(number, self.exit, _BY_SIGNAL + number)
        if not self._source.live:
            self.set_interval(self._interval_s, self._tick)
        self._thread.start()

    def on_resize(self, event: events.Resize) -> None:
        """Show as much as fits."""
        width = max(event.size.width, 1)
        self.view.resize(Terminal(width, self._terminal.colour, self._terminal.unicode), event.size.height)
        self._draw()

    def on_key(self, event: events.Key) -> None:
        """Do what a key says."""
        event.stop()
        event.prevent_default()
        if event.key == "ctrl+z":
            self.action_suspend_process()
            return
        self.view.key(event.key, event.character)
        if self.view.over:
            self.exit(0)
        self._draw()

    def end(self) -> None:
        """End the source, and wait until it has detached."""
        self._requests.put(None)
        if self._thread.ident:
            self._thread.join()

    def _draw(self) -> None:
        self._lines.show(*self.view.lines())

    def _tick(self) -> None:
        self.view.tick()
        self._draw()

    def _run_source(self) -> None:
        try:
            self._source.run(self._post, self._requests)
        except BaseException as error:  # noqa: BLE001 # it is raised again in the main thread
            self.error = error
            self._call(self.exit, 1)

    def _post(self, event: Event) -> None:
        self._call(self._take, event)

    def _call(self, function: Any, *arguments: Any) -> None:  # noqa: ANN401 # what is called
        if not self._own_loop.is_closed():
            self._own_loop.call_soon_threadsafe(function, *arguments)

    def _take(self, event: Event) -> None:
        self.view.take(event)
        self._draw()


def show(
    source: Source, command: click.Command, chosen: Mapping[str, Any], terminal: Terminal, interval_s: float
) -> int:
    """Show a source until the user or a signal ends it; return the exit code.

    Raises
    ------
    HopscopeError
        The source cannot go on.
    """
    out = Screen()
    app = TopApp(source, command, chosen, terminal, interval_s, out)
    with guarded_terminal(out):
        try:
            code = app.run(mouse=False)
        finally:
            app.end()
    if app.error:
        raise app.error
    return code or 0
