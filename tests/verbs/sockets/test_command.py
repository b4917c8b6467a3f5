# SPDX-License-Identifier: Apache-2.0
"""``hopscope sockets`` from outside."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from typing import TYPE_CHECKING

import pytest

from hopscope.lab import Namespace
from hopscope.verbs.sockets.command import _GROUPS, _SORTS
from hopscope.verbs.sockets.groups import GROUPS
from hopscope.verbs.sockets.report import ORDERS
from tests.lab.command import assert_fits, complaint, ended, hopscope, objects, only, start
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab
    from tests.lab.command import Json

pytestmark = pytest.mark.root

PORT = 6500


@pytest.fixture
def pair(kept_lab: Lab) -> Iterator[tuple[socket.socket, socket.socket]]:
    with contextlib.ExitStack() as stack:

        def listen() -> socket.socket:
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("10.77.0.2", PORT))
            sock.listen(5)
            return sock

        listener = kept_lab.server.call(listen)
        client = stack.enter_context(kept_lab.client.call(socket.socket))
        client.connect(("10.77.0.2", PORT))
        yield client, stack.enter_context(listener.accept()[0])


def local_port(sock: socket.socket) -> int:
    port: int = sock.getsockname()[1]
    return port


def of(lines: list[Json], sock: socket.socket) -> list[Json]:
    """Return the lines of a socket."""
    return [line for line in lines if line.get("inode") == os.fstat(sock.fileno()).st_ino]


def test_table_has_a_line_a_socket_with_its_process(kept_lab: Lab, pair: tuple[socket.socket, ...]) -> None:
    done = hopscope("sockets", *only(kept_lab))
    assert (done.returncode, done.stderr) == (0, "")
    heading, *lines = [line for line in done.stdout.splitlines() if line]
    assert "3 sockets: tcp 2 established, 1 listening" in heading
    text = "\n".join(lines)
    assert f"tcp 10.77.0.1:{local_port(pair[0])} > 10.77.0.2:{PORT}" in text
    assert f"tcp 10.77.0.2:{PORT} > 10.77.0.1:{local_port(pair[0])}" in text
    assert f"tcp 10.77.0.2:{PORT} listening" in text
    assert text.count(f"({os.getpid()})") == 3
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.slow
@pytest.mark.parametrize("columns", ["40", "80", "120", "200"])
@pytest.mark.usefixtures("pair")
def test_lines_fit_the_terminal(kept_lab: Lab, columns: str) -> None:
    for options in ((), ("--details",), ("-g", "process", "-g", "state"), ("-i", "0.1", "-d", "0.2")):
        done = hopscope("sockets", *only(kept_lab), *options, COLUMNS=columns)
        assert done.returncode == 0
        assert max(map(len, done.stdout.splitlines())) <= int(columns)


def test_json_is_a_line_a_socket_that_fits_its_schema(kept_lab: Lab, pair: tuple[socket.socket, ...]) -> None:
    client, server = pair
    client.send(bytes(1009))
    head, *rows = objects(hopscope("sockets", *only(kept_lab), "--json").stdout)
    assert_fits(head, "sockets-1")
    for row in rows:
        assert_fits(row, "sockets.socket-1")
    assert (head["kind"], head["sockets"], head["read"], head["interval_s"]) == ("snapshot", 3, 3, None)
    (ours,), (theirs,) = of(rows, client), of(rows, server)
    assert (ours["local"], ours["peer"], ours["peer_port"]) == ("10.77.0.1", "10.77.0.2", PORT)
    assert ours["tcp"]["bytes_sent"] == theirs["tcp"]["bytes_received"] == theirs["receive_queue_bytes"] == 1009
    assert ours["processes"] == [{"pid": os.getpid(), "comm": ours["processes"][0]["comm"], "fd": client.fileno()}]
    assert ours["netns_inode"] == kept_lab.client.inode
    (listener,) = [row for row in rows if row["state"] == "listening"]
    assert (listener["accept_queue"], listener["backlog"], listener["send_queue_bytes"]) == (0, 5, None)


def test_intervals_have_what_happened_and_the_end_has_the_whole(kept_lab: Lab, pair: tuple[socket.socket, ...]) -> None:
    client, server = pair
    child = start("sockets", *only(kept_lab), "--json", "-i", "0.3", "--no-processes")
    assert child.stdout is not None
    lines = objects(child.stdout.readline())
    assert_fits(lines[0], "sockets-1")
    assert lines[0]["kind"] == "interval"
    for _ in range(101):
        client.send(bytes(1000))
        received = 0
        while received < 1000:
            received += len(server.recv(1000 - received))

    def sent() -> list[int]:
        return [line["change"]["sent_bytes"] for line in of(lines, client)]

    # What came before the first interval ended is in that one.
    while sum(sent()) < 101_000 and (line := child.stdout.readline()):
        lines += objects(line)
    child.send_signal(signal.SIGINT)
    code, out, err = ended(child)
    assert (code, err) == (0, "")
    lines += objects(out)
    for line in lines:
        assert_fits(line, f"{line['schema'].removeprefix('hopscope.').removesuffix('/1')}-1")
    assert [line["kind"] for line in lines if "kind" in line][-1] == "total"
    *intervals, whole = sent()
    assert sum(intervals) == whole == 101_000
    changes = [line["change"] for line in of(lines, client)]
    assert not any(change["new"] for change in changes)


@pytest.mark.usefixtures("pair")
def test_groups_are_lines_of_their_own(kept_lab: Lab) -> None:
    head, *rows = objects(hopscope("sockets", *only(kept_lab), "--json", "-g", "netns", "-g", "state").stdout)
    assert head["sockets"] == 3
    for row in rows:
        assert_fits(row, "sockets.group-1")
    assert sorted(row["sockets"] for row in rows) == [1, 1, 1]
    assert all(set(row["group"]) == {"netns", "state"} for row in rows)
    table = hopscope("sockets", *only(kept_lab), "-g", "state").stdout
    assert "established" in table
    assert "listening" in table


@pytest.mark.slow
@pytest.mark.usefixtures("pair")
def test_filter_and_flags_choose(kept_lab: Lab) -> None:
    def chosen(*words: str) -> int:
        done = hopscope("sockets", *only(kept_lab), "--json", *words)
        assert done.returncode == 0, done.stderr
        count: int = objects(done.stdout)[0]["sockets"]
        return count

    assert chosen("state", "established", "dport", "=", f":{PORT}") == 1
    assert chosen(f"sport = :{PORT}") == 2
    assert chosen("--listening") == 1
    assert chosen("--udp") == 0
    assert chosen("--tcp", "--all") >= 3
    assert chosen(f"src 10.77.0.1 and dst 10.77.0.2:{PORT}") == 1


def test_options_offer_what_there_is() -> None:
    assert set(_GROUPS) == set(GROUPS)
    assert set(_SORTS) == set(ORDERS)


@pytest.mark.slow
@pytest.mark.parametrize("order", _SORTS)
def test_every_order_is_shown(kept_lab: Lab, pair: tuple[socket.socket, ...], order: str) -> None:
    del pair
    assert hopscope("sockets", *only(kept_lab), "--no-processes", "--sort", order).returncode == 0


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["dport", "="], 2, "The filter ends too soon"),
        (["colour", "=", "red"], 2, "`colour` (word 1) is not a condition"),
        (["--netns", "no-such-namespace"], 2, "no-such-namespace"),
        (["--sort", "beauty"], 2, "beauty"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(words: list[str], code: int, why: str) -> None:
    assert why in complaint(hopscope("sockets", *words), code)


def test_details_name_everything(kept_lab: Lab, pair: tuple[socket.socket, ...]) -> None:
    client, _ = pair
    client.send(bytes(1009))
    text = " ".join(hopscope("sockets", *only(kept_lab), "--details", "state", "established").stdout.split())
    for words in (
        "congestion control: ",
        "bytes sent 1,009 B",
        "snd cwnd ",
        "rcvbuf ",
        f"pid {os.getpid()} fd {client.fileno()}",
    ):
        assert words in text


@pytest.mark.usefixtures("pair")
def test_it_ends_after_a_duration_and_shows_the_whole(kept_lab: Lab) -> None:
    done = hopscope("sockets", *only(kept_lab), "-i", "0.2", "-d", "0.5")
    assert done.returncode == 0
    assert done.stdout.count("sockets  20") == 4  # three intervals and the whole
    assert "total" in done.stdout
    assert "cost: " in done.stdout


def test_a_namespace_that_is_read_may_go(kept_lab: Lab) -> None:
    with Namespace() as namespace:
        child = start(
            "sockets", f"--netns={namespace.inode}", f"--netns={kept_lab.client.inode}", "--json", "-i", "0.1"
        )
        assert child.stdout is not None
        assert str(namespace.inode) in objects(child.stdout.readline())[0]["namespaces"]
    seen: list[Json] = []

    def gone() -> bool:
        assert child.stdout is not None
        seen.append(objects(child.stdout.readline())[0])
        return "namespaces" in seen[-1] and str(namespace.inode) not in seen[-1]["namespaces"]

    eventually(gone, "it is still there")
    child.send_signal(signal.SIGINT)
    assert ended(child)[0] == 0
    assert not any(line.get("unread") for line in seen)
