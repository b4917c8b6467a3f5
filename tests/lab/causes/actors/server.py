# SPDX-License-Identifier: Apache-2.0
"""Runs nginx, redis or PostgreSQL until it is ended."""

from __future__ import annotations

import ctypes
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Final

from tests.lab.causes.actors.common import SOCKET, WORKER, Options, report, say

_END = {signal.SIGTERM}
_PR_SET_PDEATHSIG: Final = 1
_NGINX: Final = """
daemon off; master_process off; pid {folder}/pid; error_log stderr;
events {{}}
http {{
  access_log off; default_type text/plain;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{ listen {address}:{port}; location / {{ return 200 "the only page, and the end of the page\\n"; }} }}
}}
"""


def run(options: Options) -> None:
    """Run the `server` of that name in the `folder` at `address` and `port`, and at a Unix socket."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _END)
    folder = Path(options["folder"])
    argv = {"nginx": _nginx, "redis": _redis, "postgres": _postgres}[options["server"]](folder, options)
    user = "postgres" if options["server"] == "postgres" else None
    libc = ctypes.CDLL(None)

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _END)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    with subprocess.Popen(
        argv,
        user=user,
        group=user,
        preexec_fn=prepare,  # noqa: PLW1509 # there are no threads here
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as server:
        try:
            while not _listens(options):
                if server.poll() is not None:
                    raise RuntimeError(f"{argv[0]} ended: {server.stderr and server.stderr.read()!r}")
                time.sleep(0.01)
            (folder / WORKER).write_text(str(server.pid))
            say("ready")
            signal.sigwait(_END)
        finally:
            # SIGINT: PostgreSQL does not wait for its clients.
            server.send_signal(signal.SIGINT)
            server.communicate()
    report()


def _listens(options: Options) -> bool:
    try:
        socket.create_connection((options["address"], options["port"])).close()
    except ConnectionRefusedError:
        return False
    return True


def _nginx(folder: Path, options: Options) -> list[str]:
    (folder / "nginx.conf").write_text(_NGINX.format(**options))
    return ["nginx", "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]


def _redis(folder: Path, options: Options) -> list[str]:
    settings = {
        "bind": options["address"],
        "port": options["port"],
        "unixsocket": folder / SOCKET,
        "enable-debug-command": "local",
        "protected-mode": "no",
        "save": "",
    }
    return ["redis-server", *(word for name, value in settings.items() for word in (f"--{name}", str(value)))]


def _postgres(folder: Path, options: Options) -> list[str]:
    """Run a copy of a new cluster, whose socket has a name with its port."""
    data = folder / "data"
    subprocess.run(["cp", "-a", options["cluster"], data], check=True)
    settings = {
        "listen_addresses": options["address"],
        "port": options["port"],
        "unix_socket_directories": folder,
        "fsync": "off",
        "autovacuum": "off",
    }
    binary = shutil.which("postgres", path=options["programs"])
    assert binary
    (folder / SOCKET).symlink_to(f".s.PGSQL.{options['port']}")
    shutil.chown(folder, "postgres")
    return [binary, "-D", str(data), *(word for name, value in settings.items() for word in ("-c", f"{name}={value}"))]
