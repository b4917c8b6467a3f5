# SPDX-License-Identifier: Apache-2.0
"""Frames of this host, now: the collectors of ``rx``, ``tx``, ``cpu``, ``drops`` and ``sockets``, and ``check``."""

from __future__ import annotations

import contextlib
import queue
import shlex
import time
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

from hopscope.errors import HopscopeError, UsageError
from hopscope.kernel.capabilities import require_rights
from hopscope.kernel.counters.reader import CounterReader
from hopscope.live.attached import measure_costs
from hopscope.live.contract import batches
from hopscope.live.handover import handed_over
from hopscope.live.interval import cost_window_s
from hopscope.live.lookup import namespaces
from hopscope.live.words import words_of
from hopscope.term import format as fmt
from hopscope.verbs.check.findings import Checker
from hopscope.verbs.frames.filters import narrowed, parsed
from hopscope.verbs.frames.frame import Answer, Frame, SlowMessage
from hopscope.verbs.frames.messages import layer_lines
from hopscope.verbs.frames.own_cost import OwnCost
from hopscope.verbs.frames.recording import OwnRecording
from hopscope.verbs.frames.source import Ask, Filter, Frames, Record, Said

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hopscope.live.contract import Collector
    from hopscope.model.counters.readings import Readings
    from hopscope.model.message import Message
    from hopscope.term.terminal import Terminal
    from hopscope.verbs.check.findings import Check
    from hopscope.verbs.frames.frame import Area, Question
    from hopscope.verbs.frames.source import Event, Request
    from hopscope.verbs.sockets.report import SocketReport

_VERBS: Final[tuple[Area, ...]] = ("rx", "tx", "cpu", "drops", "sockets")
# What a verb needs beside the filters to report at intervals.
_ALSO: Final[Mapping[str, tuple[str, ...]]] = {"sockets": ("--interval=1",)}
# How often rings are emptied.
_BETWEEN_S: Final = 0.25
# Between two readings of all sockets, and of all counters, which take milliseconds: more often, they would take most of
# what the screen costs. The first ones of counters are sooner.
_SOCKETS_S: Final = 5.0
_CHECK_S: Final = 10.0
_FIRST_CHECK_S: Final = 3.0
_SLOWEST: Final = 20
_ATTACHING: Final = "is being attached"


@dataclass(slots=True)
class Running:
    """A collector that is attached, and what detaches it."""

    collector: Collector[Any]
    stack: contextlib.ExitStack

    def drain(self) -> None:
        """Empty its rings, where it has some; to be called several times a second."""
        drained: Any = self.collector
        if hasattr(drained, "drain"):
            drained.drain()
        if hasattr(drained, "found"):
            for _ in batches(drained.found, _BETWEEN_S):
                pass


def attach(verb: str, words: Sequence[str]) -> Running:
    """Run a verb's command with these words up to where it would report, and attach its collector.

    Raises
    ------
    HopscopeError
        It cannot be.
    """
    command = import_module(f"hopscope.verbs.{verb}.command").command
    try:
        with handed_over() as left, command.make_context(verb, [*words]) as context:
            command.invoke(context)
    except click.ClickException as error:
        raise UsageError(error.format_message().replace("\n", " ").rstrip(".")) from error
    if left.collector is None:
        raise UsageError(f"`hopscope {verb}` measures nothing with these options")
    stack = contextlib.ExitStack()
    return Running(stack.enter_context(left.collector), stack)


def words_for(verb: str, chosen: Mapping[str, Any]) -> list[str]:
    """Return the words that give a verb the filters that it has, too."""
    return words_of(import_module(f"hopscope.verbs.{verb}.command").command, chosen)


def chosen_by(text: str) -> dict[str, Any]:
    """Return what a line of options selects, as `hopscope rx` would understand it.

    Raises
    ------
    UsageError
        It is not what the command takes, or names a path.
    """
    return parsed(import_module("hopscope.verbs.rx.command").command, text)


class LiveSource:
    """Measures; see :class:`~hopscope.verbs.frames.source.Source`.

    Parameters
    ----------
    chosen
        The filters, by the options' names in Python.
    interval_s
        Between frames.
    terminal
        For lines that are made here.
    """

    live = True
    folder = ""

    def __init__(self, chosen: Mapping[str, Any], interval_s: float, terminal: Terminal) -> None:
        require_rights()
        self.title = "live"
        self._chosen = chosen
        self._counters = _counters(chosen)
        self._own = OwnCost(_CHECK_S)
        self._interval_s = interval_s
        self._terminal = terminal
        self._running: dict[Area, Running] = {}
        self._absent: dict[Area, str] = {}
        self._extra: tuple[Question, Running] | None = None
        self._messages: Sequence[SlowMessage] = ()
        self._started_s = time.monotonic()

    @cached_property
    def _checker(self) -> Checker:
        """Made when it is needed, as it takes a while to import."""
        return Checker()

    @property
    def only(self) -> str:
        """The options that select what is shown; empty: everything."""
        return shlex.join(words_for("rx", self._chosen))

    def run(self, post: Callable[[Event], object], requests: queue.SimpleQueue[Request]) -> None:
        """Send a frame an interval until None is requested."""
        self._post, self._requests = post, requests
        with contextlib.ExitStack() as stack:
            self._recording = stack.enter_context(OwnRecording(post))
            stack.callback(self._detach)
            if self._attach_all():
                self._loop()

    # ---- attaching ----

    def _attach_all(self) -> bool:
        """Attach what is not; say whether to go on. What the screen shows fills up meanwhile."""
        self._before: Readings | None = None
        self._check: Check | None = None
        self._sockets: SocketReport | None = None
        self._check_s = self._sockets_s = 0.0
        self._absent = dict.fromkeys(_VERBS, _ATTACHING)
        for verb in _VERBS:
            self._post(self._frame())
            try:
                self._running[verb] = attach(verb, [*words_for(verb, self._chosen), *_ALSO.get(verb, ())])
                del self._absent[verb]
            except HopscopeError as error:
                self._absent[verb] = str(error)
            if not self._requests.empty() and not self._obey(self._requests.get()):
                return False
        self._post(self._frame())
        return True

    def _detach(self) -> None:
        self._ask(None)
        for running in self._running.values():
            running.stack.close()
        self._running.clear()
        self._counters.close()

    # ---- the loop ----

    def _loop(self) -> None:
        self._own.begin()
        next_s = time.monotonic()
        window_s = cost_window_s(self._interval_s)
        while True:
            next_s = max(next_s, time.monotonic()) + self._interval_s
            if not self._wait(next_s - window_s):
                return
            every = [*self._running.values(), *([self._extra[1]] if self._extra else [])]
            measure_costs([each.collector for each in every], window_s)
            self._look_at_sockets()
            self._look_at_counters()
            measured = {verb: each.collector.interval() for verb, each in self._running.items() if verb != "sockets"}
            self._post(self._frame(**measured))
            self._answer()
            self._recording.look()

    def _wait(self, until_s: float) -> bool:
        """Wait, do what is requested, and empty rings meanwhile; say whether to go on."""
        while (left_s := until_s - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                if not self._obey(self._requests.get(timeout=min(left_s, _BETWEEN_S))):
                    return False
            for running in self._running.values():
                running.drain()
            if self._extra:
                self._extra[1].drain()
        return True

    def _obey(self, request: Request) -> bool:
        match request:
            case None:
                return False
            case Filter(chosen):
                return self._filter(chosen)
            case Ask(question):
                self._ask(question)
            case Record():
                self._recording.toggle(self._chosen)
        return True

    def _filter(self, chosen: Mapping[str, Any]) -> bool:
        try:  # a filter that names nothing leaves what is shown
            words = words_for("rx", chosen)
            attach("rx", words).stack.close()
            counters = _counters(chosen)
        except HopscopeError as error:
            self._post(Said(str(error)))
            return True
        self._detach()
        self._chosen, self._counters = chosen, counters
        self._post(Frames(()))
        return self._attach_all()

    # ---- what is shown ----

    def _frame(self, **found: Any) -> Frame:  # noqa: ANN401 # area → its result
        spent = [
            f"{verb} {fmt.per_cent(percent)}"
            for verb, each in found.items()
            if (percent := each.overhead.bpf_cpu_percent) is not None
        ]
        lost = [f"{verb} {each.lost:,}" for verb, each in found.items() if getattr(each, "lost", 0)]
        own, programs = fmt.per_cent(self._own.percent()), ", ".join(spent) or "unknown"
        cost = f"of a CPU: hopscope {own}, BPF {programs}" if found else ""
        return Frame(
            time.time_ns(),
            time.monotonic() - self._started_s,
            **found,
            sockets=self._sockets,
            check=self._check,
            absent=dict(self._absent),
            cost=cost,
            lost=", ".join(lost),
        )

    def _look_at_sockets(self) -> None:
        running = self._running.get("sockets")
        if running and time.monotonic() >= self._sockets_s:
            self._sockets_s = time.monotonic() + _SOCKETS_S
            self._sockets = running.collector.interval()

    def _look_at_counters(self) -> None:
        if time.monotonic() < self._check_s:
            return
        self._check_s = time.monotonic() + (_CHECK_S if self._before else _FIRST_CHECK_S)
        now = self._counters.read()
        if self._before is not None:
            self._check = self._checker.evaluate(self._before, now)
        self._before = now

    # ---- questions ----

    def _ask(self, question: Question | None) -> None:
        if self._extra:
            self._extra[1].stack.close()
        self._extra, self._messages = None, ()
        if question is None:
            return
        try:
            verb, words = _beside(question)
            self._extra = question, attach(verb, [*words_for(verb, self._chosen), *words])
        except HopscopeError as error:
            self._post(Answer(question, notes=[str(error)]))

    def _answer(self) -> None:
        if not self._extra:
            return
        question, running = self._extra
        snapshot = running.collector.interval()
        if question.kind == "groups" and question.area == "cpu":
            self._post(Answer(question, cpu=snapshot))
        elif question.kind == "groups":
            self._post(Answer(question, hops=snapshot.hops))
        else:
            found: Any = running.collector
            slowest = found.found.slowest("interval")
            self._messages = [self._slow(each) for each in slowest.messages] or self._messages
            self._post(Answer(question, messages=self._messages, notes=[] if self._messages else ["no message yet"]))

    def _slow(self, message: Message) -> SlowMessage:
        blame = message.blame() or ("-", 0)
        return SlowMessage(
            message.start_ns or 0,
            message.total_ns or 0,
            *blame,
            len_bytes=message.len_bytes,
            flow=message.path or "-",
            process=f"{message.comm} ({message.pid})",
            lines=layer_lines(message, self._terminal),
        )


def _counters(chosen: Mapping[str, Any]) -> CounterReader:
    names = chosen.get("namespaces")
    return CounterReader(namespaces(names) if names else None)


def _beside(question: Question) -> tuple[str, list[str]]:
    """Return the verb and the words that answer a question."""
    if question.kind == "groups":
        return question.area, [f"--group-by={question.by}"]
    return question.area, [f"--slowest={_SLOWEST}", *(word for pair in question.group for word in narrowed(*pair))]
