# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import termios

import pytest

from hopscope.gate import passed
from hopscope.term.terminal import Terminal, columns, pad


def stream(encoding: str = "utf-8") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding)


class FakeTty(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def tty() -> FakeTty:
    return FakeTty(io.BytesIO(), encoding="utf-8")


def test_a_pipe_is_80_columns_without_colour() -> None:
    assert Terminal.of(stream(), {}) == Terminal(80, colour=False, unicode=True)


def test_the_width_is_the_ttys() -> None:
    master, slave = pty.openpty()
    try:
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 123, 0, 0))
        with open(slave, "w", encoding="utf-8", closefd=False) as out:
            assert Terminal.of(out, {}) == Terminal(123, colour=True, unicode=True)
    finally:
        os.close(master)
        os.close(slave)


@pytest.mark.parametrize(("given", "width"), [("100", 100), ("7", 40), ("x", 80), ("0", 80)])
def test_columns_of_the_environment_win(given: str, width: int) -> None:
    assert Terminal.of(stream(), {"COLUMNS": given}).width == width


@pytest.mark.parametrize(
    ("environ", "colour"), [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)]
)
def test_colour_on_a_tty_unless_unwanted(environ: dict[str, str], *, colour: bool) -> None:
    assert Terminal.of(tty(), environ).colour is colour


@pytest.mark.parametrize(
    ("environ", "unicode"),
    [
        ({"LANG": "de_DE.UTF-8"}, True),
        ({"LANG": "C"}, False),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, False),
        ({"LANG": "C", "LC_ALL": "C.UTF-8"}, True),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "POSIX"}, False),
        ({}, True),
    ],
)
def test_ascii_in_a_c_locale(environ: dict[str, str], *, unicode: bool) -> None:
    assert Terminal.of(stream(), environ).unicode is unicode


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_ascii_where_the_encoding_has_no_blocks(encoding: str) -> None:
    assert Terminal.of(stream(encoding), {"LANG": "de_DE"}).unicode is False


def test_text_has_no_control_characters() -> None:
    assert Terminal().text("a\x1b[31mb\nc\td") == "a?[31mb c?d"
    assert Terminal(unicode=False).text("µ → ü …") == "u -> ? ~"


def test_cut_keeps_the_end_of_a_path_and_the_beginning_of_a_name() -> None:
    assert Terminal().cut("/system.slice/nginx.service", 10) == "…x.service"
    assert Terminal().cut("interface", 5) == "inte…"
    assert Terminal(unicode=False).cut("interface", 5) == "inte~"
    assert Terminal().cut("eth0", 5) == "eth0"
    # Whoever sends a recording decides how long its names are.
    assert Terminal().cut("é" * 1_000_000, 5) == "éééé…"
    assert Terminal().cut("/" + "é" * 1_000_000, 5) == "…éééé"


def test_wide_characters_take_two_columns() -> None:
    assert columns("ü日本") == 5
    assert columns(Terminal().cut("日本日本", 4)) <= 4
    assert pad("日", 4) == "日  "


def test_fold_indents_and_fits() -> None:
    lines = Terminal(40).fold("one " * 20)
    assert all(len(line) <= 40 for line in lines)
    assert lines[1].startswith("  one")


def test_paint_needs_colour() -> None:
    assert passed(Terminal(colour=True).paint("x", "bold")) == "\x1b[1mx\x1b[0m"
    assert Terminal(colour=False).paint("x", "bold") == "x"
