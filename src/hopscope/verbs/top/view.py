# SPDX-License-Identifier: Apache-2.0
"""The screen as lines of text: what is shown, and what each key does. It knows nothing of terminals or threads."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from hopscope.errors import HopscopeError
from hopscope.gate import one_line
from hopscope.verbs.frames.filters import line_of, parsed
from hopscope.verbs.frames.frame import Answer, Frame
from hopscope.verbs.frames.source import Ask, Fill, Filled, Filter, Frames, Record, Said
from hopscope.verbs.top.commands import command_line
from hopscope.verbs.top.history import CELLS, History
from hopscope.verbs.top.pages import HOP_ORDERS, SOCKET_ORDERS, Content, Page, Pages, keys_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import click

    from hopscope.term.terminal import Terminal
    from hopscope.verbs.frames.source import Event, Request, Source

# Frames that are kept of a live measurement, to step back to.
KEPT: Final = 300
# Sockets of earlier frames take much memory: they are kept where there are not more.
_FEW_SOCKETS: Final = 1000
_HINT: Final = "? help  Enter open  Esc back  / filter  space pause  t/T step  s sort  q quit"
_CHROME: Final = 4
# Lines of a sentence at the bottom.
_SAID: Final = 5


@dataclass(slots=True)
class _Prompt:
    label: str
    done: Callable[[str], None]
    text: str = ""


class View:
    """What the screen shows.

    Parameters
    ----------
    source
        Where frames come from.
    command
        ``hopscope top``, which knows the options of filters.
    chosen
        The filters.
    terminal, height
        What can be shown, and how many lines.
    send
        Gives the source a request.
    """

    def __init__(  # noqa: PLR0913, PLR0917 # what it is made of
        self,
        source: Source,
        command: click.Command,
        chosen: Mapping[str, Any],
        terminal: Terminal,
        height: int,
        send: Callable[[Request], object],
    ) -> None:
        self._source, self._command, self._chosen, self._send = source, command, chosen, send
        self._height = height
        self._terminal = terminal
        self._pages = Pages(terminal, live=source.live)
        self._stack = [Page("overview")]
        self._frames: Any = deque(maxlen=KEPT) if source.live else []
        self._history = History(-(-KEPT // CELLS))
        self._at: int | None = None if source.live else 0
        self._playing = source.live
        self._asked: Ask | None = None
        self._answer: Answer | None = None
        self._message = ""
        self._recording = False
        self._prompt: _Prompt | None = None
        self.over = False

    # ---- events ----

    def resize(self, terminal: Terminal, height: int) -> None:
        """Show as much as fits now."""
        self._terminal, self._height = terminal, height
        self._pages.terminal = terminal

    def take(self, event: Event) -> None:
        """Take what the source sent."""
        match event:
            case Frame():
                self._add(event)
            case Frames(frames):
                self._replace(frames)
            case Filled(number, frame):
                if number < len(self._frames):
                    self._frames[number] = frame
            case Answer():
                # What is paused stands still.
                if self._asked and event.question == self._asked.question and not (self._answer and self._stands()):
                    self._answer = event
            case Said(sentence, recording):
                self._message = sentence
                self._recording = self._recording if recording is None else recording

    def tick(self) -> None:
        """Play on, if a recording is being played."""
        if not self._source.live and self._playing:
            self._step(1)
            self._playing = self._number() < len(self._frames) - 1

    def _stands(self) -> bool:
        return self._source.live and self._at is not None

    def _add(self, frame: Frame) -> None:
        if self._frames:
            before = self._frames[-1]
            if before.sockets and len(before.sockets) > _FEW_SOCKETS:
                absent = {**before.absent, "sockets": "sockets of earlier intervals are not kept where they are many"}
                self._frames[-1] = replace(before, sockets=None, absent=absent)
        if len(self._frames) == KEPT and self._at:
            self._at -= 1
        if self._frames and not any((self._frames[-1].rx, self._frames[-1].tx, self._frames[-1].cpu)):
            self._frames[-1] = frame  # while verbs are being attached
        else:
            self._frames.append(frame)
        if frame.rx or frame.tx:
            self._history.add(frame)

    def _replace(self, frames: Sequence[Frame]) -> None:
        self._frames.clear()
        self._frames.extend(frames)
        self._at = None if self._source.live else 0
        self._history = History(-(-KEPT // CELLS)) if self._source.live else History.of(frames)
        self._settle()

    # ---- keys ----

    def key(self, name: str, character: str | None) -> None:
        """Do what a key says: its name, and the character that it types, if any."""
        if self._prompt:
            self._type(self._prompt, name, character)
            return
        self._message = ""
        known: dict[str, Callable[[], object]] = {
            "q": self._quit, "ctrl+c": self._quit, "escape": self._back, "enter": self._open, "tab": self._regroup,
            "space": self._pause, " ": self._pause, "t": lambda: self._step(1), "T": lambda: self._step(-1),
            "g": lambda: self._jump(0), "G": lambda: self._jump(len(self._frames) - 1), "j": self._ask_time,
            "/": self._ask_filter, "s": self._sort, "r": lambda: self._send(Record()), "y": self._show_command,
            "?": lambda: self._push(Page("help")), "up": lambda: self._move(-1), "down": lambda: self._move(1),
            "pageup": lambda: self._move(2 - self._room()), "pagedown": lambda: self._move(self._room() - 2),
            "home": lambda: self._move(-(1 << 20)), "end": lambda: self._move(1 << 20),
        }  # fmt: skip
        act = known.get(character or "") or known.get(name)
        if act:
            act()
            self._settle()

    def _type(self, prompt: _Prompt, name: str, character: str | None) -> None:
        if name in {"escape", "ctrl+c"}:
            self._prompt = None
        elif name == "enter":
            self._prompt = None
            prompt.done(prompt.text)
            self._settle()
        elif name == "backspace":
            prompt.text = prompt.text[:-1]
        elif name == "ctrl+u":
            prompt.text = ""
        elif character and one_line(character) == character:
            prompt.text += character

    def _quit(self) -> None:
        self.over = True

    def _push(self, page: Page) -> None:
        self._stack.append(page)

    def _back(self) -> None:
        if len(self._stack) > 1:
            self._stack.pop()

    def _open(self) -> None:
        rows = self._content().rows
        page = self._stack[-1]
        page.follow(rows)
        if opens := page.on:
            self._push(replace(opens, sort=page.sort if opens.kind == "details" else 0))

    def _regroup(self) -> None:
        page = self._stack[-1]
        if page.kind == "groups":
            page.by, page.cursor, page.on = page.by + 1, 0, None

    def _sort(self) -> None:
        page = self._stack[-1]
        orders = SOCKET_ORDERS if page.area == "sockets" else HOP_ORDERS
        sorts = page.kind in {"area", "groups", "details"} and page.area in {"rx", "tx", "sockets"}
        if sorts:
            page.sort = (page.sort + 1) % len(orders)
        self._message = f"sorted by {orders[page.sort]}" if sorts else "this page has one order"

    def _move(self, by: int) -> None:
        page, rows = self._stack[-1], self._content().rows
        page.follow(rows)
        page.move(by, rows)

    def _pause(self) -> None:
        if self._source.live:
            self._at = self._number() if self._at is None else None
        else:
            self._playing = not self._playing

    def _step(self, by: int) -> None:
        self._jump(self._number() + by)

    def _jump(self, number: int) -> None:
        self._at = min(max(number, 0), max(len(self._frames) - 1, 0))
        self._settle()

    def _ask_time(self) -> None:
        def done(text: str) -> None:
            try:
                wanted_s = float(text)
            except ValueError:
                self._message = f"{text!r} is not a number of seconds, e.g. 5 or -0.5"
                return
            if self._frames and text.startswith("-"):
                wanted_s += self._frames[-1].since_s
            later = (number for number, frame in enumerate(self._frames) if frame.since_s >= wanted_s)
            self._jump(next(later, len(self._frames) - 1))

        self._prompt = _Prompt("jump to (seconds since the start; -N: before the end): ", done)

    def _ask_filter(self) -> None:
        def done(text: str) -> None:
            try:
                self._chosen = parsed(self._command, text)
            except HopscopeError as error:
                self._message = str(error)
                return
            self._send(Filter(self._chosen))

        self._prompt = _Prompt("filter: ", done, line_of(self._command, self._chosen))

    def _show_command(self) -> None:
        keys = keys_of(self._stack[-1].area, live=self._source.live)
        self._message = command_line(
            self._stack[-1], self._command, self._chosen, keys, self._source.folder, self._frame(), self._asked
        )

    def _settle(self) -> None:
        """Ask for what the page needs, and for what is missing of the frame."""
        page, number = self._stack[-1], self._number()
        wanted = Ask(page.question(keys_of(page.area, live=self._source.live)), 0 if self._source.live else number)
        if wanted != (self._asked or Ask(None)):
            self._asked, self._answer = wanted, None
            self._send(wanted)
        if not self._source.live and number < len(self._frames) and self._frames[number].drops is None:
            self._send(Fill(number))

    # ---- lines ----

    def _number(self) -> int:
        return len(self._frames) - 1 if self._at is None else self._at

    def _frame(self) -> Frame | None:
        return self._frames[self._number()] if 0 <= self._number() < len(self._frames) else None

    def _content(self) -> Content:
        frame = self._frame()
        if frame is None:
            nothing = "attaching …" if self._source.live else "reading …"
            return Content(rows=[(nothing, None)])
        return self._pages.content(self._stack[-1], frame, self._history, self._answer)

    def _room(self) -> int:
        return max(self._height - _CHROME, 1)

    def lines(self) -> tuple[list[str], int]:
        """Return the lines of the screen, with styles of :mod:`hopscope.gate`, and the number of the chosen one."""
        content, page = self._content(), self._stack[-1]
        frame = self._frame()
        room = self._room() - len(content.titles)
        page.follow(content.rows)
        first = max(page.cursor - room + 1, 0)
        text_only = not any(opens for _, opens in content.rows)
        shown = content.rows[first : first + room]
        marks = ["" if text_only else "> " if first + at == page.cursor else "  " for at in range(len(shown))]
        body = [*("  " * (not text_only) + title for title in content.titles)]
        body += [mark + text for mark, (text, _) in zip(marks, shown, strict=True)]
        chosen = 2 + len(content.titles) + page.cursor - first
        if content.rows and (left := room - len(shown) - 1) > 0:
            body += ["", *content.below(page.cursor, left)]
        body = [*body, *[""] * self._height][: self._room()]
        last = self._last()
        lines = [self._title(frame), self._path(), *body, self._cost(frame)]
        return [*lines[: self._height - len(last)], *last], -1 if text_only else chosen

    def _title(self, frame: Frame | None) -> str:
        parts = ["hopscope top"]
        if frame:
            at = datetime.fromtimestamp(frame.at_ns // 10**9, UTC)
            parts += [f"{at:%H:%M:%S} UTC", f"+{frame.since_s:.1f} s"]
        if self._stands() or not (self._source.live or self._playing):
            parts.append(f"paused {self._number() + 1}/{len(self._frames)}")
        parts += [*["recording"] * self._recording, self._source.title]
        return self._terminal.paint(self._terminal.cut("  ".join(parts), self._terminal.width), "bold")

    def _path(self) -> str:
        parts = []
        for page in self._stack:
            by = keys_of(page.area, live=self._source.live)
            parts.append(
                {
                    "area": "findings" if page.area == "check" else page.area,
                    "groups": f"{page.hop[0] or 'CPU time'} by {by[page.by % len(by)]}",
                    "messages": f"slowest messages{''.join(f' of {value}' for _, value in page.group)}",
                    "message": "message",
                }.get(page.kind, page.kind)
            )
        only = line_of(self._command, self._chosen)
        text = " > ".join(parts) + (f"  only {only}" if only else "")
        return self._terminal.paint(self._terminal.cut(text, self._terminal.width), "dim")

    def _cost(self, frame: Frame | None) -> str:
        lost = f"lost: {frame.lost}" if frame and frame.lost else "lost: nothing"
        text = "  ".join(filter(None, (lost, frame.cost if frame else "")))
        return self._terminal.paint(
            self._terminal.cut(text, self._terminal.width), "warn" if frame and frame.lost else "dim"
        )

    def _last(self) -> list[str]:
        """Return the lines at the bottom: what is being typed, what was said, or the most important keys."""
        if self._prompt:
            return self._terminal.fold(f"{self._prompt.label}{self._prompt.text}_")[-_SAID:]
        return self._terminal.fold(self._message)[:_SAID] or [self._terminal.cut(_HINT, self._terminal.width)]
