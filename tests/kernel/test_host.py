# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from hopscope.errors import KernelError
from hopscope.kernel import host
from hopscope.kernel.host import Mount, host_facts, read_mounts
from hopscope.lab import Namespace
from hopscope.model.snapshot import HostFact

if TYPE_CHECKING:
    from collections.abc import Mapping

CLOCK_SOURCE = "sys/devices/system/clocksource/clocksource0"
SHOW = """
import dataclasses, json
from hopscope.kernel.host import host_facts
print(json.dumps([dataclasses.asdict(fact) for fact in host_facts()]))
"""


def facts(root: Path = Path("/")) -> dict[str, HostFact]:
    return {fact.name: fact for fact in host_facts(root)}


def facts_after(*command: str) -> dict[str, HostFact]:
    """Return the facts as a process that was started by `command` sees them."""
    search = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    shown = subprocess.run([*command, sys.executable, "-c", SHOW], env=search, capture_output=True, check=True)
    return {fact["name"]: HostFact(**fact) for fact in json.loads(shown.stdout)}


def grown(root: Path, files: Mapping[str, str]) -> dict[str, HostFact]:
    """Return the facts of a host that has these files."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return facts(root)


def mounted(kind: str, point: str, root: str = "/") -> str:
    return f"36 35 98:0 {root} {point} rw,noatime master:1 - {kind} {kind} rw\n"


def status(capabilities: int, uid: int = 0) -> dict[str, str]:
    return {"proc/self/status": f"Name:\tpython\nUid:\t9\t{uid}\t9\t9\nCapEff:\t{capabilities:016x}\nCapBnd:\tffff\n"}


def sysctl(name: str) -> str:
    return Path("/proc/sys", *name.split(".")).read_text().strip()


def test_what_is_ok_has_no_next_step_and_what_is_not_has_one(tmp_path: Path) -> None:
    for fact in (*host_facts(), *host_facts(tmp_path)):
        assert fact.ok == (not fact.next_step), fact
        assert fact.value


def test_host_without_proc_and_sys_is_unknown(tmp_path: Path) -> None:
    found = facts(tmp_path)
    assert list(found) == list(facts())
    unknown = {name for name, fact in found.items() if fact.value.startswith("unknown: ")}
    assert unknown >= {"rights", "lockdown", "BPF JIT", "BPF statistics", "kernel symbols", "clock source", "CPUs"}
    assert {name for name, fact in found.items() if fact.ok and not name.startswith("nic ")} <= {
        "kernel",
        "libbpf",
        "TAI offset",
    }


def test_kernel_is_as_uname_says() -> None:
    words = subprocess.run(["uname", "-srm"], capture_output=True, text=True, check=True).stdout.split()
    assert facts()["kernel"].value == f"{words[0]} {words[1]}, {words[2]}"


def test_machine_without_programs_is_not_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "host", "6.12", "#1", "riscv64")))
    assert facts()["kernel"] == HostFact(
        "kernel", "Linux 6.12, riscv64", ok=False, next_step="Use a machine of type x86_64 or aarch64"
    )


@pytest.mark.root
@pytest.mark.parametrize("dropped", ["bpf", "perfmon", "net_admin"])
def test_each_missing_capability_is_named(dropped: str) -> None:
    held = facts_after("setpriv", "--inh-caps=-all", f"--bounding-set=-{dropped},-sys_admin")["rights"]
    names = re.findall(r"CAP_\w+", held.value.partition(";")[0])
    assert set(names) == {"CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"} - {f"CAP_{dropped.upper()}"}
    assert not held.ok
    assert f"missing CAP_{dropped.upper()} " in held.next_step


@pytest.mark.root
def test_sys_admin_stands_for_the_others() -> None:
    dropped = facts_after("setpriv", "--inh-caps=-all", "--bounding-set=-bpf,-perfmon,-net_admin")["rights"]
    assert dropped == HostFact("rights", "root, CAP_SYS_ADMIN", ok=True)


@pytest.mark.root
def test_three_capabilities_are_enough_and_what_is_lost_is_told() -> None:
    held = facts_after("setpriv", "--inh-caps=-all", "--bounding-set=-sys_admin")["rights"]
    assert held.ok
    assert held.value.startswith("root, CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN; without CAP_SYS_ADMIN ")


@pytest.mark.root
def test_root_of_a_user_namespace_has_no_rights() -> None:
    held = facts_after("unshare", "--user", "--map-root-user")["rights"]
    assert held.value.startswith("root, CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN, CAP_SYS_ADMIN; but in a user namespace")
    assert not held.ok


def test_user_is_told_to_become_root(tmp_path: Path) -> None:
    assert grown(tmp_path, status(0, uid=1000))["rights"] == HostFact(
        "rights",
        "user 1000, none of CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN",
        ok=False,
        next_step="Run hopscope as root (sudo hopscope), or give it CAP_BPF and CAP_PERFMON and CAP_NET_ADMIN "
        "(docs/privileges.md)",
    )


@pytest.mark.root
def test_lockdown_tracefs_and_cgroups_are_found_where_they_are_mounted(tmp_path: Path) -> None:
    places = {kind: tmp_path / f"a {kind}" for kind in ("securityfs", "tracefs", "cgroup2")}
    script = "umount -a -t securityfs,tracefs,cgroup2\n"
    for kind, place in places.items():
        place.mkdir()
        script += f"mount -t {kind} {kind} '{place}'\n"
    script += f"cat '{places['securityfs']}/lockdown' >'{tmp_path}/lockdown' 2>/dev/null\n"
    found = facts_after("unshare", "--mount", "sh", "-c", f'{script} exec "$@"', "sh")
    assert found["tracefs"] == HostFact("tracefs", str(places["tracefs"]), ok=True)
    assert found["cgroup v2"] == HostFact("cgroup v2", str(places["cgroup2"]), ok=True)
    shown = re.search(r"\[(.*)\]", (tmp_path / "lockdown").read_text())
    assert found["lockdown"].value.partition(":")[0] == (shown[1] if shown else "none")


@pytest.mark.root
def test_nothing_mounted_has_a_next_step_each() -> None:
    script = 'umount -a -t securityfs,tracefs,cgroup2; exec "$@"'
    found = facts_after("unshare", "--mount", "sh", "-c", script, "sh")
    assert found["lockdown"].value == "unknown: securityfs is not mounted"
    for name, kind in {"lockdown": "securityfs", "tracefs": "tracefs", "cgroup v2": "cgroup2"}.items():
        assert not found[name].ok
        assert f"mount -t {kind} " in found[name].next_step


@pytest.mark.parametrize(
    ("lockdown", "value", "ok"),
    [
        ("[none] integrity confidentiality\n", "none", True),
        ("none [integrity] confidentiality\n", "integrity", True),
        ("none integrity [confidentiality]\n", "confidentiality: kprobes", False),
        ("something else\n", "unknown: kprobes", False),
    ],
)
def test_lockdown_is_ok_as_long_as_the_kernel_can_be_read(
    lockdown: str, value: str, *, ok: bool, tmp_path: Path
) -> None:
    files = {"proc/self/mountinfo": mounted("securityfs", "/security"), "security/lockdown": lockdown}
    fact = grown(tmp_path, files)["lockdown"]
    assert fact.value.startswith(value)
    assert fact.ok is ok


def test_kernel_without_lockdown_is_ok(tmp_path: Path) -> None:
    fact = grown(tmp_path, {"proc/self/mountinfo": mounted("securityfs", "/security")})["lockdown"]
    assert fact == HostFact("lockdown", "none: this kernel was built without it", ok=True)


def test_mounts_are_as_findmnt_says() -> None:
    columns = ["findmnt", "--kernel", "--list", "--json", "--output", "FSTYPE,FSROOT,TARGET"]
    listed = json.loads(subprocess.run(columns, capture_output=True, check=True).stdout)["filesystems"]
    assert {(one.point, one.kind, one.root) for one in read_mounts()} == {
        (one["target"], one["fstype"], one["fsroot"]) for one in listed
    }


def test_mount_point_with_space_and_utf8_is_read(tmp_path: Path) -> None:
    grown(tmp_path, {"proc/self/mountinfo": mounted("tracefs", "/a\\040b\\134c/é", "/r\\011s")})
    assert read_mounts(tmp_path) == [Mount("tracefs", "/r\ts", "/a b\\c/é")]


@pytest.mark.root
def test_cgroup_namespace_sees_only_a_part() -> None:
    script = 'mount -t cgroup2 cgroup2 /sys/kernel; exec "$@"'
    found = facts_after("unshare", "--mount", "--cgroup", "sh", "-c", script, "sh")["cgroup v2"]
    assert "a part of the host's" in found.value
    assert not found.ok


def test_whole_cgroup_mount_is_preferred_to_a_part(tmp_path: Path) -> None:
    part = mounted("cgroup2", "/part", "/docker/1")
    assert not grown(tmp_path, {"proc/self/mountinfo": part})["cgroup v2"].ok
    both = part + mounted("cgroup2", "/whole")
    assert grown(tmp_path, {"proc/self/mountinfo": both})["cgroup v2"] == HostFact("cgroup v2", "/whole", ok=True)


def test_kernel_btf_size_is_that_of_its_bytes() -> None:
    size = len(Path("/sys/kernel/btf/vmlinux").read_bytes())
    assert facts()["kernel BTF"] == HostFact("kernel BTF", f"/sys/kernel/btf/vmlinux, {size / 1e6:.1f} MB", ok=True)


def test_kernel_without_btf_is_told(tmp_path: Path) -> None:
    fact = facts(tmp_path)["kernel BTF"]
    assert fact.value == "none: /sys/kernel/btf/vmlinux: No such file or directory"
    assert "CONFIG_DEBUG_INFO_BTF=y" in fact.next_step


def test_libbpf_is_the_file_that_is_loaded() -> None:
    fact = facts()["libbpf"]
    found = re.fullmatch(r"(\d+\.\d+), (?:of the system|brought along): (/.*)", fact.value)
    assert found is not None
    assert fact.ok
    # The file of the library is named after its full version.
    assert re.fullmatch(rf"libbpf\.so\.(1|{re.escape(found[1])}\.\d+)", Path(found[2]).resolve().name)
    assert found[2] in Path("/proc/self/maps").read_text()


def test_libbpf_that_is_brought_along_is_told_from_the_systems(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "libbpf.so.1").touch()
    monkeypatch.setattr(host, "BUNDLED", tmp_path / "libbpf.so.1")
    assert facts()["libbpf"].value.endswith(f", brought along: {tmp_path}/libbpf.so.1")


def test_libbpf_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def lib() -> NoReturn:
        raise KernelError("libbpf cannot be opened", "Install it")

    monkeypatch.setattr(host, "lib", lib)
    assert facts()["libbpf"] == HostFact("libbpf", "libbpf cannot be opened", ok=False, next_step="Install it")


@pytest.mark.root
def test_jit_and_statistics_are_as_the_kernel_says() -> None:
    found = facts()
    assert found["BPF JIT"].value.partition(":")[0] == {"0": "off", "1": "on"}[sysctl("net.core.bpf_jit_enable")]
    statistics = {"0": "off while hopscope does not run", "1": "on at all times"}[sysctl("kernel.bpf_stats_enabled")]
    assert found["BPF statistics"].value.startswith(statistics)


@pytest.mark.parametrize(("value", "ok"), [("0", False), ("1", True), ("2", False)])
def test_jit_that_is_off_or_verbose_is_not_ok(value: str, *, ok: bool, tmp_path: Path) -> None:
    fact = grown(tmp_path, {"proc/sys/net/core/bpf_jit_enable": f"{value}\n"})["BPF JIT"]
    assert fact.ok is ok
    assert ok or "net.core.bpf_jit_enable=1" in fact.next_step


def test_statistics_that_are_always_on_are_told(tmp_path: Path) -> None:
    fact = grown(tmp_path, {"proc/sys/kernel/bpf_stats_enabled": "1\n"})["BPF statistics"]
    assert fact.value.startswith("on at all times")


@pytest.mark.root
def test_another_network_namespace_has_its_interfaces_and_no_jit_setting() -> None:
    with Namespace() as namespace:
        found = {fact.name: fact for fact in namespace.call(host_facts)}
        listed = namespace.run(["ip", "-brief", "link"], capture_output=True, text=True).stdout.splitlines()
        jit = namespace.run(["cat", "/proc/sys/net/core/bpf_jit_enable"], capture_output=True)
    assert {name for name in found if name.startswith("nic ")} == {f"nic {line.split()[0]}" for line in listed}
    assert found["BPF JIT"].value.startswith("unknown: ") == (jit.returncode != 0)


def test_kernel_symbols_are_readable_if_the_address_of_code_is_known() -> None:
    code = re.search(r"^(\w+) [Tt] _stext$", Path("/proc/kallsyms").read_text(), re.MULTILINE)
    assert code is not None
    assert facts()["kernel symbols"].ok == (int(code[1], 16) != 0)


@pytest.mark.parametrize(("address", "ok"), [("0000000000000000", False), ("ffffffff81000000", True)])
def test_kernel_symbols_at_zero_are_hidden_but_per_cpu_ones_may_be(address: str, *, ok: bool, tmp_path: Path) -> None:
    text = f"0000000000000000 A fixed_percpu_data\n{address} T startup_64\n"
    fact = grown(tmp_path, {"proc/kallsyms": text})["kernel symbols"]
    assert fact.ok is ok
    assert ok or "kernel.kptr_restrict=1" in fact.next_step


@pytest.mark.parametrize(
    ("current", "available", "step"),
    [
        ("tsc", "tsc hpet acpi_pm", ""),
        ("kvm-clock", "kvm-clock tsc acpi_pm", ""),
        ("arch_sys_counter", "arch_sys_counter", ""),
        ("hpet", "hpet acpi_pm", "dmesg"),
        ("acpi_pm", "tsc acpi_pm", "echo tsc > /sys/devices"),
        ("jiffies", "jiffies", "dmesg"),
    ],
)
def test_slow_clock_source_is_not_ok(current: str, available: str, step: str, tmp_path: Path) -> None:
    names = {"current_clocksource": current, "available_clocksource": available}
    files = {f"{CLOCK_SOURCE}/{name}": f"{value} \n" for name, value in names.items()}
    fact = grown(tmp_path, files)["clock source"]
    assert fact.value.startswith(f"{current} (available: {available})")
    assert fact.ok == (not step)
    assert step in fact.next_step


def test_clock_source_is_the_running_one() -> None:
    current = Path("/", CLOCK_SOURCE, "current_clocksource").read_text().strip()
    assert facts()["clock source"].value.startswith(f"{current} (available: ")


class Timex(ctypes.Structure):
    """``struct timex`` of 64-bit machines, include/uapi/linux/timex.h, up to `tai`."""

    _fields_ = (("before", ctypes.c_byte * 160), ("tai", ctypes.c_int), ("after", ctypes.c_byte * 44))


def test_tai_offset_is_as_adjtimex_says() -> None:
    timex = Timex()
    assert ctypes.CDLL(None).adjtimex(ctypes.byref(timex)) >= 0
    says = f"is {timex.tai} s ahead of CLOCK_REALTIME" if timex.tai else "equals CLOCK_REALTIME"
    assert facts()["TAI offset"].value.startswith(f"CLOCK_TAI {says};")


def test_tai_offset_is_whole_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = {time.CLOCK_REALTIME: 1_700_000_000_999_999_000, time.CLOCK_TAI: 1_700_000_038_000_001_000}
    monkeypatch.setattr(time, "clock_gettime_ns", now_ns.__getitem__)
    assert facts()["TAI offset"].value.startswith("CLOCK_TAI is 37 s ahead of CLOCK_REALTIME;")


def test_cpus_are_as_getconf_says() -> None:
    counts = [
        subprocess.run(["getconf", f"_NPROCESSORS_{kind}"], capture_output=True, text=True, check=True).stdout.strip()
        for kind in ("ONLN", "CONF")
    ]
    found = re.fullmatch(r"(\d+) online \(.*\), (\d+) possible", facts()["CPUs"].value)
    assert found is not None
    assert found[1] == counts[0]
    assert int(found[2]) >= int(counts[1])


def test_cpus_with_gaps_are_counted(tmp_path: Path) -> None:
    files = {"sys/devices/system/cpu/online": "0-3,8,10-11\n", "sys/devices/system/cpu/possible": "0-15\n"}
    assert grown(tmp_path, files)["CPUs"].value == "7 online (0-3,8,10-11), 16 possible"
