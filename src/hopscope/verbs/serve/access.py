# SPDX-License-Identifier: Apache-2.0
"""Who may read metrics: this machine; any other over TLS alone, with a client's certificate or a token."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hopscope.agent.allow import AllowList
from hopscope.agent.key_files import check_secret
from hopscope.agent.tls import server_context_for_all
from hopscope.agent.tls_listen import address_of
from hopscope.errors import UsageError
from hopscope.live.clients import Clients

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence
    from pathlib import Path

    from uvicorn.protocols.http.h11_impl import H11Protocol

    from hopscope.agent.tls import Tls
    from hopscope.live.processes import Secured

_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
# RFC 6750, 2.1; a short one could be guessed.
_TOKEN: Final = re.compile(r"[\w.~+/-]{16,}=*", re.ASCII)


@dataclass(frozen=True, slots=True)
class ForAll:
    """TLS that takes clients without a certificate, which bear a token instead."""

    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """Return what the server asks of clients: nothing."""
        return server_context_for_all(self.certificate, self.key, "http/1.1")

    def protocol(self) -> type[H11Protocol]:
        """Return what reads requests."""
        from uvicorn.protocols.http.h11_impl import H11Protocol  # noqa: PLC0415 # in the process that serves

        return H11Protocol


@dataclass(frozen=True, slots=True)
class Access:
    """Where the server listens, and for whom.

    Attributes
    ----------
    host, port
        Its address.
    secured
        TLS; None: there is none, on a loopback address.
    token
        That requests for metrics bear; None: they need not.
    hosts
        By which names it may be called; empty: by any.
    """

    host: str
    port: int
    secured: Secured | None
    token: str | None
    hosts: Sequence[str]

    @classmethod
    def of(
        cls, where: str, tls: Tls, allowed: Sequence[str], allow_file: Path | None, token_file: Path | None
    ) -> Access:
        """Return what the options say.

        Raises
        ------
        UsageError
            Anybody could read, or a file is wrong.
        """
        host, port = address_of(where)
        local = is_loopback(host)
        token = token_of(token_file) if token_file else None
        with_certificates = bool(allowed or allow_file)
        if not (local or with_certificates or token):
            raise UsageError(
                f"--listen {where} is not an address of this machine alone, and anybody could read what it serves",
                "Give --tls-cert and --tls-key, and --token-file, or --tls-ca and --allow",
            )
        if with_certificates:
            mutual = Clients(host, port, tls.files("--allow"), AllowList.of(tuple(allowed), allow_file))
            mutual.context()
            return cls(host, port, mutual, token, ())
        if tls.certificate and tls.key and token:
            server = ForAll(tls.certificate, tls.key)
            server.context()
            return cls(host, port, server, token, ())
        if not local:
            raise UsageError(
                f"--listen {where} is not an address of this machine alone, and a token must not be sent in the clear",
                "Give --tls-cert and --tls-key as well",
            )
        return cls(host, port, None, token, _LOOPBACK_NAMES)

    def url(self, port: int) -> str:
        """Return the address of the metrics, at this port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secured else 'http'}://{host}:{port}/metrics"


def token_of(path: Path) -> str:
    """Return the token in a file, which only its owner may read.

    Raises
    ------
    UsageError
        It cannot be read, others can read it, or it holds no token.
    """
    check_secret(path)
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        token = ""
    if not _TOKEN.fullmatch(token):
        raise UsageError(
            f"{path} holds no token of 16 or more letters, digits and -._~+/", f"Run: openssl rand -hex 32 >{path}"
        )
    return token


def is_loopback(host: str) -> bool:
    """Tell whether an address or a name is of this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
