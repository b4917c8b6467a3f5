# SPDX-License-Identifier: Apache-2.0
"""`report calls` beside strace, of one run of one program, and what is said of recordings that lack something."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Final

import pytest

from hopscope.store.trace import Trace
from hopscope.trace.selection import Selection
from hopscope.verbs.report.calls import calls, summary
from tests.lab.command import hopscope
from tests.lab.traces import MadeTrace

if TYPE_CHECKING:
    from pathlib import Path

# Each kind of call, with results, errors, and one that waits.
PROGRAM: Final = """
import os, select, socket
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
waiting = select.epoll()
waiting.register(server, select.EPOLLIN)
for number in range(3):
    client.send(bytes(number + 1))
    waiting.poll(1)
    server.recv(100)
server.setblocking(False)
try:
    server.recv(10)
except BlockingIOError:
    pass
waiting.poll(0.01)
server.sendmsg([b"answer"])
os.read(client.fileno(), 100)
os.write(client.fileno(), b"xx")
with open("/dev/zero", "rb") as source:
    os.sendfile(server.fileno(), source.fileno(), None, 7)
client.shutdown(socket.SHUT_WR)
refused = socket.socket()
try:
    refused.connect(("127.0.0.1", 1))
except OSError:
    pass
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.sendto(b"abc", ("127.0.0.1", 9))
for each in (datagrams, refused, client, server, listener):
    each.close()
print("pid", os.getpid())
"""
# A line of strace -yy -T: NAME(FD<WHAT>, …) = RESULT ERROR (…) <SECONDS>
_LINE: Final = re.compile(r"(\w+)\((\d*).*\) += (-?\d+)(?:<.*>)?(?: (E\w+))?[^<]*<([\d.]+)>$")
_WAITS: Final = ("epoll_wait(", "epoll_pwait(")
Line = tuple[str, int | None, int, str | None]


def traced(path: Path) -> list[tuple[Line, int]]:
    """Return what strace saw of calls on sockets: name, descriptor, result, error; and how long each took, ns."""
    found = []
    for text in path.read_text().splitlines():
        if text.startswith(_WAITS) or "<TCP:" in text or "<UDP:" in text:
            match = _LINE.match(text)
            assert match, text
            name, fd, result, error, took_s = match.groups()
            line = name, int(fd) if fd else None, int(result), error
            found.append((line, round(float(took_s) * 1e9)))
    return found


@pytest.mark.root
def test_names_results_and_errors_are_those_of_strace(tmp_path: Path) -> None:
    folder, log = tmp_path / "trace", tmp_path / "strace"
    watched = ("strace", "-y", "-y", "-T", "-o", log, sys.executable, "-c", PROGRAM)
    done = hopscope("record", "-P", "calls", "-o", folder, "--", *watched)
    assert done.returncode == 0, done.stderr
    (pid,) = re.findall(r"^pid (\d+)$", done.stdout, re.MULTILINE)
    of_process = Selection(processes=(pid,))
    with Trace(folder) as trace:
        report, slowest, summed = (
            calls(trace, of_process),
            calls(trace, of_process, slowest=True, limit=1),
            summary(trace, of_process),
        )
        flows = {flow for name, flow in zip(report.column("call"), report.column("flow_name"), strict=True) if flow}
    lines = traced(log)
    names = ("call", "fd", "result", "error")
    ours = [
        (name, fd, -1 if error else result, error)
        for name, fd, result, error in zip(*map(report.column, names), strict=True)
    ]
    assert ours == [line for line, _ in lines]
    # strace stops the program before and after what is measured here, and says microseconds.
    took_ns = report.column("duration_ns")
    assert all(0 < own <= theirs + 1_000 for own, (_, theirs) in zip(took_ns, lines, strict=True))
    assert slowest.column("call") == ["epoll_wait"]
    assert slowest.column("duration_ns") == [max(took_ns)]
    counted = dict(zip(summed.column("call"), summed.column("calls"), strict=True))
    assert counted == {name: sum(line[0] == name for line, _ in lines) for name in counted}
    assert sum(summed.column("errors")) == sum(line[3] is not None for line, _ in lines) >= 2
    assert any(flow.endswith(" > 127.0.0.1:1") for flow in flows)


def test_a_call_without_an_end_has_no_result(tmp_path: Path) -> None:
    made = MadeTrace()
    tid = made.thread(7, "server", 7)
    flow = made.flow("10.0.0.1:40000", "10.0.0.2:80")
    other = made.flow("10.0.0.1:40000", "10.0.0.2:81")
    made.host["machine"] = "x86_64"
    made.socket("tx.sent", 500, tid=tid, sock=0x77, flow=other, protocol=6)
    made.socket("call.enter", 1_000, tid=tid, sock=0x77, seq=5, value=44, len_bytes=100)
    made.socket("call.enter", 2_000, tid=tid, sock=0x77, seq=5, value=44, len_bytes=200)
    made.socket("tx.sent", 2_500, tid=tid, sock=0x77, flow=flow, protocol=6)
    made.socket("call.exit", 3_000, tid=tid, value=44, len_bytes=200)
    made.socket("call.enter", 4_000, tid=tid, seq=3, value=999)
    with Trace(made.write(tmp_path / "trace")) as trace:
        report = calls(trace, Selection())
        assert list(zip(*map(report.column, ("call", "fd", "len_bytes", "result", "duration_ns")), strict=True)) == [
            ("sendto", 5, 100, None, None),
            ("sendto", 5, 200, 200, 1_000),
            ("system call 999", None, None, None, None),
        ]
        assert report.column("flow") == [other, flow, None]
        assert calls(trace, Selection(ports=(81,))).column("at_ns") == [1_000]
        assert summary(trace, Selection()).column("unended") == [1, 1]
    with Trace(MadeTrace().write(tmp_path / "empty")) as trace:
        assert "record with `-P calls`" in calls(trace, Selection()).notes[0]
