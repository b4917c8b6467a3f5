# SPDX-License-Identifier: Apache-2.0
"""Which TLS libraries processes have mapped or in their programs: a container's own, and those that were replaced, too.

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
from hopscope.kernel.tls_functions import (
    FUNCTIONS,
    LIBRARIES,
    OTHERS,
    QUIC_FILES,
    QUIC_NAMES,
    SSL_SOURCE,
    Count,
)
from hopscope.libbpf import function_offsets, go_functions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

AUTO: Final = "auto"
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


class Place(NamedTuple):
    """Where in a file a function is.

    Attributes
    ----------
    entry
        Its first instruction that does something.
    returns
        The instructions by which it returns; none: the kernel can tell.
    """

    entry: int
    returns: tuple[int, ...] = ()


class Library(NamedTuple):
    """A library, or a program into which one is linked, that is open.

    Attributes
    ----------
    path
        As it is called.
    fd
        Its file descriptor.
    functions
        Where those are that it has, of those that were asked for.
    """

    path: str
    fd: int
    functions: dict[str, Place]


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
    wanted: Sequence[str], stack: contextlib.ExitStack, *, pids: Collection[int] = (), comms: Collection[str] = ()
) -> Found:
    """Return the libraries that are wanted and have functions that are known, each once.

    Parameters
    ----------
    wanted
        :data:`AUTO`: what the selected processes have mapped; a name in
        :data:`~hopscope.kernel.tls_functions.LIBRARIES`: that library alone, and this host's own as well; or paths.
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
    search = _Search(LIBRARIES if AUTO in wanted else [word for word in wanted if word in LIBRARIES], given, stack)
    for path in given:
        search.add_file(path, required=True)
    for path in _installed(wanted):
        search.add_file(path, required=False)
    for pid, comm in _processes(pids, comms):
        search.add_process(pid, comm, is_selected=bool(pids or comms))
    notes = [*search.notes, *search.not_recorded()]
    if not search.libraries:
        reason = "; ".join(notes) or "no process has mapped one"
        raise UsageError(
            f"There is no TLS library to record: {reason}",
            "Start the program first, or give --library openssl or gnutls, or the path of the library or program",
        )
    return Found(search.libraries, notes)


def _paths(wanted: Iterable[str]) -> list[str]:
    """Return the paths among what is wanted."""
    given = [word for word in wanted if word not in {AUTO, *LIBRARIES}]
    for word in given:
        if "/" not in word:
            raise UsageError(
                f"--library does not know {word or 'a library without a name'}: of TLS libraries, it knows "
                f"{', '.join(LIBRARIES)}",
                "Give one of these, auto, or the path of a library or program that has functions of one of these",
            )
    return given


class _Search:
    """Opens each library once."""

    def __init__(self, libraries: Collection[str], paths: Collection[str], stack: contextlib.ExitStack) -> None:
        self._libraries = libraries
        self._stack = stack
        self._names = {path.rpartition("/")[2] for path in paths}
        wanted = [each for each in FUNCTIONS if paths or not {*libraries}.isdisjoint(each.libraries)]
        self._native = {each.name for each in wanted if each.counted is not Count.GO_RESULT}
        self._go = {each.name for each in wanted if each.counted is Count.GO_RESULT}
        self._others: Counter[str] = Counter()
        self._quic: Counter[str] = Counter()
        self._closed = 0
        self._seen: set[tuple[str, int]] = set()
        self._files: dict[tuple[int, int], _Content] = {}
        self.libraries: list[Library] = []
        self.notes: list[str] = []

    def add_file(self, path: str, *, required: bool) -> None:
        """Add a file of this host."""
        try:
            if not self._add(_opened(path), path).is_recorded:
                self.notes.append(f"{path} is left out: it has no function {self._wanted()}")
        except (OSError, FormatError) as error:
            if required:
                raise UsageError(
                    f"{path} is no library that can be recorded: {_reason(error)}", "Give its path"
                ) from error

    def add_process(self, pid: int, comm: str, *, is_selected: bool) -> None:
        """Add what a process has mapped, and its program."""
        try:
            mappings = list(_mappings(pid))
        except PermissionError:
            self._closed += 1
            return
        found = [each for each in mappings if self._is_wanted(each.name)]
        for mapping in found:
            self._add_mapping(mapping)
        program = self._program(pid, is_selected=is_selected)
        quic = {match[1] for each in mappings if (match := QUIC_FILES.fullmatch(each.name))}
        self._quic.update(quic | set(program.quic))
        self._others.update(each.name for each in mappings if OTHERS.fullmatch(each.name))
        is_given = any(each.name in self._names for each in mappings)
        if is_selected and not found and not program.is_recorded and not is_given:
            self.notes.append(_left_out(pid, comm))

    def not_recorded(self) -> Iterator[str]:
        """Yield a sentence on other libraries that are in use, and on processes that are not ours to look at."""
        for name, count in sorted(self._others.items()):
            yield f"{_have(count)} mapped {name}, whose calls are not recorded: --library does not know its functions"
        for name, count in sorted(self._quic.items()):
            yield (
                f"{_have(count)} the QUIC library {name}: its streams are not seen, but its datagrams are, as those "
                "of the process"
            )
        if self._closed:
            processes = "1 process" if self._closed == 1 else f"{self._closed} processes"
            yield f"the libraries of {processes} could not be inspected, which takes CAP_SYS_PTRACE"

    def _is_wanted(self, name: str) -> bool:
        known = (LIBRARIES[library].files for library in self._libraries)
        return any(files and files.fullmatch(name) for files in known)

    def _wanted(self) -> str:
        return " or ".join(sorted(self._native | self._go))

    def _add_mapping(self, mapping: Mapping) -> None:
        """Add a file that a process has mapped."""
        key = mapping.device, mapping.inode
        if key in self._seen:
            return
        self._seen.add(key)
        try:
            if not self._add(_opened_of(mapping), mapping.path).is_recorded:
                self.notes.append(f"{mapping.path} is left out: it has no function {self._wanted()}")
        except FileNotFoundError:
            self._seen.discard(key)  # the process has ended: the next one that has it will do
        except (OSError, FormatError) as error:
            self.notes.append(f"{mapping.path} of process {mapping.pid} is left out: {_reason(error)}")

    def _program(self, pid: int, *, is_selected: bool) -> _Content:
        """Add the program that a process runs, if a library is linked into it."""
        if not self._libraries:
            return _NOTHING
        place = _PROC / str(pid) / "exe"
        path = str(pid)
        try:
            path = str(place.readlink()).removesuffix(_DELETED)
            return self._add(_opened(str(place)), path)
        except FormatError as error:
            if is_selected:
                self.notes.append(f"{path} is left out: {error.what}")
        except OSError:  # it has ended, or is a thread of the kernel
            pass
        return _NOTHING

    def _add(self, fd: int, path: str) -> _Content:
        """Look at an open file, once, and keep it open if it has functions."""
        try:
            status = os.fstat(fd)
            key = status.st_dev, status.st_ino
            if key in self._files:
                os.close(fd)
                return self._files[key]
            self._files[key] = _NOTHING
            content = _content(fd, status)
            functions = self._places(content)
        except BaseException:
            os.close(fd)
            raise
        quic = tuple(name for name, mark in QUIC_NAMES.items() if mark in content)
        self._files[key] = _Content(bool(functions), quic)
        if functions:
            self._stack.callback(os.close, fd)
            self.libraries.append(Library(path, fd, functions))
            return self._files[key]
        os.close(fd)
        if SSL_SOURCE in content and self._native:
            self.notes.append(
                f"{path} is left out: OpenSSL or BoringSSL is linked into it, but it was stripped of its symbols, "
                "without which nobody knows where the functions are"
            )
        return self._files[key]

    def _places(self, content: bytes) -> dict[str, Place]:
        """Return where the functions are that a file has."""
        offsets = function_offsets(content, self._native)
        places = {
            name: Place(offset + len(_ENDBR64) * content.startswith(_ENDBR64, offset))
            for name, offset in offsets.items()
        }
        return places | {name: Place(*each) for name, each in go_functions(content, self._go).items()}


class _Content(NamedTuple):
    """What is in a file."""

    is_recorded: bool
    quic: tuple[str, ...]


_NOTHING: Final = _Content(is_recorded=False, quic=())


def _reason(error: OSError | FormatError) -> str:
    return str(error.strerror) if isinstance(error, OSError) else error.what


def _have(count: int) -> str:
    return "1 process has" if count == 1 else f"{count} processes have"


def _installed(wanted: Iterable[str]) -> Iterator[str]:
    """Yield the libraries of this host which programs that start later find."""
    patterns = [LIBRARIES[word].installed for word in wanted if word in LIBRARIES and LIBRARIES[word].installed]
    for folder in map(Path, _FOLDERS):
        for pattern in patterns:
            for path in sorted({*folder.glob(pattern), *folder.glob(f"*/{pattern}")}):
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
        f"process {pid} ({comm}) is left out: it has not mapped the library, and its program has no such function: one "
        "that another of its files has is recorded with --library /PATH/OF/THE/FILE"
    )
