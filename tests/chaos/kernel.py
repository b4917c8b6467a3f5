# SPDX-License-Identifier: Apache-2.0
"""What a run of hopscope may leave behind in the kernel, and among processes.

Others use the machine meanwhile. So the campaign has mounts and a network of its own, in which nobody else makes
anything; and what BPF objects a process has is read from the process itself, as long as it runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests import leftovers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from types import TracebackType

    from hopscope.lab import Lab

_PATIENCE_S = 15.0
_LOOKS_EVERY_S = 0.02
_EVENTS = ("set_event", "kprobe_events", "uprobe_events")
_CLONE_NEWNS = 0x00020000
_CLONE_NEWNET = 0x40000000


def be_alone() -> None:
    """Give this process, which has one thread, mounts and a network of its own, which nobody else changes."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS | _CLONE_NEWNET):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    for words in (["mount", "--make-rprivate", "/"], ["ip", "link", "set", "lo", "up"]):
        subprocess.run(words, check=True)
    if (names := Path("/run/netns")).exists():  # those of others
        subprocess.run(["mount", "-t", "tmpfs", "none", str(names)], check=True)


class Watch:
    """Reads which BPF programs, links and maps a process and those below it hold, from now on until the context ends.

    What is held for less than the time between two looks may be missing; :meth:`look` sees all that there is then.

    Attributes
    ----------
    made
        Kind and id of each.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_again, name="chaos-watch")
        self.made: set[tuple[str, int]] = set()

    def look(self) -> None:
        """Add what is held now."""
        self.made |= leftovers.held_by([self._pid, *leftovers.descendants(self._pid)])

    def _look_again(self) -> None:
        while not self._over.wait(_LOOKS_EVERY_S):
            self.look()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()


@contextlib.contextmanager
def tracefs() -> Iterator[Path]:
    """Yield tracefs, mounted for us alone if it is nowhere."""
    known = Path("/sys/kernel/tracing")
    if (known / "set_event").exists():
        yield known
        return
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["mount", "-t", "tracefs", "none", folder], check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


def seen(lab: Lab, tracing: Path, made: Collection[tuple[str, int]] = ()) -> set[str]:
    """Return what there is now, a name each; of BPF's maps, only those of `made`.

    Not of perf's events: they live as long as a process does.
    """
    bpf = leftovers.bpf_names(leftovers.still_there(set(made)))
    return leftovers.seen() | bpf | _events(tracing) | _networks(lab) | _mounts()


def left_since(before: set[str], lab: Lab, tracing: Path, made: set[tuple[str, int]]) -> set[str]:
    """Return what is there now and was not before, for longer than the kernel and other users of the machine need."""

    def look() -> set[str]:
        return seen(lab, tracing, made)

    left = leftovers.left_since(before, look, _PATIENCE_S)
    # Programs of others come and go between a look at all and a look at theirs.
    return left & leftovers.left_since(before, look, _PATIENCE_S) if left else left


def _events(tracing: Path) -> set[str]:
    found = set()
    for name in _EVENTS:
        with contextlib.suppress(OSError):  # a kernel without such probes
            found |= {f"{name}: {line}" for line in (tracing / name).read_text().splitlines()}
    return found


def _networks(lab: Lab) -> set[str]:
    """Return queueing disciplines, filters and rules of the laboratory, and of the network hopscope is started in."""
    found = set()
    for words in (["tc", "qdisc", "show"], ["nft", "list", "ruleset"]):
        texts = {
            "client": lab.client.run(words, capture_output=True).stdout,
            "server": lab.server.run(words, capture_output=True).stdout,
            "own network": subprocess.run(words, capture_output=True, check=True).stdout,
        }
        found |= {f"{words[0]} of {where}: {line}" for where, text in texts.items() for line in _lines(text)}
    return found


def _lines(text: str | bytes) -> list[str]:
    return (text if isinstance(text, str) else text.decode()).splitlines()


def _mounts() -> set[str]:
    fields = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    pins = Path("/sys/fs/bpf")
    return {f"mount {each[1]} ({each[2]})" for each in fields} | {
        f"pin {path}" for path in (pins.iterdir() if pins.exists() else ())
    }
