# SPDX-License-Identifier: Apache-2.0
"""An errno and libbpf's log, made into one sentence and the next step."""

from __future__ import annotations

import errno
import os
import re
from typing import Final

from hopscope.errors import LoadError
from hopscope.libbpf.capabilities import missing_capabilities

# libbpf has some forty sentences about a program that it could not prepare, relocate, load or attach, and names it
# first in each of them; the last one of a failure is the fatal one.
_REFUSED: Final = re.compile(
    r"^libbpf: prog '([^']+)': .*\b(?:fail\w*|missing|bad|invalid|no|can't|error|unexpected)\b", re.MULTILINE
)

_NEXT_STEP: Final = {
    errno.EACCES: "The kernel's verifier refused it; its log says why",
    errno.EINVAL: "The kernel does not know this, or its verifier refused it; the log says more",
    errno.ENOENT: "There is no such file, or this kernel has no such function or tracepoint",
    errno.ESRCH: "This kernel's BTF has no such function or tracepoint",
    errno.ENOMEM: "There is not enough memory; ask for smaller maps or rings",
    errno.ENOSPC: "There is no room left for it in the kernel; ask for smaller maps, or end another tracing tool",
    errno.E2BIG: "It is larger than this kernel allows; ask for smaller maps or fewer programs",
    errno.EBUSY: "Another program holds this place; end the other tracing tool",
    errno.EEXIST: "Another program holds this place; end the other tracing tool",
    errno.EMFILE: "Raise the limit of open files (ulimit -n)",
    errno.EOPNOTSUPP: "This kernel lacks it",
    524: "This kernel lacks it",  # ENOTSUPP: the kernel's own, which leaks from bpf(2)
}


def refused_program(log: str) -> str | None:
    """Return the name of the program that libbpf's log blames, None if it blames none."""
    names = _REFUSED.findall(log)
    return names[-1] if names else None


def _next_step(code: int) -> str:
    if code in (errno.EPERM, errno.EACCES):
        missing = missing_capabilities()
        if missing:
            return f"Run it as root, or with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN (missing: {', '.join(missing)})"
    if code == errno.EPERM:
        return "This kernel forbids it even to root (its configuration, lockdown or a security module)"
    return _NEXT_STEP.get(code, "")


def load_error(doing: str, code: int, *, program: str | None = None, log: str = "") -> LoadError:
    """Return the error to raise.

    Parameters
    ----------
    doing
        What failed, as the start of a sentence: ``"rx.bpf.o cannot be loaded"``.
    code
        The errno, of either sign: libbpf returns it negative.
    program
        The program concerned; where None, the one that the log blames.
    log
        What libbpf said.
    """
    code = abs(code)
    blamed = program or refused_program(log)
    which = f" (program {blamed})" if blamed is not None and blamed not in doing else ""
    return LoadError(
        f"{doing}{which}: {os.strerror(code)}", _next_step(code), errno=code, program=blamed, log=log.rstrip()
    )
