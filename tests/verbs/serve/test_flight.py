# SPDX-License-Identifier: Apache-2.0
"""The flight recorder of `serve`: each trigger writes a recording that has the cause, and no failure stops the rest."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import stat
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hopscope.lab import Lab
from hopscope.live.stop import Stop
from hopscope.store.recordings import is_recording
from hopscope.store.trace import Trace
from hopscope.trace.relation import build
from hopscope.verbs.serve import flight_keeper
from hopscope.verbs.serve.flight_keeper import Flight, Keeper
from hopscope.verbs.serve.tally import FLIGHT, Tally
from tests.lab.command import HOPSCOPE, complaint, environ, hopscope, only
from tests.lab.measure import in_thread, ping, tcp_pair, udp_pair, way
from tests.verbs.serve.served import Served
from tests.waiting import TIMEOUT_S, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.root
PINGS = 23
# Of the datagrams of a flow, which come to a point.
AT = """
    SELECT count(*) FROM packets JOIN points USING (point) JOIN flows USING (flow)
    WHERE name = '{point}' AND destination_port = {port} AND source = '10.77.0.1'
"""


class OfUnixSocket(http.client.HTTPConnection):
    """HTTP on a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(os.fspath(self._path))


@dataclass
class Flying:
    """A running flight recorder, and metrics."""

    served: Served
    folder: Path
    path: Path
    lab: Lab

    def dumps(self) -> list[Path]:
        """Return the recordings that are complete, the oldest first."""
        found = [each for each in self.folder.glob("*") if is_recording(each)]
        return sorted(each for each in found if json.loads((each / "hopscope.json").read_text())["state"] == "complete")

    def the_dump(self) -> Path:
        (found,) = eventually(self.dumps)
        return found

    def post(self, path: str = "/dump", method: str = "POST") -> tuple[int, dict[str, str], dict[str, Any]]:
        connection = OfUnixSocket(self.path)
        with contextlib.closing(connection):
            connection.request(method, path)
            answer = connection.getresponse()
            body = answer.read()
            is_json = answer.getheader("content-type") == "application/json"
            return answer.status, dict(answer.getheaders()), json.loads(body) if is_json else {}

    def wait_counts(self, **wanted: int) -> None:
        """Wait until the metrics have these numbers of recordings, and none that is not named."""
        counts = {f'result="{each}"': wanted.get(each, 0) for each in ("written", "failed", "skipped")}
        name = "hopscope_flight_recordings_total"
        eventually(lambda: {key[1]: value for key, value in self.served.samples().items() if key[0] == name} == counts)


@contextlib.contextmanager
def flying(tmp_path: Path, *words: object, said: tuple[str, ...] = ()) -> Iterator[Flying]:
    """Run it for a lab, with metrics of next to nothing; at the end it has said these sentences, in parts."""
    folder, path = tmp_path / "dumps", tmp_path / "dump.sock"
    with Lab() as lab:
        argv = [
            *(*HOPSCOPE, "serve", "--listen=127.0.0.1:0", "--collect=sockets", "-i", "0.2", *only(lab), "--buffer=4"),
            *("--flight=60", f"--dumps={folder}", f"--dump-socket={path}", *map(str, words)),
        ]
        with subprocess.Popen(
            argv, env=environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as child:
            assert child.stdout
            assert child.stderr
            try:
                url = child.stdout.readline().strip()
                assert url.startswith("http://127.0.0.1:"), child.stderr.read()
                made = Flying(Served(child, int(url.split(":")[2].partition("/")[0])), folder, path, lab)
                assert child.stdout.readline() == f"keeping the last 60 s of events; unix:{path}\n"
                eventually(made.served.is_ready)
                eventually(lambda: made.served.samples()["hopscope_flight_kept_seconds", ""] > 0)
                yield made
            finally:
                child.send_signal(signal.SIGTERM)
                lines = child.stderr.read().splitlines()
                child.wait()
        assert child.returncode == 0, lines
        assert len(lines) == len(said), lines
        assert all(part in line for part, line in zip(said, lines, strict=True)), lines
        assert not path.exists()


def test_a_reason_of_drops_writes_what_came_before(tmp_path: Path) -> None:
    trigger = "drop:NO_SOCKET"
    with flying(tmp_path, "--trigger", trigger, said=(trigger,)) as it, udp_pair(way(it.lab, "veth-4")) as pair:
        assert ping(*pair, PINGS) == PINGS
        port = pair[1].getsockname()[1]
        pair[1].close()
        pair[0].send(b"nobody is there any more")
        dump = it.the_dump()
        it.wait_counts(written=1)
        with Trace(dump) as trace:
            assert trace.metadata.options["trigger"] == trigger
            assert trace.rows(AT.format(point="tx.queue", port=port)) == [(PINGS + 1,)]
            assert trace.rows(AT.format(point="rx.l4", port=port)) == [(PINGS,)]
            number = next(key for key, name in trace.metadata.reasons.items() if name == "NO_SOCKET")
            assert trace.rows(f"SELECT count(*) FROM drops WHERE reason = {number}") == [(1,)]
            ((name, interface),) = trace.rows(
                "SELECT DISTINCT comm, d.name FROM packets JOIN points USING (point) JOIN threads USING (tid)"
                " JOIN devices d USING (ifindex, netns) JOIN flows USING (flow)"
                f" WHERE points.name = 'tx.queue' AND destination_port = {port}"
            )
            assert (name, interface) == (Path("/proc/self/comm").read_text().strip(), "client0")
            assert trace.rows("SELECT count(*) > 0 FROM counters") == [(True,)]
        modes = {stat.S_IMODE(each.stat().st_mode) for each in (dump, *dump.rglob("*"))}
        assert modes == {0o600, 0o700}
    for words in (("report", "drops"), ("report", "messages"), ("explain",)):
        assert hopscope(*words, dump).returncode == 0


def test_a_late_hop_writes_it(tmp_path: Path) -> None:
    trigger = "rx.copy>150ms"
    with flying(tmp_path, "--trigger", trigger, said=(trigger,)) as it, tcp_pair(way(it.lab, "veth-4")) as pair:
        assert ping(*pair, PINGS) == PINGS
        pair[0].send(b"late")
        time.sleep(0.2)  # which is what is measured
        assert pair[1].recv(100) == b"late"
        with Trace(it.the_dump()) as trace:
            late = trace.rows(
                "SELECT name, waited_ns >= 200_000_000 FROM ("
                " SELECT name, time_ns - lag(time_ns) OVER (PARTITION BY skb ORDER BY time_ns) AS waited_ns"
                " FROM packets JOIN points USING (point)) WHERE name = 'rx.copy' AND waited_ns >= 150_000_000"
            )
            copied = trace.rows("SELECT count(*) FROM packets JOIN points USING (point) WHERE name = 'rx.copy'")
    assert (late, copied) == ([("rx.copy", True)], [(PINGS + 1,)])


@pytest.mark.slow
def test_a_finding_writes_what_came_before(tmp_path: Path) -> None:
    why = "finding: udp-receive-buffer (warning)"
    with flying(tmp_path, "--trigger", "finding:notice", said=(why,)) as it, udp_pair(way(it.lab, "veth-4")) as pair:
        pair[1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
        over = threading.Event()

        def flood() -> None:
            # Each look compares two readings: the first one has to be one without.
            while not over.wait(0.001):
                pair[0].send(bytes(1000))

        began_s = it.served.samples()["hopscope_measured_timestamp_seconds", ""]
        eventually(lambda: it.served.samples()["hopscope_measured_timestamp_seconds", ""] > began_s + 14)
        assert it.dumps() == []
        with in_thread(flood):
            try:
                dump = it.the_dump()
            finally:
                over.set()
        with Trace(dump) as trace:
            assert trace.metadata.options["trigger"] == why
            number = next(key for key, name in trace.metadata.reasons.items() if name == "SOCKET_RCVBUFF")
            assert trace.rows(f"SELECT count(*) > 0 FROM drops WHERE reason = {number}") == [(True,)]


def test_who_asks_gets_one_and_no_more_than_are_allowed(tmp_path: Path) -> None:
    said = ("SIGUSR1: the last 60 s are in ", "No recording was written (POST /dump): the last one is too recent",
            "No recording was written (SIGUSR1): the last one is too recent")  # fmt: skip
    with flying(tmp_path, "--dump-every=3600", said=said) as it, udp_pair(way(it.lab, "veth-4")) as pair:
        assert ping(*pair, PINGS) == PINGS
        it.served.child.send_signal(signal.SIGUSR1)
        with Trace(it.the_dump()) as trace:
            assert trace.metadata.options["trigger"] == "SIGUSR1"
            assert trace.rows(AT.format(point="rx.l4", port=pair[1].getsockname()[1])) == [(PINGS,)]
        status, headers, body = it.post()
        assert (status, body.keys()) == (429, {"error", "retry_after_s"})
        assert 0 < int(headers["retry-after"]) <= 3600
        it.served.child.send_signal(signal.SIGUSR1)
        it.wait_counts(written=1, skipped=2)
        assert len(it.dumps()) == 1


def test_the_socket_takes_that_and_nothing_else(tmp_path: Path) -> None:
    with flying(tmp_path, "--dump-every=0", said=("POST /dump: the last 60 s are in ",)) as it:
        assert stat.S_IMODE(it.path.stat().st_mode) == 0o600
        assert it.post(method="GET")[0] == 405
        assert it.post("/metrics", "GET")[0] == it.post("/dump/x")[0] == 404
        assert it.served.get("/dump")[0] == 404
        *_, asked = it.served.children()
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{asked}/status").read_text().splitlines())
        assert {int(status[name], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
        assert (status["Uid"].split()[1] != "0", status["Seccomp"]) == (True, "2")
        code, _, body = it.post()
        assert (code, body) == (201, {"recording": str(it.the_dump())})


def test_what_cannot_be_written_is_one_sentence_and_it_goes_on(tmp_path: Path) -> None:
    failed = "The last 60 s could not be written (POST /dump): "
    with flying(tmp_path, "--dump-every=0", said=(failed, "POST /dump: the last 60 s are in ")) as it:
        it.folder.write_text("a file is where the directory should be")
        code, _, body = it.post()
        assert (code, body) == (500, {"error": f"{failed}{it.folder} cannot be read: Not a directory"})
        it.wait_counts(failed=1)
        it.folder.unlink()
        assert it.post()[0] == 201
        it.wait_counts(written=1, failed=1)
        assert len(it.dumps()) == 1


def test_who_lives_longer_than_names_are_kept_keeps_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_keeper, "_TURN_S", 0.2)
    turns = []
    turn = flight_keeper.Names.turn
    monkeypatch.setattr(flight_keeper.Names, "turn", lambda self: (turns.append(0), turn(self)))
    none: dict[str, Any] = dict.fromkeys(("interfaces", "pids", "comms", "cgroups", "addresses", "ports"), ())
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    beats = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    beats[1].setblocking(False)  # noqa: FBT003 - as the library has it
    stop = Stop()
    with Lab() as lab, udp_pair(way(lab, "veth-4")) as lasting, contextlib.ExitStack() as stack:
        for each in (ours, theirs, *beats):
            stack.enter_context(each)
        chosen = {**none, "namespaces": [str(lab.client.inode), str(lab.server.inode)]}
        flight = Flight(0.5, 64 << 20, (), ("messages",), (), chosen, 1 << 20, tmp_path / "dumps", 64 << 20, 0)
        with Keeper(flight, Tally(FLIGHT)) as keeper, in_thread(lambda: keeper.run(stop, [theirs], beats[1])):
            try:
                with udp_pair(way(lab, "veth-4")) as gone:
                    assert ping(*gone, PINGS) == PINGS
                    ports = [each[1].getsockname()[1] for each in (gone, lasting)]
                while len(turns) < 4:
                    assert ping(*lasting, 1) == 1
                with monkeypatch.context() as broken:
                    broken.setattr(flight_keeper.Dumps, "write", lambda *_: 1 // 0)
                    ours.send(b"test")
                    failed = json.loads(ours.recv(4096))["error"]
                ours.send(b"test")
                dump = json.loads(ours.recv(4096))["recording"]
            finally:
                stop.set()
    # What nobody thought of does not end it.
    assert failed == "The last 0.5 s could not be written (test): ZeroDivisionError: integer division or modulo by zero"
    with Trace(Path(dump)) as trace:
        known = trace.rows(
            "SELECT count(*), count(f.flow) FROM packets p LEFT JOIN flows f USING (flow) WHERE p.flow <> 0"
        )
        flows = {port for (port,) in trace.rows("SELECT destination_port FROM flows")}
        threads = trace.rows(
            "SELECT DISTINCT comm FROM packets JOIN threads USING (tid) JOIN points USING (point)"
            f" JOIN flows USING (flow) WHERE name = 'tx.queue' AND destination_port = {ports[1]}"
        )
        first = trace.rows(f"SELECT min(time_ns) >= {trace.metadata.started_ns} FROM packets")
    assert known[0][0] == known[0][1] > 0
    assert (ports[0] in flows, ports[1] in flows) == (False, True)
    assert threads == [(Path("/proc/self/comm").read_text().strip(),)]
    assert first == [(True,)]


_EXEMPLAR = re.compile(r'hopscope_(\w+)_hop_seconds_bucket{hop="([\w.]+)",.* # {message="(@\d+)"} (\S+) \S+')


def exemplars_of(served: Served) -> dict[str, tuple[str, float]]:
    """Return hop → message and duration of the exemplars that there are now."""
    status, _, body = served.get(Accept="application/openmetrics-text")
    assert status == 200
    found = [_EXEMPLAR.fullmatch(line) for line in body.decode().splitlines()]
    return {each[2]: (each[3], float(each[4])) for each in found if each}


def test_an_exemplar_is_a_message_that_explain_opens(tmp_path: Path) -> None:
    words = ("--collect=rx", "--collect=tx", "--exemplars", "-i", 1)
    with flying(tmp_path, *words, said=("SIGUSR1: ",)) as it, tcp_pair(way(it.lab, "veth-4")) as pair:
        assert ping(*pair, PINGS) == PINGS
        pair[0].send(bytes(777))
        time.sleep(0.3)  # which is what is measured
        assert len(pair[1].recv(1000)) == 777

        def slow() -> dict[str, tuple[str, float]]:
            found = exemplars_of(it.served)
            return found if found.get("rx.tcp_total", ("", 0.0))[1] >= 0.3 else {}

        found = eventually(slow)
        it.served.child.send_signal(signal.SIGUSR1)
        dump = it.the_dump()
        slept_s = it.served.samples()["hopscope_receive_hop_seconds_sum", 'hop="rx.tcp_asleep",unit="packet"']
    with Trace(dump) as trace:
        build(trace, "message_causes")
        ((held_ns,),) = trace.rows("SELECT sum(held_reader_asleep_ns) FROM message_causes")
    assert slept_s == pytest.approx(held_ns / 1e9, rel=0.01)  # by two programs
    assert found["rx.tcp_asleep"][0] == found["rx.tcp_total"][0]
    assert 0.3 <= found["rx.tcp_asleep"][1] <= found["rx.tcp_total"][1]
    # Of the same message, the send call and the first that was received are told apart, and by some time.
    for hop in ("rx.tcp_total", "tx.ack"):
        done = hopscope("explain", dump, "--message", found[hop][0])
        assert done.returncode == 0, done.stderr
        assert "reader-asleep" in done.stdout
        assert re.search(r"\b777\s+bytes", done.stdout)
    said = complaint(hopscope("explain", dump, "--message", "@7"), 2)
    assert said.startswith("No message of this recording has the ID @7.")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--trigger=drop"], "--trigger is for --flight. Give --flight"),
        (["--flight=5", "--trigger=drop:NONE_SUCH"], "this kernel has no reason NONE_SUCH"),
        (["--flight=5", "--trigger=finding:bad"], "there is no such severity. Choose from critical, warning, notice"),
        (["--flight=5", "--profile=tx", "--trigger=rx.copy>1ms"], "cannot fire: rx.copy is not recorded"),
        (["--flight=5", "--dump-size=10"], "may have no room for what --flight-memory 256 keeps"),
        (["--flight=5", "--dumps=/dev/null/x"], "/dev/null is no directory"),
        (["--exemplars"], "--exemplars needs --flight"),
        (["--exemplars", "--flight=5"], "--exemplars needs --listen"),
        (["--exemplars", "--flight=5", "--listen=127.0.0.1:0", "--collect=cpu"], "--exemplars needs --collect rx"),
        (["--exemplars", "--flight=5", "--listen=127.0.0.1:0", "--budget=1"], "which --exemplars cannot have"),
        (["--exemplars", "--flight=5", "--listen=127.0.0.1:0", "-g", "netns"], "which --group-by divides"),
    ],
)
def test_check_says_what_cannot_be(words: list[str], said: str) -> None:
    assert said in complaint(hopscope("serve", "--socket=/tmp/none.sock", "--check", *words), 2)


def test_all_of_it_can_be_in_the_configuration(tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    config.write_text(f"""
listen = "127.0.0.1:0"
exemplars = true
flight = 30
trigger = ["drop", "rx.copy>10ms", "finding:warning"]
profile = ["messages", "cpu"]
point = ["call.enter"]
flight-memory = 64
dumps = "{tmp_path}/dumps"
dump-every = 60
dump-size = 512
dump-socket = "{tmp_path}/dump.sock"
""")
    done = hopscope("serve", f"--config={config}", "--check")
    assert (done.returncode, done.stdout) == (0, "The options are valid.\n"), done.stderr
    config.write_text("exemplars = 'yes'\nflight = 5\n")
    assert "exemplars is not true or false" in complaint(hopscope("serve", f"--config={config}", "--check"), 2)
