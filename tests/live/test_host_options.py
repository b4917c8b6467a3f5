# SPDX-License-Identifier: Apache-2.0
"""What all verbs with --host share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.testing import CliRunner

from hopscope.agent.defaults import REMOTE_COMMAND
from hopscope.agent.ssh import Ssh
from hopscope.agent.target import parse_all
from hopscope.live.host_options import host_options
from tests.lab.command import hopscope

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def given(*args: str) -> dict[str, Any]:
    """Return what a verb with these options is called with."""
    taken: dict[str, Any] = {}

    @click.command()
    @host_options()
    def command(**what: Any) -> None:  # noqa: ANN401 - whatever there is
        taken.update(what)

    CliRunner().invoke(command, args, catch_exceptions=False)
    return taken


def test_without_options_there_is_no_host(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOPSCOPE_SSH", "HOPSCOPE_REMOTE_COMMAND"):
        monkeypatch.delenv(name, raising=False)
    taken = given()
    assert taken["hosts"] == ()
    assert Ssh.of(taken["ssh"], taken["remote_command"]) == Ssh(("ssh",), REMOTE_COMMAND)


def test_options_go_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPSCOPE_SSH", "ssh -v")
    monkeypatch.setenv("HOPSCOPE_REMOTE_COMMAND", "sudo -n hopscope agent")
    taken = given("--host", "a", "--host", "root@b,name=c", "--ssh", "ssh -F 'my settings'")
    assert [target.name for target in parse_all(taken["hosts"])] == ["a", "c"]
    assert Ssh.of(taken["ssh"], taken["remote_command"]) == Ssh(("ssh", "-F", "my settings"), "sudo -n hopscope agent")


def test_a_host_that_is_not_reached_is_one_sentence(tmp_path: Path) -> None:
    asked = ("record", "-o", tmp_path / "trace", "--host", "no-such-host.invalid")
    done = hopscope(*asked, HOPSCOPE_SSH="ssh -F /dev/null")
    said, sentence = done.stderr.splitlines()
    assert said.startswith("ssh: Could not resolve hostname no-such-host.invalid")
    assert sentence == (
        "hopscope: no-such-host.invalid sent no greeting: ssh failed, see its message above. "
        "Try ssh -F /dev/null no-such-host.invalid true, which has to work first"
    )
    assert done.returncode == 1
    assert not (tmp_path / "trace").exists()
