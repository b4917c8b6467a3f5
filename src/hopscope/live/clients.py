# SPDX-License-Identifier: Apache-2.0
"""Browsers on other machines: they come over mutual TLS as an agent's clients do, or not at all."""

from __future__ import annotations

import ipaddress
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hopscope.agent.allow import described
from hopscope.agent.log import Log
from hopscope.agent.tls import server_context
from hopscope.agent.tls_listen import address_of, shown_address
from hopscope.errors import UsageError

if TYPE_CHECKING:
    import asyncio
    import ssl

    from uvicorn.protocols.http.h11_impl import H11Protocol

    from hopscope.agent.allow import AllowList
    from hopscope.agent.tls import TlsFiles


@dataclass(frozen=True, slots=True)
class Clients:
    """Who may open the page from other machines.

    Attributes
    ----------
    host, port
        Where the server listens, and what browsers call it.
    files
        By which the server is known, and its clients are.
    allowed
        Which of these may open it.
    """

    host: str
    port: int
    files: TlsFiles
    allowed: AllowList

    @classmethod
    def of(cls, where: str, files: TlsFiles, allowed: AllowList) -> Clients:
        """Return what the options say.

        Raises
        ------
        UsageError
            The address is none, or does not say by which name browsers reach the page; a file is wrong.
        """
        host, port = address_of(where)
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            address = None  # a name
        if address and address.is_unspecified:
            raise UsageError(
                f"--listen {where} does not say by which address browsers reach the page",
                "Give the name or the address of this host that its certificate has",
            )
        made = cls(str(address or host.lower()), port, files, allowed)  # as browsers write it
        made.context()
        return made

    @property
    def host_in_url(self) -> str:
        """The host as it stands in an address."""
        return f"[{self.host}]" if ":" in self.host else self.host

    def context(self) -> ssl.SSLContext:
        """Return what the server asks of browsers."""
        return server_context(self.files, "http/1.1")

    def protocol(self) -> type[H11Protocol]:
        """Return what reads requests: of a client that is not on the list, it answers none."""
        from starlette.responses import PlainTextResponse  # noqa: PLC0415 # in the process that talks to browsers
        from uvicorn.protocols.http.h11_impl import H11Protocol  # noqa: PLC0415

        allowed, log = self.allowed, Log(sys.stderr)
        refused = PlainTextResponse("hopscope: your certificate is not on the list of clients (--allow).", 403)

        class Admitting(H11Protocol):
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
                super().connection_made(transport)
                tls: Any = transport.get_extra_info("ssl_object")
                certificate, der = tls.getpeercert(), tls.getpeercert(binary_form=True)
                if not allowed.admits(certificate, der):
                    who = described(certificate, der)
                    peer = shown_address(transport.get_extra_info("peername"))
                    log.say(peer, f"{who} is refused: it is not on the list of clients (--allow)")
                    self.app = refused

        return Admitting
