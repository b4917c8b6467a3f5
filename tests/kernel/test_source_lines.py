# SPDX-License-Identifier: Apache-2.0
"""Lines of source of a kernel's addresses, from a small program that is linked as a kernel is."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from typing import TYPE_CHECKING, NamedTuple

import pytest

from hopscope.kernel import source_lines
from hopscope.kernel.source_lines import SourceLines
from tests.waiting import TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("gcc", "objcopy", "nm"))), reason="gcc and binutils are not installed"
)
TEXT = 0xFFFF_FFFF_8100_0000
SLIDE = 0x1E00_0000  # as the kernel chooses one at each start
MAIN = "void _start(void) {}\nvoid start_kernel(void) {\n\t_start();\n}\n"
DROPS = """void kfree_skb(void) {}
void udp_rcv(void)
{
	kfree_skb();
	__asm__(".globl returned\\nreturned:");
	kfree_skb();
}
"""
LINE = DROPS.splitlines().index("\tkfree_skb();") + 1
RELEASE = platform.release()


class Kernel(NamedTuple):
    """A file with debug information, its notes, where a call in `udp_rcv` returns to, and its build ID."""

    path: Path
    notes: Path
    returns_to: int
    build_id: str


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    """Build a kernel of two files in a folder that looks like its sources."""
    folder = tmp_path_factory.mktemp("sources")
    for name, text in (("init/main.c", MAIN), ("net/ipv4/udp.c", DROPS)):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text)
    return build(folder)


def build(folder: Path) -> Kernel:
    """Compile and link what is in a folder."""
    built, notes = folder / "vmlinux", folder / "notes"
    words = "-g -O0 -static -no-pie -nostdlib -ffreestanding -fno-pic -mcmodel=kernel -fno-asynchronous-unwind-tables"
    place = ("-Wl,--build-id", f"-Wl,-Ttext-segment={TEXT:#x}", f"-Wl,--defsym=_stext={TEXT:#x}")
    subprocess.run(
        ["gcc", *words.split(), *place, "-o", built, folder / "init/main.c", folder / "net/ipv4/udp.c"], check=True
    )
    subprocess.run(["objcopy", "-O", "binary", "--only-section=.note.gnu.build-id", built, notes], check=True)
    symbols = subprocess.run(["nm", built], capture_output=True, text=True, check=True).stdout.splitlines()
    (returned,) = (int(line.split()[0], 16) for line in symbols if line.endswith(" returned"))
    return Kernel(built, notes, returned + SLIDE, notes.read_bytes()[16:].hex())


def place(kernel: Kernel, root: Path, name: str) -> Path:
    """Install the file at a place where debug information is looked for."""
    there = root / name.format(release=RELEASE, first=kernel.build_id[:2], rest=kernel.build_id[2:], id=kernel.build_id)
    there.parent.mkdir(parents=True)
    shutil.copy(kernel.path, there)
    return there


def found(kernel: Kernel, root: Path, *addresses: int, notes: Path | None = None) -> dict[int, str]:
    """Return what is found in a file system."""
    lines = SourceLines(TEXT + SLIDE, root=root, notes=notes or kernel.notes)
    try:
        lines.ask(addresses or [kernel.returns_to])
        return lines.found(TIMEOUT_S)
    finally:
        lines.close()


@pytest.mark.parametrize(
    "name",
    [
        "usr/lib/debug/boot/vmlinux-{release}",
        "usr/lib/debug/.build-id/{first}/{rest}.debug",
        "lib/modules/{release}/build/vmlinux",
        "var/cache/debuginfod/{id}/debuginfo",
    ],
)
def test_the_call_is_found_where_debug_information_may_be(
    kernel: Kernel, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", "/var/cache/debuginfod")
    place(kernel, tmp_path, name)
    assert found(kernel, tmp_path) == {kernel.returns_to: f"net/ipv4/udp.c:{LINE}"}


@pytest.mark.parametrize("tool", source_lines._TOOLS)
def test_each_program_gives_the_same(
    kernel: Kernel, tmp_path: Path, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not installed")
    monkeypatch.setattr(source_lines, "_TOOLS", (tool,))
    place(kernel, tmp_path, "boot/vmlinux-{release}")
    # One that is in no function has no line; the others are those of the calls.
    wanted = (kernel.returns_to, TEXT + SLIDE + 0x10_0000, kernel.returns_to + 5)
    lines = {kernel.returns_to: f"net/ipv4/udp.c:{LINE}", kernel.returns_to + 5: f"net/ipv4/udp.c:{LINE + 2}"}
    # From the label, the next call is a `mov` (to clear its arguments) or nothing away.
    assert found(kernel, tmp_path, *wanted) == lines


def other_build(kernel: Kernel, root: Path) -> Path:
    """Install that of another build, whose functions are elsewhere."""
    folder = root / "other"
    shutil.copytree(kernel.path.parent, folder)
    source = folder / "net/ipv4/udp.c"
    source.write_text("int more;\nvoid shifts(void) { more++; }\n" + source.read_text())
    return place(build(folder), root, "boot/vmlinux-{release}")


def stripped(kernel: Kernel, root: Path) -> None:
    subprocess.run(["objcopy", "--strip-debug", place(kernel, root, "boot/vmlinux-{release}")], check=True)


def damaged(kernel: Kernel, root: Path) -> None:
    path = place(kernel, root, "boot/vmlinux-{release}")
    path.write_bytes(path.read_bytes()[:300])


def writable(kernel: Kernel, root: Path) -> None:
    place(kernel, root, "boot/vmlinux-{release}").chmod(0o666)


def absent(_kernel: Kernel, _root: Path) -> None:
    pass


@pytest.mark.parametrize("made", [absent, other_build, stripped, damaged, writable], ids=lambda made: made.__name__)
def test_what_may_be_wrong_is_no_line(kernel: Kernel, tmp_path: Path, made: object) -> None:
    assert callable(made)
    made(kernel, tmp_path)
    assert found(kernel, tmp_path) == {}


def test_a_kernel_that_does_not_say_its_build_has_no_lines(kernel: Kernel, tmp_path: Path) -> None:
    place(kernel, tmp_path, "boot/vmlinux-{release}")
    empty = tmp_path / "notes"
    empty.write_bytes(b"")
    assert found(kernel, tmp_path, notes=empty) == {}
    assert found(kernel, tmp_path, notes=tmp_path / "none") == {}


@pytest.fixture
def endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a program that reads debug information come to no end; return the file in which it says that it began."""
    began, programs = tmp_path / "began", tmp_path / "programs"
    programs.mkdir()
    tool = programs / "addr2line"
    tool.write_text(f"#!/bin/sh\necho begun >> {began}\nexec sleep 1000\n")
    tool.chmod(0o755)
    monkeypatch.setattr(source_lines, "_TOOLS", ("addr2line",))
    monkeypatch.setattr(source_lines, "_PATH", f"{programs}:{os.environ['PATH']}")
    return began


def test_it_is_bounded_in_time(kernel: Kernel, tmp_path: Path, endless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_lines, "_MOST_S", 0.2)
    place(kernel, tmp_path, "boot/vmlinux-{release}")
    assert found(kernel, tmp_path) == {}
    assert endless.read_text() == "begun\n" * 2  # where it was built, and the line


def test_the_end_waits_for_nothing(kernel: Kernel, tmp_path: Path, endless: Path) -> None:
    place(kernel, tmp_path, "boot/vmlinux-{release}")
    lines = SourceLines(TEXT + SLIDE, root=tmp_path, notes=kernel.notes)
    lines.ask([kernel.returns_to])
    assert lines.found() == {}
    lines.close()
    assert not endless.exists() or len(endless.read_text().splitlines()) <= 2
