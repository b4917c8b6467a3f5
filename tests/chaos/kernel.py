# SPDX-License-Identifier: Apache-2.0
"""What a run of hopscope may leave behind in the kernel, and among processes."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests import leftovers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab

_PATIENCE_S = 15.0
_EVENTS = ("set_event", "kprobe_events", "uprobe_events")


@contextlib.contextmanager
def tracefs() -> Iterator[Path]:
    """Yield tracefs, mounted for us alone if it is nowhere."""
    known = Path("/sys/kernel/tracing")
    if (known / "set_event").exists():
        yield known
        return
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["mount", "-t", "tracefs", "none", folder], check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


def seen(lab: Lab, tracing: Path) -> set[str]:
    """Return what there is now, a name each.

    Not of BPF's maps and of perf's events: they live as long as a program, a process or a pin does, which are all here.
    """
    return leftovers.seen() | _events(tracing) | _networks(lab) | _mounts()


def left_since(before: set[str], lab: Lab, tracing: Path) -> set[str]:
    """Return what is there now and was not before, for longer than the kernel and other users of the machine need."""
    left = leftovers.left_since(before, lambda: seen(lab, tracing), _PATIENCE_S)
    # Programs of others come and go between a look at all and a look at theirs.
    return left & leftovers.left_since(before, lambda: seen(lab, tracing), _PATIENCE_S) if left else left


def _events(tracing: Path) -> set[str]:
    found = set()
    for name in _EVENTS:
        with contextlib.suppress(OSError):  # a kernel without such probes
            found |= {f"{name}: {line}" for line in (tracing / name).read_text().splitlines()}
    return found


def _networks(lab: Lab) -> set[str]:
    """Return queueing disciplines, filters and rules of the laboratory, and of this host."""
    found = set()
    for words in (["tc", "qdisc", "show"], ["nft", "list", "ruleset"]):
        texts = {
            "client": lab.client.run(words, capture_output=True).stdout,
            "server": lab.server.run(words, capture_output=True).stdout,
            "host": subprocess.run(words, capture_output=True, check=True).stdout,
        }
        found |= {f"{words[0]} of {where}: {line}" for where, text in texts.items() for line in _lines(text)}
    return found


def _lines(text: str | bytes) -> list[str]:
    return (text if isinstance(text, str) else text.decode()).splitlines()


def _mounts() -> set[str]:
    fields = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    pins = Path("/sys/fs/bpf")
    return {f"mount {each[1]} ({each[2]})" for each in fields} | {
        f"pin {path}" for path in (pins.iterdir() if pins.exists() else ())
    }
