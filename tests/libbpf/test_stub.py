# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import runpy
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hopscope.errors import FormatError
from hopscope.libbpf import Btf, stub

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ONE = """
enum hop_color { HOP_RED = 3, HOP_BLUE = -7 };
struct hop_inner { unsigned char kind; unsigned short ports[2]; };
struct hop_record {
    unsigned long long time_ns; char comm[16]; struct hop_inner inner; struct hop_inner pair[2]; enum hop_color color;
};
struct other { int ignored; };
struct hop_record record;
struct other other;
"""
TWO = """
enum hop_wide { HOP_WIDE = 1ull << 40 };
struct hop_inner { unsigned char kind; unsigned short ports[2]; };
enum hop_wide wide;
struct hop_inner inner;
"""
CONFLICTING = """
struct hop_inner { unsigned char kind; unsigned short ports[3]; };
struct hop_inner inner;
"""


# Rules that contradict each other, the header's form, and that the file stands alone.
IGNORED = "--ignore=D203,D212,D213,D413,COM812,CPY001,INP001"


@pytest.fixture
def one(compiled_text: Callable[[str, str], Path]) -> Path:
    return compiled_text("one", ONE)


@pytest.fixture
def two(compiled_text: Callable[[str, str], Path]) -> Path:
    return compiled_text("two", TWO)


def test_module_has_what_the_objects_have(one: Path, two: Path, tmp_path: Path) -> None:
    module = tmp_path / "layout.py"
    module.write_text(stub.render(map(Btf.of_object, (one, two))))
    made = runpy.run_path(str(module))
    btf = Btf.of_object(one)
    assert made["HOP_RECORD_DTYPE"] == btf.dtype("hop_record")
    assert made["HOP_INNER_DTYPE"] == btf.dtype("hop_inner")
    assert made["HopColor"].__members__ == {"HOP_RED": 3, "HOP_BLUE": -7}
    assert made["HopWide"].HOP_WIDE == 1 << 40
    assert not [name for name in made if "OTHER" in name.upper()]


def test_text_does_not_depend_on_the_order_of_objects(one: Path, two: Path) -> None:
    assert stub.render(map(Btf.of_object, (one, two))) == stub.render(map(Btf.of_object, (two, one)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [ONE, TWO, "enum hop_alone { HOP_ALONE }; enum hop_alone alone;", CONFLICTING],
    ids=["both", "wide", "enum only", "struct only"],
)
def test_text_is_formatted_and_typed(compiled_text: Callable[[str, str], Path], tmp_path: Path, text: str) -> None:
    module = tmp_path / "layout.py"
    module.write_text(stub.render([Btf.of_object(compiled_text("some", text))]))
    for command in (
        ["ruff", "format", "--line-length=120", "--diff"],
        ["ruff", "check", "--isolated", "--target-version=py311", "--line-length=120", "--select=ALL", IGNORED],
        ["mypy", "--strict", "--no-error-summary"],
    ):
        pytest.importorskip(command[0], reason=f"needs {command[0]}: pip install 'hopscope[lint]'")
        done = subprocess.run([sys.executable, "-m", *command, module], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_conflicting_definitions_raise(one: Path, compiled_text: Callable[[str, str], Path]) -> None:
    conflicting = compiled_text("conflicting", CONFLICTING)
    with pytest.raises(FormatError, match=r"conflicting\.bpf\.o defines hop_inner differently"):
        stub.render(map(Btf.of_object, (one, conflicting)))


def test_struct_without_a_dtype_raises(compiled_text: Callable[[str, str], Path]) -> None:
    path = compiled_text("bits", "struct hop_bits { int few : 3; }; struct hop_bits bits;")
    with pytest.raises(FormatError, match=r"hop_bits\.few is a bitfield"):
        stub.render([Btf.of_object(path)])


def test_objects_without_layouts_raise(compiled_text: Callable[[str, str], Path]) -> None:
    path = compiled_text("bare", "struct bare { int x; }; struct bare bare;")
    with pytest.raises(FormatError, match=r"named hop_\*.*build_bpf"):
        stub.render([Btf.of_object(path)])


def test_check_agrees_with_what_was_printed(one: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stub.main([str(one)]) == 0
    module = tmp_path / "layout.py"
    module.write_text(capsys.readouterr().out)
    assert stub.main([str(one), "--check", str(module)]) == 0
    assert capsys.readouterr() == ("", "")


def test_check_names_the_first_line_that_differs(one: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = tmp_path / "layout.py"
    module.write_text(stub.render([Btf.of_object(one)]).replace("HOP_RED = 3", "HOP_RED = 4"))
    assert stub.main([str(one), "--check", str(module)]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "'HOP_RED = 4', the objects have 'HOP_RED = 3'; run python -m hopscope.libbpf.stub again" in said


@pytest.mark.parametrize(
    ("expected", "actual", "said"),
    [
        ("a\nb\n", "a\nb\n", None),
        ("a\nb\n", "a\n", "line 2 is '(the end)', the objects have 'b'"),
        ("a\n", "a\nb\n", "line 2 is 'b', the objects have '(the end)'"),
        ("a\n", "a", "the ends of lines differ"),
    ],
)
def test_first_difference(expected: str, actual: str, said: str | None) -> None:
    assert stub.first_difference(expected, actual) == said


def test_file_that_is_missing_is_one_line(one: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    absent = tmp_path / "absent"
    assert stub.main([str(one), "--check", str(absent)]) == 1
    assert capsys.readouterr().err == f"{absent}: No such file or directory\n"
    assert stub.main([str(absent)]) == 1
    assert capsys.readouterr().err.startswith(f"BTF of {absent} cannot be read: No such file or directory")


def test_own_objects_are_the_default(
    one: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stub, "OBJECTS", one.parent)
    assert stub.main([]) == 0
    assert capsys.readouterr().out == stub.render([Btf.of_object(one)])
