# SPDX-License-Identifier: Apache-2.0
"""Where functions of a Go program return, beside what Go's own disassembler says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hopscope.errors import FormatError
from hopscope.libbpf import go_functions

pytestmark = pytest.mark.skipif(not shutil.which("go"), reason="go is not installed")

SOURCE = Path(__file__).parents[1] / "lab" / "tls" / "exchange.go"
NAMES = ("crypto/tls.(*Conn).Read", "crypto/tls.(*Conn).Write")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("go")
    environment = {**os.environ, "GO111MODULE": "off", "GOCACHE": str(folder / "cache"), "CGO_ENABLED": "0"}
    subprocess.run(["go", "build", "-o", folder / "program", SOURCE], check=True, env=environment)
    return folder / "program"


def test_functions_return_where_the_disassembler_says(program: Path) -> None:
    found = go_functions(program.read_bytes(), NAMES)
    assert found.keys() == {*NAMES}
    for name, function in found.items():
        words = ("go", "tool", "objdump", "-s", f"^{re.escape(name)}$", program)
        lines = [
            line.split()
            for line in subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
        ]
        code = [(int(line[1], 16), line[3]) for line in lines if line[0] != "TEXT"]
        # The first jump is the one to where the stack is made to grow: before it, nothing is put on the stack.
        first = next(address for address, instruction in code if instruction == "JBE")
        returns = [address - first for address, instruction in code if instruction == "RET"]
        assert len(returns) > 1
        assert [place - function.entry for place in function.returns] == returns


def test_another_table_and_a_damaged_one_are_refused(program: Path) -> None:
    elf = program.read_bytes()
    at = (
        elf.index(b"\xf0\xff\xff\xff\0\0\1\x08")
        if b"\xf0\xff\xff\xff\0\0\1\x08" in elf
        else elf.index(b"\xf1\xff\xff\xff\0\0\1\x08")
    )
    with pytest.raises(FormatError, match="a version of Go whose functions are not known"):
        go_functions(elf[:at] + b"\xfb" + elf[at + 1 :], NAMES)
    for offset in (8, 24, 56, 64):  # the number of functions, and where the code and the tables are
        for count in (7, 8):
            with pytest.raises(FormatError):
                go_functions(elf[: at + offset] + b"\xff" * count + elf[at + offset + count :], NAMES)
    assert not go_functions(elf, ["crypto/tls.(*Conn).Absent"])
    assert not go_functions(Path("/bin/sh").read_bytes(), NAMES)
