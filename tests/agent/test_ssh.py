# SPDX-License-Identifier: Apache-2.0
"""Through a real ssh and a real sshd in a namespace."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hopscope import __version__
from hopscope.agent import channel as channel_module
from hopscope.agent.connect import connect
from hopscope.agent.ssh import Ssh
from hopscope.agent.stream import Block, Message
from hopscope.agent.target import Target
from hopscope.errors import ConnectionLostError, RemoteError, UsageError
from hopscope.lab import Namespace
from tests.agent import service
from tests.agent.test_process import PATIENCE_S, pid_of
from tests.lab.sshd import Sshd, client
from tests.waiting import eventually, state, wait_ended

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.agent.channel import Channel
    from hopscope.agent.stream import Stream

pytestmark = pytest.mark.root

HOST = Target.parse("b")
SERVING = shlex.join([sys.executable, str(service.__file__)])


class Host:
    """A host that ssh knows as b.

    Attributes
    ----------
    namespace, sshd, folder
        Where, its server, and where the client's settings are.
    ssh
        The command line that reaches it.
    """

    def __init__(self, folder: Path, namespace: Namespace) -> None:
        self.folder, self.namespace = folder, namespace
        self.sshd = Sshd(namespace, folder / "b")
        self.ssh = client(folder, {"b": self.sshd}, namespace)

    def connect(self, remote_command: str | None = SERVING, more: str = "") -> Channel:
        return connect(HOST, Ssh.of(self.ssh + more, remote_command))

    def agents(self) -> list[int]:
        """Return the processes that serve here; other tests may have some elsewhere."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (process / "cmdline").read_bytes().split(b"\0")
                here = (process / "ns/net").stat().st_ino == self.namespace.inode
                if here and words[1:2] == [str(service.__file__).encode()]:
                    found.append(int(process.name))
        return found

    def refused(self, remote_command: str | None = None, more: str = "") -> str:
        with pytest.raises(ConnectionLostError) as raised:
            self.connect(remote_command, more)
        assert raised.value.exit_code == 1
        return str(raised.value)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with Namespace() as namespace:
        made = Host(tmp_path, namespace)
        with made.sshd:
            yield made


def opened(channel: Channel, deed: str, **request: object) -> Stream:
    return channel.open(service.NAME, {"do": deed, **request})


def test_a_channel_goes_through_ssh(host: Host) -> None:
    with host.connect() as channel:
        connection = channel.hello.connection
        assert connection is not None
        assert (connection.client, connection.server, connection.server_port) == ("127.0.0.1", "127.0.0.1", 22)
        assert channel.hello.addresses == ("127.0.0.1",)
        with opened(channel, "echo") as stream:
            assert stream.connection == connection
            data = os.urandom(5_000_000)
            stream.send_block({"a": 1}, [data])
            block = stream.receive(PATIENCE_S)
            assert isinstance(block, Block)
            assert bytes(block.data) == data


def test_hopscope_on_the_path_there_needs_no_more(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOPSCOPE_REMOTE_COMMAND", raising=False)
    with host.connect(None) as channel:
        assert channel.hello.version == __version__


def test_the_environment_says_which_ssh_and_which_command(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPSCOPE_SSH", host.ssh)
    monkeypatch.setenv("HOPSCOPE_REMOTE_COMMAND", SERVING)
    with connect(HOST, Ssh.of()) as channel, opened(channel, "echo") as stream:
        stream.send({})
        assert stream.receive(PATIENCE_S) == Message({})


@pytest.mark.parametrize("command", ["", "  ", "'"])
def test_an_ssh_that_is_no_command(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPSCOPE_SSH", command or "''' ")
    with pytest.raises(UsageError, match="is not a command"):
        Ssh.of()


def test_what_a_login_shell_prints_is_read_over(host: Host) -> None:
    with host.connect(f"echo Welcome; {SERVING}") as channel:
        assert channel.hello.version == __version__


def test_the_connection_is_known_below_sudo(host: Host) -> None:
    with host.connect(f"env -u SSH_CONNECTION {SERVING}; exit $?") as channel:
        assert channel.hello.addresses == ("127.0.0.1",)


def test_who_lacks_a_right_there_is_told_how_to_get_it_through_ssh(host: Host) -> None:
    with host.connect(f"unshare --user {SERVING}") as channel, opened(channel, "refuse") as stream:
        with pytest.raises(RemoteError) as raised:
            stream.receive(PATIENCE_S)
        assert raised.value.exit_code == 77
        assert str(raised.value) == (
            "b: It may not do this. Log in there as root, or give --remote-command 'sudo -n hopscope agent'"
        )
    as_root = pytest.raises(RemoteError, match=r"It may not do this\. Run it as root")
    with host.connect() as channel, opened(channel, "refuse") as stream, as_root:
        stream.receive(PATIENCE_S)


def test_no_hopscope_there(host: Host, capfd: pytest.CaptureFixture[str]) -> None:
    (host.sshd.folder / "bin" / "hopscope").unlink()
    assert host.refused() == (
        "b sent no greeting: its shell cannot find 'hopscope'. "
        "Install hopscope there, or give its path: --remote-command '/path/to/hopscope agent'"
    )
    assert "hopscope: command not found" in capfd.readouterr().err


def test_another_command_that_fails(host: Host, capfd: pytest.CaptureFixture[str]) -> None:
    assert host.refused("echo may not >&2; exit 5") == (
        "b sent no greeting: 'echo may not >&2; exit 5' ended there with exit code 5"
    )
    assert "may not\n" in capfd.readouterr().err
    assert host.refused("/etc/passwd") == (
        "b sent no greeting: its shell is not allowed to run '/etc/passwd'. Give another --remote-command"
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (" -o HostName=no-such-host.invalid", "no-such-host.invalid"),
        (" -o Port=1", "Connection refused"),
        (" -o IdentityFile=/dev/null", "Permission denied (publickey)"),
        (" -o UserKnownHostsFile=/dev/null", "Host key verification failed"),
        (" -o NoSuchOption=1", "Bad configuration option"),
    ],
)
def test_ssh_that_fails_says_why_and_we_what_to_do(
    host: Host, more: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    more = more.replace("-o IdentityFile", f"-F {unknown(host)} -o IdentityFile") if "Identity" in more else more
    sentence = host.refused(more=more)
    assert sentence.startswith("b sent no greeting: ssh failed, see its message above. Try nsenter ")
    assert sentence.endswith(" b true, which has to work first")
    assert said in capfd.readouterr().err


def unknown(host: Host) -> Path:
    """Return the client's settings without a key."""
    path = host.folder / "no_key"
    lines = (host.folder / "ssh_config").read_text().splitlines()
    path.write_text("\n".join(line for line in lines if "IdentityFile" not in line) + "\n")
    return path


def test_a_host_is_reached_again_without_asking_anybody(host: Host, capfd: pytest.CaptureFixture[str]) -> None:
    ssh = Ssh.of(host.ssh, SERVING).again()
    with connect(HOST, ssh) as channel:
        assert channel.hello.version == __version__
    host.sshd.close()
    with pytest.raises(
        ConnectionLostError,
        match=r"b sent no greeting: ssh failed and could not ask for a password\. Try nsenter .* b true, which",
    ):
        connect(HOST, ssh)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("victim", ["ssh", "sshd", "agent"])
def test_who_is_killed_is_missed_and_nothing_is_left(host: Host, victim: str) -> None:
    with host.connect() as channel, opened(channel, "hang") as stream:
        stream.receive(PATIENCE_S)
        (agent,) = host.agents()
        ours = {"ssh": [pid_of(channel)], "sshd": host.sshd.sessions(), "agent": [agent]}
        for pid in ours[victim]:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(ConnectionLostError, match=r"^The connection to b ended: ") as raised:
            stream.receive(PATIENCE_S)
        assert raised.value.how == "ended"
        wait_ended(agent)
    assert state(pid_of(channel)) == ""
    assert "ssh was killed by signal 9" in str(raised.value) or victim != "ssh"


def test_nothing_is_left_there_when_we_close(host: Host) -> None:
    with host.connect() as channel:
        stream = opened(channel, "hang")
        stream.receive(PATIENCE_S)
        (agent,) = host.agents()
    wait_ended(agent)
    eventually(lambda: not host.sshd.sessions())


def test_a_network_that_is_cut_is_noticed_on_both_sides(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "SILENCE_S", 2)
    with host.connect() as channel, opened(channel, "bulk", count=1 << 20, size_bytes=1 << 20) as stream:
        stream.receive(PATIENCE_S)
        (agent,) = host.agents()
        host.namespace.run(["ip", "link", "set", "lo", "down"], check=True)
        with pytest.raises(ConnectionLostError, match="b was silent for 2 s") as raised:  # noqa: PT012
            while True:
                stream.receive(PATIENCE_S)
        assert raised.value.how == "silent"
        wait_ended(agent)  # which waits for 10 s


def test_who_does_not_read_holds_up_nobody_else(host: Host) -> None:
    with host.connect() as channel, opened(channel, "bulk", count=200, size_bytes=1 << 20) as unread:
        with opened(channel, "echo") as other:
            for number in range(100):
                other.send({"number": number})
                assert other.receive(PATIENCE_S) == Message({"number": number})
        assert sum(unread.receive(PATIENCE_S) is not None for _ in range(200)) == 200
