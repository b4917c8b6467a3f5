# SPDX-License-Identifier: Apache-2.0
"""Several hosts at once, through a real ssh, before which a program of the test stands."""

from __future__ import annotations

import os
import shlex
import signal
from typing import TYPE_CHECKING

import pytest

from hopscope.agent import connect_all
from hopscope.agent.connect_all import connected
from hopscope.agent.ssh import Ssh
from hopscope.agent.target import Target
from hopscope.errors import ConnectionLostError, HostsError
from hopscope.lab import Namespace
from tests.agent.test_ssh import SERVING, Host
from tests.lab.command import complaint, ended, hopscope, start
from tests.lab.sshd import Sshd, client
from tests.waiting import eventually, wait_ended

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.root
NAMES = ("a", "b", "c")


class Hosts(Host):
    """Hosts a, b and c on one address, each with an sshd; `ssh` knows them."""

    def __init__(self, folder: Path, namespace: Namespace) -> None:
        self.folder, self.namespace = folder, namespace
        self.servers = {name: Sshd(namespace, folder / name, port=2200 + number) for number, name in enumerate(NAMES)}
        self.ssh = client(folder, self.servers, namespace)

    def before(self, script: str) -> Ssh:
        """Return an ssh that a shell's script stands before; `$HERE` is a folder for it, `$NAME` the host."""
        return Ssh.of(self.words(script), SERVING)

    def words(self, script: str) -> str:
        path = self.folder / "ssh"
        find = 'for NAME; do [ "$LAST" = -- ] && break; LAST=$NAME; done'
        path.write_text(f'HERE={shlex.quote(str(self.folder))}\n{find}\n{script}\nexec {self.ssh} "$@"\n')
        return f"sh {path}"

    def log(self) -> list[str]:
        return (self.folder / "told").read_text().splitlines()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with Namespace() as namespace:
        made = Hosts(tmp_path, namespace)
        yield made
        for each in made.servers.values():
            each.close()


def targets(*names: str) -> list[Target]:
    return [Target.parse(name) for name in names]


def test_all_are_reached_at_the_same_time(hosts: Hosts) -> None:
    # Each waits for the others: one after the other, they would never come.
    ssh = hosts.before('touch "$HERE/here.$NAME"; until [ "$(ls "$HERE" | grep -c ^here)" = 3 ]; do sleep 0.05; done')
    with connected(targets("b", "c", "a"), ssh) as channels:
        assert [channel.name for channel in channels] == ["b", "c", "a"]
        ports = [channel.hello.connection.server_port for channel in channels if channel.hello.connection]
        assert ports == [2201, 2202, 2200]
    assert all(channel.lost for channel in channels)


def test_no_more_at_the_same_time_than_may_be(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_all, "_AT_ONCE", 2)
    ssh = hosts.before(
        'mkdir "$HERE/now.$NAME"; ls "$HERE" | grep -c ^now >>"$HERE/told"; sleep 0.2; rmdir "$HERE/now.$NAME"; exit 1'
    )
    with pytest.raises(HostsError), connected(targets(*NAMES), ssh):
        pass
    assert len(hosts.log()) == len(NAMES)
    assert max(map(int, hosts.log())) <= 2


def test_who_has_to_be_asked_something_is_asked_one_after_the_other(hosts: Hosts) -> None:
    ssh = hosts.before('case "$*" in *BatchMode*) [ "$NAME" = b ] || exit 255;; esac; echo "$NAME" >>"$HERE/told"')
    with connected(targets(*NAMES), ssh) as channels:
        assert [channel.name for channel in channels] == [*NAMES]
    assert hosts.log() == ["b", "a", "c"]


def test_a_single_host_is_asked_at_once(hosts: Hosts) -> None:
    with connected(targets("a"), hosts.before('echo "$*" >>"$HERE/told"')):
        pass
    (words,) = hosts.log()
    assert "BatchMode" not in words


def test_each_host_that_fails_is_said_in_the_order_of_the_command_line(hosts: Hosts) -> None:
    ssh = hosts.before('[ "$NAME" = b ] || { echo "$NAME" >>"$HERE/told"; exit 255; }')
    with pytest.raises(HostsError) as raised, connected(targets("c", "b", "a"), ssh):
        pass
    assert [str(error).partition(". Try")[0] for error in raised.value.errors] == [
        "c sent no greeting: ssh failed, see its message above",
        "a sent no greeting: ssh failed and could not ask for a password",
    ]
    # Nobody is asked for a's password when c cannot be had.
    assert sorted(hosts.log()[:2]) == ["a", "c"]
    assert hosts.log()[2:] == ["c"]


def test_what_asking_does_not_mend_is_not_tried_again(hosts: Hosts) -> None:
    ssh = hosts.before('echo "$NAME" >>"$HERE/told"; [ "$NAME" != a ] || exit 3')
    said = r"^a sent no greeting: .* ended there with exit code 3$"
    with pytest.raises(ConnectionLostError, match=said), connected(targets(*NAMES), ssh):
        pass
    assert sorted(hosts.log()) == [*NAMES]


def test_a_line_for_each_host(hosts: Hosts) -> None:
    words = ("--host", "a", "--host", "b", "--host", "c", "--ssh", hosts.words('[ "$NAME" = b ] || exit 127'))
    done = hopscope("rx", *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert [line.partition(":")[0] + line.partition(":")[2].partition(":")[0] for line in done.stderr.splitlines()] == [
        f"hopscope {name} sent no greeting" for name in ("a", "c")
    ]
    assert complaint(hopscope("rx", *words[2:4], "--host", "c", *words[6:]), 1).startswith("c sent no greeting: ")


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["rx", "record", "clock"])
def test_ctrl_c_while_they_are_reached_leaves_nothing(hosts: Hosts, verb: str) -> None:
    hanging = hosts.words('echo $$ >>"$HERE/told"; [ "$NAME" = b ] || exec sleep 1000')
    more = ("-o", hosts.folder / "out") if verb == "record" else ()
    named = [word for name in NAMES for word in ("--host", name)]
    child = start(verb, *named, "--ssh", hanging, *more, start_new_session=True)
    eventually(lambda: (hosts.folder / "told").exists() and len(hosts.log()) == len(NAMES), "not all were tried")
    eventually(lambda: bool(hosts.servers["b"].sessions()), "b was not reached")
    os.killpg(child.pid, signal.SIGINT)
    code, out, err = ended(child)
    assert (code, out, err.strip()) == (130, "", "")
    for pid in map(int, hosts.log()):
        wait_ended(pid)
    eventually(lambda: not hosts.servers["b"].sessions(), "an agent is left")
    assert not (hosts.folder / "out").exists()
