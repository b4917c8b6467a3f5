# SPDX-License-Identifier: Apache-2.0
"""The kernel's functions by address, from the text of ``/proc/kallsyms``.

A line is address, type, name and, for what is not the kernel's own, the module in brackets. The text is taken apart as
an array of bytes; names are cut out of it only when they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.errors import FormatError, PrivilegeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_TEXT_TYPES: Final = b"tTwW"
_GLOBAL_TYPES: Final = b"TW"
# An address farther behind a symbol than this is in nothing that has one: no function of the kernel is as long.
_LONGEST_FUNCTION_BYTES: Final = 1 << 20
_BPF_MODULE: Final = "[bpf]"

_HEX_VALUES: Final = np.zeros(256, np.uint8)
_HEX_VALUES[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)


class Symbols:
    """Functions, sorted by address.

    Parameters
    ----------
    text
        Of ``/proc/kallsyms`` or a part of it, whole lines.
    lengths
        Address → length in bytes of functions of which it is known. Any other goes up to the next symbol.

    Raises
    ------
    PrivilegeError
        All addresses are zero: the kernel hides them.
    FormatError
        The text is not that of kallsyms.
    """

    def __init__(self, text: bytes, lengths: Mapping[int, int] | None = None) -> None:
        self._text = text
        starts = _line_starts(text)
        width = text.find(b" ") if len(starts) else 0
        self._name_offset = width + 3  # a blank, the type, a blank
        data = np.frombuffer(text, np.uint8)
        if len(starts) and not _is_kallsyms(data, starts, width):
            raise FormatError("The list of the kernel's symbols is not laid out as /proc/kallsyms is")
        addresses = _addresses(data, starts, width)
        if len(addresses) and not addresses.any():
            raise PrivilegeError(
                "The kernel hides the addresses of its functions",
                "Run hopscope as root, or with CAP_SYSLOG, and with the sysctl kernel.kptr_restrict at 0 or 1",
            )
        types = data[starts + width + 1] if len(starts) else data
        # Data stays in the table, so that it ends the function before it. Of several at an address the first counts,
        # but text before data and what is global before what is local.
        is_text = np.isin(types, np.frombuffer(_TEXT_TYPES, np.uint8))
        is_global = np.isin(types, np.frombuffer(_GLOBAL_TYPES, np.uint8))
        order = np.lexsort((~is_global, ~is_text, addresses))
        first = np.diff(addresses[order], prepend=np.uint64(0)) != 0
        if len(first):
            first[0] = True
        order = order[first]
        self._addresses = addresses[order]
        self._is_text = is_text[order]
        self._starts = starts[order]
        self._known: dict[int, str] = {}
        self._lengths = self._known_lengths(lengths or {})

    def __len__(self) -> int:
        return len(self._addresses)

    def covers(self, addresses: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Tell for each address whether it is in a function of this table."""
        return self._places(addresses) >= 0

    def names(self, addresses: NDArray[np.uint64]) -> list[str]:
        """Return the name of the function at each address, ``0x…`` where there is none.

        What compilers append (``.cold``, ``.isra.0``, ``.constprop.0``, ``.part.0``, ``.llvm.…``) is left out.
        """
        unique, inverse = np.unique(addresses, return_inverse=True)
        found = [
            f"{address:#x}" if place < 0 else self._name(place)
            for address, place in zip(unique.tolist(), self._places(unique).tolist(), strict=True)
        ]
        return [found[number] for number in inverse.tolist()]

    def offsets(self, addresses: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return how far behind the begin of its function each address is; -1 where it is in none."""
        places = self._places(addresses)
        if not len(self):
            return places
        return np.where(places >= 0, (addresses - self._addresses[places]).view(np.int64), -1)

    def address(self, name: str) -> int | None:
        """Return where a symbol is; None where there is none of this name."""
        place = self._text.find(f" {name}\n".encode())
        return int(self._text[self._text.rfind(b"\n", 0, place) + 1 : place].split()[0], 16) if place >= 0 else None

    def _places(self, addresses: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the row of the function that each address is in, -1 where there is none."""
        if not len(self):
            return np.full(len(addresses), -1, np.int64)
        places = np.searchsorted(self._addresses, addresses, side="right").astype(np.int64) - 1
        behind = addresses - self._addresses[places]
        inside = (places >= 0) & (behind < self._lengths[places]) & self._is_text[places]
        return np.where(inside, places, -1)

    def _known_lengths(self, lengths: Mapping[int, int]) -> NDArray[np.uint64]:
        known = np.full(len(self), _LONGEST_FUNCTION_BYTES, np.uint64)
        if lengths and len(self):
            wanted = np.array(list(lengths), np.uint64)
            places = np.searchsorted(self._addresses, wanted).clip(max=len(self) - 1)
            there = self._addresses[places] == wanted
            known[places[there]] = np.array(list(lengths.values()), np.uint64)[there]
        return known

    def _name(self, place: int) -> str:
        """Return the name in a row; most are asked for again and again."""
        name = self._known.get(place)
        if name is None:
            name = self._known[place] = self._read_name(place)
        return name

    def _read_name(self, place: int) -> str:
        start = int(self._starts[place]) + self._name_offset
        end = self._text.find(b"\n", start)
        name, _, module = self._text[start : end if end >= 0 else None].decode().partition("\t")
        # No name in C has a dot. Names of BPF programs may have one, and begin with no dot either.
        return name if module == _BPF_MODULE else name[:1] + name[1:].partition(".")[0]


def _line_starts(text: bytes) -> NDArray[np.int64]:
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
    starts = np.concatenate([np.zeros(1, np.int64), ends + 1])
    return starts[starts < len(text)]


def _is_kallsyms(data: NDArray[np.uint8], starts: NDArray[np.int64], width: int) -> bool:
    if width not in {8, 16} or starts[-1] + width + 3 >= len(data):
        return False
    return bool((data[starts + width] == ord(" ")).all() and (data[starts + width + 2] == ord(" ")).all())


def _addresses(data: NDArray[np.uint8], starts: NDArray[np.int64], width: int) -> NDArray[np.uint64]:
    addresses = np.zeros(len(starts), np.uint64)
    for column in range(width):
        addresses = addresses << np.uint64(4) | _HEX_VALUES[data[starts + column]]
    return addresses
