# SPDX-License-Identifier: Apache-2.0
"""Start the workloads of `hopscope.lab.traffic` as processes and hear from them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hopscope.errors import HopscopeError
from hopscope.lab.pace import LIMIT_S, Ended, Summary

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from hopscope.lab.namespaces import Namespace

_PACKAGE_ROOT = Path(__file__).resolve().parents[2]
_RESULT_TIMEOUT_S = LIMIT_S + 30.0


class Workload:
    """One traffic process.

    Parameters
    ----------
    namespace
        Where it runs; None for where we are.
    arguments
        As on the command line of `hopscope.lab.traffic`: the workload's name, then its options.

    Attributes
    ----------
    pid
        Of the process that sends or receives.
    port
        Where a server listens, 0 for a client. The constructor waits for it.

    Raises
    ------
    HopscopeError
        A server ended before it listened; its own words are in the error.
    """

    def __init__(self, namespace: Namespace | None, *arguments: str | float | os.PathLike[str]) -> None:
        argv = [sys.executable, "-P", "-m", "hopscope.lab.traffic", *map(str, arguments)]
        start = subprocess.Popen if namespace is None else namespace.popen
        # The package may be a source tree that only this process has on its path.
        paths = [str(_PACKAGE_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._child: subprocess.Popen[bytes] = start(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,  # or the reader of the first line would keep what follows from `communicate`
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        self._name = str(arguments[0])
        self.pid = self._child.pid
        self.port = 0
        if self._name.endswith(("-sink", "-echo")):
            self.port = self._wait_ready()

    def __enter__(self) -> Self:
        """Return the workload."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill it if it still runs."""
        self.kill()

    def result(self, timeout_s: float = _RESULT_TIMEOUT_S) -> Summary:
        """Wait for its end and return its summary.

        Raises
        ------
        HopscopeError
            It failed, or reached its limit.
        subprocess.TimeoutExpired
            It still runs.
        """
        stdout, stderr = self._child.communicate(timeout=timeout_s)
        if self._child.returncode:
            words = (stderr or stdout).decode().strip()
            raise HopscopeError(f"{self._name} ended with status {self._child.returncode}: {words}")
        fields = json.loads(stdout.splitlines()[-1])
        return Summary(**{**fields, "ended": Ended(fields["ended"])})

    def stop(self) -> Summary:
        """Ask it to end now, and return its summary."""
        self._child.send_signal(signal.SIGTERM)
        return self.result()

    def kill(self) -> None:
        """Kill it if it still runs; idempotent."""
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdout, self._child.stderr):
            if pipe is not None:
                pipe.close()

    def _wait_ready(self) -> int:
        assert self._child.stdout is not None  # noqa: S101 - for the type checker
        words = self._child.stdout.readline().split()
        if len(words) == 2 and words[0] == b"ready":
            return int(words[1])
        _, stderr = self._child.communicate()
        raise HopscopeError(f"{self._name} did not start: {stderr.decode().strip()}")
