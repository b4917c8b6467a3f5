# SPDX-License-Identifier: Apache-2.0
"""The process that measures: a frame an interval, as a line of JSON. It is asked for nothing, and reads nothing."""

from __future__ import annotations

import json
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from hopscope.errors import HopscopeError
from hopscope.term.cpu_json import cpu_to_json
from hopscope.term.drops_json import drops_to_json
from hopscope.term.json_lines import to_json
from hopscope.term.terminal import Terminal
from hopscope.verbs.check.json import check_lines
from hopscope.verbs.frames.frame import Frame, overview
from hopscope.verbs.frames.live import LiveSource
from hopscope.verbs.sockets.json import report_to_json, sockets_to_json
from hopscope.verbs.sockets.table import sign_lines
from hopscope.verbs.web.heat import over_time, upper_ns

if TYPE_CHECKING:
    from socket import socket

    from hopscope.verbs.frames.frame import Area
    from hopscope.verbs.frames.source import Event
    from hopscope.verbs.sockets.report import SocketReport

_WIDTH: Final = 100
_SOCKETS: Final = 50


def collect(interval_s: float, line: socket) -> None:
    """Send frames until the other side has ended, or nothing can be measured any more."""
    with line.makefile("wb") as out:

        def send(document: dict[str, Any]) -> None:
            out.write(json.dumps(document).encode() + b"\n")
            out.flush()

        def post(event: Event) -> None:
            if isinstance(event, Frame):
                send(frame_to_json(event))

        try:
            source = LiveSource({}, interval_s, Terminal(_WIDTH))
            send({"kind": "ready", "interval_s": interval_s, "upper_ns": upper_ns()})
            source.run(post, SimpleQueue())
        except HopscopeError as error:
            send({"kind": "error", "error": str(error), "exit_code": error.exit_code})


def frame_to_json(frame: Frame) -> dict[str, Any]:
    """Return a frame: of each area what the verb's --json prints, and its hops as the page draws them."""
    snapshots = {"rx": frame.rx, "tx": frame.tx}
    return {
        "kind": "frame",
        "at_ns": str(frame.at_ns),
        "since_s": frame.since_s,
        "cost": frame.cost,
        "lost": frame.lost,
        "absent": dict(frame.absent),
        "worst": [each._asdict() for each in overview(frame, unicode=True)],
        **{area: snapshot and to_json(snapshot) for area, snapshot in snapshots.items()},
        "heat": [hop for area in ("rx", "tx") for hop in _heat(frame, area)],
        "cpu": frame.cpu and cpu_to_json(frame.cpu),
        "drops": frame.drops and drops_to_json(frame.drops),
        "sockets": frame.sockets and _sockets(frame.sockets),
        "check": frame.check and [json.loads(each) for each in check_lines(frame.check, frame.at_ns)][:-1],
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
