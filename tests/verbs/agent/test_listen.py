# SPDX-License-Identifier: Apache-2.0
"""``hopscope agent --listen``, and clients that come to it."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hopscope.agent.connect import connect
from hopscope.agent.ssh import Ssh
from hopscope.agent.target import Target
from hopscope.agent.tls import Tls
from hopscope.errors import ConnectionLostError, HopscopeError, RemoteError, UsageError
from tests.agent.certificates import LO, Authority, agent_files, client_files
from tests.lab.command import complaint, end_started, ended, hopscope, start
from tests.waiting import eventually

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from hopscope.agent.channel import Channel
    from hopscope.agent.tls import TlsFiles


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.new(tmp_path_factory.mktemp("certificates") / "ours")


@pytest.fixture(scope="module")
def agent(ours: Authority) -> TlsFiles:
    return agent_files(ours)


@pytest.fixture(scope="module")
def oncall(ours: Authority) -> Tls:
    return options(client_files(ours))


def options(files: TlsFiles) -> Tls:
    return Tls(files.certificate, files.key, files.authority)


def words(files: TlsFiles) -> list[object]:
    return ["--tls-cert", files.certificate, "--tls-key", files.key, "--tls-ca", files.authority]


@pytest.fixture
def listening(agent: TlsFiles) -> Iterator[tuple[subprocess.Popen[str], int]]:
    child = start("agent", "--listen", f"{LO}:0", *words(agent), "--allow", "oncall")
    assert child.stderr is not None
    found = re.search(r"is listening at 127\.0\.0\.1:(\d+)$", child.stderr.readline())
    assert found
    yield child, int(found[1])
    end_started()


def reached(port: int, tls: Tls) -> Channel:
    return connect(Target.parse(f"tls://{LO}:{port},name=there"), Ssh.of(), tls)


def children(pid: int) -> list[int]:
    return [int(word) for path in Path(f"/proc/{pid}/task").glob("*/children") for word in path.read_text().split()]


def test_client_reaches_an_agent_of_its_own_that_goes_with_it(
    listening: tuple[subprocess.Popen[str], int], oncall: Tls
) -> None:
    child, port = listening
    with reached(port, oncall) as one, reached(port, oncall) as other:
        assert one.hello.boot_id == other.hello.boot_id
        assert one.hello.connection is not None
        assert other.hello.connection is not None
        assert one.hello.connection.client_port != other.hello.connection.client_port
        assert one.hello.connection[2:] == (LO, port)
        assert len(children(child.pid)) == 2
        with one.open("no such service", {}) as stream, pytest.raises(RemoteError, match="there: This agent has no"):
            stream.receive()
        os.kill(children(child.pid)[0], signal.SIGKILL)
        eventually(lambda: (one.lost is None) != (other.lost is None), "one of them is gone, and one is not")
    eventually(lambda: not children(child.pid), "the agents are gone")
    child.terminate()
    code, _, log = ended(child)
    assert code == 0
    assert [
        len(re.findall(pattern, log)) for pattern in (r"oncall \(sha256:\w{64}\) is connected", "has disconnected")
    ] == [
        2,
        2,
    ]


def test_end_of_the_listener_is_the_end_of_all(listening: tuple[subprocess.Popen[str], int], oncall: Tls) -> None:
    child, port = listening
    with reached(port, oncall) as channel:
        agents = children(child.pid)
        child.terminate()
        assert ended(child)[0] == 0
        eventually(lambda: channel.lost is not None, "it is lost")
        assert not [pid for pid in agents if Path(f"/proc/{pid}").exists()]


def test_killed_listener_leaves_no_agent(listening: tuple[subprocess.Popen[str], int], oncall: Tls) -> None:
    child, port = listening
    with reached(port, oncall) as channel:
        agents = children(child.pid)
        child.kill()
        eventually(lambda: channel.lost is not None, "it is lost")
        eventually(lambda: not [pid for pid in agents if running(pid)], "its agents end")


def running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_client_that_is_not_on_the_list_is_told(listening: tuple[subprocess.Popen[str], int], ours: Authority) -> None:
    child, port = listening
    with pytest.raises(
        RemoteError, match=rf"^The agent at {LO}:{port} refuses this client: it is not on the list of clients"
    ):
        reached(port, options(client_files(ours, "stranger")))
    assert not children(child.pid)


def test_client_of_another_version_is_told_by_both(
    listening: tuple[subprocess.Popen[str], int], oncall: Tls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hopscope.agent.handshake.__version__", "0.0.0")
    with pytest.raises(HopscopeError, match=r"The agent on there is hopscope .*, this is 0\.0\.0\. Install the same"):
        reached(listening[1], oncall)


def test_client_needs_all_three_files(oncall: Tls, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HOPSCOPE_TLS_CERT", "HOPSCOPE_TLS_KEY", "HOPSCOPE_TLS_CA"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(UsageError, match=r"tls://127\.0\.0\.1:9 needs a certificate.* Give --tls-cert, --tls-key"):
        reached(9, Tls.of(oncall.certificate, oncall.key))
    monkeypatch.setenv("HOPSCOPE_TLS_CA", str(oncall.authority))
    with pytest.raises(ConnectionLostError, match="cannot be reached"):
        reached(9, Tls.of(oncall.certificate, oncall.key))


@pytest.mark.parametrize("left_out", ["--tls-cert", "--tls-key", "--tls-ca", "--allow"])
def test_agent_never_listens_without_mutual_tls_and_a_list(agent: TlsFiles, left_out: str) -> None:
    given = [*words(agent), "--allow", "oncall"]
    at = given.index(left_out)
    del given[at : at + 2]
    assert re.search(
        "needs a certificate|No client is allowed to connect",
        complaint(hopscope("agent", "--listen", f"{LO}:0", *given), 2),
    )


@pytest.mark.parametrize(
    "where", ["7400", "127.0.0.1", ":7400", "127.0.0.1:70000", "a b:1", "x@127.0.0.1:1", "::1", "[::1:5"]
)
def test_wrong_address_is_one_sentence(agent: TlsFiles, where: str) -> None:
    done = hopscope("agent", "--listen", where, *words(agent), "--allow", "oncall")
    assert re.search("not an address and port|Cannot listen", complaint(done, 2))


def test_address_of_another_host_is_one_sentence(agent: TlsFiles) -> None:
    done = hopscope("agent", "--listen", "203.0.113.7:7400", *words(agent), "--allow", "oncall")
    assert "Cannot listen at 203.0.113.7:7400: Cannot assign requested address" in complaint(done, 2)


@pytest.mark.slow
@pytest.mark.root
def test_recording_over_tls_has_the_traffic_and_not_the_connection(
    listening: tuple[subprocess.Popen[str], int], oncall: Tls, tmp_path: Path
) -> None:
    _, port = listening
    given = ["--tls-cert", oncall.certificate, "--tls-key", oncall.key, "--tls-ca", oncall.authority]
    send = f"""
import socket
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.bind(({LO!r}, 0))
for _ in range(10):
    sock.sendto(b"12345678", sock.getsockname())
    sock.recv(100)
print(sock.getsockname()[1])
"""
    host = f"tls://{LO}:{port},name=b"
    done = hopscope("record", "--host", host, *given, "-o", tmp_path / "t", "--", sys.executable, "-c", send)
    assert done.returncode == 0, done.stderr
    ports = hopscope("sql", tmp_path / "t", "SELECT DISTINCT source_port, destination_port FROM flows")
    seen = {int(word) for word in re.findall(r"\d+", ports.stdout)}
    assert int(done.stdout.split()[0]) in seen
    assert port not in seen


def test_list_without_listening_is_wrong() -> None:
    assert "Give --listen" in complaint(hopscope("agent", "--allow", "oncall"), 2)
