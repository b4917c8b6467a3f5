# SPDX-License-Identifier: Apache-2.0
"""Run a command line as a user would have it run, in a process that can do no harm, and say what is wrong with it."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import os
import re
import resource
import select
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

import duckdb  # noqa: F401 # each child has it already
import numpy as np  # noqa: F401 # as duckdb

from hopscope import main
from hopscope.kernel import capabilities
from hopscope.lab._libc import libc, unshare_net
from hopscope.live import session
from hopscope.verbs.check.command import EXIT_CODES
from hopscope.verbs.explain import watch

if TYPE_CHECKING:
    from collections.abc import Sequence

# Nothing computes for so long, all threads together. A machine that is busy makes it wait for longer.
_COMPUTES_S: Final = 20
# Nothing waits for so long. Who measures until Ctrl-C has it before.
HANG_S: Final = 240.0
_CTRL_C_S: Final = 15.0
# They end by themselves, so that a Ctrl-C would hide where they hang, and find fault with a machine that is busy.
_READERS: Final = frozenset({"report", "export", "sql", "join", "verify", "recordings", "cdf", "script"})
_SPACE_BYTES: Final = 12 << 30
_RESIDENT_BYTES: Final = 3 << 29
_FILE_BYTES: Final = 1 << 28
_CODES: Final = frozenset({0, 1, 2, 4, 77})
_BUG: Final = 70
# Of a Ctrl-C before there is anything to report.
_INTERRUPTED: Final = 130
_LAST_CAPABILITY_VERSION: Final = 0x20080522
# What a terminal would act on; a carriage return belongs to CSV.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_WARNING: Final = re.compile(r"^\S+\.py:\d+: \w*Warning", re.MULTILINE)


def judge(words: Sequence[str], target: Path, *, ends: bool = False) -> list[str]:
    """Run hopscope with these words in the folder `target`, and return what is wrong with that.

    It has no privileges and no network, and nothing to read on its standard input. What it writes is looked at, and
    that nothing but `target` is changed of the folder that `target` is in. `ends` says that it measures nothing, and
    ends by itself, as all verbs that only read do.
    """
    before = _contents(target.parent, target)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if not pid:
            _be_child(words, target, out.fileno(), err.fileno())
        status, used, is_interrupted = _wait(pid, ends=ends or words[0] in _READERS)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="surrogateescape"))
    changed = sorted(before.items() ^ _contents(target.parent, target).items())
    wrong = [f"{path} was changed" for path in sorted({path for path, _ in changed})]
    if used.ru_maxrss << 10 > _RESIDENT_BYTES:
        wrong.append(f"it took {used.ru_maxrss >> 10} MiB of memory")
    if is_interrupted and os.waitstatus_to_exitcode(status) == _INTERRUPTED:
        return wrong + _wrong_text(words, *texts)
    return wrong + _wrong_end(words, status, texts[1]) + _wrong_text(words, *texts)


def _wrong_end(words: Sequence[str], status: int, err: str) -> list[str]:
    code = os.waitstatus_to_exitcode(status)
    if "Timeout (" in err or code in {-signal.SIGKILL, -signal.SIGXCPU}:
        return [f"it hangs {_place(err)}"]
    if code == _BUG or "Traceback (most recent" in err:
        return [f"it raises {_place(err)}"]
    if words[0] == "check" and code in EXIT_CODES.values():
        return []
    if code not in _CODES:
        return [f"it ends with {code}: {err[-300:]}"]
    if code > 1 and "hopscope: " not in err:
        return [f"it ends with {code} and does not say why"]
    return []


def _wrong_text(words: Sequence[str], out: str, err: str) -> list[str]:
    wrong = []
    # An agent speaks to a program, and CSV that no terminal gets has fields as they are.
    for_programs = words[:1] == ["agent"] or "--csv" in words
    shown = {"error output": err} if for_programs else {"output": out, "error output": err}
    for name, text in shown.items():
        if found := _CONTROL.search(text):
            around = text[max(found.start() - 60, 0) : found.start() + 20]
            wrong.append(f"{words[0]} has a control character in its {name}: {around!r}")
    if found := _WARNING.search(err):
        wrong.append(f"it warns: {err[found.start() :][:300]}")
    return wrong


def _place(err: str) -> str:
    """Return which exception it was and where, then what it said."""
    lines = err.strip().splitlines()
    places = [re.sub(r'.*/(\w+/\w+\.py)", line', r"\1", line) for line in lines if "src/hopscope/" in line]
    kind, _, what = lines[-1].partition(": ") if lines else ("", "", "")
    return f"{kind} at {'; '.join(places[-2:])}: {what[:200]}"


def _wait(pid: int, *, ends: bool) -> tuple[int, resource.struct_rusage, bool]:
    """Wait for a child's end, with a Ctrl-C if it takes its time and does not end by itself; say whether it did."""
    handle = os.pidfd_open(pid)
    is_interrupted = False
    try:
        for after_s, number in ([] if ends else [(_CTRL_C_S, signal.SIGINT)]) + [(HANG_S + 5, signal.SIGKILL)]:
            if select.select([handle], [], [], after_s)[0]:
                break
            os.kill(pid, number)
            is_interrupted = True
    finally:
        os.close(handle)
        _, status, used = os.wait4(pid, 0)
    return status, used, is_interrupted


def _contents(folder: Path, without: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of all that is in a folder, but for what is in one of its folders."""
    found = {}
    for at, folders, files in os.walk(folder):
        if Path(at) == folder:
            folders[:] = [name for name in folders if name != without.name]
        for name in (*folders, *files):
            said = (Path(at) / name).lstat()
            found[os.path.join(at, name)] = (said.st_size, said.st_mtime_ns)  # noqa: PTH118 # names that are no text
    return found


def _be_child(words: Sequence[str], target: Path, out: int, err: int) -> None:
    code = _BUG
    try:
        _confine(target)
        for number, to in ((out, 1), (err, 2)):
            os.dup2(number, to)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdin, sys.stdout = (
            os.fdopen(number, mode, closefd=False, encoding="utf-8") for number, mode in enumerate("rw")
        )
        sys.stderr = os.fdopen(2, "w", closefd=False, errors="backslashreplace")
        sys.argv = ["hopscope", *words]
        faulthandler.dump_traceback_later(HANG_S, exit=True, file=2)
        faulthandler.register(signal.SIGXCPU, file=2, chain=True)
        code = _called()
        faulthandler.cancel_dump_traceback_later()
    finally:
        os._exit(code)


def _called() -> int:
    try:
        try:
            main.main(own_process=True)
        finally:
            sys.stdout.flush()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 # which nobody else may see
        os.write(2, traceback.format_exc().encode(errors="backslashreplace"))
        return _BUG
    return 0


def _confine(target: Path) -> None:
    """Leave a network of nobody, no capability, and so much memory and disk."""
    with contextlib.suppress(OSError):  # who is not root has no capability either
        unshare_net()
    # A missing right is reported first. Without that check, more of each verb runs before the kernel refuses.
    for each in (capabilities, session, watch):
        each.require_rights = lambda *_: None
    libc.capset(ctypes.byref((ctypes.c_uint32 * 2)(_LAST_CAPABILITY_VERSION, 0)), ctypes.byref((ctypes.c_uint32 * 6)()))
    resource.setrlimit(resource.RLIMIT_AS, (_SPACE_BYTES, _SPACE_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_COMPUTES_S, _COMPUTES_S + 5))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_BYTES, _FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.chdir(target)
    os.environ.update(
        HOPSCOPE_RECORDINGS=str(target / "state"),
        TMPDIR=str(target),
        HOPSCOPE_SSH="false",
        LANG="C.UTF-8",
        COLUMNS="80",
    )
    tempfile.tempdir = None


for _name in main.VERBS:  # imported once, and not by each child
    importlib.import_module(f"hopscope.verbs.{_name}.command")
