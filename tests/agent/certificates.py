# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests, made by the openssl command: right ones and wrong ones."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hopscope.agent.tls import TlsFiles

if TYPE_CHECKING:
    from pathlib import Path

# `openssl ca` alone lets both dates be chosen in OpenSSL 3.0.
_CONFIG = """
[ca]
default_ca = here
[here]
new_certs_dir = {folder}
database = {folder}/index
rand_serial = yes
default_md = default
policy = any
unique_subject = no
[any]
commonName = optional
"""


@dataclass(frozen=True)
class Authority:
    """A CA in a folder of its own."""

    folder: Path

    @classmethod
    def new(cls, folder: Path) -> Authority:
        folder.mkdir()
        (folder / "index").touch()
        (folder / "config").write_text(_CONFIG.format(folder=folder))
        made = cls(folder)
        made._openssl(
            *("req", "-x509", "-newkey", "ed25519", "-noenc", "-subj", f"/CN={folder.name}"),
            *("-keyout", "ca.key", "-out", "ca.pem"),
        )
        return made

    @property
    def certificate(self) -> Path:
        return self.folder / "ca.pem"

    def files(
        self,
        name: str,
        *extensions: str,
        common: str = "nobody",
        begin: str = "20200101000000Z",
        end: str = "21000101000000Z",
        trusts: Path | None = None,
    ) -> TlsFiles:
        """Make a key and a certificate; `extensions` are lines such as ``subjectAltName=DNS:oncall``."""
        name = f"{name}{len(list(self.folder.glob('*.csr'))) or ''}"
        key, request, signed = f"{name}.key", f"{name}.csr", f"{name}.pem"
        (self.folder / f"{name}.ext").write_text("\n".join(("basicConstraints=critical,CA:FALSE", *extensions)))
        self._openssl(
            *("req", "-new", "-newkey", "ed25519", "-noenc", "-subj", f"/CN={common}", "-keyout", key, "-out", request)
        )
        self._openssl(
            *("ca", "-batch", "-notext", "-config", "config", "-keyfile", "ca.key", "-cert", "ca.pem", "-in", request),
            *("-out", signed, "-extfile", f"{name}.ext", "-startdate", begin, "-enddate", end),
        )
        return TlsFiles(self.folder / signed, self.folder / key, trusts or self.certificate)

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)


EXPIRED = {"begin": "20000101000000Z", "end": "20010101000000Z"}
TO_COME = {"begin": "20990101000000Z"}
LO = "127.0.0.1"


def agent_files(authority: Authority, **wrong: str) -> TlsFiles:
    """Return what an agent on this host has."""
    return authority.files("agent", f"subjectAltName=IP:{LO}", "extendedKeyUsage=serverAuth", **wrong)


def client_files(authority: Authority, name: str = "oncall", **wrong: str) -> TlsFiles:
    """Return what a client has."""
    return authority.files(name, f"subjectAltName=DNS:{name}", "extendedKeyUsage=clientAuth", **wrong)
