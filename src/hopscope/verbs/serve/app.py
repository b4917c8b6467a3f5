# SPDX-License-Identifier: Apache-2.0
"""The process that talks to the network: it hands out what it was given, and nothing that comes in runs anything."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import pickle
import time
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from hopscope.verbs.serve.exposition import FORMS, OPENMETRICS, PROTOBUF, TEXT, form_of
from hopscope.verbs.serve.family import HEAD

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from socket import socket

    from starlette.requests import Request
    from starlette.types import ASGIApp

# Figures that are older than so many intervals, and this, are not current.
_INTERVALS: Final = 3
_SLACK_S: Final = 5.0


def make_app(line: socket, interval_s: float, token: str | None, hosts: Sequence[str]) -> ASGIApp:
    """Return the application.

    Parameters
    ----------
    line
        From the process that measures.
    interval_s
        How often something comes from it.
    token
        That a request for metrics must bear; None: it need not.
    hosts
        By which names it may be called; empty: by any. A page of a stranger that has its name resolve to 127.0.0.1
        sends another.
    """
    return _Site(line, interval_s, token, hosts).app


class _Site:
    def __init__(self, line: socket, interval_s: float, token: str | None, hosts: Sequence[str]) -> None:
        self._line = line
        self._current_s = _INTERVALS * interval_s + _SLACK_S
        self._expected = f"Bearer {token}".encode() if token is not None else None
        self._handed = b""
        # Forms that somebody has asked for since they came: most of what is measured is never read.
        self._forms: dict[str, bytes] = {}
        self._at_s = 0.0
        routes = [
            Route("/metrics", self._metrics),
            Route("/healthz", self._health),
            Route("/readyz", self._ready),
        ]
        middleware = [Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)] if hosts else []
        self.app: ASGIApp = Starlette(routes=routes, lifespan=self._lifespan, middleware=middleware)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(self._receive())
        yield
        task.cancel()

    async def _receive(self) -> None:
        reader, _ = await asyncio.open_connection(sock=self._line)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):  # it has ended
            while True:
                (size,) = HEAD.unpack(await reader.readexactly(HEAD.size))
                self._handed = await reader.readexactly(size)
                self._forms.clear()
                self._at_s = time.monotonic()

    def _is_current(self) -> bool:
        return bool(self._handed) and time.monotonic() - self._at_s < self._current_s

    async def _metrics(self, request: Request) -> Response:
        if self._expected is not None:
            given = request.headers.get("authorization", "").encode()
            if not hmac.compare_digest(given, self._expected):
                return PlainTextResponse(
                    "hopscope: this takes the token of --token-file.\n", 401, {"WWW-Authenticate": "Bearer"}
                )
        if not self._is_current():
            return PlainTextResponse("hopscope: nothing was measured yet, or not for some time.\n", 503)
        form = _preferred(request.headers.get("accept", ""))
        return Response(self._form(form), headers={"Content-Type": form, "Vary": "Accept"})

    def _form(self, form: str) -> bytes:
        if form not in self._forms:
            families, started_ns = pickle.loads(self._handed)  # noqa: S301 # of the process that measures, as root
            self._forms[form] = form_of(form, families, started_ns)
        return self._forms[form]

    async def _health(self, _request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _ready(self, _request: Request) -> Response:
        return PlainTextResponse("ok\n") if self._is_current() else PlainTextResponse("not ready\n", 503)


def _preferred(accept: str) -> str:
    """Return the form that a client prefers (RFC 9110, 12.5.1); of those that it likes as much, the simpler one."""
    best = dict.fromkeys(FORMS, 0.0)
    for each in accept.lower().split(","):
        kind, *given = (part.strip() for part in each.split(";"))
        parameters = dict(part.split("=", 1) for part in given if "=" in part)
        if form := _named(kind, parameters):
            with contextlib.suppress(ValueError):
                best[form] = max(best[form], float(parameters.get("q", "1")))
    return max(best, key=lambda form: best[form])


def _named(kind: str, parameters: Mapping[str, str]) -> str | None:
    """Return the form that a part of the header names; None: none that there is."""
    if kind in {"text/plain", "text/*", "*/*"}:
        return TEXT
    if kind == "application/openmetrics-text" and parameters.get("version", "1.0.0") == "1.0.0":
        return OPENMETRICS
    is_protobuf = (
        kind == "application/vnd.google.protobuf"
        and parameters.get("proto") == "io.prometheus.client.metricfamily"
        and parameters.get("encoding", "delimited") == "delimited"
    )
    return PROTOBUF if is_protobuf else None
