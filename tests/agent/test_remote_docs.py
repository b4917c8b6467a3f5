# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/remote.md make certificates that work."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from hopscope.agent.allow import AllowList
from hopscope.agent.tls import TlsFiles, client_context
from hopscope.agent.tls_connect import reach
from tests.agent.certificates import LO
from tests.agent.tls_pair import Listening, receive

PAGE = Path(__file__).resolve().parents[2] / "docs" / "remote.md"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the folder in which the page's commands were run, and the fingerprint that they print."""
    folder = tmp_path_factory.mktemp("docs")
    (commands,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    done = subprocess.run(["sh", "-euc", commands], cwd=folder, check=True, capture_output=True, text=True)
    return folder, done.stdout.strip()


@pytest.mark.parametrize("host", [LO, "localhost"])
@pytest.mark.parametrize("by", ["name", "fingerprint"])
def test_documented_commands_make_certificates_that_work(made: tuple[Path, str], host: str, by: str) -> None:
    folder, fingerprint = made
    entry = "oncall" if by == "name" else fingerprint
    agent, oncall = (
        TlsFiles(folder / f"{who}.pem", folder / f"{who}.key", folder / "ca.pem") for who in ("db2", "oncall")
    )
    listening = Listening(agent, lambda: AllowList.of([entry]))
    try:
        connection = reach(host, listening.port, client_context(oncall))
        connection.write([memoryview(b"hello")])
        assert receive(connection, 5) == b"hello"
        connection.close()
    finally:
        listening.close()
