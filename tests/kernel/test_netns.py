# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hopscope.kernel import netns
from hopscope.lab import Namespace

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.root
OWN = Path("/proc/self/ns/net")
NAME = f"hopscope-test-{os.getpid()}"


@pytest.fixture
def named() -> Iterator[Namespace]:
    with Namespace(NAME) as made:
        yield made


@pytest.fixture
def anonymous() -> Iterator[Namespace]:
    with Namespace() as made:
        yield made


def interfaces() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


def test_host_is_called_host() -> None:
    assert netns.namespaces()[Path("/proc/2/ns/net").stat().st_ino].name == "host"


def test_one_look_for_all_that_is_read_together() -> None:
    with netns.looked_at_once(), Namespace() as made:
        assert made.inode not in netns.namespaces()
    with Namespace() as made:
        assert made.inode in netns.namespaces()


def test_name_in_run_netns_comes_before_that_of_a_process(named: Namespace) -> None:
    found = netns.namespaces()[named.inode]
    assert (found.inode, found.name, found.path) == (named.inode, NAME, Path("/run/netns") / NAME)


def test_anonymous_namespace_is_called_after_its_first_process(anonymous: Namespace) -> None:
    later = anonymous.popen(["sleep", "60"])
    comm = Path(f"/proc/{anonymous.pid}/comm").read_text().strip()
    assert netns.namespaces()[anonymous.inode].name == f"{anonymous.pid} ({comm})"
    assert later.pid > anonymous.pid


def test_name_of_a_process_need_not_be_text() -> None:
    script = r"open('/proc/self/comm', 'wb').write(b'\xff\xfe'); print('ready', flush=True); input()"
    argv = ["unshare", "--net", sys.executable, "-c", script]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        inode = Path(f"/proc/{child.pid}/ns/net").stat().st_ino
        assert netns.namespaces()[inode].name == f"{child.pid} (\ufffd\ufffd)"
        child.kill()


def test_stale_name_is_no_namespace() -> None:
    folder = Path("/run/netns")
    folder.mkdir(exist_ok=True)
    stale = folder / NAME
    stale.touch()
    try:
        assert NAME not in {each.name for each in netns.namespaces().values()}
        with pytest.raises(OSError, match="not a network namespace") as caught:
            netns.at(stale)
        assert caught.value.errno == errno.EINVAL
    finally:
        stale.unlink()


def test_namespace_is_gone_when_it_is_gone() -> None:
    with Namespace() as made:
        inode = made.inode
        assert inode in netns.namespaces()
    assert inode not in netns.namespaces()


def test_at_takes_files_of_network_namespaces_alone(anonymous: Namespace) -> None:
    assert netns.at(Path(f"/proc/{anonymous.pid}/ns/net")).inode == anonymous.inode
    assert netns.at(OWN).inode == OWN.stat().st_ino
    for path in ("/proc/self/ns/mnt", "/etc/passwd", "/dev/null", "/"):
        with pytest.raises(OSError, match="not a network namespace"):
            netns.at(Path(path))
    with pytest.raises(FileNotFoundError):
        netns.at(Path("/no/such"))


def test_inside_acts_in_the_namespace_and_comes_back(anonymous: Namespace) -> None:
    before = interfaces()
    assert netns.inside(Path(f"/proc/{anonymous.pid}/ns/net"), interfaces) == ["lo"]
    assert interfaces() == before
    assert not [thread for thread in threading.enumerate() if thread.name == "hopscope-netns"]


def test_inside_passes_on_what_is_raised(anonymous: Namespace) -> None:
    with pytest.raises(ZeroDivisionError):
        netns.inside(Path(f"/proc/{anonymous.pid}/ns/net"), lambda: 1 // 0)
    with pytest.raises(FileNotFoundError):
        netns.inside(Path("/no/such"), interfaces)
    with pytest.raises(OSError, match="Invalid argument"):
        netns.inside(Path("/proc/self/ns/mnt"), interfaces)


@pytest.mark.parametrize("path", ["/proc/4194304/ns/net", "/proc/self/ns/net"], ids=["ended", "used again"])
def test_a_namespace_is_found_again_where_the_process_that_stood_for_it_is_gone(
    anonymous: Namespace, path: str
) -> None:
    found = netns.Namespace(anonymous.inode, "found before", Path(path))
    assert netns.inside(found, interfaces) == ["lo"]
    with pytest.raises(FileNotFoundError, match="the network namespace is gone"):
        netns.inside(netns.Namespace(1, "never", Path(path)), interfaces)


def test_own_namespace_takes_no_right(anonymous: Namespace) -> None:
    script = "import sys, socket; from pathlib import Path; from hopscope.kernel import netns\n"
    script += "print(len(netns.inside(Path(sys.argv[1]), socket.if_nameindex)) > 0)"

    def unprivileged(path: str) -> subprocess.CompletedProcess[str]:
        before = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-all"]
        return subprocess.run(
            [*before, sys.executable, "-c", script, path], capture_output=True, text=True, timeout=30, check=False
        )

    assert unprivileged("/proc/self/ns/net").stdout == "True\n"
    assert "PermissionError" in unprivileged(f"/proc/{anonymous.pid}/ns/net").stderr
