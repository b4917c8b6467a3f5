# SPDX-License-Identifier: Apache-2.0
"""Classic BPF, translated and run in the kernel, says what libpcap's own interpreter says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.errors import UsageError
from hopscope.libbpf import BpfObject
from hopscope.libbpf.classic import Classic, translate
from tests.libbpf.judge import PACKET_BYTES, Packet, judged_by_libpcap, judged_in_kernel, loaded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROOM = 8 * 2046
# Most are near to an edge, or to where the packets end.
numbers = st.one_of(
    st.just(20),
    st.integers(0, 40),
    st.integers(80, PACKET_BYTES + 8),
    st.sampled_from([2**31 - 5, 2**31 - 4, 2**31 - 1, 2**31, 2**32 - 4, 2**32 - 1]),
    st.integers(0, 2**32 - 1),
)
LOADS = [0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0xB1]  # ld, ldh, ldb [k]; the same [x + k]; ldxb 4*([k]&0xf)
OTHERS = [0x00, 0x01, 0x80, 0x81, 0x07, 0x87, 0x84]  # ld #k, ldx #k, ld #len, ldx #len, tax, txa, neg
MEMORY = [0x60, 0x61, 0x02, 0x03]  # ld M[k], ldx M[k], st M[k], stx M[k]
ARITHMETIC = [0x04, 0x14, 0x24, 0x34, 0x44, 0x54, 0x64, 0x74, 0x94, 0xA4]
BY_INDEX = [code | 0x08 for code in ARITHMETIC]
JUMPS = [0x15, 0x25, 0x35, 0x45, 0x1D, 0x2D, 0x3D, 0x4D]


@st.composite
def instructions(draw: st.DrawFn, left: int) -> Classic:
    """Return one that jumps over at most `left` following ones."""
    kind = draw(st.integers(0, 9))
    if kind < 4:
        return Classic(draw(st.sampled_from(LOADS)), 0, 0, draw(numbers))
    if kind == 4:
        return Classic(draw(st.sampled_from(OTHERS)), 0, 0, draw(numbers))
    if kind == 5:
        return Classic(draw(st.sampled_from(MEMORY)), 0, 0, draw(st.integers(0, 15)))
    if kind < 8:
        code = draw(st.sampled_from([*ARITHMETIC, *BY_INDEX]))
        # libpcap refuses to divide by a 0 that stands there, and leaves it to the CPU what a shift by 32 or more is.
        operand = draw(numbers) % 32 if code in {0x64, 0x74} else draw(numbers)
        return Classic(code, 0, 0, operand or (1 if code in {0x34, 0x94} else 0))
    if kind == 8 and draw(st.booleans()):
        return Classic(0x05, 0, 0, draw(st.integers(0, left)))
    ways = st.integers(0, left)
    return Classic(draw(st.sampled_from(JUMPS)), draw(ways), draw(ways), draw(numbers))


@st.composite
def programs(draw: st.DrawFn) -> list[Classic]:
    length = draw(st.integers(0, 12))
    body = [draw(instructions(length - index - 1)) for index in range(length)]
    # What libpcap's memory has before it is written is not defined.
    cleared = (
        [Classic(0x02, 0, 0, word) for word in range(16)] if any(each.code in {0x60, 0x61} for each in body) else []
    )
    return [
        Classic(0x00, 0, 0, 0),
        *cleared,
        *body,
        draw(st.sampled_from([Classic(0x16, 0, 0, 0), Classic(0x06, 0, 0, 7), Classic(0x06, 0, 0, 0)])),
    ]


packets = st.builds(
    lambda readable, more: Packet(readable, len(readable) + more),
    st.one_of(st.binary(max_size=PACKET_BYTES), st.integers(0, PACKET_BYTES).map(bytes)),
    st.sampled_from([0, 0, 1, 2000]),
)


@pytest.mark.slow
@pytest.mark.root
@settings(max_examples=300)
@given(program=programs(), asked=st.lists(packets, min_size=1, max_size=20))
def test_every_program_answers_as_libpcap_does(
    compiled: Callable[[str], Path], program: list[Classic], asked: list[Packet]
) -> None:
    with loaded(compiled("pcap"), program) as bpf:
        assert judged_in_kernel(bpf, asked) == judged_by_libpcap(program, asked)


@pytest.mark.root
@pytest.mark.parametrize("offset", [0, 1, 2, 3, 5, 92, 93, 96, 97, 200, 236, 237, 239, 240, 2**31 - 4, 2**32 - 1])
@pytest.mark.parametrize("code", LOADS)
def test_loads_reach_as_far_as_the_packet(compiled: Callable[[str], Path], code: int, offset: int) -> None:
    content = bytes(index * 7 % 251 for index in range(PACKET_BYTES))
    asked = [Packet(content[:length], 3000) for length in range(PACKET_BYTES + 1)]
    # What was loaded decides, by each of its bits in turn.
    for bit in (0, 5, 13, 31):
        move = [Classic(0x87, 0, 0, 0)] if code == 0xB1 else []
        program = [Classic(0x01, 0, 0, 2), Classic(code, 0, 0, offset), *move, Classic(0x45, 0, 1, 1 << bit)]
        program += [Classic(0x06, 0, 0, 1), Classic(0x06, 0, 0, 0)]
        with loaded(compiled("pcap"), program) as bpf:
            assert judged_in_kernel(bpf, asked) == judged_by_libpcap(program, asked)


@pytest.mark.root
def test_as_it_is_compiled_every_packet_is_wanted(compiled: Callable[[str], Path]) -> None:
    with BpfObject.open(compiled("pcap")) as bpf:
        bpf.load()
        assert judged_in_kernel(bpf, [Packet(b"", 0), Packet(bytes(20), 20)]) == [True, True]


@pytest.mark.parametrize("room", [8 * 11, 8 * 12, ROOM])
def test_a_program_fills_the_room_that_it_has(room: int) -> None:
    assert len(translate([Classic(0x06, 0, 0, 1)], room)) == room


def test_one_that_is_too_long_is_refused() -> None:
    program = [Classic(0x20, 0, 0, 0)] * 2000 + [Classic(0x06, 0, 0, 1)]
    with pytest.raises(UsageError, match="The filter is too long"):
        translate(program, ROOM)


def test_an_unknown_instruction_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown instruction, 0xe0"):
        translate([Classic(0xE0, 0, 0, 0), Classic(0x06, 0, 0, 1)], ROOM)
