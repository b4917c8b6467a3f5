# SPDX-License-Identifier: Apache-2.0
"""``hosts``: what it takes to record two hosts over ssh, beside one recording of both on this host.

The hosts are namespaces with an sshd each and a stream of TCP or a flood of UDP from one to the other. Traffic, agents,
ssh, sshd and the one who records share the CPUs. CPU time is that under load less that of the same in an idle system.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple

from bench import traffic
from bench.measure import Spread, table, turns
from bench.tools import ToolError
from hopscope.lab import Lab
from hopscope.lab.veth import CLIENT_IPV4, SERVER_IPV4
from tests.lab.sshd import Sshd, client

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROUNDS: Final = 3
_SUSTAIN_S: Final = 5
_PROFILE: Final = "packets"
# What `record` says at its end: of this host, and of each host with its agent's CPU time.
_END: Final = re.compile(
    r"([\d,]+) events in ([\d.]+) s, (none|[\d,]+) lost;(?:.*; ([\d.]+) s CPU)?",
)


class Recorded(NamedTuple):
    """What a recording came to, all hosts together.

    Attributes
    ----------
    events, lost
        As it said at its end.
    per_s
        Events a second.
    agents_s, ours_s
        CPU time of the agents, and of the process that was started.
    """

    events: int
    lost: int
    per_s: float
    agents_s: float
    ours_s: float


def run(rounds: int = ROUNDS) -> Iterator[str]:
    """Measure, and yield the report."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="hopscope-bench-")))
        lab = stack.enter_context(Lab())
        servers = {
            "a": stack.enter_context(Sshd(lab.client, folder / "a", address=CLIENT_IPV4)),
            "b": stack.enter_context(Sshd(lab.server, folder / "b", address=SERVER_IPV4)),
        }
        ssh = client(folder, servers, lab.client)
        ways = {
            "one recording": [f"--netns={lab.client.inode}", f"--netns={lab.server.inode}"],
            "two hosts, ssh": ["--host", "a", "--host", "b", "--ssh", ssh, "--netns", "self"],
        }
        rows = []
        for load in traffic.LOADS:
            measured = [
                {name: _pair(lab, folder / "out", load, ways[name]) for name in order}
                for order in turns([*ways], rounds)
            ]
            rows += [_row(load, name, [each[name] for each in measured]) for name in ways]
    yield f"profile {_PROFILE}, {_SUSTAIN_S} s each, medians of {rounds} rounds; CPU in ns an event\n"
    yield table(("load", "way", "M events/s", "lost", "agents", "who records"), rows, names=2) + "\n"


def _row(load: str, name: str, runs: Sequence[tuple[Recorded, Recorded]]) -> list[str]:
    agents = Spread.of((busy.agents_s - idle.agents_s) / busy.events * 1e9 for idle, busy in runs)
    ours = Spread.of((busy.ours_s - idle.ours_s) / busy.events * 1e9 for idle, busy in runs)
    return [
        load,
        name,
        f"{Spread.of(busy.per_s / 1e6 for _, busy in runs).median:.2f}",
        f"{sum(busy.lost for _, busy in runs)}",
        agents.shown(".0f") if agents.median > 0 else "",
        ours.shown(".0f"),
    ]


def _pair(lab: Lab, out: Path, load: str, words: Sequence[str]) -> tuple[Recorded, Recorded]:
    """Record while nothing happens, and under load."""
    idle = _recorded(out, words)
    with traffic.saturated(lab.client, load, setup=traffic.TrafficSetup(host=SERVER_IPV4, server=lab.server)):
        return idle, _recorded(out, words)


def _recorded(out: Path, words: Sequence[str]) -> Recorded:
    shutil.rmtree(out, ignore_errors=True)
    options = ("-P", _PROFILE, "-d", str(_SUSTAIN_S), "-o", str(out))
    command = (sys.executable, "-m", "hopscope", "record", *words, *options)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None  # noqa: S101 - for the type checker
        said = process.stderr.read()
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
    found = _END.findall(said)
    if not found:
        raise ToolError(f"hopscope record did not say what it recorded: {said}")
    events, lost = ([int(each[column].replace(",", "").replace("none", "0")) for each in found] for column in (0, 2))
    return Recorded(
        events=sum(events),
        lost=sum(lost),
        per_s=sum(count / float(each[1]) for count, each in zip(events, found, strict=True)),
        agents_s=sum(float(each[3] or 0) for each in found),
        ours_s=usage.ru_utime + usage.ru_stime,
    )
