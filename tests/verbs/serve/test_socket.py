# SPDX-License-Identifier: Apache-2.0
"""Subscriptions: each gets exactly its events or is told how many it lost, and nobody is harmed by the others."""

from __future__ import annotations

import asyncio
import contextlib
import grp
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import hopscope
from hopscope.errors import HopscopeError, UsageError
from hopscope.lab import Lab
from tests.lab.command import HOPSCOPE, complaint, environ, only, start
from tests.lab.command import hopscope as run
from tests.lab.measure import udp_pair, way
from tests.leftovers import held_by
from tests.waiting import TIMEOUT_S, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.root
POINT = "rx.l4"


@dataclass
class Server:
    """A running server of subscriptions to what passes a lab."""

    child: subprocess.Popen[str]
    path: Path
    lab: Lab

    def programs(self) -> int:
        """Return how many BPF programs its processes hold."""
        folder = Path(f"/proc/{self.child.pid}/task/{self.child.pid}")
        children = [int(each) for each in (folder / "children").read_text().split()]
        return len([kind for kind, _ in held_by(children) if kind == "prog"])

    def subscribe(self, **asked: Any) -> hopscope.Subscription:  # noqa: ANN401 # as hopscope.subscribe() takes it
        return hopscope.subscribe(path=self.path, **asked)

    def raw(self, request: object) -> socket.socket:
        """Return a connection that has sent a request of its own making."""
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.settimeout(TIMEOUT_S)
        made.connect(os.fspath(self.path))
        made.sendall(request if isinstance(request, bytes) else json.dumps(request).encode() + b"\n")
        return made


@contextlib.contextmanager
def serving(lab: Lab, path: Path, *words: object) -> Iterator[Server]:
    argv = [*HOPSCOPE, "serve", "--socket", str(path), "--buffer=4", *only(lab), *map(str, words)]
    with subprocess.Popen(
        argv, env=environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        assert child.stdout
        assert child.stderr
        try:
            assert child.stdout.readline() == f"unix:{path}\n", child.stderr.read()
            yield Server(child, path, lab)
        finally:
            child.send_signal(signal.SIGTERM)
            said = child.stderr.read()
            child.wait()
        assert (child.returncode, said) == (0, ""), said
        assert not path.exists()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Lab() as lab, serving(lab, tmp_path_factory.mktemp("serve") / "events.sock") as made:
        yield made


class Traffic:
    """Datagrams from one namespace to the other; `port` is theirs alone."""

    def __init__(self, pair: tuple[socket.socket, socket.socket]) -> None:
        self._sender, receiver = pair
        self.port = receiver.getsockname()[1]

    def send(self, count: int, length: int = 10) -> None:
        for _ in range(count):
            self._sender.send(bytes(length))

    def at(self, point: str = POINT) -> str:
        return f"point == {point} and destination_port == {self.port}"


@pytest.fixture
def traffic(server: Server) -> Iterator[Traffic]:
    with udp_pair(way(server.lab, "veth-4")) as pair:
        yield Traffic(pair)


def taken(subscription: hopscope.Subscription, count: int) -> list[dict[str, Any]]:
    """Return so many events."""
    events: list[dict[str, Any]] = []
    for event in subscription:
        events.append(event)
        if len(events) == count:
            break
    return events


def test_each_gets_its_own_events_and_all_of_them(server: Server, traffic: Traffic) -> None:
    with (
        server.subscribe(points=["packets", "rx.l4"], where=traffic.at()) as every,
        server.subscribe(points=["rx"], where=f"{traffic.at()} and len_bytes > 100", fields=["len_bytes"]) as long,
        server.raw({"points": [POINT], "where": traffic.at(), "format": "json"}) as lines,
    ):
        head = json.loads((file := lines.makefile()).readline())
        assert head["fields"] == list(every.fields)
        traffic.send(300, 10)
        traffic.send(31, 200)
        found = taken(every, 331)
        assert [event["len_bytes"] for event in taken(long, 31)] == [228] * 31
        said = [json.loads(file.readline()) for _ in range(331)]
    assert {event["point"] for event in found} == {POINT}
    assert {(event["source"], event["destination"], event["protocol"]) for event in found} == {
        ("10.77.0.1", "10.77.0.2", 17)
    }
    assert {event["interface"] for event in found} <= {"server0", None}
    times = [event["time_ns"] for event in found]
    assert times == sorted(times)
    assert said == [{**event, "flow": str(event["flow"])} for event in found]
    assert (every.lost, every.kernel_lost) == (0, 0)


def test_hops_are_those_of_a_recording(server: Server, traffic: Traffic, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    where = f"rx.core >= 0 and destination_port == {traffic.port}"
    # The point that the condition names is recorded without being listed.
    with server.subscribe(points=[], where=where, fields=["hop_ns"]) as subscription:
        recording = start("record", "-P", "packets", "-o", trace, *only(server.lab))
        eventually((trace / "hopscope.json").exists)
        traffic.send(200)
        hops = [event["hop_ns"] for event in taken(subscription, 200)]
        recording.send_signal(signal.SIGINT)
        assert recording.wait() == 0, recording.stderr
    assert min(hops) > 0
    query = "SELECT count(*) FROM packets JOIN points USING (point) JOIN flows USING (flow)"
    done = run("sql", "--json", trace, f"{query} WHERE name = 'rx.driver' AND destination_port = {traffic.port}")
    assert 200 in json.loads(done.stdout).values()


def test_the_change_of_programs_loses_nothing(server: Server, traffic: Traffic) -> None:
    over = threading.Event()
    sent = 0

    def send() -> None:
        nonlocal sent
        while not over.wait(0.0005):
            traffic.send(1)
            sent += 1

    with server.subscribe(points=[POINT], where=traffic.at(), fields=["time_ns"]) as first:
        batches = first.batches()
        sending = threading.Thread(target=send)
        sending.start()
        try:
            times = next(batches)["time_ns"].to_pylist()
            for point in ("tx.queue", "tx.start"):
                with server.subscribe(points=[point]):
                    pass
        finally:
            over.set()
            sending.join()
        while len(times) < sent:
            times += next(batches)["time_ns"].to_pylist()
    assert (len(times), times) == (sent, sorted(set(times)))


def test_who_does_not_read_loses_and_is_told_how_many(server: Server, traffic: Traffic) -> None:
    count = 20_000
    asked = {"points": [POINT], "where": traffic.at(), "format": "json", "queue": 1}
    with server.subscribe(points=[POINT], where=traffic.at()) as reader, server.raw(asked) as stalled:
        batches = reader.batches()
        for sent in range(500, count + 1, 500):  # no faster than the rings are read
            traffic.send(500)
            seen = sent - 500
            while seen < sent:
                seen += next(batches).num_rows
            assert seen == sent
        got = lost = 0
        for line in (file := stalled.makefile()):
            event = json.loads(line)
            got += "point" in event
            lost += event.get("lost", 0)
            if got + lost >= count:
                break
        file.close()
        assert got + lost == count
        assert 0 < lost < count
        assert reader.lost == 0


def test_nothing_is_attached_for_nobody(server: Server) -> None:
    eventually(lambda: server.programs() == 0)
    with server.subscribe(points=["drops"]):
        assert server.programs() > 0
    eventually(lambda: server.programs() == 0)


def test_tracepoints_come_with_their_fields(server: Server, traffic: Traffic) -> None:
    where = f"point == e_net_netif_receive_skb and len == {10 + 28}"
    with server.subscribe(points=[], events=["net:netif_receive_skb"], where=where, fields=["point", "len"]) as found:
        with server.subscribe(points=[], events=["skb:consume_*"], fields=["point"]) as other:
            traffic.send(5)
            assert {event["point"] for event in taken(other, 5)} == {"e_skb_consume_skb"}
        assert taken(found, 5) == [{"point": "e_net_netif_receive_skb", "len": 38}] * 5


def test_programs_with_asyncio_can_subscribe(server: Server, traffic: Traffic) -> None:
    async def first(count: int) -> list[int]:
        with server.subscribe(points=[POINT], where=traffic.at(), fields=["len_bytes"]) as subscription:
            traffic.send(count, 20)
            found = []
            async for event in subscription:
                found.append(event["len_bytes"])
                if len(found) == count:
                    break
            return found

    assert asyncio.run(first(3)) == [48] * 3


def test_what_came_before_can_be_had(server: Server, tmp_path: Path) -> None:
    with (
        serving(server.lab, tmp_path / "kept.sock", "--keep=60") as kept,
        udp_pair(way(server.lab, "veth-4")) as pair,
    ):
        traffic = Traffic(pair)
        asked: dict[str, Any] = {"points": [POINT], "where": traffic.at(), "fields": ["len_bytes"]}
        with kept.subscribe(**asked) as early:
            traffic.send(7)
            assert len(taken(early, 7)) == 7
            with kept.subscribe(**asked, since=60) as late:
                assert len(taken(late, 7)) == 7


@pytest.mark.parametrize(
    ("request_line", "sentence"),
    [
        (b"\xff\xfe\n", "The request is no JSON object"),
        (b"[" * 50_000 + b"\n", "The request is no JSON object"),
        (b"{" + b" " * 70_000 + b"}\n", "The request is longer than 65,536 bytes"),
        ({"version": 2}, "This hopscope serves version 1 of subscriptions, not 2"),
        ({"point": []}, "The request has an unknown member 'point'. It may have version, points"),
        ({"points": "rx"}, "points is no list of at most 256 texts"),
        ({"points": ["rx.nowhere"]}, "There is no probe point or profile rx.nowhere"),
        ({"points": ["tls.read"]}, "There is no probe point or profile tls.read"),
        ({"events": ["function:udp_sendmsg"]}, "function:udp_sendmsg is no tracepoint"),
        ({"events": ["net:nothing"]}, "net:nothing"),
        ({"events": ["net:netif_rx:len > 5"]}, "has a filter. Several may subscribe to a tracepoint: use `where`"),
        ({"where": "prot == 1"}, "Events have no field prot. Did you mean"),
        ({"where": 1}, "where is no text"),
        ({"fields": ["size"]}, "Events have no field size"),
        ({"format": "xml"}, "The format 'xml' is unknown"),
        ({"since": -1}, "since is no number from 0 to 86400"),
        ({"queue": True}, "queue is no number from 1 to 256"),
    ],
)
def test_what_cannot_be_had_is_said(server: Server, request_line: object, sentence: str) -> None:
    with server.raw(request_line) as line:
        answer = json.loads(line.makefile().readline())
    assert sentence in answer["error"]
    assert answer["exit_code"] in {1, 2}


def test_who_says_nothing_harms_nobody(server: Server, traffic: Traffic) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(200):
            stack.enter_context(server.raw(b"" if number % 2 else b"{"))
        with server.subscribe(points=[POINT], where=traffic.at()) as subscription:
            traffic.send(3)
            assert len(taken(subscription, 3)) == 3


def test_others_may_not_connect(server: Server, tmp_path: Path) -> None:
    assert stat.S_IMODE(server.path.stat().st_mode) in {0o600, 0o660}
    group = next(each for each in grp.getgrall() if each.gr_gid)
    with serving(server.lab, tmp_path / "group.sock", "--socket-group", group.gr_name) as other:
        found = other.path.stat()
        assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o660, group.gr_gid)
        pid = os.fork()
        if pid == 0:
            os.setresgid(65533, 65533, 65533)
            os.setgroups([])
            os.setresuid(65533, 65533, 65533)
            code = 1
            with contextlib.suppress(BaseException):
                try:
                    other.subscribe()
                except HopscopeError as error:
                    code = 0 if "You may not connect" in str(error) or "Nobody serves" in str(error) else 2
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    sentence = complaint(run("serve", "--socket", tmp_path / "x", "--socket-group", "nosuchgroup"), 2)
    assert sentence == "There is no group nosuchgroup. Create it: groupadd --system nosuchgroup"


def test_a_name_is_taken_over_only_from_who_has_ended(server: Server, tmp_path: Path) -> None:
    sentence = complaint(run("serve", "--socket", server.path), 2)
    assert "Another program uses it, or a file is there" in sentence
    (tmp_path / "file").write_text("mine")
    assert "a file is there" in complaint(run("serve", "--socket", tmp_path / "file"), 2)
    assert (tmp_path / "file").read_text() == "mine"
    stale = tmp_path / "stale.sock"
    with socket.socket(socket.AF_UNIX) as ended:
        ended.bind(os.fspath(stale))
    with serving(server.lab, stale) as again, again.subscribe(points=["drops"]) as found:
        assert found.not_granted == ()
    with pytest.raises(
        UsageError, match=r"Nobody serves subscriptions at .+ Start it as root: hopscope serve --socket"
    ):
        hopscope.subscribe(path=stale)


def test_the_example_shows_drops_between_the_lines_of_a_log(server: Server) -> None:
    example = Path(__file__).parents[3] / "examples" / "log_and_packets.py"
    words = [sys.executable, str(example), str(server.path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ()) as child:
        assert child.stdin
        assert child.stdout
        eventually(lambda: server.programs() > 0)
        child.stdin.write("before\n")
        child.stdin.flush()
        assert child.stdout.readline().endswith("  before\n")
        with server.lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"nobody listens", ("10.77.0.2", 9))
        assert " NO_SOCKET 10.77.0.1 > 10.77.0.2" in child.stdout.readline()
        child.stdin.close()
    assert child.returncode == 0
