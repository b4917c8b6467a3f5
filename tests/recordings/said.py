# SPDX-License-Identifier: Apache-2.0
"""What hopscope says of the recordings that are kept here: the commands, and their output as it is written down.

``expected/NAME.txt`` is a transcript: a line ``$ hopscope …`` for each command, then what it wrote to the standard
output, then, behind ``! ``, to the standard error output, and its exit code where that is not 0. Of long outputs the
first lines are there, of all the rest how many they are and a hash of all: not a cell may differ.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shlex
import shutil
import sys
from fnmatch import fnmatchcase
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Final
from unittest import mock

from hopscope import main

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FOLDER: Final = Path(__file__).resolve().parent
EXPECTED: Final = FOLDER / "expected"
RUNS: Final = "runs"

# Characters of an output that are written down in any case, and more of what people read.
_SHOWN: Final = 1500
_SHOWN_TEXT: Final = 3000

_TABLES: Final = (
    *("packets", "sockets", "cpu", "drops", "losses", "flows", "threads", "devices", "stacks", "symbols", "readings"),
    *("counters", "settings", "unread", "namespaces", "hosts", "clocks", "absences", "points", "reasons", "lives"),
)
_COUNTS: Final = (
    " UNION ALL ".join(f"SELECT '{table}' AS name, count(*) AS rows FROM {table}" for table in _TABLES)
    + " ORDER BY name"
)
# A flow that most packets have, of those that have as many the first one: which is said of it is asked by its name.
_FLOW: Final = (
    "SELECT name FROM packets JOIN flow_names USING (flow) WHERE source_port > 0 "
    "GROUP BY name ORDER BY count(*) DESC, name LIMIT 1"
)
# Tables that are in one recording alone, with all of their cells.
_OWN: Final = {
    "events": ("e_net_net_dev_queue", "e_net_netif_rx", "e_tcp_tcp_probe", "e_losses"),
    "losses": ("losses",),
    "two-hosts": ("hosts", "clocks"),
    "apart": ("hosts", "clocks", "absences"),
    "drops": ("stacks", "symbols"),
}
_REPORTS: Final = {
    "summary": ["--json", ""],
    "flows": ["--json", "", "--csv"],
    "tcp": ["--json", "", "--history --json --limit 50"],
    "calls": ["--json", "--summary"],
    "interrupts": ["--json", ""],
    "hops": [
        *("--json", "", "--csv", "--by flow", "--by host --json", "--by process --json"),
        *(f"--by {by} --json" for by in ("flow", "interface", "cpu", "netns")),
        *("--interface client0 --json", "--from 0.4 --until 1.1 --json"),
    ],
    "packets": ["--json", "--limit 3", "--slowest --limit 2 --json", "--flow FLOW --limit 2"],
    "messages": ["--json", "", "--csv", "--limit 2", "--process client --json", "--address 10.77.0.0/31 --json"],
    "requests": ["--json", "--limit 5", "--process server --json"],
    "network": ["--json", ""],
    "drops": ["--json", "", "--stacks", "--port 7777 --csv"],
    "netdev-times": ["--json", "--tx --limit 5", "--rx --limit 5"],
    "events": ["--json", "--limit 12", "--csv", "--flow FLOW --json"],
    "outliers": ["--json", ""],
    "compare": ["--json OTHER", "OTHER"],
    "counters": ["--json", ""],
    "moments": ["--json", ""],
}
# Of received messages, then of sent ones.
_CURVES: Final = {
    "rx": ("rx.tcp_read", "rx.tcp_wake,rx.core"),
    "tx": ("tx.ack", "--svg - tx.driver", "no.hop"),
}
# What a recording is for: the reports of it that each run of the tests compares. All others are compared by
# `tests.recordings.make --check`, which takes minutes.
MAIN: Final = {
    "tcp-rx": (
        *("messages --json", "requests --json", "packets --json", "outliers --json", "compare --json"),
        *("counters --json", "hops --by flow", "hops --by cpu --json", "check --all --json"),
    ),
    "tx": ("messages --json", "netdev-times --json"),
    "udp": ("packets --json", "messages --limit 2", "outliers"),
    "nat": ("packets --limit 3", "messages", "requests --json"),
    "two-hosts": ("messages --json", "requests --limit 5", "network*", "check", "hops --by host --json", "sql*"),
    "apart": ("messages --csv", "network --json"),
    "losses": ("packets --json", "netdev-times --rx*", "drops --json"),
    "drops": ("drops*", "packets --flow*", "check*", "counters"),
    "containers": ("counters*", "moments", "check*"),
    "events": ("packets --flow*", "sql*"),
    "flight": ("drops", "messages --json"),
    "killed": ("packets --json", "hops --csv"),
    RUNS: ("*",),
}
_ALWAYS: Final = ("summary", "flows --json", "hops --json", "events --json")


def commands(name: str, flow: str = "") -> Iterator[str]:
    """Yield what is asked of a recording, without `hopscope`, and of a flow; unless it is named, of :data:`_FLOW`."""
    if name == RUNS:
        for way, curves in _CURVES.items():
            yield from (f"cdf {curve} {RUNS}/{way}-before.jsonl {RUNS}/{way}-after.jsonl" for curve in curves)
        return
    flow = shlex.quote(flow or run(["sql", name, _FLOW, "--csv"])[0].splitlines()[1].replace(" ", ""))
    other = "tx" if name == "tcp-rx" else "tcp-rx"
    for report, variants in _REPORTS.items():
        for options in variants:
            words = options.replace("FLOW", flow).replace("OTHER", "")
            yield " ".join(filter(None, ["report", report, words.strip(), name, other if "OTHER" in options else ""]))
    yield f"check --all --json {name}"
    yield f"check {name}"
    yield f"sql --csv {name} {shlex.quote(_COUNTS)}"
    for table in _OWN.get(name, ()):
        yield f"sql --json {name} 'SELECT * FROM {table} ORDER BY ALL'"


def is_main(name: str, command: str) -> bool:
    """Tell whether each run of the tests asks for what a command says of a recording."""
    kind, *words = command.removeprefix("report ").split()
    asked = " ".join([kind, *(word for word in words if word not in MAIN)])
    return any(fnmatchcase(asked, each) for each in (*MAIN[name], *_ALWAYS))


def run(words: list[str]) -> tuple[str, str, object]:
    """Run the command line in this process; return its output, its error output and its exit code."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "COLUMNS"))}
    code: object = None
    with (
        mock.patch.dict(os.environ, {**kept, "LANG": "C.UTF-8", "COLUMNS": "80"}, clear=True),
        mock.patch.object(sys, "argv", ["hopscope", *words]),
        contextlib.redirect_stdout(streams[0]),
        contextlib.redirect_stderr(streams[1]),
    ):
        try:
            main.main()
        except SystemExit as ended:
            code = ended.code
    said = []
    for stream in streams:
        stream.flush()
        assert isinstance(stream.buffer, io.BytesIO)
        said.append(stream.buffer.getvalue().decode())
    return said[0], said[1], code or 0


def said(command: str) -> list[str]:
    """Return the transcript of a command, line by line, without the command itself."""
    out, err, code = run(shlex.split(command))
    lines = out.splitlines()
    most = _SHOWN if {"--json", "--csv", "--svg"} & set(command.split()) else _SHOWN_TEXT
    shown = 0
    for number, line in enumerate(lines):
        shown += len(line)
        if shown > most and number:
            rest = lines[number:]
            digest = hashlib.blake2b(out.encode(), digest_size=12).hexdigest()
            lines[number:] = [f"… and {len(rest)} lines more; hash of all: {digest}"]
            break
    return [*lines, *(f"! {line}" for line in err.splitlines()), *([f"exit code {code}"] if code else [])]


def copied(names: Iterable[str], folder: Path) -> None:
    """Copy recordings to where what is joined of several hosts may be written, and may be the first to be opened."""
    for name in names:
        shutil.copytree(FOLDER / name, folder / name, ignore=shutil.ignore_patterns("joined"))
        (folder / name).chmod(0o755)
    with contextlib.chdir(folder):  # a joined trace says by which names it was made, and how large it is
        run(["report", "summary", "two-hosts"])


def transcript(name: str) -> dict[str, list[str]]:
    """Return command → what was written down that it said."""
    found: dict[str, list[str]] = {}
    for line in (EXPECTED / f"{name}.txt").read_text(encoding="utf-8").split("\n")[:-1]:
        if line.startswith("$ hopscope "):
            lines = found.setdefault(line.removeprefix("$ hopscope "), [])
        else:
            lines.append(line)
    return found


def differences(command: str, expected: list[str], now: list[str]) -> str:
    """Say what differs: of rows of JSON each cell, of all else the lines."""
    found = [f"hopscope {command} said and says:"]
    for number, (before, after) in enumerate(zip_longest(expected, now, fillvalue=""), start=1):
        if before != after:
            found += _cells(number, before, after) or [f"line {number}:", f"  - {before}", f"  + {after}"]
    return "\n".join(found)


def _cells(number: int, before: str, after: str) -> list[str]:
    """Return the cells in which two rows of JSON differ, or nothing if they are none."""
    if not before.startswith("{") or not after.startswith("{"):
        return []
    old, new = json.loads(before), json.loads(after)
    names = [name for name in {**old, **new} if old.get(name, ...) != new.get(name, ...)]
    return [f"row {number}, {name}: {old.get(name, 'none')!r}, now {new.get(name, 'none')!r}" for name in names]
