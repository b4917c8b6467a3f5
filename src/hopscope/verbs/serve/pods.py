# SPDX-License-Identifier: Apache-2.0
"""Names of pods for containers, in the process that measures: it asks another one, and never waits for it."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hopscope.gate import tell
from hopscope.verbs.serve.family import HEAD, OTHER, framed
from hopscope.verbs.serve.wanted import AUTO

if TYPE_CHECKING:
    from hopscope.verbs.serve.family import Labels

# Where it is looked for without `--kubernetes SOCKET`.
SOCKETS: Final = (
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/k3s/containerd/containerd.sock",
)
LABELS: Final = ("cgroup", "k8s_namespace", "k8s_pod", "k8s_container")
_CONTAINER: Final = re.compile(r"container ([0-9a-f]{12})")
_REST: Final = (OTHER,) * len(LABELS)
# Between two questions, at least; and where the last one brought nothing new, twice as long each time, up to this.
_LEAST_S: Final = 5.0
_MOST_S: Final = 600.0
# How many containers are remembered, and asked for at once: more than the kernel side tells apart.
_MOST: Final = 4096


class Pods:
    """Labels of cgroups, with the names of pods as far as they are known.

    A container that is new is among ``other`` until the first answer, and then has its name, or its id where there is
    no answer or none with it. It may get its name later.

    Parameters
    ----------
    where
        The runtime's socket, or :data:`~hopscope.verbs.serve.wanted.AUTO`.
    line
        To the process that asks it: :func:`hopscope.verbs.serve.cri.name_pods`.
    """

    def __init__(self, where: str, line: socket.socket) -> None:
        self._where, self._line = where, line
        line.setblocking(False)  # noqa: FBT003 # as the library has it
        self._names: dict[str, Labels] = {}
        # Those without a name → whether there was an answer.
        self._unnamed: dict[str, bool] = {}
        self._received = bytearray()
        self._asked: list[str] | None = None
        self._asked_s, self._wait_s = 0.0, _LEAST_S
        self._failed = ""

    def labels(self, cgroup: Labels) -> Labels:
        """Return the values of :data:`LABELS` for what ``--group-by cgroup`` calls a group."""
        (text,) = cgroup
        if text == OTHER:
            return _REST
        found = _CONTAINER.fullmatch(text)
        if found is None:
            return (text, "", "", "")
        number = found[1]
        if named := self._names.get(number):
            return ("", *named)
        if number not in self._unnamed:
            self._wait_s = _LEAST_S
        return (text, "", "", "") if self._unnamed.setdefault(number, False) else _REST

    def ask(self) -> None:
        """Ask for those without a name, if it is time, and nothing is asked; the first time also for nothing."""
        if self._asked is not None or time.monotonic() < self._asked_s + self._wait_s:
            return
        if self._asked_s and not self._unnamed:
            return
        self._asked_s = time.monotonic()
        wanted = list(self._unnamed)[-_MOST:]
        path = self._path()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as connection:
            try:
                connection.connect(path)
                question = framed(json.dumps(wanted).encode())
                socket.send_fds(self._line, [question], [connection.fileno()])
            except OSError as error:
                self._answered(wanted, {"error": error.strerror or str(error)})
                return
        self._asked = wanted

    def take(self) -> None:
        """Take the answer, if it has come."""
        if self._asked is None:
            return
        with contextlib.suppress(BlockingIOError):
            while data := self._line.recv(1 << 16):
                self._received += data
        if len(self._received) < HEAD.size:
            return
        size = HEAD.size + HEAD.unpack_from(self._received)[0]
        if len(self._received) >= size:
            answer = json.loads(self._received[HEAD.size : size])
            self._received.clear()
            asked, self._asked = self._asked, None
            self._answered(asked, answer)

    def _answered(self, asked: list[str], answer: dict[str, Any]) -> None:
        names = answer.get("names", {})
        for number in asked:
            if number in names:
                self._names[number] = tuple(names[number])
                self._unnamed.pop(number, None)
            elif number in self._unnamed:
                self._unnamed[number] = True
        for known in (self._names, self._unnamed):
            while len(known) > _MOST:
                known.pop(next(iter(known)))  # the oldest
        self._wait_s = _LEAST_S if names or not asked else min(self._wait_s * 2, _MOST_S)
        failed = answer.get("error", "")
        if failed and not self._failed:
            tell(
                f"hopscope: {self._path()} does not give the names of pods: {failed}; containers are named by their "
                "ids. Give --kubernetes the socket of the node's container runtime"
            )
        elif self._failed and not failed:
            tell(f"hopscope: {self._path()} gives the names of pods again")
        self._failed = failed

    def _path(self) -> str:
        """Return the runtime's socket: the first that there is."""
        if self._where != AUTO:
            return self._where
        return next((each for each in SOCKETS if Path(each).exists()), SOCKETS[0])
