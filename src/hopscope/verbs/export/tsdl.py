# SPDX-License-Identifier: Apache-2.0
"""What a trace in the Common Trace Format says of itself, in its own language (CTF 1.8, section 7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope import __version__
from hopscope.gate import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TEXT: Final = "string { encoding = UTF8; }"
MAGIC: Final = 0xC1FC1FC1
# All multiples of eight bits, without gaps.
PACKET: Final = np.dtype(
    [
        ("magic", "<u4"),
        ("stream_id", "<u4"),
        ("timestamp_begin", "<u8"),
        ("timestamp_end", "<u8"),
        ("content_size", "<u8"),
        ("packet_size", "<u8"),
        ("events_discarded", "<u8"),
        ("cpu_id", "<u4"),
    ]
)
HEADER: Final = (("id", "<u2"), ("timestamp", "<u8"))
# Columns that are addresses, or bits, in the base in which people read them.
_HEXADECIMAL: Final = frozenset({"skb", "head", "sock", "tcp_flags"})
_NS_PER_S: Final = 1_000_000_000

_HEAD: Final = """\
/* CTF 1.8 */
typealias integer { size = 16; align = 8; signed = false; } := uint16_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;

trace {
	major = 1;
	minor = 8;
	byte_order = le;
	packet.header := struct { uint32_t magic; uint32_t stream_id; };
};
"""
_STREAM: Final = """
stream {{
	id = {number};
	packet.context := struct {{
		time_t timestamp_begin;
		time_t timestamp_end;
		uint64_t content_size;
		uint64_t packet_size;
		uint64_t events_discarded;
		uint32_t cpu_id;
	}};
	event.header := struct {{ uint16_t id; time_t timestamp; }};
}};
"""
_CLOCK: Final = """
clock {{
	name = monotonic;
	description = "CLOCK_MONOTONIC";
	freq = 1000000000;
	offset_s = {seconds};
	offset = {ns};
}};
typealias integer {{ size = 64; align = 8; signed = false; map = clock.monotonic.value; }} := time_t;
"""


@dataclass(frozen=True, slots=True)
class Stream:
    """Events with the same fields.

    Attributes
    ----------
    number
        Of the stream.
    fields
        Name → type; a name's type is that of an enumeration.
    events
        Number → name of each kind of event.
    """

    number: int
    fields: Sequence[tuple[str, str]]
    events: Mapping[int, str]


def metadata(
    environment: Mapping[str, str],
    realtime_ns: int,
    enumerations: Mapping[str, Sequence[str]],
    streams: Sequence[Stream],
) -> str:
    """Return the text of the file ``metadata``.

    Parameters
    ----------
    environment
        Facts about where it was recorded.
    realtime_ns
        CLOCK_REALTIME when CLOCK_MONOTONIC was 0.
    enumerations
        Name of a type → its texts.
    streams
        All of them.
    """
    facts = {**environment, "tracer_name": "hopscope", "tracer_version": __version__}
    parts = [_HEAD, "\nenv {\n", *(f"\t{name} = {quoted(text)};\n" for name, text in facts.items()), "};\n"]
    seconds, ns = divmod(realtime_ns, _NS_PER_S)
    parts.append(_CLOCK.format(seconds=seconds, ns=ns))
    for name, texts in enumerations.items():
        listed = ",\n".join(f"\t{quoted(text)} = {number}" for number, text in enumerate(texts))
        parts.append(f"\ntypealias enum : uint32_t {{\n{listed}\n}} := {name};\n")
    for stream in streams:
        parts.append(_STREAM.format(number=stream.number))
        # A field of any name: with an underscore in front, which readers leave out, it is no word of the language.
        fields = "".join(f"\t\t{kind} _{name};\n" for name, kind in stream.fields)
        parts += [
            f"\nevent {{\n\tname = {quoted(name)};\n\tid = {number};\n\tstream_id = {stream.number};\n"
            f"\tfields := struct {{\n{fields}\t}};\n}};\n"
            for number, name in stream.events.items()
        ]
    return "".join(parts)


def integer(name: str, dtype: str) -> str:
    """Return the type of a column of integers."""
    bits, base = 8 * np.dtype(dtype).itemsize, " base = 16;" if name in _HEXADECIMAL else ""
    return f"integer {{ size = {bits}; align = 8; signed = {'false' if base else 'true'};{base} }}"


def quoted(text: str) -> str:
    """Return a text as the language has it."""
    escaped = one_line(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
