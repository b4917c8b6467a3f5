# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hopscope
from hopscope.errors import UsageError
from hopscope.lab import Namespace, launch
from hopscope.lab.netlink import add_veth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Eventually = Callable[[Callable[[], bool], str], None]

pytestmark = pytest.mark.root

SOURCE = str(Path(hopscope.__file__).parents[1])


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    with Namespace() as made:
        yield made


def alive(pid: int) -> bool:
    # A zombie has ended: whoever adopted it has only not asked yet.
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def comm(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def interfaces() -> set[str]:
    return {name for _, name in socket.if_nameindex()}


def test_pid_fd_and_inode_are_of_one_new_namespace(namespace: Namespace) -> None:
    inode = Path(f"/proc/{namespace.pid}/ns/net").stat().st_ino
    assert inode == os.fstat(namespace.fd).st_ino == namespace.inode
    assert inode != Path("/proc/self/ns/net").stat().st_ino


def test_lo_is_up_and_alone(namespace: Namespace) -> None:
    assert namespace.call(interfaces) == {"lo"}
    with namespace.call(socket.create_server, ("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        with namespace.call(socket.create_connection, address, 5) as client:
            client.sendall(b"x")


def test_call_leaves_us_where_we_were(namespace: Namespace) -> None:
    link = Path("/proc/thread-self/ns/net")
    before = link.readlink()
    assert namespace.call(link.readlink) == Path(f"net:[{namespace.inode}]")
    assert link.readlink() == before


def test_call_hands_on_arguments_and_errors(namespace: Namespace) -> None:
    assert namespace.call(int, "17", base=16) == 23
    with pytest.raises(ValueError, match="invalid literal"):
        namespace.call(int, "x")


def test_calls_may_block_side_by_side(namespace: Namespace) -> None:
    with namespace.call(socket.create_server, ("127.0.0.1", 0)) as listener:
        accepted: list[socket.socket] = []
        thread = threading.Thread(target=lambda: accepted.append(namespace.call(listener.accept)[0]))
        thread.start()
        namespace.call(socket.create_connection, listener.getsockname(), 5).close()
        thread.join(20)
    assert len(accepted) == 1
    accepted[0].close()


def test_sockets_made_inside_belong_to_it(namespace: Namespace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as outside:
        address = outside.getsockname()
        with namespace.call(socket.create_server, address) as inside:
            assert inside.getsockname() == address


def test_run_runs_inside(namespace: Namespace) -> None:
    result = namespace.run(["readlink", "/proc/self/ns/net"], capture_output=True, text=True, check=True)
    assert result.stdout == f"net:[{namespace.inode}]\n"


def test_run_takes_input_and_checks_the_status(namespace: Namespace) -> None:
    assert namespace.run(["cat"], input=b"23", capture_output=True).stdout == b"23"
    assert namespace.run(["false"]).returncode == 1
    with pytest.raises(subprocess.CalledProcessError):
        namespace.run(["false"], check=True)


def test_run_kills_at_its_timeout(namespace: Namespace) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        namespace.run(["sleep", "60"], timeout=0.1)
    assert [child.poll() for child in namespace._children] == [-signal.SIGKILL]


def test_popen_says_that_there_is_no_such_program(namespace: Namespace) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        namespace.popen(["no-such-program"])


def test_close_ends_processes_and_threads(namespace: Namespace) -> None:
    child = namespace.popen(["sleep", "60"])
    namespace.close()
    assert child.returncode == -signal.SIGKILL
    assert not alive(namespace.pid)
    assert "lab-namespace" not in {thread.name for thread in threading.enumerate()}
    namespace.close()


def test_close_removes_devices(eventually: Eventually) -> None:
    with Namespace() as outer:
        with Namespace() as inner:
            outer.call(add_veth, "outer0", "inner0", inner.pid, 1500)
            assert inner.call(interfaces) == {"lo", "inner0"}
        eventually(lambda: outer.call(interfaces) == {"lo"}, "the kernel has not removed the pair")


def test_sysctl_is_the_namespace_s_own(namespace: Namespace) -> None:
    path = Path("/proc/sys/net/ipv4/tcp_syn_retries")
    before = path.read_text()
    namespace.sysctl("net.ipv4.tcp_syn_retries", 3)
    assert namespace.call(path.read_text) == "3\n"
    assert path.read_text() == before


def test_name_is_there_for_as_long_as_the_namespace() -> None:
    path = launch.NETNS_DIR / f"hopscope-test-{os.getpid()}"
    with contextlib.suppress(ZeroDivisionError), Namespace(path.name) as namespace:
        assert path.stat().st_ino == namespace.inode
        raise ZeroDivisionError
    assert not path.exists()


def test_name_goes_away_also_when_the_holder_was_killed() -> None:
    path = launch.NETNS_DIR / f"hopscope-test-{os.getpid()}"
    with Namespace(path.name) as namespace:
        os.kill(namespace.pid, signal.SIGKILL)
    assert not path.exists()


def test_a_taken_name_is_left_to_its_owner() -> None:
    path = launch.NETNS_DIR / f"hopscope-test-{os.getpid()}"
    with Namespace(path.name) as first:
        with pytest.raises(UsageError, match="exists already"):
            Namespace(path.name)
        assert path.stat().st_ino == first.inode


@pytest.mark.parametrize("name", ["", ".", "..", "a/b"])
def test_what_is_no_file_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        Namespace(name)


VICTIM = """
import os, sys, time
from hopscope.lab import Namespace
from hopscope.lab.netlink import add_veth
with Namespace(sys.argv[1]) as inner, Namespace() as other:
    add_veth("outer0", "inner0", inner.pid, 1500)
    children = [inner.popen(["sleep", "60"]), other.popen(["sleep", "60"])]
    print(inner.pid, other.pid, *(child.pid for child in children), flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_its_owner(number: signal.Signals, eventually: Eventually) -> None:
    path = launch.NETNS_DIR / f"hopscope-test-{os.getpid()}"
    with Namespace() as outer:
        argv = [sys.executable, "-c", VICTIM, path.name]
        environment = {**os.environ, "PYTHONPATH": SOURCE}
        with outer.popen(argv, stdout=subprocess.PIPE, env=environment) as owner:
            assert owner.stdout is not None
            pids = [int(word) for word in owner.stdout.readline().split()]
            assert len(pids) == 4
            # Before they are, the launcher's own look at its parent would end them, too.
            eventually(lambda: [comm(pid) for pid in pids[2:]] == ["sleep", "sleep"], "the children do not start")
            assert all(map(alive, pids))
            assert path.exists()
            assert outer.call(interfaces) == {"lo", "outer0"}
            owner.send_signal(number)
        eventually(lambda: not any(map(alive, pids)), "processes live on")
        eventually(lambda: not path.exists(), "the name lives on")
        eventually(lambda: outer.call(interfaces) == {"lo"}, "the namespace lives on with its devices")


def test_without_rights_the_error_says_so() -> None:
    code = (
        "import os, sys\nfrom hopscope.lab import Namespace\nfrom hopscope.errors import PrivilegeError\n"
        "os.setgroups([]); os.setuid(65534)\n"
        "try:\n    Namespace()\nexcept PrivilegeError as error:\n    print(error)\n"
    )
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    argv = [sys.executable, "-c", code]
    result = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=30, check=True)
    assert "not permitted" in result.stdout
    assert "root" in result.stdout
