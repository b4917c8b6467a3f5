# SPDX-License-Identifier: Apache-2.0
"""The line of source that an address in the kernel belongs to, where the kernel's debug information is on this host.

It is that of the running kernel alone: the build ID must be the same. The programs that read it (``addr2line``) take
seconds for a kernel, so that they run beside us, for a limited time in all. Modules are not looked at.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import platform
import queue
import re
import shutil
import struct
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.errors import FormatError
from hopscope.libbpf import elf_build_id, elf_symbol, gnu_build_id
from hopscope.store.folder import sudo_user

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_NOTES: Final = Path("/sys/kernel/notes")
_ROOT: Final = Path("/")
# The quickest first; each takes a file (-e) and addresses, one a line, and answers in one line each.
_TOOLS: Final = ("eu-addr2line", "llvm-addr2line", "addr2line")
# Where root's programs are; not where a user may have put others.
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ANSWER: Final = re.compile(r"^(/?[^:?]+):([1-9]\d*)(?::\d+)?(?: \(discriminator \d+\))?$")
# The kernel's own text begins there, at the same place of the file.
_BEGIN: Final = "_stext"
# A function, and the end of the path of its source: what is before it is where the kernel was built.
_KNOWN: Final = ("start_kernel", "init/main.c")
# In all, and at once.
_MOST_S: Final = 60.0
_AT_ONCE: Final = 256


class _Debug(NamedTuple):
    """A file with debug information, what is to be added to its addresses, and where it was built."""

    path: Path
    slide: int
    built_in: str


class SourceLines:
    """Finds lines beside us; what it found has to be fetched.

    Parameters
    ----------
    begin
        Address of ``_stext`` in the running kernel.
    root, notes
        Where files are looked for, and the notes of the running kernel.
    """

    def __init__(self, begin: int, *, root: Path = _ROOT, notes: Path = _NOTES) -> None:
        self._begin = begin
        self._root = root
        self._notes = notes
        self._asked: queue.SimpleQueue[list[int] | None] = queue.SimpleQueue()
        self._found: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[str] | None = None
        self._closed = False

    def ask(self, addresses: Iterable[int]) -> None:
        """Look for the lines of the calls that return to these addresses."""
        wanted = list(addresses)
        if not wanted or self._closed:
            return
        self._idle.clear()
        self._asked.put(wanted)
        if not self._thread:
            self._thread = threading.Thread(target=self._work, name="source lines", daemon=True)
            self._thread.start()

    def found(self, wait_s: float = 0) -> dict[int, str]:
        """Return address → ``file:line`` of what was found since the last call, once all is, or after so long."""
        if wait_s:
            self._idle.wait(wait_s)
        lines = {}
        with contextlib.suppress(queue.Empty):
            while True:
                address, line = self._found.get_nowait()
                lines[address] = line
        return lines

    def close(self) -> None:
        """Look for nothing more; idempotent."""
        self._closed = True
        self._asked.put(None)
        if process := self._process:
            process.kill()
        if self._thread:
            self._thread.join()

    def _work(self) -> None:
        tool = next((found for name in _TOOLS if (found := shutil.which(name, path=_PATH))), None)
        debug = _debug(self._begin, self._root, self._notes, self._lines_of(tool)) if tool else None
        left_s = _MOST_S
        while (wanted := self._asked.get()) is not None:
            if tool and debug and left_s > 0 and not self._closed:
                began_s = time.monotonic()
                for at in range(0, len(wanted), _AT_ONCE):
                    self._look(tool, debug, wanted[at : at + _AT_ONCE], left_s)
                left_s -= time.monotonic() - began_s
            if self._asked.empty():
                self._idle.set()

    def _look(self, tool: str, debug: _Debug, addresses: list[int], most_s: float) -> None:
        # An address is where a call returns to: the call is before it.
        wanted = [address - 1 - debug.slide for address in addresses]
        for address, line in zip(addresses, self._run(tool, debug.path, wanted, most_s), strict=False):
            if line:
                self._found.put((address, line.removeprefix(debug.built_in)))

    def _lines_of(self, tool: str | None) -> Callable[[Path, int], str]:
        return lambda path, address: next(iter(self._run(tool or "", path, [address], _MOST_S)), "")

    def _run(self, tool: str, path: Path, addresses: list[int], most_s: float) -> list[str]:
        """Return the answers of a program, empty where it has none, or to the end of its time."""
        words = ["nice", "-n", "19", tool, "-e", str(path)]
        with subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={"PATH": _PATH, "LC_ALL": "C", "DEBUGINFOD_URLS": ""},
        ) as process:  # fmt: skip
            self._process = process
            if self._closed:  # before there was one to end
                process.kill()
            try:
                text, _ = process.communicate("".join(f"{each & (1 << 64) - 1:#x}\n" for each in addresses), most_s)
            except subprocess.TimeoutExpired:
                process.kill()
                return []
            finally:
                self._process = None
        return [f"{found[1]}:{found[2]}" if (found := _ANSWER.match(line)) else "" for line in text.splitlines()]


def _debug(begin: int, root: Path, notes: Path, line_of: Callable[[Path, int], str]) -> _Debug | None:
    """Return the file with debug information of the running kernel; None where there is none."""
    try:
        build_id = gnu_build_id(notes.read_bytes())
    except OSError:
        return None
    for path in _paths(root, build_id) if build_id else ():
        with contextlib.suppress(OSError, FormatError, ValueError, struct.error):
            with _opened(path) as elf:
                if elf_build_id(elf) != build_id:
                    continue
                file_begin, known = elf_symbol(elf, _BEGIN), elf_symbol(elf, _KNOWN[0])
            if file_begin is None:
                continue
            source = line_of(path, known).rpartition(":")[0] if known is not None else ""
            built_in = source.removesuffix(_KNOWN[1]) if source.endswith(_KNOWN[1]) else ""
            return _Debug(path, begin - file_begin, built_in)
    return None


def _paths(root: Path, build_id: str) -> Iterator[Path]:
    """Iterate over where debug information of the running kernel may be (as perf and elfutils look for it)."""
    release = platform.release()
    for name in (
        f"usr/lib/debug/.build-id/{build_id[:2]}/{build_id[2:]}.debug",
        f"usr/lib/debug/boot/vmlinux-{release}",
        f"usr/lib/debug/lib/modules/{release}/vmlinux",
        f"lib/modules/{release}/build/vmlinux",
        f"lib/modules/{release}/vmlinux",
        f"boot/vmlinux-{release}",
    ):
        yield root / name
    cache = os.environ.get("DEBUGINFOD_CACHE_PATH")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    for folder in (cache, Path(home) / "debuginfod_client"):
        if folder:
            yield root / str(folder).lstrip("/") / build_id / "debuginfo"


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[mmap.mmap]:
    """Map a file that belongs to root, to us, or to who called sudo.

    Raises
    ------
    OSError
        It cannot be read, or is another user's, or others may write it.
    """
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        caller = sudo_user()
        if status.st_uid not in {0, os.geteuid(), *([caller.uid] if caller else [])} or status.st_mode & 0o022:
            raise PermissionError(f"{path} is another user's")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as elf:
            yield elf
