# SPDX-License-Identifier: Apache-2.0
"""Chromium without a screen, driven by its DevTools protocol over a pipe: no port is open, and no package is needed."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from types import TracebackType

NAMES: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
SETTINGS: Final = ("--headless", "--no-sandbox", "--disable-gpu")
_PATIENCE_S: Final = 30.0
# The browser reads the file descriptor 3 and writes 4, which may be those of others here.
_EXEC: Final = """
import fcntl, os, sys
found = [fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3]]
for number, fd in enumerate(found, 3):
    os.dup2(fd, number)
    os.close(fd)
os.execv(sys.argv[3], sys.argv[3:])
"""
_LOOK_S: Final = 0.02


def find() -> str | None:
    """Return the path of a browser; None: none is installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Chromium:
    """A browser with one page; it ends with the ``with``.

    Parameters
    ----------
    program
        Its path.
    patience_s
        How long :meth:`until` waits.

    Attributes
    ----------
    requested
        Addresses that the page has asked for.
    said
        What the page wrote to the console, and its errors.
    """

    def __init__(self, program: str, *, patience_s: float = _PATIENCE_S) -> None:
        self._program = program
        self._patience_s = patience_s
        self.requested: list[str] = []
        self.said: list[str] = []
        self._number = 0
        self._read = b""
        self._session = ""

    def __enter__(self) -> Self:
        self._stack = contextlib.ExitStack()
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        words = [*SETTINGS, "--remote-debugging-pipe", "--disable-background-networking", "--no-first-run"]
        self._child = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _EXEC,
                str(theirs_in),
                str(theirs_out),
                self._program,
                *words,
                f"--user-data-dir={folder}",
                "about:blank",
            ],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._child.terminate()
        self._child.wait()
        os.close(self._out)
        os.close(self._in)
        self._stack.close()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:  # noqa: ANN401 # as the protocol has it
        """Call a method of the protocol, and return what it returns."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            part = os.read(self._in, 1 << 16)
            if not part:
                raise RuntimeError("the browser has ended")
            self._read += part
        line, self._read = self._read.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(line)
        self._note(answer.get("method"), answer.get("params", {}))
        return answer

    def _note(self, method: str | None, told: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requested.append(told["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.said.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded":
            self.said.append(told["entry"]["text"])
        elif method == "Runtime.consoleAPICalled":
            self.said.append(" ".join(str(each.get("value", each.get("description"))) for each in told["args"]))

    def open(self, url: str) -> None:
        """Go to an address."""
        self.call("Page.navigate", url=url)

    def show(self, width: int, height: int, *, dark: bool = False) -> None:
        """Have a window of this size, and these colours."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        calm = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[scheme, calm])

    def evaluate(self, expression: str) -> Any:  # noqa: ANN401 # of any type
        """Return the value of an expression in the page; a promise is awaited."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"].get("exception", {}).get("description", "it failed"))
        return found["result"].get("value")

    def until(self, expression: str) -> Any:  # noqa: ANN401 # as above
        """Return the value of an expression as soon as it is true."""
        end_s = time.monotonic() + self._patience_s
        while time.monotonic() < end_s:
            with contextlib.suppress(RuntimeError):  # the page may be about to change
                if found := self.evaluate(expression):
                    return found
            time.sleep(_LOOK_S)
        raise TimeoutError(f"never true: {expression}; the page said {self.said[-5:]}")

    def screenshot(self, *, whole: bool = False) -> bytes:
        """Return a picture of the window, or of the whole page, as PNG."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(found["data"])
