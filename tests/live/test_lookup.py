# SPDX-License-Identifier: Apache-2.0
"""What the user names and does not exist, or cannot be: one sentence and exit code 2, before anything is attached."""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hopscope.errors import UsageError
from hopscope.lab import Namespace
from hopscope.live import lookup as selection
from hopscope.probes.attach import cgroup_root
from tests.lab.command import complaint, hopscope, only

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab

needs_root = pytest.mark.root


@needs_root
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--interface", "nope0"], "No interface is named nope0. The interfaces are "),
        (["--interface", "lo@nope"], "No network namespace is named nope. The namespaces are "),
        (["--interface", "nope0@host"], "No interface is named nope0@host. "),
        (["--interface", ""], "--interface is empty. "),
        (["--pid", "4194305"], "There is no process with PID 4194305. `pgrep "),
        (["--pid", "0"], "There is no process with PID 0. "),
        (["--pid", "-1"], "There is no process with PID -1. "),
        (["--cgroup", "/no/such"], "No cgroup is named /no/such. Give its path below "),
        (["--cgroup", "../../../etc"], "No cgroup is named ../../../etc. "),
        (["--cgroup", "18446744073709551615"], "There is no cgroup with ID 18446744073709551615. "),
        (["--cgroup", ""], "--cgroup is empty. "),
        (["--comm", ""], "--comm is empty. "),
        (["--netns", "nope"], "No network namespace is named nope. "),
        (["--netns", "4194305"], "No network namespace is named 4194305. "),
        (["--netns", "./nope"], "No network namespace is named ./nope. "),
        (["--netns", "/etc/passwd"], "The network namespace /etc/passwd cannot be opened: "),
        (["--netns", "/proc/self/ns/mnt"], "The network namespace /proc/self/ns/mnt cannot be opened: "),
        (["--hop", "rx.nope"], "No hop is named rx.nope. The hops are rx.softirq, "),
        (["--hop", ""], "No hop is named "),
        (["--attach", "nope"], "--attach expects POINT=METHOD, not nope. "),
        (["--attach", "rx.nope=x"], "No probe point is named rx.nope. The points are rx.softirq, "),
        (
            ["--attach", "rx.ip=nope"],
            "rx.ip has no attach method nope. Its methods are fentry:ip_rcv_core+ip6_rcv_core, ",
        ),
        (["--address", "nope"], "'nope' does not appear to be an IPv4 or IPv6 network. Give an address such as "),
        (["--address", "10.0.0.0/33"], "'10.0.0.0/33' does not appear to be "),
        (["--json", "--histogram"], "--histogram and --json cannot be combined. "),
        (["--protocol", "tcp", "--hop", "rx.udp"], "No hop can be measured with these options. "),
        (["--port", "80", "--hop", "rx.softirq"], "No hop can be measured with these options. "),
        (["--pid", "1", "--hop", "rx.ip"], "No hop can be measured with these options. "),
        (["--hop", "rx.napi", "--attach", "rx.ip=netfilter:PREROUTING"], "None of the selected hops uses rx.ip. "),
        (["--port=80"] * 17, "--port takes at most 16 values, but 17 were given. "),
        (["--comm=a"] * 17, "--comm takes at most 16 values, but 17 were given. "),
        (["--address=::1"] * 17, "--address takes at most 16 values, but 17 were given. "),
    ],
    ids=" ".join,
)
def test_bad_value_is_one_sentence_with_the_next_step(args: list[str], said: str) -> None:
    done = hopscope("rx", *args)
    sentence = complaint(done, 2)
    assert sentence.startswith(said)
    assert sentence.rpartition(". ")[2]
    assert done.stdout == ""


@needs_root
def test_pid_of_another_pid_namespace_is_refused() -> None:
    done = hopscope("rx", "--pid", 1, before=("unshare", "--pid", "--fork", "--mount-proc"))
    assert complaint(done, 2).startswith("--pid expects PIDs of the host")


@needs_root
def test_all_filters_at_once_are_taken(kept_lab: Lab) -> None:
    done = hopscope(
        "rx",
        "-d",
        0.1,
        *only(kept_lab),
        f"--interface=server0@{kept_lab.server.inode}",
        "--pid",
        os.getpid(),
        f"--comm={'x' * 20}",
        "--cgroup=/",
        "--address=10.0.0.0/8",
        "--address=fd00::1",
        "--port=1",
        "--protocol=udp",
        "--min-queue=1",
    )
    assert (done.returncode, done.stderr) == (0, "")
    shown = " ".join(done.stdout.split())
    for filters in (f"pid={os.getpid()}, comm=xxx", "cgroup=/, ", "address=10.0.0.0/8, fd00::1, port=1, protocol=udp"):
        assert filters in shown
    assert "rx.udp_total" not in shown


def test_thread_is_no_process() -> None:
    event = threading.Event()
    thread = threading.Thread(target=event.wait)
    thread.start()
    try:
        with pytest.raises(UsageError, match=rf"is a thread of process {os.getpid()}\. Give --pid {os.getpid()}"):
            selection.pids([thread.native_id])
    finally:
        event.set()
        thread.join()
    assert selection.pids([os.getpid()]) == [os.getpid()]


@pytest.fixture
def named() -> Iterator[Namespace]:
    with Namespace(f"hopscope-test-{os.getpid()}") as made:
        yield made


@needs_root
def test_namespace_is_found_by_name_pid_inode_and_path(named: Namespace) -> None:
    ways = [named.name, str(named.pid), str(named.inode), f"/run/netns/{named.name}", f"/proc/{named.pid}/ns/net"]
    assert selection.namespaces(ways) == [named.inode] * 5


@needs_root
def test_host_is_the_namespace_of_process_one() -> None:
    kernel_thread = Path("/proc/2/ns/net")
    assert selection.namespaces(["host"]) == [kernel_thread.stat().st_ino]


@needs_root
def test_interface_is_found_in_its_namespace_or_in_all(kept_lab: Lab) -> None:
    index = kept_lab.server.call(socket.if_nametoindex, "server0")
    # Another laboratory on this machine has one of that name, too.
    assert (index, kept_lab.server.inode) in selection.interfaces(["server0"])
    assert selection.interfaces([f"server0@{kept_lab.server.pid}"]) == [(index, kept_lab.server.inode)]
    assert {(1, kept_lab.server.inode), (1, kept_lab.client.inode)} <= set(selection.interfaces(["lo"]))


@needs_root
def test_cgroup_is_found_by_path_and_id() -> None:
    root = cgroup_root()
    folder = root / f"hopscope-test-{os.getpid()}" / "below"
    folder.mkdir(parents=True)
    try:
        inode = folder.stat().st_ino
        relative = str(folder.relative_to(root))
        assert selection.cgroups([str(folder), relative, f"/{relative}", str(inode)]) == [inode] * 4
    finally:
        folder.rmdir()
        folder.parent.rmdir()


def test_comm_is_cut_as_the_kernel_cuts_it() -> None:
    assert selection.comms(["a", "x" * 15, "x" * 16, "é" * 8]) == ["a", "x" * 15, "x" * 15, "é" * 7]


def test_addresses_and_prefixes() -> None:
    networks = [ipaddress.ip_network(text) for text in ("10.1.2.3/32", "10.0.0.0/8", "fd00::/64")]
    assert selection.addresses(["10.1.2.3", "10.1.2.3/8", "fd00::1/64"]) == networks


def test_ways_are_split_at_the_first_sign() -> None:
    assert selection.ways(["rx.ip=a:b=c"]) == {"rx.ip": "a:b=c"}


def test_shown_leaves_out_filters_without_values() -> None:
    assert selection.shown({"pid": (1, 2), "comm": ()}) == {"pid": "1, 2"}
