# SPDX-License-Identifier: Apache-2.0
"""Subscriptions to what another host serves: through a real ssh, and through mutual TLS."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
from typing import TYPE_CHECKING

import pytest

import hopscope
from hopscope.agent.handshake import Connection
from hopscope.errors import ConnectionLostError, HopscopeError, UsageError
from hopscope.lab import Lab, Namespace
from hopscope.verbs.serve.relayed import VARIABLE, without_own
from tests.agent.certificates import LO, Authority, agent_files, client_files
from tests.lab.command import end_started, start
from tests.lab.measure import udp_pair, way
from tests.lab.sshd import Sshd, client
from tests.verbs.serve.test_socket import POINT, Server, Traffic, serving, taken
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COUNT = 211
NOBODY = 65_534
CONNECTION = Connection("192.0.2.1", 50_000, "192.0.2.2", 22)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Lab() as lab, serving(lab, tmp_path_factory.mktemp("relayed") / "events.sock") as made:
        yield made


@pytest.fixture
def traffic(server: Server) -> Iterator[Traffic]:
    with udp_pair(way(server.lab, "veth-4")) as pair:
        yield Traffic(pair)


def remote_command(path: Path, *before: str) -> str:
    """Return what starts an agent there, of this source tree."""
    variables = {VARIABLE: str(path), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    return shlex.join(["env", *(f"{name}={value}" for name, value in variables.items()), *before, "hopscope", "agent"])


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """Yield a host's sshd, which ``HOPSCOPE_SSH`` reaches as b."""
    folder = tmp_path_factory.mktemp("ssh")
    with Namespace() as namespace, Sshd(namespace, folder / "b") as sshd, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOPSCOPE_SSH", client(folder, {"b": sshd}, namespace))
        yield sshd


def same(server: Server, traffic: Traffic, host: str) -> None:
    """See that who subscribes from another host gets what who does so there gets."""
    with (
        server.subscribe(points=[POINT], where=traffic.at()) as there,
        hopscope.subscribe(host=host, points=[POINT], where=traffic.at()) as here,
    ):
        assert here.fields == there.fields
        assert here.realtime_offset_ns == there.realtime_offset_ns
        traffic.send(COUNT)
        found = taken(here, COUNT)
        assert found == taken(there, COUNT)
        assert (here.lost, here.kernel_lost) == (0, 0)
    eventually(lambda: not server.programs(), "the server knows that nobody wants it any more")


@pytest.mark.root
def test_through_ssh_come_the_same_events(
    server: Server, traffic: Traffic, ssh: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    del ssh
    monkeypatch.setenv("HOPSCOPE_REMOTE_COMMAND", remote_command(server.path))
    same(server, traffic, "b")


@pytest.mark.root
def test_through_mutual_tls_come_the_same_events(
    server: Server, traffic: Traffic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Authority.new(tmp_path / "ours")
    files, mine = agent_files(ours), client_files(ours)
    monkeypatch.setenv(VARIABLE, str(server.path))
    words = ["--tls-cert", files.certificate, "--tls-key", files.key, "--tls-ca", files.authority, "--allow", "oncall"]
    child = start("agent", "--listen", f"{LO}:0", *words)
    try:
        assert child.stderr is not None
        found = re.search(r"is listening at 127\.0\.0\.1:(\d+)$", child.stderr.readline())
        assert found
        for name, value in zip(("CERT", "KEY", "CA"), (mine.certificate, mine.key, mine.authority), strict=True):
            monkeypatch.setenv(f"HOPSCOPE_TLS_{name}", str(value))
        same(server, traffic, f"tls://{LO}:{found[1]}")
    finally:
        end_started()


@pytest.mark.root
def test_why_there_are_no_events_is_one_sentence(
    server: Server, ssh: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del ssh

    def complaint(path: Path, *before: str, **asked: object) -> str:
        monkeypatch.setenv("HOPSCOPE_REMOTE_COMMAND", remote_command(path, *before))
        with pytest.raises(HopscopeError) as caught:
            hopscope.subscribe(host="b", **asked)  # type: ignore[arg-type] # some of it is wrong
        return str(caught.value)

    nowhere = tmp_path / "nobody.sock"
    assert complaint(nowhere) == (
        f"b: Nobody serves subscriptions at {nowhere}: No such file or directory. "
        f"Start it as root: hopscope serve --socket {nowhere}"
    )
    others = tmp_path / "others.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(os.fspath(others))
        listening.listen()
        others.chmod(0o600)
        os.chown(others, NOBODY, NOBODY)
        without_rights = ("setpriv", "--bounding-set=-dac_override")
        assert complaint(others, *without_rights) == (
            f"b: You may not connect to {others}. Become a member of its group: usermod -aG hopscope USER"
        )
    assert complaint(server.path, points=["nonsense"]).startswith("b: There is no probe point or profile nonsense")
    assert complaint(server.path, where="port ==").startswith("b: ")
    assert complaint(server.path, fields=["nonsense"]).startswith("b: Events have no field nonsense")


@pytest.mark.root
@pytest.mark.parametrize("events", [0, 1])
def test_the_end_of_the_agent_is_an_error(
    server: Server, traffic: Traffic, ssh: Sshd, monkeypatch: pytest.MonkeyPatch, events: int
) -> None:
    monkeypatch.setenv("HOPSCOPE_REMOTE_COMMAND", remote_command(server.path))
    with hopscope.subscribe(host="b", points=[POINT], where=traffic.at(), fields=["time_ns"]) as subscription:
        if events:
            traffic.send(events)
            taken(subscription, events)
        for pid in ssh.sessions():
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(ConnectionLostError, match="The connection to b ended"):
            next(subscription.batches())


def test_a_socket_has_no_path_on_another_host() -> None:
    with pytest.raises(UsageError, match="HOPSCOPE_SOCKET"):
        hopscope.subscribe(host="b", path="/run/other.sock")


def test_the_connection_itself_is_left_out_where_flows_are_known() -> None:
    own = "not (port == 50000 and port == 22 and address == 192.0.2.1 and address == 192.0.2.2)"
    assert without_own({}, CONNECTION) == {"where": own}
    assert without_own({"where": "port == 1 or cpu == 2"}, CONNECTION)["where"] == f"(port == 1 or cpu == 2) and {own}"
    assert without_own({}, None) == {}
    plain = {"points": ["rx.core"], "fields": ["time_ns"]}
    assert without_own(plain, CONNECTION) == plain
