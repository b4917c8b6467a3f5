# SPDX-License-Identifier: Apache-2.0
"""Packages of another Debian suite than this machine's, from the archives that its apt already uses.

apt itself tells where Debian's archive is. A private configuration then names another suite there, with lists and
caches of its own, so that this machine's apt notices nothing. Signatures are checked as ever.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vmtest import VmtestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_TARGET_FORMAT: Final = "$(ORIGIN)|$(LABEL)|$(RELEASE)|$(REPO_URI)"
# The kernel's meta package leads to these: one package up to Debian 13, image, binary and modules apart since.
_KERNEL_PACKAGE: Final = re.compile(r"linux-(?:image|binary|modules)-\d[^\s]*-amd64")


@dataclass(frozen=True)
class Archives:
    """Where Debian's packages and its security updates come from; the same address if there is but one."""

    main: str
    security: str


def archives(index_targets: str) -> Archives | None:
    """Find Debian's own archives in what ``apt-get indextargets`` printed, one `_TARGET_FORMAT` a line.

    Other publishers' repositories often use Debian's suite names; the origin in their signed release file differs.
    None if the lists of Debian's archives were never fetched, for then apt does not know the origin.
    """
    by_label: dict[str, str] = {}
    for line in index_targets.splitlines():
        origin, label, release, uri = line.split("|", 3)
        if origin == "Debian" and "backports" not in release:
            by_label.setdefault(label, uri)
    if "Debian" not in by_label:
        return None
    return Archives(by_label["Debian"], by_label.get("Debian-Security", by_label["Debian"]))


def host_archives() -> Archives:
    """Ask this machine's apt where Debian's archives are, fetching its lists first if it has none.

    Raises
    ------
    VmtestError
        This machine has no apt, or its apt knows no Debian archive.
    """
    listing = ("apt-get", "indextargets", "--format", _TARGET_FORMAT)
    found = archives(run(listing))
    if found is None and os.geteuid() == 0:
        run(("apt-get", "-qq", "update"))
        found = archives(run(listing))
    if found is None:
        raise VmtestError(
            "apt on this machine knows no Debian archive. Add one to its sources and run `sudo apt-get update`"
        )
    return found


def source_list(suite: str, known: Archives, *, with_updates: bool, keyring: Path = KEYRING) -> str:
    """Return the lines of a ``sources.list`` for a suite, with its security updates and point updates or without."""
    option = f"[signed-by={keyring}] " if keyring.exists() else ""
    entries = [(known.main, suite)]
    if with_updates:
        entries += [(known.security, f"{suite}-security"), (known.main, f"{suite}-updates")]
    return "".join(f"deb {option}{uri} {name} main\n" for uri, name in entries)


def fields(paragraph: str) -> dict[str, str]:
    """Return the one-line fields of the first paragraph of ``apt-cache show``, by name."""
    first = paragraph.strip().partition("\n\n")[0]
    pairs = (line.partition(": ") for line in first.splitlines() if not line.startswith(" "))
    return {name: value.strip() for name, _, value in pairs}


def kernel_packages(meta: str, depends_of: Callable[[str], str]) -> list[str]:
    """Follow the dependencies of a kernel meta package to the packages that hold the kernel and its modules.

    Parameters
    ----------
    meta
        The meta package, such as ``linux-image-amd64``.
    depends_of
        Returns the ``Depends`` field of a package.
    """
    found: list[str] = []
    queue = [meta]
    while queue:
        for name in _KERNEL_PACKAGE.findall(depends_of(queue.pop(0))):
            if name not in found:
                found.append(name)
                queue.append(name)
    return found


class Suite:
    """A suite with an apt configuration of its own under `folder`.

    Parameters
    ----------
    name
        The suite, such as ``bullseye``.
    folder
        Where lists, caches and packages go; made if missing.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self._name = name
        self._folder = folder.resolve()
        self._sources = self._folder / "sources.list"
        (self._folder / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        (self._folder / "cache" / "archives" / "partial").mkdir(parents=True, exist_ok=True)

    def update(self, known: Archives) -> None:
        """Fetch the suite's lists: with its updates where the archive still has them, else without.

        Raises
        ------
        VmtestError
            The archive has no such suite, or it is signed by a key that this machine does not know.
        """
        failure = ""
        for with_updates in (True, False):
            self._sources.write_text(source_list(self._name, known, with_updates=with_updates))
            try:
                self._apt("apt-get", "-qq", "-o", "APT::Update::Error-Mode=any", "update")
            except VmtestError as exc:
                failure = failure or str(exc)
            else:
                return
        raise VmtestError(
            f"the lists of Debian {self._name} cannot be had: {failure}. If a key is unknown, upgrade "
            "debian-archive-keyring; if the suite is gone from the archive, point apt at one that keeps old suites"
        )

    def show(self, package: str) -> dict[str, str]:
        """Return the fields of a package's newest version.

        Raises
        ------
        VmtestError
            The suite has no such package.
        """
        return fields(self._apt("apt-cache", "show", "--no-all-versions", package))

    def download(self, packages: Sequence[str], folder: Path) -> list[Path]:
        """Download packages into an empty folder and return the files.

        Raises
        ------
        VmtestError
            A package cannot be had, or its checksum is wrong.
        """
        self._apt("apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", *packages, cwd=folder)
        return sorted(folder.glob("*.deb"))

    def download_with_dependencies(self, package: str, folder: Path) -> list[Path]:
        """Download a package and all that it depends on, as if nothing were installed, into an empty folder.

        Raises
        ------
        VmtestError
            As `download`.
        """
        (folder / "partial").mkdir()
        install = ("-qq", "-y", "--download-only", "--no-install-recommends", "install", package)
        self._apt("apt-get", "-o", "APT::Sandbox::User=root", "-o", f"Dir::Cache::Archives={folder}", *install)
        return sorted(folder.glob("*.deb"))

    def _apt(self, program: str, *arguments: str, cwd: Path | None = None) -> str:
        settings: Iterable[str] = (
            f"Dir::Etc::sourcelist={self._sources}",
            "Dir::Etc::sourceparts=/dev/null",
            "Dir::Etc::preferences=/dev/null",
            "Dir::Etc::preferencesparts=/dev/null",
            f"Dir::State={self._folder}",
            "Dir::State::status=/dev/null",
            f"Dir::Cache={self._folder / 'cache'}",
            "APT::Architecture=amd64",
            "APT::Architectures=amd64",
            "Acquire::Languages=none",
        )
        options = [text for setting in settings for text in ("-o", setting)]
        return run((program, *options, *arguments), cwd=cwd)


def run(command: Sequence[str], *, cwd: Path | None = None) -> str:
    """Run a program to its end and return its standard output.

    Raises
    ------
    VmtestError
        It is not there, or it failed; with the last line that it wrote to standard error.
    """
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    except FileNotFoundError as exc:
        raise VmtestError(
            f"{command[0]} is not on this machine. Run `sudo python -m vmtest --setup` on a Debian-like one"
        ) from exc
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        raise VmtestError(f"{command[0]} ended with {done.returncode}: {said}")
    return done.stdout
