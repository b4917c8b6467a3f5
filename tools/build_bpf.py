# SPDX-License-Identifier: Apache-2.0
"""Compile the BPF programs of hopscope, those whose sources changed.

The compiler is the clang of the ``ziglang`` wheel, or the one that HOPSCOPE_CLANG names (version 14 or newer). System
headers are out of its reach (``-nostdinc``), so that the objects depend on nothing but this tree.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "src" / "hopscope" / "bpf"
MIN_CLANG = 14
ARCHES = {"x86_64": "x86", "aarch64": "arm64"}
FLAGS = (
    *("-target", "bpf", "-mcpu=v3", "-O2", "-g", "-std=gnu11", "-nostdinc", "-Wall", "-Werror"),
    # libbpf warns of .eh_frame and its linker refuses it.
    *("-fno-asynchronous-unwind-tables", "-fno-unwind-tables"),
    # The same sources give the same object wherever they lie.
    "-fdebug-compilation-dir=.",
    # From the folder of the programs: their own headers, and <bpf/...>, which are libbpf's.
    *("-I.", "-isystem", "libbpf"),
)


class BuildError(Exception):
    """The BPF programs cannot be built; the message says why."""


def host_arch() -> str:
    """Return this machine's architecture as BPF headers call it.

    Raises
    ------
    BuildError
        For a machine that hopscope does not know.
    """
    machine = platform.machine()
    if machine not in ARCHES:
        msg = f"hopscope does not support {machine}; it knows {', '.join(ARCHES)}"
        raise BuildError(msg)
    return ARCHES[machine]


def find_clang() -> list[str]:
    """Return the command that starts clang.

    Raises
    ------
    BuildError
        If HOPSCOPE_CLANG names no clang, or one that is too old.
    """
    clang = os.environ.get("HOPSCOPE_CLANG")
    if clang is None:
        return [sys.executable, "-m", "ziglang", "clang"]
    try:
        banner = subprocess.run([clang, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(f"HOPSCOPE_CLANG={clang} does not run ({error}); unset it to use PyPI's ziglang") from error
    version = re.search(r"clang version (\d+)", banner)
    if version is None or int(version[1]) < MIN_CLANG:
        raise BuildError(f"HOPSCOPE_CLANG={clang} is not clang {MIN_CLANG} or newer; unset it to use PyPI's ziglang")
    return [clang]


def compile_object(source: Path, target: Path, arch: str, includes: Path = SOURCES) -> None:
    """Compile one program; `target` is replaced in one step, or left as it was.

    Parameters
    ----------
    source
        The program.
    target
        The object.
    arch
        ``x86`` or ``arm64``.
    includes
        The folder that the names in ``#include "..."`` are relative to; it has libbpf's headers in ``libbpf``.

    Raises
    ------
    BuildError
        With what the compiler printed.
    """
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        fresh = Path(scratch, target.name)
        # Relative, as the object records the name.
        name = source.relative_to(includes) if source.is_relative_to(includes) else source.resolve()
        command = [*find_clang(), *FLAGS, f"-D__TARGET_ARCH_{arch}", "-c", str(name), "-o", str(fresh.resolve())]
        done = subprocess.run(command, cwd=includes, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildError(f"{source.name} does not compile for {arch}\n{done.stderr}")
        fresh.replace(target)


def build(out: Path = SOURCES, arch: str | None = None, sources: Path = SOURCES) -> list[Path]:
    """Compile each ``*.bpf.c`` below `sources` whose object in `out` is missing or older than it, a header or this.

    Parameters
    ----------
    out
        Where the objects go, all into the one folder; made if missing.
    arch
        ``x86`` or ``arm64``; this machine's by default.
    sources
        The folder of the programs, which the names in ``#include "..."`` are relative to.

    Returns
    -------
    list of Path
        The objects that were compiled now.

    Raises
    ------
    BuildError
        With the reason.
    """
    arch = arch or host_arch()
    out.mkdir(parents=True, exist_ok=True)
    common_ns = max(path.stat().st_mtime_ns for path in (Path(__file__), *sources.rglob("*.h")))
    made = []
    for source in sorted(sources.rglob("*.bpf.c"), key=lambda path: path.name):
        target = out / f"{source.stem}.o"
        if target.exists() and target.stat().st_mtime_ns > max(common_ns, source.stat().st_mtime_ns):
            continue
        compile_object(source, target, arch, sources)
        made.append(target)
    return made


def main() -> int:
    """Compile and say what was compiled."""
    parser = argparse.ArgumentParser(description="Compile hopscope's BPF programs.")
    parser.add_argument("--arch", choices=sorted(ARCHES.values()), help="target architecture (default: this machine's)")
    parser.add_argument("--out", type=Path, default=SOURCES, help="folder of the objects (default: bpf/)")
    args = parser.parse_args()
    try:
        made = build(args.out, args.arch)
    except BuildError as error:
        print(f"build_bpf: {error}", file=sys.stderr)
        return 1
    for path in made:
        print(f"compiled {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
