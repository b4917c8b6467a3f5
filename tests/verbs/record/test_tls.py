# SPDX-License-Identifier: Apache-2.0
"""``record --library``: calls of TLS libraries, beside what the programs themselves counted."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hopscope.kernel.libraries import find
from hopscope.libbpf import link_ids
from hopscope.store.trace import Trace
from hopscope.trace.selection import Selection
from hopscope.verbs.report.tls import summary, tls
from tests.lab.command import complaint, hopscope, links, start
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.root

# Several connections, each with a thread at both ends; what Python's calls returned is counted by their local port.
PROGRAM = """
import json, os, socket, ssl, sys, threading
folder = sys.argv[1]
ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
ours.load_cert_chain(folder + "/certificate", folder + "/key")
theirs = ssl.create_default_context(cafile=folder + "/certificate")
listener = socket.create_server(("127.0.0.1", 0))
counted = {}

def done(call, is_client, port, len_bytes):
    counted.setdefault(f"{call} {is_client} {port}", []).append(len_bytes)

def serve(connection):
    with ours.wrap_socket(connection, server_side=True) as tls:
        port = tls.getpeername()[1]
        while data := tls.recv(70_000):
            done("read", 0, port, len(data))
            done("write", 0, port, tls.send(data))
        done("read", 0, port, 0)

def ask(number):
    with theirs.wrap_socket(socket.create_connection(listener.getsockname()), server_hostname="localhost") as tls:
        port = tls.getsockname()[1]
        for turn in range(10):
            left = tls.send(bytes(1 + (number * 7919 + turn * 1237) % 40_000))
            done("write", 1, port, left)
            while left:
                data = tls.recv(1 + turn * 3_000)
                done("read", 1, port, len(data))
                left -= len(data)

clients = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
for each in clients:
    each.start()
servers = [threading.Thread(target=serve, args=(listener.accept()[0],)) for _ in clients]
for each in servers:
    each.start()
for each in clients + servers:
    each.join()
print(json.dumps({"pid": os.getpid(), "port": listener.getsockname()[1], "counted": counted}))
"""


def test_calls_and_bytes_are_those_that_the_program_counted(tmp_path: Path, certificate: Path) -> None:
    folder = tmp_path / "trace"
    words = ("--library", "openssl", "-P", "calls", "-o", folder, "--")
    done = hopscope("record", *words, sys.executable, "-c", PROGRAM, certificate)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[0])
    with Trace(folder) as trace:
        of_process = Selection(processes=(str(said["pid"]),))
        report, summed = tls(trace, of_process), summary(trace, of_process)
    names = [column.name for column in report.columns]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*map(report.column, names), strict=True)]
    counted = {(*key.split(),): sizes for key, sizes in said["counted"].items()}
    for kind in ("write", "read"):
        theirs = [size for key, sizes in counted.items() if key[0] == kind for size in sizes]
        assert sorted(row["plain_bytes"] or 0 for row in rows if row["call"] == kind) == sorted(theirs)
        assert dict(zip(summed.column("call"), summed.column("plain_bytes"), strict=True))[kind] == sum(theirs)
    # A write goes to its socket at once: each flow has what its program wrote, in order, and more bytes on the socket.
    for (kind, is_client, port), sizes in counted.items():
        client, server = f"127.0.0.1:{port}", f"127.0.0.1:{said['port']}"
        flow = f"{client} > {server}" if is_client == "1" else f"{server} > {client}"
        of_flow = [row for row in rows if kind == row["call"] == "write" and row["flow_name"] == flow]
        assert [row["plain_bytes"] for row in of_flow] == (sizes if kind == "write" else [])
        assert all(row["socket_bytes"] > row["plain_bytes"] for row in of_flow)
    assert all(0 < row["library_ns"] <= row["duration_ns"] for row in rows)
    # What the library had already, it gives without a socket: then none is known. At the end, the socket gives nothing.
    assert all((row["flow"] is None) == (row["socket_bytes"] == 0) for row in rows if row["plain_bytes"])
    assert {row["call"] for row in rows if row["flow"] is None} == {"read"}
    assert {row["text"] for row in rows} == {None}


CLIENT = """
import socket, ssl, sys
theirs = ssl.create_default_context(cafile=sys.argv[1] + "/certificate")
with theirs.wrap_socket(socket.create_connection(("127.0.0.1", int(sys.argv[2]))), server_hostname="localhost") as tls:
    for number in range(5):
        tls.sendall(bytes(1_000 * number + 1))
    left = 7
    while left:
        left -= len(tls.recv(left))
"""


@pytest.fixture
def server(tmp_path: Path, certificate: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start openssl's own server with a library of its own, whose file is gone by now; with its port."""
    library = tmp_path / "libssl.so.3"
    with contextlib.ExitStack() as stack:
        shutil.copyfile(find(("openssl",), stack).libraries[0].path, library)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    files = ("-cert", certificate / "certificate", "-key", certificate / "key")
    with subprocess.Popen(
        ["openssl", "s_server", "-quiet", "-naccept", "1", "-accept", f"127.0.0.1:{port}", *files],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as child:
        listens = f"0100007F:{port:04X} 00000000:0000 0A"
        eventually(lambda: listens in Path("/proc/net/tcp").read_text(), "the server does not listen")
        library.unlink()
        yield child, port
        child.kill()


def test_a_process_is_seen_in_its_own_library_whose_file_is_gone(
    tmp_path: Path, certificate: Path, server: tuple[subprocess.Popen[bytes], int]
) -> None:
    child, port = server
    assert child.stdin
    child.stdin.write(b"answer\n")
    child.stdin.flush()
    folder = tmp_path / "trace"
    words = ("--library", "auto", "--tls-bytes", 4, "--pid", child.pid, "-P", "calls", "-o", folder, "--")
    done = hopscope("record", *words, sys.executable, "-c", CLIENT, certificate, port)
    assert done.returncode == 0, done.stderr
    assert "risk: the trace has contents of TLS connections" in done.stderr
    with Trace(folder) as trace:
        report, each = summary(trace, Selection()), tls(trace, Selection())
    # That of the client has the same functions in another file, and is another process.
    assert report.column("process") == [f"openssl ({child.pid})"] * 2
    plain = dict(zip(report.column("call"), report.column("plain_bytes"), strict=True))
    assert plain == {"read": 5 + 1_000 * 10, "write": 7}
    rows = [row for row in zip(*map(each.column, ("call", "plain_bytes", "text")), strict=True) if row[1]]
    assert [row for row in rows if row[0] == "write"] == [("write", 7, "answ")]
    assert {text for call, size, text in rows if call == "read" and size >= 4} == {r"\x00\x00\x00\x00"}
    assert any("risk: " in note for note in each.notes)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_nothing_stays_behind(tmp_path: Path, how: signal.Signals) -> None:
    child = start("record", "--library", "openssl", "-P", "calls", "-o", tmp_path / "trace")
    # Two functions for each direction, each with an entry and a return.
    held = eventually(lambda: found if len(found := links(child)) >= 8 and (tmp_path / "trace").exists() else set())
    assert held <= set(link_ids() or ())
    child.send_signal(how)
    child.communicate()
    eventually(lambda: not held & set(link_ids() or ()), "links stay behind")


MAPS = """
import mmap, sys
files = [open(path, "rb") for path in sys.argv[1:]]
maps = [mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) for file in files]
print(flush=True)
sys.stdin.read()
"""


def test_what_cannot_be_recorded_is_said(tmp_path: Path) -> None:
    folder = ("-o", tmp_path / "trace")
    said = complaint(hopscope("record", "--point", "tls.write", *folder), 2)
    assert said == "tls.write is in a library, and none is selected. Add --library auto"
    said = complaint(hopscope("record", "--tls-bytes", "9", *folder), 2)
    assert said == "--tls-bytes needs --library. Specify whose calls: --library auto"
    said = complaint(hopscope("record", "--library", "wolfssl", *folder), 2)
    assert said.startswith(
        "--library does not know wolfssl: of TLS libraries, it knows openssl, gnutls, boringssl, go-tls. Give "
    )
    said = complaint(hopscope("record", "--library", "/etc/passwd", *folder), 2)
    assert "/etc/passwd is no library that can be recorded: " in said
    shutil.copyfile("/etc/passwd", tmp_path / "libngtcp2_crypto_gnutls.so.8")
    shutil.copyfile("/etc/passwd", tmp_path / "libmbedtls.so.14")
    words = (sys.executable, "-c", MAPS, *tmp_path.glob("lib*"))
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.readline()
        said = complaint(hopscope("record", "--library", "auto", "--pid", child.pid, *folder), 2)
        child.kill()
    assert f"process {child.pid} (python" in said
    assert " is left out: it has not mapped the library, and its program has no such function: " in said
    assert "1 process has mapped libmbedtls.so.14, whose calls are not recorded: --library does not know its" in said
    assert "1 process has the QUIC library ngtcp2: its streams are not seen, but its datagrams are, as those of" in said
