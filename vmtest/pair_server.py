# SPDX-License-Identifier: Apache-2.0
"""What runs in the second guest of a pair: an sshd, until the first one is done."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tests.lab.sshd import Sshd
from vmtest.pair import DONE_FILE, READY_FILE

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

P = ParamSpec("P")
T = TypeVar("T")


class Here:
    """The host that we are on, as a namespace would be."""

    def popen(self, argv: Sequence[str | os.PathLike[str]], **kwargs: Any) -> subprocess.Popen[Any]:  # noqa: ANN401
        """Start a program."""
        return subprocess.Popen(argv, **kwargs)

    def call(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function."""
        return fn(*args, **kwargs)


def main(arguments: Sequence[str]) -> int:
    """Serve; return the exit code."""
    folder, address = Path(arguments[0]), arguments[1]
    with Sshd(Here(), folder / "sshd", address=address):
        (folder / READY_FILE).touch()
        while not (folder / DONE_FILE).exists():
            time.sleep(0.5)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
