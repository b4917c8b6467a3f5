# SPDX-License-Identifier: Apache-2.0
"""The script that shows frames of ``hopscope wire`` in Wireshark, and which of these a file has."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopscope.live.recorder.tables import point_names, table_of
from hopscope.live.wire.frames import read_catalogue
from hopscope.live.wire.layout import ETHERTYPE, EVENT, FRAME, HOP_LIMIT_NS, VERSION, Flag, Kind, Tlv, entries_of, place
from hopscope.recorded.packet_file import frames
from hopscope.store.schema import BY_NAME, EVENT_TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Fields that are known when Wireshark starts, besides those of probe points.
FIELDS_VARIABLE: Final = "HOPSCOPE_EVENT_FIELDS"
_SCRIPT: Final = Path(__file__).with_name("events.lua")
_LAYOUT: Final = "-- [layout]\n"
_ETHERTYPE_AT, _KIND_AT = 12, 15
_ETHERTYPE: Final = ETHERTYPE.to_bytes(2)
# Before it is certain that a file has none: on the interface, others are rare.
_LOOKED_AT: Final = 1000
_NAME: Final = re.compile(r"\w+\.\w+", re.ASCII)
# Of a variable; the kernel's limit is 128 KiB (MAX_ARG_STRLEN).
_MOST: Final = 100_000


def script() -> str:
    """Return the script, with the layout of frames."""
    return _SCRIPT.read_text().replace(_LAYOUT, "".join(f"{line}\n" for line in _layout()))


def own_fields(file: Path) -> dict[str, str] | None:
    """Return the fields of tracepoints that a file's catalogues name, TABLE.COLUMN → number or text.

    None: there are no frames of events among the file's first ones.
    """
    points: dict[int, str] = {}
    fields: dict[tuple[int, str], str] = {}
    is_known = False
    for count, frame in enumerate(frames(file)):
        is_known |= frame[_ETHERTYPE_AT : _ETHERTYPE_AT + 2] == _ETHERTYPE
        if not is_known and count >= _LOOKED_AT:
            break
        if is_known and frame[_ETHERTYPE_AT : _KIND_AT + 1] == _ETHERTYPE + bytes([VERSION, Kind.CATALOGUE]):
            _learn(frame, points, fields)
    if not is_known:
        return None
    # A stranger's file may have any name.
    named = {f"{points[point]}.{name}": kind for (point, name), kind in fields.items() if point in points}
    return {name: kind for name, kind in named.items() if _NAME.fullmatch(name)}


def variable(fields: Mapping[str, str]) -> str:
    """Return fields as the script reads them from the environment; those that have no room there are left out."""
    text = " ".join(f"{name}:{kind}" for name, kind in fields.items())
    return text if len(text) <= _MOST else text[: text.rfind(" ", 0, _MOST)]


def _learn(frame: bytes, points: dict[int, str], fields: dict[tuple[int, str], str]) -> None:
    try:
        for kind, value in read_catalogue(frame):
            if kind is Tlv.POINT and value[2:].startswith(b"e_"):
                points[int.from_bytes(value[:2])] = value[2:].decode(errors="replace")
            elif kind is Tlv.FIELD and len(value) > _FIELD.size:
                point, _, size = _FIELD.unpack_from(value)
                fields[point, value[_FIELD.size :].decode(errors="replace")] = "number" if size else "text"
    except struct.error:
        return  # cut off


_FIELD: Final = struct.Struct("!HHH")


def _layout() -> Iterator[str]:
    yield f"ETHERTYPE, VERSION, EVENT, CATALOGUE = {ETHERTYPE}, {VERSION}, {Kind.EVENT.value}, {Kind.CATALOGUE.value}"
    yield f"EVENT_BYTES, HOP_LIMIT = {EVENT.itemsize}, {HOP_LIMIT_NS}"
    for name in EVENT.names or ():
        where = place(name)
        yield f"LAYOUT.{name} = {{ {where.offset_bytes}, {where.size_bytes} }}"
    yield from (f"FLAGS.{flag.name} = {flag.value}" for flag in Flag)
    yield from (f"TLV.{each.name} = {each.value}" for each in Tlv)
    yield from (f'TABLES["{name}"] = "{table_of(number)}"' for number, name in point_names().items())
    for table in EVENT_TABLES:
        for entry in entries_of(BY_NAME[table]):
            yield f'COLUMNS["{table}.{entry.name}"] = "{"number" if entry.size_bytes else "text"}"'


assert FRAME.fields["event"][1] == _ETHERTYPE_AT + 2  # type: ignore[index] # noqa: S101 # it is structured
