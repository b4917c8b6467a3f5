# SPDX-License-Identifier: Apache-2.0
"""The program: ``hopscope``, or ``python -m hopscope``."""

# What is behind `signal`, which imports others for milliseconds.
import _signal  # type: ignore[import-not-found] # typeshed has the public module alone

# Until `main` handles it, Ctrl-C ends us as it ends any program: Python's own handler would print where we were.
if _signal.getsignal(_signal.SIGINT) == _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import os

# A thread of NumPy's that began before the process is confined would not be (hopscope.recorded.confine).
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from hopscope.main import main as run  # which takes its time


def main() -> None:
    """Run the command line in a process of its own, and exit."""
    run(own_process=True)


if __name__ == "__main__":
    main()
