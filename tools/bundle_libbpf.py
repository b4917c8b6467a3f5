# SPDX-License-Identifier: Apache-2.0
"""Copy libbpf and what it needs out of the system, fit to be loaded from a wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

LIBBPF = "libbpf.so.1"
# Every glibc system has these; all else that libbpf links comes along.
SYSTEM = re.compile(r"linux-vdso|ld-linux|libc\.so|libm\.so|libpthread\.so|libdl\.so")


def needed(library: Path) -> dict[str, Path]:
    """Return the libraries that the loader finds for `library`, by the names under which they are asked for."""
    listing = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
    found = dict(re.findall(r"^\s*(\S+) => (/\S+)", listing, re.MULTILINE))
    return {name: Path(path) for name, path in found.items() if not SYSTEM.search(name)}


def find_libbpf() -> Path:
    """Return the system's libbpf.

    Raises
    ------
    FileNotFoundError
        If there is none.
    """
    cache = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    found = re.search(rf"{re.escape(LIBBPF)} .*=> (/\S+)", cache)
    if found is None:
        raise FileNotFoundError(f"no {LIBBPF} on this system; install Debian's libbpf1")
    return Path(found[1])


def copyright_of(name: str) -> Path:
    """Return the licence texts of the Debian package that `name` comes from."""
    owner = subprocess.run(["dpkg", "-S", f"*/{name}"], capture_output=True, text=True, check=True).stdout
    return Path("/usr/share/doc", owner.partition(":")[0], "copyright")


def glibc_needed(libraries: list[Path]) -> tuple[int, int]:
    """Return the newest glibc version whose symbols the libraries ask for."""
    names = [re.findall(rb"\0GLIBC_(\d+)\.(\d+)", path.read_bytes()) for path in libraries]
    return max((int(major), int(minor)) for found in names for major, minor in found)


def bundle(target: Path) -> list[Path]:
    """Copy libbpf and what it needs to `target`, each finding its neighbours there, with their licences.

    Returns
    -------
    list of Path
        The libraries.
    """
    libbpf = find_libbpf()
    target.mkdir(parents=True, exist_ok=True)
    copies = []
    for name, path in {LIBBPF: libbpf, **needed(libbpf)}.items():
        copies.append(Path(shutil.copyfile(path, target / name)))
        subprocess.run(["patchelf", "--set-rpath", "$ORIGIN", copies[-1]], check=True)
        shutil.copyfile(copyright_of(name), target / f"{name}.copyright")
    return copies


def wheel_tag(libraries: list[Path]) -> str:
    """Return the tag of a wheel that has `libraries` in it, or none."""
    machine = os.uname().machine
    if not libraries:
        return f"py3-none-linux_{machine}"
    major, minor = glibc_needed(libraries)
    return f"py3-none-manylinux_{major}_{minor}_{machine}"
