# SPDX-License-Identifier: Apache-2.0
"""The whole command, while something is wrong in a namespace of our own."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hopscope.lab import Lab, Namespace
from tests.lab.command import ended, hopscope, objects, waits
from tests.provoke.common import TIMES
from tests.verbs.check.checking import begun, while_it_waits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.command import Json

pytestmark = pytest.mark.root

# By the worst finding. The host's are among them, and others use the host as well.
CODES = {None: 0, "notice": 0, "warning": 3, "critical": 4}
# No route leads there (RFC 5737).
NOWHERE = "192.0.2.7"


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    with Namespace() as made:
        yield made


def findings_of(out: str, complaints: str, code: int) -> list[Json]:
    """Return what was found, once that fits the summary and the exit code."""
    assert complaints == ""
    *findings, summary = objects(out)
    assert summary["kind"] == "summary"
    assert summary["findings"] == len(findings)
    assert code == CODES[summary["worst"]]
    return findings


def send_nowhere() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(TIMES):
            with contextlib.suppress(OSError):
                sender.sendto(b"x", (NOWHERE, 7))


def test_something_is_wrong(namespace: Namespace) -> None:
    out, complaints, code = while_it_waits(lambda: namespace.call(send_nowhere), "--json", "--netns", namespace.inode)
    findings = findings_of(out, complaints, code)
    (found,) = [each for each in findings if each["netns"] == namespace.inode]
    assert (found["id"], found["severity"], found["layer"]) == ("ip-no-route-out", "warning", "ip")
    assert code in {3, 4}
    (row,) = found["evidence"]
    assert (row["counter"], row["netns"]) == ("IpOutNoRoutes", namespace.inode)
    assert row["now"] - row["before"] == row["by"] == TIMES
    said = namespace.run(["nstat", "-asz", "--json"], capture_output=True, text=True, check=True).stdout
    assert json.loads(said)["kernel"]["IpOutNoRoutes"] == row["now"]
    assert f"{TIMES} IPv4 packets" in found["sentence"]
    assert found["fixes"][0]["command"].startswith(f"nsenter -t {namespace.pid} -n ip route get")


def test_nothing_is_wrong_where_it_looks(namespace: Namespace) -> None:
    with Namespace() as other:
        found = while_it_waits(lambda: other.call(send_nowhere), "--json", "--netns", namespace.inode)
    findings = findings_of(*found)
    assert [each for each in findings if each["netns"] is not None] == []


def test_all_namespaces_are_looked_at(namespace: Namespace) -> None:
    with Namespace() as other:
        found = while_it_waits(lambda: [each.call(send_nowhere) for each in (namespace, other)], "--json")
        inodes = {namespace.inode, other.inode}
    findings = findings_of(*found)
    assert {each["netns"] for each in findings if each["id"] == "ip-no-route-out"} >= inodes


def test_namespaces_end_meanwhile(namespace: Namespace) -> None:
    with contextlib.ExitStack() as stack:
        ending = [stack.enter_context(Namespace()) for _ in range(8)]
        child = begun("--json")
        while not waits(child):
            if len(ending) > 5:
                ending.pop().close()
        namespace.call(send_nowhere)
        ending.pop().close()
        child.send_signal(signal.SIGINT)
        for each in ending:
            each.close()
        code, out, complaints = ended(child)
    assert namespace.inode in {each["netns"] for each in findings_of(out, complaints, code)}


def test_names_cannot_write_on_the_terminal() -> None:
    name = "\x1b[31m;$(x)"
    with Lab() as kept_lab:
        for words in (("down",), ("name", name)):
            kept_lab.server.run(["ip", "link", "set", "server0", *words], check=True)
            kept_lab.server.run(["ip", "link", "set", name, "mtu", "1300", "up"], check=False, capture_output=True)
        kept_lab.server.run(["ip", "link", "set", name, "mtu", "1300", "up"], check=True)
        with kept_lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as sender:

            def send() -> None:
                for _ in range(TIMES):
                    sender.sendto(bytes(1400), ("10.77.0.2", 7))

            out, _, _ = while_it_waits(send, "--netns", kept_lab.server.inode)
    assert "device-rx-dropped" in out
    assert "\x1b" not in out


def test_what_is_not_there() -> None:
    # Its number is a namespace's of another kind, and so nobody's of this kind.
    done = hopscope("check", "-d", 1, "--netns", Path("/proc/self/ns/mnt").stat().st_ino)
    assert done.returncode not in {0, 3, 4}
    assert done.stderr.startswith("hopscope: ")
