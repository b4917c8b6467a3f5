# SPDX-License-Identifier: Apache-2.0
"""Start Wireshark or tshark with a file, the script that knows its fields, and a profile with columns and colours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from hopscope.errors import UsageError
from hopscope.gate import tell
from hopscope.recorded.packet_file import missing_comments
from hopscope.recorded.which import which_recording
from hopscope.verbs.wireshark.events import FIELDS_VARIABLE, own_fields, script, variable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hopscope.recorded.options import Common

Columns: TypeAlias = "tuple[tuple[str, str, int], ...]"
Colours: TypeAlias = "tuple[tuple[str, str, tuple[int, int, int], tuple[int, int, int]], ...]"

_SCRIPT: Final = Path(__file__).with_name("hopscope.lua")
# Keyword of the selection → option of `hopscope export`.
_OPTIONS: Final = {
    "flows": "--flow", "protocol": "--protocol", "ports": "--port", "addresses": "--address",
    "processes": "--process", "interfaces": "--interface", "namespaces": "--netns", "from_s": "--from",
    "until_s": "--until",
}  # fmt: skip
# Of a column of a field: its first occurrence, as text.
_FIRST: Final = ":0:R"
# Title, what is in it, and its width in pixels.
_COLUMNS: Final = (
    ("Time", "%t", 120), ("Source", "%s", 130), ("Destination", "%d", 130), ("Protocol", "%p", 65),
    ("Length", "%L", 55), ("Path", "%Cus:hopscope.total:0:R", 95), ("Dropped", "%Cus:hopscope.dropped:0:R", 125),
    ("Process", "%Cus:hopscope.comm:0:R", 110), ("Info", "%i", 400),
)  # fmt: skip
_EVENT_COLUMNS: Final = (
    ("Time", "%t", 120), ("Point", "%Cus:hopwire.point:0:R", 110), ("Hop", "%Cus:hopwire.hop:0:R", 95),
    ("Source", "%Cus:hopwire.source or hopwire.source6:0:R", 130),
    ("Destination", "%Cus:hopwire.destination or hopwire.destination6:0:R", 130),
    ("Dropped", "%Cus:hopwire.reason:0:R", 125), ("Device", "%Cus:hopwire.interface:0:R", 80),
    ("CPU", "%Cus:hopwire.cpu:0:R", 40), ("Thread", "%Cus:hopwire.comm:0:R", 110), ("Info", "%i", 400),
)  # fmt: skip
# Of packets that are dropped or slow: name, filter, background, foreground.
_DROPPED, _SLOW = ((65535, 45000, 45000), (20000, 0, 0)), ((65535, 60000, 40000), (20000, 12000, 0))
_COLOURS: Final = (
    ("hopscope: dropped", "hopscope.dropped", *_DROPPED),
    ("hopscope: slower than 1 ms", "hopscope.total > 0.001", *_SLOW),
)
_EVENT_COLOURS: Final = (
    ("hopscope: dropped", 'hopwire.point == "skb.drop"', *_DROPPED),
    ("hopscope: later than 1 ms", "hopwire.hop > 0.001", *_SLOW),
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
            if (fields := own_fields(file)) is not None:
                return _show_events(program, file, fields, more, text=text)
            _check_comments(file)
        return run([program, "-r", str(file), *settings(file), *more], profiled(place), text=text)


def _show_events(program: str, file: Path, fields: Mapping[str, str], more: Sequence[str], *, text: bool) -> int:
    """Show a file with frames of events, whose tracepoints have these fields."""
    with tempfile.TemporaryDirectory(prefix="hopscope-") as folder:
        place = Path(folder)
        (place / "events.lua").write_text(script())
        settings = ["-X", f"lua_script:{place / 'events.lua'}"]
        # Names come after the frames with their numbers, which a first look finds.
        settings += ["-2"] * text
        environment = profiled(place, _EVENT_COLUMNS, _EVENT_COLOURS) | {FIELDS_VARIABLE: variable(fields)}
        return run([program, "-r", str(file), *settings, *more], environment, text=text)


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


def profiled(place: Path, columns: Columns = _COLUMNS, colours: Colours = _COLOURS) -> dict[str, str]:
    """Return the environment in which it has our columns and colours, which are written to a folder."""
    return {**os.environ, "WIRESHARK_CONFIG_DIR": str(_profile(place, columns, colours))}


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
    """Refuse to show a part of a file."""
    if common.selection or most is not None:
        raise UsageError(
            f"{file} is a file of packets: no part of it can be selected like this",
            "Use a filter of Wireshark: `-Y FILTER` at the end",
        )


def _check_comments(file: Path) -> None:
    """Refuse what cannot be shown; say if it has no fields."""
    missing = missing_comments(file)
    if missing is None:
        raise UsageError(
            f"{file} is no pcapng file, and has no events of `hopscope wire`",
            "Name a recording, or what `hopscope export pcapng` wrote",
        )
    if missing:
        tell(f"hopscope: {missing}. Its packets are shown without fields; export it again to have them")


def _profile(place: Path, columns: Columns, colours: Colours) -> Path:
    """Write the settings, and return their folder."""
    listed = ", ".join(f'"{title}", "{kind}"' for title, kind, _ in columns)
    # Acknowledgement numbers and windows are not recorded: nothing is said of them.
    (place / "preferences").write_text(f"gui.column.format: {listed}\ntcp.analyze_sequence_numbers: FALSE\n")
    # There, columns of fields have no occurrence.
    widths = ", ".join(f"{kind.removesuffix(_FIRST)}, {width}" for _, kind, width in columns)
    (place / "recent").write_text(f"column.width: {widths}\n")
    lines = (f"@{name}@{wanted}@[{_rgb(back)}][{_rgb(front)}]" for name, wanted, back, front in colours)
    (place / "colorfilters").write_text("".join(f"{line}\n" for line in lines))
    return place


def _rgb(colour: tuple[int, int, int]) -> str:
    return ",".join(map(str, colour))
