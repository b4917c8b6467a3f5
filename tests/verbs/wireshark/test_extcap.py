# SPDX-License-Identifier: Apache-2.0
"""Capturing from ``hopscope serve --socket`` in tshark, by the stub that ``wireshark --install`` puts there."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hopscope.errors import UsageError
from hopscope.lab import Lab
from hopscope.verbs.wireshark import extcap, install
from tests.lab.command import complaint
from tests.lab.command import hopscope as run
from tests.lab.measure import udp_pair, way
from tests.verbs.serve.test_socket import Server, serving
from tests.waiting import TIMEOUT_S, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed"),
]
EXTCAP = (sys.executable, "-m", "hopscope.verbs.wireshark.extcap", "--capture", "--extcap-interface", "hopscope")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Lab() as lab, serving(lab, tmp_path_factory.mktemp("serve") / "events.sock") as made:
        yield made


@pytest.fixture(scope="module")
def stub() -> Iterator[Path]:
    """Install the stub; root's tshark looks into the system's folder alone."""
    done = run("wireshark", "--install")
    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.partition(": ")[0])
    try:
        yield path
    finally:
        assert run("wireshark", "--uninstall").returncode == 0
    assert not path.exists()


def tshark(*words: object, **more: Any) -> subprocess.Popen[str]:  # noqa: ANN401 # as for Popen
    argv = ["tshark", *map(str, words)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def let_others_in(folder: Path) -> None:
    """Let every user pass to a folder that pytest has made for root."""
    for each in (folder, *folder.parents):
        if each.is_relative_to(Path(tempfile.gettempdir())):
            each.chmod(stat.S_IMODE(each.stat().st_mode) | 0o011)


def captures() -> list[int]:
    """Return the processes that a viewer has started to capture."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"hopscope.verbs.wireshark.extcap" in words:
            found.append(int(path.parent.name))
    return found


def test_a_users_tshark_lists_the_interface_and_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    let_others_in(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    # No Python is started to answer.
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    path = install.put()
    assert path == tmp_path / ".config" / "wireshark" / "extcap" / "hopscope"

    def shown(*words: str | Path) -> str:
        done = subprocess.run(words, capture_output=True, text=True, check=True, user="nobody", group="nogroup")
        return done.stdout + done.stderr

    listed = shown("tshark", "-D")
    assert re.search(r"^\d+\. hopscope \(hopscope: packets with their hops\)$", listed, re.MULTILINE), listed
    assert "EN10MB (Ethernet)" in shown("tshark", "-i", "hopscope", "-L")
    asked = shown(path, "--extcap-config", "--extcap-interface", "hopscope")
    assert re.findall(r"\{call=(--\w+)\}", asked) == ["--where", "--points", "--since", "--socket"]
    assert install.remove() == path
    with pytest.raises(UsageError, match="There is no"):
        install.remove()
    path.write_text("#!/bin/sh\n")
    for change in (install.put, install.remove):
        with pytest.raises(UsageError, match="was not written by hopscope"):
            change()


@pytest.mark.usefixtures("stub")
def test_datagrams_with_their_hops_and_a_capture_filter(server: Server) -> None:
    with udp_pair(way(server.lab, "veth-4")) as (sender, receiver), udp_pair(way(server.lab, "veth-4")) as (other, _):
        port = receiver.getsockname()[1]
        options = ("-o", f"extcap.hopscope.socket:{server.path}")
        fields = ("-T", "fields", "-e", "udp.dstport", "-e", "udp.length", "-e", "frame.comment")
        with tshark("-i", "hopscope", "-f", f"udp dst port {port}", "-l", "-c", 5, *options, *fields) as child:
            eventually(lambda: server.programs() > 0)
            while child.poll() is None:
                other.send(bytes(20))
                sender.send(bytes(10))
                # As fast as it goes, some would be lost, and told of.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(0.05)
            assert child.stdout
            rows = [line.rstrip("\n").split("\t") for line in child.stdout]
    assert len(rows) == 5
    for at, length, comment in rows:
        assert (at, length) == (str(port), "18")
        assert re.search(r" total=\d+\.\d{3}us .*rx\.core=\d+\.\d{3}us .*synthetic$", comment), comment
    eventually(lambda: not captures())


@pytest.mark.usefixtures("stub")
def test_nothing_is_left_of_a_viewer_that_is_killed(server: Server) -> None:
    words = ("-i", "hopscope", "-o", f"extcap.hopscope.socket:{server.path}", "-w", "/dev/null")
    with tshark(*words, start_new_session=True) as child:
        eventually(lambda: len(captures()) > 0 and server.programs() > 0)
        child.kill()
        # dumpcap finds out that nobody listens to it, and no packet comes: then the capture does.
        eventually(lambda: not captures())


def test_it_ends_when_nobody_reads_or_the_server_ends(server: Server, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen([*EXTCAP, "--fifo", pipe, "--socket", server.path], stderr=subprocess.PIPE) as child:
        reader = os.open(pipe, os.O_RDONLY)
        assert os.read(reader, 4) == b"\x0a\x0d\x0d\x0a"
        os.close(reader)
        _, said = child.communicate(timeout=TIMEOUT_S)
    assert (child.returncode, said) == (0, b"")


def test_a_pipe_of_another_user_where_pipes_are_protected(
    server: Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    setting = Path("/proc/sys/fs/protected_fifos")
    before = setting.read_text()
    folder = tmp_path_factory.mktemp("sticky")
    folder.chmod(0o1777)
    pipe = folder / "pipe"
    os.mkfifo(pipe, 0o666)
    os.chown(pipe, pwd.getpwnam("nobody").pw_uid, -1)
    try:
        setting.write_text("1")
        with subprocess.Popen([*EXTCAP, "--fifo", pipe, "--socket", server.path]) as child:
            reader = os.open(pipe, os.O_RDONLY)
            assert os.read(reader, 4) == b"\x0a\x0d\x0d\x0a"
            child.terminate()
            assert child.wait(TIMEOUT_S) == 0
            os.close(reader)
    finally:
        setting.write_text(before)


def test_who_may_not_subscribe_is_told_how(server: Server, tmp_path: Path) -> None:
    def sentence(*words: object) -> str:
        done = subprocess.run([*EXTCAP, *map(str, words)], capture_output=True, text=True, check=False)
        assert done.returncode
        return done.stderr.strip()

    pipe = tmp_path / "pipe"
    nowhere = sentence("--fifo", pipe, "--socket", tmp_path / "none")
    assert nowhere.endswith(f"Start it as root: hopscope serve --socket {tmp_path / 'none'}")
    assert nowhere == complaint(run("wireshark", "--live", "--text", "--socket", tmp_path / "none"), 2)
    assert "is not a valid packet filter" in sentence("--extcap-capture-filter", "udp prot")
    # It is root's, for there is no group.
    let_others_in(server.path.parent)
    reader, writer = os.pipe()
    if not (child := os.fork()):
        os.setgroups([])
        os.setuid(pwd.getpwnam("nobody").pw_uid)
        with open(writer, "w") as sys.stderr:  # noqa: PTH123 # a descriptor
            code = extcap.main(["--fifo", str(pipe), "--socket", str(server.path)])
        os._exit(code)
    os.close(writer)
    with open(reader) as said:  # noqa: PTH123 # a descriptor
        refused = said.read().strip()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert refused.endswith("Become a member of its group: usermod -aG hopscope USER")
