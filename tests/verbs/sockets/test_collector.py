# SPDX-License-Identifier: Apache-2.0
"""What sockets did between two looks, with causes that are known."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hopscope.kernel.sockets.address import ends
from hopscope.kernel.sockets.filter_parse import parse
from hopscope.kernel.sockets.table import TCP, UDP
from hopscope.lab import Lab, Namespace, Tbf, shape
from hopscope.verbs.sockets.collector import SocketOptions, SocketWatch
from hopscope.verbs.sockets.groups import groups
from hopscope.verbs.sockets.report import in_order
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.verbs.sockets.report import SocketReport

pytestmark = pytest.mark.root
# Also a prime number of kilobytes.
SENT_BYTES = 1_009_000


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab() as made:
        yield made


@dataclass
class Pair:
    """A connection from the lab's client to its server."""

    client: socket.socket
    server: socket.socket
    listener: socket.socket

    def send(self, size: int) -> None:
        sending = threading.Thread(target=self.client.sendall, args=(bytes(size),))
        sending.start()
        while size:
            size -= len(self.server.recv(min(size, 1 << 20)))
        sending.join()

    @property
    def names(self) -> tuple[str, str]:
        return tuple("{}:{}".format(*each.getsockname()) for each in (self.client, self.server))  # type: ignore[return-value]


@contextlib.contextmanager
def pair(lab: Lab, port: int = 5000) -> Iterator[Pair]:
    with contextlib.ExitStack() as stack:

        def listen() -> socket.socket:
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("10.77.0.2", port))
            sock.listen()
            return sock

        listener = lab.server.call(listen)
        client = stack.enter_context(lab.client.call(socket.socket))
        client.connect(("10.77.0.2", port))
        server = stack.enter_context(listener.accept()[0])
        yield Pair(client, server, listener)


def watch(lab: Lab, *words: str, **options: object) -> SocketWatch:
    chosen = parse(words, int)
    inodes = [lab.client.inode, lab.server.inode]
    return SocketWatch(SocketOptions([TCP, UDP], chosen, namespaces=inodes, **options))  # type: ignore[arg-type]


def row_of(report: SocketReport, local: str, peer: str) -> int:
    found = list(zip(ends(report.sockets, "local"), ends(report.sockets, "peer"), strict=True))
    return found.index((local, peer))


def at_rest(look: SocketWatch) -> SocketReport:
    """Return the report of the whole once what was sent is acknowledged."""

    def acknowledged() -> list[SocketReport]:
        look.interval()
        report = look.total().head(0)
        messages = report.sockets.rows["message"]
        return [] if messages["wqueue"][messages["state"] != 10].any() else [report]

    return eventually(acknowledged, "what was sent is not acknowledged")[0]


def test_bytes_are_counted_exactly(lab: Lab) -> None:
    with pair(lab) as connection, watch(lab) as look:
        connection.send(SENT_BYTES)
        report = at_rest(look)
        client, server = connection.names
        sender, receiver = row_of(report, client, server), row_of(report, server, client)
        assert report.change.sent_bytes[[sender, receiver]].tolist() == [SENT_BYTES, 0]
        assert report.change.received_bytes[[sender, receiver]].tolist() == [0, SENT_BYTES]
        assert not report.change.new.any()
        assert report.change.gone == 0
        # The next interval begins anew.
        report = look.interval().head(0)
        assert not report.change.sent_bytes.any()
        assert report.duration_s is not None
        assert report.duration_s > 0


def test_socket_that_is_new_counts_from_its_beginning_and_one_that_vanishes_is_counted(lab: Lab) -> None:
    with watch(lab) as look:
        with pair(lab) as connection:
            connection.send(SENT_BYTES)
            report = at_rest(look)
            client, server = connection.names
            row = row_of(report, client, server)
            assert report.change.new.all()
            assert report.change.sent_bytes[row] == SENT_BYTES
            assert report.change.gone == 0
            look.interval()
        # The listener, and both ends: what is in time-wait is not read.
        gone = 0
        while len(report := look.interval().head(0)):
            gone += report.change.gone
        assert gone + report.change.gone == 3


def test_connection_that_closes_is_not_a_new_one(lab: Lab) -> None:
    with pair(lab) as connection, watch(lab, "state", "close-wait") as look:
        connection.send(SENT_BYTES)
        at_rest(look)
        _, server = connection.names
        connection.client.close()
        report = eventually(lambda: look.interval().head(0))
        assert ends(report.sockets, "local") == [server]
        assert not report.change.new.any()
        assert report.change.received_bytes[0] <= 1  # its FIN


def retransmitted(namespace: Namespace) -> int:
    text = namespace.call(Path("/proc/thread-self/net/snmp").read_text)
    names, values = (line.split() for line in text.splitlines() if line.startswith("Tcp:"))
    return int(values[names.index("RetransSegs")])


def test_retransmissions_are_those_of_the_kernels_own_counter(lab: Lab) -> None:
    with pair(lab) as connection, watch(lab) as look:
        before = retransmitted(lab.client)
        rules = (
            "add table t; add chain t c { type filter hook input priority 0; };"
            "add rule t c tcp dport 5000 numgen inc mod 23 == 0 drop"
        )
        lab.server.run(["nft", rules], check=True)
        connection.send(SENT_BYTES)
        lab.server.run(["nft", "delete", "table", "t"], check=True)
        report = at_rest(look)
        row = row_of(report, *connection.names)
        counted = retransmitted(lab.client) - before
        assert counted > 0
        assert report.change.counts["total_retrans"][row] == counted
        assert report.change.sent_bytes[row] == SENT_BYTES
        (sign,) = [value for sign, value in report.signs.of(row) if sign.name == "retransmitted"] or [None]
        share = counted / report.change["data_segs_out"][row]
        assert (sign is not None) == (share >= 0.01)
        assert sign is None or sign == pytest.approx(share)


def test_reader_that_does_not_read_limits_its_sender(lab: Lab) -> None:
    with pair(lab) as connection:
        connection.client.setblocking(False)  # noqa: FBT003
        deadline_s = time.monotonic() + 20
        # Until the window is closed, and stays so.
        while True:
            with contextlib.suppress(BlockingIOError):
                connection.client.send(bytes(1 << 20))
            look = watch(lab)
            with look:
                time.sleep(0.3)
                report = look.interval().head(0)
            row = row_of(report, *connection.names)
            if report.change.share("rwnd_limited", "busy_time")[row] > 0.99:
                break
            assert time.monotonic() < deadline_s
        names = {sign.name for sign, _ in report.signs.of(row)}
        assert "rwnd_limited" in names
        server = row_of(report, *reversed(connection.names))
        assert {"receive_buffer", "unread"} & {sign.name for sign, _ in report.signs.of(server)}
        # The worst come first, and these two are.
        assert {row, server} == {0, 1}


def test_queue_on_the_way_shows_in_the_round_trip_time(lab: Lab) -> None:
    with pair(lab) as connection:
        connection.client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        connection.send(1000)
        # A queue of 0.2 s: far more than the way takes.
        shape(lab.client, "client0", Tbf(8_000_000, limit_bytes=200_000))
        with watch(lab) as look:
            sending = threading.Thread(target=connection.send, args=(SENT_BYTES,))
            sending.start()
            inflation = 0.0
            while sending.is_alive() and inflation <= 3:
                time.sleep(0.1)
                report = look.interval().head(0)
                row = row_of(report, *connection.names)
                signs = report.signs.of(row)
                inflation = {sign.name: value for sign, value in signs}.get("rtt_inflation", 0.0)
            sending.join()
        assert inflation > 3
        assert report.sockets.rows["tcp"]["rtt"][row] > 10_000


def test_full_receive_buffer_of_udp_counts_its_drops(lab: Lab) -> None:
    def bound() -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.bind(("10.77.0.2", 5300))
        return sock

    with (
        lab.server.call(bound) as receiver,
        lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        sender.connect(("10.77.0.2", 5300))
        with watch(lab) as look:
            for _ in range(101):
                sender.send(bytes(1000))
            report = look.interval().head(0)
        row = row_of(report, "10.77.0.2:5300", "0.0.0.0:*")
        receiver.setblocking(False)  # noqa: FBT003
        arrived = 0
        with contextlib.suppress(BlockingIOError):
            while receiver.recv(2000):
                arrived += 1
        assert report.change.counts["drops"][row] == 101 - arrived > 0
        values = {sign.name: value for sign, value in report.signs.of(row)}
        assert values["dropped"] == 101 - arrived
        assert row == 0


def test_full_accept_queue_comes_first(lab: Lab) -> None:
    with pair(lab) as connection, contextlib.ExitStack() as stack:
        connection.listener.listen(2)
        for _ in range(3):
            client = stack.enter_context(lab.client.call(socket.socket))
            client.connect(("10.77.0.2", 5000))
        report = watch(lab).snapshot().head(0)
        assert ends(report.sockets, "local")[0] == "10.77.0.2:5000"
        ((sign, value),) = report.signs.of(0)
        assert (sign.name, value) == ("accept_queue", 1.5)


def test_groups_sum_up_what_is_in_them(lab: Lab) -> None:
    with pair(lab, 5000) as one, pair(lab, 5001) as two, watch(lab) as look:
        one.send(SENT_BYTES)
        two.send(2 * SENT_BYTES)
        report = at_rest(look)
        by_port = {each.group["peer-port"]: each for each in groups(report, ["peer-port"])}
        assert by_port["5000"].sent_bytes == SENT_BYTES
        assert by_port["5001"].sent_bytes == 2 * SENT_BYTES
        (ours,) = groups(report, ["process"])
        assert ours.group["process"].endswith(f"({os.getpid()})")
        assert ours.sockets == 6
        assert ours.sent_bytes == ours.received_bytes == 3 * SENT_BYTES
        by_namespace = groups(report, ["netns", "state"])
        assert sorted(each.sockets for each in by_namespace) == [2, 2, 2]
        assert {each.group["state"] for each in by_namespace} == {"established", "listening"}


def test_orders_put_the_largest_first(lab: Lab) -> None:
    with pair(lab, 5000) as one, pair(lab, 5001) as two, watch(lab) as look:
        one.send(SENT_BYTES)
        two.send(2 * SENT_BYTES)
        report = at_rest(look)
        assert ends(in_order(report, "sent").sockets, "local")[:2] == [two.names[0], one.names[0]]
        assert ends(in_order(report, "received").sockets, "local")[:2] == [two.names[1], one.names[1]]
        rtts = in_order(report, "rtt").sockets.rows["tcp"]["rtt"].astype(int)
        assert (np.diff(rtts) <= 0).all()


def test_namespace_that_goes_takes_its_sockets_along(lab: Lab) -> None:
    chosen = parse([], int)
    with Namespace() as namespace, contextlib.closing(namespace.call(socket.create_server, ("127.0.0.1", 0))):
        look = SocketWatch(SocketOptions([TCP], chosen, namespaces=[namespace.inode, lab.client.inode]))
        look.__enter__()
        assert len(look.interval()) == 1
    report = look.interval().head(0)
    assert len(report) == 0
    assert report.change.gone == 1
    assert not report.sockets.unread


def test_snapshot_asks_the_kernel_for_the_wanted_states_only(lab: Lab) -> None:
    with pair(lab):
        look = SocketWatch(
            SocketOptions([TCP], parse(["state", "listening"], int), namespaces=[lab.server.inode]), again=False
        )
        assert look.snapshot().read == 1
        every = SocketWatch(SocketOptions([TCP], parse([], int), namespaces=[lab.server.inode]), again=False)
        assert every.snapshot().read == 2
