# SPDX-License-Identifier: Apache-2.0
"""The process that measures: a frame an interval, as a line of JSON.

It is asked for two things: to show other traffic, by a line of the options that select traffic, and what CPU time is
divided by. Both are checked as if another host had sent them, and nothing in them opens a file.
"""

from __future__ import annotations

import contextlib
import json
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from hopscope.errors import HopscopeError, UsageError
from hopscope.model.cpu import CpuSnapshot
from hopscope.term.cpu_json import cpu_to_json
from hopscope.term.drops_json import drops_to_json
from hopscope.term.json_lines import to_json
from hopscope.term.terminal import Terminal
from hopscope.verbs.check.json import check_lines
from hopscope.verbs.frames.frame import Answer, Frame, Question, overview
from hopscope.verbs.frames.live import LiveSource, chosen_by
from hopscope.verbs.frames.source import Ask, Filter, Frames, Said
from hopscope.verbs.sockets.json import report_to_json, sockets_to_json
from hopscope.verbs.sockets.table import sign_lines
from hopscope.verbs.web.heat import over_time, upper_ns

if TYPE_CHECKING:
    from collections.abc import Callable
    from socket import socket

    from hopscope.verbs.frames.frame import Area
    from hopscope.verbs.frames.source import Event, Request
    from hopscope.verbs.sockets.report import SocketReport

_WIDTH: Final = 100
_SOCKETS: Final = 50
_LONGEST: Final = 1 << 12
# What CPU time can be divided by, beside CPUs.
_CPU_GROUPS: Final = ("process", "cgroup", "interface")


def collect(interval_s: float, line: socket) -> None:
    """Send frames until the other side has ended, or nothing can be measured any more."""
    with line.makefile("rb") as asked, line.makefile("wb") as out:
        sender = Sender(out)
        try:
            source = LiveSource({}, interval_s, Terminal(_WIDTH))
            sender.send({"kind": "ready", "interval_s": interval_s, "upper_ns": upper_ns()})
            requests: SimpleQueue[Request] = SimpleQueue()
            listening = threading.Thread(target=listen, args=(asked, requests, sender), name="requests", daemon=True)
            listening.start()
            source.run(lambda event: sender.post(event, source), requests)
        except HopscopeError as error:
            sender.send({"kind": "error", "error": str(error), "exit_code": error.exit_code})


class Sender:
    """Writes lines, whichever thread has them."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._sending = threading.Lock()

    def send(self, document: dict[str, Any]) -> None:
        """Send an object as a line."""
        with self._sending:
            self._out.write(json.dumps(document).encode() + b"\n")
            self._out.flush()

    def post(self, event: Event, source: LiveSource) -> None:
        """Send what a page shows of an event."""
        match event:
            case Frame():
                self.send({**frame_to_json(event), "only": source.only})
            case Frames():
                self.send({"kind": "restart"})
            case Answer(Question("groups", "cpu", by=by), cpu=CpuSnapshot() as snapshot):
                self.send({"kind": "cpu", "by": by, "cpu": cpu_to_json(snapshot)})
            case Answer(notes=[sentence, *_]) | Said(sentence):
                self.send({"kind": "said", "sentence": sentence})


def listen(asked: BinaryIO, requests: SimpleQueue[Request], sender: Sender) -> None:
    """Pass requests on until the other side has ended."""
    with contextlib.suppress(ConnectionError):  # it ended with something from us unread
        while text := asked.readline(_LONGEST):
            try:
                requests.put(request_of(text))
            except HopscopeError as error:
                sender.send({"kind": "said", "sentence": str(error)})
    requests.put(None)


def request_of(text: bytes) -> Request:
    """Return what the page asks for: ``{"only": OPTIONS}`` or ``{"cpu_by": KEY}``.

    Raises
    ------
    UsageError
        It asks for something else, or for what there is not.
    """
    try:
        question = json.loads(text)
    except (ValueError, RecursionError):
        question = None
    match question:
        case {"only": str(options)}:
            return Filter(chosen_by(options))
        case {"cpu_by": str(key)} if key in _CPU_GROUPS:
            return Ask(Question("groups", "cpu", by=key))
        case {"cpu_by": ""}:
            return Ask(None)
    raise UsageError("The page asks for what cannot be measured", "Load it again")


def frame_to_json(frame: Frame) -> dict[str, Any]:
    """Return a frame: of each area what the verb's --json prints, and its hops as the page draws them."""
    areas: dict[str, tuple[Any, Callable[[Any], Any]]] = {
        "rx": (frame.rx, to_json),
        "tx": (frame.tx, to_json),
        "cpu": (frame.cpu, cpu_to_json),
        "drops": (frame.drops, drops_to_json),
        "sockets": (frame.sockets, _sockets),
        "check": (frame.check, lambda check: [json.loads(each) for each in check_lines(check, frame.at_ns)][:-1]),
    }
    return {
        "kind": "frame",
        "at_ns": str(frame.at_ns),
        "since_s": frame.since_s,
        "cost": frame.cost,
        "lost": frame.lost,
        "absent": dict(frame.absent),
        "worst": [each._asdict() for each in overview(frame, unicode=True)],
        "heat": [hop for area in ("rx", "tx") for hop in _heat(frame, area)],
        # Empty ones are not absent.
        **{area: None if found is None else as_json(found) for area, (found, as_json) in areas.items()},
    }


def _sockets(report: SocketReport) -> dict[str, Any]:
    """Return the sockets with most trouble, each with the sentences that the table has below it."""
    first = report.head(_SOCKETS)
    told = (" ".join(line.strip() for line in sign_lines(first, each, Terminal(_WIDTH))) for each in range(len(first)))
    rows = [{**row, "told": text} for row, text in zip(sockets_to_json(first), told, strict=True)]
    return {**report_to_json(report), "rows": rows}


def _heat(frame: Frame, area: Area) -> list[dict[str, Any]]:
    snapshot = frame.rx if area == "rx" else frame.tx
    if snapshot is None:
        return []
    return [{"hop": row.hop, **over_time([row.histogram], snapshot.duration_s)} for row in frame.hops(area)]
