# SPDX-License-Identifier: Apache-2.0
"""The tools that are compared, as processes: hopscope's, bpftrace with a script, and perf."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_FOLDER: Final = Path(__file__).parent
# Ours takes a second signal for impatience, and what it has to write before its end takes a while on a busy machine.
_END_AGAIN_S: Final = 15.0
_END_TRIES: Final = 4
_START_S: Final = 20
TRACING: Final = "/sys/kernel/tracing"
# Some tools need tracefs. Mounted for what runs in it alone, the host is left as it was.
_MOUNT: Final = f"mountpoint -q {TRACING} || mount -t tracefs none {TRACING}"
WITH_TRACEFS: Final = ("unshare", "--mount", "sh", "-c", f'{_MOUNT}; exec "$@"', "sh")

# However a benchmark ends, they do so on their own, as the scripts do.
_OURS: Final = (sys.executable, "-m", "hopscope")
_LIMIT: Final = ("--plan", "--duration", "120")
# A tool that is silent about it is attached when what it is to follow begins.
_SAYS_ATTACHED: Final = ("sh", "-c", "echo attached; exec sleep 120")
# As perf's scripts/python/bin/netdev-times-record has them.
_NETDEV_TIMES: Final = (
    *("net:net_dev_xmit", "net:net_dev_queue", "net:netif_receive_skb", "net:netif_rx"),
    *("skb:consume_skb", "skb:kfree_skb", "skb:skb_copy_datagram_iovec", "napi:napi_poll"),
    *("irq:irq_handler_entry", "irq:irq_handler_exit", "irq:softirq_entry", "irq:softirq_exit", "irq:softirq_raise"),
)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that is compared.

    Attributes
    ----------
    name
        In messages.
    command
        Its command line.
    seen
        Patterns of lines that it prints in the end, to either stream, if it saw what it is to see.
    """

    name: str
    command: tuple[str, ...]
    seen: tuple[str, ...]


def hopscope(verb: str, *options: str, hops: tuple[str, ...]) -> Tool:
    """Return a command of ours, which is to have samples of these hops."""
    # A line of the table; the plan has the same names, alone.
    seen = tuple(rf"^ *{re.escape(hop)} .*\d" for hop in hops)
    return Tool(f"hopscope {verb}", (*_OURS, verb, *_LIMIT, *options), seen)


def bpftrace(script: str, *arguments: str, maps: tuple[str, ...]) -> Tool:
    """Return bpftrace with a script of this folder, which is to print these maps."""
    command = (*WITH_TRACEFS, "bpftrace", str(_FOLDER / script), *arguments)
    return Tool("bpftrace", command, tuple(f"^@{name}:" for name in maps))


def cpu(hz: int) -> Tool:
    """Return the accounting, with so many looks at the stack a second (0: none) of which some must find networking."""
    tool = hopscope("cpu", *(("--breakdown", "-F", str(hz)) if hz else ()), hops=("send", "receive"))
    return replace(tool, seen=(*tool.seen, *((r"^part +busy with",) if hz else ())))


def perf(path: Path, hz: int) -> Tool:
    """Return perf, recording the stacks of all CPUs to a file."""
    options = ("-a", "-g", "-e", "cpu-clock", "-F", str(hz), "-o", str(path))
    return Tool("perf", ("perf", "record", *options, "--", *_SAYS_ATTACHED), (r"\([1-9]\d* samples\)",))


def record(folder: Path, profiles: tuple[str, ...]) -> Tool:
    """Return our recorder, writing a trace."""
    options = [word for profile in profiles for word in ("-P", profile)]
    command = (*_OURS, "record", "-o", str(folder), *options, "--", *_SAYS_ATTACHED)
    return Tool("hopscope record", command, (r"^[1-9][\d,]* events in",))


def perf_netdev_times(path: Path) -> Tool:
    """Return perf, recording to a file what its script netdev-times reads."""
    options = ("-a", "-o", str(path), *(word for event in _NETDEV_TIMES for word in ("-e", event)))
    command = (*WITH_TRACEFS, "perf", "record", *options, "--", *_SAYS_ATTACHED)
    return Tool("perf", command, (r"\([1-9]\d* samples\)",))


def trace_cmd(path: Path, subsystems: tuple[str, ...]) -> Tool:
    """Return trace-cmd, recording all events of these subsystems to a file."""
    options = [word for subsystem in subsystems for word in ("-e", subsystem)]
    command = ("unshare", "--mount", "sh", str(_FOLDER / "trace-cmd.sh"), "record", "-o", str(path), *options)
    return Tool("trace-cmd", (*command, *_SAYS_ATTACHED), (r"[1-9]\d* bytes in size",))


RX: Final = hopscope("rx", hops=("rx.core", "rx.tcp_read", "rx.udp_read"))
# Slices may be further apart than the load lasts: it need not have seen anything.
RX_BUDGET: Final = hopscope("rx", "--budget", "0.5", hops=())
RX_TOOLS: Final = {"rx": RX, "budget": RX_BUDGET, "bpftrace": bpftrace("rx.bt", maps=("core", "tcp", "read"))}


class ToolError(Exception):
    """A tool that is compared does not do its work; the message has its own words."""


@contextmanager
def running(tool: Tool) -> Iterator[None]:
    """Run a tool during the block, which begins when it is attached.

    Raises
    ------
    ToolError
        It did not start, or it did not see what it was to see.
    """
    with _started(tool) as process:
        try:
            yield
        finally:
            text, complaint = _ended(process)
    said = f"{text}\n{complaint}"
    unseen = [pattern for pattern in tool.seen if not re.search(pattern, said, re.MULTILINE)]
    if unseen:
        raise ToolError(f"{tool.name} printed no {', '.join(unseen)}: {complaint or text}")


@contextmanager
def started(tool: Tool) -> Iterator[int]:
    """Run a tool as :func:`running` does, whatever it sees; yield its pid.

    Raises
    ------
    ToolError
        It did not start.
    """
    with _started(tool) as process:
        try:
            yield process.pid
        finally:
            _ended(process)


@contextmanager
def _started(tool: Tool) -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"BPFTRACE_MAP_KEYS_MAX": "65536"}
    pipe = subprocess.PIPE
    with subprocess.Popen(tool.command, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        try:
            _wait_attached(process)
            yield process
        finally:
            if process.poll() is None:
                process.kill()


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


def taken(command: Sequence[str]) -> tuple[float, float, int]:
    """Return what a command takes, whose output goes nowhere: s, s of CPUs, bytes of memory.

    Raises
    ------
    ToolError
        It failed.
    """
    begun_s = time.monotonic()
    nowhere = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawnp(command[0], [*command], os.environ, file_actions=nowhere)
    _, status, used = os.wait4(pid, 0)
    if status:
        raise ToolError(f"{' '.join(command)} failed")
    return time.monotonic() - begun_s, used.ru_utime + used.ru_stime, used.ru_maxrss << 10
