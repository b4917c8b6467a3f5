# SPDX-License-Identifier: Apache-2.0
"""Which TLS libraries processes have mapped: a container's own, and those whose file was replaced, included.

A library is opened through the process that has mapped it (``/proc/PID/map_files``, else ``/proc/PID/root``), so that
its path means what it means to that process, and is the same library as another one if device and inode are the same.
Files are those of other users: they are read, within a limit, and their code is never run.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.errors import FormatError, UsageError
from hopscope.libbpf import function_offsets

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

AUTO: Final = "auto"
OPENSSL: Final = "openssl"
# OpenSSL's own name; with a hash in it, as Python packages bundle it.
_LIBSSL: Final = re.compile(r"libssl(-[0-9a-f]+)?\.so(\.[\w.]+)?")
_OTHERS: Final = re.compile(r"lib(gnutls|nss3|ssl3|mbedtls|wolfssl|s2n|botan-\d)\.so(\.[\w.]+)?")
_LINE: Final = re.compile(r"([0-9a-f]+-[0-9a-f]+) \S+ \S+ (\S+) (\d+) +(/.*)")
_DELETED: Final = " (deleted)"
# Where dynamic linkers look first, of whatever distribution.
_FOLDERS: Final = ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64")
_MOST_BYTES: Final = 256 << 20
# Where an indirect jump may end (Intel SDM). Kernels execute it by a single step, which takes longer than all else of a
# probe, and what often follows, a push, without one.
_ENDBR64: Final = b"\xf3\x0f\x1e\xfa"
_PROC: Final = Path("/proc")


class Mapping(NamedTuple):
    """A file that a process has mapped.

    Attributes
    ----------
    pid
        Of the process.
    place
        Its addresses, as ``map_files`` names them.
    device, inode
        As the process's maps have them.
    path
        As the process's mount namespace has it.
    """

    pid: int
    place: str
    device: str
    inode: int
    path: str

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.path.removesuffix(_DELETED).rpartition("/")[2]


class Library(NamedTuple):
    """A library that is open.

    Attributes
    ----------
    path
        As it is called.
    fd
        Its file descriptor.
    offsets
        Where in the file the functions begin that it has, of those that were asked for: their first instruction that
        does something.
    """

    path: str
    fd: int
    offsets: dict[str, int]


class Found(NamedTuple):
    """Libraries, each once.

    Attributes
    ----------
    libraries
        Which are open.
    notes
        A sentence on each process or file that is left out, and why.
    """

    libraries: list[Library]
    notes: list[str]


def find(
    wanted: Sequence[str],
    functions: Collection[str],
    stack: contextlib.ExitStack,
    *,
    pids: Collection[int] = (),
    comms: Collection[str] = (),
) -> Found:
    """Return the libraries that are wanted and have one of the functions, each once.

    Parameters
    ----------
    wanted
        :data:`AUTO`: what the selected processes have mapped; :data:`OPENSSL`: this host's own as well; or paths.
    functions
        Their names.
    stack
        Closes the files.
    pids, comms
        Of the selected processes; all, where there are neither.

    Raises
    ------
    UsageError
        There is none, or one is not known.
    """
    given = _paths(wanted)
    search = _Search(functions, stack, names={path.rpartition("/")[2] for path in given}, by_name=wanted != given)
    for path in given:
        search.add_file(path, required=True)
    for path in _installed() if OPENSSL in wanted else ():
        search.add_file(path, required=False)
    for pid, comm in _processes(pids, comms):
        search.add_process(pid, comm, is_selected=bool(pids or comms))
    notes = [*search.notes, *search.not_known()]
    if not search.libraries:
        reason = "; ".join(notes) or "no process has mapped libssl.so"
        raise UsageError(
            f"There is no TLS library to record: {reason}",
            "Start the program first, or give --library openssl, or the library's path",
        )
    return Found(search.libraries, notes)


def _paths(wanted: Iterable[str]) -> list[str]:
    """Return the paths among what is wanted."""
    given = [word for word in wanted if word not in {AUTO, OPENSSL}]
    for word in given:
        if "/" not in word:
            raise UsageError(
                f"--library does not know {word or 'a library without a name'}: of TLS libraries, it knows OpenSSL's "
                "libssl.so alone so far",
                "Give auto, openssl, or the path of a library that has OpenSSL's functions",
            )
    return given


class _Search:
    """Opens each library once."""

    def __init__(
        self, functions: Collection[str], stack: contextlib.ExitStack, *, names: Collection[str], by_name: bool
    ) -> None:
        self._functions = functions
        self._stack = stack
        self._names = names
        self._by_name = by_name
        self._others: Counter[str] = Counter()
        self._closed = 0
        self._seen: set[tuple[str, int]] = set()
        self._files: set[tuple[int, int]] = set()
        self.libraries: list[Library] = []
        self.notes: list[str] = []

    def add_file(self, path: str, *, required: bool) -> None:
        """Add a file of this host."""
        try:
            self._add(_opened(path), path)
        except (OSError, FormatError) as error:
            if required:
                reason = error.strerror if isinstance(error, OSError) else error.what
                raise UsageError(f"{path} is no library that can be recorded: {reason}", "Give its path") from error

    def add_process(self, pid: int, comm: str, *, is_selected: bool) -> None:
        """Add what a process has mapped."""
        try:
            mappings = list(_mappings(pid))
        except PermissionError:
            self._closed += 1
            return
        found = [each for each in mappings if self._by_name and _LIBSSL.fullmatch(each.name)]
        for mapping in found:
            self._add_mapping(mapping)
        self._others.update(each.name for each in mappings if _OTHERS.fullmatch(each.name))
        if is_selected and not found and not any(each.name in self._names for each in mappings):
            self.notes.append(_left_out(pid, comm))

    def not_known(self) -> Iterator[str]:
        """Yield a sentence on other libraries that are mapped, and on processes that are not ours to look at."""
        for name, count in sorted(self._others.items()):
            processes = "1 process has" if count == 1 else f"{count} processes have"
            yield f"{processes} mapped {name}, whose calls are not recorded: --library knows OpenSSL's libssl.so alone"
        if self._closed:
            processes = "1 process" if self._closed == 1 else f"{self._closed} processes"
            yield f"the libraries of {processes} could not be inspected, which takes CAP_SYS_PTRACE"

    def _add_mapping(self, mapping: Mapping) -> None:
        """Add a file that a process has mapped."""
        key = mapping.device, mapping.inode
        if key in self._seen:
            return
        self._seen.add(key)
        try:
            self._add(_opened_of(mapping), mapping.path)
        except FileNotFoundError:
            self._seen.discard(key)  # the process has ended: the next one that has it will do
        except (OSError, FormatError) as error:
            reason = error.strerror if isinstance(error, OSError) else error.what
            self.notes.append(f"{mapping.path} of process {mapping.pid} is left out: {reason}")

    def _add(self, fd: int, path: str) -> None:
        try:
            status = os.fstat(fd)
            if (status.st_dev, status.st_ino) in self._files:
                os.close(fd)
                return
            content = _content(fd, status)
            offsets = {
                name: offset + len(_ENDBR64) * content.startswith(_ENDBR64, offset)
                for name, offset in function_offsets(content, self._functions).items()
            }
        except BaseException:
            os.close(fd)
            raise
        self._stack.callback(os.close, fd)
        self._files.add((status.st_dev, status.st_ino))
        if offsets:
            self.libraries.append(Library(path, fd, offsets))
        else:
            self.notes.append(f"{path} is left out: it has no function {' or '.join(sorted(self._functions))}")


def _installed() -> Iterator[str]:
    """Yield the libraries of this host which programs that start later find."""
    for folder in map(Path, _FOLDERS):
        for path in sorted({*folder.glob("libssl.so*"), *folder.glob("*/libssl.so*")}):
            yield str(path)


def _processes(pids: Collection[int], comms: Collection[str]) -> Iterator[tuple[int, str]]:
    """Yield number and name of the selected processes."""
    for folder in sorted(_PROC.glob("[0-9]*"), key=lambda path: int(path.name)):
        pid = int(folder.name)
        if pids and pid not in pids:
            continue
        with contextlib.suppress(OSError):  # it has ended
            comm = _text(folder / "comm").rstrip("\n")
            threads = {_text(each).rstrip("\n") for each in folder.glob("task/*/comm")} if comms else set()
            if not comms or threads & set(comms):
                yield pid, comm


def _mappings(pid: int) -> Iterator[Mapping]:
    """Yield the files that a process has mapped, each once; of one that has ended, none.

    Raises
    ------
    PermissionError
        It is not ours to look at.
    """
    seen: set[str] = set()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in _text(_PROC / str(pid) / "maps").splitlines():
            match = _LINE.fullmatch(line)
            if match and match[4] not in seen:
                seen.add(match[4])
                yield Mapping(pid, match[1], match[2], int(match[3]), match[4])


def _text(path: Path) -> str:
    return path.read_text(errors="replace")


def _opened_of(mapping: Mapping) -> int:
    """Open the file that is mapped, whatever has its path by now."""
    process = _PROC / str(mapping.pid)
    try:
        return _opened(str(process / "map_files" / mapping.place))
    except PermissionError:  # without CAP_CHECKPOINT_RESTORE
        fd = _opened(f"{process}/root{mapping.path}")
    status = os.fstat(fd)
    major, minor = (int(number, 16) for number in mapping.device.split(":"))
    if (status.st_dev, status.st_ino) == (os.makedev(major, minor), mapping.inode):
        return fd
    os.close(fd)
    raise FormatError("another file has its place by now, and the one in use takes CAP_SYS_ADMIN to open")


def _opened(path: str) -> int:
    """Open what may be no regular file, without waiting for anybody."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def _content(fd: int, status: os.stat_result) -> bytes:
    if not stat.S_ISREG(status.st_mode):
        raise FormatError("it is not a regular file")
    if status.st_size > _MOST_BYTES:
        raise FormatError(f"it has more than {_MOST_BYTES >> 20} MiB")
    with open(fd, "rb", closefd=False) as file:
        return file.read(_MOST_BYTES)


def _left_out(pid: int, comm: str) -> str:
    return (
        f"process {pid} ({comm}) is left out: it has not mapped the library. OpenSSL that is linked into a program "
        "statically is recorded if the program still has its symbols, with --library /PATH/OF/THE/PROGRAM"
    )
