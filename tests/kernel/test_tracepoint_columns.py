# SPDX-License-Identifier: Apache-2.0
"""Records become columns: every value as it was, whatever the field's type."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.errors import FormatError
from hopscope.kernel import tracepoint_columns
from hopscope.kernel.tracepoint_columns import EventColumns, texts
from hopscope.kernel.tracepoint_format import Field
from hopscope.libbpf import perf_ring

if TYPE_CHECKING:
    from collections.abc import Sequence

NUMBERS = {(size, signed): "bhiq"["1248".index(str(size))] for size in (1, 2, 4, 8) for signed in (False, True)}
COMMON = ["time_ns", "cpu", "tid"]


class Event(NamedTuple):
    """A record's own bytes, of a thread on a CPU."""

    raw: bytes
    time_ns: int = 1
    cpu: int = 0
    tid: int = 0


def batch(events: Sequence[Event]) -> tuple[np.ndarray, np.ndarray]:
    """Return the ring's words and where each record starts."""
    joined, starts = b"", []
    for event in events:
        starts.append(len(joined) // 8)
        padded = event.raw + bytes(-(len(event.raw) + 4) % 8)
        size = 52 + len(padded)
        joined += struct.pack(
            "=IHHQiiqiIQI", perf_ring.SAMPLE, 1, size, 7, 0, event.tid, event.time_ns, event.cpu, 0, 1, len(padded)
        )
        joined += padded
    return np.frombuffer(joined, np.uint64), np.array(starts, np.int64)


def number(name: str, offset: int, size: int, *, signed: bool) -> Field:
    return Field(name, f"type {name}", offset, size, size, 1, signed)


def string(offset: int, **more: Any) -> Field:  # noqa: ANN401 # as Field takes them
    return Field("name", "__data_loc char[] name", offset, 4, 1, 0, **{"text": True, "where": "record", **more})


@st.composite
def numbered(draw: st.DrawFn) -> tuple[list[Field], list[list[int]], list[Event]]:
    """Fields at increasing offsets, with values."""
    fields, offset = [], 8
    for index, (size, signed) in enumerate(draw(st.lists(st.sampled_from(list(NUMBERS)), min_size=1, max_size=8))):
        offset += draw(st.integers(0, 3))
        fields.append(number(f"f{index}", offset, size, signed=signed))
        offset += size
    rows, events = [], []
    for _ in range(draw(st.integers(0, 5))):
        raw, row = bytearray(offset), []
        for field in fields:
            low, high = (
                (-(2 ** (8 * field.size - 1)), 2 ** (8 * field.size - 1))
                if field.signed
                else (0, 2 ** (8 * field.size))
            )
            row.append(draw(st.integers(low, high - 1)))
            raw[field.offset : field.offset + field.size] = row[-1].to_bytes(field.size, "little", signed=field.signed)
        rows.append(row)
        events.append(
            Event(bytes(raw), draw(st.integers(0, 2**62)), draw(st.integers(0, 1000)), draw(st.integers(0, 2**22)))
        )
    return fields, rows, events


@given(numbered())
def test_numbers_keep_their_values_and_are_signed(made: tuple[list[Field], list[list[int]], list[Event]]) -> None:
    fields, rows, events = made
    found = EventColumns("net", "x", fields).columns(*batch(events))
    assert list(found) == [*COMMON, *(field.name for field in fields)]
    assert found["time_ns"].tolist() == [event.time_ns for event in events]
    assert found["cpu"].tolist() == [event.cpu for event in events]
    assert found["tid"].tolist() == [event.tid for event in events]
    for index, field in enumerate(fields):
        column = found[field.name]
        assert column.dtype.kind == "i"
        values = [row[index] for row in rows]
        if (field.size, field.signed) == (8, False):
            assert column.view(np.uint64).tolist() == values
        else:
            assert column.tolist() == values


@given(
    st.lists(st.tuples(st.text(max_size=40).map(lambda text: text.replace("\0", "")), st.integers(0, 9)), max_size=20)
)
def test_text_behind_the_record_is_read(rows: list[tuple[str, int]]) -> None:
    events = []
    for text, gap in rows:
        encoded = text.encode() + b"\0"
        events.append(Event(struct.pack("=QIi", 0, len(encoded) << 16 | 16 + gap, -5) + bytes(gap) + encoded))
    found = EventColumns("net", "x", [string(8), number("n", 12, 4, signed=True)]).columns(*batch(events))
    assert found["name"].tolist() == [text for text, _ in rows]
    assert found["n"].tolist() == [-5] * len(rows)


def test_a_place_may_count_from_the_field() -> None:
    events = [Event(struct.pack("=QIi", 0, 4 << 16 | 4, 3) + b"eth\0"), Event(struct.pack("=QIi", 0, 0, 3))]
    found = EventColumns("net", "x", [string(8, where="field")]).columns(*batch(events))
    assert found["name"].tolist() == ["eth", ""]


def test_text_that_claims_to_go_on_behind_its_record_is_refused() -> None:
    events = [Event(struct.pack("=QII", 0, 32 << 16 | 16, 0) + b"eth\0"), Event(bytes(64))]
    with pytest.raises(FormatError, match="shorter than it says"):
        EventColumns("net", "x", [string(8)]).columns(*batch(events))
    with pytest.raises(FormatError, match="shorter than it says"):
        EventColumns("net", "x", [number("n", 4000, 8, signed=True)]).columns(*batch(events))


def test_arrays_of_numbers_become_a_column_an_item_if_they_are_short() -> None:
    short = Field("args", "unsigned long args[3]", 8, 24, 8, 3)
    long = Field("slots", "u16 slots[9]", 32, 18, 2, 9)
    raw = struct.pack("=Q3Q9H", 0, 1, 2**64 - 1, 3, *range(9))
    found = EventColumns("net", "x", [short, long]).columns(*batch([Event(raw)]))
    assert {name: column.tolist() for name, column in found.items() if name not in COMMON} == {
        "args_0": [1],
        "args_1": [-1],
        "args_2": [3],
        "slots": ["0 1 2 3 4 5 6 7 8"],
    }


def test_addresses_and_bytes_become_text() -> None:
    sin = struct.pack("=H2x4s20x", socket.AF_INET, socket.inet_aton("10.0.0.1"))
    sin6 = struct.pack("=H6x16s4x", socket.AF_INET6, socket.inet_pton(socket.AF_INET6, "fe80::1"))
    layout: list[tuple[str, bytes]] = [
        ("saddr", sin),
        ("daddr", sin6),
        ("src", socket.inet_aton("192.0.2.7")),
        ("daddr_v6", socket.inet_pton(socket.AF_INET6, "::ffff:192.0.2.7")),
        ("mac", bytes(range(6))),
        ("reason", bytes(4)),
    ]
    fields, raw = [], bytes(8)
    for name, value in layout:
        fields.append(Field(name, f"__u8 {name}[{len(value)}]", len(raw), len(value), 1, len(value)))
        raw += value
    found = EventColumns("net", "x", fields).columns(*batch([Event(raw)] * 2))
    assert {name: column.tolist() for name, column in found.items() if name not in COMMON} == {
        "saddr": ["10.0.0.1"] * 2,
        "daddr": ["fe80::1"] * 2,
        "src": ["192.0.2.7"] * 2,
        "daddr_v6": ["::ffff:192.0.2.7"] * 2,
        "mac": ["000102030405"] * 2,
        "reason": ["00000000"] * 2,
    }


def test_text_of_fixed_length_ends_with_its_first_nul() -> None:
    field = Field("comm", "char comm[16]", 8, 16, 1, 16, text=True)
    raws = [bytes(8) + comm.ljust(16, b"\0") for comm in (b"bash\0x", b"0123456789abcdef", b"\xff")]
    found = EventColumns("net", "x", [field]).columns(*batch([Event(raw) for raw in raws]))
    assert found["comm"].tolist() == ["bash", "0123456789abcdef", "\N{REPLACEMENT CHARACTER}"]


def test_names_that_a_table_has_already_are_told_apart() -> None:
    fields = [number(name, 8, 4, signed=True) for name in ("cpu", "Cpu", "order")]
    table = EventColumns("net-x", "y", fields).table
    assert table.name == "e_net_x_y"
    assert [column.name for column in table.columns] == [*COMMON, "field_cpu", "field_field_Cpu", "order"]


@given(st.lists(st.binary(min_size=20, max_size=20), max_size=30))
def test_each_different_text_is_decoded_once(items: list[bytes]) -> None:
    asked: list[bytes] = []

    def decode(raw: bytes) -> str:
        asked.append(raw)
        return raw.hex()

    assert texts(np.frombuffer(b"".join(items), "V20"), decode).tolist() == [each.hex() for each in items]
    assert len(asked) <= max(len(set(items)), 1)


def test_texts_that_have_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracepoint_columns, "_MULTIPLIER", 0)  # now the last word is the hash
    items = [b"a" * 16, b"b" * 8 + b"a" * 8, b"a" * 16]
    assert texts(np.frombuffer(b"".join(items), "V16"), bytes.decode).tolist() == [each.decode() for each in items]
