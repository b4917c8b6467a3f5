# SPDX-License-Identifier: Apache-2.0
"""One round: a verb is started over generated traffic, something happens to it, and what is left is looked at."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopscope.lab import Namespace
from hopscope.store.counts import event_counts
from hopscope.store.meta import Metadata
from hopscope.store.trace import Trace
from tests import disks
from tests.chaos.cgroup import memory_limited
from tests.chaos.kernel import Watch
from tests.lab.command import HOPSCOPE, environ, hopscope, only
from tests.lab.measure import ping
from tests.waiting import eventually, state

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from socket import socket

    from hopscope.lab import Lab

_TRACEPOINT: Final = ("-e", "net:net_dev_queue")
# Name → words; those of `record` get a folder. The last ones end by themselves if nothing ends them before.
VERBS: Final[dict[str, tuple[str, ...]]] = {
    "record": ("record",),
    "record all": ("record", "-P", "all", "--buffer", "1", "--snap", "64"),
    "record flight": ("record", "--flight", "600", "--trigger", "rx.tcp_queue>1000s"),
    "record event": ("record", "-P", "messages", "--counters", "0.1", *_TRACEPOINT),
    "record agent": ("record", "--host", "local"),
    "rx": ("rx", "-i", "0.2"),
    "tx": ("tx", "--events", "--json"),
    "cpu": ("cpu", "--breakdown", "-i", "0.2"),
    "drops": ("drops", "-i", "0.2"),
    "count": ("count", "net:*", "--by", "pid", "-i", "0.2"),
    "sockets": ("sockets", "-i", "0.2"),
    "counters": ("counters", "-i", "0.2"),
    "check": ("check", "-d", "2"),
    "explain": ("explain", "-d", "2"),
    "demo": ("demo", "-d", "5"),
    "serve": ("serve", "--listen", "127.0.0.1:0", "-i", "0.2"),
    "wire": ("wire", "-P", "all"),
    "clock": ("clock", "--host", "local,name=a,address=127.0.0.1", "--host", "local,name=b,address=127.0.0.1"),
}
SIGNALS: Final = {name: getattr(signal, f"SIG{name}") for name in ("KILL", "TERM", "HUP", "QUIT", "INT")}
# What happens besides a signal; those of folders happen to `record` alone.
STOP: Final = "stop and continue"
CLOCK_STEP: Final = "clock step"
# No namespace has a wall clock of its own: it is set where the machine is ours alone.
_ALONE: Final = (CLOCK_STEP,) if "HOPSCOPE_VM" in os.environ else ()
DEEDS: Final = (STOP, "device deleted", "namespace deleted", "out of memory", *_ALONE)
OF_FOLDERS: Final = ("folder moved", "folder replaced by a link", "folder deleted", "disk full", "no inodes")

_COUNTED: Final = 211
_LONGEST_S: Final = 2.5
_LEAST_MIB: Final = 30
_MIB_A_SECOND: Final = 50
_ENDS_S: Final = 120.0
# What Python says of a Ctrl-C before it has come to a line of hopscope.
_BEFORE_OURS: Final = ("Fatal Python error: init_", "Could not import runpy module")
_SAID: Final = re.compile(r"([\d,]+) events? in [\d.]+ s, (none|[\d,]+) lost;")


@dataclass
class Round:
    """What is done in a round, and what was found.

    Attributes
    ----------
    verb, deed
        Keys of `VERBS`, and of `SIGNALS`, `DEEDS` or `OF_FOLDERS`.
    begun
        Whether nothing is done before a recording has begun.
    after_s
        How long after that, or after the start.
    made
        Kind and id of the BPF objects that it had.
    wrong
        Sentences on what should not be.
    found
        What is said of it.
    """

    verb: str
    deed: str
    begun: bool
    after_s: float
    made: set[tuple[str, int]] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    found: str = ""

    @classmethod
    def of(cls, source: random.Random, *, signals_only: bool = False) -> Round:
        """Choose one."""
        verb = source.choice(list(VERBS))
        deeds = [*SIGNALS, *SIGNALS, *DEEDS, *(OF_FOLDERS if verb.startswith("record") else ())]
        if signals_only:
            deeds = [*SIGNALS, STOP]
        return cls(verb, source.choice(deeds), source.random() < 0.5, source.uniform(0, _LONGEST_S))

    def run(self, lab: Lab, counted: tuple[socket, socket], scratch: Path) -> None:
        """Do it, and look at what is left."""
        with contextlib.ExitStack() as stack:
            root = scratch / "round"
            stack.callback(shutil.rmtree, scratch / "read", ignore_errors=True)
            stack.callback(shutil.rmtree, root)
            if self.deed in {"disk full", "no inodes"}:
                stack.enter_context(disks.small_disk(root, 112 if self.deed == "disk full" else 1 << 16))
            else:
                root.mkdir()
            folder, temporary = root / "t", root / "tmp"
            temporary.mkdir()
            extra = stack.enter_context(Namespace()) if self.deed == "namespace deleted" else None
            # From too little to start, to enough.
            memory = (_LEAST_MIB + int(self.after_s * _MIB_A_SECOND)) << 20
            before = stack.enter_context(memory_limited(memory)) if self.deed == "out of memory" else ()
            words = [*before, *HOPSCOPE, *self._words(lab, folder, extra)]
            with (scratch / "out").open("w") as out, (scratch / "err").open("w") as err:
                own = environ(TMPDIR=str(temporary))
                child = subprocess.Popen(words, stdout=out, stderr=err, env=own, start_new_session=True)
                stack.callback(child.kill)
                with Watch(child.pid) as watch:
                    whole = self._wait(child, folder, counted)
                    if child.poll() is None:
                        if self.deed == "KILL":
                            _stop_and_look(child, watch)
                        _do(self.deed, child, folder, lab, extra)
                        if self.verb == "serve" and self.deed == "HUP":  # it has started anew
                            child.terminate()
                    code = self._ended(child)
                self.made = watch.made
            if code is None:
                return
            said = (scratch / "err").read_text()
            self._look_at_end(code, said)
            if code != -signal.SIGKILL:
                self.wrong += [f"left behind: {path}" for path in temporary.iterdir()]
            moved = root / "moved"
            self._look_at_recording(moved if moved.exists() else folder, code, said, counted if whole else None)

    def _words(self, lab: Lab, folder: Path, extra: Namespace | None) -> list[str]:
        verb, *options = VERBS[self.verb]
        if verb in {"record", "rx", "tx", "drops", "serve", "wire"}:
            options += only(lab) + ([f"--netns={extra.inode}"] if extra else [])
        if verb == "serve":
            options += ["--socket", str(folder.with_name("s"))]
        return [verb, *(["-o", str(folder)] if verb == "record" else []), *options]

    def _wait(self, child: subprocess.Popen[bytes], folder: Path, counted: tuple[socket, socket]) -> bool:
        """Wait for the moment; say whether a recording had begun before the counted datagrams."""
        began = self.verb.startswith("record") and self.begun and _began(child, folder)
        if began:
            ping(*counted, _COUNTED)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(self.after_s)
        return began

    def _ended(self, child: subprocess.Popen[bytes]) -> int | None:
        """Return the exit code, None if it does not end."""
        try:
            return child.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            self.wrong.append(f"it did not end within {_ENDS_S:g} s")
            return None

    def _look_at_end(self, code: int, said: str) -> None:
        number = SIGNALS.get(self.deed, signal.SIGTERM)
        expected = {0, 128 + number, -number}
        if self.deed in OF_FOLDERS:
            expected.add(1)
        if self.deed == "out of memory":
            expected |= {1, -signal.SIGKILL}
        if VERBS[self.verb][0] in {"check", "explain"}:
            expected |= {1, 2, 3, 10, 11, 12}
        if code not in expected and not said.startswith(_BEFORE_OURS):
            self.wrong.append(f"exit code {code}: {said.strip().splitlines()[-1:]}")
        if said.startswith(_BEFORE_OURS):
            return
        if "Traceback" in said or "Exception ignored" in said:
            self.wrong.append(f"it printed {said!r}")
        self.found = f"exit {code}"

    def _look_at_recording(self, folder: Path, code: int, said: str, counted: tuple[socket, socket] | None) -> None:
        if not any((folder / name).exists() for name in ("hopscope.json", "hosts.json")):
            return
        if self.deed in {"disk full", "no inodes"}:  # to read several hosts, they are joined there
            folder = Path(shutil.copytree(folder, folder.parent.with_name("read")))
        read = hopscope("report", "summary", folder)
        if read.returncode or "Traceback" in read.stderr:
            self.wrong.append(f"the report ends with {read.returncode}: {read.stderr}")
            return
        if not (folder / "hopscope.json").exists():
            return
        counts, state = event_counts([folder]), Metadata.read(folder).state
        self.found += f", {state}: {counts.events:,} events, {counts.lost:,} lost"
        if state != "complete":
            if "recording stopped" not in read.stderr and "killed or is still running" not in read.stderr:
                self.wrong.append(f"the report does not say how the recording ended: {read.stderr!r}")
            return
        match = _SAID.search(said)
        if code == 0 and match:
            events, lost = (int(each.replace(",", "").replace("none", "0")) for each in match.groups())
            if (events, lost) != counts:
                self.wrong.append(f"it said {events} events and {lost} lost, its files have {counts}")
        if counted and not counts.lost and (there := _received(folder, counted)) != _COUNTED:
            self.wrong.append(f"of {_COUNTED} datagrams it has {there}, and says that none is lost")


def _began(child: subprocess.Popen[bytes], folder: Path) -> bool:
    """Wait until a recording has begun; False where it ended before, or records no host of its own."""
    own, several = folder / "hopscope.json", folder / "hosts.json"
    eventually(lambda: child.poll() is not None or own.exists() or several.exists(), "no recording begins")
    return child.poll() is None and own.exists()


def _received(folder: Path, counted: tuple[socket, socket]) -> int:
    port = counted[1].getsockname()[1]
    with Trace(folder) as trace:
        ((found,),) = trace.rows(
            "SELECT count(*) FROM packets JOIN points USING (point) JOIN (SELECT DISTINCT flow, destination_port FROM "
            f"flows) USING (flow) WHERE name = 'rx.core' AND destination_port = {port}"
        )
    return int(found)


def _stop_and_look(child: subprocess.Popen[bytes], watch: Watch) -> None:
    """Have the last look see all that there is when it is killed."""
    os.kill(child.pid, signal.SIGSTOP)
    eventually(lambda: state(child.pid) in {"T", "Z"}, "it does not stop")
    watch.look()


def _do(deed: str, child: subprocess.Popen[bytes], folder: Path, lab: Lab, extra: Namespace | None) -> None:
    """Do it, and have the process end if that does not."""
    if deed in SIGNALS:
        os.kill(child.pid, SIGNALS[deed])
        return
    if deed in OF_FOLDERS:
        _do_to(folder, deed)
    elif deed == "device deleted":
        with _device(lab):
            time.sleep(0.1)
    elif deed == "namespace deleted" and extra:
        extra.close()
    elif deed == CLOCK_STEP:
        for seconds in (3600, -3600):
            time.clock_settime(time.CLOCK_REALTIME, time.clock_gettime(time.CLOCK_REALTIME) + seconds)
            time.sleep(0.2)
    elif deed == STOP:
        os.kill(child.pid, signal.SIGSTOP)
        time.sleep(0.5)
        os.kill(child.pid, signal.SIGCONT)
    time.sleep(0.2)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGTERM)


def _do_to(folder: Path, deed: str) -> None:
    with contextlib.suppress(OSError):  # there is no such folder yet
        if deed in {"folder moved", "folder replaced by a link"}:
            folder.rename(folder.with_name("moved"))
        if deed == "folder replaced by a link":
            (folder.parent / "elsewhere").mkdir()
            folder.symlink_to(folder.parent / "elsewhere")
    if deed == "folder deleted":
        shutil.rmtree(folder, ignore_errors=True)
    elif deed == "no inodes":
        disks.leave_inodes(folder.parent, 2)


@contextlib.contextmanager
def _device(lab: Lab) -> Iterator[None]:
    """Have a device with traffic of its own, and delete it."""
    for words in (["add", "chaos0", "type", "veth", "peer", "name", "chaos1"], ["set", "chaos0", "up"]):
        lab.server.run(["ip", "link", *words], check=True)
    try:
        yield
    finally:
        lab.server.run(["ip", "link", "del", "chaos0"], check=True)
