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
import threading
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
    from collections.abc import Iterable, Iterator

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed"),
]
EXTCAP = (sys.executable, "-m", "hopscope.verbs.wireshark.extcap", "--capture")
each_interface = pytest.mark.parametrize("interface", [extcap.PACKETS, extcap.EVENTS])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Lab() as lab, serving(lab, tmp_path_factory.mktemp("serve") / "events.sock") as made:
        yield made


@pytest.fixture(scope="module")
def stub() -> Iterator[Path]:
    """Install the stub; root's tshark looks into the system's folder alone."""
    done = run("wireshark", "--install")
    assert done.returncode == 0, done.stderr
    paths = [Path(line.partition(": ")[0]) for line in done.stdout.splitlines()]
    try:
        yield paths[0]
    finally:
        assert run("wireshark", "--uninstall").returncode == 0
    assert not any(path.exists() for path in paths)


@contextlib.contextmanager
def tshark(*words: object, **more: Any) -> Iterator[subprocess.Popen[str]]:  # noqa: ANN401 # as for Popen
    """Run it; whatever happens, it has ended at the end."""
    argv = ["tshark", *map(str, words)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more) as child:
        try:
            yield child
        finally:
            child.kill()


def let_others_in(folder: Path) -> None:
    """Let every user pass to a folder that pytest has made for root."""
    for each in (folder, *folder.parents):
        if each.is_relative_to(Path(tempfile.gettempdir())):
            each.chmod(stat.S_IMODE(each.stat().st_mode) | 0o011)


def captures() -> list[int]:
    """Return the processes that a viewer has started to capture."""
    found = []
    # A glob for more fails where a process ends meanwhile.
    for pid in (each.name for each in Path("/proc").iterdir() if each.name.isdigit()):
        try:
            words = Path("/proc", pid, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"hopscope.verbs.wireshark.extcap" in words:
            found.append(int(pid))
    return found


def test_a_users_tshark_lists_the_interface_and_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    let_others_in(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    # No Python is started to answer.
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    path, script = install.put()
    assert path == tmp_path / ".config" / "wireshark" / "extcap" / "hopscope"
    assert script == tmp_path / ".local" / "lib" / "wireshark" / "plugins" / "hopscope_events.lua"

    def shown(*words: str | Path) -> str:
        done = subprocess.run(words, capture_output=True, text=True, check=True, user="nobody", group="nogroup")
        return done.stdout + done.stderr

    listed = shown("tshark", "-D")
    options = ["--where", "--points", "--since", "--socket"]
    for name, title, more in (("hopscope", "packets with their hops", []), ("hopscope-events", "events", ["--events"])):
        assert re.search(rf"^\d+\. {name} \(hopscope: {title}\)$", listed, re.MULTILINE), listed
        assert "EN10MB (Ethernet)" in shown("tshark", "-i", name, "-L")
        asked = shown(path, "--extcap-config", "--extcap-interface", name)
        assert sorted(re.findall(r"\{call=(--\w+)\}", asked)) == sorted(options + more)
    # The script is there, and its fields are known.
    assert "hopwire.hop" in shown("tshark", "-G", "fields")
    assert install.remove() == [path, script]
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
def test_events_with_the_catalogue_and_a_capture_filter(server: Server) -> None:
    fields = ("kind", "point", "hop", "source_port", "comm", "e_net_net_dev_queue.len", "field", "host", "lost")
    preferences = {"socket": server.path, "points": "rx.core,tx.queue", "events": "net:net_dev_queue"}
    options = [word for name, value in preferences.items() for word in ("-o", f"extcap.hopscope_events.{name}:{value}")]
    shown = [word for name in fields for word in ("-e", f"hopwire.{name}")]
    environment = {**os.environ, "HOPSCOPE_EVENT_FIELDS": "e_net_net_dev_queue.len:number"}
    with udp_pair(way(server.lab, "veth-4")) as (sender, receiver), udp_pair(way(server.lab, "veth-4")) as (other, _):
        port = sender.getsockname()[1]
        # The source port of an event, behind the header of Ethernet; the catalogue; and what has no flow.
        wanted = f"ether[86:2] = {port} or ether[15] = 255 or ether[86:2] = 0"
        words = ("-i", "hopscope-events", "-f", wanted, "-l", "-T", "fields", *shown, *options)
        rows: list[list[str]] = []
        with tshark(*words, env=environment) as child:
            assert child.stdout
            reader = threading.Thread(target=lambda: rows.extend(_rows(child.stdout)))
            reader.start()
            eventually(lambda: server.programs() > 0)

            def has_come() -> bool:
                other.send(bytes(20))
                sender.send(bytes(10))
                told = {(row[1], bool(row[4])) for row in rows if row[3] == str(port)}
                return {("rx.core", True), ("tx.queue", True)} <= told and sum(row[0] == "255" for row in rows) > 3

            eventually(has_come)
            child.terminate()
            reader.join()
    assert receiver.fileno() == -1
    assert {row[3] for row in rows} == {"", str(port)}
    assert {row[1] for row in rows if row[0] == "0"} <= {"rx.core", "tx.queue", "e_net_net_dev_queue"}
    assert all(float(row[2]) > 0 for row in rows if row[1] == "rx.core" and row[2])
    assert any(row[5].isdigit() and "skbaddr" in row[6] for row in rows if row[1] == "e_net_net_dev_queue")
    catalogues = [row for row in rows if row[0] == "255" and row[8]]
    assert catalogues[0] == rows[0]
    eventually(lambda: not captures())


def _rows(lines: Iterable[str]) -> Iterator[list[str]]:
    for line in lines:
        yield line.rstrip("\n").split("\t")


@each_interface
@pytest.mark.usefixtures("stub")
def test_nothing_is_left_of_a_viewer_that_is_killed(server: Server, interface: str) -> None:
    preference = f"extcap.{interface.replace('-', '_')}.socket:{server.path}"
    words = ("-i", interface, "-o", preference, "-w", "/dev/null")
    with tshark(*words, start_new_session=True) as child:
        eventually(lambda: len(captures()) > 0 and server.programs() > 0)
        child.kill()
        # dumpcap finds out that nobody listens to it, and no packet comes: then the capture does.
        eventually(lambda: not captures())


@each_interface
def test_it_ends_when_nobody_reads(server: Server, interface: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    argv = [*EXTCAP, "--extcap-interface", interface, "--fifo", pipe, "--socket", server.path]
    with subprocess.Popen(argv, stderr=subprocess.PIPE) as child:
        reader = os.open(pipe, os.O_RDONLY)
        assert os.read(reader, 4) == b"\x0a\x0d\x0d\x0a"
        os.close(reader)
        _, said = child.communicate(timeout=TIMEOUT_S)
    assert (child.returncode, said) == (0, b"")


@each_interface
def test_a_pipe_of_another_user_where_pipes_are_protected(
    server: Server, interface: str, tmp_path_factory: pytest.TempPathFactory
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
        argv = [*EXTCAP, "--extcap-interface", interface, "--fifo", pipe, "--socket", server.path]
        with subprocess.Popen(argv) as child:
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
