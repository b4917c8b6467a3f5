# SPDX-License-Identifier: Apache-2.0
"""A real sshd in a namespace, with keys of its own, for one client that knows it: nothing of the machine's is used."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeVar

from hopscope.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from hopscope.lab.namespaces import Namespace

P = ParamSpec("P")
T = TypeVar("T")

PORT: Final = 22
_START_S: Final = 20.0
# Where it changes its root to before a client is known; the distribution's service makes it.
_EMPTY: Final = Path("/run/sshd")
_SERVER: Final = """\
ListenAddress {address}:{port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
StrictModes no
UsePAM {pam}
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
UseDNS no
PrintMotd no
PrintLastLog no
MaxStartups 100
SetEnv PATH={path}
"""
_CLIENT: Final = """\
Host {name}
  HostName {address}
  Port {port}
  User root
  IdentityFile {folder}/user_key
  UserKnownHostsFile {folder}/known_hosts
Host *
  IdentitiesOnly yes
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  BatchMode yes
"""


class Place(Protocol):
    """Where a server runs: a namespace, or what starts programs and calls functions as one does."""

    def popen(self, argv: Sequence[str | os.PathLike[str]], **kwargs: Any) -> subprocess.Popen[Any]:  # noqa: ANN401
        """Start a program there."""

    def call(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function there."""


class Server(Protocol):
    """What a client has to know of a server: where it listens, and the folder with its keys."""

    @property
    def address(self) -> str:
        """Where it listens."""

    @property
    def port(self) -> int:
        """Where it listens."""

    @property
    def folder(self) -> Path:
        """Its keys."""


class Sshd:
    """A server that lets in root of this machine, with a key that only its folder has; ended on exit.

    Parameters
    ----------
    namespace
        Where it runs, and the commands of those that log in.
    folder
        For keys, settings and its log; of its own.
    address, port
        Where it listens.
    has_hopscope
        Those that log in find the command: this Python's hopscope.

    Raises
    ------
    UsageError
        There is no sshd on this machine, or it does not start.
    """

    def __init__(
        self,
        namespace: Place,
        folder: Path,
        *,
        address: str = "127.0.0.1",
        port: int = PORT,
        has_hopscope: bool = True,
    ) -> None:
        self.namespace, self.folder, self.address, self.port = namespace, folder, address, port
        folder.mkdir(exist_ok=True)
        _EMPTY.mkdir(mode=0o755, exist_ok=True)
        for key in ("host_key", "user_key"):
            if not (folder / key).exists():
                words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(folder / key)]
                subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
        settings = _SERVER.format(
            address=f"[{address}]" if ":" in address else address,
            port=port,
            folder=folder,
            pam="yes" if _is_locked() else "no",
            path=os.pathsep.join((str(folder / "bin"), os.defpath, "/usr/sbin", "/sbin")),
        )
        (folder / "bin").mkdir(exist_ok=True)
        if has_hopscope:
            command = folder / "bin" / "hopscope"
            command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m hopscope "$@"\n', encoding="utf-8")
            command.chmod(0o755)
        (folder / "sshd_config").write_text(settings, encoding="utf-8")
        host_key = (folder / "host_key.pub").read_text(encoding="ascii")
        known = f"[{address}]:{port}" if port != PORT else address
        (folder / "known_hosts").write_text(f"{known} {host_key}", encoding="ascii")
        self._process = namespace.popen(
            [_program(), "-D", "-f", folder / "sshd_config", "-E", folder / "log"], stdin=subprocess.DEVNULL
        )
        try:
            self._wait_listening()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.close()

    def close(self) -> None:
        """End it and who is logged in; idempotent."""
        for pid in [*self.sessions(), self._process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def sessions(self) -> list[int]:
        """Return its processes that serve clients, the outermost first."""
        found, edge = [], [] if self._process.poll() is not None else [self._process.pid]
        while edge:
            edge = [pid for parent in edge for pid in _children(parent) if _name(pid).startswith("sshd")]
            found += edge
        return found

    def log(self) -> str:
        """Return what it has logged."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def _wait_listening(self) -> None:
        until_s = time.monotonic() + _START_S
        while True:
            try:
                self.namespace.call(socket.create_connection, (self.address, self.port), 1.0).close()
            except OSError as error:
                if self._process.poll() is not None or time.monotonic() > until_s:
                    raise UsageError(f"sshd does not start: {self.log().strip()}", "See its settings") from error
                time.sleep(0.02)
            else:
                return


def client(folder: Path, servers: Mapping[str, Server], namespace: Namespace | None = None) -> str:
    """Return the command line of an ssh that knows these servers by name and nothing else, for ``--ssh``.

    Parameters
    ----------
    folder
        For its settings.
    servers
        By the name that they shall have.
    namespace
        Where it runs; by default where it is called.
    """
    config = folder / "ssh_config"
    hosts, common = _CLIENT.split("Host *")
    config.write_text(
        "".join(
            hosts.format(name=name, address=server.address, port=server.port, folder=server.folder)
            for name, server in servers.items()
        )
        + "Host *"
        + common,
        encoding="utf-8",
    )
    inside = [] if namespace is None else ["nsenter", f"--net=/proc/{namespace.pid}/ns/net"]
    return shlex.join([*inside, "ssh", "-F", str(config)])


def _program() -> str:
    # It wants to be called by its whole path.
    program = shutil.which("sshd", path=os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin")))
    if program is None:
        raise UsageError("There is no sshd here", "Install openssh-server")
    return program


def _is_locked() -> bool:
    # A password that nobody can have is no hindrance, one that is locked is: to sshd, not to PAM.
    lines = Path("/etc/shadow").read_text(encoding="utf-8").splitlines()
    return any(line.startswith("root:!") for line in lines)


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [
            int(child)
            for path in Path(f"/proc/{pid}/task").iterdir()
            for child in (path / "children").read_text(encoding="ascii").split()
        ]
    return []


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8")
    return ""
