# SPDX-License-Identifier: Apache-2.0
"""What a service's processes tell the one that watches them: that there is something new, or why they end."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from hopscope.errors import HopscopeError

if TYPE_CHECKING:
    from socket import socket

_BEAT: Final = b"!"
_LONGEST: Final = 1 << 16


def beat(beats: socket) -> None:
    """Say that there is something new; nobody waits for who does not listen."""
    with contextlib.suppress(BlockingIOError):
        beats.send(_BEAT)


def fail(beats: socket, error: HopscopeError) -> None:
    """Say why the process ends."""
    beats.setblocking(True)  # noqa: FBT003 # as the library has it
    beats.send(f"{error.exit_code} {error}".encode())


def heed(beats: socket) -> bool:
    """Tell whether there is something new; does not wait.

    Raises
    ------
    HopscopeError
        A process ends, and said why.
    """
    found = False
    with contextlib.suppress(BlockingIOError):
        while data := beats.recv(_LONGEST):
            if data != _BEAT:
                code, _, sentence = data.decode().partition(" ")
                error = HopscopeError(sentence)
                error.exit_code = int(code)
                raise error
            found = True
    return found
