# SPDX-License-Identifier: Apache-2.0
"""That the advice of findings helps: it is carried out, the same is done again, and nothing is found."""

from __future__ import annotations

import contextlib
import re
import shlex
import socket
import subprocess
from typing import TYPE_CHECKING, TypeAlias

import pytest

from hopscope.lab import Lab
from hopscope.lab.veth import SERVER_IPV4
from tests.lab.measure import udp_pair, way
from tests.provoke import checking, limits
from tests.provoke.common import TIMES, host_setting, rules
from tests.provoke.evidence import nstat
from tests.provoke.limits import ports_exhausted
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from hopscope.verbs.check.findings import Finding

    # What makes the trouble, and what carries the advice out that is no command.
    Trouble: TypeAlias = tuple[Callable[[], None], Callable[[Finding], None]]

pytestmark = pytest.mark.root


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab() as made:
        yield made


def run(fix: str) -> str:
    """Run the command of a fix, as it is printed."""
    argv = shlex.split(fix.partition("  # ")[0])
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def fix_with(found: Finding, text: str) -> str:
    (fix,) = [each for each in found.fixes if text in each]
    return fix


@contextlib.contextmanager
def short_queue(lab: Lab, *, backlog: int, somaxconn: int) -> Iterator[Trouble]:
    """Clients connect to an application that accepts them later."""
    lab.server.sysctl("net.core.somaxconn", somaxconn)
    with lab.server.call(socket.create_server, (SERVER_IPV4, 0), backlog=backlog) as listener:

        def connect() -> None:
            before = _answered(lab)
            with contextlib.ExitStack() as stack:
                for _ in range(TIMES):
                    sock = stack.enter_context(lab.client.call(socket.socket))
                    sock.setblocking(False)  # noqa: FBT003 - Python's own
                    sock.connect_ex(listener.getsockname())
                eventually(lambda: _answered(lab) - before >= TIMES)
            while queued(lab):
                listener.accept()[0].close()

        def listen(found: Finding) -> None:
            asked = re.search(r"listen\(\), now ([0-9]+):", " ".join(found.fixes))
            assert (asked is None) == (backlog > somaxconn)
            lab.server.call(listener.listen, 2 * TIMES)

        yield connect, listen


def _answered(lab: Lab) -> int:
    """Return how many SYNs have been queued or refused."""
    counted = nstat(lab.server)
    return counted["TcpExtListenOverflows"] + counted["TcpPassiveOpens"]


def queued(lab: Lab) -> bool:
    found = lab.server.run(["ss", "-Hltn"], capture_output=True, text=True).stdout
    return any(int(line.split()[1]) for line in found.splitlines())


@contextlib.contextmanager
def own_backlog(lab: Lab) -> Iterator[Trouble]:
    with short_queue(lab, backlog=7, somaxconn=4096) as trouble:
        yield trouble


@contextlib.contextmanager
def host_backlog(lab: Lab) -> Iterator[Trouble]:
    with short_queue(lab, backlog=4096, somaxconn=7) as (connect, listen):

        def raise_both(found: Finding) -> None:
            run(fix_with(found, "net.core.somaxconn="))
            listen(found)

        yield connect, raise_both


@contextlib.contextmanager
def small_buffer(lab: Lab) -> Iterator[Trouble]:
    """A receiver that reads only after all datagrams of a burst have come; its socket is not connected."""
    with udp_pair(way(lab, "veth-4")) as (sender, receiver), host_setting("net.core.rmem_max", 212_992):
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)

        def burst() -> None:
            for _ in range(TIMES):
                sender.send(bytes(1000))
            eventually(lambda: not _on_the_way(lab))
            with contextlib.suppress(BlockingIOError):
                while True:
                    receiver.recv(2000, socket.MSG_DONTWAIT)

        def enlarge(found: Finding) -> None:
            assert f":{receiver.getsockname()[1]} " in run(fix_with(found, " ss "))
            fix = fix_with(found, "net.core.rmem_max=")
            run(fix)
            (size,) = re.findall(r"rmem_max=([0-9]+)", fix)
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, int(size))

        yield burst, enlarge


def _on_the_way(lab: Lab) -> bool:
    """Return whether the server's IP has not yet delivered all that the client's has sent."""
    return nstat(lab.client)["IpOutRequests"] > nstat(lab.server)["IpInDelivers"]


@contextlib.contextmanager
def dropping_rule(lab: Lab) -> Iterator[Trouble]:
    with (
        rules(lab.server, "input", "udp dport 7 counter drop"),
        lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):

        def send() -> None:
            before = nstat(lab.server)["IpInReceives"]
            for _ in range(TIMES):
                sender.sendto(b"x", (SERVER_IPV4, 7))
            eventually(lambda: nstat(lab.server)["IpInReceives"] - before >= TIMES)

        yield send, lambda found: _run_last(found, "nft delete rule")


@contextlib.contextmanager
def few_ports(lab: Lab) -> Iterator[Trouble]:
    with ports_exhausted(lab) as provoked:
        host, _, port = provoked.subject.split(" ")[2].rpartition(":")

        def connect() -> None:
            limits.connect_error(lab, (host, int(port)))

        def widen(found: Finding) -> None:
            _run_last(found, "ip_local_port_range=")
            assert limits.connect_error(lab, (host, int(port))) == 0

        yield connect, widen


def _run_last(found: Finding, text: str) -> None:
    run(fix_with(found, text))


@pytest.mark.parametrize(
    ("provoke", "finding"),
    [
        (own_backlog, "tcp-listen-overflow"),
        (host_backlog, "tcp-listen-overflow"),
        (small_buffer, "udp-receive-buffer"),
        (dropping_rule, "nft-drop"),
        (few_ports, "socket-ports-exhausted"),
    ],
    ids=["own-backlog", "somaxconn", "receive-buffer", "nft-rule", "local-ports"],
)
def test_advice_ends_the_trouble(
    lab: Lab, provoke: Callable[[Lab], AbstractContextManager[Trouble]], finding: str
) -> None:
    with provoke(lab) as (trouble, carry_out):
        watch = checking.of_lab(lab)
        trouble()
        (found,) = [each for each in watch.look().findings if each.id == finding]
        carry_out(found)
        watch = checking.of_lab(lab)
        trouble()
        assert [each.sentence for each in watch.look().findings if each.id == finding] == []
