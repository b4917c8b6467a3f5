# SPDX-License-Identifier: Apache-2.0
"""The kernels that are tested, and how one gets here: downloaded from its Debian suite and unpacked, not installed.

A kernel becomes a folder with ``vmlinuz-RELEASE`` in ``boot/`` and its modules in ``lib/modules/RELEASE/``. The modules
are uncompressed, because the early boot cannot read xz and emulation is slow at it. Drivers of hardware that a virtual
machine has not are dropped.
"""

from __future__ import annotations

import json
import lzma
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vmtest import VmtestError, apt

if TYPE_CHECKING:
    from collections.abc import Sequence

META_PACKAGE: Final = "linux-image-amd64"
CACHE_VARIABLE: Final = "HOPSCOPE_VMTEST_CACHE"
# dca and i2c are what igb needs.
_KEPT_DRIVERS: Final = frozenset({"block", "char", "dca", "i2c", "net", "ptp", "pps", "virtio"})
_DROPPED: Final = ("sound", "arch/x86/kvm", "drivers/net/wireless", "drivers/net/wwan", "drivers/net/can")


@dataclass(frozen=True)
class Kernel:
    """A kernel of the matrix.

    Attributes
    ----------
    label
        What it is called here.
    suite
        The Debian suite whose newest kernel it is.
    nics
        Its guest has NICs with hardware clocks. One kernel is enough: they are the driver's matter.
    """

    label: str
    suite: str
    nics: bool = False


KERNELS: Final = (
    Kernel("5.10", "bullseye"),
    Kernel("6.1", "bookworm"),
    Kernel("6.12", "trixie", nics=True),
    Kernel("7.x", "sid"),
)


@dataclass(frozen=True)
class Unpacked:
    """A kernel on disk, ready to boot.

    Attributes
    ----------
    label, suite
        As in `Kernel`.
    release
        As ``uname -r`` prints it.
    version
        Of the Debian package.
    downloaded_bytes
        Size of its packages.
    folder
        Holds ``boot/`` and ``lib/modules/``.
    """

    label: str
    suite: str
    release: str
    version: str
    downloaded_bytes: int
    folder: str

    @property
    def image(self) -> Path:
        """The kernel to boot."""
        return Path(self.folder, "boot", f"vmlinuz-{self.release}")

    @property
    def modules(self) -> Path:
        """Where its modules are."""
        return Path(self.folder, "lib", "modules", self.release)


def cache_folder() -> Path:
    """Return where kernels are kept: ``$HOPSCOPE_VMTEST_CACHE``, or a folder in the user's cache."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).resolve()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "hopscope", "vmtest").resolve()


def select(labels: Sequence[str]) -> list[Kernel]:
    """Return the kernels of these labels, all for none.

    Raises
    ------
    VmtestError
        There is no kernel of that label.
    """
    by_label = {kernel.label: kernel for kernel in KERNELS}
    unknown = [label for label in labels if label not in by_label]
    if unknown:
        raise VmtestError(f"there is no kernel {', '.join(unknown)} in the table. There are: {', '.join(by_label)}")
    return [by_label[label] for label in dict.fromkeys(labels)] if labels else list(KERNELS)


def fetched(kernel: Kernel, cache: Path) -> Unpacked | None:
    """Return the kernel that an earlier `fetch` left in the cache, or None."""
    try:
        known = Unpacked(**json.loads((cache / kernel.label / "kernel.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return known if known.image.is_file() and (known.modules / "modules.dep").is_file() else None


def fetch(kernel: Kernel, cache: Path) -> Unpacked:
    """Download the newest kernel of its suite, unpack it, and make it the cached one.

    Raises
    ------
    VmtestError
        The suite, the package or the space for it cannot be had.
    """
    suite = apt.Suite(kernel.suite, cache / kernel.label / "apt")
    suite.update(apt.host_archives())
    packages = apt.kernel_packages(META_PACKAGE, lambda name: suite.show(name).get("Depends", ""))
    if not packages:
        raise VmtestError(f"{META_PACKAGE} of Debian {kernel.suite} leads to no kernel. Look at its dependencies")
    # Made beside the old one and then put in its place: an interrupted fetch leaves the old one usable.
    fresh = Path(tempfile.mkdtemp(prefix="new-", dir=cache / kernel.label))
    fresh.chmod(0o755)
    try:
        files = suite.download(packages, fresh)
        size_bytes = sum(file.stat().st_size for file in files)
        for file in files:
            apt.run(("dpkg", "-x", str(file), str(fresh)))
            file.unlink()
        release = arrange(fresh)
        apt.run(("depmod", "-b", str(fresh), release))
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    folder = cache / kernel.label / "tree"
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)
    version = suite.show(packages[0])["Version"]
    unpacked = Unpacked(kernel.label, kernel.suite, release, version, size_bytes, str(folder))
    (cache / kernel.label / "kernel.json").write_text(json.dumps(asdict(unpacked), indent=1) + "\n")
    return unpacked


def arrange(tree: Path) -> str:
    """Bring an unpacked kernel package into the layout that `Unpacked` describes and return its release.

    Since Debian 13 modules are under ``usr/lib`` and compressed; since 14 the kernel lies beside its modules.

    Raises
    ------
    VmtestError
        Not exactly one kernel is in it.
    """
    below_usr = tree / "usr" / "lib" / "modules"
    modules = tree / "lib" / "modules"
    if below_usr.is_dir():
        modules.parent.mkdir(exist_ok=True)
        below_usr.rename(modules)
    releases = sorted(path.name for path in modules.glob("*") if path.is_dir())
    if len(releases) != 1:
        raise VmtestError(f"expected one kernel in the packages and found {len(releases)}. Look into {tree}")
    (release,) = releases
    image = tree / "boot" / f"vmlinuz-{release}"
    if not image.exists():
        image.parent.mkdir(exist_ok=True)
        shutil.copy(modules / release / "vmlinuz", image)
    _drop_hardware(modules / release / "kernel")
    _decompress(modules / release)
    return release


def _drop_hardware(folder: Path) -> None:
    for name in _DROPPED:
        shutil.rmtree(folder / name, ignore_errors=True)
    for drivers in (folder / "drivers").glob("*"):
        if drivers.is_dir() and drivers.name not in _KEPT_DRIVERS:
            shutil.rmtree(drivers)


def _decompress(folder: Path) -> None:
    for packed in folder.rglob("*.ko.xz"):
        with lzma.open(packed) as source, packed.with_suffix("").open("wb") as target:
            shutil.copyfileobj(source, target)
        packed.unlink()
