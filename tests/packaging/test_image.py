# SPDX-License-Identifier: Apache-2.0
"""What the Containerfile takes from the tree is there, and what it starts is valid."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import build_wheel
from tests.lab.command import hopscope
from tests.shared import HERE

TEXT: Final = (HERE.parent / "packaging" / "Containerfile").read_text()


def _words(instruction: str) -> list[str]:
    (found,) = re.findall(rf"^{instruction} (\[.*\])$", TEXT, re.MULTILINE)
    words: list[str] = json.loads(found)
    return words


def test_what_it_copies_is_there_and_what_it_starts_is_valid() -> None:
    copied = [words.split()[:-1] for words in re.findall(r"^COPY (?!--from)(.*)$", TEXT, re.MULTILINE)]
    names = [name for names in copied for name in names if not name.startswith("dist/")]  # which `make wheel` makes
    assert names == ["requirements/package.txt", "packaging/serve.toml"]
    assert all((HERE.parent / name).is_file() for name in names)
    program, (verb, option, config) = _words("ENTRYPOINT"), _words("CMD")
    assert program == ["hopscope"]
    assert f"COPY packaging/serve.toml {config}\n" in TEXT
    done = hopscope(verb, option, HERE.parent / "packaging" / "serve.toml", "--check")
    assert done.stdout == "The options are valid.\n"


def test_all_that_it_installs_is_known_by_hash() -> None:
    installs = re.findall(r"-m pip install (.*?) (?:\\\n|$)", TEXT)
    assert len(installs) == 2
    assert all("--require-hashes" in each or "--no-index" in each for each in installs)


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("buildah") and shutil.which("mmdebstrap")), reason="they make images")
def test_the_image_is_built_and_runs(tmp_path: Path) -> None:
    for name in ("requirements/package.txt", "packaging/Containerfile", "packaging/serve.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(HERE.parent / name, tmp_path / name)
    (tmp_path / "dist").mkdir()
    build_wheel.build(HERE.parent, tmp_path / "dist")
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    words = [
        "mmdebstrap",
        "--quiet",
        "--variant=minbase",
        "--include=python3,python3-venv",
        release["VERSION_CODENAME"],
    ]
    root = tmp_path / "root.tar"
    subprocess.run([*words, str(root), "/etc/apt/sources.list.d/debian.sources"], check=True)
    # What the image's pip would ask a registry for.
    version = subprocess.run(["/usr/bin/python3", "-V"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()[
        1
    ]
    words = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    words += ["--python-version", version, "-d", str(tmp_path / "wheels"), "-r", "requirements/package.txt"]
    subprocess.run(words, cwd=tmp_path, check=True)

    def buildah(*words: str) -> str:
        before = ["buildah", "--storage-driver=vfs", f"--root={tmp_path}/images", f"--runroot={tmp_path}/run"]
        done = subprocess.run([*before, *words], cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout.strip()

    base = buildah("from", "scratch")
    buildah("add", base, str(root), "/")
    buildah("commit", "--quiet", base, "localhost/base")
    given = ["--build-arg=BASE=localhost/base", f"--volume={tmp_path}/wheels:/wheels:ro"]
    (tmp_path / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")
    given += [f"--volume={tmp_path}/pip.conf:/etc/pip.conf:ro"]
    buildah("build", "--isolation=chroot", *given, "-f", "packaging/Containerfile", "-t", "localhost/hopscope", ".")
    made = buildah("from", "localhost/hopscope")
    command = ["serve", "--config", "/etc/hopscope/serve.toml", "--check"]
    assert buildah("run", "--isolation=chroot", made, "--", "hopscope", *command) == "The options are valid."
