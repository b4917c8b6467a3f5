# SPDX-License-Identifier: Apache-2.0
"""A frame has what its event has, where the documentation says."""

from __future__ import annotations

import struct
from ipaddress import IPv6Address
from pathlib import Path

import numpy as np

from hopscope import __version__
from hopscope.live.stream.events import Assembler
from hopscope.model.event_batch import Numbers, Texts
from hopscope.store.trace import Trace
from hopscope.verbs.wire.frames import Frames, read_catalogue, thermometer
from hopscope.verbs.wire.layout import FRAME, Flag, Tlv, table

ROOT = Path(__file__).parents[3]


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
    frames = made.of(events, chosen)["event"]
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
    read = [(kind, value) for frame in made.catalogue(3, 2, 1) for kind, value in read_catalogue(frame)]
    assert {struct.unpack("!H", value[:2])[0]: value[2:].decode() for kind, value in read if kind is Tlv.POINT} == (
        metadata.points
    )
    assert (Tlv.COUNTS, struct.pack("!QQQ", 3, 2, 1)) in read
    assert (Tlv.VERSION, __version__.encode()) in read
    assert all(FRAME.itemsize < len(frame) <= 1500 for frame in made.catalogue(0, 0, 0))
