# SPDX-License-Identifier: Apache-2.0
"""Who may ask the web server: a browser that got the token, from our own page.

The token is in the fragment of the address, which browsers send to nobody. The page exchanges it for a cookie that
scripts cannot read and that goes along with requests of our own pages alone. A page of a stranger that has its name
resolve to 127.0.0.1 (DNS rebinding) sends another Host; one that sends forms or requests here, another Origin.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# What says where a request comes from; requests that a user typed have "none".
_OWN_SITES: Final = {None, "none", "same-origin"}
_PORTS: Final = {"http": 80, "https": 443}
DATA: Final = "/api/"
LOGIN: Final = "/api/session"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the server is.

    Attributes
    ----------
    scheme
        ``http`` or ``https``.
    hosts
        Names by which browsers reach it, as they are written in a URL; the first one is printed.
    port
        On which it listens.
    """

    scheme: str
    hosts: tuple[str, ...]
    port: int

    def origins(self) -> tuple[str, ...]:
        """Return what the addresses of its pages begin with, as browsers send it: without the scheme's own port."""
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return tuple(f"{self.scheme}://{host}{port}" for host in self.hosts)


class Guard:
    """Admits requests of hopscope's own page only, and answers with data only where a request has a valid cookie.

    Parameters
    ----------
    app
        What answers.
    token
        In the address that the user was given.
    place
        Where the server is. Cookies are the same for all ports of a host, so that their name has the port.
    """

    def __init__(self, app: ASGIApp, token: str, place: Place) -> None:
        self._app = app
        self._token = token
        self._session = secrets.token_urlsafe(32)
        self._cookie = f"hopscope-{place.port}"
        self._settings = f"HttpOnly; SameSite=Strict; Path=/{'; Secure' if place.scheme == 'https' else ''}"
        self._origins = frozenset(place.origins())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope, Headers(scope=scope))
        await (refusal or self._app)(scope, receive, send_with_headers)

    def session_for(self, token: object) -> str | None:
        """Return the cookie for who has the token; None: it is another one."""
        if not isinstance(token, str) or not hmac.compare_digest(token.encode(), self._token.encode()):
            return None
        return f"{self._cookie}={self._session}; {self._settings}"

    def _refusal(self, scope: Scope, headers: Headers) -> JSONResponse | None:
        origin = headers.get("origin")
        foreign = origin is not None and origin not in self._origins
        if foreign or headers.get("sec-fetch-site") not in _OWN_SITES:
            return JSONResponse({"error": "This request comes from another site."}, 403)
        if scope["method"] not in {"GET", "HEAD"} and origin is None:
            return JSONResponse({"error": "This request does not say from which site it comes."}, 403)
        if scope["path"].startswith(DATA) and scope["path"] != LOGIN and not self._has_session(headers):
            sentence = "Open the address that `hopscope web` printed: it has the token that this page needs."
            return JSONResponse({"error": sentence}, 401)
        return None

    def _has_session(self, headers: Headers) -> bool:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return False
        return found is not None and hmac.compare_digest(found.value.encode(), self._session.encode())
