# SPDX-License-Identifier: Apache-2.0
"""The client's side of a subscription to a running ``hopscope serve --socket``."""

from __future__ import annotations

import json
import os
import socket
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from hopscope.errors import HopscopeError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from io import BufferedIOBase

SOCKET: Final = "/run/hopscope.sock"
_HEAD_BYTES: Final = 1 << 20


class Subscribed(NamedTuple):
    """A connection on which events come.

    Attributes
    ----------
    line
        The connection.
    file
        What comes on it, after the server's first line.
    head
        That line (docs/subscribe.md).
    failure
        Returns, once no more comes, why that is so if it is no end in order; None of what is served here.
    """

    line: socket.socket
    file: BufferedIOBase
    head: Mapping[str, Any]
    failure: Callable[[], HopscopeError | None] | None = None


def subscribed(path: str | os.PathLike[str], request: Mapping[str, Any]) -> Subscribed:
    """Subscribe.

    Parameters
    ----------
    path
        Of the socket.
    request
        As docs/subscribe.md describes it.

    Raises
    ------
    HopscopeError
        Nobody serves there, one may not connect, or what is asked for cannot be recorded; the sentence says which.
    """
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _connect(line, path)
        line.sendall(json.dumps(request).encode() + b"\n")
        return _answered(line)
    except BaseException:
        line.close()
        raise


def require_server(path: str | os.PathLike[str]) -> None:
    """See that one may connect.

    Raises
    ------
    HopscopeError
        As :func:`subscribed`.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        _connect(line, path)


def _answered(line: socket.socket) -> Subscribed:
    file = line.makefile("rb")
    text = file.readline(_HEAD_BYTES)
    if not text:
        raise HopscopeError("The server ended the connection", "Look at what `hopscope serve` says")
    head = json.loads(text)
    if "error" in head:
        error = HopscopeError(head["error"])
        error.exit_code = int(head["exit_code"])
        raise error
    return Subscribed(line, cast("BufferedIOBase", file), head)


def _connect(line: socket.socket, path: str | os.PathLike[str]) -> None:
    try:
        line.connect(os.fspath(path))
    except PermissionError as error:
        raise HopscopeError(
            f"You may not connect to {path}", "Become a member of its group: usermod -aG hopscope USER"
        ) from error
    except OSError as error:
        raise UsageError(
            f"Nobody serves subscriptions at {path}: {error.strerror or error}",
            f"Start it as root: hopscope serve --socket {path}",
        ) from error
