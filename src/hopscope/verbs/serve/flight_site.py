# SPDX-License-Identifier: Apache-2.0
"""The process that is asked for a recording of the last seconds: by HTTP on a unix socket, and nothing but that.

It has no rights, and passes on that somebody asked; nothing of a request is used.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

if TYPE_CHECKING:
    from socket import socket

    from starlette.requests import Request
    from starlette.types import ASGIApp

PATH: Final = "/dump"
_LONGEST: Final = 1 << 16


def make_app(line: socket) -> ASGIApp:
    """Return the application.

    Parameters
    ----------
    line
        To the process that keeps the last seconds.
    """
    line.setblocking(False)  # noqa: FBT003 # as the library has it
    one_at_a_time = asyncio.Lock()

    async def dump(_request: Request) -> JSONResponse:
        loop = asyncio.get_running_loop()
        async with one_at_a_time:
            await loop.sock_sendall(line, f"POST {PATH}".encode())
            answer: dict[str, Any] = json.loads(await loop.sock_recv(line, _LONGEST) or '{"error": "It has ended"}')
        if "recording" in answer:
            return JSONResponse(answer, 201)
        if wait_s := answer.get("retry_after_s"):
            return JSONResponse(answer, 429, {"Retry-After": str(int(wait_s) + 1)})
        return JSONResponse(answer, 500)

    return Starlette(routes=[Route(PATH, dump, methods=["POST"])])
