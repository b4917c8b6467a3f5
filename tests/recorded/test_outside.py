# SPDX-License-Identifier: Apache-2.0
"""What reads a recording works outside of the temporary folder, to which a confined process may write anyway."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.lab.another_user import UID, AnotherUser, another_user
from tests.lab.command import HOPSCOPE, environ, on_terminal
from tests.shared import first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab

pytestmark = pytest.mark.root

_KEPT: Final = Path(__file__).parents[1] / "recordings"
# In folder `out`; A and B are of several hosts, which are joined when they are read.
LINES: Final = {
    "report compare ../T ../A": ("../A/joined",),
    "explain ../A --baseline ../B": ("../A/joined", "../B/joined"),
    "report tcp ../T --plot plot.svg": ("plot.svg",),
    "export ctf ../T -o out": ("out",),
    "join ../T ../U -o out": ("out/packets",),
    "verify ../T": (),
    "sql ../T --csv -- 'SELECT * FROM messages ORDER BY 1'": (),
    "recordings --delete kept": (),
    "report hops ../T --plot plot.svg": ("plot.svg",),
    "report compare ../A ../B": ("../A/joined", "../B/joined"),
    "export perfetto ../A -o out": ("out", "../A/joined"),
    "check ../T": (),
    "wireshark ../T --text": (),
}


@pytest.fixture(scope="module")
def user() -> Iterator[AnotherUser]:
    with another_user() as made:
        yield made


@pytest.mark.parametrize(("line", "uid"), first([*((line, UID) for line in LINES), (next(iter(LINES)), 0)], 8))
def test_outside_of_the_temporary_folder(line: str, uid: int, user: AnotherUser, kept_lab: Lab) -> None:
    outside(user, kept_lab, f'exec "$@" {line}', uid)
    assert [name for name in LINES[line] if not (user.folder / "out" / name).exists()] == []


def test_a_program_reads_there_what_has_to_be_joined(user: AnotherUser, kept_lab: Lab) -> None:
    program = 'import hopscope; print([each.name for each in hopscope.open("../A").hosts])'
    assert outside(user, kept_lab, f"exec \"$1\" -c '{program}'") == "['a', 'b']\n"


def test_the_screen_of_a_recording_that_has_to_be_joined(user: AnotherUser, kept_lab: Lab) -> None:
    own = prepared(user, UID)
    script = ("sh", "-c", f'cd "{user.folder}/out" && exec "$@"', "sh")
    code, shown = on_terminal(
        "top", "../A", before=(*user.words((), kept_lab.client), *script), typed=("quit", "q"), **own
    )
    assert (code, "recording" in shown, "temporary folder" in shown) == (0, True, False)
    assert (user.folder / "A" / "joined").exists()
    assert list((user.folder / "temporary").iterdir()) == []


def prepared(user: AnotherUser, uid: int) -> dict[str, str]:
    """Make a folder with recordings that belong to this user; return the environment variables to use it."""
    folder = user.folder
    shutil.rmtree(folder, ignore_errors=True)
    for name, kept in {"A": "two-hosts", "B": "two-hosts", "T": "tcp-rx", "U": "udp", "state/kept": "udp"}.items():
        shutil.copytree(_KEPT / kept, folder / name, ignore=shutil.ignore_patterns("joined"))
    for name in ("out", "temporary"):
        (folder / name).mkdir()
    subprocess.run(["chown", "-R", f"{uid}:{uid}", str(folder)], check=True)
    return {"TMPDIR": str(folder / "temporary"), "HOPSCOPE_RECORDINGS": str(folder / "state"), "HOME": str(folder)}


def outside(user: AnotherUser, lab: Lab, script: str, uid: int = UID) -> str:
    """Run a script in a folder beside recordings, as this user, and return what it printed; "$@" is hopscope."""
    own = environ(**prepared(user, uid))
    words = user.words((), lab.client) if uid else ()
    script = f'cd "{user.folder}/out" && {script}'
    done = subprocess.run(
        [*words, "sh", "-c", script, "sh", *HOPSCOPE], env=own, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    assert "temporary folder" not in done.stderr  # where nobody can find again what was joined
    assert done.returncode == 0, done.stderr
    assert list((user.folder / "temporary").iterdir()) == []
    return done.stdout
