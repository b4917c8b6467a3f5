# SPDX-License-Identifier: Apache-2.0
"""Hopscope's command line without the time in which Python starts and imports.

A process that has imported everything forks for each command, which then is a process as any other, with arguments,
variables and standard files of its own. A test session starts hundreds of commands, and importing is half of what most
of them do.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hopscope
from tests import leftovers

if TYPE_CHECKING:
    from collections.abc import Iterator

# What a command inherits from the thread that asks: with another one of these it is started as usual.
_NAMESPACES = ("ns/net", "ns/mnt", "ns/pid", "ns/user")
_FILES = ("cgroup", "limits")
_STATUS = ("Uid", "Gid", "Groups", "CapEff", "CapBnd", "Seccomp", "Umask", "SigIgn")
_MOST_BYTES = 100_000
# What only the pages and screens need, or starts threads, as pyarrow does.
_NOT_LOADED = (
    "hopscope.lab", "hopscope.verbs.fleet.raw.", "hopscope.verbs.top", "hopscope.verbs.web",
    "hopscope.__main__",
)  # fmt: skip


class Preloaded:
    """The process that forks; it ends with the one that started it, or with :meth:`end`."""

    def __init__(self, env: dict[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        argv = [sys.executable, "-m", "tests.lab.preloaded", str(theirs.fileno())]
        root = Path(__file__).resolve().parents[2]
        self._child = subprocess.Popen(argv, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, cwd=root, env=env)
        theirs.close()
        self._started_as = _started_as(env)
        self._one = threading.Lock()

    def run(self, args: list[str], env: dict[str, str], timeout_s: float) -> subprocess.CompletedProcess[str] | None:
        """Run a command to its end; None: it must be started in another way, and nothing ran.

        Parameters
        ----------
        args
            After the word ``hopscope``.
        env
            All its variables.
        timeout_s
            Seconds until it is killed.

        Raises
        ------
        subprocess.TimeoutExpired
            It was killed.
        """
        asked = json.dumps({"args": args, "env": env, "cwd": os.getcwd()}).encode()  # noqa: PTH109
        if len(asked) > _MOST_BYTES or self._started_as != _started_as(env) or not self._one.acquire(blocking=False):
            return None
        out, err = os.memfd_create("out"), os.memfd_create("err")
        try:
            socket.send_fds(self._socket, [asked], [out, err])
            code = self._ended(int(self._socket.recv(64)), args, timeout_s)
            texts = [Path(f"/proc/self/fd/{file}").read_text(encoding="utf-8") for file in (out, err)]
            return subprocess.CompletedProcess(args, code, *texts)
        finally:
            os.close(out)
            os.close(err)
            self._one.release()

    def _ended(self, pid: int, args: list[str], timeout_s: float) -> int:
        self._socket.settimeout(timeout_s)
        try:
            return int(self._socket.recv(64))
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            self._socket.settimeout(None)
            self._socket.recv(64)
            raise subprocess.TimeoutExpired(args, timeout_s) from None
        finally:
            self._socket.settimeout(None)

    @property
    def pid(self) -> int:
        return self._child.pid

    def end(self) -> None:
        """End the process."""
        self._socket.close()
        self._child.wait()


def _started_as(env: dict[str, str]) -> dict[str, str]:
    """Return what Python and the kernel take from the thread that starts a process, and from its variables."""
    thread = Path("/proc/thread-self")
    found = {name: str((thread / name).readlink()) for name in _NAMESPACES}
    found |= {name: (thread / name).read_text() for name in _FILES}
    status = (line.partition(":") for line in (thread / "status").read_text().splitlines())
    found |= {name: value.strip() for name, _, value in status if name in _STATUS}
    return found | {name: value for name, value in env.items() if name.startswith(("PYTHON", "LANG", "LC_"))}


_of_session: list[Preloaded] = []


@contextlib.contextmanager
def preloaded(env: dict[str, str]) -> Iterator[None]:
    """Have :func:`run` at hand, for commands with about these variables."""
    made = Preloaded(env)
    _of_session.append(made)
    leftovers.helpers.add(made.pid)
    yield
    _of_session.pop().end()
    leftovers.helpers.discard(made.pid)


def run(args: list[str], env: dict[str, str], timeout_s: float) -> subprocess.CompletedProcess[str] | None:
    """Run a command, as :meth:`Preloaded.run`, if there is a process that can."""
    return _of_session[-1].run(args, env, timeout_s) if _of_session else None


def _load() -> None:
    for module in pkgutil.walk_packages(hopscope.__path__, "hopscope."):
        if not module.name.startswith(_NOT_LOADED):
            with contextlib.suppress(ImportError):  # of an extra that is not installed
                importlib.import_module(module.name)


def _become(asked: dict[str, Any], out: int, err: int) -> None:
    """Be what Python is when it begins to run a command."""
    for number, file in ((1, out), (2, err)):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    sys.argv = ["hopscope", *asked["args"]]
    gc.unfreeze()


def _serve(ours: socket.socket) -> None:
    """Fork for each command; return in the process that is to run it."""
    while True:
        asked, files, _, _ = socket.recv_fds(ours, _MOST_BYTES, 2)
        if not asked:
            os._exit(0)
        if not (pid := os.fork()):
            ours.close()
            _become(json.loads(asked), *files)
            return
        for file in files:
            os.close(file)
        ours.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        ours.send(str(os.waitstatus_to_exitcode(status)).encode())


if __name__ == "__main__":
    from hopscope.__main__ import main

    _load()
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads cannot fork"  # noqa: PTH208
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    main()
