# SPDX-License-Identifier: Apache-2.0
"""Tracepoints of this kernel, with causes whose number is known and beside tools that know nothing of hopscope."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hopscope.errors import UsageError
from hopscope.kernel.tracepoints import LOSSES, Tracepoints
from hopscope.libbpf.perf_event import Tracepoint
from hopscope.store.meta import Metadata
from hopscope.store.trace import Trace
from hopscope.store.writer import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from hopscope.kernel.tracepoints import Columns

pytestmark = pytest.mark.root

EXEC = "e_sched_sched_process_exec"
SYS_ENTER = "e_raw_syscalls_sys_enter"
GETPID = 39 if os.uname().machine == "x86_64" else 172
CALLS = 1009
PAGE = 4096


def own_calls() -> str:
    """Return a spec of the calls of getpid(2) that this thread makes."""
    return f"raw_syscalls:sys_enter:id == {GETPID} && common_pid == {os.getpid()}"


def call(count: int) -> None:
    for _ in range(count):
        os.getpid()


def recorded(specs: list[str], act: Callable[[], object], ring_bytes: int = 1 << 20) -> dict[str, Columns]:
    with Tracepoints(specs, ring_bytes) as tracepoints:
        tracepoints.start()
        act()
        tracepoints.stop()
        return tracepoints.read()


def count(found: dict[str, Columns], table: str) -> int:
    return len(found[table]["time_ns"]) if table in found else 0


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program of a name that no one else runs."""
    return Path(shutil.copy2("/bin/true", tmp_path / "true-of-this-test"))


@pytest.mark.parametrize("filtered", [False, True])
def test_every_exec_is_seen_once(program: Path, *, filtered: bool) -> None:
    pids = []

    def execute() -> None:
        for _ in range(23):
            with subprocess.Popen([program]) as child:
                pids.append(child.pid)

    spec = "sched:sched_process_exec" + (f':filename == "{program}"' if filtered else "")
    found = recorded([spec], execute)[EXEC]
    ours = found["filename"] == str(program)
    # One CPU's come after the other's.
    assert sorted(found["pid"][ours].tolist()) == sorted(pids)
    assert sorted(found["tid"][ours].tolist()) == sorted(pids)
    assert ours.all() or not filtered


def test_the_kernel_leaves_out_what_the_filter_does_not_match() -> None:
    reader, writer = os.pipe()
    resized = 31

    def resize() -> None:
        # The kernel allocates a struct pipe_buffer of 40 bytes for each page.
        for _ in range(resized):
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 128 * PAGE)
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 16 * PAGE)

    try:
        spec = f"kmem:kmalloc:bytes_req > 1000 && common_pid == {os.getpid()}"
        found = recorded([spec], resize)["e_kmem_kmalloc"]
    finally:
        os.close(reader)
        os.close(writer)
    assert (found["bytes_req"] > 1000).all()
    assert (found["bytes_req"] == 128 * 40).sum() == resized


def test_a_pattern_takes_all_that_match() -> None:
    datagrams, size = 211, 1237

    def send() -> None:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        ):
            receiver.bind(("127.0.0.1", 0))
            for _ in range(datagrams):
                sender.sendto(bytes(size), receiver.getsockname())
                receiver.recv(size)

    found = recorded(["net:net*"], send)
    # Ethernet's header counts in the queue and no longer on receipt.
    for table, len_bytes in [
        ("e_net_net_dev_queue", size + 42),
        ("e_net_net_dev_start_xmit", size + 42),
        ("e_net_net_dev_xmit", size + 42),
        ("e_net_netif_receive_skb", size + 28),
    ]:
        columns = found[table]
        ours = (columns["name"] == "lo") & (columns["len"] == len_bytes)
        assert ours.sum() == datagrams, table


def test_perf_counts_as_many(tmp_path: Path) -> None:
    if not shutil.which("perf"):
        pytest.skip("perf is not installed: apt-get install linux-perf")
    script = tmp_path / "calls.py"
    script.write_text(f"import os\nprint(os.getpid())\nfor _ in range({CALLS}):\n    os.getpid()\n")
    # In a mount namespace of its own, so that tracefs is nowhere else.
    shell = (
        "mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing && "
        f'exec perf stat -x, -e raw_syscalls:sys_enter --filter \'id == {GETPID}\' "$0" "$1"'
    )
    done = []

    def run() -> None:
        command = ["unshare", "--mount", "sh", "-c", shell, sys.executable, str(script)]
        done.append(subprocess.run(command, capture_output=True, text=True, check=True))

    found = recorded([f"raw_syscalls:sys_enter:id == {GETPID}"], run)[SYS_ENTER]
    pid, counted = int(done[0].stdout), int(done[0].stderr.split(",")[0])
    assert counted > CALLS
    # perf begins with the program's start, and the shell that becomes it has the same number.
    ours = found["time_ns"][found["tid"] == pid]
    assert counted <= len(ours) <= counted + 10


def test_records_have_time_cpu_and_thread() -> None:
    allowed = os.sched_getaffinity(0)
    cpu = max(allowed)
    os.sched_setaffinity(0, {cpu})
    try:
        from_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        found = recorded([own_calls()], lambda: call(CALLS))[SYS_ENTER]
        until_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    finally:
        os.sched_setaffinity(0, allowed)
    assert found["id"].tolist() == [GETPID] * CALLS
    assert set(found["cpu"].tolist()) == {cpu}
    assert set(found["tid"].tolist()) == {os.getpid()}
    times_ns = found["time_ns"].tolist()
    assert times_ns == sorted(times_ns)
    assert from_ns < times_ns[0]
    assert times_ns[-1] < until_ns


def test_an_event_that_two_name_is_recorded_once() -> None:
    one, other = f"id == {GETPID} && common_pid == {os.getpid()}", f"common_pid == {os.getpid()} && id == {GETPID}"
    specs = [f"raw_syscalls:sys_enter:{each}" for each in (one, other, one)]
    assert count(recorded(specs, lambda: call(CALLS)), SYS_ENTER) == CALLS
    all_of_them = recorded([*specs, "raw_syscalls:sys_*"], lambda: call(CALLS))
    assert count(all_of_them, SYS_ENTER) > CALLS
    assert "e_raw_syscalls_sys_exit" in all_of_them


def test_nothing_is_lost_while_it_is_read_in_time() -> None:
    total = 0
    with Tracepoints([own_calls()], PAGE) as tracepoints:
        tracepoints.start()
        for _ in range(200):  # some hundred times around the ring
            call(20)
            total += count(tracepoints.read(), SYS_ENTER)
        assert (total, tracepoints.received, tracepoints.lost) == (4000, 4000, 0)


@pytest.mark.parametrize("told", [True, False], ids=["the kernel counts losses", "it does not"])
def test_every_record_that_found_no_room_is_counted(*, told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not told:
        counted = Tracepoint.counted
        monkeypatch.setattr(Tracepoint, "counted", lambda event: counted(event)._replace(lost=None))
    begun_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    rounds, losses, kept = 5, [], 0
    with Tracepoints(
        [own_calls(), f"raw_syscalls:sys_exit:id == {GETPID} && common_pid == {os.getpid()}"], PAGE
    ) as tracepoints:
        tracepoints.start()
        for last in range(rounds):
            call(CALLS)
            if last == rounds - 1:
                tracepoints.stop()
            found = tracepoints.read()
            kept += count(found, SYS_ENTER) + count(found, "e_raw_syscalls_sys_exit")
            losses.append(found.get(LOSSES.name))
        assert not tracepoints.read()
    # The kernel tells of a loss with the next record that finds room, and at the end nothing does.
    assert losses[0] is None
    rows = [each for each in losses[1:] if each]
    assert sum(int(each["lost"].sum()) for each in rows) == tracepoints.lost == 2 * rounds * CALLS - kept
    assert tracepoints.lost > CALLS
    for each in rows:
        assert begun_ns <= each["from_ns"].min()
        assert (each["from_ns"] <= each["until_ns"]).all()


def test_an_event_that_counts_nanoseconds_is_one_record() -> None:
    found = recorded(["sched:sched_stat_runtime", "sched:sched_switch"], lambda: [time.sleep(0.005) for _ in range(20)])
    rows = list(
        zip(*(found["e_sched_sched_stat_runtime"][name].tolist() for name in ("time_ns", "cpu", "pid")), strict=True)
    )
    assert len(rows) > 10
    assert len(set(rows)) == len(rows)
    assert LOSSES.name not in found


def test_the_tables_make_a_trace(tmp_path: Path) -> None:
    with Tracepoints([own_calls(), "sched:*"]) as tracepoints:
        tracepoints.start()
        metadata = Metadata("0", started_ns=0, realtime_ns=0, points={}, tables=list(tracepoints.tables))
        with TraceWriter(tmp_path / "trace", metadata) as writer:
            call(CALLS)
            tracepoints.stop()
            for table, columns in tracepoints.read().items():
                writer.append(table, columns)
    with Trace(tmp_path / "trace") as trace:
        assert trace.rows(f"SELECT count(*), min(args_0 IS NOT NULL) FROM {SYS_ENTER}") == [(CALLS, True)]
        assert trace.rows("SELECT count(*) > 0, max(prev_comm <> '') FROM e_sched_sched_switch") == [(True, True)]
        assert trace.rows("SELECT * FROM e_losses") == []


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("tcp", "'tcp' is not the name of a tracepoint"),
        (":tcp_probe", "':tcp_probe' is not the name of a tracepoint"),
        ("tcp:tcp_prob", "This kernel has no tracepoint tcp:tcp_prob. Did you mean tcp:tcp_probe"),
        ("nothing:*", r"This kernel has no tracepoint nothing:\*"),
        ("kmem:kmalloc:bytes > 1", "kmem:kmalloc has no field bytes, which its filter 'bytes > 1' names. .*bytes_req"),
        ("kmem:kmalloc:bytes_req > 1 && bytes==2", "kmem:kmalloc has no field bytes, "),
        ("kmem:kmalloc:bytes_req >", r"rejects 'bytes_req >' .*size_t bytes_req"),
        ("sched:sched_process_exec:filename > 3", r"rejects 'filename > 3' .*char\[\] filename"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(spec: str, said: str) -> None:
    files = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(UsageError, match=said), Tracepoints([spec]):
        pass
    assert len(list(Path("/proc/self/fd").iterdir())) == files


def test_a_field_s_name_in_a_string_is_none() -> None:
    assert recorded(["sched:sched_process_exec:filename == 'a > b' || comm == \"x < y\""], lambda: None) == {}


def test_a_ring_of_a_wrong_size_is_refused() -> None:
    with pytest.raises(UsageError, match="a ring cannot have 5000 bytes"), Tracepoints([own_calls()], 5000):
        pass


def test_too_many_events_for_the_files_that_may_be_open_is_said() -> None:
    code = (
        "import resource\nfrom hopscope.kernel.tracepoints import Tracepoints\n"
        "from hopscope.errors import LoadError\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))\n"
        "try:\n    Tracepoints(['*:*']).__enter__()\nexcept LoadError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Too many open files. Raise the limit of open files" in done.stdout


def test_without_rights_one_sentence_says_so() -> None:
    code = (
        "import os\nfrom hopscope.kernel.tracepoints import Tracepoints\n"
        "from hopscope.errors import PrivilegeError\nos.setuid(65534)\n"
        "try:\n    Tracepoints(['tcp:tcp_probe']).__enter__()\nexcept PrivilegeError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Run hopscope as root" in done.stdout


def test_all_is_closed_afterwards() -> None:
    files, mounts = len(list(Path("/proc/self/fd").iterdir())), Path("/proc/self/mountinfo").read_text()
    with Tracepoints(["sched:*"]) as tracepoints:
        tracepoints.start()
        assert len(list(Path("/proc/self/fd").iterdir())) > files
        tracepoints.read()
    assert len(list(Path("/proc/self/fd").iterdir())) == files
    assert Path("/proc/self/mountinfo").read_text() == mounts
