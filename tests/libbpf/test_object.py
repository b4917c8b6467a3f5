# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hopscope.errors import FormatError, LoadError
from hopscope.libbpf import BpfObject

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TIMES = 23
PAIR = np.dtype([("left", "u4"), ("right", "i4")])


def call(times: int = TIMES) -> None:
    for _ in range(times):
        os.getppid()


def test_open_lists_programs_maps_and_types(basic: Path) -> None:
    with BpfObject.open(basic) as opened:
        assert {name: program.section for name, program in opened.programs.items()} == {
            "on_getppid": "tp_btf/sys_enter",
            "on_egress": "cgroup_skb/egress",
            "on_local_in": "netfilter",
            "reads_too_far": "tp_btf/sys_enter",
            "no_such_tracepoint": "tp_btf/hop_no_such_tracepoint",
        }
        assert {"mapped", "narrow", "plain", "hash", "percpu", "untyped"} <= opened.maps.keys()
        assert opened.programs["on_getppid"].autoload
        assert not opened.programs["on_local_in"].autoload
        btf = opened.btf
    assert btf.dtype("hop_pair") == PAIR


def test_file_that_is_no_object_raises(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rubbish.bpf.o"
    path.write_bytes(b"rubbish" * 20)
    with pytest.raises(LoadError, match=r"^rubbish\.bpf\.o cannot be opened: ") as caught:
        BpfObject.open(path)
    assert caught.value.errno > 0
    assert "libbpf:" in caught.value.log
    assert capfd.readouterr() == ("", "")


def test_missing_file_raises(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="No such file or directory") as caught:
        BpfObject.open(tmp_path / "absent.bpf.o")
    assert caught.value.errno == errno.ENOENT


def test_use_after_close_raises_instead_of_crashing(basic: Path) -> None:
    with BpfObject.open(basic) as opened:
        program, hashed = opened.programs["on_getppid"], opened.maps["hash"]
    opened.close()
    for use in (
        opened.load,
        opened.data,
        lambda: opened.set_const("tgid", 1),
        program.attach,
        program.info,
        lambda: program.fd,
        lambda: program.autoload,
        lambda: program.set_type(1, 1),
        lambda: hashed.fd,
        hashed.items,
        hashed.array,
        lambda: hashed.lookup(bytes(8)),
        lambda: hashed.set_max_entries(1),
    ):
        with pytest.raises(RuntimeError, match=r"basic\.bpf\.o is closed"):
            use()


def test_use_before_load_raises(basic: Path) -> None:
    with BpfObject.open(basic) as opened:
        for use in (opened.data, opened.programs["on_getppid"].attach, lambda: opened.maps["hash"].fd):
            with pytest.raises(RuntimeError, match="not loaded yet"):
                use()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("absent", 1, "no constant absent"),
        ("hits", 1, "no constant hits"),
        ("tgid", -1, "cannot hold -1"),
        ("tgid", 1 << 32, "cannot hold 4294967296"),
        ("negative", 1 << 15, "cannot hold 32768"),
        ("enabled", 2, "cannot hold 2"),
        ("pair", 1, "cannot be set to a number"),
        ("table", 1, "cannot be set to a number"),
        ("table", bytes(31), "has 32 bytes, 31 were given"),
        ("table", np.zeros(3, np.uint64), r"the array is \(3,\) of uint64"),
        ("table", np.zeros(8, np.uint32), r"the array is \(8,\) of uint32"),
        ("pair", np.zeros((), [("left", "i4"), ("right", "i4")]), "the array is"),
    ],
)
def test_constant_that_does_not_fit_raises(
    basic: Path, name: str, value: int | bytes | np.ndarray[tuple[int, ...], np.dtype[np.void]], said: str
) -> None:
    with BpfObject.open(basic) as opened, pytest.raises(FormatError, match=said):
        opened.set_const(name, value)


@pytest.mark.root
def test_program_sees_its_constants_and_python_its_globals(basic: Path) -> None:
    with BpfObject.open(basic) as opened:
        opened.set_const("tgid", os.getpid())
        opened.set_const("enabled", value=True)
        opened.set_const("mode", 1)
        opened.set_const("negative", -7)
        opened.set_const("pair", np.array((5, -6), PAIR))
        opened.set_const("table", np.arange(4, dtype=np.uint64) + 10)
        opened.load()
        bss = opened.data()
        with opened.programs["on_getppid"].attach():
            call()
        call()
        assert bss.shape == ()
        assert bss["hits"] == TIMES
        assert bss["seen_negative"] == -7
        assert bss["seen_pair"].tolist() == (5, -6)
        assert bss["seen_table"].tolist() == [10, 11, 12, 13]
        assert opened.data(".data")["initialised"] == 23
        constants = opened.data(".rodata")
        assert constants["tgid"] == os.getpid()
        assert not constants.flags.writeable
        with pytest.raises(RuntimeError, match="loaded already"):
            opened.set_const("tgid", 1)
        with pytest.raises(RuntimeError, match="loaded already"):
            opened.load()


@pytest.mark.root
def test_constant_left_alone_keeps_its_initial_value(basic: Path) -> None:
    with BpfObject.open(basic) as opened:
        opened.set_const("tgid", bytes(4))
        opened.load()
        assert opened.data(".rodata")["negative"] == -1


@pytest.mark.root
def test_views_outlive_the_object(basic: Path) -> None:
    with BpfObject.open(basic) as opened:
        opened.load()
        bss, mapped = opened.data(), opened.maps["mapped"].array()
        bss["sent"] = 5
        mapped["count"] = 6
    assert bss["sent"] == 5
    assert mapped["count"].tolist() == [6] * 8


@pytest.mark.root
def test_unknown_section_raises(basic: Path) -> None:
    with BpfObject.open(basic) as opened:
        opened.load()
        with pytest.raises(FormatError, match=r"no section \.data\.absent"):
            opened.data(".data.absent")


@pytest.mark.root
@pytest.mark.parametrize(
    ("program", "codes", "said"),
    [
        ("reads_too_far", {errno.EACCES, errno.EINVAL}, "invalid bpf_context access"),
        ("no_such_tracepoint", {errno.ESRCH, errno.ENOENT}, "failed to find kernel BTF type ID"),
        ("on_local_in", {errno.EINVAL}, "missing BPF prog type"),
    ],
)
def test_refused_program_is_named_with_its_log(
    basic: Path, capfd: pytest.CaptureFixture[str], program: str, codes: set[int], said: str
) -> None:
    with BpfObject.open(basic) as opened:
        opened.programs[program].autoload = True
        with pytest.raises(LoadError, match=rf"^basic\.bpf\.o cannot be loaded \(program {program}\): ") as caught:
            opened.load()
        assert caught.value.program == program
        assert caught.value.errno in codes
        assert said in caught.value.log
        assert caught.value.next_step
    assert capfd.readouterr() == ("", "")


@pytest.mark.root
def test_load_without_rights_says_which_are_missing(basic: Path) -> None:
    code = (
        "import os, sys, pathlib\n"
        "from hopscope.libbpf import BpfObject\n"
        "from hopscope.errors import LoadError\n"
        "opened = BpfObject.open(pathlib.Path(sys.argv[1]))\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "try:\n    opened.load()\nexcept LoadError as error:\n    print(error.errno, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(basic)], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.startswith("1 basic.bpf.o cannot be loaded: Operation not permitted. Run it as root")
    assert "(missing: CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN)" in done.stdout


@pytest.mark.root
def test_variable_without_a_dtype_raises_by_name(compiled_text: Callable[[str, str], Path]) -> None:
    path = compiled_text(
        "union", 'union { int a; int b; } either;\nchar _license[] __attribute__((section("license"))) = "GPL";\n'
    )
    with BpfObject.open(path) as opened:
        opened.load()
        with pytest.raises(FormatError, match=r"\.bss either is a union"):
            opened.data()
