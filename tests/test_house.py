# SPDX-License-Identifier: Apache-2.0
"""The build, the licences and the scripts that everything else stands on."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import build_bpf
import build_wheel
import bundle_libbpf
import sbom
from hopscope.libbpf._types import Kind
from hopscope.libbpf.btf import Btf
from tests import leftovers

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = '#include "common/answer.h"\nint answer(void) { return ANSWER; }\n'


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    texts = {"one/one.bpf.c": PROGRAM, "two/two.bpf.c": PROGRAM, "common/answer.h": "#define ANSWER 42\n"}
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
        os.utime(path, (1, 1))
    return folder


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def test_build_compiles_what_is_missing_or_older(sources: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert names(build_bpf.build(out, sources=sources)) == ["one.bpf.o", "two.bpf.o"]
    assert build_bpf.build(out, sources=sources) == []
    os.utime(out / "one.bpf.o", (2, 2))  # older than build_bpf.py itself
    assert names(build_bpf.build(out, sources=sources)) == ["one.bpf.o"]
    later_s = max(each.stat().st_mtime for each in out.glob("*.o")) + 1
    os.utime(sources / "common" / "answer.h", (later_s, later_s))
    assert names(build_bpf.build(out, sources=sources)) == ["one.bpf.o", "two.bpf.o"]


def test_build_tells_what_the_compiler_said_and_keeps_the_old_object(sources: Path, tmp_path: Path) -> None:
    (sources / "one" / "one.bpf.c").write_text("int broken(void) { return missing; }\n")
    old = tmp_path / "one.bpf.o"
    old.write_text("old")
    os.utime(old, (1, 1))
    with pytest.raises(build_bpf.BuildError, match=r"(?s)one\.bpf\.c does not compile for .*'missing'"):
        build_bpf.build(tmp_path, sources=sources)
    assert old.read_text() == "old"


def test_build_sees_no_system_header(sources: Path, tmp_path: Path) -> None:
    (sources / "one" / "one.bpf.c").write_text("#include <stdio.h>\n")
    with pytest.raises(build_bpf.BuildError, match=r"'stdio\.h' file not found"):
        build_bpf.build(tmp_path, sources=sources)


@pytest.mark.slow  # CI also builds the wheel twice
@pytest.mark.parametrize("arch", sorted(build_bpf.ARCHES.values()))
def test_every_program_compiles_to_the_same_object_anywhere(arch: str, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(build_bpf.SOURCES, elsewhere, ignore=shutil.ignore_patterns("*.o"))
    made = build_bpf.build(tmp_path / "a", arch)
    again = build_bpf.build(tmp_path / "b", arch, sources=elsewhere)
    assert names(made) == sorted(f"{path.stem}.o" for path in build_bpf.SOURCES.rglob("*.bpf.c"))
    assert [path.read_bytes() for path in made] == [path.read_bytes() for path in again]
    for path in made:
        # Structs that are known by name alone come in any order: one is no order.
        btf = Btf.of_object(path)
        assert len([found.name for found in btf.types() if found.kind == Kind.FWD]) <= 1
        assert b".BTF.ext\0" in path.read_bytes()
        assert b".eh_frame" not in path.read_bytes()


@pytest.mark.parametrize(
    ("banner", "sentence"),
    [("Debian clang version 13.0.1", "not clang 14 or newer"), ("gcc 12", "not clang 14 or newer"), (None, "not run")],
)
def test_unfit_compiler_is_refused(
    banner: str | None, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "compiler"
    if banner is not None:
        compiler.write_text(f"#!/bin/sh\necho {banner}\n")
        compiler.chmod(0o755)
    monkeypatch.setenv("HOPSCOPE_CLANG", str(compiler))
    with pytest.raises(build_bpf.BuildError, match=sentence):
        build_bpf.find_clang()


def test_named_compiler_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\necho clang version 14.0.6\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("HOPSCOPE_CLANG", str(compiler))
    assert build_bpf.find_clang() == [str(compiler)]


def test_wheel_tag_is_the_newest_glibc_that_a_library_asks_for(tmp_path: Path) -> None:
    machine = os.uname().machine
    (tmp_path / "a").write_bytes(b"\0GLIBC_2.4\0GLIBC_2.33\0GLIBC_PRIVATE\0")
    (tmp_path / "b").write_bytes(b"\0GLIBC_2.9\0")
    both = [tmp_path / "a", tmp_path / "b"]
    assert bundle_libbpf.wheel_tag(both) == f"py3-none-manylinux_2_33_{machine}"
    assert bundle_libbpf.wheel_tag([]) == f"py3-none-linux_{machine}"


def test_needed_leaves_out_what_glibc_brings() -> None:
    found = bundle_libbpf.needed(bundle_libbpf.find_libbpf())
    assert {"libelf.so.1", "libz.so.1"} <= found.keys()
    assert not [name for name in found if name.startswith(("libc.", "ld-linux", "linux-vdso"))]


def own_sources() -> list[Path]:
    foreign = build_bpf.SOURCES / "libbpf"
    return [path for path in build_bpf.SOURCES.rglob("*.[ch]") if not path.is_relative_to(foreign)]


def test_bpf_programs_state_their_licence_in_the_first_line() -> None:
    paths = own_sources()
    line = "// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause\n"
    assert paths
    assert [path for path in paths if not path.read_text().startswith(line)] == []


def test_sections_are_where_a_reader_looks_for_them() -> None:
    """Programs in the .bpf.c, maps in the maps.h of its folder; what several collectors share has its map with it."""
    found = {
        (path.relative_to(build_bpf.SOURCES), section)
        for path in own_sources()
        if path.suffix == ".h"
        for section in re.findall(r'SEC\("([^"]+)"\)|SEC\("', path.read_text())
    }
    assert found
    assert {one for one in found if not one[1].startswith((".maps", ".bss."))} == set()
    assert {path for path, _ in found if path.name != "maps.h" and path.parts[0] != "common"} == set()


def test_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert targets is not None
    shown = subprocess.run(["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {line.split()[0] for line in shown.stdout.splitlines()} == set(targets[1].split())


def test_setup_without_root_names_what_is_missing_and_the_command(tmp_path: Path) -> None:
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "id").chmod(0o755)
    (tmp_path / "python3").symlink_to(sys.executable)
    for tool in ("dirname", "stat", "bash", "sh"):
        (tmp_path / tool).symlink_to(str(shutil.which(tool)))
    command = [tmp_path / "bash", ROOT / "tools" / "setup", "test"]
    done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.fullmatch(r"setup: missing here: .*\btcpdump\b.*\. Run: sudo make test\n", done.stderr)


@pytest.mark.parametrize("name", ["run", "build", "lint", "test", "spark", "vmtest", "lock"])
def test_locked_packages_are_those_that_are_asked_for(name: str) -> None:
    """Each requirement has a version that satisfies it, hashes, and no address from where to get it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    assert "//" not in text
    found: dict[str, list[str]] = {}
    for package, version, rest in re.findall(r"^([\w-]+)==(\S+)(.*?)(?=^\S|\Z)", text, re.DOTALL | re.MULTILINE):
        assert "--hash=sha256:" in rest
        found.setdefault(package, []).append(version)
    assert text.count("==") >= len(found)
    extras = {"test": ["lint", "test"], "spark": ["lint", "test", "spark"], "vmtest": ["test", "vmtest"]}
    wanted = list(project["project"]["dependencies"])
    wanted += project["build-system"]["requires"] if name != "run" else []
    for extra in extras.get(name, [name] if name in {"lint", "lock"} else []):
        wanted += project["project"]["optional-dependencies"][extra]
    for each in map(Requirement, wanted):
        if each.name != "hopscope":
            versions = found[each.name.replace(".", "-")]
            assert [version for version in versions if not each.specifier.contains(version)] == []


def setup_in(tree: Path, policy: Path, apt: str) -> list[str]:
    """Return the command of a set-up that lacks iperf3, with an apt-get that does this, and without its own effects."""
    (tree / "tools").mkdir()
    (tree / "bin").mkdir()
    text = (ROOT / "tools" / "setup").read_text().replace("/usr/sbin/policy-rc.d", str(policy))
    (tree / "tools" / "setup").write_text(text.replace("need iperf3 iperf3", "need not-there-at-all iperf3"))
    (tree / "tools" / "give-back").write_text("#!/bin/sh\n")
    (tree / "bin" / "apt-get").write_text(f"#!/bin/sh\n{apt}\n")
    for path in (tree / "tools" / "setup", tree / "tools" / "give-back", tree / "bin" / "apt-get"):
        path.chmod(0o755)
    return ["env", f"PATH={tree / 'bin'}:{os.environ['PATH']}", str(tree / "tools" / "setup"), "test"]


@pytest.mark.root
@pytest.mark.parametrize("end", ["exit 1", "kill -TERM $PPID", "kill -INT $PPID; exit 1", "kill -9 $PPID"])
def test_services_are_forbidden_while_packages_are_installed_and_never_after(end: str, tmp_path: Path) -> None:
    policy = tmp_path / "policy"
    seen = tmp_path / "seen"
    command = setup_in(tmp_path, policy, f'case "$*" in *install*) cp {policy} {seen}; {end};; esac')
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
    assert "exit 101" in seen.read_text()
    if "-9" in end:  # nobody can do anything then: the next set-up does
        (tmp_path / "bin" / "apt-get").write_text("#!/bin/sh\nexit 1\n")
        subprocess.run(command, capture_output=True, check=False)
    assert not policy.exists()
    policy.write_text("#!/bin/sh\nexit 101\n")  # the administrator's own stays
    subprocess.run(command, capture_output=True, check=False)
    assert policy.exists()


@pytest.mark.root
def test_root_runs_nothing_that_others_can_change(tmp_path: Path) -> None:
    command = setup_in(tmp_path, tmp_path / "policy", "exit 1")
    program = tmp_path / ".venv" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    environ = {name: value for name, value in os.environ.items() if name != "SUDO_UID"}
    by_user = {"SUDO_UID": "1234"}
    for owner, mode, sudo, refused in (
        (0, 0o755, {}, False),
        (1234, 0o755, {}, True),
        (0, 0o775, {}, True),
        (0, 0o757, {}, True),
        (1234, 0o755, by_user, False),
        (1235, 0o755, by_user, True),
    ):
        os.chown(program, owner, owner)
        program.chmod(mode)
        done = subprocess.run(command, env=environ | sudo, capture_output=True, text=True, check=False)
        sentence = "setup: others can change .venv/bin/python, which root would run. Remove .venv, and run this again\n"
        assert (done.stderr == sentence) == refused, done.stderr


def test_bill_of_materials_names_what_comes_with_a_wheel(tmp_path: Path) -> None:
    library = bundle_libbpf.find_libbpf()
    wheel = tmp_path / "hopscope-1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as files:
        files.write(library, "hopscope/libbpf/_lib/libbpf.so.1")
    text = (ROOT / "requirements" / "run.txt").read_text()
    bill = sbom.bill(wheel, text)
    assert {"click", "duckdb", "numpy", "pyroute2", "libbpf1"} <= {each["name"] for each in bill["components"]}
    assert len(bill["components"]) == len(re.findall(r"^[\w-]+==", text, re.MULTILINE)) + 1
    assert bill["components"][-1]["hashes"][0]["content"] == hashlib.sha256(library.read_bytes()).hexdigest()


def test_wheels_that_differ_are_told_by_what(tmp_path: Path) -> None:
    wheels = [tmp_path / folder / "a.whl" for folder in ("one", "same", "other")]
    for wheel, text in zip(wheels, ("x", "x", "y"), strict=True):
        wheel.parent.mkdir()
        with zipfile.ZipFile(wheel, "w") as files:
            files.writestr(zipfile.ZipInfo("kept"), "kept")
            files.writestr(zipfile.ZipInfo("changed"), text)
    assert build_wheel.differences(wheels[0], wheels[1]) == []
    assert build_wheel.differences(wheels[0], wheels[2]) == ["changed"]


@pytest.mark.root
def test_give_back_hands_files_to_the_owner_of_the_tree(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    shutil.copy(ROOT / "tools" / "give-back", tools)
    (tmp_path / "made").touch()
    (tmp_path / "link").symlink_to("/etc/passwd")
    subprocess.run([tools / "give-back"], check=True)
    assert (tmp_path / "made").stat().st_uid == 0
    os.chown(tmp_path, 1234, 1234)
    environ = {name: value for name, value in os.environ.items() if name != "SUDO_UID"}
    subprocess.run([tools / "give-back"], env=environ, check=True)
    assert (tmp_path / "made").stat().st_uid == 0  # root's own, which nobody else may change
    subprocess.run([tools / "give-back"], env={**environ, "SUDO_UID": "1234"}, check=True)
    assert {path.lstat().st_uid for path in tmp_path.rglob("*")} == {1234}
    assert Path("/etc/passwd").stat().st_uid == 0


def load_empty_program() -> int:
    """Load `return 0` as a socket filter and return its descriptor."""
    code = bytes.fromhex("b700000000000000 9500000000000000")
    socket_filter = 1
    loaded = ctypes.CDLL("libbpf.so.1").bpf_prog_load(socket_filter, b"empty", b"GPL", code, ctypes.c_size_t(2), None)
    assert loaded > 0
    return int(loaded)


@pytest.mark.root
def test_leftover_program_is_found() -> None:
    before = leftovers.seen()
    program = load_empty_program()
    left = leftovers.left_since(before, patience_s=0)
    os.close(program)
    assert any(re.fullmatch(r"BPF prog \d+", name) for name in left)


@pytest.mark.root
def test_program_of_another_process_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    before = leftovers.seen()
    script = "import test_house, sys; test_house.load_empty_program(); print('loaded', flush=True); sys.stdin.read()"
    search = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT / "tests", env=search, **pipes) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"loaded\n"
        ours = leftovers.left_since(before, patience_s=0)
        monkeypatch.setattr(leftovers, "descendants", dict)
        theirs = leftovers.left_since(before)
        assert other.stdin is not None
        other.stdin.close()
    assert any(name.startswith("BPF prog") for name in ours)
    assert theirs == set()


@pytest.mark.root
def test_leftover_orphan_is_found() -> None:
    leftovers.adopt_orphans()
    before = leftovers.seen()
    subprocess.run(["sh", "-c", "sleep 77 &"], check=True)
    left = leftovers.left_since(before, patience_s=0)
    (orphan,) = [int(name.split()[1]) for name in left if name.startswith("process ")]
    os.kill(orphan, 9)
    os.waitpid(orphan, 0)


@pytest.mark.root
def test_leftover_namespace_and_device_are_found() -> None:
    before = leftovers.seen()
    name = f"hopl{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    subprocess.run(["ip", "link", "add", name, "type", "veth"], check=True)
    left = leftovers.left_since(before, patience_s=0)
    subprocess.run(["ip", "link", "del", name], check=True)
    subprocess.run(["ip", "netns", "del", name], check=True)
    assert {f"namespace {name}", f"device {name}"} <= left
