# SPDX-License-Identifier: Apache-2.0
"""A man in the middle of ssh and of TLS: whatever he does ends in one sentence, and never in wrong data or a hang."""

from __future__ import annotations

import io
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from hopscope.agent.allow import AllowList
from hopscope.agent.channel import Channel
from hopscope.agent.connect import connect
from hopscope.agent.log import Log
from hopscope.agent.relay import serve_in_process
from hopscope.agent.ssh import Ssh
from hopscope.agent.stream import Block
from hopscope.agent.target import Target
from hopscope.agent.tls import client_context, server_context
from hopscope.agent.tls_connect import reach
from hopscope.agent.tls_listen import Listener, listen
from hopscope.errors import ConnectionLostError
from hopscope.lab import Namespace
from tests.agent import service
from tests.agent.certificates import LO, agent_files, client_files
from tests.agent.meddler import Meddler
from tests.lab.sshd import PORT, Sshd, client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.agent.certificates import Authority
    from tests.agent.meddler import Way

pytestmark = pytest.mark.root

PATIENCE_S = 60.0
SERVING = [sys.executable, str(service.__file__)]
SIZE = 1 << 18
# So much is said before a test has to give up.
MANY = 10_000
Through = tuple[Meddler, "Callable[[], Channel]"]


@pytest.fixture(scope="module")
def namespace() -> Iterator[Namespace]:
    with Namespace() as made:
        yield made


@pytest.fixture(scope="module")
def through_ssh(namespace: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Through]:
    folder = tmp_path_factory.mktemp("ssh")
    with Sshd(namespace, folder / "b") as sshd:
        meddler = Meddler(namespace, PORT)
        ssh = f"{client(folder, {'b': sshd}, namespace)} -oPort={meddler.port} -oHostKeyAlias={sshd.address}"
        yield meddler, lambda: connect(Target.parse("b"), Ssh.of(ssh, " ".join(SERVING)))
        meddler.close()


@pytest.fixture(scope="module")
def through_tls(namespace: Namespace, ours: Authority) -> Iterator[Through]:
    log = Log(io.StringIO())
    sock = namespace.call(listen, LO, 0)
    allowed = AllowList.of(["oncall"])
    listener = Listener(sock, server_context(agent_files(ours)), lambda: allowed, serve_in_process(log, SERVING), log)
    thread = threading.Thread(target=listener.run)
    thread.start()
    meddler = Meddler(namespace, sock.getsockname()[1])
    context = client_context(client_files(ours))
    yield meddler, lambda: Channel(namespace.call(reach, LO, meddler.port, context), "client", "b", hello_s=PATIENCE_S)
    meddler.close()
    listener.close()
    thread.join()


@pytest.fixture(params=["ssh", "tls"])
def through(request: pytest.FixtureRequest) -> Through:
    meddler, open_channel = request.getfixturevalue(f"through_{request.param}")
    meddler.meddle = lambda data, _way, _before: data
    return meddler, open_channel


def echoed(channel: Channel, rounds: int, begun: threading.Event | None = None) -> int:
    """Send blocks and take them back, each as it was; return how many came."""
    with channel.open("test", {"do": "echo"}) as stream:
        for number in range(rounds):
            data = bytes([number % 256]) * SIZE
            stream.send_block({"number": number}, [data])
            got = stream.receive(PATIENCE_S)
            assert isinstance(got, Block)
            assert got.head == {"number": number}
            assert got.data == data
            if begun:
                begun.set()
    return rounds


def lost(open_channel: Callable[[], Channel], act: Callable[[], object] = lambda: None) -> ConnectionLostError:
    """Talk until the connection is lost, and return how; `act` when something was said already."""
    begun = threading.Event()
    acting = threading.Thread(target=lambda: begun.wait(PATIENCE_S) and act())
    acting.start()
    try:
        with open_channel() as channel, pytest.raises(ConnectionLostError) as raised:
            echoed(channel, MANY, begun)
    finally:
        begun.set()
        acting.join()
    assert str(raised.value).isprintable()
    return raised.value


def test_man_in_the_middle_who_does_nothing_is_not_noticed(through: Through) -> None:
    _, open_channel = through
    with open_channel() as channel:
        assert echoed(channel, 20) == 20


def test_cut_is_said(through: Through) -> None:
    meddler, open_channel = through
    assert lost(open_channel, meddler.cut).how == "ended"


def test_end_that_the_agent_did_not_mean_is_said(through: Through) -> None:
    meddler, open_channel = through
    assert lost(open_channel, meddler.half_close).how == "ended"


@pytest.mark.parametrize("way", ["to the agent", "to the client"])
@pytest.mark.parametrize(
    "change",
    [lambda data: data[:-1] + bytes([data[-1] ^ 1]), lambda data: data + data, lambda data: data + b"\0"],
    ids=["flipped", "repeated", "put in"],
)
def test_changed_bytes_end_the_connection_and_are_never_delivered(
    through: Through, way: Way, change: Callable[[bytes], bytes]
) -> None:
    meddler, open_channel = through
    done: list[int] = []

    def meddle(data: bytes, goes: Way, before: int) -> bytes:
        if goes == way and before > 20 * SIZE and not done:
            done.append(before)
            return change(data)
        return data

    meddler.meddle = meddle
    assert lost(open_channel).how in {"ended", "garbled", "silent"}
    assert done


def test_delay_of_a_second_changes_nothing(through: Through) -> None:
    meddler, open_channel = through
    waited: set[Way] = set()

    def meddle(data: bytes, goes: Way, before: int) -> bytes:
        if before > SIZE and goes not in waited:
            waited.add(goes)
            time.sleep(1.0)
        return data

    meddler.meddle = meddle
    with open_channel() as channel:
        assert echoed(channel, 20) == 20
    assert waited == {"to the agent", "to the client"}


def test_standstill_of_more_than_ten_seconds_is_a_loss(through_ssh: Through, through_tls: Through) -> None:
    freeze, thaw, both = threading.Event(), threading.Event(), threading.Barrier(2)
    found: list[ConnectionLostError] = []

    def meddle(data: bytes, _goes: Way, _before: int) -> bytes:
        if freeze.is_set():
            thaw.wait(PATIENCE_S)
        return data

    def talk(open_channel: Callable[[], Channel]) -> None:
        found.append(lost(open_channel, lambda: (both.wait(PATIENCE_S), freeze.set())))

    threads = []
    for meddler, open_channel in (through_ssh, through_tls):
        meddler.meddle = meddle
        threads.append(threading.Thread(target=talk, args=(open_channel,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    thaw.set()
    assert [(each.how, str(each)) for each in found] == [("silent", "b was silent for 10 s")] * 2
    for meddler, open_channel in (through_ssh, through_tls):
        meddler.meddle = lambda data, _way, _before: data
        with open_channel() as channel:
            assert echoed(channel, 3) == 3
