# SPDX-License-Identifier: Apache-2.0
"""What tests may leave behind in the kernel: listed before and after, so that the difference can fail the run.

Other users of the machine come and go meanwhile: what a process outside of this one's descendants holds open is theirs.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

PR_SET_CHILD_SUBREAPER = 36
FDINFO_ID = re.compile(r"^(prog|link|map)_id:\t(\d+)", re.MULTILINE)


def adopt_orphans() -> None:
    """Make this process the parent of every descendant whose parent dies, so that none gets out of sight."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def bpf_ids(kind: str) -> set[int]:
    """Return the ids of all BPF programs (``prog``), links (``link``) or maps (``map``) of this kernel."""
    following = getattr(ctypes.CDLL("libbpf.so.1", use_errno=True), f"bpf_{kind}_get_next_id")
    found, number = set(), ctypes.c_uint32(0)
    while following(number, ctypes.byref(number)) == 0:
        found.add(number.value)
    return found


def why_no_bpf() -> str:
    """Return why tests that need root and BPF cannot run here, or nothing."""
    if os.geteuid() != 0:
        return "needs root and BPF: run `sudo make test`"
    if ctypes.CDLL("libbpf.so.1", use_errno=True).bpf_prog_get_next_id(0, ctypes.byref(ctypes.c_uint32())) == 0:
        return ""
    refusal = ctypes.get_errno()
    enoent_means_none_loaded = 2
    return "" if refusal == enoent_means_none_loaded else f"needs BPF: bpf() says {os.strerror(refusal)} here"


# Of the tests themselves, as long as the session.
helpers: set[int] = set()


def descendants(of: int | None = None) -> dict[int, str]:
    """Return the command lines of the processes below this one, or another one, that still run, by pid."""
    parents, names = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            name = (stat.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue  # it ended meanwhile
        parents[int(stat.parent.name)] = int(parent)
        if state != "Z":
            names[int(stat.parent.name)] = name
    below, edge = set(), {of or os.getpid()}
    while edge:
        edge = {pid for pid, parent in parents.items() if parent in edge}
        below |= edge
    return {pid: names[pid] for pid in (below - helpers) & names.keys()}


def held_by(pids: Iterable[int]) -> set[tuple[str, int]]:
    """Return kind and id of the BPF programs, links and maps that these processes hold open."""
    return {
        (kind, int(number))
        for pid in pids
        for text in read_all(Path(f"/proc/{pid}/fdinfo"))
        for kind, number in FDINFO_ID.findall(text)
    }


def still_there(held: set[tuple[str, int]]) -> set[tuple[str, int]]:
    """Return those of them that the kernel still has."""
    return {(kind, number) for kind in {kind for kind, _ in held} for number in bpf_ids(kind)} & held


def bpf_names(held: Iterable[tuple[str, int]]) -> set[str]:
    """Return them as :func:`seen` names them."""
    return {f"BPF {kind} {number}" for kind, number in held}


def held_by_others() -> set[str]:
    """Return the BPF programs, links and maps that processes outside of our family hold open."""
    family = {os.getpid(), *descendants()}
    others = {int(folder.name) for folder in Path("/proc").glob("[0-9]*")} - family
    return bpf_names(held_by(others))


def read_all(folder: Path) -> Iterator[str]:
    """Yield the texts of the files in a folder of /proc, as far as they still exist."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            with contextlib.suppress(OSError):
                yield path.read_text()


def seen() -> set[str]:
    """Return what there is now of everything that a test may leave behind, a name each."""
    bpf = bpf_names((kind, number) for kind in ("prog", "link") for number in bpf_ids(kind))
    processes = {f"process {pid} ({name})" for pid, name in descendants().items()}
    named = Path("/run/netns")
    namespaces = {f"namespace {path.name}" for path in named.iterdir()} if named.exists() else set()
    own_tasks = {f"thread in namespace {path.readlink()}" for path in Path("/proc/self/task").glob("*/ns/net")}
    devices = {f"device {name}" for _, name in socket.if_nameindex()}
    return bpf | processes | namespaces | own_tasks | devices


def left_since(before: set[str], look: Callable[[], set[str]] = seen, patience_s: float = 10.0) -> set[str]:
    """Return what is there now, was not `before` and is no one else's, once that is nothing or patience ends.

    The kernel frees programs and namespaces some time after their last user is gone.
    """
    deadline = time.monotonic() + patience_s
    while left := look() - before:
        left -= held_by_others()
        if not left or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    return left
