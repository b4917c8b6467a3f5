# SPDX-License-Identifier: Apache-2.0
"""Where packets are dropped: function, offset, and the line of source where this kernel's debug information is."""

from __future__ import annotations

import functools
import platform
import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hopscope.kernel.source_lines import SourceLines
from hopscope.libbpf import gnu_build_id
from hopscope.live.recorder import symbols
from hopscope.live.recorder.options import RecordOptions
from hopscope.verbs.drops.collector import DropCollector
from tests.waiting import eventually

if TYPE_CHECKING:
    from hopscope.lab import Lab

pytestmark = pytest.mark.root
TEXT = 0xFFFF_FFFF_8100_0000
CODE_BYTES = 64
# What drops has the line of the instructions; the other function is known to be in that file.
SOURCES = {
    "init/main.c": "void start_kernel(void) {}\n",
    "net/ipv4/udp.c": (
        '__attribute__((section(".drops"))) void drops(void)\n{\n\t__asm__(".rept 64\\n nop\\n .endr");\n}\n'
    ),
}
LINE = 3


def addresses(*names: str) -> list[int]:
    """Return where functions of this kernel begin."""
    found = {name: int(at, 16) for at, _, name, *_ in map(str.split, Path("/proc/kallsyms").read_text().splitlines())}
    return [found[name] for name in names]


def install_debug_information(root: Path, place: int) -> None:
    """Make debug information that maps an address of this kernel to a line of our own."""
    (begin,) = addresses("_stext")
    for name, text in SOURCES.items():
        (root / "src" / name).parent.mkdir(parents=True)
        (root / "src" / name).write_text(text)
    built = root / f"usr/lib/debug/boot/vmlinux-{platform.release()}"
    built.parent.mkdir(parents=True)
    build_id = gnu_build_id(Path("/sys/kernel/notes").read_bytes())
    words = "-g -O0 -static -no-pie -nostdlib -ffreestanding -fno-pic -mcmodel=kernel -fno-asynchronous-unwind-tables"
    link = (
        f"-Wl,--build-id=0x{build_id},-e,start_kernel,--defsym=_stext={TEXT:#x},-Ttext-segment={TEXT:#x}"
        f",--section-start=.drops={TEXT + place - begin - CODE_BYTES // 2:#x}"
    )
    files = (root / "src" / name for name in SOURCES)
    subprocess.run(["gcc", *words.split(), link, "-o", built, *files], check=True)


def dropped_at(lab: Lab) -> str:
    """Return the place at which a datagram to a port without a socket is dropped, once all is known of it."""
    options = RecordOptions(profiles=(), points=("skb.drop",), namespaces=(lab.server.inode,))
    with (
        DropCollector(options, ["location"]) as drops,
        lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        sender.sendto(b"x", ("10.77.0.2", 9))
        eventually(lambda: drops.interval().dropped)
        drops.stop()
        drops.interval()
        (row,) = drops.total().rows
        return row.group["location"]


@pytest.mark.skipif(not all(map(shutil.which, ("gcc", "addr2line"))), reason="gcc or addr2line is not installed")
def test_a_drop_has_its_function_its_offset_and_its_line(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(symbols, "SourceLines", functools.partial(SourceLines, root=tmp_path))
    without = dropped_at(lab)
    found = re.fullmatch(r"(\w+)\+0x([0-9a-f]+)", without)
    assert found
    install_debug_information(tmp_path, addresses(found[1])[0] + int(found[2], 16))
    assert dropped_at(lab) == f"{without} (net/ipv4/udp.c:{LINE})"
