# SPDX-License-Identifier: Apache-2.0
"""Browsers on other machines: who gets the page over mutual TLS, and who gets nothing."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import ssl
import subprocess
from typing import TYPE_CHECKING, NamedTuple

import pytest

from hopscope.agent.allow import AllowList
from hopscope.errors import UsageError
from hopscope.live.clients import Clients
from hopscope.verbs.web.command import command
from hopscope.verbs.web.guard import Place
from tests.agent.certificates import EXPIRED, LO, Authority, agent_files, client_files
from tests.lab.command import HOPSCOPE, environ
from tests.verbs.web.served import RECORDINGS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hopscope.agent.tls import TlsFiles


class Served(NamedTuple):
    authority: Authority
    port: int
    token: str
    child: subprocess.Popen[str]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    authority = Authority.new(tmp_path_factory.mktemp("web") / "ca")
    argv = [*HOPSCOPE, "web", *_words(agent_files(authority)), "--allow=oncall", str(RECORDINGS / "udp")]
    with subprocess.Popen(argv, env=environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout
        base, token = child.stdout.readline().strip().split("/#token=")
        assert base.startswith(f"https://{LO}:")
        yield Served(authority, int(base.rpartition(":")[2]), token, child)
        child.send_signal(signal.SIGINT)
    assert child.returncode == 0


def _words(files: TlsFiles) -> list[str]:
    return [f"--listen={LO}:0", f"--tls-cert={files.certificate}", f"--tls-key={files.key}",
            f"--tls-ca={files.authority}"]  # fmt: skip


def _get(
    served: Served, files: TlsFiles | None, path: str = "/", body: object = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    context = ssl.create_default_context(cafile=served.authority.certificate)
    if files:
        context.load_cert_chain(files.certificate, files.key)
    connection = http.client.HTTPSConnection(LO, served.port, timeout=60, context=context)
    with contextlib.closing(connection):
        connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


def test_an_allowed_client_gets_the_page_and_with_the_token_its_data(served: Served) -> None:
    files = client_files(served.authority)
    assert b"<!doctype html>" in _get(served, files)[2].lower()
    assert _get(served, files, "/api/about")[0] == 401
    origin = f"https://{LO}:{served.port}"
    status, headers, _ = _get(served, files, "/api/session", {"token": served.token}, Origin=origin)
    cookie = headers["set-cookie"]
    assert (status, cookie.split("; ")[1:]) == (204, ["HttpOnly", "SameSite=Strict", "Path=/", "Secure"])
    about = json.loads(_get(served, files, "/api/about", Cookie=cookie.partition(";")[0])[2])
    assert about["recording"]
    assert _get(served, files, "/api/about", Origin=f"http://{LO}:{served.port}")[0] == 403
    for host in ("localhost", f"localhost:{served.port}", "evil.example"):
        assert _get(served, files, Host=host)[0] == 400


def test_another_client_of_the_ca_gets_nothing(served: Served) -> None:
    status, _, body = _get(served, client_files(served.authority, "guest"), "/api/session", {"token": served.token})
    assert (status, body) == (403, b"hopscope: your certificate is not on the list of clients (--allow).")
    assert served.child.stderr
    assert "guest (sha256:" in (line := served.child.stderr.readline())
    assert line.endswith("is refused: it is not on the list of clients (--allow)\n")


@pytest.mark.parametrize("wrong", ["none", "expired", "of another CA", "for servers"])
def test_without_a_certificate_that_holds_there_is_no_handshake(served: Served, wrong: str, tmp_path: Path) -> None:
    files = {
        "none": lambda: None,
        "expired": lambda: client_files(served.authority, **EXPIRED),
        "of another CA": lambda: client_files(Authority.new(tmp_path / "other")),
        "for servers": lambda: agent_files(served.authority),
    }[wrong]()
    with pytest.raises((ssl.SSLError, ConnectionError)):
        _get(served, files)


def test_plain_http_is_not_spoken(served: Served) -> None:
    connection = http.client.HTTPConnection(LO, served.port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", "/")
        with pytest.raises(ConnectionError):
            connection.getresponse()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--listen=127.0.0.1:0"], "needs a certificate, its key"),
        (["--allow=oncall"], "need --listen"),
        (["--listen=127.0.0.1:0", "--port=8080"], "--port is of this machine's own address"),
    ],
)
def test_halves_of_it_are_refused(words: list[str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        command.main([*words, str(RECORDINGS / "udp")], standalone_mode=False)


@pytest.mark.parametrize(
    ("where", "origin"), [("localHost:443", "https://localhost"), ("[0::1]:8443", "https://[::1]:8443")]
)
def test_the_origin_is_as_browsers_write_it(served: Served, where: str, origin: str) -> None:
    clients = Clients.of(where, agent_files(served.authority), AllowList.of(("oncall",), None))
    assert Place("https", (clients.host_in_url,), clients.port).origins() == (origin,)


def test_an_address_that_no_browser_has_is_refused(served: Served) -> None:
    words = [*_words(agent_files(served.authority))[1:], "--allow=oncall", str(RECORDINGS / "udp")]
    with pytest.raises(UsageError, match="by which address browsers reach the page"):
        command.main(["--listen=0.0.0.0:0", *words], standalone_mode=False)
