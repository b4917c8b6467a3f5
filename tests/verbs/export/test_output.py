# SPDX-License-Identifier: Apache-2.0
"""An output has its name when it is complete, and what ends the command leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.lab.command import complaint, eventually, hopscope

_RECORDING: Final = Path(__file__).parents[2] / "recordings" / "tcp-rx"
# As the command line does it, and says so when the output is begun.
_PROGRAM: Final = """
import sys
from pathlib import Path
import hopscope.verbs.export.formats as formats
made = formats.{maker}
def stopped(*given, **named):
    entered = made(*given, **named)
    class Stopped:
        def __enter__(self):
            found = entered.__enter__()
            print("begun", flush=True)
            sys.stdin.read()
            return found
        def __exit__(self, *error):
            return entered.__exit__(*error)
    return Stopped()
formats.{maker} = stopped
from hopscope.__main__ import main
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize(("form", "maker"), [("csv", "file_output"), ("ctf", "folder_output")])
def test_nothing_is_left_of_an_export_that_is_ended(
    form: str, maker: str, number: signal.Signals, tmp_path: Path
) -> None:
    words = ["export", form, str(_RECORDING), "-o", str(tmp_path / "out")]
    argv = [sys.executable, "-c", _PROGRAM.format(maker=maker), *words]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        (partial,) = tmp_path.iterdir()
        assert partial.name.startswith(".out.")
        os.killpg(child.pid, number) if number != signal.SIGKILL else child.kill()
        assert child.wait() in {-number, 128 + number}
    eventually(lambda: not list(tmp_path.iterdir()), "something is left")


@pytest.mark.parametrize("form", ["csv", "perfetto", "ctf"])
def test_nothing_is_overwritten(form: str, tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("mine")
    assert "exists already. Name another one with -o" in complaint(hopscope("export", form, _RECORDING, "-o", path), 2)
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["csv", "-o", "{}/none/out"], "cannot be created: No such file or directory"),
        (["ctf", "-o", "-"], "This format is a folder of files"),
        (["folded", "-o", "{}/out"], "has no stacks. Record with"),
        (["svg", "-o", "{}/out"], "'svg' is not one of 'perfetto'"),
        (["csv"], "Missing option"),
    ],
)
def test_what_cannot_be_is_said(words: list[str], said: str, tmp_path: Path) -> None:
    form, *more = (each.format(tmp_path) for each in words)
    assert said in complaint(hopscope("export", form, _RECORDING, *more), 2)
    assert not list(tmp_path.iterdir())


def test_standard_output_and_pipes_are_written_as_they_are(tmp_path: Path) -> None:
    csv = hopscope("report", "events", "--csv", _RECORDING).stdout
    assert hopscope("export", "csv", _RECORDING, "-o", "-").stdout == csv
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with (tmp_path / "read").open("w") as out, subprocess.Popen(["cat", str(pipe)], stdout=out):
        hopscope("export", "csv", _RECORDING, "-o", pipe)
    assert (tmp_path / "read").read_text() == csv
