# SPDX-License-Identifier: Apache-2.0
"""The process that pushes metrics to a receiver of OpenTelemetry: it has no rights, and only sends what it was given.

Figures are cumulative, so that what could not be sent is in what is sent next: nothing has to be kept.
"""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from hopscope.errors import UsageError
from hopscope.gate import tell
from hopscope.verbs.serve.access import is_loopback, token_of
from hopscope.verbs.serve.family import HEAD, received

if TYPE_CHECKING:
    import socket
    from pathlib import Path

_PATH: Final = "/v1/metrics"
_PROTOBUF: Final = "application/x-protobuf"
_PATIENCE_S: Final = 10.0
# How much of an answer is read, and how much of that is shown.
_MOST_BYTES: Final = 1 << 16
_SHOWN: Final = 200
# For how long a receiver that is busy may ask to be left alone, at most.
_LONGEST_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Receiver:
    """Where metrics are pushed to.

    Attributes
    ----------
    url
        As it is shown.
    host, port, path
        Its parts.
    tls
        None: it is this machine, over HTTP.
    token
        That a request bears; None: none.
    """

    url: str
    host: str
    port: int | None
    path: str
    tls: ssl.SSLContext | None
    token: str | None

    @classmethod
    def of(cls, url: str, token_file: Path | None) -> Receiver:
        """Return what the options say.

        Raises
        ------
        UsageError
            It is no such URL, what is sent could be read on the way, or a file is wrong.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = urlsplit(""), None, None
        if parts.scheme not in {"http", "https"} or not host or parts.username or parts.query or parts.fragment:
            raise UsageError(f"--otlp {url} is not the URL of a receiver", "Give one such as http://127.0.0.1:4318")
        if parts.scheme == "http" and not is_loopback(host):
            raise UsageError(
                f"--otlp {url} would send metrics in the clear",
                "Give an https URL, or send them to a collector on this machine",
            )
        token = token_of(token_file) if token_file else None
        tls = ssl.create_default_context() if parts.scheme == "https" else None
        path = parts.path if parts.path not in {"", "/"} else _PATH
        return cls(url, host, port, path, tls, token)

    def send(self, request: bytes) -> tuple[str, float]:
        """Send a request; return why it was not taken, or nothing, and for how long to wait."""
        try:
            return self._answered(request)
        except (OSError, http.client.HTTPException) as error:
            return str(error) or type(error).__name__, 0.0

    def _answered(self, request: bytes) -> tuple[str, float]:
        headers = {"Content-Type": _PROTOBUF, "User-Agent": "hopscope"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        connection = (
            http.client.HTTPSConnection(self.host, self.port, timeout=_PATIENCE_S, context=self.tls)
            if self.tls
            else http.client.HTTPConnection(self.host, self.port, timeout=_PATIENCE_S)
        )
        try:
            connection.request("POST", self.path, request, headers)
            answer = connection.getresponse()
            said = answer.read(_MOST_BYTES)
        finally:
            connection.close()
        if answer.status == http.client.OK:
            return "", 0.0
        after = answer.headers.get("Retry-After", "")
        text = said.decode(errors="replace").strip()[:_SHOWN] if said.isascii() else ""
        why = f"{answer.status} {answer.reason}{f': {text}' if text else ''}"
        return why, min(float(after), _LONGEST_S) if after.isdecimal() else 0.0


def push(receiver: Receiver, line: socket.socket) -> None:
    """Send the newest of what comes over the line until it ends; say on stderr when that fails, or works again.

    Parameters
    ----------
    line
        From the process that measures, which never waits for a receiver.
    """
    newest = _Newest(line)
    failed, not_before_s = "", 0.0
    while (request := newest.take()) is not None:
        if time.monotonic() < not_before_s:
            continue
        why, wait_s = receiver.send(request)
        not_before_s = time.monotonic() + wait_s
        if why and not failed:
            tell(f"hopscope: metrics cannot be pushed to {receiver.url}: {why}; it is tried again each interval")
        elif failed and not why:
            tell(f"hopscope: metrics are pushed to {receiver.url} again")
        failed = why


class _Newest:
    """Takes requests from a line in a thread, and keeps the newest."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._changed = threading.Condition()
        self._request: bytes | None = None
        self._over = False
        threading.Thread(target=self._run, daemon=True).start()

    def take(self) -> bytes | None:
        """Return the newest request that was not taken yet, and wait for it; None: none will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or self._request is not None)
            found, self._request = self._request, None
            return found

    def _run(self) -> None:
        try:
            while head := received(self._line, HEAD.size):
                request = received(self._line, *HEAD.unpack(head))
                self._set(request, over=not request)
        finally:
            self._set(None, over=True)

    def _set(self, request: bytes | None, *, over: bool) -> None:
        with self._changed:
            self._request, self._over = request, over
            self._changed.notify()
