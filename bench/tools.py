# SPDX-License-Identifier: Apache-2.0
"""The tools that are compared, as processes: ``hopscope rx`` with all hops, and bpftrace with ``rx.bt``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT: Final = Path(__file__).with_name("rx.bt")
_END_AGAIN_S: Final = 2.0
_END_TRIES: Final = 10
_START_S: Final = 20
# bpftrace finds classic tracepoints in tracefs. Mounted for it alone, the host is left as it was.
_WITH_TRACEFS: Final = ("unshare", "--mount", "sh", "-c", 'mount -t tracefs none /sys/kernel/tracing; exec "$@"', "sh")

# However a benchmark ends, they do so on their own, as rx.bt does.
RX: Final = (sys.executable, "-m", "hopscope", "rx", "--plan", "--duration", "120")
BPFTRACE: Final = (*_WITH_TRACEFS, "bpftrace", str(SCRIPT))
COMMANDS: Final = {"rx": RX, "bpftrace": BPFTRACE}
# What its output has at the end if it saw packets.
_SEEN: Final = {"rx": ("rx.core", "rx.tcp_read", "rx.udp_read"), "bpftrace": ("@core:", "@tcp:", "@read:")}


class ToolError(Exception):
    """A tool that is compared does not do its work; the message has its own words."""


@contextmanager
def running(name: str) -> Iterator[None]:
    """Run a tool of :data:`COMMANDS` during the block, which begins when it is attached.

    Raises
    ------
    ToolError
        It did not start, or it did not see TCP and UDP packets.
    """
    with _started(name) as tool:
        try:
            yield
        finally:
            text, complaint = _ended(tool)
    unseen = [word for word in _SEEN[name] if word not in text]
    if unseen:
        raise ToolError(f"{name} saw no {', '.join(unseen)}: {complaint or text}")


@contextmanager
def started(name: str) -> Iterator[int]:
    """Run a tool as :func:`running` does, whatever it sees; yield its pid.

    Raises
    ------
    ToolError
        It did not start.
    """
    with _started(name) as tool:
        try:
            yield tool.pid
        finally:
            _ended(tool)


@contextmanager
def _started(name: str) -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"BPFTRACE_MAP_KEYS_MAX": "65536"}
    pipe = subprocess.PIPE
    with subprocess.Popen(COMMANDS[name], stdout=pipe, stderr=pipe, text=True, env=environment) as tool:
        try:
            _wait_attached(tool)
            yield tool
        finally:
            if tool.poll() is None:
                tool.kill()


def _ended(tool: subprocess.Popen[str]) -> tuple[str, str]:
    """End a tool by Ctrl-C, as its user does, and return what it printed."""
    for _ in range(_END_TRIES):
        # bpftrace forgets a signal that comes while it does not wait for events.
        tool.send_signal(signal.SIGINT)
        try:
            return tool.communicate(timeout=_END_AGAIN_S)
        except subprocess.TimeoutExpired:
            continue
    raise ToolError(f"{tool.args!r} does not end")


def _wait_attached(tool: subprocess.Popen[str]) -> None:
    """Wait for the line that both print once they are attached."""
    assert tool.stdout is not None  # noqa: S101 - for the type checker
    alarm = threading.Timer(_START_S, tool.kill)
    alarm.start()
    try:
        # bpftrace says how many probes it will attach before it does.
        while (line := tool.stdout.readline()).startswith("Attaching"):
            pass
    finally:
        alarm.cancel()
    if not line:
        _, complaint = tool.communicate()
        raise ToolError(f"{tool.args!r} did not attach: {complaint.strip()}")
