# SPDX-License-Identifier: Apache-2.0
"""Who may read metrics is refused, or let in, before anything is measured."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from hopscope.agent.tls import Tls
from hopscope.errors import UsageError
from hopscope.verbs.serve.access import Access
from tests.agent.certificates import Authority, agent_files
from tests.lab.command import complaint, hopscope

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "0123456789abcdef"  # noqa: S105 # of this test
EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 # nothing listens there


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.new(tmp_path_factory.mktemp("serve") / "ca")


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    return path


def test_without_protection_only_this_machine_reaches_it(token_file: Path) -> None:
    for host in ("127.0.0.1", "[::1]", "localhost", "127.3.2.1"):
        assert Access.of(f"{host}:0", Tls(None, None, None), (), None, None).secured is None
    for host in (EVERY_ADDRESS, "[::]", "192.0.2.1", "host.example"):
        with pytest.raises(UsageError, match="anybody could read what it serves"):
            Access.of(f"{host}:0", Tls(None, None, None), (), None, None)
        with pytest.raises(UsageError, match="must not be sent in the clear"):
            Access.of(f"{host}:0", Tls(None, None, None), (), None, token_file)


def test_tls_alone_protects_nothing(authority: Authority, token_file: Path) -> None:
    files = agent_files(authority)
    tls = Tls(files.certificate, files.key, files.authority)
    with pytest.raises(UsageError, match="anybody could read"):
        Access.of(f"{EVERY_ADDRESS}:0", tls, (), None, None)
    assert Access.of(f"{EVERY_ADDRESS}:0", tls, ("oncall",), None, None).secured
    with_token = Access.of(f"{EVERY_ADDRESS}:0", Tls(files.certificate, files.key, None), (), None, token_file)
    assert (bool(with_token.secured), with_token.token) == (True, TOKEN)


@pytest.mark.parametrize(("text", "mode"), [("", 0o600), ("short", 0o600), ("é" * 20, 0o600), (TOKEN, 0o644)])
def test_a_token_that_is_none_or_that_others_can_read_is_refused(tmp_path: Path, text: str, mode: int) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(UsageError, match="holds no token" if mode == 0o600 else "other than its owner can read"):
        Access.of("127.0.0.1:0", Tls(None, None, None), (), None, path)


def test_bad_options_are_one_sentence(tmp_path: Path) -> None:
    assert complaint(hopscope("serve"), 2).startswith("There is nothing to serve. Give --listen")
    assert "cannot be read" in complaint(hopscope("serve", "--listen=[::1]:0", f"--token-file={tmp_path}/none"), 2)


@pytest.mark.root
def test_a_port_that_is_taken_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = complaint(hopscope("serve", f"--listen=127.0.0.1:{port}"), 2)
    assert said.startswith(f"Cannot listen at 127.0.0.1:{port}: another program does so already. Give another port")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("listen = [", "is not TOML"),
        ("lsten = '127.0.0.1:0'", "has lsten, which is no option"),
        ("check = true", "has check, which is no option"),
        ("collect = 'rx'", "collect is not a list"),
        ("collect = ['arp']", "'arp' is not one of"),
        ("interval = 0", "0.0 is not in the range"),
        ("token-file = '/none'", "/none cannot be read"),
        ("listen = '0.0.0.0:0'", "anybody could read"),
    ],
)
def test_a_configuration_is_checked(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "serve.toml"
    path.write_text(text if text.startswith("listen = '0") else f"{text}\n")
    words = () if "listen" in text else ("--listen=127.0.0.1:0",)
    assert sentence in complaint(hopscope("serve", "--check", f"--config={path}", *words), 2)


def test_options_come_before_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "serve.toml"
    path.write_text("listen = '0.0.0.0:0'\ncollect = ['check']\ngroup-by = 'interface'\ninterval = 2\nport = [80]\n")
    done = hopscope("serve", "--check", f"--config={path}", "--listen=127.0.0.1:0")
    assert (done.returncode, done.stdout, done.stderr) == (0, "The options are valid.\n", "")
    path.chmod(0o666)
    assert "users other than its owner can write it" in complaint(hopscope("serve", f"--config={path}"), 2)
