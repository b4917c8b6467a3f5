# SPDX-License-Identifier: Apache-2.0
"""What the kernel is asked, of which namespaces, and what there is where it does not know or may not say."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from typing import TYPE_CHECKING

import pytest

from hopscope.kernel import netns
from hopscope.kernel.sockets import sock_diag
from hopscope.kernel.sockets.address import ends
from hopscope.kernel.sockets.namespaces import SocketReader
from hopscope.kernel.sockets.sock_diag import Request, SockDiag
from hopscope.kernel.sockets.table import TCP
from hopscope.lab import Lab, Namespace
from tests.kernel.sockets.tools import EVERYTHING, Connected, by_name, listening, made, read

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab() as made:
        yield made


@pytest.fixture
def connected(lab: Lab) -> Iterator[Connected]:
    with contextlib.ExitStack() as stack:
        yield Connected(lab, stack)


@pytest.mark.usefixtures("connected")
def test_states_are_chosen_by_the_kernel(lab: Lab) -> None:
    listeners = read(lab.server, requests=[Request(TCP, states=1 << 10)])
    assert set(listeners.rows["message"]["state"].tolist()) == {10}
    assert len(listeners) == 3


def test_many_sockets_take_many_datagrams_and_none_is_lost(lab: Lab) -> None:
    with contextlib.ExitStack() as stack:
        bound = [
            stack.enter_context(made(lab.client, socket.AF_INET, socket.SOCK_DGRAM, "10.77.0.1", 0)) for _ in range(700)
        ]
        listeners = [stack.enter_context(listening(lab.client, "10.77.0.1", 0)) for _ in range(300)]
        sockets = read(lab.client)
        expected = sorted(os.fstat(sock.fileno()).st_ino for sock in bound + listeners)
        assert sorted(sockets.rows["message"]["inode"].tolist()) == expected
        assert sockets.twice == 0
        assert not sockets.interrupted


def test_namespaces_are_read_all_and_told_apart(lab: Lab) -> None:
    with listening(lab.client, "10.77.0.1", 4600), listening(lab.server, "10.77.0.2", 4600):
        sockets = SocketReader(EVERYTHING).read()
        assert {lab.client.inode, lab.server.inode} <= sockets.namespaces.keys()
        where = dict(zip(ends(sockets, "local"), sockets.rows["netns"].tolist(), strict=True))
        assert where["10.77.0.1:4600"] == lab.client.inode
        assert where["10.77.0.2:4600"] == lab.server.inode


def test_namespace_that_goes_away_meanwhile_has_no_sockets(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Namespace()
    found = netns.namespaces()
    assert gone.inode in found
    gone.close()
    monkeypatch.setattr(netns, "namespaces", lambda: found)
    sockets = SocketReader(EVERYTHING, [gone.inode, lab.client.inode]).read()
    assert not sockets.unread
    assert set(sockets.rows["netns"].tolist()) <= {lab.client.inode}


def test_reading_keeps_no_namespace() -> None:
    with Namespace() as namespace:
        reader = SocketReader(EVERYTHING)
        assert namespace.inode in reader.read().namespaces
        inode = namespace.inode
    assert inode not in netns.namespaces()
    assert inode not in reader.read().namespaces


@pytest.mark.usefixtures("connected")
def test_without_rights_marks_are_missing_and_the_rest_is_there(lab: Lab) -> None:
    code = (
        "import os;"
        "from hopscope.kernel.sockets.sock_diag import Request, SockDiag;"
        "from hopscope.kernel.sockets.table import Seen, has;"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534);"
        "(part,) = SockDiag().dump([Request(6)]); rows = part.rows;"
        "print(len(rows), has(rows, Seen.MARK).sum(), has(rows, Seen.SKMEMINFO).sum())"
    )
    done = lab.client.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["7", "0", "7"], done.stderr


def test_protocol_that_the_kernel_does_not_have_has_no_sockets() -> None:
    diag = SockDiag()
    try:
        assert list(diag.dump([Request(200)])) == []
    finally:
        diag.close()


def test_kernel_without_the_oldest_request_is_asked_by_family(
    lab: Lab, connected: Connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    del connected
    expected = set(by_name(read(lab.server, requests=[Request(TCP)])))
    monkeypatch.setattr(sock_diag, "_TCPDIAG_GETSOCK", 99)
    assert set(by_name(read(lab.server, requests=[Request(TCP)]))) == expected
    assert any("::ffff" in local for local, _ in expected)
    assert any("fd77" in local for local, _ in expected)
