# SPDX-License-Identifier: Apache-2.0
"""A function's instructions are replaced in an object file, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hopscope.errors import FormatError, LoadError
from hopscope.libbpf import BpfObject, _elf, function_offsets
from hopscope.libbpf._elf import with_function

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def elf(compiled: Callable[[str], Path]) -> bytes:
    return compiled("pcap").read_bytes()


def test_nothing_else_is_changed(elf: bytes) -> None:
    sizes = []

    def filling(size: int) -> bytes:
        sizes.append(size)
        return b"\xee" * size

    changed = with_function(elf, "pcap_filter", filling)
    start = changed.index(b"\xee" * sizes[0])
    assert sizes[0] > 8 * 2000
    assert changed[:start] + elf[start : start + sizes[0]] + changed[start + sizes[0] :] == elf
    # Above the last instruction of a function of BPF, which returns.
    assert elf[start + sizes[0] - 8 : start + sizes[0]] == b"\x95".ljust(8, b"\0")


def test_what_does_not_fit_or_is_not_there_is_refused(elf: bytes) -> None:
    with pytest.raises(FormatError, match="function pcap_filter has"):
        with_function(elf, "pcap_filter", lambda size: bytes(size - 8))
    with pytest.raises(FormatError, match=r"no function pcap_filte$"):
        with_function(elf, "pcap_filte", bytes)
    with pytest.raises(FormatError, match="no function packets"):  # that is a variable
        with_function(elf, "packets", bytes)


@pytest.mark.parametrize("length", [0, 5, 63, 64, 100, 1000])
def test_a_file_that_is_cut_off_is_refused(elf: bytes, length: int) -> None:
    with pytest.raises(FormatError):
        with_function(elf[:length], "pcap_filter", bytes)


def test_a_file_of_another_kind_is_refused(elf: bytes) -> None:
    with pytest.raises(FormatError, match="no 64-bit little-endian object"):
        with_function(b"\x7fELF\1" + elf[5:], "pcap_filter", bytes)


def test_an_object_is_opened_under_its_name_and_a_missing_one_is_said(compiled: Callable[[str], Path]) -> None:
    path = compiled("pcap")
    with BpfObject.open(path, {"pcap_filter": lambda size: b"\x95".ljust(8, b"\0") * (size // 8)}) as opened:
        assert "pcap.rodata" in opened.maps
    with pytest.raises(LoadError, match=r"absent\.bpf\.o cannot be opened: No such file"):
        BpfObject.open(path.with_name("absent.bpf.o"), {"pcap_filter": bytes})


def test_long_names_take_no_longer_than_short_ones(elf: bytes) -> None:
    class Watched(bytes):
        """A file of which is known how much was taken out at the most."""

        most = 0

        def __getitem__(self, wanted: Any) -> Any:  # noqa: ANN401 # as bytes has it
            taken = super().__getitem__(wanted)
            self.most = max(self.most, len(taken) if isinstance(taken, bytes) else 1)
            return taken

    table = next(each for each in _elf._sections(elf) if each.kind == _elf._SHT_SYMTAB)
    strings = [*_elf._sections(elf)][table.link].offset
    longer = bytearray(elf + b"n" * 100_000 + b"\0")
    for at in range(table.offset, table.offset + table.size, _elf._SYMBOL.size):
        longer[at : at + 4] = (len(elf) - strings).to_bytes(4, "little")
    watched = Watched(longer)
    assert function_offsets(watched, ["pcap_filter"]) == {}
    assert watched.most == table.size < 100_000
