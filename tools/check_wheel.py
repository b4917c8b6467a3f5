# SPDX-License-Identifier: Apache-2.0
"""Install a wheel into a fresh environment and check that it needs no compiler and no libbpf of the system."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Opens every shipped object, so that libbpf and libelf are in use, then tells where they were loaded from.
PROBE = """
from pathlib import Path
import hopscope
from hopscope.libbpf import BpfObject

for path in sorted(Path(hopscope.__file__).parent.glob("bpf/*.bpf.o")):
    with BpfObject.open(path):
        print("object", path.name)
for path in sorted({line.split()[-1] for line in open("/proc/self/maps")}):
    if Path(path).name.startswith(("libbpf", "libelf")):
        print("library", path)
"""


def run(command: list[Path | str], cwd: Path, path: Path) -> str:
    """Return what a command prints that finds no programs but those in `path`."""
    bare = {"PATH": str(path)}
    return subprocess.run(command, cwd=cwd, env=bare, stdout=subprocess.PIPE, text=True, check=True).stdout


def check(wheel: Path, sources: Path) -> list[str]:
    """Return what is wrong with the wheel, a sentence each.

    Parameters
    ----------
    wheel
        The file.
    sources
        The folder of the BPF programs, and of their folders, that it must have compiled in it.
    """
    wanted = {f"{path.stem}.o" for path in sources.rglob("*.bpf.c")}
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch).resolve()
        venv.create(home / "venv", with_pip=True, symlinks=True)
        programs = home / "venv" / "bin"
        pip = [str(programs / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*pip, "--require-hashes", "-r", str(ROOT / "requirements" / "run.txt")], check=True)
        subprocess.run([*pip, "--no-index", str(wheel.resolve())], check=True)  # nothing more is needed
        # The environment's own programs are all there is on PATH.
        shown = run([programs / "hopscope", "--help"], cwd=home, path=programs)
        probed = run([programs / "python", "-c", PROBE], cwd=home, path=programs)
    found = [line.split(maxsplit=1) for line in probed.splitlines()]
    opened = {name for kind, name in found if kind == "object"}
    loaded = [name for kind, name in found if kind == "library"]
    wrong = [f"{name} is missing from the wheel" for name in sorted(wanted - opened)]
    wrong += [f"{path} was loaded instead of the wheel's own" for path in loaded if not path.startswith(str(home))]
    if not shown.startswith("Usage: hopscope"):
        wrong.append("hopscope --help shows no usage")
    if len(loaded) < 2:
        wrong.append(f"libbpf and libelf were to be loaded, but only these were: {loaded}")
    return wrong


def main() -> int:
    """Check the wheel that is named on the command line."""
    wheel = Path(sys.argv[1])
    wrong = check(wheel, ROOT / "src" / "hopscope" / "bpf")
    for sentence in wrong:
        print(f"check_wheel: {sentence}", file=sys.stderr)
    if not wrong:
        print(f"{wheel.name}: installs, runs and loads its own libbpf")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
