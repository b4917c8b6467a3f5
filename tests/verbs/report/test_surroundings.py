# SPDX-License-Identifier: Apache-2.0
"""Hosts that lack something: rights, BTF, cgroups, compiled programs, a wide terminal, Unicode."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

import hopscope as package
from hopscope.probes.catalogue import POINTS
from hopscope.term.terminal import columns
from tests.lab.command import complaint, hopscope, objects, on_terminal, plain

pytestmark = pytest.mark.root
NO_CAPABILITIES = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")


@pytest.mark.parametrize(
    ("verb", "missing"), [("rx", "CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN"), ("demo", "CAP_SYS_ADMIN, CAP_NET_ADMIN")]
)
def test_no_rights_is_one_sentence_that_names_them(verb: str, missing: str) -> None:
    done = hopscope(verb, before=NO_CAPABILITIES)
    sentence = complaint(done, 77)
    assert f"(missing: {missing}). " in sentence
    assert done.stdout == ""


@pytest.mark.parametrize("missing", ["bpf", "perfmon", "net_admin"])
def test_one_missing_right_is_named_alone(missing: str) -> None:
    done = hopscope("rx", before=("setpriv", f"--bounding-set=-{missing},-sys_admin", "--inh-caps=-all"))
    assert f"(missing: CAP_{missing.upper()}). Give root the missing " in complaint(done, 77)


def test_cap_sys_admin_stands_for_the_three() -> None:
    before = ("setpriv", "--bounding-set=-bpf,-perfmon,-net_admin", "--inh-caps=-all")
    done = hopscope("rx", "-d", "0.2", before=before)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("verb", [["rx"], ["demo"]])
def test_root_of_a_user_namespace_has_no_rights(verb: list[str]) -> None:
    done = hopscope(*verb, before=("unshare", "--user", "--map-root-user"))
    assert "user namespace" in complaint(done, 77)
    assert done.stdout == ""


def test_probes_says_without_rights_what_is_missing() -> None:
    done = hopscope("probes", before=NO_CAPABILITIES)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"0 of {len(POINTS)} probe points can be attached" in done.stdout
    assert "CAP_PERFMON" in done.stdout


def test_without_sys_admin_the_own_namespace_is_seen() -> None:
    capable = ("setpriv", "--bounding-set=-all,+bpf,+perfmon,+net_admin", "--inh-caps=-all")
    script = "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('127.0.0.1', 0))\n"
    script += "for _ in range(23): s.sendto(b'x', s.getsockname()); s.recv(9)"
    done = hopscope(
        "rx",
        "--json",
        "--comm",
        "hop-own",
        "--hop=rx.udp_total",
        "--",
        sys.executable,
        "-c",
        f"open('/proc/self/comm', 'w').write('hop-own'); {script}",
        before=capable,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert objects(done.stdout)[-1]["hops"][0]["count"] == 23
    done = hopscope("rx", "--interface", "nope0", before=capable)
    assert "No interface is named nope0" in complaint(done, 2)


def in_mounts(script: str) -> tuple[str, ...]:
    return ("unshare", "--mount", "sh", "-ec", f'{script}; exec "$@"', "sh")


@pytest.mark.parametrize("verb", [["rx"], ["probes"], ["demo"]])
def test_kernel_without_btf_is_one_sentence(verb: list[str], tmp_path: Path) -> None:
    done = hopscope(*verb, before=in_mounts(f"mount --bind {tmp_path} /sys/kernel/btf"))
    sentence = complaint(done, 1)
    assert "no BTF (/sys/kernel/btf/vmlinux is missing). Boot a kernel " in sentence
    assert "CONFIG_DEBUG_INFO_BTF=y" in sentence


def test_without_cgroups_the_rest_of_the_run_works() -> None:
    before = in_mounts("umount -a -t cgroup2")
    done = hopscope("rx", "--json", "--duration", 0.1, before=before)
    assert (done.returncode, done.stderr) == (0, "")
    plan = objects(done.stdout)[-1]["plan"]
    attached = {row["point"] for row in plan if row["status"] == "attached"}
    cgroup_rows = [row for row in plan if row["way"] == "cgroup_skb:ingress"]
    assert {"rx.driver", "rx.core", "rx.ip", "rx.tcp_queue", "rx.tcp_read"} <= attached
    for row in cgroup_rows:
        assert (row["status"], row["reason"]) == ("unavailable", "cgroup version 2 is not mounted")
        assert "mount -t cgroup2 " in row["next_step"]
    done = hopscope("rx", "--cgroup", "/", before=before)
    assert complaint(done, 2).startswith("cgroup / cannot be looked up: cgroup version 2 is not mounted. Mount it: ")


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["rx", "features"])
@pytest.mark.parametrize("verb", [["rx"], ["probes"], ["demo"]])
def test_missing_object_is_one_sentence(verb: list[str], missing: str, tmp_path: Path) -> None:
    copy = tmp_path / "hopscope"
    shutil.copytree(Path(package.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "bpf" / f"{missing}.bpf.o").unlink()
    done = hopscope(*verb, PYTHONPATH=str(tmp_path))
    assert complaint(done, 1) == f"The BPF object {missing}.bpf.o is not built. Run `make build`, or install the wheel"


@pytest.mark.slow
@pytest.mark.parametrize(
    "args", [["demo", "-d1"], ["rx", "-d", ".2", "--plan"], ["rx", "-d.2", "--histogram"], ["probes"]]
)
@pytest.mark.parametrize("width", [40, 80])
def test_no_line_is_wider_than_the_terminal(args: list[str], width: int) -> None:
    code, said = on_terminal(*args, width=width)
    assert code == 0, said
    assert "\x1b[1m" in said or "\x1b[2m" in said
    lines = plain(said)
    assert len(lines) > 3
    assert [line for line in lines if columns(line) > width] == []


@pytest.mark.slow
def test_columns_variable_counts_where_there_is_no_terminal() -> None:
    done = hopscope("demo", "--duration", 4, COLUMNS="40")
    assert max(map(columns, done.stdout.splitlines())) <= 40
    assert "rx.udp_wake" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "locale"),
    [
        (["demo", "-d1"], {"LC_ALL": "C"}),
        (["demo", "-d1"], {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}),
        (["rx", "-d.1", "--plan"], {"LANG": "C"}),
        (["probes"], {"LANG": "C"}),
        (["rx", "--help"], {"LC_ALL": "C"}),
        (["demo", "--help"], {"LC_ALL": "C"}),
    ],
)
def test_locale_without_unicode_gets_ascii(args: list[str], locale: dict[str, str]) -> None:
    done = hopscope(*args, **locale)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii(), re.findall(r"[^\x00-\x7f]", done.stdout)


def test_complaints_are_ascii() -> None:
    assert complaint(hopscope("rx", before=NO_CAPABILITIES, LC_ALL="C"), 77).isascii()


def test_unicode_name_in_an_ascii_locale_is_told_readably() -> None:
    done = hopscope("rx", "--interface", "ä", LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0")
    assert complaint(done, 2).startswith("No interface is named ")
