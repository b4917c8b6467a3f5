# SPDX-License-Identifier: Apache-2.0
"""What libbpf says, kept for the error instead of going to stderr.

libbpf calls back on the thread that called it, so the text is kept per thread and belongs to the call in progress.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from hopscope.libbpf._abi import PRINT_CALLBACK

if TYPE_CHECKING:
    from collections.abc import Iterator

# The verifier says what is wrong at the end; 64 KiB hold some 1,000 of its lines.
LOG_LIMIT_BYTES: Final = 64 * 1024
_LIBBPF_DEBUG: Final = 2


class Log:
    """The last :data:`LOG_LIMIT_BYTES` of what libbpf said."""

    def __init__(self) -> None:
        self._text = b""

    def add(self, text: bytes) -> None:
        """Append, and drop what is too old."""
        self._text = (self._text + text)[-LOG_LIMIT_BYTES:]

    @property
    def text(self) -> str:
        """What is kept."""
        return self._text.decode(errors="replace")


class _Current(threading.local):
    log: Log | None = None


_current = _Current()


@contextmanager
def captured() -> Iterator[Log]:
    """Collect what libbpf says on this thread in the block."""
    outer, log = _current.log, Log()
    _current.log = log
    try:
        yield log
    finally:
        _current.log = outer


@functools.cache
def _libc() -> ctypes.CDLL:
    # Without `use_errno`, unlike everything else: the errno that libbpf is about to report must survive.
    return ctypes.CDLL(None)


def _print(level: int, text_format: int | None, arguments: int | None) -> int:
    log = _current.log
    if log is None or level >= _LIBBPF_DEBUG:
        return 0
    # vasprintf and not vsnprintf: a verifier log may be megabytes, of which the end is wanted.
    text = ctypes.c_void_p()
    length = int(_libc().vasprintf(ctypes.byref(text), ctypes.c_void_p(text_format), ctypes.c_void_p(arguments)))
    if length > 0 and text.value:
        kept = min(length, LOG_LIMIT_BYTES)
        log.add(ctypes.string_at(text.value + length - kept, kept))
        _libc().free(text)
    return length


PRINT: Final = PRINT_CALLBACK(_print)
