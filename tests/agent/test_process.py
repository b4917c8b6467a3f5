# SPDX-License-Identifier: Apache-2.0
"""An agent that is a process of its own, and what may become of it."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys

import pytest

from hopscope import __version__
from hopscope.agent import channel as channel_module
from hopscope.agent import process
from hopscope.agent.channel import Channel
from hopscope.agent.connect import connect
from hopscope.agent.process import Process
from hopscope.agent.ssh import Ssh
from hopscope.agent.stream import Message
from hopscope.agent.target import Target
from hopscope.errors import ConnectionLostError, FormatError, RemoteError, UsageError, VersionError
from tests.agent import service
from tests.waiting import eventually, state

AGENT = [sys.executable, str(service.__file__)]
PATIENCE_S = 60.0


def explain(code: int) -> str:
    return f"it ended with {code}"


def started(argv: list[str] = AGENT) -> Channel:
    return Channel(Process(argv, explain), "client", "b")


def shell(script: str) -> list[str]:
    return ["sh", "-c", script, "sh", *AGENT]


def pid_of(channel: Channel) -> int:
    return int(channel._transport.pid)  # type: ignore[attr-defined]


def test_this_host_needs_no_ssh() -> None:
    with connect(Target.parse("local"), Ssh.of()) as channel:
        assert channel.hello.version == __version__
        assert channel.hello.host == os.uname().nodename
        with (
            channel.open("nothing", {}) as stream,
            pytest.raises(RemoteError, match="local: This agent has no service"),
        ):
            stream.receive(PATIENCE_S)
        pid = pid_of(channel)
    assert state(pid) == ""


def test_what_is_printed_there_comes_out_here_and_not_between_the_frames(capfd: pytest.CaptureFixture[str]) -> None:
    with started() as channel, channel.open(service.NAME, {"do": "chatter"}) as stream:
        assert stream.receive(PATIENCE_S) == Message({"printed": True})
        assert stream.receive(PATIENCE_S) is None
    assert "noise on standard output" in capfd.readouterr().err


def test_an_agent_ends_with_its_input_whatever_its_services_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_GRACE_S", PATIENCE_S)
    with started() as channel:
        stream = channel.open(service.NAME, {"do": "hang"})
        stream.receive(PATIENCE_S)
        pid = pid_of(channel)
    assert state(pid) == ""
    assert channel._transport._child.returncode == 0  # type: ignore[attr-defined] # so it was not killed


def test_an_agent_ends_when_it_is_asked_to() -> None:
    with started() as channel:
        stream = channel.open(service.NAME, {"do": "echo"})
        stream.send({})
        stream.receive(PATIENCE_S)
        os.kill(pid_of(channel), signal.SIGTERM)
        assert stream.receive(PATIENCE_S) is None  # it closes what is open
        with pytest.raises(ConnectionLostError, match="The connection to b ended") as raised:  # noqa: PT012
            while True:
                channel.open(service.NAME, {"do": "echo"}).receive(PATIENCE_S)
        assert raised.value.how == "ended"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT, signal.SIGHUP])
def test_what_a_terminal_sends_is_for_us_alone(number: signal.Signals) -> None:
    with started() as channel, channel.open(service.NAME, {"do": "echo"}) as stream:
        os.kill(pid_of(channel), number)
        stream.send({"still": "there"})
        assert stream.receive(PATIENCE_S) == Message({"still": "there"})


def test_an_agent_that_is_killed_is_missed() -> None:
    with started() as channel, channel.open(service.NAME, {"do": "hang"}) as stream:
        stream.receive(PATIENCE_S)
        os.kill(pid_of(channel), signal.SIGKILL)
        with pytest.raises(ConnectionLostError, match="The connection to b ended: it ended with -9") as raised:
            stream.receive(PATIENCE_S)
        assert raised.value.how == "ended"


@pytest.mark.slow
def test_an_agent_that_stands_still_is_lost_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "SILENCE_S", 1)
    with started() as channel, channel.open(service.NAME, {"do": "bulk", "count": 99, "size_bytes": 1 << 20}) as stream:
        pid = pid_of(channel)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(ConnectionLostError, match="b was silent for 1 s"):  # noqa: PT012
            while True:
                stream.receive(PATIENCE_S)
        eventually(lambda: state(pid) in {"", "Z"})


def test_an_agent_ends_when_its_client_is_killed() -> None:
    script = (
        "import sys; from tests.agent.test_process import *; c = started();"
        "s = c.open('test', {'do': 'hang'}); s.receive(); print(pid_of(c), flush=True); signal.pause()"
    )
    where = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen([sys.executable, "-c", script], env=where, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        pid = int(client.stdout.readline())
        client.kill()
    eventually(lambda: state(pid) in {"", "Z"})


def test_a_banner_is_read_over() -> None:
    with started(shell('echo Welcome; printf "no end of line"; exec "$@"')) as channel:
        assert channel.hello.version == __version__


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("echo Welcome to b; exit 3", "b sent no greeting, but said: Welcome to b: it ended with 3"),
        ("exit 127", "b sent no greeting: it ended with 127"),
        ("kill -9 $$", "b sent no greeting: it ended with -9"),
        ("echo hopscope-agent/1; printf ' '", "The connection to b ended: it ended with 0"),
    ],
)
def test_who_says_no_hello_is_no_agent(script: str, sentence: str) -> None:
    with pytest.raises(ConnectionLostError) as raised:
        started(shell(script))
    assert str(raised.value) == sentence


def test_who_talks_and_talks_is_no_agent() -> None:
    with pytest.raises(FormatError, match=r"b did not answer as a hopscope agent, but with: y y y .*…\. Check what"):
        started(["yes"])


def test_a_program_that_there_is_not() -> None:
    with pytest.raises(UsageError, match="no-such-program cannot be started: No such file or directory"):
        started(["no-such-program"])


def test_another_version_is_told_in_one_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    other = "import hopscope, sys; hopscope.__version__ = '9.8.7'; sys.argv[1:] = ['agent']; "
    run = "from hopscope.__main__ import main; main()"
    with pytest.raises(VersionError) as raised:
        started([sys.executable, "-c", other + run])
    assert (
        str(raised.value)
        == f"The agent on b is hopscope 9.8.7, this is {__version__}. Install the same version on both"
    )
    assert raised.value.exit_code != 0
    assert capfd.readouterr().err == ""  # once is enough


def test_another_protocol_is_told_in_one_sentence() -> None:
    with pytest.raises(
        VersionError, match=f"The agent on b speaks protocol 77 and this is hopscope {__version__} with"
    ):
        started(shell("echo hopscope-agent/77; cat >/dev/null"))


def run_agent(**how: object) -> subprocess.CompletedProcess[bytes]:
    argv = [sys.executable, "-m", "hopscope", "agent"]
    return subprocess.run(argv, capture_output=True, check=False, **how)  # type: ignore[call-overload, no-any-return]


def test_in_a_terminal_the_agent_says_what_it_is_for() -> None:
    ours, theirs = pty.openpty()
    done = run_agent(stdin=theirs)
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.decode() == (
        "hopscope: hopscope agent is started by hopscope on another host, not from a terminal. "
        "Run on the other host: hopscope record --host THIS_HOST\n"
    )


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("", "hopscope: the client sent no greeting\n"),
        ("GET / HTTP/1.1\n", "hopscope: the client sent no greeting, but said: GET / HTTP/1.1\n"),
    ],
)
def test_an_agent_whose_client_is_none(said: str, sentence: str) -> None:
    done = run_agent(input=said.encode())
    assert done.returncode == 1
    assert done.stderr.decode() == sentence
