# SPDX-License-Identifier: Apache-2.0
"""The web server: it hands out the page, passes questions on, and has no data of its own."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import re
from collections import deque
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from hopscope.verbs.web.guard import DATA, LOGIN, Guard, Place
from hopscope.verbs.web.readers import Keeper, Reader, whole
from hopscope.verbs.web.wire import Incomplete

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from socket import socket

    from starlette.requests import Request
    from starlette.types import ASGIApp

T = TypeVar("T")
_TYPES: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_LONGEST_QUESTION: Final = 1 << 15
_LONGEST_LINE: Final = 1 << 24
_LONGEST_REQUEST: Final = 1 << 11
# How lines begin that the process that measures sends.
_FRAME: Final = b'{"kind": "frame"'
_RESTART: Final = b'{"kind": "restart"'
# Frames that a page gets that is opened later; further ones are dropped for a page that does not read them.
_KEPT: Final = 120
_WAITING: Final = 8
_MOST_STREAMS: Final = 32
# Statuses, the second one of what nobody reads.
_OK: Final = 200
_GONE: Final = 499
# Which of the processes that read the recording answers, if not the first one: what takes long waits for other
# questions of its kind alone. Events of the timeline come from another one than what is prepared for it.
_READERS: Final = {"sql": 1, "export": 1, "flame": 1, "cpu": 1, "timeline": 1, "details": 2}


class Stream:
    """Frames of the process that measures, for every page that listens."""

    def __init__(self, line: socket) -> None:
        self._line = line
        self._first = b""
        self._kept: deque[bytes] = deque(maxlen=_KEPT)
        self._listening: set[asyncio.Queue[bytes]] = set()
        self._writer: asyncio.StreamWriter | None = None

    async def run(self) -> None:
        """Pass frames on until that process ends; those before another selection are forgotten."""
        reader, self._writer = await asyncio.open_connection(sock=self._line, limit=_LONGEST_LINE)
        self._first = await reader.readline()
        while line := await reader.readline():
            if line.startswith(_RESTART):
                self._kept.clear()
            elif line.startswith(_FRAME):
                self._kept.append(line)
            for each in self._listening:
                if each.full():
                    each.get_nowait()
                each.put_nowait(line)

    async def ask(self, question: dict[str, Any]) -> None:
        """Pass a request on; what becomes of it, all pages are told."""
        if self._writer:
            self._writer.write(json.dumps(question).encode() + b"\n")
            await self._writer.drain()

    async def events(self) -> AsyncIterator[bytes]:
        """Iterate over server-sent events."""
        waiting: asyncio.Queue[bytes] = asyncio.Queue(_WAITING)
        before = [self._first, *self._kept]
        self._listening.add(waiting)
        try:
            yield b"".join(b"data: " + line.rstrip() + b"\n\n" for line in before if line)
            while True:
                yield b"data: " + (await waiting.get()).rstrip() + b"\n\n"
        finally:
            self._listening.discard(waiting)

    def is_full(self) -> bool:
        """Tell whether more pages listen than anybody opens."""
        return len(self._listening) >= _MOST_STREAMS


def page_files() -> dict[str, bytes]:
    """Return the page's files by their names below it: they are read before the process gives up its rights."""
    here = files("hopscope.verbs.web").joinpath("page")
    folders = {"": here, "panels/": here.joinpath("panels")}
    return {
        f"{prefix}{file.name}": file.read_bytes()
        for prefix, folder in folders.items()
        for file in folder.iterdir()
        if file.is_file()
    }


def make_app(
    token: str, place: Place, readers: tuple[socket, ...], keeper: socket | None, collector: socket | None
) -> ASGIApp:
    """Return the application.

    Parameters
    ----------
    token
        Who has it may use it.
    place
        Where it is.
    readers
        To the processes that read the recording, of which the first has said that it is open; empty: there is none.
    keeper
        To the process that replaces them.
    collector
        To the process that measures.
    """
    return _Site(token, place, readers, keeper, collector).app


class _Site:
    def __init__(
        self, token: str, place: Place, readers: tuple[socket, ...], keeper: socket | None, collector: socket | None
    ) -> None:
        self._files = page_files()
        self._flame = _flame_policy()
        self._readers = []
        if keeper:
            replacing = Keeper(keeper)
            self._readers = [Reader(number, each, replacing, opening=number > 0) for number, each in enumerate(readers)]
        self._stream = Stream(collector) if collector else None
        routes = [
            Route("/", self._page),
            Route("/page/{name:path}", self._page),
            Route(LOGIN, self._login, methods=["POST"]),
            Route(f"{DATA}about", self._about),
            Route(f"{DATA}ask", self._ask, methods=["POST"]),
            Route(f"{DATA}flame.svg", self._flame_graph),
            Route(f"{DATA}download/{{form}}", self._download),
            Route(f"{DATA}events", self._events),
            Route(f"{DATA}measure", self._measure, methods=["POST"]),
        ]
        inner = Starlette(
            routes=routes,
            lifespan=self._lifespan,
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=place.hosts, www_redirect=False)],
        )
        self._guard = Guard(inner, token, place)
        self.app: ASGIApp = self._guard

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(self._stream.run())] if self._stream else []
        if self._readers:
            # While a browser starts: it is what the page shows first.
            first = {"ask": "timeline", "part": "events", "columns": 1}
            tasks.append(asyncio.create_task(whole(self._reader_for(first), first)))
        yield
        for task in tasks:
            task.cancel()
        for each in self._readers:
            each.close()

    async def _page(self, request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in self._files:
            return JSONResponse({"error": "There is nothing here."}, 404)
        return Response(self._files[name], media_type=_TYPES[name.rpartition(".")[2]])

    async def _login(self, request: Request) -> Response:
        cookie = self._guard.session_for((await _body(request)).get("token"))
        if cookie is None:
            return JSONResponse({"error": "This token is of another run of `hopscope web`."}, 401)
        return Response(status_code=204, headers={"Set-Cookie": cookie})

    async def _about(self, request: Request) -> Response:
        recording = None
        if self._readers:
            head, data = await _whole(request, self._readers[0], {"ask": "about"})
            if head.get("status") != _OK:
                return Response(data, head.get("status", 502), media_type=head.get("type"))
            recording = json.loads(data)
        return JSONResponse({"live": self._stream is not None, "recording": recording})

    async def _ask(self, request: Request) -> Response:
        question = await _body(request)
        if not self._readers:
            return JSONResponse({"error": "No recording is open."}, 404)
        if question.get("ask") == "export":
            return JSONResponse({"error": "Exports are downloads."}, 400)
        head, data = await _whole(request, self._reader_for(question), question)
        return Response(data, head.get("status", 502), media_type=head.get("type"))

    async def _flame_graph(self, request: Request) -> Response:
        if not self._readers:
            return JSONResponse({"error": "No recording is open."}, 404)
        question = {"ask": "flame", "of": request.query_params.get("of"), "options": _options(request)}
        head, data = await _whole(request, self._readers[1], question)
        # An origin of its own: whatever a name in it did, it could not reach the page.
        headers = {"Content-Security-Policy": self._flame}
        return Response(data, head.get("status", 502), headers, head.get("type"))

    async def _download(self, request: Request) -> Response:
        if not self._readers:
            return JSONResponse({"error": "No recording is open."}, 404)
        form = re.sub(r"\W", "", request.path_params["form"])
        question = {"ask": "export", "form": form, "options": _options(request)}
        stack = contextlib.AsyncExitStack()
        try:
            begun = await _unless_gone(request, stack.enter_async_context(self._readers[1].asked(question)))
        except (Incomplete, StopAsyncIteration, OSError) as error:
            await stack.aclose()
            return JSONResponse({"error": await self._readers[1].ended(error)}, 502)
        if begun is None:
            return Response(status_code=_GONE)
        head, parts = begun

        async def body() -> AsyncIterator[bytes]:
            async with stack:
                async for part in parts:
                    yield part

        headers = {
            "Content-Disposition": f'attachment; filename="{head.get("name", "hopscope")}"',
            "Hopscope-Notes": json.dumps(head.get("notes", [])),
        }
        good = head.get("status") == _OK
        return StreamingResponse(body(), head.get("status", 502), headers if good else None, head.get("type"))

    async def _events(self, _request: Request) -> Response:
        if self._stream is None or self._stream.is_full():
            return JSONResponse({"error": "Nothing is measured, or too many pages listen."}, 404)
        return StreamingResponse(self._stream.events(), media_type="text/event-stream")

    async def _measure(self, request: Request) -> Response:
        question = await _body(request)
        if self._stream is None:
            return JSONResponse({"error": "Nothing is measured."}, 404)
        if len(question) != 1 or len(json.dumps(question)) > _LONGEST_REQUEST:
            return JSONResponse({"error": "This filter is too long."}, 400)
        await self._stream.ask(question)
        return Response(status_code=204)

    def _reader_for(self, question: dict[str, Any]) -> Reader:
        return self._readers[_READERS.get(str(question.get("ask")), 0)]


async def _whole(request: Request, reader: Reader, question: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Ask for who sent a request, and return head and parts of the answer; nothing where nobody waits for them."""
    return await _unless_gone(request, whole(reader, question)) or ({"status": _GONE}, b"null")


async def _unless_gone(request: Request, answering: Coroutine[Any, Any, T]) -> T | None:
    """Return an answer; None: the browser has gone, perhaps to open the page anew, and it was given up."""
    task = asyncio.create_task(answering)
    watching = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait({task, watching}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        watching.cancel()
        task.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request) -> dict[str, Any]:
    """Return the object that a request brings; nothing where it is none, or too large."""
    data = b""
    async for part in request.stream():
        data += part
        if len(data) > _LONGEST_QUESTION:
            return {}
    return _object(data)


def _options(request: Request) -> dict[str, Any]:
    return _object(request.query_params.get("options", "{}"))


def _object(data: bytes | str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _flame_policy() -> str:
    """Return what the flame graph may do: run our script, and nothing that is in its data."""
    here = files("hopscope.term")
    sums = [_sum(f"\n{here.joinpath(name).read_text()}") for name in ("flamegraph.js", "flamegraph.css")]
    return (
        f"sandbox allow-scripts; default-src 'none'; script-src '{sums[0]}'; style-src '{sums[1]}'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'self'"
    )


def _sum(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
