# SPDX-License-Identifier: Apache-2.0
"""What is where in a frame that carries an event: the one description, for what writes, matches and documents it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

import numpy as np

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


class Tlv(IntEnum):
    """What an entry behind the fields is."""

    VERSION = 1
    HOST = 2
    REALTIME_OFFSET = 3
    COUNTS = 4
    POINT = 5


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
    Field("point", ">u2", "number of the probe point; its name is in the catalogue"),
    Field("catalogue", ">u4", "number of the catalogue that this frame is to be read with"),
    Field("number", ">u4", "frames before this one, of every kind, sent or not, modulo 2^32"),
    Field("cpu", ">u2", "CPU"),
    Field("flags", ">u2", "which of the other fields are known"),
    Field("time_ns", ">u8", "time, CLOCK_MONOTONIC"),
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


def offset_bytes(name: str) -> int:
    """Return where a field begins, counted from the end of the Ethernet header."""
    return int(EVENT.fields[name][1])  # type: ignore[index] # it is structured


def size_bytes(name: str) -> int:
    """Return the length of a field."""
    return int(EVENT.fields[name][0].itemsize)  # type: ignore[index] # it is structured


def table() -> str:
    """Return the fields as a table of Markdown."""
    rows = [
        f"| {offset_bytes(field.name)} | {size_bytes(field.name)} | `{field.name}` | {field.meaning} | "
        f"{'' if field.needs is None else field.needs.value} |"
        for field in FIELDS
    ]
    return "\n".join(["| offset | bytes | field | meaning | flag |", "| --- | --- | --- | --- | --- |", *rows])
