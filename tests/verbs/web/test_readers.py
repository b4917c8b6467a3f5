# SPDX-License-Identifier: Apache-2.0
"""Questions that nobody waits for any more, and processes that cannot be interrupted."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hopscope.errors import HopscopeError
from hopscope.verbs.web import keeper, readers
from hopscope.verbs.web.keeper import ask_for, received
from hopscope.verbs.web.readers import Keeper, Reader, whole
from hopscope.verbs.web.serve import serve
from tests.lab.command import environ
from tests.verbs.web.served import RECORDINGS, Site, children, serving
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

# Between its rows, the engine looks whether it is interrupted; within one, it does not, and neither does NumPy.
JOIN = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"
ONE_ROW = "SELECT levenshtein(repeat('a', 2000000), repeat('b', 2000000))"
QUERY = {"ask": "sql", "query": "SELECT 6 * 7 AS found"}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serving(RECORDINGS / "udp") as made:
        yield made


def reading(site: Site) -> list[int]:
    """Return the processes that read the recording, in the order in which they were started."""
    return children(children(site.child.pid)[0])


def found(answer: dict[str, Any]) -> list[int]:
    return [row["found"] for row in answer["rows"]]


def wait_for_work(pids: list[int]) -> None:
    """Wait until these processes have taken a second of CPU time since now: one is in the middle of a question."""

    def ticks() -> int:
        stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
        return sum(int(user) + int(system) for *_, user, system in (each[:13] for each in stats))

    enough = ticks() + os.sysconf("SC_CLK_TCK")
    eventually(lambda: ticks() >= enough, "nothing is computed")


@pytest.mark.parametrize(("query", "is_replaced"), [(JOIN, False), (ONE_ROW, True)], ids=["rows", "one row"])
def test_who_opens_the_page_anew_does_not_wait_for_what_was_asked_before(
    site: Site,
    query: str,
    is_replaced: bool,  # noqa: FBT001 # a parameter of the test
) -> None:
    assert site.ask(QUERY)[0] == 200
    before = reading(site)
    question = json.dumps({"ask": "sql", "query": query}).encode()
    with contextlib.ExitStack() as stack:
        for _ in range(4):  # also those that wait for their turn: to compute all of them takes minutes
            gone = stack.enter_context(contextlib.closing(http.client.HTTPConnection("127.0.0.1", site.port)))
            gone.request("POST", "/api/ask", question, {"Cookie": site.cookie, "Origin": site.base.rstrip("/")})
        wait_for_work(before)
    assert found(site.ask(QUERY)[1]) == [42]
    after = reading(site)
    assert len(after) == 3
    assert (set(after) != set(before)) is is_replaced


KEEP = """
import socket, sys
from pathlib import Path
from hopscope.verbs.web.keeper import keep
keep(Path(sys.argv[2]), None, socket.socket(fileno=int(sys.argv[1])))
"""


@pytest.fixture
def line() -> Iterator[socket.socket]:
    """Return what asks a keeper, which is a process of its own."""
    ours, theirs = socket.socketpair()
    argv = [sys.executable, "-c", KEEP, str(theirs.fileno()), str(RECORDINGS / "udp")]
    with ours, theirs, subprocess.Popen(argv, env=environ(), pass_fds=[theirs.fileno()]) as child:
        theirs.close()
        yield ours
        ours.close()
    assert child.returncode == 0


@pytest.mark.parametrize("query", [JOIN, ONE_ROW], ids=["rows", "one row"])
def test_what_takes_too_long_is_a_sentence_and_the_next_question_is_answered(
    query: str, line: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answers() -> list[dict[str, Any]]:
        ask_for(line, 0)
        reader = Reader(0, received(line), Keeper(line), opening=True)
        assert (await whole(reader, QUERY))[0]["status"] == 200
        monkeypatch.setattr(readers, "_LONGEST_S", 0.2)
        slow = await whole(reader, {"ask": "sql", "query": query})
        monkeypatch.undo()
        async with reader.asked({"ask": "export", "form": "csv"}):
            pass  # whoever downloads it goes away before the first part
        quick = [await whole(reader, QUERY) for _ in range(2)]
        reader.close()
        return [json.loads(each) for _, each in (slow, *quick)]

    slow, *quick = asyncio.run(answers())
    assert slow["error"].endswith("was given up. Select a shorter period.")
    assert [found(each) for each in quick] == [[42], [42]]


def test_a_process_that_ended_is_replaced(site: Site) -> None:
    assert (site.ask(QUERY)[0], _about(site)[0]) == (200, 200)  # they have it open
    for pid in reading(site):
        os.kill(pid, signal.SIGKILL)
    for ask, name in ((lambda: site.ask(QUERY), "rows"), (lambda: _about(site), "recording")):
        status, answer = ask()
        assert (status, "was killed by SIGKILL (" in answer["error"]) == (502, True)
        assert answer["error"].endswith("Ask again: another one is started.")
        status, answer = ask()
        assert (status, bool(answer[name])) == (200, True)


def _about(site: Site) -> tuple[int, Any]:
    status, _, data = site.send("/api/about")
    return status, json.loads(data)


def test_a_process_that_cannot_be_started_is_a_sentence(site: Site) -> None:
    assert site.ask(QUERY)[0] == 200
    starter = children(site.child.pid)[0]
    before = resource.prlimit(starter, resource.RLIMIT_NOFILE)
    resource.prlimit(starter, resource.RLIMIT_NOFILE, (4, before[1]))
    for pid in reading(site):
        os.kill(pid, signal.SIGKILL)
    said = [site.ask(QUERY)[1]["error"] for _ in range(2)]
    assert said[1] == "No process can be started that reads the recording: Too many open files. Ask again later."
    resource.prlimit(starter, resource.RLIMIT_NOFILE, before)
    assert site.ask(QUERY)[0] == 200


@pytest.mark.parametrize("ends", ["keep", "read"])
def test_the_command_says_how_a_process_ended_before_it_had_the_recording_open(
    ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, ends, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(HopscopeError, match="The process that reads the recording was killed by SIGKILL"):
        serve(RECORDINGS / "udp", None, interval_s=None, port=0, browser=False, clients=None)
