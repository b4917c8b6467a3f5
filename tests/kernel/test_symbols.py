# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.errors import FormatError, PrivilegeError
from hopscope.kernel.symbols import Symbols

TEXT = b"""\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000100 t local_name
ffffffff81000100 T global_name
ffffffff81000100 D data_name
ffffffff81000200 t first_local
ffffffff81000200 t second_local
ffffffff81000300 T __netif_receive_skb_core.constprop.0
ffffffff81000400 W weak_name
ffffffff81000500 D data_behind
ffffffff81000600 d data_before
ffffffff81000600 t local_behind_data
ffffffff83000000 T _einittext
ffffffffc0001000 t nft_eval.isra.0.cold\t[nf_tables]
ffffffffc0002000 t bpf_prog_6deef7357e7b4530_my.prog\t[bpf]
"""


def name(address: int, text: bytes = TEXT) -> str:
    return Symbols(text).names(np.array([address], np.uint64))[0]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (0xFFFFFFFF81000000, "_stext"),
        (0xFFFFFFFF810000FF, "_stext"),
        (0xFFFFFFFF81000100, "global_name"),
        (0xFFFFFFFF81000200, "first_local"),
        (0xFFFFFFFF810002FF, "first_local"),
        (0xFFFFFFFF81000300, "__netif_receive_skb_core"),
        (0xFFFFFFFF810004FF, "weak_name"),
        (0xFFFFFFFF81000500, "0xffffffff81000500"),  # data ends the function before it
        (0xFFFFFFFF81000600, "local_behind_data"),
        (0xFFFFFFFF80FFFFFF, "0xffffffff80ffffff"),
        (0x10, "0x10"),
        (0xFFFFFFFFC0000FFF, "0xffffffffc0000fff"),  # too far behind _einittext
        (0xFFFFFFFFC0001010, "nft_eval"),
        (0xFFFFFFFFC0002010, "bpf_prog_6deef7357e7b4530_my.prog"),
        (0xFFFFFFFFFFFFFFFF, "0xffffffffffffffff"),
    ],
)
def test_an_address_has_the_name_of_the_function_that_it_is_in(address: int, expected: str) -> None:
    assert name(address) == expected


@pytest.mark.parametrize("suffix", [".cold", ".isra.0", ".constprop.0", ".part.0", ".llvm.1234567", ".isra.0.cold"])
def test_what_the_compiler_appends_is_left_out(suffix: str) -> None:
    assert name(0x10, f"0000000000000010 t tcp_ack{suffix}\n".encode()) == "tcp_ack"
    assert name(0x10, f"0000000000000010 t .Ltmp{suffix}\n".encode()) == ".Ltmp"


def test_a_last_line_may_lack_its_end() -> None:
    assert name(0xFFFFFFFFC0002010, TEXT[:-1]) == "bpf_prog_6deef7357e7b4530_my.prog"
    assert name(0x1010, b"00001000 T thirty_two_bits\n") == "thirty_two_bits"


def test_covers_says_what_has_a_name() -> None:
    addresses = np.array([0xFFFFFFFF81000100, 0x10, 0xFFFFFFFFC0002010], np.uint64)
    assert Symbols(TEXT).covers(addresses).tolist() == [True, False, True]
    assert Symbols(b"").covers(addresses).tolist() == [False] * 3
    assert len(Symbols(b"")) == 0


def test_a_known_length_ends_a_function() -> None:
    symbols = Symbols(TEXT, {0xFFFFFFFF81000100: 0x10, 0xFFFFFFFF81000101: 1, 0xFFFFFFFFF0000000: 5})
    addresses = np.array([0xFFFFFFFF8100010F, 0xFFFFFFFF81000110, 0xFFFFFFFF810002FF], np.uint64)
    assert symbols.names(addresses) == ["global_name", "0xffffffff81000110", "first_local"]
    assert len(Symbols(b"", {5: 5})) == 0


def test_hidden_addresses_are_an_error_with_the_next_step() -> None:
    with pytest.raises(PrivilegeError, match=r"hides the addresses.*kptr_restrict"):
        Symbols(b"0000000000000000 T _stext\n0000000000000000 T _text\n")


@pytest.mark.parametrize(
    "text", [b"nothing of the kind\n", b"ffffffff81000000 T\n", b"\n", b"ffffffff81000000\n", b"x"]
)
def test_other_text_is_refused(text: bytes) -> None:
    with pytest.raises(FormatError, match="not laid out"):
        Symbols(text)


@given(st.lists(st.tuples(st.integers(1, 12), st.sampled_from("tTdD")), min_size=1, max_size=30), st.data())
def test_look_up_agrees_with_a_search_from_the_end(rows: list[tuple[int, str]], data: st.DataObject) -> None:
    text = "".join(f"{address:016x} {kind} f{number}\n" for number, (address, kind) in enumerate(rows)).encode()
    address = data.draw(st.integers(0, 15))
    start = max((at for at, _ in rows if at <= address), default=None)
    there = [(kind, number) for number, (at, kind) in enumerate(rows) if at == start]
    best = min(there, key=lambda each: ("Tt".find(each[0]) if each[0] in "tT" else 2, each[1]), default=("d", 0))
    expected = f"f{best[1]}" if best[0] in "tT" else f"{address:#x}"
    assert name(address, text) == expected
