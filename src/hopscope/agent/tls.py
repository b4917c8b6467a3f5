# SPDX-License-Identifier: Apache-2.0
"""What both sides ask of TLS: version 1.3, a certificate of either side, and nothing else.

There is no weaker way, not even by option. Sessions are not resumed, so that each connection shows its certificate
anew and one that has expired since is found.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from hopscope.agent.defaults import AUTHORITY, CERTIFICATE, KEY
from hopscope.agent.key_files import check_secret, check_unwritable
from hopscope.errors import UsageError

if TYPE_CHECKING:
    from typing import Self

# Named in the handshake (RFC 7301): nobody can lead a client to another service that has a certificate of the same CA.
ALPN: Final = "hopscope"


@dataclass(frozen=True)
class TlsFiles:
    """The files, in PEM, with which one side shows itself and knows the other.

    Attributes
    ----------
    certificate
        Our own, those of intermediate CAs behind it.
    key
        Its private key, without a passphrase; only its owner may read it.
    authority
        The certificates of the CAs that the other side's may come from.
    """

    certificate: Path
    key: Path
    authority: Path


@dataclass(frozen=True, slots=True)
class Tls:
    """Who we are to an agent that listens.

    Attributes
    ----------
    certificate, key, authority
        As of `TlsFiles`; None where nobody has said.
    """

    certificate: Path | None
    key: Path | None
    authority: Path | None

    @classmethod
    def of(cls, certificate: Path | None = None, key: Path | None = None, authority: Path | None = None) -> Self:
        """Return what the options say, and where they are silent the environment."""

        def said(option: Path | None, variable: str) -> Path | None:
            found = os.environ.get(variable)
            return option or (Path(found) if found else None)

        return cls(said(certificate, CERTIFICATE), said(key, KEY), said(authority, AUTHORITY))

    def files(self, purpose: str) -> TlsFiles:
        """Return the files.

        Raises
        ------
        UsageError
            One is not given, which `purpose` needs.
        """
        if self.certificate is None or self.key is None or self.authority is None:
            raise UsageError(
                f"{purpose} needs a certificate, its key, and the CA of the other side's",
                f"Give --tls-cert, --tls-key and --tls-ca, or set ${CERTIFICATE}, ${KEY} and ${AUTHORITY}",
            )
        return TlsFiles(self.certificate, self.key, self.authority)


def server_context(files: TlsFiles, protocol: str = ALPN) -> ssl.SSLContext:
    """Return the TLS settings of a server, which require a certificate of each client.

    Parameters
    ----------
    protocol
        That it speaks, by its name in the handshake.

    Raises
    ------
    UsageError
        A file cannot be read, is not what it should be, or is open to others.
    """
    context = server_context_for_all(files.certificate, files.key, protocol)
    _trust(context, files.authority)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def server_context_for_all(certificate: Path, key: Path, protocol: str) -> ssl.SSLContext:
    """Return the TLS settings of a server that asks its clients for something else than a certificate.

    Raises
    ------
    UsageError
        As in `server_context`.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER, certificate, key, protocol)
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    return context


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """Return what a client asks of an agent: the same, and that the certificate is for the host's name.

    Raises
    ------
    UsageError
        As in `server_context`.
    """
    # Brings CERT_REQUIRED and check_hostname.
    context = _context(ssl.PROTOCOL_TLS_CLIENT, files.certificate, files.key, ALPN)
    _trust(context, files.authority)
    context.hostname_checks_common_name = False
    return context


def _context(side: int, certificate: Path, key: Path, protocol: str) -> ssl.SSLContext:
    check_secret(key)
    check_unwritable(certificate)
    context = ssl.SSLContext(side)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    # Some Pythons (3.11.2 is one) have OpenSSL take a cut connection for one that the other side has ended.
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    context.set_alpn_protocols([protocol])
    _load_own(context, certificate, key)
    return context


def _load_own(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    def no_passphrase() -> NoReturn:
        raise UsageError(
            f"{key} is protected by a passphrase, which hopscope cannot ask for",
            "openssl pkey -in KEY -out NEW writes it without; keep it where only its owner can read it",
        )

    try:
        context.load_cert_chain(certificate, key, no_passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise UsageError(f"{key} is not the key of the certificate in {certificate}") from error
        raise UsageError(
            f"{certificate} and {key} are not a certificate and key in PEM",
            "openssl x509 -in FILE shows it",
        ) from error
    except OSError as error:
        raise UsageError(f"{certificate} and {key} cannot be read: {error.strerror}") from error


def _trust(context: ssl.SSLContext, authority: Path) -> None:
    check_unwritable(authority)
    try:
        context.load_verify_locations(authority)
    except ssl.SSLError as error:
        raise UsageError(f"{authority} holds no certificate in PEM") from error
    except OSError as error:
        raise UsageError(f"{authority} cannot be read: {error.strerror}") from error
    if not context.cert_store_stats()["x509_ca"]:
        raise UsageError(f"{authority} holds no certificate of a CA", "Give the certificate that has signed the others")
