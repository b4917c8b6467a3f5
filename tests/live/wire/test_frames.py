# SPDX-License-Identifier: Apache-2.0
"""A frame has what its event has, where the documentation says."""

from __future__ import annotations

import struct
from ipaddress import IPv6Address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hopscope import __version__
from hopscope.live.stream.events import Assembler
from hopscope.live.wire.frames import Frames, read_catalogue, read_entries, thermometer
from hopscope.live.wire.layout import FRAME, MOST_BYTES, Flag, Tlv, table
from hopscope.model.event_batch import Numbers, Texts
from hopscope.store.meta import Metadata
from hopscope.store.schema import Column, Table
from hopscope.store.trace import Trace

if TYPE_CHECKING:
    from hopscope.term.ragged import Ragged

ROOT = Path(__file__).parents[3]


def heads(batch: Ragged) -> np.ndarray[Any, np.dtype[np.void]]:
    """Return the fields that all events have, of each frame."""
    return np.frombuffer(b"".join(each[: FRAME.itemsize] for each in batch.each()), FRAME)["event"]


def test_the_documentation_has_the_layout() -> None:
    text = (ROOT / "docs" / "wire.md").read_text()
    assert table() in text
    assert [f"| {flag.value} | {(flag.name or '').lower()} |" in text for flag in Flag] == [True] * len(Flag)
    assert [f"| {each.value} |" in text for each in Tlv] == [True] * len(Tlv)


def test_a_thermometer_has_all_bits_up_to_the_highest() -> None:
    values = np.array([0, 1, 2, 3, 4, 1 << 20, (1 << 20) + 1, (1 << 32) - 1], np.uint32)
    assert thermometer(values).tolist() == [(1 << int(value).bit_length()) - 1 for value in values]


def test_frames_and_catalogue_say_what_was_recorded() -> None:
    with Trace(ROOT / "tests" / "recordings" / "udp") as trace:
        metadata = trace.metadata
        assembler = Assembler(metadata)
        for name in ("flows", "threads"):
            assembler.add(name, trace.columns(f"SELECT * FROM {name}"))
        packets = trace.columns("SELECT * FROM packets ORDER BY time_ns")
    assembler.add("packets", packets)
    events = assembler.ready((1 << 63) - 1)
    made = Frames(metadata, assembler.point_names, bytes(6), bytes(6))
    chosen = packets["flow"] != 0
    frames = heads(made.of(events, chosen))
    for name in ("time_ns", "cpu", "tid", "len_bytes", "ifindex", "netns", "point"):
        assert frames[name].tolist() == packets[name][chosen].tolist(), name
    assert frames["packet"].tolist() == packets["skb"][chosen].astype(np.uint64).tolist()
    source, port = events.column("source"), events.column("source_port")
    assert isinstance(source, Texts)
    assert isinstance(port, Numbers)
    addresses = [IPv6Address(each.tobytes()) for each in frames["source"]]
    shown = [str(each.ipv4_mapped or each) for each in addresses]
    assert frames["ip_version"].tolist() == [4 if each.ipv4_mapped else 6 for each in addresses]
    assert shown == [source.names[code] for code in source.codes[chosen]]
    assert frames["source_port"].tolist() == port.values[chosen].tolist()
    assert frames["number"].tolist() == list(range(len(frames)))
    assert not (frames["flags"] & Flag.HOP).any()  # nobody asked for them
    read = [
        (kind, value)
        for frame in made.catalogue((3, 2, 1), assembler.names, 0)
        for kind, value in read_catalogue(frame)
    ]
    assert {struct.unpack("!H", value[:2])[0]: value[2:].decode() for kind, value in read if kind is Tlv.POINT} == (
        metadata.points
    )
    assert (Tlv.COUNTS, struct.pack("!QQQ", 3, 2, 1)) in read
    assert (Tlv.VERSION, __version__.encode()) in read
    assert all(FRAME.itemsize < len(frame) <= MOST_BYTES for frame in made.catalogue((0, 0, 0), assembler.names, 0))


def test_events_of_tracepoints_have_their_fields_as_the_catalogue_says() -> None:
    with Trace(ROOT / "tests" / "recordings" / "events") as trace:
        assembler = Assembler(trace.metadata)
        tables = {each.name: each for each in trace.metadata.tables if each.name != "e_losses"}
        rows = {name: trace.columns(f"SELECT * FROM {name} ORDER BY time_ns") for name in ("packets", *tables)}
        metadata = trace.metadata
    for name, columns in rows.items():
        assembler.add(name, columns)
    events = assembler.ready((1 << 63) - 1)
    made = Frames(metadata, assembler.point_names, bytes(6), bytes(6))
    batch = made.of(events, np.arange(len(events)) % 7 != 3)
    entries = [entry for frame in made.catalogue((0, 0, 0), assembler.names, 0) for entry in read_catalogue(frame)]
    points = {value[:2]: value[2:].decode() for kind, value in entries if kind is Tlv.POINT}
    fields = {value[:4]: value[4:] for kind, value in entries if kind is Tlv.FIELD}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in rows}
    times = []
    for frame, head in zip(batch.each(), heads(batch), strict=True):
        assert len(frame) == FRAME.itemsize + head["tlv_bytes"]
        times.append(int(head["time_ns"]))
        point = struct.pack("!H", head["point"])
        values: dict[str, Any] = {name: int(head[name]) for name in ("time_ns", "cpu", "tid")}
        for number, value in read_entries(frame):
            described = fields[point + struct.pack("!H", number)]
            size = int.from_bytes(described[:2])
            values[described[2:].decode()] = int.from_bytes(value, signed=True) if size else value.decode()
            assert size in {0, len(value)}
        found[points[point] if points[point] in rows else "packets"].append(values)
    assert times == sorted(times)
    chosen = (np.arange(len(events)) % 7 != 3).sum()
    assert sum(map(len, found.values())) == chosen
    for name, own in tables.items():
        kept = {row["time_ns"] for row in found[name]}
        lists = {column.name: rows[name][column.name].tolist() for column in own.columns}
        expected = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
        assert found[name] == [row for row in expected if row["time_ns"] in kept]
        assert found[name]


def test_what_has_no_room_is_cut_and_flagged() -> None:
    texts = ["", "a", "ä" * 340, "b" * 1370, "c" * 1371, "d" * 5000]
    columns = {
        **{name: np.arange(1, len(texts) + 1) for name in ("time_ns", "cpu", "tid")},
        **{name: np.array(texts, object) for name in ("first", "second")},
    }
    own = Table("e_a_b", "", tuple(Column(name, values.dtype, "") for name, values in columns.items()))
    metadata = Metadata("", 0, 0, points={0: "rx.driver"}, tables=[own])
    assembler = Assembler(metadata)
    assembler.add(own.name, columns)
    batch = Frames(metadata, assembler.point_names, bytes(6), bytes(6)).of(
        assembler.ready(100), np.ones(len(texts), bool)
    )
    for text, frame, head in zip(texts, batch.each(), heads(batch), strict=True):
        sent = [value.decode(errors="replace") for _, value in read_entries(frame)]
        assert len(frame) <= MOST_BYTES
        assert bool(head["flags"] & Flag.CUT) == (sent != [text, text])
        assert all(text.startswith(each.rstrip("\ufffd")) for each in sent)
    assert len(frame) > MOST_BYTES - 4
