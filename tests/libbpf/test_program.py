# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes
import errno
import os
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hopscope.errors import KernelError, LoadError
from hopscope.libbpf import BpfObject, Btf, RunCounters, enable_stats, link_ids, program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TIMES = 23
CLONE_NEWNET = 0x40000000
BPF_PROG_TYPE_NETFILTER = 32
BPF_NETFILTER = 45
NFPROTO_IPV4 = 2
NF_INET_LOCAL_IN = 1


def call(times: int = TIMES) -> None:
    for _ in range(times):
        os.getppid()


@pytest.mark.root
def test_link_attaches_until_it_is_closed(loaded: BpfObject) -> None:
    link = loaded.programs["on_getppid"].attach()
    assert link.fd >= 0
    assert link.id is not None
    call()
    link.close()
    link.close()
    assert link.fd == -1
    call()
    assert loaded.data()["hits"] == TIMES


@pytest.mark.root
def test_closing_the_object_detaches(basic: Path) -> None:
    with BpfObject.open(basic) as opened:
        opened.set_const("tgid", os.getpid())
        opened.set_const("enabled", value=True)
        opened.set_const("mode", 1)
        opened.load()
        hits = opened.data()
        link = opened.programs["on_getppid"].attach()
        call()
    call()
    assert hits["hits"] == TIMES
    assert link.fd == -1


@pytest.mark.root
@pytest.mark.alone  # who else asks for statistics has all programs counted
def test_info_counts_runs_and_time_while_asked(loaded: BpfObject) -> None:
    watched = loaded.programs["on_getppid"]
    with watched.attach():
        with enable_stats():
            call(1000)
        during = watched.info()
        call(1000)
        after = watched.info()
    assert during.run_count >= 1000
    assert during.run_time_ns > 0
    assert during.id > 0
    # Stats may be on because another tool asked for them; then they go on counting.
    always = Path("/proc/sys/kernel/bpf_stats_enabled").read_text().strip() != "0"
    assert always or after.run_count == during.run_count
    assert after.recursion_misses == 0
    counters = RunCounters([watched, watched])
    for _ in range(2):  # into the same memory
        assert counters.read().tolist() == [[after.run_count] * 2, [after.run_time_ns] * 2, [0, 0]]


@pytest.mark.root
def test_program_that_was_left_out_has_no_fd(loaded: BpfObject) -> None:
    with pytest.raises(RuntimeError, match="program on_local_in is not loaded"):
        _ = loaded.programs["on_local_in"].fd


@pytest.mark.root
def test_attach_that_fails_names_the_program(loaded: BpfObject) -> None:
    with pytest.raises(LoadError, match=r"^on_egress cannot be attached: Bad file descriptor") as caught:
        loaded.programs["on_egress"].attach_cgroup(-1)
    assert (caught.value.errno, caught.value.program) == (errno.EBADF, "on_egress")


@contextmanager
def own_cgroup() -> Iterator[Path]:
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    root = next(Path(fields[1]) for fields in mounts if fields[2] == "cgroup2")
    folder = root / f"hop-test-{os.getpid()}"
    folder.mkdir()
    try:
        yield folder
    finally:
        folder.rmdir()


@pytest.mark.root
def test_cgroup_program_sees_every_packet_of_the_cgroup_and_no_other(loaded: BpfObject) -> None:
    send = (
        "import socket, sys\nsys.stdin.readline()\nsender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        f"for _ in range({TIMES}): sender.sendto(b'x', ('127.0.0.1', 9))\n"
    )
    with own_cgroup() as folder:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with loaded.programs["on_egress"].attach_cgroup(fd) as link:
                assert link.id is not None
                with subprocess.Popen([sys.executable, "-c", send], stdin=subprocess.PIPE) as child:
                    (folder / "cgroup.procs").write_text(str(child.pid))
                    send_some(5)
                    child.communicate(b"\n", timeout=30)
            assert loaded.data()["sent"] == TIMES
        finally:
            os.close(fd)


def send_some(times: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(times):
            sender.sendto(b"x", ("127.0.0.1", 9))


def in_own_namespace(work: Callable[[], None]) -> None:
    """Run `work` on a thread in a network namespace of its own, which ends with the thread."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            assert ctypes.CDLL(None).unshare(CLONE_NEWNET) == 0
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            work()
        except BaseException as failure:  # noqa: BLE001  (raised again in the test's own thread)
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    for failure in failures:
        raise failure


@pytest.mark.root
def test_netfilter_program_sees_the_packets_of_its_namespace(basic: Path) -> None:
    if "BPF_NETFILTER" not in Btf.kernel().enum_values("bpf_attach_type"):
        pytest.skip("this kernel has no netfilter programs (before 6.4)")
    with BpfObject.open(basic) as opened:
        watched = opened.programs["on_local_in"]
        watched.autoload = True
        watched.set_type(BPF_PROG_TYPE_NETFILTER, BPF_NETFILTER)
        opened.load()
        arrived = opened.data()

        def work() -> None:
            with watched.attach_netfilter(NFPROTO_IPV4, NF_INET_LOCAL_IN, -100) as link:
                assert link.id is not None
                with pytest.raises(LoadError) as caught:
                    watched.attach_netfilter(NFPROTO_IPV4, NF_INET_LOCAL_IN, -100)
                assert caught.value.errno == errno.EBUSY
                receive_some()
            receive_some()

        def receive_some() -> None:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
                receiver.bind(("127.0.0.1", 0))
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                    for _ in range(TIMES):
                        sender.sendto(b"x", receiver.getsockname())
                for _ in range(TIMES):
                    receiver.recv(10)

        in_own_namespace(work)
        assert arrived["arrived"] == TIMES


def test_machine_without_a_known_system_call_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program.platform, "machine", lambda: "vax")
    with pytest.raises(KernelError, match="no known number on vax"):
        program._nr_bpf()


@pytest.mark.root
def test_numbers_of_all_programs_include_this_one(loaded: BpfObject) -> None:
    ids = program.program_ids()
    assert ids is not None
    assert list(ids) == sorted(ids)
    assert loaded.programs["on_getppid"].info().id in ids


@pytest.mark.root
def test_numbers_of_all_links_include_this_one(loaded: BpfObject) -> None:
    with loaded.programs["on_getppid"].attach() as link:
        ids = link_ids()
        assert ids is not None
        assert list(ids) == sorted(ids)
        assert link.id in ids
    assert link.id not in (link_ids() or ())


@pytest.mark.root
@pytest.mark.parametrize("function", ["program_ids", "link_ids"])
def test_numbers_are_not_told_without_rights(function: str) -> None:
    code = f"import os\nfrom hopscope.libbpf import {function}\nos.setuid(65534)\nprint({function}())\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"


@pytest.mark.root
def test_lengths_of_functions_are_those_between_symbols(loaded: BpfObject) -> None:
    number = loaded.programs["on_getppid"].info().id
    lengths = program.function_lengths([number, 2**31 - 2])
    lines = [line.split() for line in Path("/proc/kallsyms").read_text("ascii").splitlines()]
    symbols = {int(line[0], 16): line[2] for line in lines if "[bpf]" in line}
    assert lengths
    assert all(symbols[address].startswith("bpf_prog_") for address in lengths)
    assert any(symbols[address].endswith("_on_getppid") for address in lengths)
    for address, length in lengths.items():
        assert 0 < length <= min((other - address for other in symbols if other > address), default=2**31)
