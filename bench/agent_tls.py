# SPDX-License-Identifier: Apache-2.0
"""An agent that listens on this host's loopback, in a process of its own, and the way to it.

As a program, ``python -m bench.agent_tls FOLDER``, it is the one that listens.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from hopscope.agent.allow import AllowList
from hopscope.agent.log import Log
from hopscope.agent.relay import serve_in_process
from hopscope.agent.tls import TlsFiles, client_context, server_context
from hopscope.agent.tls_connect import reach
from hopscope.agent.tls_listen import Listener, listen

if TYPE_CHECKING:
    from types import TracebackType

    from hopscope.agent.tls_connection import TlsConnection

_LO: Final = "127.0.0.1"
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


class Listening:
    """An agent that listens; a context manager that ends it.

    Parameters
    ----------
    folder
        For certificates.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        new = ["openssl", "req", "-x509", "-newkey", "ed25519", "-noenc"]
        from_ca = [*new, "-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "basicConstraints=critical,CA:FALSE"]
        for words in (
            [*new, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=bench"],
            [*from_ca, "-keyout", "agent.key", "-out", "agent.pem", "-subj", "/CN=agent", *_named(f"IP:{_LO}")],
            [*from_ca, "-keyout", "client.key", "-out", "client.pem", "-subj", "/CN=client", *_named("DNS:client")],
        ):
            subprocess.run(words, cwd=folder, check=True, capture_output=True)
        words = [sys.executable, "-m", "bench.agent_tls", str(folder)]
        self._child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._child.stdout is not None  # noqa: S101 - for the type checker
        with self._child.stdout as said:
            self._port = int(said.readline())

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        with self._child as child:
            child.kill()

    def reach(self) -> TlsConnection:
        """Return a connection to an agent of its own."""
        return reach(_LO, self._port, client_context(_files(self._folder, "client")))

    def cpu_s(self) -> float:
        """Return the CPU time of who listens, which encrypts for all; the agents' own is not in it."""
        fields = Path(f"/proc/{self._child.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * _TICK_S


def _named(name: str) -> list[str]:
    return ["-addext", f"subjectAltName={name}"]


def _files(folder: Path, name: str) -> TlsFiles:
    return TlsFiles(folder / f"{name}.pem", folder / f"{name}.key", folder / "ca.pem")


def _listen(folder: Path) -> None:
    log = Log(sys.stderr)
    serve = serve_in_process(log, [sys.executable, "-m", "bench.agent_served"])
    sock = listen(_LO, 0)
    sys.stdout.write(f"{sock.getsockname()[1]}\n")
    sys.stdout.flush()
    allowed = AllowList.of(["client"])
    Listener(sock, server_context(_files(folder, "agent")), lambda: allowed, serve, log).run()


if __name__ == "__main__":
    _listen(Path(sys.argv[1]))
