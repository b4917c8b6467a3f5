# SPDX-License-Identifier: Apache-2.0
"""Run programs as a user who has nothing but the capabilities that a test gives."""

from __future__ import annotations

import contextlib
import shlex
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from hopscope.lab import Namespace

UID = 61_234
# As most distributions have it.
_TRACEFS = "mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing"
_ROOT = Path(__file__).resolve().parents[2]


class AnotherUser:
    """A user without rights, who can read the interpreter and the sources, whoever may enter the folders above them.

    Attributes
    ----------
    folder
        Where the user may write.
    """

    def __init__(self, mounts: int, folder: Path) -> None:
        self._mounts = mounts
        self.folder = folder

    def words(self, capabilities: Collection[str], where: Namespace) -> tuple[str, ...]:
        """Return the words of a program that starts another one with these capabilities in a network namespace."""
        names = ["-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in capabilities)]
        given = [f"--{kind}={','.join(names)}" for kind in ("inh-caps", "ambient-caps", "bounding-set")]
        namespaces = [f"--mount=/proc/{self._mounts}/ns/mnt", f"--net=/proc/{where.pid}/ns/net"]
        user = [f"--reuid={UID}", f"--regid={UID}", "--clear-groups"]
        return ("nsenter", *namespaces, "setpriv", *user, *given)


@contextlib.contextmanager
def another_user() -> Iterator[AnotherUser]:
    """Yield such a user (root)."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        home = folder / "home"
        home.mkdir(0o700)
        subprocess.run(["chown", f"{UID}:{UID}", str(folder), str(home)], check=True)
        script = f"{_opened(folder / 'kept')}\n{_TRACEFS}\necho ready\nread _"
        words = ["unshare", "--mount", "--propagation=slave", "sh", "-e", "-c", script]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"ready\n"
            yield AnotherUser(holder.pid, home)
            holder.communicate(b"\n")


def _opened(kept: Path) -> str:
    """Return the lines of a script that hides folders that others may not enter, but for what is needed of them."""
    needed = {Path(sys.prefix), Path(sys.base_prefix), _ROOT}
    closed = {}
    for path in needed:
        above = [each for each in reversed(path.parents) if not each.stat().st_mode & stat.S_IXOTH]
        if above:
            closed[path] = above[0]
    kept_at = {path: kept / str(number) for number, path in enumerate(closed)}
    lines = [f"mkdir -p {_of(at)} && mount --bind {_of(path)} {_of(at)}" for path, at in kept_at.items()]
    lines += [f"mount -t tmpfs -o mode=755 none {_of(each)}" for each in sorted(set(closed.values()))]
    lines += [f"mkdir -p {_of(path)} && mount --bind {_of(at)} {_of(path)}" for path, at in kept_at.items()]
    return "\n".join(lines)


def _of(path: Path) -> str:
    return shlex.quote(str(path))
