# SPDX-License-Identifier: Apache-2.0
"""``agent``: how fast blocks come from another host, and what that costs the agent there.

The host is a namespace with an sshd, reached over its loopback: sshd, ssh, the agent and we share the CPUs.
The listening agent is on our own loopback; its CPU time is with that of who listens, and encrypts.
Beside it in each round, what ssh itself reaches there, without us: ``ssh b cat`` of as many bytes.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.agent_served import SERVICE
from bench.agent_tls import Listening
from bench.measure import Spread, table, turns
from bench.tools import ToolError
from hopscope.agent.channel import Channel
from hopscope.agent.local import explain
from hopscope.agent.process import Process
from hopscope.agent.ssh import Ssh
from hopscope.agent.stream import Block
from hopscope.agent.target import Target
from hopscope.lab import Namespace
from tests.lab.sshd import Sshd, client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hopscope.agent.transport import Transport

ROUNDS: Final = 6
MEGABYTES: Final = 500
BLOCK_BYTES: Final = 1 << 20
_READ_BYTES: Final = 1 << 18
_ROOT: Final = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Taken:
    """What one transfer took.

    Attributes
    ----------
    mb_s
        10^6 bytes a second.
    agent_s, ours_s
        CPU time of the agent's process and of this one for each 10^9 bytes; None where there is no agent.
    """

    mb_s: float
    agent_s: float | None
    ours_s: float


def run(rounds: int = ROUNDS) -> Iterator[str]:
    """Measure, and yield the report."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        namespace = stack.enter_context(Namespace())
        sshd = stack.enter_context(Sshd(namespace, folder / "b"))
        ssh = client(folder, {"b": sshd}, namespace)
        serving = [sys.executable, "-m", "bench.agent_served"]
        remote = f"cd {shlex.quote(str(_ROOT))} && exec {shlex.join(serving)}"
        listening = stack.enter_context(Listening(folder / "tls"))
        ways: dict[str, Callable[[], Taken]] = {
            "agent, local": lambda: _transfer(Process(serving, explain)),
            "agent, ssh": lambda: _transfer(Ssh.of(ssh, remote).start(Target.parse("b"))),
            "agent, TLS": lambda: _over_tls(listening),
            "ssh b cat": lambda: _cat(ssh),
        }
        measured = [{name: ways[name]() for name in order} for order in turns([*ways], rounds)]
    yield f"{MEGABYTES} MB in blocks of {BLOCK_BYTES >> 20} MiB, medians of {rounds} rounds\n"
    yield f"{transfers_table(measured)}\n"


def transfers_table(rounds: Sequence[Mapping[str, Taken]]) -> str:
    """Lay out the rate of each way, its share of what ssh reaches alone, and the CPU time."""
    rows = []
    for name in rounds[0]:
        taken = [each[name] for each in rounds]
        share = Spread.of(each[name].mb_s / each["ssh b cat"].mb_s * 100 for each in rounds)
        agent = [each.agent_s for each in taken if each.agent_s is not None]
        rows.append(
            [
                name,
                Spread.of(each.mb_s for each in taken).shown(),
                f"{share.median:.0f} %",
                Spread.of(agent).shown(".2f") if agent else "",
                Spread.of(each.ours_s for each in taken).shown(".2f"),
            ]
        )
    return table(("", "MB/s", "of ssh b cat", "agent, s CPU/GB", "client, s CPU/GB"), rows)


def _over_tls(listening: Listening) -> Taken:
    before_s = listening.cpu_s()
    taken = _transfer(listening.reach())
    assert taken.agent_s is not None  # noqa: S101 - for the type checker
    encrypting_s = (listening.cpu_s() - before_s) * 1e3 / MEGABYTES
    return replace(taken, agent_s=taken.agent_s + encrypting_s)


def _transfer(transport: Transport) -> Taken:
    with Channel(transport, "client", "b") as channel:
        request = {"count": MEGABYTES * 10**6 // BLOCK_BYTES, "block_bytes": BLOCK_BYTES}
        cpu_s, start_s, size = time.process_time(), time.perf_counter(), 0
        with channel.open(SERVICE, request) as stream:
            while isinstance(got := stream.receive(), Block):
                size += len(got.data)
        took_s = time.perf_counter() - start_s
    if got is None:
        raise ToolError("the agent has not said what it took")
    return _taken(size, took_s, got.body["cpu_ns"] / 1e9, time.process_time() - cpu_s)


def _cat(ssh: str) -> Taken:
    words = [*shlex.split(ssh), "-T", "-oCompression=no", "b", f"head -c {MEGABYTES * 10**6} /dev/zero | cat"]
    cpu_s, size, start_s = time.process_time(), 0, 0.0
    with subprocess.Popen(words, stdout=subprocess.PIPE, bufsize=0) as child:
        assert child.stdout is not None  # noqa: S101 - for the type checker
        while got := child.stdout.read(_READ_BYTES):
            start_s = start_s or time.perf_counter()  # what it takes to log in is not counted for the others either
            size += len(got)
        took_s = time.perf_counter() - start_s
    if child.returncode or size != MEGABYTES * 10**6:
        raise ToolError(f"ssh b cat ended with exit code {child.returncode}")
    return _taken(size, took_s, None, time.process_time() - cpu_s)


def _taken(size: int, took_s: float, agent_s: float | None, ours_s: float) -> Taken:
    each = 1e9 / size
    return Taken(size / took_s / 1e6, None if agent_s is None else agent_s * each, ours_s * each)
