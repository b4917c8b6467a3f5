# SPDX-License-Identifier: Apache-2.0
"""``hopscope record``: what a user gives it, sees of it, and has afterwards, however it ends."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hopscope.lab.veth import SERVER_IPV4
from hopscope.live.recorder.options import PROFILES
from hopscope.store.counts import event_counts
from hopscope.store.trace import Trace
from tests import disks
from tests.lab.command import complaint, ended, hopscope, links, objects, only, programs, start, wait_gone
from tests.lab.small_trace import small
from tests.shared import first
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab

pytestmark = pytest.mark.root

# More than a ring of tracepoints has room for, and much more than one of a MiB.
FLOOD = 90_011
END = re.compile(
    r"(?P<events>[\d,]+) events in \d+\.\d s, (?P<lost>none|[\d,]+) lost; [\d.]+ [KMG]?i?B(, [\d.]+ bytes per event)?"
)


def sending(kept_lab: Lab, count: int, *, exit_code: int = 0, then: str = "") -> list[str]:
    """Return the words of a program in the lab that has datagrams sent to itself, and reads them."""
    code = f"""
import socket, sys, time
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("{SERVER_IPV4}", 0))
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.connect(receiver.getsockname())
for _ in range({count}):
    sender.send(bytes(100))
    receiver.recv(200)
{then}
sys.exit({exit_code})
"""
    return ["nsenter", f"--net=/proc/{kept_lab.server.pid}/ns/net", sys.executable, "-c", code]


def begun(option: str, folder: Path, *options: object) -> subprocess.Popen[str]:
    """Return a recording that has its rings, and not its programs alone."""
    child = start("record", option, folder, *options)
    eventually((folder / "hopscope.json").exists, "never began")
    return child


def lines(done: subprocess.CompletedProcess[str], folder: Path) -> re.Match[str]:
    """Return what is said at the end, of which the last line is what to do with the trace."""
    assert done.stdout == ""
    *_, said, next_step = done.stderr.splitlines()
    assert next_step == f"hopscope report summary {folder}"
    match = END.fullmatch(said)
    assert match, said
    return match


def events(folder: Path) -> dict[str, int]:
    with Trace(folder) as trace:
        return dict(
            trace.rows(
                "SELECT name, count(*) FROM (SELECT point FROM packets UNION ALL SELECT point FROM sockets "
                "UNION ALL SELECT point FROM cpu) JOIN points USING (point) GROUP BY name"
            )
        )


def in_files(folder: Path) -> int:
    """Return how many datagrams have come into full files by now."""
    return events(folder).get("rx.core", 0) if any((folder / "flows").glob("*.parquet")) else 0


def test_a_command_is_recorded_from_its_first_to_its_last_packet(kept_lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "it's a trace"
    done = hopscope("record", "-o", folder, *only(kept_lab), "--", *sending(kept_lab, 1009, exit_code=23))
    assert done.returncode == 23
    said = lines(done, folder)
    found = events(folder)
    assert {found[point] for point in ("tx.queue", "tx.start", "tx.driver", "rx.driver", "rx.core", "tx.sent")} == {
        1009
    }
    assert int(said["events"].replace(",", "")) == sum(found.values())
    assert said["lost"] == "none"
    with Trace(folder) as trace:
        assert trace.warnings == []
        began, over = trace.metadata.started_ns, trace.metadata.ended_ns
        assert trace.metadata.options["filters"] == {
            "netns": ", ".join(str(each.inode) for each in (kept_lab.client, kept_lab.server))
        }
        ((first, last),) = trace.rows("SELECT min(time_ns), max(time_ns) FROM packets")
        assert over
        assert began <= first <= last <= over


@pytest.mark.parametrize("profile", first(sorted(PROFILES, key=["packets", "all", *PROFILES].index), 2))
def test_every_profile_can_be_recorded_and_read(kept_lab: Lab, tmp_path: Path, profile: str) -> None:
    done = hopscope("record", "-P", profile, "-o", tmp_path / "t", *only(kept_lab), "--", *sending(kept_lab, 23))
    assert done.returncode == 0, done.stderr
    lines(done, tmp_path / "t")
    # Turns come with switches, and what GRO kept with what the core takes.
    assert set(events(tmp_path / "t")) <= {
        *PROFILES[profile],
        *(["sched.turn"] if "sched.switch" in PROFILES[profile] else []),
        *(["gro.hold"] if "rx.core" in PROFILES[profile] else []),
    }
    if "rx.core" in PROFILES[profile]:
        assert events(tmp_path / "t")["rx.core"] == 23


def test_profiles_and_points_add_up(kept_lab: Lab, tmp_path: Path) -> None:
    options = ("-P", "drops", "--point", "rx.core", "--point", "tx.queue", "-o", tmp_path / "t", *only(kept_lab))
    done = hopscope("record", *options, "--", *sending(kept_lab, 23))
    assert done.returncode == 0, done.stderr
    assert events(tmp_path / "t") == {"rx.core": 23, "tx.queue": 23}


def test_it_ends_by_itself(kept_lab: Lab, tmp_path: Path) -> None:
    # The profile without events of CPUs, which no filter leaves out.
    done = hopscope("record", "-P", "tx", "-d", "0.2", "-o", tmp_path / "t", *only(kept_lab))
    assert done.returncode == 0
    assert lines(done, tmp_path / "t")["events"] == "0"
    assert events(tmp_path / "t") == {}


def test_its_own_cost_is_told_and_kept(kept_lab: Lab, tmp_path: Path) -> None:
    # Longer than it takes until the kernel's statistics are looked at for the first time.
    sender = sending(kept_lab, 23, then="time.sleep(0.5)")
    done = hopscope("record", "-o", tmp_path / "t", *only(kept_lab), "--", *sender)
    told = next(line for line in done.stderr.splitlines() if line.startswith("cost: "))
    assert re.fullmatch(r"cost: \S+% CPU in BPF \(\d+ ns/hit\), \S+% reader", told)
    assert told in hopscope("report", "summary", tmp_path / "t").stdout.splitlines()


def test_all_that_was_sent_until_its_end_is_in_it(kept_lab: Lab, tmp_path: Path) -> None:
    folder, stamps = tmp_path / "trace", tmp_path / "stamps"
    code = f"""
import socket, sys, time
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("{SERVER_IPV4}", 0))
receiver.connect(receiver.getsockname())
with open({str(stamps)!r}, "w") as file:
    while True:
        before_ns = time.monotonic_ns()
        receiver.send(bytes(100))
        receiver.recv(200)
        print(before_ns, time.monotonic_ns(), file=file, flush=True)
        time.sleep(0.001)
"""

    def sent() -> list[tuple[int, int]]:
        return [(int(before), int(after)) for before, after in map(str.split, stamps.read_text().splitlines()[:-1])]

    recorder = begun("-o", folder, *only(kept_lab))
    sender = subprocess.Popen(["nsenter", f"--net=/proc/{kept_lab.server.pid}/ns/net", sys.executable, "-c", code])
    try:
        eventually(lambda: stamps.exists() and len(sent()) > 211, "nothing is sent")
        recorder.send_signal(signal.SIGINT)
        assert ended(recorder)[0] == 0
        with Trace(folder) as trace:
            began_ns, ended_ns = trace.metadata.started_ns, trace.metadata.ended_ns
            queued = trace.rows("SELECT time_ns FROM packets JOIN points USING (point) WHERE name = 'tx.queue'")
        assert ended_ns
        eventually(lambda: sent()[-1][0] > ended_ns, "it was not sent until after the end")
    finally:
        sender.kill()
        sender.wait()
    # Of each that was sent whole until then there is one between its stamps, and there is none of nothing.
    within = [(before, after) for before, after in sent() if after <= ended_ns]
    times = sorted(time_ns for (time_ns,) in queued if time_ns <= within[-1][1])
    assert began_ns <= within[0][0]
    assert len(within) >= 211
    assert all(before <= time_ns <= after for time_ns, (before, after) in zip(times, within, strict=True))


def test_without_a_folder_it_is_the_last_recording_that_others_read(kept_lab: Lab, state_directory: Path) -> None:
    assert hopscope("record", "--host", "nowhere", "--ssh", "false").returncode == 1
    assert list(state_directory.iterdir()) == []
    done = hopscope("record", *only(kept_lab), "--", *sending(kept_lab, 101))
    assert done.returncode == 0, done.stderr
    (folder,) = state_directory.iterdir()
    assert re.fullmatch(r"\d{8}-\d{6}", folder.name)
    said, shown = done.stderr.splitlines()[-2:]
    assert shown == f"hopscope report summary {folder}"
    read = hopscope("report", "summary", "--csv")
    assert read.stderr.splitlines()[0] == f"hopscope: reading {folder}"
    assert ",rx.core,101," in read.stdout
    (listed,) = objects(hopscope("recordings", "--json").stdout)
    assert (listed["name"], listed["state"], listed["lost"]) == (folder.name, "complete", 0)
    assert said.startswith(f"{listed['events']:,} events in ")


def test_while_it_is_recorded_it_is_neither_the_last_one_nor_deleted(kept_lab: Lab, state_directory: Path) -> None:
    older = small().write(state_directory / "older")
    child = start("record", *only(kept_lab))
    try:
        eventually(lambda: len(list(state_directory.glob("*/hopscope.json"))) == 2, "never began")
        held = links(child), programs(child)
        (folder,) = set(state_directory.iterdir()) - {older}
        states = {each["name"]: each["state"] for each in objects(hopscope("recordings", "--json").stdout)}
        assert states == {"older": "complete", folder.name: "being recorded"}
        read = hopscope("report", "summary")
        assert read.stderr.splitlines()[0] == f"hopscope: reading {older}; {folder.name} is being recorded"
        refused = hopscope("recordings", "--delete", folder)
        assert complaint(refused, 2) == f"{folder.name} is not deleted: it is being recorded. Nothing was deleted"
        assert hopscope("recordings", "--delete", "--keep-size", "0M").stdout.startswith("deleted older, ")
    finally:
        child.kill()
        child.wait()
    wait_gone(*held)
    assert [path.name for path in state_directory.iterdir()] == [folder.name]
    (listed,) = objects(hopscope("recordings", "--json").stdout)
    assert (listed["state"], listed["duration_s"]) == ("cut off", None)
    assert hopscope("recordings", "--delete", folder.name).returncode == 0
    assert list(state_directory.iterdir()) == []


def test_folders_that_cannot_be_used(kept_lab: Lab, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "file").write_text("mine")
    for folder, words in ((taken, "is not empty. Name a new folder with -o"), (taken / "file", "cannot be created")):
        assert words in complaint(hopscope("record", "-o", folder, *only(kept_lab), "-d", 1), 2)
    assert [path.name for path in taken.iterdir()] == ["file"]
    assert (taken / "file").read_text() == "mine"


def test_wrong_options_are_one_sentence(kept_lab: Lab, tmp_path: Path) -> None:
    folder = ("-o", tmp_path / "t")
    assert "No probe point is named rx.nothing" in complaint(
        hopscope("record", *folder, "--point", "rx.nothing", "-d", 1), 2
    )
    assert hopscope("record", *folder, "-P", "nothing").returncode == 2
    assert hopscope("record", *folder, "--buffer", 3).returncode == 2
    assert "nope" in complaint(hopscope("record", *folder, *only(kept_lab), "--", "/nope"), 2)
    without = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
    assert "missing: CAP_BPF" in complaint(hopscope("record", *folder, before=without), 77)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order(kept_lab: Lab, tmp_path: Path, number: signal.Signals) -> None:
    child = begun("-o", tmp_path / "t", *only(kept_lab))
    held = links(child), programs(child)
    subprocess.run(sending(kept_lab, 101), check=True)
    child.send_signal(number)
    code, out, err = ended(child)
    assert (code, out) == (0, "")
    assert END.fullmatch(err.splitlines()[-2])
    with Trace(tmp_path / "t") as trace:
        assert (trace.warnings, trace.metadata.state) == ([], "complete")
    assert events(tmp_path / "t")["rx.core"] == 101
    wait_gone(*held)


@pytest.mark.slow
def test_killed_it_leaves_a_trace_that_can_be_read(kept_lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    child = begun("-o", folder, *only(kept_lab))
    held = links(child), programs(child)
    subprocess.run(sending(kept_lab, 101), check=True)
    # Files are begun after five seconds; names have come once, long before.
    eventually(lambda: any((folder / "threads").glob("*.parquet")) and in_files(folder) == 101, "not all is in files")
    child.kill()
    child.wait()
    wait_gone(*held)
    with Trace(folder) as trace:
        (warning,) = trace.warnings
        assert warning.startswith("the recorder was killed or is still running")
        assert trace.rows("SELECT count(*) FROM packets WHERE flow <> 0 AND flow NOT IN (SELECT flow FROM flows)") == [
            (0,)
        ]
    assert events(folder)["rx.core"] == 101


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with disks.small_disk(tmp_path / "disk", 256) as folder:
        yield folder


def assert_cut_short(folder: Path, err: str, said: str) -> None:
    """The last line is one sentence, which says what is missing; the rest can be read."""
    match = re.fullmatch(
        rf"hopscope: {folder}/\S+ cannot be written: {said}; what was recorded .*", err.splitlines()[-1]
    )
    assert match, err
    missing, seen = (int(match[name].replace(",", "")) for name in ("missing", "seen"))
    with Trace(folder) as trace:
        assert trace.warnings == ["recording stopped: the disk is full"]
    assert 0 < missing < seen
    assert event_counts([folder]).events == seen - missing


MISSING = r"(?P<missing>[\d,]+) of (?P<seen>[\d,]+) events are not in the trace"


def test_a_full_disk_is_one_sentence_and_a_trace_that_can_be_read(kept_lab: Lab, disk: Path) -> None:
    done = hopscope("record", "-P", "all", "-o", disk / "t", *only(kept_lab), "--", *sending(kept_lab, 9001))
    assert done.returncode == 1
    assert_cut_short(disk / "t", done.stderr, rf"No space left on device: {MISSING}\. Free some space, or inodes .*")


@pytest.mark.parametrize(
    ("limit", "said"),
    first([
        ("fsize", rf"File too large: {MISSING}\. Raise the limit of a file's size \(ulimit -f\)"),
        ("nofile", rf"Too many open files: {MISSING}\. Raise the limit of open files \(ulimit -n\)"),
        ("inodes", rf"No space left on device: {MISSING}\. Free some space, or inodes \(df -i\)"),
    ]),
)  # fmt: skip
def test_a_limit_that_is_reached_is_as_a_full_disk(kept_lab: Lab, tmp_path: Path, limit: str, said: str) -> None:
    with disks.small_disk(tmp_path / "disk", 1 << 16) as disk:
        folder = disk / "t"
        child = begun("-o", folder, "-P", "all", *only(kept_lab))
        subprocess.run(sending(kept_lab, 2003), check=True)
        eventually(lambda: in_files(folder) > 0, "nothing is in files")
        if limit == "inodes":
            disks.leave_inodes(disk, 2)
        else:
            # So few that a file which is closed, or its socket for marks, makes no room for another.
            most = 20_000 if limit == "fsize" else len(list(Path(f"/proc/{child.pid}/fd").iterdir())) - 3
            subprocess.run(["prlimit", "--pid", str(child.pid), f"--{limit}={most}:"], check=True)
        subprocess.run(sending(kept_lab, 9001), check=True)
        child.send_signal(signal.SIGINT)
        code, _, err = ended(child)
        assert code == 1
        assert_cut_short(folder, err, said)


def test_a_size_is_not_passed_by_much(kept_lab: Lab, tmp_path: Path) -> None:
    done = hopscope("record", "-P", "all", "-o", tmp_path / "t", "--max-size", 1, *only(kept_lab), "-d", 0.3)
    assert done.returncode == 0, done.stderr


def test_a_small_ring_loses_and_says_so(kept_lab: Lab, tmp_path: Path) -> None:
    flood = f"""
import socket
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range({FLOOD}):
    sender.sendto(b"x", ("127.0.0.1", 9))
"""
    words = ["nsenter", f"--net=/proc/{kept_lab.server.pid}/ns/net", "taskset", "-c", "0", sys.executable, "-c", flood]
    child = begun("-o", tmp_path / "t", "--buffer", 1, "-P", "packets", "-e", "net:net_dev_queue", *only(kept_lab))
    # While it does not run, nobody empties the rings.
    child.send_signal(signal.SIGSTOP)
    subprocess.run(words, check=True)
    child.send_signal(signal.SIGCONT)
    child.send_signal(signal.SIGINT)
    code, _, err = ended(child)
    assert code == 0
    said = END.fullmatch(err.splitlines()[-2])
    assert said
    lost = int(said["lost"].replace(",", ""))
    assert lost > 0
    found = events(tmp_path / "t")
    with Trace(tmp_path / "t") as trace:
        ((rows, named),) = trace.rows(
            "SELECT (SELECT sum(lost) FROM losses) + (SELECT sum(lost) FROM e_losses), "
            "(SELECT count(*) FROM drops) + (SELECT count(*) FROM flows)"
        )
    assert rows == lost == event_counts([tmp_path / "t"]).lost
    assert named
    # At least these, with drops and what came back for each.
    assert sum(found.values()) + lost > FLOOD * len(("tx.queue", "tx.start", "rx.driver", "tx.driver", "rx.core"))


def test_the_help_has_every_profile() -> None:
    done = hopscope("record", "--help")
    assert done.returncode == 0
    for profile in PROFILES:
        assert re.search(rf"\b{profile}\b", done.stdout)
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


@pytest.mark.slow
def test_two_at_once(kept_lab: Lab, tmp_path: Path) -> None:
    children = [begun("-o", tmp_path / name, *only(kept_lab)) for name in ("first", "second")]
    subprocess.run(sending(kept_lab, 101), check=True)
    for child in children:
        child.send_signal(signal.SIGINT)
        assert ended(child)[0] == 0
    assert events(tmp_path / "first")["rx.core"] == events(tmp_path / "second")["rx.core"] == 101
