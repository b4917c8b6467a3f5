# SPDX-License-Identifier: Apache-2.0
"""Make a Debian package of a wheel: what it needs in a folder of its own, man pages, completion and the service.

The package has compiled modules of Python packages, so that it is for the Python whose minor version this runs with.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import manual
from hopscope import __version__

ROOT: Final = Path(__file__).resolve().parent.parent
HOME: Final = Path("usr/lib/hopscope")
PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
PACKAGES: Final = HOME / "lib" / f"python{PYTHON}" / "site-packages"
CONFIGURATION: Final = Path("etc/hopscope/serve.toml")
# Nothing in a package says when it was made: the same sources give the same bytes.
MADE_S: Final = int(os.environ.get("SOURCE_DATE_EPOCH", "1577836800"))
CONTROL: Final = """\
Package: hopscope
Version: {version}
Architecture: {architecture}
Maintainer: The hopscope authors <hopscope@localhost>
Depends: python3 (>= {python}), python3 (<< {following}~), libc6 (>= 2.28)
Installed-Size: {kilobytes}
Section: net
Priority: optional
Description: shows where time, CPU and packets go in the Linux network stack
 hopscope measures, hop by hop, how long packets take from an application's
 send on one host to another's recv, live and recorded, and names the cause
 of each delay. It needs no kernel headers and no compiler.
"""
STARTER: Final = f"""\
#!/{HOME}/bin/python -P
from hopscope.__main__ import main

main()
"""


def build(wheel: Path, out: Path) -> Path:
    """Make the package in a folder, and return the file."""
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        _python(tree, wheel)
        _beside(tree)
        architecture = _printed("dpkg", "--print-architecture")
        _control(tree, architecture)
        for path in sorted(tree.rglob("*"), reverse=True):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
            os.utime(path, (MADE_S, MADE_S), follow_symlinks=False)
        package = out / f"hopscope_{__version__}_{architecture}.deb"
        words = ["dpkg-deb", "--build", "--root-owner-group", str(tree), str(package)]
        subprocess.run(words, env={**os.environ, "SOURCE_DATE_EPOCH": str(MADE_S)}, stdout=sys.stderr, check=True)
        return package


def _python(tree: Path, wheel: Path) -> None:
    """Install the wheel and what it needs, by hash, into an environment that is where the package will have it."""
    target = tree / PACKAGES
    pip = [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-compile"]
    pip += ["--no-deps", "--target", str(target)]
    subprocess.run([*pip, "--require-hashes", "-r", str(ROOT / "requirements" / "package.txt")], check=True)
    subprocess.run([*pip, "--no-index", str(wheel)], check=True)
    shutil.rmtree(target / "bin", ignore_errors=True)
    # Checked by what the source is, not by when it was written: root would write others beside them otherwise.
    compiled = [
        "-m",
        "compileall",
        "-q",
        "-j",
        "0",
        "--invalidation-mode",
        "unchecked-hash",
        "-s",
        str(tree),
        "-p",
        "/",
    ]
    subprocess.run([sys.executable, *compiled, str(target)], check=True)
    (tree / HOME / "bin").mkdir()
    (tree / HOME / "bin" / "python").symlink_to(f"/usr/bin/python{PYTHON}")
    version = platform.python_version()
    (tree / HOME / "pyvenv.cfg").write_text(
        f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {version}\n"
    )
    starter = tree / "usr" / "bin" / "hopscope"
    starter.parent.mkdir()
    starter.write_text(STARTER)


def _beside(tree: Path) -> None:
    share = tree / "usr" / "share"
    manual.write(share)
    for page in (share / "man" / "man1").iterdir():
        _compressed(page)
    document = share / "doc" / "hopscope"
    document.mkdir(parents=True)
    shutil.copy(ROOT / "LICENSE", document / "copyright")
    shutil.copy(ROOT / "CHANGELOG.md", document / "changelog")
    _compressed(document / "changelog")
    for name, place in (
        ("serve.toml", CONFIGURATION),
        ("hopscope.service", Path("usr/lib/systemd/system") / "hopscope.service"),
    ):
        (tree / place).parent.mkdir(parents=True)
        shutil.copy(ROOT / "packaging" / name, tree / place)


def _compressed(path: Path) -> None:
    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
    path.unlink()


def _control(tree: Path, architecture: str) -> None:
    files = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    kilobytes = sum(path.stat().st_size for path in files) // 1024
    sums = [f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(tree)}\n" for path in files]  # noqa: S324
    following = f"{sys.version_info.major}.{sys.version_info.minor + 1}"
    said = {"version": __version__, "python": PYTHON, "following": following, "kilobytes": kilobytes}
    folder = tree / "DEBIAN"
    folder.mkdir()
    (folder / "control").write_text(CONTROL.format(architecture=architecture, **said))
    (folder / "md5sums").write_text("".join(sums))
    (folder / "conffiles").write_text(f"/{CONFIGURATION}\n")


def _printed(*words: str) -> str:
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def main() -> int:
    """Make the package of the wheel that is named first, in the folder that is named second."""
    print(build(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
