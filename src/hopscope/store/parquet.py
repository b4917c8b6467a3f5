# SPDX-License-Identifier: Apache-2.0
"""Write columns of integers as a Parquet file, at less than what an engine takes for it that has to suit any data.

What is written while others work takes their CPUs: so each column is encoded in the one way that suits what it has, by
a few passes of NumPy over a page that is in the cache, and compressed. There are no nulls, and one row group; see
https://parquet.apache.org/docs/file-format/.

- Times rise: their differences, in as few bytes as the largest of a page needs (DELTA_BINARY_PACKED).
- Low numbers, where all of a page fit into a byte: the dictionary has each at its own place (RLE_DICTIONARY).
- Wide numbers with few values: their places in the dictionary, found by comparing with each (RLE_DICTIONARY).
- All else as it is (PLAIN): the compression finds what comes again as quickly as NumPy would look it up.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np

from hopscope.store.thrift import I32, I64, LIST, STRUCT, TEXT, Field, packed, signed_varint, varint

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

# Of a column: so many fit into the cache, with what is made of them.
PAGE_ROWS: Final = 1 << 15
# The quickest is the best buy.
_LEVEL: Final = 1
_MAGIC: Final = b"PAR1"
_VERSION: Final = 2
_REQUIRED: Final = 0
_ZSTD: Final = 6
_DATA_PAGE: Final = 0
_DICTIONARY_PAGE: Final = 2
_PLAIN: Final = 0
_RLE: Final = 3
_DELTA_BINARY_PACKED: Final = 5
_RLE_DICTIONARY: Final = 8
_PHYSICAL: Final = {1: np.int32, 2: np.int32, 4: np.int32, 8: np.int64}
# Size of a value → physical type (int32, int64) and converted type (signed, of so many bits).
_TYPES: Final = {1: (1, 15), 2: (1, 16), 4: (1, 17), 8: (2, 18)}
_BYTE: Final = 256
_BYTE_BITS: Final = 8
# Values of so many bytes are seldom so low that a byte would do.
_WIDE: Final = 8
# So many different values are looked for one by one, if no more are among so many of them.
_FEW: Final = 8
_SAMPLES: Final = 128
# What a block of differences must be a multiple of, and what each can take.
_BLOCK: Final = 128
_STEPS: Final = (np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.uint32))


@dataclass(slots=True)
class _Chunk:
    """A column in the file.

    Attributes
    ----------
    pages
        Each with its header.
    raw_bytes
        Of them before they were compressed.
    encodings
        That its pages have.
    meanings
        The dictionary: what the numbers in its pages stand for.
    themselves
        They stand for themselves, as far as they are needed.
    many
        A page had more values than are looked for.
    """

    name: str
    size: int
    pages: list[bytes] = field(default_factory=list)
    raw_bytes: int = 0
    encodings: set[int] = field(default_factory=set)
    meanings: list[int] = field(default_factory=list)
    themselves: bool = False
    many: bool = False

    def add(self, values: NDArray[Any], *, rises: bool) -> None:
        """Encode a page."""
        encoding, body = self._encoded(values, rises=rises)
        self.encodings.add(encoding)
        header = [
            Field(1, I32, len(values)),
            Field(2, I32, encoding),
            Field(3, I32, _RLE),
            Field(4, I32, _RLE),
        ]
        self._add(body, _DATA_PAGE, Field(5, STRUCT, header))

    def end(self) -> None:
        """Put the dictionary before the pages that need it."""
        if self.meanings:
            body = np.array(self.meanings, _PHYSICAL[self.size]).tobytes()
            about = [Field(1, I32, len(self.meanings)), Field(2, I32, _PLAIN)]
            self._add(body, _DICTIONARY_PAGE, Field(7, STRUCT, about))
            self.pages.insert(0, self.pages.pop())

    def described(self, offset: int, rows: int) -> list[Field]:
        """Return the ColumnChunk that the file's end has of it: it begins at `offset`."""
        behind = offset + (len(self.pages[0]) if self.meanings else 0)
        about = [
            Field(1, I32, _TYPES[self.size][0]),
            Field(2, LIST, (I32, sorted(self.encodings | {_PLAIN, _RLE}))),
            Field(3, LIST, (TEXT, [self.name])),
            Field(4, I32, _ZSTD),
            Field(5, I64, rows),
            Field(6, I64, self.raw_bytes),
            Field(7, I64, sum(map(len, self.pages))),
            Field(9, I64, behind),
            *([Field(11, I64, offset)] if self.meanings else []),
        ]
        return [Field(2, I64, offset), Field(3, STRUCT, about)]

    def _encoded(self, values: NDArray[Any], *, rises: bool) -> tuple[int, bytes | memoryview]:
        if rises and (body := _differences(values)):
            return _DELTA_BINARY_PACKED, body
        if (numbers := self._numbers(values)) is not None:
            return _RLE_DICTIONARY, _bytes(numbers)
        return _PLAIN, values.astype(_PHYSICAL[self.size], copy=False).data

    def _numbers(self, values: NDArray[Any]) -> NDArray[np.uint8] | None:
        """Return the values' numbers in the dictionary; None where they are too many."""
        if self.themselves or (not self.meanings and self.size < _WIDE):
            least, most = int(values.min()), int(values.max())
            if least >= 0 and most < _BYTE:
                self.themselves = True
                self.meanings += range(len(self.meanings), most + 1)
                return values.astype(np.uint8)
        if self.themselves or self.size < _WIDE or self.many:
            return None
        few = None
        if len(np.unique(values[:: len(values) // _SAMPLES + 1])) <= _FEW:
            few = self._few(values)
        self.many = few is None
        return few

    def _few(self, values: NDArray[Any]) -> NDArray[np.uint8] | None:
        """Compare them with one meaning after the other, which is quicker than to look each up where there are few."""
        numbers = np.zeros(len(values), np.uint8)
        left = len(values)
        for number in range(_FEW):
            if number == len(self.meanings):
                known = np.isin(values, self.meanings)
                self.meanings.append(int(values[known.argmin()]))
            equal = values == self.meanings[number]
            left -= int(np.count_nonzero(equal))
            numbers += equal.view(np.uint8) * np.uint8(number)
            if not left:
                return numbers
        return None

    def _add(self, body: bytes | memoryview, kind: int, about: Field) -> None:
        raw_bytes = memoryview(body).nbytes
        compressed = zstd.compress(body, _LEVEL)
        header = packed([Field(1, I32, kind), Field(2, I32, raw_bytes), Field(3, I32, len(compressed)), about])
        self.raw_bytes += len(header) + raw_bytes
        self.pages.append(header + compressed)


class IntegerFile:
    """A file that comes to be page by page, each of which is encoded at once.

    Parameters
    ----------
    columns
        Name → type, of signed integers. Names that end in ``_ns`` have times.

    Attributes
    ----------
    rows
        So many it has.
    """

    def __init__(self, columns: Mapping[str, np.dtype[Any]]) -> None:
        self._chunks = [_Chunk(name, dtype.itemsize) for name, dtype in columns.items()]
        self.rows = 0

    def add(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Add a page: values of all columns, of one length, which is not 0. They can be used again."""
        for chunk in self._chunks:
            chunk.add(columns[chunk.name], rises=chunk.name.endswith("_ns"))
        self.rows += len(columns[self._chunks[0].name])

    def write(self, file: BinaryIO) -> None:
        """Write it, once, to a file that is empty."""
        offset = file.write(_MAGIC)
        groups = []
        for chunk in self._chunks:
            chunk.end()
            groups.append(chunk.described(offset, self.rows))
            offset += sum(file.write(page) for page in chunk.pages)
        group = [
            Field(1, LIST, (STRUCT, groups)),
            Field(2, I64, sum(chunk.raw_bytes for chunk in self._chunks)),
            Field(3, I64, self.rows),
        ]
        root = [Field(4, TEXT, "schema"), Field(5, I32, len(self._chunks))]
        about = packed(
            [
                Field(1, I32, _VERSION),
                Field(2, LIST, (STRUCT, [root, *map(_schema, self._chunks)])),
                Field(3, I64, self.rows),
                Field(4, LIST, (STRUCT, [group])),
                Field(6, TEXT, "hopscope"),
            ]
        )
        file.write(about + len(about).to_bytes(4, "little") + _MAGIC)


def _schema(chunk: _Chunk) -> list[Field]:
    physical, converted = _TYPES[chunk.size]
    return [
        Field(1, I32, physical),
        Field(3, I32, _REQUIRED),
        Field(4, TEXT, chunk.name),
        Field(6, I32, converted),
    ]


def _bytes(numbers: NDArray[np.uint8]) -> bytes:
    """Encode as one run of bytes, in groups of eight."""
    groups = -(-len(numbers) // 8)
    return bytes([_BYTE_BITS]) + varint(groups << 1 | 1) + numbers.tobytes().ljust(groups * 8, b"\0")


def _differences(values: NDArray[Any]) -> bytes | None:
    """Encode as one block of differences above the least one; None where they are too wide."""
    steps = np.diff(values)
    if not len(steps):
        return None
    least, most = int(steps.min()), int(steps.max())
    width = next((each for each in _STEPS if (most - least) >> each.itemsize * 8 == 0), None)
    if width is None:
        return None
    count = -(-len(steps) // _BLOCK) * _BLOCK
    head = varint(count) + varint(1) + varint(len(values)) + signed_varint(int(values[0])) + signed_varint(least)
    body = (steps - least).astype(width).tobytes()
    return head + bytes([width.itemsize * 8]) + body.ljust(count * width.itemsize, b"\0")
