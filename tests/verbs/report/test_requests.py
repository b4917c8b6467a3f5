# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hopscope.store.trace import Trace
from hopscope.trace.selection import Selection
from hopscope.verbs.report.requests import requests
from tests.lab.traces import TCP, UDP, MadeTrace

if TYPE_CHECKING:
    from pathlib import Path

    from hopscope.model.report import Report

CLIENT, SERVER = 100, 200
US = 1_000


def report(made: MadeTrace, folder: Path, **selected: Any) -> Report:  # noqa: ANN401 # as of Selection
    with Trace(made.write(folder / "trace")) as trace:
        return requests(trace, Selection(**selected))


def rows(found: Report) -> list[dict[str, Any]]:
    names = [column.name for column in found.columns]
    return sorted((dict(zip(names, row, strict=True)) for row in found.rows()), key=lambda row: row["begin_ns"])


@dataclass
class Connection:
    """Two ends that write and read; what they wrote and read is counted for them."""

    made: MadeTrace
    client: str = "10.0.0.1:40000"
    server: str = "10.0.0.2:80"
    places: dict[tuple[int, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.forth = self.made.flow(self.client, self.server)
        self.back = self.made.flow(self.server, self.client)
        self.made.thread(CLIENT, "client")
        self.made.thread(SERVER, "server")

    def write(self, at: int, len_bytes: int, *, back: bool = False) -> None:
        """Put down a send call that takes 2 µs; `back`: the server's."""
        flow, tid = (self.back, SERVER) if back else (self.forth, CLIENT)
        place = self.places[flow, "tx"] = self.places.get((flow, "tx"), 1_000) + len_bytes
        own = {"flow": flow, "tid": tid, "sock": 7 + back, "protocol": TCP, "len_bytes": len_bytes}
        self.made.socket("call.enter", at, tid=tid)
        self.made.socket("tx.send", at + US, seq=place - len_bytes, **own)
        self.made.socket("tx.sent", at + 2 * US, seq=place, **own)

    def read(self, at: int, len_bytes: int, *, back: bool = False) -> None:
        """Put down a receive call that returns at `at`; `back`: the client's."""
        flow, tid = (self.back, CLIENT) if back else (self.forth, SERVER)
        place = self.places[flow, "rx"] = self.places.get((flow, "rx"), 1_000) + len_bytes
        own = {"flow": flow, "tid": tid, "sock": 8 - back, "protocol": TCP, "seq": place}
        self.made.socket("rx.read", at - 100, **own)
        self.made.socket("rx.received", at, len_bytes=len_bytes, **own)

    def ask(self, at: int, *, request: int = 97, answer: int = 1009, server_ns: int = 50 * US) -> None:
        """Put down a request that is read after 20 µs, and an answer that is read 30 µs after it was sent."""
        self.write(at, request)
        self.read(at + 20 * US, request)
        self.write(at + 20 * US + server_ns, answer, back=True)
        self.read(at + 50 * US + server_ns, answer, back=True)


def test_each_request_has_its_answer(tmp_path: Path) -> None:
    made = MadeTrace()
    connection = Connection(made)
    for number in range(23):
        connection.ask(1_000_000 + number * 100_000_000, server_ns=20_000_000 if number == 7 else 50 * US)
    found = report(made, tmp_path)
    assert found.column("total_ns")[0] == 20_050_000
    assert (found.column("blame")[0], found.column("blame_ns")[0]) == ("application", 20_000_000)
    every = rows(found)
    assert len(every) == 23
    assert {(row["request_ns"], row["answer_ns"]) for row in every} == {(20_000, 30_000)}
    assert {(row["request_bytes"], row["answer_bytes"], row["client"], row["server"]) for row in every} == {
        (97, 1009, "client (100)", "server (200)")
    }
    assert {row["flow_name"] for row in every} == {"10.0.0.1:40000 > 10.0.0.2:80"}
    assert all(row["total_ns"] == row["request_ns"] + row["server_ns"] + row["answer_ns"] for row in every)
    assert found.notes == []


def test_calls_of_one_turn_are_one_request(tmp_path: Path) -> None:
    made = MadeTrace()
    connection = Connection(made)
    connection.write(1_000_000, 10)
    connection.write(2_000_000, 20)
    connection.read(3_000_000, 7)
    connection.read(3_100_000, 23)
    connection.write(4_000_000, 5, back=True)
    connection.write(5_000_000, 6, back=True)
    connection.read(5_500_000, 4, back=True)
    connection.read(5_700_000, 7, back=True)
    (row,) = rows(report(made, tmp_path))
    assert (row["requests"], row["answers"], row["request_bytes"], row["answer_bytes"]) == (2, 2, 30, 11)
    times = (row["request_ns"], row["server_ns"], row["answer_ns"], row["total_ns"])
    assert times == (2_100_000, 1_900_000, 700_000, 4_700_000)


def test_pipelined_requests_are_not_paired(tmp_path: Path) -> None:
    made = MadeTrace()
    connection = Connection(made)
    connection.ask(1_000_000)
    connection.write(2_000_000, 11)
    connection.write(2_010_000, 12)
    connection.read(2_020_000, 11)
    connection.write(2_030_000, 101, back=True)
    connection.read(2_040_000, 12)
    connection.write(2_050_000, 102, back=True)
    connection.read(2_060_000, 203, back=True)
    connection.ask(3_000_000)
    found = report(made, tmp_path)
    assert [row["begin_ns"] for row in rows(found)] == [1_000_000, 3_000_000]
    (note,) = found.notes
    assert note.startswith("not matched: 3 on 1 connection: ")
    assert "(pipelined)" in note


def test_an_answer_before_all_was_read_is_not_paired(tmp_path: Path) -> None:
    made = MadeTrace()
    connection = Connection(made)
    connection.write(1_000_000, 50)
    connection.read(1_010_000, 20)
    connection.write(1_020_000, 7, back=True)
    connection.read(1_030_000, 30)
    connection.read(1_040_000, 7, back=True)
    found = report(made, tmp_path)
    assert not len(found)
    assert any("(pipelined)" in note for note in found.notes)


def test_what_nobody_answered_or_asked_is_said(tmp_path: Path) -> None:
    made = MadeTrace()
    first, second = Connection(made), Connection(made, client="10.0.0.1:40001")
    first.write(1_000_000, 50)
    first.read(1_010_000, 50)
    second.write(1_000_000, 50, back=True)
    second.read(1_010_000, 50, back=True)
    found = report(made, tmp_path)
    assert not len(found)
    assert found.notes[0].startswith("no answered requests")
    # Both ends have it, and it counts once.
    assert found.notes[1].startswith("not matched: 1 on 1 connection: no answer was sent during the recording")
    assert found.notes[2].startswith("not matched: 1 on 1 connection: the server sent first")


def test_the_client_is_who_sent_the_syn(tmp_path: Path) -> None:
    made = MadeTrace()
    connection = Connection(made, client="10.0.0.1:700", server="10.0.0.2:50000")
    for at, flow, flags in ((100, connection.forth, 2), (200, connection.back, 18)):
        made.packet("tx.queue", at, skb=0x100, flow=flow, len_bytes=60, header_bytes=60, tcp_flags=flags, seq=999)
    connection.ask(1_000_000)
    assert [row["flow_name"] for row in rows(report(made, tmp_path))] == ["10.0.0.1:700 > 10.0.0.2:50000"]


def test_one_end_has_its_own_times(tmp_path: Path) -> None:
    for side, tid in (("client", CLIENT), ("server", SERVER)):
        made = MadeTrace()
        connection = Connection(made)
        for number in range(5):
            connection.ask(1_000_000 * (number + 1))
        made.rows["sockets"] = [row for row in made.rows["sockets"] if row["tid"] == tid]
        found = report(made, tmp_path / side)
        every = rows(found)
        times = {(row["total_ns"], row["request_ns"], row["server_ns"], row["answer_ns"]) for row in every}
        assert times == {(100_000, None, None, None) if side == "client" else (None, None, 50_000, None)}
        assert len(every) == 5
        assert {row["answer_bytes"] for row in every[1:]} == {1009}
        assert found.notes[0].startswith("recorded at one end only: 5 on 1 connection")


def test_datagrams_are_paired(tmp_path: Path) -> None:
    made = MadeTrace()
    forth = made.flow("10.0.0.1:4000", "10.0.0.2:53", UDP)
    back = made.flow("10.0.0.2:53", "10.0.0.1:4000", UDP)

    def datagram(number: int, at: int, flow: int, sender: int, reader: int) -> None:
        skb, sock = 0x1000 + number % 5 * 0x100, 7 + (flow == back)
        told = {"flow": flow, "header_bytes": 42, "seq": number}
        for offset, point in enumerate(("tx.queue", "tx.start", "rx.driver", "rx.core", "rx.l4")):
            own = told if point in {"tx.queue", "rx.driver"} else {}
            made.packet(point, at + 1_000 * offset, skb=skb, head=skb + 64, tid=sender, len_bytes=331 + 42, **own)
        made.socket("rx.ready", at + 8_000, tid=sender, sock=sock, protocol=UDP)
        made.socket("rx.received", at + 20_000, tid=reader, sock=sock, len_bytes=331, protocol=UDP)

    for number in range(11):
        at = 1_000_000 + number * 1_000_000
        datagram(2 * number, at, forth, CLIENT, SERVER)
        datagram(2 * number + 1, at + 100_000, back, SERVER, CLIENT)
    every = rows(report(made, tmp_path))
    assert {(row["total_ns"], row["request_ns"], row["server_ns"], row["answer_ns"]) for row in every} == {
        (120_000, 20_000, 80_000, 20_000)
    }
    assert len(every) == 11
    assert {(row["protocol"], row["request_bytes"]) for row in every} == {("udp", 331)}


def test_a_part_may_be_wanted(tmp_path: Path) -> None:
    made = MadeTrace()
    first, second = Connection(made), Connection(made, client="10.0.0.1:40001")
    for number in range(3):
        first.ask(1_000_000 * (number + 1))
        second.ask(1_500_000 + 1_000_000 * number)
    assert len(report(made, tmp_path / "1", ports=[40001])) == 3
    assert len(report(made, tmp_path / "2", flows=["10.0.0.2:80>10.0.0.1:40000"])) == 3
    assert len(report(made, tmp_path / "3", from_s=0.0026, processes=["server"])) == 2


def test_an_answer_that_was_not_read_is_one_of_its_own(tmp_path: Path) -> None:
    made = MadeTrace()
    connection = Connection(made)
    connection.ask(1_000_000)
    connection.write(2_000_000, 50)
    connection.read(2_010_000, 50)
    connection.write(2_020_000, 7, back=True)
    found = report(made, tmp_path)
    assert len(found) == 1
    (note,) = found.notes
    assert note == "not matched: 1 on 1 connection: the answer was sent, but not read during the recording"
