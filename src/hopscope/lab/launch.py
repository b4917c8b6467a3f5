# SPDX-License-Identifier: Apache-2.0
"""Start-up code of the lab's child processes, run as a script of its own (``python -IS launch.py``).

A child must die with its owner, whatever kills the owner. The parent-death signal can only be asked for by the child
itself, and `preexec_fn` would run Python in a fork of a process with threads. Hence this file, which imports nothing of
hopscope, so that it starts in a few milliseconds.

``run OWNER_PID ARGV...``
    Ask for SIGKILL at the owner's death, then become `ARGV`.
``hold OWNER_PID [NAME]``
    Keep the current network namespace until standard input ends or the owner dies. With `NAME`, it has that name in
    /run/netns for as long. Prints ``ready``, or ``error`` and the errno.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
from pathlib import Path

NETNS_DIR = Path("/run/netns")
NOT_FOUND = 127
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_MS_BIND = 0x1000
_MNT_DETACH = 2

_libc = ctypes.CDLL(None, use_errno=True)


def main(argv: list[str]) -> int:
    """Do what the first argument says; return the exit status."""
    verb, owner_pid, *rest = argv
    if verb == "run":
        return _run(int(owner_pid), rest)
    return _hold(int(owner_pid), rest[0] if rest else None)


def bind_name(name: str) -> None:
    """Give the current network namespace a name in /run/netns.

    Raises
    ------
    FileExistsError
        The name is taken.
    OSError
        The folder cannot be written or mounted on.
    """
    NETNS_DIR.mkdir(mode=0o755, parents=True, exist_ok=True)
    path = NETNS_DIR / name
    os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o444))
    if _libc.mount(b"/proc/self/ns/net", bytes(path), b"none", _MS_BIND, None) < 0:
        errno = ctypes.get_errno()
        path.unlink()
        raise OSError(errno, os.strerror(errno))


def unbind_name(name: str) -> None:
    """Take a name out of /run/netns; no error when it is not there."""
    path = NETNS_DIR / name
    _libc.umount2(bytes(path), _MNT_DETACH)
    path.unlink(missing_ok=True)


def _run(owner_pid: int, argv: list[str]) -> int:
    _die_with_owner(owner_pid, signal.SIGKILL)
    # Python ignores these two for itself; an ignored signal would stay so across exec.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - no shell is what is wanted
    except OSError as error:
        sys.stderr.write(f"{argv[0]}: {error.strerror}\n")
    return NOT_FOUND


def _hold(owner_pid: int, name: str | None) -> int:
    wake = _wake_on_signals()
    _libc.prctl(_PR_SET_NAME, b"hopscope-netns", 0, 0, 0)
    if name is not None:
        try:
            bind_name(name)
        except OSError as error:
            _say(f"error {error.errno}")
            return 1
    try:
        # Only now, or the signal could come between the mount and the clean-up.
        _die_with_owner(owner_pid, signal.SIGTERM)
        _say("ready")
        select.select([0, wake], [], [])
    finally:
        if name is not None:
            unbind_name(name)
    return 0


def _wake_on_signals() -> int:
    # The end of standard input and the parent-death signal come within microseconds of each other: a handler that
    # raised would cut off the clean-up that the other has begun. So a signal only makes this descriptor readable.
    wake, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: None)
    return wake


def _say(line: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(1, f"{line}\n".encode())


def _die_with_owner(owner_pid: int, number: int) -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != owner_pid:
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
