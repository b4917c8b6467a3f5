# SPDX-License-Identifier: Apache-2.0
"""How large a recording may be that is opened: who sends one decides what is in it, not what it costs to read it.

docs/trace.md states the limits. All of them are raised by one factor, which ``--limits`` gives.
"""

from __future__ import annotations

import contextlib
import math
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hopscope.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_DOCUMENT_BYTES: Final = 32 << 20
_PARTS: Final = 100_000
_ROWS: Final = 1_000_000_000
# A recorder's rows take two bytes and more; those of a table with few rows may take less.
_SPARE_ROWS: Final = 1 << 20
_ROWS_PER_BYTE: Final = 8


@dataclass(frozen=True, slots=True)
class Limits:
    """What a recording may have; each method raises FormatError where it has more.

    Parameters
    ----------
    factor
        By which all of them are raised.
    """

    factor: float = 1.0

    def document(self, path: Path, size_bytes: int) -> None:
        """Check the size of a JSON file."""
        self._check(size_bytes, _DOCUMENT_BYTES, f"{path} has {size_bytes:,} bytes")

    def parts(self, folder: Path, parts: int) -> None:
        """Check the number of a recording's Parquet files."""
        self._check(parts, _PARTS, f"{folder} has {parts:,} Parquet files")

    def rows(self, folder: Path, rows: int, size_bytes: int) -> None:
        """Check the number of a recording's rows, by itself and against the size of its Parquet files."""
        said = f"{folder} has {rows:,} rows in {size_bytes:,} bytes"
        self._check(rows, min(_ROWS, _SPARE_ROWS + _ROWS_PER_BYTE * size_bytes), said)

    def _check(self, value: int, most: int, said: str) -> None:
        if value > most * self.factor:
            raise FormatError(
                f"{said}, more than {int(most * self.factor):,}, the limit",
                f"If you trust it, raise the limits with --limits {math.ceil(value / most)}",
            )


_CURRENT: Final = ContextVar("limits", default=Limits())  # noqa: B039 # it cannot be changed


def limits() -> Limits:
    """Return what applies here."""
    return _CURRENT.get()


@contextlib.contextmanager
def raised(factor: float) -> Iterator[None]:
    """Raise the limits for what is opened inside of the ``with``."""
    before = _CURRENT.set(Limits(factor))
    try:
        yield
    finally:
        _CURRENT.reset(before)
