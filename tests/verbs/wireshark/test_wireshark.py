# SPDX-License-Identifier: Apache-2.0
"""What tshark reads of a file of packets is what SQL says of the recording."""

from __future__ import annotations

import io
import shutil
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import hopscope
from hopscope.store.trace import Trace
from hopscope.trace.relation import build
from hopscope.trace.selection import Selection
from hopscope.verbs.export import pcapng
from tests.lab.command import complaint, printed
from tests.lab.command import hopscope as run
from tests.lab.traces import UDP, MadeTrace
from tests.shared import first

if TYPE_CHECKING:
    from collections.abc import Sequence

RECORDINGS = Path(__file__).parents[2] / "recordings"
NS = 1_000_000_000
TCP = 6
HEADERS = ("frame.len", "ip.src", "tcp.srcport", "udp.srcport", "tcp.seq_raw", "tcp.len", "tcp.flags")
ORDERED = "SELECT *, row_number() OVER (PARTITION BY packet ORDER BY time_ns, point) AS place FROM skb_lifetimes"
HOPS = f"""
    SELECT l.packet, p.name, sum(l.time_ns - coalesce(l.from_time_ns, l.time_ns)) FROM ({ORDERED}) l
    JOIN points p ON p.point = l.point WHERE l.place > 1 GROUP BY l.packet, p.name"""
TOTALS = "SELECT packet, max(time_ns) - min(time_ns) FROM skb_lifetimes GROUP BY packet"
FIRST = """
    SELECT packet, name, source, source_port, protocol, seq, len_bytes, header_bytes, tcp_flags FROM (
        SELECT l.*, p.name, f.source, f.source_port, f.protocol,
               row_number() OVER (PARTITION BY packet ORDER BY time_ns, l.point) AS known
        FROM skb_lifetimes l JOIN points p ON p.point = l.point JOIN flows f ON f.flow = l.flow) k WHERE known = 1"""

pytestmark = pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")


@pytest.fixture(scope="module")
def packets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a recording with drops."""
    return exported("drops", tmp_path_factory.mktemp("drops"))


def exported(name: str, folder: Path) -> Path:
    path = folder / f"{name}.pcapng"
    done = run("export", "pcapng", RECORDINGS / name, "-o", path)
    assert done.returncode == 0, done.stderr
    return path


def fields(file: Path, names: Sequence[str], *more: str) -> list[list[str]]:
    """Return fields of each row, as `hopscope wireshark` shows them."""
    shown = [word for name in names for word in ("-e", name)]
    lines = printed("wireshark", "--text", file, "--", "-Tfields", *shown, *more).splitlines()
    return [line.split("\t") for line in lines]


def ns(text: str) -> int:
    return int(Decimal(text) * NS)


@pytest.mark.parametrize("name", first(["drops", "tcp-rx"]))
def test_each_packet_has_its_times_lengths_and_headers(name: str, tmp_path: Path) -> None:
    with Trace(RECORDINGS / name) as trace:
        build(trace, "skb_lifetimes")
        totals, first = dict(trace.rows(TOTALS)), {packet: row for packet, *row in trace.rows(FIRST)}
        hops: dict[int, dict[str, int]] = {}
        for packet, point, spent_ns in trace.rows(HOPS):
            hops.setdefault(packet, {})[point] = spent_ns
    points = sorted({point for each in hops.values() for point in each})
    columns = ("hopscope.packet", "hopscope.total", *(f"hopscope.{each.replace('.', '_')}" for each in points))
    found = fields(exported(name, tmp_path), (*columns, *HEADERS))
    assert {int(row[0]) for row in found} == first.keys()
    for packet, total, *cells in found:
        spent = {point: ns(cell) for point, cell in zip(points, cells, strict=False) if cell}
        assert (ns(total), spent) == (totals[int(packet)], hops.get(int(packet), {}))
        shown = dict(zip(HEADERS, cells[len(points) :], strict=True))
        point, source, port, protocol, seq, len_bytes, header_bytes, flags = first[int(packet)]
        assert int(shown["frame.len"]) == len_bytes + (0 if point.startswith("tx.") else 14)
        assert shown["ip.src"] == source
        if protocol == TCP:
            assert (int(shown["tcp.seq_raw"]), int(shown["tcp.srcport"])) == (seq, port)
            assert (int(shown["tcp.len"]), int(shown["tcp.flags"], 16)) == (len_bytes - header_bytes, flags)
        elif protocol == UDP:
            assert int(shown["udp.srcport"]) == port


def test_drops_have_reason_place_and_process(packets: Path) -> None:
    wanted = {row["reason"]: row["drops"] for row in rows("drops", "drops") if row["flow_name"]}
    found = fields(packets, ("hopscope.dropped", "hopscope.at", "hopscope.comm"), "-Y", "hopscope.dropped")
    assert {reason: sum(row[0] == reason for row in found) for reason in wanted} == wanted
    senders = {(row[0], row[2]) for row in found}
    assert senders == {("NETFILTER_DROP", "client"), ("NO_SOCKET", "client"), ("QUEUE_PURGE", "server")}


@pytest.mark.parametrize("name", first(["losses", "drops"]))
def test_packets_have_the_messages_that_they_carry_and_what_held_these(name: str, tmp_path: Path) -> None:
    carried, causes = rows(name, "messages", packets=True), rows(name, "messages")
    wanted = {(row["packet"], row["message"], row["kind"] == "retransmission") for row in carried}
    names = ("packet", "message", "messages", "cause", "retransmission")
    found = fields(exported(name, tmp_path), [f"hopscope.{each}" for each in names], "-Y", "hopscope.message")
    assert {(int(packet), int(message), bool(again)) for packet, message, _, _, again in found} <= wanted
    assert sum(int(row[2]) for row in found) == len({each[:2] for each in wanted})
    blamed = {(row["begin_ns"], row["flow_name"]): row["blame"] for row in causes}
    held_by = {row["message"]: blamed[row["begin_ns"], row["flow_name"]] for row in carried}
    assert [row[3] for row in found] == [held_by[int(row[1])] for row in found] != []


def test_of_too_many_messages_packets_do_not_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = len({row["message"] for row in rows("drops", "messages", packets=True)})
    for most, has_messages in ((2 * sent, True), (sent - 1, False)):
        monkeypatch.setattr(pcapng, "_MOST_SENDS", most)
        out = io.BytesIO()
        with Trace(RECORDINGS / "drops") as trace:
            notes = pcapng.write_pcapng(trace, Selection(), out, limit=None)
        assert (b" message=" in out.getvalue()) == has_messages
        assert any("send calls and datagrams, more than" in note for note in notes) != has_messages


def rows(recording: str, report: str, **options: object) -> list[dict[str, Any]]:
    with hopscope.open(RECORDINGS / recording) as opened:
        return list(opened.report(report, **options).named_rows())


def test_other_tools_keep_the_fields(packets: Path, tmp_path: Path) -> None:
    names = ("hopscope.packet", "hopscope.total", "hopscope.dropped")
    edited, merged = tmp_path / "edited.pcapng", tmp_path / "merged.pcapng"
    subprocess.run(["editcap", packets, edited], check=True, capture_output=True)
    subprocess.run(["mergecap", "-w", merged, packets], check=True, capture_output=True)
    assert fields(edited, names) == fields(merged, names) == fields(packets, names)
    assert len(subprocess.run(["tcpdump", "-r", packets], check=True, capture_output=True).stdout.splitlines()) == len(
        fields(packets, names)
    )


def test_a_file_without_its_comments_is_named(packets: Path, tmp_path: Path) -> None:
    """A file that became pcap and pcapng again has none; editcap can remove that of the first block."""
    plain, again, stripped = (tmp_path / name for name in ("p.pcap", "p.pcapng", "s.pcapng"))
    subprocess.run(["editcap", "-F", "pcap", "-T", "ether", packets, plain], check=True, capture_output=True)
    subprocess.run(["editcap", "-F", "pcapng", plain, again], check=True, capture_output=True)
    subprocess.run(["editcap", "--discard-capture-comment", packets, stripped], check=True, capture_output=True)
    for file, said in ((again, "have no comments of hopscope"), (stripped, "does not say which fields packets have")):
        assert f"{file} {said}" in complaint(run("report", "summary", file), 2)
        shown = run("wireshark", "--text", file)
        assert shown.returncode == 0
        assert "are shown without fields; export it again" in shown.stderr
    assert f"{packets} is a file of packets, and no recording" in complaint(run("report", "summary", packets), 2)


def blocks(file: Path, *fields_of_blocks: str) -> list[list[str]]:
    """Return what tshark's dissector of the file itself says, of all blocks together."""
    words = [word for name in fields_of_blocks for word in ("-e", name)]
    line = ["tshark", "-X", "read_format:MIME Files Format", "-r", file, "-T", "fields", "-E", "separator=;", *words]
    done = subprocess.run(line, check=True, capture_output=True, text=True)
    return [cell.split(",") for cell in done.stdout.strip().split(";")]


def test_devices_have_counts_and_addresses_names(packets: Path) -> None:
    counted = "pcapng.options.option.data.interface."
    received, dropped, lost = blocks(
        packets, *(f"{counted}{name}" for name in ("received", "dropped_by_os", "dropped"))
    )
    found = fields(packets, ("hopscope.dropped",), "-Y", "hopscope.packet")
    assert sum(map(int, received)) == len(found)
    assert sum(map(int, dropped)) == sum(bool(row[0]) for row in found) > 0
    assert lost == ["0"]
    names = printed("wireshark", "--text", packets, "--", "-N", "nd", "-Tfields", "-e", "ip.src_host").splitlines()
    assert {"8153 (hopscope-netns)", "8155 (hopscope-netns)"} <= set(names)


def test_losses_are_counted_and_are_rows_where_they_are(tmp_path: Path) -> None:
    with Trace(RECORDINGS / "losses") as trace:
        wanted = [f"{lost:,}" for (lost,) in trace.rows("SELECT lost FROM losses WHERE lost > 0 ORDER BY from_ns, cpu")]
    file = exported("losses", tmp_path)
    found = fields(file, ("systemd_journal.message",), "-Y", "systemd_journal")
    assert blocks(file, "pcapng.options.option.data.interface.dropped") == [
        [str(sum(int(each.replace(",", "")) for each in wanted))]
    ]
    assert [row[0].split()[1] for row in found] == wanted != []


def test_a_process_can_call_itself_as_it_likes(tmp_path: Path) -> None:
    made = MadeTrace()
    flow = made.flow("10.0.0.1:4000", "10.0.0.2:53", UDP)
    made.thread(100, 'x" total=9us')
    made.socket("tx.send", 0, tid=100, flow=flow, protocol=UDP)
    for point, at in (("tx.queue", 1_000), ("tx.start", 3_500)):
        made.packet(point, at, skb=8, flow=flow, tid=100, len_bytes=142, header_bytes=42)
    file = tmp_path / "packets.pcapng"
    assert run("export", "pcapng", made.write(tmp_path / "trace"), "-o", file).returncode == 0
    assert fields(file, ("hopscope.total", "hopscope.tx_start", "hopscope.comm")) == [
        ["0.000002500", "0.000002500", "x' total=9us"]
    ]


def test_headers_of_either_version_and_of_any_protocol(tmp_path: Path) -> None:
    made, icmp = MadeTrace(), 1
    packets = [
        ("10.0.0.1:4000", "10.0.0.2:53", UDP, 142, 42),
        ("[fd00::1]:4000", "[fd00::2]:443", TCP, 186, 72),
        ("10.0.0.1:4000", "10.0.0.2:443", TCP, 60, 60),
        ("10.0.0.1:0", "10.0.0.2:0", icmp, 98, 0),
    ]
    for skb, (source, destination, protocol, len_bytes, header_bytes) in enumerate(packets, 8):
        flow = made.flow(source, destination, protocol)
        sizes = {"len_bytes": len_bytes, "header_bytes": header_bytes}
        made.packet("rx.driver", 1_000 * skb, skb=skb, flow=flow, seq=7, tcp_flags=18, **sizes)
    file = tmp_path / "packets.pcapng"
    assert run("export", "pcapng", made.write(tmp_path / "trace"), "-o", file).returncode == 0
    names = ("frame.protocols", "ip.checksum.status", "ipv6.dst", "ip.len", "ipv6.plen", "tcp.hdr_len", "udp.length")
    assert fields(file, names, "-o", "ip.check_checksum:TRUE") == [
        ["eth:ethertype:ip:udp", "1", "", "128", "", "", "108"],
        ["eth:ethertype:ipv6:tcp", "", "fd00::2", "", "146", "32", ""],
        ["eth:ethertype:ip:tcp", "1", "", "60", "", "40", ""],
        ["eth:ethertype:ip:icmp", "1", "", "98", "", "", ""],
    ]


def test_a_part_is_selected(packets: Path) -> None:
    whole = [row for row in fields(packets, ("hopscope.packet", "tcp.port")) if row[1]]
    words = ("wireshark", "--text", "--protocol", "tcp", "--netns", "8153", RECORDINGS / "drops", "--", "-Tfields")
    part = printed(*words, "-e", "hopscope.packet", "-e", "tcp.port")
    assert [line.split("\t") for line in part.splitlines()] == whole != []


def test_what_cannot_be_shown_is_one_sentence(packets: Path, tmp_path: Path) -> None:
    assert "tshark is not installed. Install it" in complaint(run("wireshark", "--text", packets, PATH="/nowhere"), 2)
    assert "no part of it can be selected" in complaint(run("wireshark", "--text", "--port", 1, packets), 2)
    (tmp_path / "other").write_text("text")
    assert "is no pcapng file" in complaint(run("wireshark", "--text", tmp_path / "other"), 2)
    assert "is not a trace" in complaint(run("wireshark", "--text", tmp_path), 1)
