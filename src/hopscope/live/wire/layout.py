# SPDX-License-Identifier: Apache-2.0
"""What is where in a frame that carries an event: the one description, for what writes, matches and documents it."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import numpy as np

from hopscope.store.schema import EVENT_TABLES, TEXT, Column

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from hopscope.store.schema import Table

Lengths = TypeVar("Lengths", int, "NDArray[np.int64]")

# IEEE Std 802: for local experiments.
ETHERTYPE: Final = 0x88B5
VERSION: Final = 1
ETHERNET_BYTES: Final = 14


class Kind(IntEnum):
    """What a frame carries."""

    EVENT = 0
    CATALOGUE = 255


class Flag(IntFlag):
    """Which fields of a frame are known; those that are not are 0."""

    HOP = 1
    PROCESS = 2
    ENDS = 4
    LENGTH = 8
    DEVICE = 16
    PACKET = 32
    NAMESPACE = 64
    FLOW = 128
    CUT = 256


class Tlv(IntEnum):
    """What an entry behind the fields is, in a frame of the catalogue."""

    VERSION = 1
    HOST = 2
    REALTIME_OFFSET = 3
    COUNTS = 4
    POINT = 5
    FIELD = 6
    REASON = 7
    DEVICE = 8
    THREAD = 9


# Of :attr:`Tlv.COUNTS`: events sent, not sent, and lost by the recording.
COUNTS: Final = struct.Struct("!QQQ")


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a frame.

    Attributes
    ----------
    name
        Its own.
    dtype
        Of NumPy, big-endian.
    meaning
        For the documentation.
    needs
        It is known where this flag is set; None: in every frame of an event.
    """

    name: str
    dtype: str
    meaning: str
    needs: Flag | None = None


FIELDS: Final = (
    Field("version", "u1", f"{VERSION}"),
    Field("kind", "u1", f"{Kind.EVENT.value}: event; {Kind.CATALOGUE.value}: catalogue"),
    Field("point", ">u2", "number of the probe point, or of the event of `-e`; its name is in the catalogue"),
    Field("catalogue", ">u4", "number of the catalogue that this frame is to be read with"),
    Field("number", ">u4", "frames before this one, of every kind, sent or not, modulo 2^32"),
    Field("cpu", ">u2", "CPU"),
    Field("flags", ">u2", "which of the other fields are known"),
    Field("time_ns", ">u8", "time, CLOCK_MONOTONIC; of a catalogue, when it was sent"),
    Field("thermometer", ">u4", "bits of `hop_ns` up to its highest one that is set, all of them set", Flag.HOP),
    Field("hop_ns", ">u4", "time since the packet's event before; 4294967295: so long or longer", Flag.HOP),
    Field("packet", ">u8", "address of the packet's struct sk_buff", Flag.PACKET),
    Field("flow", ">u8", "number of the flow; 0: headers not inspected", Flag.FLOW),
    Field("pid", ">u4", "process of the running thread", Flag.PROCESS),
    Field("tid", ">u4", "running thread; 0: idle task"),
    Field("ifindex", ">u4", "number of the device in its namespace; 0: no device", Flag.DEVICE),
    Field("netns", ">u4", "inode of the network namespace", Flag.NAMESPACE),
    Field("len_bytes", ">u4", "length, as the event's table has it", Flag.LENGTH),
    Field("ip_version", "u1", "4 or 6", Flag.ENDS),
    Field("protocol", "u1", "6: TCP, 17: UDP", Flag.ENDS),
    Field("tlv_bytes", ">u2", "length of the entries behind the last field, with what pads them"),
    Field("source_port", ">u2", "source port of the flow", Flag.ENDS),
    Field("destination_port", ">u2", "destination port of the flow", Flag.ENDS),
    Field("source", "V16", "source address of the flow; IPv4 as ::ffff:a.b.c.d", Flag.ENDS),
    Field("destination", "V16", "destination address of the flow; IPv4 likewise", Flag.ENDS),
)
BY_NAME: Final = {field.name: field for field in FIELDS}

EVENT: Final = np.dtype([(field.name, field.dtype) for field in FIELDS])
FRAME: Final = np.dtype(
    [("ethernet_destination", "V6"), ("ethernet_source", "V6"), ("ethertype", ">u2"), ("event", EVENT)]
)
HOP_LIMIT_NS: Final = (1 << 32) - 1


# Of a frame, with the header of Ethernet: what passes a tunnel, such as VXLAN, over every link, and is not fragmented.
MOST_BYTES: Final = 1400
# Events of tables that only this trace has (`record -e`) have numbers above those of probe points.
_FIRST_OWN: Final = 1 << 10
# Which columns fields have, of tables of tracepoints, and of those of probe points.
_IN_FIELDS: Final = frozenset({"time_ns", "cpu", "tid"})
_IN_FIELDS_OF_POINTS: Final = _IN_FIELDS | {"point", "skb", "flow", "len_bytes", "ifindex", "netns"}
# Of a dropped packet, as the table `drops` has it; otherwise 0.
_REASON: Final = Column("reason", np.int32, "")
# Of an entry, before its value: type and length; the value is padded to whole words.
ENTRY_BYTES: Final = 4
_WORD_BYTES: Final = 4


class Place(NamedTuple):
    """Where a number is in a frame.

    Attributes
    ----------
    offset_bytes
        Where it begins, counted from the end of the Ethernet header.
    size_bytes
        Its length.
    """

    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A column that events of one table have, as an entry behind the fields of all events.

    Attributes
    ----------
    number
        Its type, among those of the same event.
    name
        Of the column.
    size_bytes
        Length of its value, a signed number; 0: text, as long as it is.
    place
        Of its value; None: behind a text, whose length differs, or a text itself.
    """

    number: int
    name: str
    size_bytes: int
    place: Place | None


def place(name: str) -> Place:
    """Return where a field of all events is."""
    dtype, offset = EVENT.fields[name][:2]  # type: ignore[index] # it is structured
    return Place(int(offset), int(dtype.itemsize))


def numbers_of_own(names: Iterable[str]) -> dict[str, int]:
    """Return the number of each event that is no probe point, by the names of their tables."""
    return {name: _FIRST_OWN + at for at, name in enumerate(sorted(names))}


def entries_of(table: Table) -> list[Entry]:
    """Return the entries of a table's events in their order: first numbers, whose places are fixed, then texts.

    Numbers for which a frame has no room are left out.
    """
    known = _IN_FIELDS_OF_POINTS if table.name in EVENT_TABLES else _IN_FIELDS
    columns = [column for column in table.columns if column.name not in known]
    if table.name == "packets":
        columns.append(_REASON)
    found: list[Entry] = []
    at = EVENT.itemsize
    for column in (each for each in columns if each.dtype != TEXT):
        size = max(np.dtype(column.dtype).itemsize, _WORD_BYTES)
        if ETHERNET_BYTES + at + ENTRY_BYTES + size > MOST_BYTES:
            break
        found.append(Entry(len(found) + 1, column.name, size, Place(at + ENTRY_BYTES, size)))
        at += ENTRY_BYTES + size
    texts = [column.name for column in columns if column.dtype == TEXT]
    return found + [Entry(number, name, 0, None) for number, name in enumerate(texts, len(found) + 1)]


def padded_bytes(length: Lengths) -> Lengths:
    """Return the length of a value with what pads it; of an array, each."""
    return -(-length // _WORD_BYTES) * _WORD_BYTES


def table() -> str:
    """Return the fields as a table of Markdown."""
    rows = [
        f"| {place(field.name).offset_bytes} | {place(field.name).size_bytes} | `{field.name}` | {field.meaning} | "
        f"{'' if field.needs is None else field.needs.value} |"
        for field in FIELDS
    ]
    return "\n".join(["| offset | bytes | field | meaning | flag |", "| --- | --- | --- | --- | --- |", *rows])
