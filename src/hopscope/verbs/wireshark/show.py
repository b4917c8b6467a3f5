# SPDX-License-Identifier: Apache-2.0
"""Start Wireshark or tshark with a file, the script that knows its fields, and a profile with columns and colours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopscope.errors import UsageError
from hopscope.gate import tell
from hopscope.recorded.packet_file import missing_comments
from hopscope.recorded.which import which_recording

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hopscope.recorded.options import Common

_SCRIPT: Final = Path(__file__).with_name("hopscope.lua")
# Keyword of the selection → option of `hopscope export`.
_OPTIONS: Final = {
    "flows": "--flow", "protocol": "--protocol", "ports": "--port", "addresses": "--address",
    "processes": "--process", "interfaces": "--interface", "namespaces": "--netns", "from_s": "--from",
    "until_s": "--until",
}  # fmt: skip
_COLUMNS: Final = (
    ("Time", "%t"), ("Source", "%s"), ("Destination", "%d"), ("Protocol", "%p"), ("Length", "%L"),
    ("Path", "%Cus:hopscope.total:0:R"), ("Dropped", "%Cus:hopscope.dropped:0:R"),
    ("Process", "%Cus:hopscope.comm:0:R"), ("Info", "%i"),
)  # fmt: skip
# Of packets that are dropped or slow: name, filter, background, foreground.
_COLOURS: Final = (
    ("hopscope: dropped", "hopscope.dropped", (65535, 45000, 45000), (20000, 0, 0)),
    ("hopscope: slower than 1 ms", "hopscope.total > 0.001", (65535, 60000, 40000), (20000, 12000, 0)),
)


def show(common: Common, more: Sequence[str], *, text: bool, most: int | None) -> int:
    """Show the packets, and return the exit code of what shows them.

    Parameters
    ----------
    common
        What is shown: a recording, a part of it, or a file.
    more
        Further arguments of the program.
    text
        Whether tshark is to print them.
    most
        Maximum number of packets; 0: all; None: what the format's viewers can show.

    Raises
    ------
    UsageError
        The program is not there, or options that select are given for a file.
    """
    program = viewer(text=text)
    with tempfile.TemporaryDirectory(prefix="hopscope-") as folder:
        place = Path(folder)
        file = common.folder if common.folder and common.folder.is_file() else None
        if file is None:
            file = place / "packets.pcapng"
            if code := _export(common, file, most):
                return code
        else:
            _check(common, file, most)
        return run([program, "-r", str(file), *settings(file), *more], profiled(place), text=text)


def viewer(*, text: bool) -> str:
    """Return the path of tshark or Wireshark.

    Raises
    ------
    UsageError
        It is not there.
    """
    name = "tshark" if text else "wireshark"
    if not (program := shutil.which(name)):
        raise UsageError(f"{name} is not installed", f"Install it, on Debian with `apt install {name}`")
    return program


def settings(file: Path) -> list[str]:
    """Return the arguments by which it has the fields that are in a file's first block."""
    return ["-X", f"lua_script:{_SCRIPT}", "-X", f"lua_script1:{file}"]


def profiled(place: Path) -> dict[str, str]:
    """Return the environment in which it has our columns and colours, which are written to a folder."""
    return {**os.environ, "WIRESHARK_CONFIG_DIR": str(_profile(place))}


def run(argv: Sequence[str], environment: Mapping[str, str], *, text: bool) -> int:
    """Run to the end; what is printed passes through this process, as names in it are those of the recording."""
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE if text else None) as child:
        for line in child.stdout or ():
            sys.stdout.write(line.decode(errors="replace"))
    return child.returncode


def _export(common: Common, file: Path, most: int | None) -> int:
    """Write the file, in a process that confines itself as it reads the recording; return its exit code."""
    words = [str(which_recording(common.folder)), "-o", str(file), *_selected(common)]
    if most is not None:
        words += ["--limit", str(most)]
    return subprocess.run([sys.executable, "-P", "-m", "hopscope", "export", "pcapng", *words], check=False).returncode


def _selected(common: Common) -> Iterator[str]:
    for name, word in _OPTIONS.items():
        value = common.chosen.get(name)
        for each in value if isinstance(value, tuple) else [value]:
            if each is not None:
                yield f"{word}={each}"


def _check(common: Common, file: Path, most: int | None) -> None:
    """Refuse what cannot be shown, or not in part; say if it has no fields."""
    if common.selection or most is not None:
        raise UsageError(
            f"{file} is a file of packets: no part of it can be selected like this",
            "Use a filter of Wireshark: `-Y FILTER` at the end",
        )
    missing = missing_comments(file)
    if missing is None:
        raise UsageError(f"{file} is no pcapng file", "Name a recording, or what `hopscope export pcapng` wrote")
    if missing:
        tell(f"hopscope: {missing}. Its packets are shown without fields; export it again to have them")


def _profile(place: Path) -> Path:
    """Write the settings, and return their folder."""
    columns = ", ".join(f'"{title}", "{kind}"' for title, kind in _COLUMNS)
    # Acknowledgement numbers and windows are not recorded: nothing is said of them.
    (place / "preferences").write_text(f"gui.column.format: {columns}\ntcp.analyze_sequence_numbers: FALSE\n")
    colours = (f"@{name}@{wanted}@[{_rgb(back)}][{_rgb(front)}]" for name, wanted, back, front in _COLOURS)
    (place / "colorfilters").write_text("".join(f"{line}\n" for line in colours))
    return place


def _rgb(colour: tuple[int, int, int]) -> str:
    return ",".join(map(str, colour))
