# SPDX-License-Identifier: Apache-2.0
"""Programs of others that speak HTTP/1, HTTP/2, gRPC and DNS, run by ``python …/protocols.py``: clients and servers.

Servers log what they were asked and what they answered. The last line of the output has, as JSON, server → its port and
its log, each entry an operation and a status.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import grpc
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived, StreamEnded

from tests.lab.causes.world import postgres
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

Log = list[list[str]]
LOCAL = "127.0.0.1"
PATHS = ("/", "/found", "/none?secret=1", "/found?password=2", "/none")
MISSING = "/none"
DNS_PORT = 5354


def run(*words: object) -> None:
    """Run a client; that a server refused it is no error here."""
    subprocess.run(list(map(str, words)), check=False, capture_output=True, timeout=60)


def http1(log: Log) -> int:
    """Ask Python's own server by curl: pages, one that is missing, and data that are sent."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path = urlsplit(self.path).path
            status = 404 if path == MISSING else 200
            self.send_response(status)
            self.send_header("Content-Length", "5000")
            self.end_headers()
            self.wfile.write(bytes(5000))
            log.append([f"{self.command} {path}", str(status)])

        do_POST = do_PUT = do_GET  # noqa: N815 - the base class calls them so

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((LOCAL, 0), Handler) as server:
        port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        urls = [f"http://{LOCAL}:{port}{path}" for path in PATHS]
        run("curl", "-s", *urls)  # on one connection
        for url in urls:
            run("curl", "-s", "-X", "PUT", "-d", "x" * 3000, url)
        # This body is another turn.
        run("curl", "-s", "-X", "POST", "-d", "x" * 3000, "-H", "Expect: 100-continue", urls[0])
        server.shutdown()
        thread.join()
    return int(port)


def http2(log: Log) -> int:
    """Ask a server of the package h2 by a client of it, one request after the other on one connection."""
    listener = socket.create_server((LOCAL, 0))
    port = listener.getsockname()[1]

    def serve() -> None:
        with listener.accept()[0] as connection:
            spoken = H2Connection(H2Configuration(client_side=False))
            spoken.initiate_connection()
            # It says nothing before it was asked: else the first request and the settings cross each other.
            while data := connection.recv(65536):
                for event in spoken.receive_data(data):
                    if isinstance(event, RequestReceived):
                        fields = {name.decode(): value.decode() for name, value in event.headers or ()}
                        path = fields[":path"].partition("?")[0]
                        status = "404" if path == MISSING else "200"
                        log.append([f"{fields[':method']} {path}", status])
                        spoken.send_headers(event.stream_id or 0, [(":status", status), ("server", "h2")])
                        spoken.send_data(event.stream_id or 0, b"hello", end_stream=True)
                connection.sendall(spoken.data_to_send())

    thread = threading.Thread(target=serve)
    thread.start()
    with socket.create_connection((LOCAL, port)) as connection:
        asking = H2Connection()
        asking.initiate_connection()
        for path in PATHS:
            stream = asking.get_next_available_stream_id()
            fields = [(":method", "GET"), (":scheme", "http"), (":authority", LOCAL), (":path", path)]
            asking.send_headers(stream, fields, end_stream=True)
            connection.sendall(asking.data_to_send())
            ended = False
            while not ended:
                events = asking.receive_data(connection.recv(65536))
                ended = any(isinstance(event, StreamEnded) for event in events)
    thread.join()
    listener.close()
    return int(port)


def grpc_calls(log: Log) -> int:
    """Call a server of grpcio: a method that succeeds, one that fails, and one that there is not.

    The settings of both ends may cross the first call, which is not in the log.
    """

    class Service(grpc.GenericRpcHandler):
        def service(self, details: Any) -> Any:  # noqa: ANN401 - of grpc, which has no types
            def answer(request: bytes, context: Any) -> bytes:  # noqa: ANN401 - as above
                if details.method.endswith("/Fail"):
                    log.append([details.method, "NOT_FOUND"])
                    context.abort(grpc.StatusCode.NOT_FOUND, "there is none")
                if request:
                    log.append([details.method, "OK"])
                return request

            if details.method.endswith("/Missing"):
                log.append([details.method, "UNIMPLEMENTED"])
                return None
            return grpc.unary_unary_rpc_method_handler(answer)

    # It would send pings of its own in between, to measure the bandwidth.
    quiet = [("grpc.http2.bdp_probe", 0)]
    server = grpc.server(ThreadPoolExecutor(1), handlers=[Service()], options=quiet)
    port = server.add_insecure_port(f"{LOCAL}:0")
    server.start()
    with grpc.insecure_channel(f"{LOCAL}:{port}", options=quiet) as channel:
        channel.unary_unary("/hopscope.Test/First")(b"", timeout=30, wait_for_ready=True)
        for method in ("Say", "Fail", "Say", "Missing", "Say") * 4:
            call = channel.unary_unary(f"/hopscope.Test/{method}")
            with contextlib.suppress(*([] if method == "Say" else [grpc.RpcError])):
                call(b"request", timeout=30)
    server.stop(None).wait()
    return int(port)


def _answer(query: bytes, log: Log) -> bytes:
    """Answer a query of DNS: names that begin with `no` do not exist."""
    labels, at = [], 12
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode())
        at += 1 + length
    kind = {1: "A", 15: "MX", 28: "AAAA"}[int.from_bytes(query[at + 1 : at + 3], "big")]
    code = 3 if labels[0].startswith("no") else 0
    log.append([f"{kind} {'.'.join(labels)}", {0: "NOERROR", 3: "NXDOMAIN"}[code]])
    return query[:2] + bytes([0x84, code]) + query[4:6] + bytes(6) + query[12 : at + 5]


def dns(*, stream: bool) -> Callable[[Log], int]:
    """Ask a small server by dig, over UDP or TCP."""

    def asked(log: Log) -> int:
        kind = socket.SOCK_STREAM if stream else socket.SOCK_DGRAM
        names = [(name, kind) for name in ("example.org", "nothing.example.org") for kind in ("A", "AAAA", "MX")]
        with socket.socket(socket.AF_INET, kind) as server:
            # The end with the higher port is taken for the client, where there is no SYN.
            server.bind((LOCAL, DNS_PORT))
            port = server.getsockname()[1]
            if stream:
                server.listen()

            def serve() -> None:
                for _ in names:
                    if stream:
                        with server.accept()[0] as connection:
                            length = int.from_bytes(connection.recv(2, socket.MSG_WAITALL), "big")
                            reply = _answer(connection.recv(length, socket.MSG_WAITALL), log)
                            connection.sendall(len(reply).to_bytes(2, "big") + reply)
                            connection.recv(1)
                    else:
                        query, peer = server.recvfrom(4096)
                        server.sendto(_answer(query, log), peer)

            thread = threading.Thread(target=serve)
            thread.start()
            for name, query in names:
                over = "+tcp" if stream else "+notcp"
                run("dig", f"@{LOCAL}", "-p", port, over, "+tries=1", "+noall", name, query)
            thread.join()
        return int(port)

    return asked


def redis(log: Log) -> int:
    """Ask Redis by redis-cli; its own MONITOR has the commands, its statistics of errors the failed ones."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server((LOCAL, 0)) as free:
        port = free.getsockname()[1]
        free.close()
        own = Path(folder) / "socket"
        words = ("redis-server", "--port", port, "--bind", LOCAL, "--unixsocket", own, "--save", "", "--dir", folder)
        with subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL) as server:
            eventually(lambda: _redis(own, "PING") == "PONG", "Redis does not answer")
            with subprocess.Popen(["redis-cli", "-s", own, "MONITOR"], stdout=subprocess.PIPE, text=True) as monitor:
                assert monitor.stdout
                monitor.stdout.readline()
                for command in (
                    "SET key value",
                    "GET key",
                    "GET none",
                    "LPUSH key 1",
                    "INCR number",
                    "MGET key number",
                ):
                    run("redis-cli", "-h", LOCAL, "-p", port, *command.split())
                _redis(own, "ECHO", "end")
                for line in monitor.stdout:
                    command, *_ = re.findall('"([^"]*)"', line)
                    if "unix:" in line:
                        break
                    log.append([command.upper(), "WRONGTYPE" if command == "LPUSH" else "OK"])
                monitor.kill()
            assert "errorstat_WRONGTYPE:count=1" in _redis(own, "INFO", "errorstats")
            server.terminate()
    return int(port)


def _redis(own: Path, *command: str) -> str:
    """Return what Redis answers over its Unix socket, which is not recorded."""
    return subprocess.run(
        ["redis-cli", "-s", own, *command], check=False, capture_output=True, text=True
    ).stdout.strip()


def postgresql(log: Log) -> int:
    """Ask PostgreSQL by psql and pgbench: its own log has each statement, and the code of its error.

    What is prepared under a name is a request of its own; all else of the extended protocol is one with its execution.
    """
    options = postgres()
    folder = Path(options["cluster"])
    program = {name: shutil.which(name, path=options["programs"]) for name in ("postgres", "pg_isready", "pgbench")}
    with socket.create_server((LOCAL, 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "port": port, "listen_addresses": LOCAL, "log_min_duration_statement": 0, "log_line_prefix": "|%e|",
        "unix_socket_directories": folder,
    }  # fmt: skip
    words = [
        program["postgres"],
        "-D",
        folder,
        *(word for name, value in settings.items() for word in ("-c", f"{name}={value}")),
    ]
    with (folder / "said").open("w") as said:
        server = subprocess.Popen(list(map(str, words)), user="postgres", group="postgres", cwd="/", stderr=said)
    with server:
        ready = [program["pg_isready"], "-h", folder, "-p", str(port)]
        eventually(lambda: not subprocess.run(ready, check=False, capture_output=True).returncode, "no PostgreSQL")
        to = ("-h", LOCAL, "-p", port, "-U", "postgres")
        statements = (
            "SELECT 1", "CREATE TABLE t (a int)", "INSERT INTO t VALUES (1), (2)", "SELECT * FROM none",
            "-- a comment\nDROP TABLE t",
        )  # fmt: skip
        run("psql", *to, *(word for each in statements for word in ("-c", each)))
        (folder / "script").write_text("SELECT 7;\nUPDATE things SET generate_series = 1 WHERE FALSE;\n")
        for protocol in ("extended", "prepared"):
            run(program["pgbench"], *to, "-n", "-t", 3, "-M", protocol, "-f", folder / "script", "postgres")
        server.terminate()
    logged = (
        r"\|(\w+)\|(?:LOG:  duration: \S+ ms  (?:statement|parse P\w+|execute \S+)|STATEMENT):  ?(?:--.*\n\t)?(\w+)"
    )
    for code, word in re.findall(logged, (folder / "said").read_text()):
        log.append([word, "OK" if code == "00000" else code])
    return int(port)


SPEAKERS: dict[str, Callable[[Log], int]] = {
    "http1": http1,
    "http2": http2,
    "grpc": grpc_calls,
    "dns": dns(stream=False),
    "dns_tcp": dns(stream=True),
    "redis": redis,
    "postgresql": postgresql,
}


def main(*names: str) -> None:
    """Have these speak, one after the other."""
    said = {}
    for name in names:
        log: Log = []
        said[name] = [SPEAKERS[name](log), log]
    print(json.dumps(said))  # noqa: T201 - what it is for


if __name__ == "__main__":
    main(*sys.argv[1:])
