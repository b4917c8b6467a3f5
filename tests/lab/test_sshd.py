# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest

from hopscope import __version__
from hopscope.errors import UsageError
from hopscope.lab import Lab, Namespace
from hopscope.lab.veth import CLIENT_IPV4, SERVER_IPV6
from tests.lab.sshd import Sshd, client

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.root


def said(ssh: str, host: str, command: str) -> str:
    words = [*shlex.split(ssh), host, command]
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout


def test_who_logs_in_is_in_the_namespace_and_finds_hopscope(tmp_path: Path) -> None:
    with Namespace() as namespace, Sshd(namespace, tmp_path / "b") as sshd:
        ssh = client(tmp_path, {"b": sshd}, namespace)
        assert said(ssh, "b", "readlink /proc/self/ns/net") == f"net:[{namespace.inode}]\n"
        assert said(ssh, "b", "hopscope --version") == f"hopscope, version {__version__}\n"


def test_several_servers_are_known_by_name(tmp_path: Path) -> None:
    with (
        Lab() as lab,
        Sshd(lab.client, tmp_path / "a", address=CLIENT_IPV4) as a,
        Sshd(lab.server, tmp_path / "b", address=SERVER_IPV6, port=2222) as b,
    ):
        ssh = client(tmp_path, {"a": a, "b": b}, lab.client)
        for name, namespace in (("a", lab.client), ("b", lab.server)):
            assert said(ssh, name, "readlink /proc/self/ns/net") == f"net:[{namespace.inode}]\n"


def test_who_has_another_key_does_not_get_in(tmp_path: Path) -> None:
    with Namespace() as namespace, Sshd(namespace, tmp_path / "b") as sshd:
        ssh = client(tmp_path, {"b": sshd}, namespace)
        assert said(ssh, "b", "echo in") == "in\n"
        (sshd.folder / "user_key").unlink()
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(sshd.folder / "user_key")]
        (sshd.folder / "user_key.pub").rename(sshd.folder / "authorized")
        subprocess.run(words, check=True)
        (sshd.folder / "authorized").replace(sshd.folder / "user_key.pub")
        with pytest.raises(subprocess.CalledProcessError) as raised:
            said(ssh, "b", "echo in")
        assert "Permission denied (publickey)" in raised.value.stderr


def test_who_is_logged_in_is_ended_with_it(tmp_path: Path) -> None:
    with Namespace() as namespace:
        with Sshd(namespace, tmp_path / "b") as sshd:
            ssh = client(tmp_path, {"b": sshd}, namespace)
            words = [*shlex.split(ssh), "b", "echo in; cat"]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            with subprocess.Popen(words, **pipes) as session:
                assert session.stdout is not None
                assert session.stdout.readline() == b"in\n"
                assert sshd.sessions()
                sshd.close()
                assert session.wait() == 255
        assert sshd.sessions() == []


def test_settings_that_it_refuses_are_told(tmp_path: Path) -> None:
    with Namespace() as namespace, pytest.raises(UsageError, match="sshd does not start: "):
        Sshd(namespace, tmp_path / "b", address="192.0.2.1")
