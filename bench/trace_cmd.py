# SPDX-License-Identifier: Apache-2.0
"""trace-cmd's own PTP between two namespaces: its agent in the one, `record -A` in the other, over TCP.

It stamps by events of ftrace, so that its kernel must have these to give. Where it does not come to an end, the report
says how far it got. What it leaves in tracefs is removed, and the trace's clock is not touched.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.tools import TRACING, WITH_TRACEFS

if TYPE_CHECKING:
    from bench.clock_hosts import Hosts

_PORT: Final = "8823"
_START_S: Final = 1.0
_END_S: Final = 8.0
_INTERVAL_MS: Final = "250"
_PID_FILTER: Final = f"{TRACING}/set_ftrace_pid"
# An event that does not happen, as one there must be.
_EVENT: Final = "syscalls:sys_enter_reboot"


def sync(hosts: Hosts, seconds: float) -> str:
    """Let it compare the first two hosts, and return in a sentence what came of it."""
    if shutil.which("trace-cmd") is None:
        return "trace-cmd was left out: it is not here (Debian's trace-cmd)"
    before = _tracefs("cat", f"{TRACING}/tracing_on").stdout.strip()
    try:
        with tempfile.TemporaryDirectory() as folder:
            return f"trace-cmd's PTP (agent -N, record -A, -d): {_sync(hosts, Path(folder), seconds)}"
    finally:
        _tracefs("sh", "-c", f"rmdir {TRACING}/instances/clock_synch-*; echo {before} >{TRACING}/tracing_on")


def _tracefs(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*WITH_TRACEFS, *command], capture_output=True, text=True, check=False)


def _sync(hosts: Hosts, folder: Path, seconds: float) -> str:
    first, second = hosts.namespaces[:2]
    agent_argv = [*WITH_TRACEFS, "trace-cmd", "agent", "-N", hosts.address(0), "-p", _PORT]
    # -d: or it must be let turn ftrace on.
    record_argv = [*WITH_TRACEFS, "trace-cmd", "record", "-d", "-o", str(folder / "trace.dat"), "-e", _EVENT]
    record_argv += ["-A", f"{hosts.address(1)}:{_PORT}", "-d", "-e", _EVENT, "--tsync-interval", _INTERVAL_MS]
    with ExitStack() as stack, (folder / "log").open("wb") as log:
        # What it starts outlives it when it crashes.
        agent = stack.enter_context(
            second.popen(agent_argv, stdout=log, stderr=log, cwd=folder, start_new_session=True)
        )
        stack.callback(os.killpg, agent.pid, signal.SIGKILL)
        time.sleep(_START_S)
        record = stack.enter_context(first.popen(record_argv, stdout=log, stderr=log, cwd=folder))
        stack.callback(record.kill)
        with suppress(subprocess.TimeoutExpired):
            record.wait(seconds)
        record.send_signal(signal.SIGINT)
        try:
            code = record.wait(_END_S)
        except subprocess.TimeoutExpired:
            return f"record waits for its agent for ever, nothing was recorded{_why(folder)}"
    if code:
        return f"record ended with {code}{_why(folder)}"
    return "it recorded: compare what `trace-cmd dump --options` says of its shifts with 0"


def _why(folder: Path) -> str:
    lines = (folder / "log").read_text(encoding="utf-8", errors="replace").split("\n")
    said = " ".join(line.strip() for line in lines if line.strip())[:200]
    why = f" ({said})" if said else ""
    if _tracefs("cat", _PID_FILTER).returncode:
        return f"{why}; this kernel refuses {_PID_FILTER}, without which its agent crashes"
    return why
