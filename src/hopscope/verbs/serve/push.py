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
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from hopscope.errors import UsageError
from hopscope.gate import tell
from hopscope.term.format import plural
from hopscope.verbs.serve.access import is_loopback, token_of
from hopscope.verbs.serve.family import HEAD, received
from hopscope.verbs.serve.otlp import PROTOBUF, Partial, partial_success, refusal

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from hopscope.verbs.serve.tally import Tally

_PATH: Final = "/v1/metrics"
_PATIENCE_S: Final = 10.0
# How much of an answer is read, and how much of that is shown.
_MOST_BYTES: Final = 1 << 16
_SHOWN: Final = 200
# For how long a receiver that is busy may ask to be left alone, at most.
_LONGEST_S: Final = 300.0


class Answer(NamedTuple):
    """What a receiver answers.

    Attributes
    ----------
    why
        Why it did not take the request; empty: it did.
    wait_s
        For how long it wants to be left alone.
    partial
        What it says of a request that it took.
    """

    why: str
    wait_s: float = 0.0
    partial: Partial = Partial(0, "")


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

    def send(self, request: bytes) -> Answer:
        """Send a request."""
        try:
            return self._answered(request)
        except (OSError, http.client.HTTPException) as error:
            return Answer(str(error) or type(error).__name__)

    def _answered(self, request: bytes) -> Answer:
        headers = {"Content-Type": PROTOBUF, "User-Agent": "hopscope"}
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
        kind = answer.headers.get("Content-Type", "")
        if answer.status == http.client.OK:
            return Answer("", partial=partial_success(said, kind))
        text = _shown(refusal(said, kind))
        why = f"{answer.status} {answer.reason}{f': {text}' if text else ''}"
        return Answer(why, _seconds(answer.headers.get("Retry-After", "")))


def _seconds(after: str) -> float:
    """Return how long to wait by a ``Retry-After``, in its forms of RFC 9110, 10.2.3."""
    if after.isdecimal():
        wait_s = float(after)
    else:
        try:
            wait_s = (parsedate_to_datetime(after).astimezone(UTC) - datetime.now(UTC)).total_seconds()
        except (ValueError, OverflowError):
            return 0.0
    return min(max(wait_s, 0.0), _LONGEST_S)


def _shown(text: str) -> str:
    return text.strip()[:_SHOWN]


def push(receiver: Receiver, line: socket.socket, tally: Tally) -> None:
    """Send the newest of what comes over the line until it ends; say on stderr when that fails, or works again.

    What the receiver rejected of requests that it took is counted, and told of the first time.

    Parameters
    ----------
    line
        From the process that measures, which never waits for a receiver.
    tally
        With the numbers of :data:`~hopscope.verbs.serve.tally.PUSHED`.
    """
    newest = _Newest(line)
    failed, not_before_s = "", 0.0
    told: set[bool] = set()
    while (request := newest.take()) is not None:
        if time.monotonic() < not_before_s:
            continue
        why, wait_s, partial = receiver.send(request)
        not_before_s = time.monotonic() + wait_s
        if why and not failed:
            again = f"in {wait_s:.0f} s" if wait_s else "each interval"
            tell(f"hopscope: metrics cannot be pushed to {receiver.url}: {why}; it is tried again {again}")
        elif failed and not why:
            tell(f"hopscope: metrics are pushed to {receiver.url} again")
        failed = why
        tally["rejected"] += partial.rejected
        if any(partial) and (rejects := partial.rejected > 0) not in told:
            told.add(rejects)
            tell(f"hopscope: {_sentence(receiver, partial)}")


def _sentence(receiver: Receiver, partial: Partial) -> str:
    """Return what to say of a request that was not taken as it was."""
    reason = f": {text}" if (text := _shown(partial.message)) else ""
    if not partial.rejected:
        return f"{receiver.url} takes what is pushed, and warns{reason}"
    points = plural(partial.rejected, "data point")
    return f"{receiver.url} rejected {points}{reason}; hopscope_otlp_rejected_points_total counts all of them"


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
