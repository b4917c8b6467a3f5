# SPDX-License-Identifier: Apache-2.0
"""The program: ``hopscope``, or ``python -m hopscope``."""

import os
import signal

# Until `main` handles it, Ctrl-C ends us as it ends any program: Python's own handler would print where we were.
if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

# A thread of NumPy's that began before the process is confined would not be (hopscope.recorded.confine).
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from hopscope.main import main as run  # which takes its time


def main() -> None:
    """Run the command line in a process of its own, and exit."""
    run(own_process=True)


if __name__ == "__main__":
    main()
