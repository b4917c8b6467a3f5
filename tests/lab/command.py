# SPDX-License-Identifier: Apache-2.0
"""The real command line: started, listened to, and looked at from outside."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
from referencing import Registry, Resource

from tests import leftovers
from tests.lab import preloaded
from tests.waiting import TIMEOUT_S, eventually

if TYPE_CHECKING:
    from hopscope.lab import Lab

HOPSCOPE = [sys.executable, "-m", "hopscope"]
SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "json"
Json = dict[str, Any]
started: list[subprocess.Popen[str]] = []


def environ(**changes: str) -> dict[str, str]:
    """Return an environment in which the output does not depend on who runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "COLUMNS"))}
    return {**kept, "LANG": "C.UTF-8", "COLUMNS": "80", **changes}


def hopscope(*args: object, before: tuple[str, ...] = (), **changes: str) -> subprocess.CompletedProcess[str]:
    """Run to the end; `before` are the words of a program that starts it, `changes` variables of its environment."""
    argv, env = [*before, *HOPSCOPE, *map(str, args)], environ(**changes)
    if not before and (done := preloaded.run(argv[len(HOPSCOPE) :], env, TIMEOUT_S)):
        return done
    return subprocess.run(
        argv, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, encoding="utf-8"
    )


@functools.cache
def printed(*args: object) -> str:
    """Return what a command prints that ends well, says nothing else, and always does the same: it runs once."""
    done = hopscope(*args)
    assert done.returncode == 0, done.stderr
    return done.stdout


def start(*args: object, **options: Any) -> subprocess.Popen[str]:  # noqa: ANN401 # as for Popen
    """Start it with its output in pipes."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environ(), "text": True}
    child: subprocess.Popen[str] = subprocess.Popen([*HOPSCOPE, *map(str, args)], **(pipes | options))
    started.append(child)
    return child


def end_started() -> None:
    """Kill what a failed test left running."""
    while started:
        with started.pop() as child:
            child.kill()


def only(lab: Lab) -> list[str]:
    """Return options that leave out the traffic of everybody else on this machine."""
    return [f"--netns={lab.client.inode}", f"--netns={lab.server.inode}"]


def complaint(done: subprocess.CompletedProcess[str], code: int) -> str:
    """Return the one sentence with which it ended, and nothing else was said."""
    assert done.returncode == code, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("hopscope: ")
    return line.removeprefix("hopscope: ")


def links(child: subprocess.Popen[str]) -> set[int]:
    """Return the BPF links that a process holds open."""
    return _held(child, "link")


def attached(child: subprocess.Popen[str]) -> bool:
    """Tell whether all of its programs are attached, rather than the one that it tries a kind with."""
    return len(links(child)) > 8


def programs(child: subprocess.Popen[str]) -> set[int]:
    """Return the BPF programs that a process holds open."""
    return _held(child, "prog")


def _held(child: subprocess.Popen[str], wanted: str) -> set[int]:
    return {number for kind, number in leftovers.held_by([child.pid]) if kind == wanted}


def waits(child: subprocess.Popen[str]) -> bool:
    """Tell whether it sleeps in poll(2), as it does until its next report or reading is due, and nowhere else."""
    assert child.poll() is None, ended(child)
    folder = Path(f"/proc/{child.pid}")
    sleeps = "\nState:\tS" in (folder / "status").read_text()
    return sleeps and "poll" in (folder / "stack").read_text()


def wait_gone(link_ids: set[int], program_ids: set[int]) -> None:
    """Wait until the kernel has freed all of them."""
    eventually(lambda: not link_ids & leftovers.bpf_ids("link"), "links are left")
    eventually(lambda: not program_ids & leftovers.bpf_ids("prog"), "programs are left")


def ended(child: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for the end; return exit code, output and error output, but for the lines that were read before.

    `communicate` would leave out more: what the file had read ahead, on a slow machine whole lines.
    """
    with ThreadPoolExecutor(2) as pool:
        reads = [pool.submit(file.read) if file else None for file in (child.stdout, child.stderr)]
        try:
            child.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            raise
        out, err = (read.result() if read else "" for read in reads)
    return child.returncode, out, err


def objects(out: str) -> list[Json]:
    """Return the JSON objects of an output."""
    return [json.loads(line) for line in out.splitlines()]


def count_of(snapshot: Json, hop: str) -> int:
    """Return the samples of a hop, all groups together."""
    return sum(row["count"] for row in snapshot["hops"] if row["hop"] == hop)


def schema(name: str) -> Json:
    """Return a documented schema."""
    found: Json = json.loads((SCHEMAS / f"hopscope.{name}.schema.json").read_text())
    return found


def assert_fits(document: Json, name: str) -> None:
    """Fail where a document is not as its schema says, which may refer to the others."""
    documented = [json.loads(path.read_text()) for path in SCHEMAS.iterdir()]
    registry: Registry[Json] = Registry().with_resources(
        (each["$id"], Resource.from_contents(each)) for each in documented
    )
    jsonschema.Draft202012Validator(schema(name), registry=registry).validate(document)


def on_terminal(
    *args: object, before: tuple[str, ...] = (), width: int = 80, typed: tuple[str, str] | None = None, **changes: str
) -> tuple[int, str]:
    """Run to the end on a terminal of so many columns; return the exit code and what the terminal got.

    `typed` are a text, and the keys that are pressed when it has been shown.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    variables = {name: value for name, value in environ(TERM="xterm", **changes).items() if name != "COLUMNS"}
    argv = [*before, *HOPSCOPE, *map(str, args)]
    child = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env=variables)
    os.close(theirs)
    read = b""
    with contextlib.suppress(OSError):  # EIO: the other end is closed
        while block := os.read(ours, 65_536):
            read += block
            if typed and typed[0].encode() in read:
                os.write(ours, typed[1].encode())
                typed = None
    os.close(ours)
    return child.wait(TIMEOUT_S), read.decode("utf-8", "surrogateescape")


def plain(text: str) -> list[str]:
    """Return lines without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\r", "").split("\n")
