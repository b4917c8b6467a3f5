# SPDX-License-Identifier: Apache-2.0
"""``record --library`` of GnuTLS, Go's crypto/tls and OpenSSL in programs, beside what the programs say themselves."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Final

import pytest

from hopscope.store.trace import Trace
from hopscope.trace.selection import Selection
from hopscope.verbs.report.tls import summary, tls
from tests.lab.command import complaint, hopscope, start
from tests.shared import first
from tests.waiting import eventually

pytestmark = pytest.mark.root

HERE: Final = Path(__file__).parents[2] / "lab" / "tls"
PATH: Final = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin"))
STATIC: Final = "/usr/lib/x86_64-linux-gnu/libssl.a"


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not shutil.which(program, path=PATH), reason=f"{program} is not installed")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which Go builds programs."""
    return tmp_path_factory.mktemp("go")


def build(folder: Path, *words: str) -> Path:
    program = folder / "exchange"
    environment = {**os.environ, "GO111MODULE": "off", "GOCACHE": str(folder / "cache"), "CGO_ENABLED": "0"}
    subprocess.run(["go", "build", *words, "-o", program, HERE / "exchange.go"], check=True, env=environment)
    return program


@needs("go")
@pytest.mark.parametrize("flags", first([("-ldflags=-s -w",), ("-buildmode=pie",), ("-race=false",)]))
def test_goroutines_are_seen_with_their_sockets(tmp_path: Path, certificate: Path, built: Path, flags: str) -> None:
    program, folder = build(built, flags), tmp_path / "trace"
    words = ("--library", program, "--tls-bytes", 8, "-P", "calls", "-o", folder)
    done = hopscope("record", *words, "--", program, certificate)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[0])
    with Trace(folder) as trace:
        report = tls(trace, Selection(processes=(str(said["pid"]),)))
    names = [column.name for column in report.columns]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*map(report.column, names), strict=True)]
    counted = {(*key.split(),): sizes for key, sizes in said["counted"].items()}
    for kind in ("write", "read"):
        theirs = [size for key, sizes in counted.items() if key[0] == kind for size in sizes]
        assert sorted(row["result"] for row in rows if row["call"] == kind) == sorted(theirs)
    for (kind, is_client, port), sizes in counted.items():
        if kind == "write":
            client, server = f"127.0.0.1:{port}", f"127.0.0.1:{said['port']}"
            flow = f"{client} > {server}" if is_client == "1" else f"{server} > {client}"
            of_flow = [row for row in rows if row["call"] == "write" and row["flow_name"] == flow]
            assert [row["plain_bytes"] for row in of_flow] == sizes
            assert all(row["socket_bytes"] > row["plain_bytes"] for row in of_flow)
    assert {(row["library_ns"], row["calls"]) for row in rows} == {(None, None)}
    assert all(row["text"] == "x" * min(row["plain_bytes"], 8) for row in rows if row["plain_bytes"])


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """Return a program into which OpenSSL is linked."""
    program = tmp_path / "linked"
    words = ("-o", program, HERE / "linked.c", STATIC, STATIC.replace("ssl", "crypto"), "-ldl", "-lpthread")
    subprocess.run(["cc", *words], check=True)
    return program


@pytest.mark.skipif(not Path(STATIC).exists() or not shutil.which("cc"), reason="libssl-dev or cc is not installed")
def test_what_is_linked_into_a_program_is_recorded_unless_it_was_stripped(
    tmp_path: Path, certificate: Path, linked: Path
) -> None:
    folder = tmp_path / "trace"
    done = hopscope("record", "--library", linked, "-P", "calls", "-o", folder, "--", linked, certificate)
    assert done.returncode == 0, done.stderr
    with Trace(folder) as trace:
        report = summary(trace, Selection())
    rows = zip(*map(report.column, ("process", "call", "plain_bytes")), strict=True)
    theirs = (line.split() for line in done.stdout.splitlines() if line[0].isdigit())
    assert {*rows} == {(f"linked ({pid})", kind, int(total)) for pid, kind, total in theirs}
    assert sum(report.column("plain_bytes")) == 2 * (5 + 1_000 * 10)
    subprocess.run(["strip", linked], check=True)
    said = complaint(hopscope("record", "--library", linked, "-o", tmp_path / "none"), 2)
    assert f"{linked} is left out: OpenSSL or BoringSSL is linked into it, but it was stripped" in said


NGINX: Final = """
daemon off; pid {folder}/pid; error_log stderr; user root;
events {{}}
http {{
  log_format bytes '$http_user_agent $request_length $bytes_sent';
  access_log {folder}/access bytes;
  client_body_temp_path {folder}/t; proxy_temp_path {folder}/t; fastcgi_temp_path {folder}/t;
  uwsgi_temp_path {folder}/t; scgi_temp_path {folder}/t;
  server {{
    listen 127.0.0.1:{port} ssl; root {folder};
    ssl_certificate {certificate}/certificate; ssl_certificate_key {certificate}/key;
  }}
}}
"""
CLIENTS: Final = """
wget -q --ca-certificate=$1/certificate -O /dev/null $2/large $2/small
curl -s --http1.1 --cacert $1/certificate -o /dev/null -o /dev/null $2/large $2/small
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def listens(port: int) -> bool:
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@pytest.mark.slow
@needs("nginx")
@needs("wget")
@needs("curl")
def test_what_a_server_logs_is_what_it_and_its_clients_passed(tmp_path: Path, certificate: Path) -> None:
    port, folder = free_port(), tmp_path / "trace"
    for name, size in (("large", 3_000_000), ("small", 100)):
        (tmp_path / name).write_bytes(bytes(size))
    (tmp_path / "nginx.conf").write_text(NGINX.format(folder=tmp_path, certificate=certificate, port=port))
    words = ("-p", tmp_path, "-c", tmp_path / "nginx.conf")
    with subprocess.Popen(["nginx", *words], env={**os.environ, "PATH": PATH}, stderr=subprocess.DEVNULL) as server:
        eventually(lambda: listens(port), "nginx does not listen")
        libraries = ("--library", "openssl", "--library", "gnutls")
        clients = ("sh", "-c", CLIENTS, "sh", certificate, f"https://localhost:{port}")
        done = hopscope("record", *libraries, "-P", "calls", "-o", folder, "--", *clients)
        server.terminate()
    assert done.returncode == 0, done.stderr
    logged = [line.split() for line in (tmp_path / "access").read_text().splitlines()]
    sums: dict[tuple[str, str], int] = {}
    for agent, asked, sent in logged:
        client = agent.partition("/")[0].lower()
        for who, kind, size in (
            *((client, "write", asked), (client, "read", sent)),
            *(("nginx", "read", asked), ("nginx", "write", sent)),
        ):
            sums[who, kind] = sums.get((who, kind), 0) + int(size)
    with Trace(folder) as trace:
        report = summary(trace, Selection(processes=("wget", "curl", "nginx")))
    rows = zip(*map(report.column, ("process", "call", "plain_bytes")), strict=True)
    assert {(process.split()[0], kind): plain for process, kind, plain in rows if plain} == sums
    assert {*sums} == {(who, kind) for who in ("wget", "curl", "nginx") for kind in ("read", "write")}


@pytest.mark.slow
@needs("redis-server")
def test_auto_finds_a_server_that_runs(tmp_path: Path, certificate: Path) -> None:
    port, folder = free_port(), tmp_path / "trace"
    files = ("--tls-cert-file", certificate / "certificate", "--tls-key-file", certificate / "key")
    settings = ("--port", "0", "--tls-port", str(port), *files, "--tls-auth-clients", "no", "--save", "")
    asks = ("redis-cli", "--tls", "--cacert", certificate / "certificate", "-h", "localhost", "-p", str(port))
    with subprocess.Popen(["redis-server", *settings], cwd=tmp_path, stdout=subprocess.DEVNULL) as server:
        eventually(lambda: listens(port), "redis does not listen")
        recorded = start("record", "--library", "auto", "--pid", server.pid, "-P", "calls", "-o", folder)
        eventually((folder / "hopscope.json").exists, "it is not recorded")
        for number in range(20):
            subprocess.run([*asks, "echo", "x" * (1 + 500 * number)], check=True, stdout=subprocess.DEVNULL)
        said = subprocess.run([*asks, "info", "stats"], check=True, capture_output=True).stdout
        recorded.send_signal(2)
        recorded.communicate()
        server.terminate()
    with Trace(folder) as trace:
        report = summary(trace, Selection())
    passed = dict(zip(report.column("call"), report.column("plain_bytes"), strict=True))
    theirs = dict(line.split(":") for line in said.decode().splitlines() if line.startswith("total_net"))
    # It counts without the answer in which it says so: a length, a line's end, the text, and another one.
    answer = len(f"${len(said)}\r\n") + len(said) + 2
    assert passed["read"] == int(theirs["total_net_input_bytes"])
    assert passed["write"] == int(theirs["total_net_output_bytes"]) + answer
