# SPDX-License-Identifier: Apache-2.0
"""The whole command, while something is wrong in a namespace of our own."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cli.command import environ, hopscope, objects, start
from hopscope.lab import Lab, Namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cli.command import Json

pytestmark = pytest.mark.root

# By the worst finding. The host's are among them, and others use the host as well.
CODES = {None: 0, "notice": 0, "warning": 3, "critical": 4}
# No route leads there (RFC 5737).
NOWHERE = "192.0.2.7"


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    with Namespace() as made:
        yield made


def while_checking(act: Callable[[], object], *options: object) -> tuple[list[Json], int]:
    """Do something again and again until the check is over; return its findings and its exit code."""
    child = start("check", "--json", "-d", 1, *options)
    while child.poll() is None:
        act()
    assert child.stdout is not None
    assert child.stderr is not None
    out, err = child.stdout.read(), child.stderr.read()
    assert err == ""
    *findings, summary = objects(out)
    assert summary["kind"] == "summary"
    assert summary["findings"] == len(findings)
    assert child.returncode == CODES[summary["worst"]]
    return findings, child.returncode


def send_nowhere() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender, contextlib.suppress(OSError):
        sender.sendto(b"x", (NOWHERE, 7))


def test_something_is_wrong(namespace: Namespace) -> None:
    findings, code = while_checking(lambda: namespace.call(send_nowhere), "--netns", namespace.inode)
    (found,) = [each for each in findings if each["netns"] == namespace.inode]
    assert (found["id"], found["severity"], found["layer"]) == ("ip-no-route-out", "warning", "ip")
    assert code in {3, 4}
    (row,) = found["evidence"]
    assert (row["counter"], row["netns"]) == ("IpOutNoRoutes", namespace.inode)
    assert row["now"] - row["before"] == row["by"] > 10
    said = namespace.run(["nstat", "-asz", "--json"], capture_output=True, text=True, check=True).stdout
    assert json.loads(said)["kernel"]["IpOutNoRoutes"] >= row["now"]
    assert f"{row['by']:,} IPv4 packets" in found["sentence"]
    assert found["fixes"][0]["command"].startswith(f"nsenter -t {namespace.pid} -n ip route get")


def test_nothing_is_wrong_where_it_looks(namespace: Namespace) -> None:
    with Namespace() as other:
        findings, _ = while_checking(lambda: other.call(send_nowhere), "--netns", namespace.inode)
    assert [each for each in findings if each["netns"] is not None] == []


def test_all_namespaces_are_looked_at(namespace: Namespace) -> None:
    with Namespace() as other:
        findings, _ = while_checking(lambda: (namespace.call(send_nowhere), other.call(send_nowhere)))
        inodes = {namespace.inode, other.inode}
    assert {each["netns"] for each in findings if each["id"] == "ip-no-route-out"} >= inodes


def test_a_namespace_ends_meanwhile(namespace: Namespace) -> None:
    with contextlib.ExitStack() as stack:
        ending = [stack.enter_context(Namespace()) for _ in range(8)]

        def act() -> None:
            namespace.call(send_nowhere)
            if ending:
                ending.pop().close()

        findings, _ = while_checking(act)
    assert namespace.inode in {each["netns"] for each in findings}


def test_names_cannot_write_on_the_terminal() -> None:
    name = "\x1b[31m;$(x)"
    with Lab() as lab:
        for words in (("down",), ("name", name)):
            lab.server.run(["ip", "link", "set", "server0", *words], check=True)
            lab.server.run(["ip", "link", "set", name, "mtu", "1300", "up"], check=False, capture_output=True)
        lab.server.run(["ip", "link", "set", name, "mtu", "1300", "up"], check=True)
        argv = [sys.executable, "-m", "hopscope", "check", "-d", "1", "--netns", str(lab.server.inode)]
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, env=environ())
        with child, lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as sender:
            while child.poll() is None:
                sender.sendto(bytes(1400), ("10.77.0.2", 7))
            assert child.stdout is not None
            out = child.stdout.read()
    assert b"device-rx-dropped" in out
    assert b"\x1b" not in out


def test_what_is_not_there(namespace: Namespace) -> None:
    inode = namespace.inode
    namespace.close()
    done = hopscope("check", "-d", 1, "--netns", inode)
    assert done.returncode not in {0, 3, 4}
    assert done.stderr.startswith("hopscope: ")
