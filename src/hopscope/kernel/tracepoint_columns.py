# SPDX-License-Identifier: Apache-2.0
"""The records of a tracepoint, or of a function's calls, as the columns of a table.

Numbers become signed integers that hold every value, but for 64-bit unsigned ones, which keep their bits. Short arrays
of numbers become a column an item; strings and addresses become text; all other bytes become text in hexadecimal.
Where there is text, Python runs once for each different one in a batch.
"""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from hopscope.errors import FormatError
from hopscope.libbpf.perf_ring import SAMPLE_HEAD, STACK_AT, taken
from hopscope.store.schema import TEXT, Column, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from hopscope.kernel.tracepoint_format import Field
    from hopscope.libbpf.perf_ring import Words

_COMMON: Final = (
    Column("time_ns", np.int64, "when, CLOCK_MONOTONIC"),
    Column("cpu", np.int16, "where"),
    Column("tid", np.int32, "the thread that ran; in an interrupt the one that was interrupted, 0 for the idle task"),
)
CALLER: Final = Column("address", np.int64, "where in its caller it returns to, 0 if not known: `symbols` has the name")
STACK: Final = Column("stack", np.int32, "`stacks` has its addresses; below 0 if the kernel could not keep it")
_SIGNED: Final = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_MOST_ITEMS: Final = 8
_ADDRESS: Final = re.compile(r"addr|^(src|dst|gw[46]?|primary_key[46])$")
_SOCKADDR_BYTES: Final = 28
# Odd, so that no bit of a word is lost.
_MULTIPLIER: Final = 0x9E3779B97F4A7C15


class EventColumns:
    """The columns of one event.

    Parameters
    ----------
    subsystem, event
        Its name.
    fields
        Of its format.
    meaning
        Of the table, if it is no tracepoint's.
    depth
        How many addresses of the stack the records have, the last of which is the caller's; 0: they have no stack.

    Attributes
    ----------
    table : Table
        ``e_SUBSYSTEM_EVENT``, in which what is no letter or digit has become an underscore.
    """

    def __init__(
        self, subsystem: str, event: str, fields: Sequence[Field], meaning: str = "", *, depth: int = 0
    ) -> None:
        self._sources: list[_Source] = [each for field in fields if field.size for each in _sources(field)]
        if depth:
            self._sources.append(_Caller(depth))
        columns = _named([*_COMMON, *(each.column for each in self._sources)])
        name = "e_" + re.sub(r"\W", "_", f"{subsystem}_{event}", flags=re.ASCII)
        self.table = Table(name, meaning or f"the kernel passes the tracepoint {subsystem}:{event}", tuple(columns))
        ends = [each.offset + each.size for each in self._sources]
        self._head_bytes = SAMPLE_HEAD.itemsize + max(ends, default=0)

    def columns(self, words: Words, starts: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Return the columns of the records that start there.

        Raises
        ------
        FormatError
            A record is shorter than it says.
        """
        try:
            heads = taken(words, starts * 8, self._head_bytes)
            common = np.ndarray(heads.shape, SAMPLE_HEAD, heads.data, strides=heads.strides)
            found = [common[each.name].astype(each.dtype) for each in _COMMON]
            found += [each.read(heads, words, starts) for each in self._sources]
        except IndexError as error:
            raise FormatError(f"a record of {self.table.name} is shorter than it says") from error
        return dict(zip((each.name for each in self.table.columns), found, strict=True))


class _Caller:
    """Where in its caller a function returns to, by the stack that the record has before the event's own bytes."""

    def __init__(self, depth: int) -> None:
        # Numbers of 64 bits: how many follow, a mark, the addresses.
        self.offset, self.size = STACK_AT - SAMPLE_HEAD.itemsize, 8 * (2 + depth)
        self.column = CALLER
        self._count = 1 + depth

    def read(self, heads: NDArray[np.void], words: Words, starts: NDArray[np.int64]) -> NDArray[Any]:
        del words, starts
        number = np.dtype(np.int64)
        counts, last = (_at(heads, STACK_AT + 8 * index, number) for index in (0, self._count))
        # Where the kernel could not follow its stack, what stands there is something else.
        return np.where(counts == self._count, last, 0)


class _Number:
    """A number of the record."""

    def __init__(self, field: Field, item: int, name: str) -> None:
        self.offset = field.offset + item * field.item_bytes
        self.size = field.item_bytes
        narrow = np.dtype(_SIGNED[self.size])
        wide = np.dtype(_SIGNED[min(2 * self.size, 8)])
        self.column = Column(name, narrow if field.signed else wide, field.declaration)
        self._raw = narrow if field.signed or self.size == 8 else np.dtype(f"u{self.size}")

    def read(self, heads: NDArray[np.void], words: Words, starts: NDArray[np.int64]) -> NDArray[Any]:
        del words, starts
        return _at(heads, SAMPLE_HEAD.itemsize + self.offset, self._raw).astype(self.column.dtype)


class _Bytes:
    """Text or bytes of fixed length in the record."""

    def __init__(self, field: Field) -> None:
        self.offset, self.size = field.offset, field.size
        self.column = Column(field.name, TEXT, field.declaration)
        self._decode = _decoder(field)

    def read(self, heads: NDArray[np.void], words: Words, starts: NDArray[np.int64]) -> NDArray[Any]:
        del words, starts
        return texts(_at(heads, SAMPLE_HEAD.itemsize + self.offset, np.dtype(f"V{self.size}")), self._decode)


class _Dynamic:
    """Text or bytes behind the fixed part of the record, of which a number says where and how long they are."""

    def __init__(self, field: Field) -> None:
        self.offset, self.size = field.offset, 4
        self.column = Column(field.name, TEXT, field.declaration)
        self._decode = _decoder(field)
        self._base = SAMPLE_HEAD.itemsize + (field.offset + 4 if field.where == "field" else 0)

    def read(self, heads: NDArray[np.void], words: Words, starts: NDArray[np.int64]) -> NDArray[Any]:
        places = _at(heads, SAMPLE_HEAD.itemsize + self.offset, np.dtype(np.uint32)).astype(np.int64)
        lengths, positions = places >> 16, starts * 8 + self._base + (places & 0xFFFF)
        if bool((positions + lengths > (starts + (words[starts] >> np.uint64(51)).astype(np.int64)) * 8).any()):
            raise IndexError
        result = np.empty(len(starts), object)
        for length in np.unique(lengths):
            rows = np.flatnonzero(lengths == length)
            result[rows] = texts(taken(words, positions[rows], int(length)), self._decode)
        return result


_Source: TypeAlias = _Number | _Bytes | _Dynamic | _Caller


def texts(items: NDArray[np.void], decode: Callable[[bytes], str]) -> NDArray[np.object_]:
    """Return the text of each item; `decode` is asked once for each different one."""
    size = items.dtype.itemsize
    if not size or not len(items):
        return np.full(len(items), decode(b""), object)
    padded = np.zeros((len(items), -(-size // 8)), np.uint64)
    np.ndarray(items.shape, items.dtype, padded.data, strides=padded.strides[:1])[:] = items
    hashes = padded[:, 0].copy()
    for column in padded.T[1:]:
        hashes *= np.uint64(_MULTIPLIER)
        hashes ^= column
    _, first, which = np.unique(hashes, return_index=True, return_inverse=True)
    if not bool((padded[first][which] == padded).all()):  # two different ones have one hash
        _, first, which = np.unique(padded, axis=0, return_index=True, return_inverse=True)
    decoded = np.array([decode(items[index].tobytes()) for index in first], object)
    return decoded[which.reshape(-1)]


def _sources(field: Field) -> list[_Source]:
    if field.where != "here":
        return [_Dynamic(field)]
    if field.item_bytes not in _SIGNED or field.text or field.items > _MOST_ITEMS:
        return [_Bytes(field)]
    if field.items == 1:
        return [_Number(field, 0, field.name)]
    if field.item_bytes == 1:
        return [_Bytes(field)]
    return [_Number(field, item, f"{field.name}_{item}") for item in range(field.items)]


def _named(columns: Sequence[Column]) -> list[Column]:
    """Give each column a name of its own; SQL does not tell upper from lower case."""
    taken_names: set[str] = set()
    result = []
    for column in columns:
        name = column.name
        while name.casefold() in taken_names:
            name = f"field_{name}"
        taken_names.add(name.casefold())
        result.append(Column(name, column.dtype, column.meaning))
    return result


def _at(heads: NDArray[np.void], offset: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    if not len(heads):
        return np.empty(0, dtype)
    return np.ndarray(heads.shape, dtype, heads.data, offset, heads.strides)


def _decoder(field: Field) -> Callable[[bytes], str]:
    if field.text:
        return _string
    if field.where == "here" and _ADDRESS.search(field.name):
        if field.size == _SOCKADDR_BYTES:
            return _sockaddr
        if field.size in (4, 16):
            return lambda raw: socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)
    if field.item_bytes in (2, 4, 8):
        dtype = np.dtype(f"{'i' if field.signed else 'u'}{field.item_bytes}")
        return lambda raw: " ".join(map(str, np.frombuffer(raw[: len(raw) // dtype.itemsize * dtype.itemsize], dtype)))
    return bytes.hex


def _string(raw: bytes) -> str:
    return raw.partition(b"\0")[0].decode(errors="replace")


def _sockaddr(raw: bytes) -> str:
    """Return the address of a ``struct sockaddr_in`` or ``sockaddr_in6``; without a port, which events have besides."""
    family = int.from_bytes(raw[:2], "little")
    if family == socket.AF_INET:
        return socket.inet_ntop(family, raw[4:8])
    if family == socket.AF_INET6:
        return socket.inet_ntop(family, raw[8:24])
    return raw.hex()
