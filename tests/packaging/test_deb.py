# SPDX-License-Identifier: Apache-2.0
"""The Debian package in a root file system that has nothing but Python: what is installed works, and goes again."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import build_deb
import build_wheel
from tests.shared import HERE

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not shutil.which("mmdebstrap"), reason="mmdebstrap makes root file systems"),
    pytest.mark.skipif(not SOURCES.exists(), reason=f"{SOURCES} says where packages of Debian are"),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A root file system of the Debian that is here."""
    root = tmp_path_factory.mktemp("root")
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    words = ["mmdebstrap", "--quiet", "--variant=minbase", "--include=python3", release["VERSION_CODENAME"]]
    subprocess.run([*words, str(root), str(SOURCES)], check=True)
    yield root
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("package")
    return build_deb.build(build_wheel.build(HERE.parent, out), out)


def inside(root: Path, *words: str) -> str:
    """Run a program there, with this kernel's files, and return what it prints."""
    script = (
        'mount -t proc proc "$0/proc" && mount --rbind /sys "$0/sys" && mount --rbind /dev "$0/dev" && exec chroot "$@"'
    )
    here = ["unshare", "--mount", "--propagation=slave", "sh", "-c", script, str(root), str(root), *words]
    return subprocess.run(here, stdout=subprocess.PIPE, text=True, check=True).stdout


def test_what_is_installed_works_and_can_be_removed(root: Path, package: Path) -> None:
    shutil.copy(package, root / "hopscope.deb")
    inside(root, "dpkg", "--install", "/hopscope.deb")
    assert "datagrams were read" in inside(root, "hopscope", "demo", "-d", "1")
    assert (
        inside(root, "hopscope", "serve", "--config", "/etc/hopscope/serve.toml", "--check")
        == "The options are valid.\n"
    )
    others = ["(", "-perm", "/022", "-not", "-type", "l", "-o", "-not", "-user", "root", ")"]
    assert inside(root, "find", "/usr/lib/hopscope", "/etc/hopscope", *others) == ""  # which others could change
    assert inside(root, "find", "/var/lib/dpkg/info", "-name", "hopscope.p*") == ""  # no script of a maintainer
    assert inside(root, "dpkg", "--verify", "hopscope") == ""  # no file of it was changed, as by compiling anew
    inside(root, "dpkg", "--purge", "hopscope")
    assert not (root / "usr" / "lib" / "hopscope").exists()


def test_the_service_has_what_the_page_of_privileges_names() -> None:
    unit = (HERE.parent / "packaging" / "hopscope.service").read_text()
    page = (HERE.parent / "docs" / "privileges.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith("| `serve` |")]
    needed = row.split("|")[2].replace(",", "").split()
    given = [line.partition("=")[2].split() for line in unit.splitlines() if line.startswith(("Ambient", "Capability"))]
    assert given == [needed, needed]
