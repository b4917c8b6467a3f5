# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from vmtest import VmtestError, apt, boot, emulator, setup
from vmtest.kernels import Unpacked

OLD = "echo \"qemu: -device igb,help: Device 'igb' not found\""
NEW = 'case "$*" in *"-device igb,help") echo "igb options:" ;; esac'
KERNEL = Unpacked("6.12", "trixie", "6.12.1-amd64", "6.12.1-1", 7, "/some where/tree")


def act(program: Path, script: str) -> Path:
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this machine's own QEMU would be."""
    monkeypatch.setattr(setup, "search_path", lambda: str(tmp_path / "bin"))
    return tmp_path / "bin" / emulator.PROGRAM


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Packages that were asked for; each holds a QEMU of the new kind."""
    asked = []

    def download(_self: apt.Suite, package: str, folder: Path) -> list[Path]:
        asked.append(package)
        return [folder / f"{package}.deb"]

    def unpack(command: tuple[str, ...]) -> str:
        tree = Path(command[-1])
        act(tree / "usr/bin" / emulator.PROGRAM, NEW)
        act(tree / "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", 'test "$1" = --library-path; shift 2; exec "$@"')
        return ""

    monkeypatch.setattr(apt.Suite, "update", lambda *_: None)
    monkeypatch.setattr(apt.Suite, "download_with_dependencies", download)
    monkeypatch.setattr(apt, "host_archives", lambda: apt.Archives("main", "security"))
    monkeypatch.setattr(apt, "run", unpack)
    return asked


def test_a_qemu_of_this_machine_that_has_the_nic_is_used(own: Path, tmp_path: Path, packages: list[str]) -> None:
    act(own, NEW)
    assert emulator.with_nics(tmp_path).qemu == own
    assert packages == []


def test_another_is_fetched_once_where_there_is_none_that_has_it(
    own: Path, tmp_path: Path, packages: list[str]
) -> None:
    act(own, OLD)
    cache = tmp_path / "a cache"
    machine = emulator.with_nics(cache)
    assert machine.qemu.is_relative_to(cache)
    assert emulator.with_nics(cache) == machine
    assert packages == [emulator.PACKAGE]


def test_one_that_does_not_run_is_told(own: Path, tmp_path: Path) -> None:
    act(tmp_path / "qemu" / emulator.PROGRAM, OLD)
    assert not own.exists()
    with pytest.raises(VmtestError, match=r"does not run here, or has no igb\. Remove "):
        emulator.with_nics(tmp_path)


def test_the_launcher_hands_over_every_argument(tmp_path: Path) -> None:
    tree = tmp_path / "a tree"
    libraries = tree / "usr/lib/x86_64-linux-gnu"
    act(libraries / "ld-linux-x86-64.so.2", 'printf "%s\\n" "$QEMU_MODULE_DIR" "$@"')
    script = act(tmp_path / "run", emulator.launcher(tree))
    said = subprocess.run([script, "-name", "two words"], capture_output=True, text=True, check=True)
    lines = said.stdout.splitlines()
    assert lines[:4] == [f"{libraries}/qemu", "--library-path", str(libraries), f"{tree}/usr/bin/{emulator.PROGRAM}"]
    assert lines[-2:] == ["-name", "two words"]


def test_a_machine_changes_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot.sys, "executable", str(act(tmp_path / "virtme-run", "").with_name("python")))
    machine = emulator.Machine(Path("/q"), ("-device", "igb"), ("iomem=relaxed",), ("igb",))
    plain = boot.command_line(KERNEL, tmp_path, 5)
    made = boot.command_line(KERNEL, tmp_path, 5, machine)
    assert made[-2:] == ["-device", "igb"]
    assert [word for word in made if word not in plain] == ["iomem=relaxed", "--qemu-bin", "/q", "igb"]
    assert made.index("--qemu-bin") < made.index("--qemu-opts")


def test_apt_is_asked_for_the_package_and_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def run(command: tuple[str, ...], *, cwd: Path | None = None) -> str:
        assert cwd is None
        asked.append(command)
        (tmp_path / "into" / "b.deb").touch()
        return ""

    monkeypatch.setattr(apt, "run", run)
    (tmp_path / "into").mkdir()
    files = apt.Suite("trixie", tmp_path / "apt").download_with_dependencies("a", tmp_path / "into")
    assert files == [tmp_path / "into" / "b.deb"]
    (command,) = asked
    assert command[-2:] == ("install", "a")
    assert "--download-only" in command
    assert f"Dir::Cache::Archives={tmp_path / 'into'}" in command
    assert (tmp_path / "into" / "partial").is_dir()
