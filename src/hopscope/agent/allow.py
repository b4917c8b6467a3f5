# SPDX-License-Identifier: Apache-2.0
"""Who may connect to a listening agent: names in certificates, or certificates by their fingerprint."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hopscope.agent.key_files import check_unwritable
from hopscope.agent.message import printable
from hopscope.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from typing import Self

_FINGERPRINT: Final = re.compile(r"sha256(?: fingerprint)?[:=]((?:[0-9a-f]{2}:?){31}[0-9a-f]{2})", re.IGNORECASE)
_NAMES: Final = {"DNS", "email", "URI"}
_FILE_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class AllowList:
    """Names and fingerprints of the clients that may connect.

    A name is compared with the certificate's subject alternative names (DNS, e-mail, URI), or, if it has none of those,
    with its common name (RFC 6125, 6.4.4). There are no patterns: a certificate of ``*`` is no one.

    Attributes
    ----------
    names
        In lower case.
    fingerprints
        SHA-256 of whole certificates, 64 hexadecimal digits.
    """

    names: frozenset[str]
    fingerprints: frozenset[str]

    @classmethod
    def of(cls, entries: Iterable[str], file: Path | None = None) -> Self:
        """Return the list that entries and a file's lines make; ``#`` begins a comment in the file.

        Raises
        ------
        UsageError
            There is none at all, one is neither a name nor a fingerprint, or the file cannot be read or others may
            write it.
        """
        names, fingerprints = set(), set()
        for entry in (*entries, *(_lines(file) if file else ())):
            if found := _FINGERPRINT.fullmatch(entry):
                fingerprints.add(found[1].replace(":", "").lower())
            elif not entry or not entry.isprintable() or " " in entry or entry.lower().startswith("sha256"):
                raise UsageError(
                    f"{printable(entry, 80)!r} is neither a client's name nor sha256: and 64 hexadecimal digits",
                    "openssl x509 -noout -fingerprint -sha256 -in CERTIFICATE prints a fingerprint",
                )
            else:
                names.add(entry.lower())
        if not names and not fingerprints:
            raise UsageError("No client is allowed to connect", "Name one with --allow, or in a file with --allow-file")
        return cls(frozenset(names), frozenset(fingerprints))

    def admits(self, certificate: Mapping[str, Any], der: bytes) -> bool:
        """Tell whether a client may connect whose certificate the CA has been found to have signed.

        Parameters
        ----------
        certificate
            As :meth:`ssl.SSLObject.getpeercert` describes it.
        der
            The same, whole.
        """
        if hashlib.sha256(der).hexdigest() in self.fingerprints:
            return True
        return any(name.lower() in self.names for name in names_of(certificate))


def names_of(certificate: Mapping[str, Any]) -> list[str]:
    """Return the names that a certificate gives to its holder, as they are in it."""
    alternatives = [name for kind, name in certificate.get("subjectAltName", ()) if kind in _NAMES]
    common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    # With two common names it is anyone's guess which of them the CA has looked at.
    return alternatives or (common if len(common) == 1 else [])


def described(certificate: Mapping[str, Any], der: bytes) -> str:
    """Return what a log says of a certificate's holder: enough to add the client to the list, or to look for it."""
    names = ", ".join(printable(name, 64) for name in names_of(certificate)[:3]) or "a certificate without a name"
    return f"{names} (sha256:{hashlib.sha256(der).hexdigest()})"


def _lines(file: Path) -> list[str]:
    check_unwritable(file)
    try:
        with file.open("rb") as opened:
            text = opened.read(_FILE_BYTES + 1).decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(f"{file} cannot be read: {why}") from error
    if len(text) > _FILE_BYTES:
        raise UsageError(f"{file} is longer than 1 MiB")
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]
