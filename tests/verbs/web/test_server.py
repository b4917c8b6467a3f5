# SPDX-License-Identifier: Apache-2.0
"""Who may ask the server, and which processes are behind it."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import socket
import tarfile
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

import hopscope
from hopscope.errors import HopscopeError, UsageError
from hopscope.live.processes import forked
from hopscope.verbs.web import serve
from hopscope.verbs.web.collector import Sender, listen
from hopscope.verbs.web.command import command
from tests.lab.command import hopscope as run
from tests.lab.command import start
from tests.verbs.web.served import RECORDINGS, Site, children, serving
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.verbs.frames.source import Request

IS_ROOT = os.geteuid() == 0
NOBODY = 65534


@pytest.fixture(scope="module")
def site(hostile: Path) -> Iterator[Site]:
    with serving(hostile) as made:
        yield made


# ---- who may ask ----


@pytest.mark.parametrize("path", ["/api/about", "/api/events", "/api/flame.svg", "/api/download/csv"])
def test_without_the_cookie_there_is_no_data(site: Site, path: str) -> None:
    status, _, body = site.send(path, cookie=False)
    assert status == 401
    assert b"token" in body
    assert b"recorder" not in body
    assert site.send(path, cookie=False, Cookie=site.cookie[:-1] + "!")[0] == 401


def test_without_the_token_there_is_no_cookie(site: Site) -> None:
    for token in ("", site.token[:-1], None, 1, [site.token]):
        status, headers, _ = site.send("/api/session", {"token": token}, cookie=False)
        assert status == 401
        assert "set-cookie" not in headers
    status, headers, _ = site.send("/api/session", {"token": site.token}, cookie=False)
    assert (status, headers["set-cookie"].split("; ")[1:]) == (204, ["HttpOnly", "SameSite=Strict", "Path=/"])
    assert site.token not in headers["set-cookie"]


@pytest.mark.parametrize("path", ["/", "/api/about"])
def test_other_names_of_this_machine_are_refused(site: Site, path: str) -> None:
    for host in ("evil.example", f"evil.example:{site.port}", "127.0.0.1.evil.example", ""):
        assert site.send(path, Host=host or "0")[0] == 400
    assert site.send(path, Host=f"localhost:{site.port}")[0] == 200


def test_other_sites_are_refused_even_with_the_cookie(site: Site) -> None:
    question = {"ask": "report", "name": "hops"}
    other_port = f"http://127.0.0.1:{site.port - 1}"
    for origin in ("https://evil.example", "null", other_port, f"https://127.0.0.1:{site.port}"):
        assert site.send("/api/ask", question, Origin=origin)[0] == 403
        assert site.send("/api/about", Origin=origin)[0] == 403
    assert site.send("/api/ask", question, Origin="")[0] == 403
    for where in ("cross-site", "same-site"):
        assert site.send("/api/about", Sec_Fetch_Site=where)[0] == 403
    status, headers, _ = site.send("/api/about")
    assert status == 200
    assert not [name for name in headers if name.startswith("access-control")]
    assert "unsafe" not in headers["content-security-policy"]


def test_nobody_else_can_reach_it_and_it_has_no_rights(site: Site) -> None:
    of_port = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines() if f":{site.port:04X} " in line]
    assert {line[1].partition(":")[0] for line in of_port if line[3] == "0A"} == {"0100007F"}
    keeper, server = children(site.child.pid)

    def states(*pids: int) -> list[dict[str, str]]:
        return [dict(re.findall(r"(\w+):\t(.*)", Path(f"/proc/{pid}/status").read_text())) for pid in pids]

    def confined() -> list[dict[str, str]]:
        """Return the states of those that read and serve, once all have given up what they do not need."""
        found = states(*children(keeper), server)
        return found if {(each["NoNewPrivs"], each["Seccomp"]) for each in found} == {("1", "2")} else []

    status = eventually(confined, "a process has a right that it does not need")
    assert len(status) == 4  # three that read the recording, and the server, which is the last
    status = [*states(keeper), *status]
    assert {each["NoNewPrivs"] for each in status} == {"1"}
    assert {each["CapEff"] for each in status} == {"0" * 16}
    if IS_ROOT:
        assert {each["CapBnd"] for each in status} == {"0" * 16}
        assert int(status[-1]["Uid"].split()[0]) == int(os.environ.get("SUDO_UID", "65534"))
        assert {each["Groups"].strip() for each in status} == {""}


def test_an_export_is_the_command_s(site: Site, hostile: Path, tmp_path: Path) -> None:
    status, headers, data = site.send(f"/api/download/csv?options={quote(json.dumps({'until': 1.0}))}")
    run("export", "csv", "--until=1.0", hostile, "-o", tmp_path / "a.csv")
    assert (status, data) == (200, (tmp_path / "a.csv").read_bytes())
    assert headers["content-disposition"] == 'attachment; filename="hopscope.csv"'
    assert site.send("/api/download/perfetto")[2][:1] == b"\n"
    status, headers, data = site.send("/api/download/ctf")
    assert (status, headers["content-disposition"]) == (200, 'attachment; filename="hopscope.ctf.tar"')
    run("export", "ctf", hostile, "-o", tmp_path / "ctf")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        sent = {each.name: archive.extractfile(each).read() for each in archive.getmembers()}  # type: ignore[union-attr]
    assert sent == {f"ctf/{each.name}": each.read_bytes() for each in (tmp_path / "ctf").iterdir()}
    assert site.send("/api/download/zip")[0] == 400


# ---- what cannot be ----


def test_what_cannot_be_served_is_a_sentence(site: Site, hostile: Path, tmp_path: Path) -> None:
    for words, sentence in (
        ((tmp_path,), "is not a trace"),
        (("--port", site.port, hostile), f"Port {site.port} of 127.0.0.1 cannot be used"),
    ):
        done = run("web", "--no-browser", *words)
        assert done.returncode not in {0, 77}
        assert sentence in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.root
def test_an_owner_who_cannot_read_hopscope_is_a_sentence(tmp_path: Path) -> None:
    recording = shutil.copytree(RECORDINGS / "udp", tmp_path / "udp")
    for each in (recording, *recording.rglob("*")):
        os.chown(each, NOBODY, NOBODY)
    code = tmp_path / "code"
    code.mkdir(mode=0o700)
    (code / "hopscope").symlink_to(Path(hopscope.__file__).parent)
    done = run("web", "--no-browser", recording, before=("env",), PYTHONPATH=str(code))
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"hopscope: User {NOBODY}, who owns {recording} and reads it for the page, cannot read "
    )
    assert done.stderr.count("\n") == 1


def test_who_lacks_the_server_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hopscope.verbs.web.command.find_spec", lambda name: None if name == "uvicorn" else name)
    with pytest.raises(UsageError, match=r"needs Starlette and uvicorn. Install them: pip install 'hopscope\[web\]'"):
        command.main(["--no-browser"], standalone_mode=False)


def test_it_ends_when_a_process_behind_it_does(tmp_path: Path) -> None:
    child = start("web", "--no-browser", shutil.copytree(RECORDINGS / "udp", tmp_path / "udp"))
    assert child.stdout
    assert child.stderr
    child.stdout.readline()
    os.kill(children(child.pid)[0], signal.SIGKILL)
    assert child.wait() == 1
    assert "The process that reads the recording was killed by SIGKILL (" in child.stderr.read()
    eventually(
        lambda: (
            not [each for each in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in each.read_bytes()]
            or None
        )
    )


def test_where_nobody_can_start_a_reader_it_is_one_sentence() -> None:
    for unread in (b"", b"!"):
        ours, theirs = socket.socketpair()
        ours.send(unread)
        theirs.close()
        with ours, pytest.raises(HopscopeError, match="has ended"):
            serve._reader(ours, 0, {forked(lambda: None): "reads the recording"})


def test_who_measures_ends_in_silence_with_who_serves() -> None:
    ours, theirs = socket.socketpair()
    ours.send(b"a frame")
    theirs.close()  # with that unread
    requests: SimpleQueue[Request] = SimpleQueue()
    with ours, ours.makefile("rb") as asked, ours.makefile("wb") as out:
        listen(asked, requests, Sender(out))
    assert requests.get(block=False) is None
