# SPDX-License-Identifier: Apache-2.0
"""Who gets through to a listening agent, who does not, and what either side is told."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hopscope.agent import tls_connect, tls_listen
from hopscope.agent.allow import AllowList
from hopscope.agent.tls import ALPN, client_context, server_context
from hopscope.agent.tls_connect import reach
from hopscope.agent.tls_connection import TlsConnection
from hopscope.errors import ConnectionLostError, HopscopeError, RemoteError
from tests.agent.certificates import EXPIRED, LO, TO_COME, agent_files, client_files
from tests.agent.tls_pair import Listening, only_oncall, receive
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hopscope.agent.tls import TlsFiles
    from tests.agent.certificates import Authority

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def agent(ours: Authority) -> TlsFiles:
    return agent_files(ours)


@pytest.fixture(scope="module")
def oncall(ours: Authority) -> TlsFiles:
    return client_files(ours)


@pytest.fixture
def listening(agent: TlsFiles) -> Iterator[Listening]:
    made = Listening(agent, only_oncall)
    yield made
    made.close()


def said(listening: Listening, words: str) -> str:
    """Wait for a line of the log, and return it."""
    return eventually(
        lambda: next((line for line in listening.log() if words in line), ""), f"{words!r} is not in the log"
    )


def works(connection: TlsConnection) -> bool:
    connection.write([memoryview(b"hello")])
    return receive(connection, 5) == b"hello"


@contextlib.contextmanager
def client(listening: Listening, files: TlsFiles) -> Iterator[TlsConnection]:
    connection = reach(LO, listening.port, client_context(files))
    try:
        yield connection
    finally:
        connection.close()


def test_client_on_the_list_is_let_in_and_both_are_said(listening: Listening, oncall: TlsFiles) -> None:
    with client(listening, oncall) as connection:
        assert works(connection)
        assert re.fullmatch(
            r"127\.0\.0\.1:\d+: oncall \(sha256:[0-9a-f]{64}\) is connected", said(listening, "connected")
        )
    assert said(listening, "has disconnected")


@pytest.mark.parametrize(
    ("wrong", "to_the_client", "in_the_log"),
    [
        (EXPIRED, "rejects the certificate: it has expired", "presents a certificate that has expired"),
        (TO_COME, "rejects the certificate: it is not valid yet", "presents a certificate that is not valid yet"),
    ],
)
def test_client_whose_certificate_is_out_of_date_is_told(
    listening: Listening, ours: Authority, wrong: dict[str, str], to_the_client: str, in_the_log: str
) -> None:
    with pytest.raises(RemoteError, match=to_the_client):
        reach(LO, listening.port, client_context(client_files(ours, "late", **wrong)))
    assert re.fullmatch(r"127\.0\.0\.1:\d+ " + in_the_log + r".*", said(listening, in_the_log))


def test_client_of_another_authority_is_told(listening: Listening, ours: Authority, theirs: Authority) -> None:
    stranger = replace(client_files(theirs), authority=ours.certificate)
    with pytest.raises(RemoteError, match="rejects the certificate: it was issued by an unknown CA"):
        reach(LO, listening.port, client_context(stranger))
    assert said(listening, "presents a certificate that was issued by a CA other than those given")


def test_client_that_is_not_on_the_list_is_told(listening: Listening, ours: Authority) -> None:
    with pytest.raises(RemoteError, match="refuses this client: it is not on the list of clients"):
        reach(LO, listening.port, client_context(client_files(ours, "stranger")))
    assert re.search(r"stranger \(sha256:[0-9a-f]{64}\) is refused", said(listening, "refused"))


def test_certificate_of_an_agent_is_no_clients(agent: TlsFiles) -> None:
    listening = Listening(agent, lambda: AllowList.of(["nobody"]))
    try:
        with pytest.raises(RemoteError, match="rejects the certificate: it is for another purpose"):
            reach(LO, listening.port, client_context(agent))
    finally:
        listening.close()


def plain_context(files: TlsFiles, newest: ssl.TLSVersion) -> ssl.SSLContext:
    """Return a client's context without a certificate."""
    context = ssl.create_default_context(cafile=files.authority)
    context.set_alpn_protocols([ALPN])
    context.maximum_version = newest
    return context


def test_client_without_a_certificate_is_told(listening: Listening, oncall: TlsFiles) -> None:
    with pytest.raises(RemoteError, match="requires a certificate and received none"):
        reach(LO, listening.port, plain_context(oncall, ssl.TLSVersion.TLSv1_3))
    assert said(listening, "presents no certificate")


def test_client_with_an_older_tls_is_told(listening: Listening, oncall: TlsFiles) -> None:
    with pytest.raises(RemoteError, match=r"does not speak TLS 1\.3"):
        reach(LO, listening.port, plain_context(oncall, ssl.TLSVersion.TLSv1_2))
    assert said(listening, "does not speak TLS 1.3")


def test_client_of_another_protocol_is_turned_away(listening: Listening, oncall: TlsFiles) -> None:
    context = client_context(oncall)
    context.set_alpn_protocols(["http/1.1"])
    with pytest.raises(RemoteError, match="speaks TLS, but is not hopscope"):
        reach(LO, listening.port, context)
    assert said(listening, "speaks TLS, but is not hopscope")


@pytest.mark.parametrize(
    "words", [b"GET / HTTP/1.0\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n", b"hopscope\n" * 999, bytes(9999), b"\x16\x03\x01"]
)
def test_plaintext_is_said_and_answered_by_nothing_of_ours(listening: Listening, words: bytes) -> None:
    with socket.create_connection((LO, listening.port)) as stranger:
        stranger.sendall(words)
        stranger.shutdown(socket.SHUT_WR)
        answer = b""
        while more := stranger.recv(100):
            answer += more
    assert len(answer) in {0, 7}  # a TLS alert at most
    assert re.search(r"does not speak TLS|has hung up", said(listening, "127.0.0.1"))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({**EXPIRED}, "presents a certificate that has expired"),
        ({**TO_COME}, "presents a certificate that is not valid yet"),
    ],
)
def test_agent_whose_certificate_is_out_of_date_is_refused(
    ours: Authority, oncall: TlsFiles, wrong: dict[str, str], words: str
) -> None:
    assert_refused(agent_files(ours, **wrong), oncall, words)


def assert_refused(agent: TlsFiles, oncall: TlsFiles, words: str) -> None:
    listening = Listening(agent, only_oncall)
    try:
        with pytest.raises(RemoteError, match=words) as refused:
            reach(LO, listening.port, client_context(oncall))
        assert str(refused.value).startswith(f"The agent at {LO}:{listening.port} ")
    finally:
        listening.close()


def test_agent_of_another_authority_is_refused(ours: Authority, theirs: Authority, oncall: TlsFiles) -> None:
    agent = replace(agent_files(theirs), authority=ours.certificate)
    assert_refused(agent, oncall, "presents a certificate that was issued by a CA other than those given")


def test_agent_with_a_client_certificate_is_refused(ours: Authority, oncall: TlsFiles) -> None:
    agent = ours.files("both", f"subjectAltName=IP:{LO}", "extendedKeyUsage=clientAuth")
    assert_refused(agent, oncall, "presents a certificate that is for another purpose")


@pytest.mark.parametrize(("host", "words"), [(LO, "is for another address"), ("localhost", "is for another host name")])
def test_agent_with_another_name_is_refused(ours: Authority, oncall: TlsFiles, host: str, words: str) -> None:
    agent = ours.files("elsewhere", "subjectAltName=DNS:elsewhere.example.org", common=host)
    listening = Listening(agent, only_oncall)
    try:
        with pytest.raises(RemoteError, match=words):
            reach(host, listening.port, client_context(oncall))
        assert said(listening, "rejects the certificate")
    finally:
        listening.close()


@contextlib.contextmanager
def scripted(act: Callable[[socket.socket], object]) -> Iterator[int]:
    """Run a server that accepts one connection and does as it likes; yield its port."""

    def serve() -> None:
        sock, _ = listening.accept()
        with sock, contextlib.suppress(OSError, HopscopeError):
            act(sock)

    with socket.create_server((LO, 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            thread.join()


def old_tls(agent: TlsFiles, sock: socket.socket) -> None:
    context = server_context(agent)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    TlsConnection(sock, context, "the client").shake_hands(PATIENCE_S)


def some_service(agent: TlsFiles, sock: socket.socket) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(agent.certificate, agent.key)
    with context.wrap_socket(sock, server_side=True) as wrapped:
        wrapped.recv(1)


def stranger_with_our_alpn(agent: TlsFiles, sock: socket.socket) -> None:
    connection = TlsConnection(sock, server_context(agent), "the client")
    connection.shake_hands(PATIENCE_S)
    connection.write([memoryview(b"\x1b[2J" * 999)])
    connection.close()


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda _agent, sock: sock.sendall(b"SSH-2.0-OpenSSH_9.2\r\n") or sock.recv(9999), "does not speak TLS$"),
        (lambda _agent, sock: sock.recv(1), "(is gone: Connection reset by peer|has hung up)$"),
        (lambda _agent, sock: sock.recv(9999), "has hung up$"),
        (old_tls, r"does not speak TLS 1\.3$"),
        (some_service, "speaks TLS, but is not hopscope$"),
        (stranger_with_our_alpn, "speaks TLS, but is not hopscope$"),
    ],
)
def test_what_is_no_agent_is_said_in_a_sentence(
    agent: TlsFiles, oncall: TlsFiles, act: Callable[[TlsFiles, socket.socket], object], words: str
) -> None:
    with scripted(lambda sock: act(agent, sock)) as port, pytest.raises(HopscopeError, match=words) as refused:
        reach(LO, port, client_context(oncall))
    assert str(refused.value).isprintable()


def test_agent_that_says_nothing_is_given_up(oncall: TlsFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_connect, "HANDSHAKE_S", 0.05)
    with (
        scripted(lambda sock: sock.recv(1 << 16) and sock.recv(1)) as port,
        pytest.raises(ConnectionLostError, match="takes too long for the TLS handshake"),
    ):
        reach(LO, port, client_context(oncall))


def test_nobody_there_is_said(oncall: TlsFiles) -> None:
    with socket.create_server((LO, 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ConnectionLostError, match=rf"^The agent at {LO}:{port} cannot be reached: Connection refused$"):
        reach(LO, port, client_context(oncall))
    with pytest.raises(ConnectionLostError, match="cannot be reached: that is no host name"):
        reach("x" * 64 + ".example", port, client_context(oncall))


def test_strangers_that_say_nothing_keep_nobody_out(listening: Listening, oncall: TlsFiles) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(2 * tls_listen.MOST_STRANGERS):
            stack.enter_context(socket.create_connection((LO, listening.port)))
        with client(listening, oncall) as connection:
            assert works(connection)
        assert len(listening.listener._threads) <= tls_listen.MOST_STRANGERS + 2


def test_stranger_that_takes_too_long_is_sent_away(listening: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_listen, "HANDSHAKE_S", 0.05)
    with socket.create_connection((LO, listening.port)) as stranger:
        assert stranger.recv(1) == b""
    assert said(listening, "takes too long for the TLS handshake")


def test_client_that_does_not_read_holds_up_no_other(listening: Listening, oncall: TlsFiles) -> None:
    with client(listening, oncall) as greedy:
        writing = threading.Thread(target=flood, args=(greedy,))
        writing.start()
        while listening.listener._clients and not next(iter(listening.listener._clients))._writing.locked():
            time.sleep(0.005)
        with client(listening, oncall) as other:
            assert works(other)
        greedy.close()
        writing.join()


def flood(connection: TlsConnection) -> None:
    with contextlib.suppress(ConnectionLostError):
        while True:
            connection.write([memoryview(bytes(1 << 20))])


def test_no_more_clients_than_the_limit(
    listening: Listening, oncall: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_listen, "MOST_CLIENTS", 1)
    with client(listening, oncall) as first:
        with (
            pytest.raises(RemoteError, match="refuses this client: 1 clients are connected already"),
            client(listening, oncall),
        ):
            pass
        assert works(first)
    said(listening, "has disconnected")
    with client(listening, oncall) as second:
        assert works(second)


def test_list_in_a_file_is_read_anew_for_each_client(agent: TlsFiles, oncall: TlsFiles, tmp_path: Path) -> None:
    file = tmp_path / "clients"
    file.write_text("oncall\n")
    listening = Listening(agent, lambda: AllowList.of([], file))
    try:
        with client(listening, oncall) as connection:
            assert works(connection)
        for content in ("guest\n", ""):
            file.write_text(content)
            with pytest.raises(RemoteError, match="not on the list"):
                reach(LO, listening.port, client_context(oncall))
        file.unlink()
        with pytest.raises(RemoteError, match="not on the list"):
            reach(LO, listening.port, client_context(oncall))
        assert said(listening, "clients cannot be read: No such file")
    finally:
        listening.close()


def test_close_ends_every_connection_and_thread(agent: TlsFiles, oncall: TlsFiles) -> None:
    listening = Listening(agent, only_oncall)
    with client(listening, oncall) as connection, socket.create_connection((LO, listening.port)) as stranger:
        assert works(connection)
        eventually(lambda: len(listening.listener._strangers) == 1)  # the stranger has been accepted
        listening.close()
        assert receive(connection, 1) == b""
        assert stranger.recv(1) == b""
    assert not listening.listener._threads
    with pytest.raises(ConnectionLostError, match="Connection refused"):
        reach(LO, listening.port, client_context(oncall))
