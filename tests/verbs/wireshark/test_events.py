# SPDX-License-Identifier: Apache-2.0
"""What tshark shows of frames of events is what SQL says of the recording that they were made of, row by row."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hopscope.live.wire.frames import packed_entry
from hopscope.live.wire.layout import ETHERTYPE, FRAME, VERSION, Kind, Tlv
from hopscope.store.schema import EVENT_TABLES
from hopscope.store.trace import Trace
from hopscope.trace.relation import build
from hopscope.verbs.wireshark.events import FIELDS_VARIABLE, own_fields, script
from tests.lab.command import complaint, printed
from tests.lab.command import hopscope as run
from tests.live.wired import RECORDINGS, Sender
from tests.shared import first

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

pytestmark = pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")
NS = 1_000_000_000
LOST = 7
# Fields of all events, and what SQL has for them; where it is not known, there is no field.
FIELDS = {
    "time_ns": "e.time_ns",
    "point": "p.name",
    "cpu": "e.cpu",
    "tid": "e.tid",
    "hop": "h.hop_ns",
    "packet": "e.skb",
    "flow": "coalesce(nullif(e.flow, 0), h.flow)",
    "source": "f.source",
    "source_port": "f.source_port",
    "destination": "f.destination",
    "destination_port": "f.destination_port",
    "protocol": "f.protocol",
    "len_bytes": "e.len_bytes",
    "ifindex": "e.ifindex",
    "netns": "e.netns",
    "interface": "d.name",
    "comm": "n.comm",
    "reason": "r.name",
}


@pytest.fixture(scope="module")
def senders() -> dict[str, Sender]:
    found = {name: Sender(name, follow=True) for name in ("drops", "events", "udp")}
    for sender in found.values():
        sender.frames += sender.catalogue(LOST)  # with the names of those before
    return found


def written(file: Path, frames: Iterable[bytes], realtime_offset_ns: int = 0) -> Path:
    """Write a file as tcpdump does, and return it."""
    with file.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1))
        for frame in frames:
            (time_ns,) = struct.unpack_from("!Q", frame, 30)
            seconds, ns = divmod(time_ns + realtime_offset_ns, NS)
            out.write(struct.pack("<IIII", seconds, ns, len(frame), len(frame)) + frame)
    return file


def all_of(sender: Sender) -> list[bytes]:
    return [*sender.first, *sender.frames]


def shown(file: Path, names: Sequence[str], wanted: str) -> list[list[str]]:
    """Return fields of each event."""
    words = [word for name in names for word in ("-e", f"hopwire.{name}")]
    lines = printed("wireshark", "--text", file, "--", "-Tfields", "-Y", wanted, *words).splitlines()
    return [line.split("\t") for line in lines]


def cell(value: Any) -> str:  # noqa: ANN401 # of SQL
    return "" if value is None else str(value)


def number(name: str, text: str) -> str:
    """Return a field as SQL has it."""
    if name == "hop" and text:
        return str(int(Decimal(text) * NS))
    if name == "packet" and text:
        return str(int(text, 16) - ((1 << 64) if int(text, 16) >> 63 else 0))
    return text


@pytest.mark.parametrize("name", first(["drops", "udp"]))
def test_each_packets_event_has_the_values_of_sql(senders: dict[str, Sender], name: str, tmp_path: Path) -> None:
    file = written(tmp_path / "events.pcap", all_of(senders[name]))
    found = shown(file, [*FIELDS, "source6", "destination6"], "hopwire.packet")
    with Trace(RECORDINGS / name) as trace:
        build(trace, "skb_lifetimes")
        # Of a packet whose headers are not looked at everywhere, the flow is that of its events before.
        query = f"""
            SELECT {", ".join(f"{text} AS {name}" for name, text in FIELDS.items())} FROM packets e
            JOIN points p ON p.point = e.point
            JOIN (SELECT time_ns, cpu, skb, point, time_ns - from_time_ns AS hop_ns, nullif(life_flow, 0) AS flow
                  FROM skb_lifetimes) h
              ON h.time_ns = e.time_ns AND h.cpu = e.cpu AND h.skb = e.skb AND h.point = e.point
            LEFT JOIN flows f ON f.flow = coalesce(nullif(e.flow, 0), h.flow)
            LEFT JOIN devices d ON d.netns = e.netns AND d.ifindex = e.ifindex
            LEFT JOIN (SELECT tid, max(comm) AS comm FROM threads GROUP BY tid HAVING count(DISTINCT comm) = 1) n
              ON n.tid = e.tid
            LEFT JOIN drops w ON w.time_ns = e.time_ns AND w.cpu = e.cpu AND w.skb = e.skb AND p.name = 'skb.drop'
            LEFT JOIN reasons r ON r.reason = w.reason"""
        expected = trace.rows(query)
    renamed = {row[list(FIELDS).index("tid")] for row in expected if row[list(FIELDS).index("comm")] is None}
    rows = {tuple(cell(value) for value in row) for row in expected}
    assert len(found) == len(expected) > 0
    for texts in found:
        values = [number(name, text) for name, text in zip(FIELDS, texts, strict=False)]
        for end, text in zip(("source", "destination"), texts[len(FIELDS) :], strict=True):
            values[list(FIELDS).index(end)] += text
        if int(values[3]) in renamed:
            values[list(FIELDS).index("comm")] = ""
        assert tuple(values) in rows, dict(zip(FIELDS, values, strict=True))


def test_columns_of_tables_and_of_tracepoints_have_the_values_of_sql(
    senders: dict[str, Sender], tmp_path: Path
) -> None:
    sender = senders["events"]
    file = written(tmp_path / "events.pcap", all_of(sender))
    own = {name: columns for name, columns in sender.rows.items() if name.startswith("e_")}
    tables = {name: columns for name, columns in sender.rows.items() if name in EVENT_TABLES} | own
    seen = 0
    for table, columns in tables.items():
        known = {
            *("time_ns", "cpu", "tid"),
            *(("point", "skb", "flow", "len_bytes", "ifindex", "netns") * (table not in own)),
        }
        names = [name for name in columns if name not in known]
        if not len(columns["time_ns"]) or not names:
            continue
        wanted = f"hopwire.{table}.{names[0]}"
        found = shown(file, ["time_ns", "cpu", *(f"{table}.{name}" for name in names)], wanted)
        expected = zip(*(columns[name].tolist() for name in ("time_ns", "cpu", *names)), strict=True)
        assert sorted(found) == sorted([str(value) for value in row] for row in expected)
        seen += len(found)
    assert seen == sum(len(columns["time_ns"]) for columns in tables.values())
    assert own


def test_a_filter_has_times_and_names(senders: dict[str, Sender], tmp_path: Path) -> None:
    file = written(tmp_path / "events.pcap", all_of(senders["drops"]))
    hops = [int(Decimal(text) * NS) for (text,) in shown(file, ["hop"], "hopwire.hop") if text]
    late = shown(file, ["point"], "hopwire.hop > 0.000010")
    assert len(late) == sum(hop > 10_000 for hop in hops) > 0
    dropped = shown(file, ["interface", "source"], 'hopwire.point == "skb.drop" && hopwire.reason == "NETFILTER_DROP"')
    assert {tuple(row) for row in dropped} == {("server0", "10.77.0.1")}
    assert shown(file, ["lost", "host"], f"hopwire.lost == {LOST}") == [[str(LOST), "recorder"]]


def test_without_their_names_fields_of_tracepoints_have_their_values(
    senders: dict[str, Sender], tmp_path: Path
) -> None:
    """As in a capture that has begun: what is in the catalogues is not known before."""
    sender = senders["events"]
    file = written(tmp_path / "events.pcap", all_of(sender))
    lua = tmp_path / "events.lua"
    lua.write_text(script())
    environment = {name: value for name, value in os.environ.items() if name != FIELDS_VARIABLE}
    # Twice, as where the script is installed and given, too.
    script_words = ["-X", f"lua_script:{lua}"]
    argv = ["tshark", "-r", str(file), *script_words, *script_words, "-Y", 'hopwire.point == "e_tcp_tcp_probe"']
    argv += ["-T", "fields", "-e", "hopwire.field", "-e", "hopwire.field.number"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    assert "rror" not in done.stderr
    columns = sender.rows["e_tcp_tcp_probe"]
    told = [[cell.split(",") for cell in line.split("\t")] for line in done.stdout.splitlines()]
    numbers = [name for name in told[0][0] if columns[name].dtype != object]
    place = numbers.index("snd_cwnd")
    assert [values[place] for _, values in told] == [str(value) for value in columns["snd_cwnd"].tolist()]


def test_what_a_stranger_calls_fields_harms_nothing(tmp_path: Path) -> None:
    names = [
        ("e_a", "good"),
        ("e_a", "x:text e_b.y"),
        ("e_\0", "y"),
        ("e_a..", "z"),
        *(("e_a", f"c{n}") for n in range(9999)),
    ]
    numbers = {table: at for at, (table, _) in enumerate(names)}
    entries = [packed_entry(Tlv.POINT, struct.pack("!H", number) + table.encode()) for table, number in numbers.items()]
    entries += [
        packed_entry(Tlv.FIELD, struct.pack("!HHH", numbers[table], 1, 4) + name.encode()) for table, name in names
    ]
    head = np.zeros(1, FRAME)
    head["ethertype"] = ETHERTYPE
    head["event"]["version"], head["event"]["kind"] = VERSION, Kind.CATALOGUE
    frames = []
    for entry in entries:
        head["event"]["tlv_bytes"] = len(entry)
        frames.append(head.tobytes() + entry)
    file = written(tmp_path / "strange.pcap", frames)
    found = own_fields(file)
    assert found
    assert found.keys() == {"e_a.good", *(f"e_a.c{n}" for n in range(9999))}
    assert len(shown(file, ["kind"], "hopwire")) == len(frames)


def test_what_is_no_frame_of_ours_is_said(senders: dict[str, Sender], tmp_path: Path) -> None:
    frames = all_of(senders["udp"])
    broken = [frames[0], frames[-1][:60], frames[-1][:14] + b"\x09" + frames[-1][15:], frames[-1][:130]]
    file = written(tmp_path / "broken.pcap", broken)
    lines = printed("wireshark", "--text", file, "--", "-Y", "hopwire.incomplete").splitlines()
    assert len(lines) == 2
    assert all("not a frame of this version" in line for line in lines)
    other = written(tmp_path / "other.pcap", [bytes(12) + b"\x08\x00" + bytes(60)])
    assert "has no events of `hopscope wire`" in complaint(run("wireshark", "--text", other), 2)
