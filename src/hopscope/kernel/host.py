# SPDX-License-Identifier: Apache-2.0
"""Facts about the host that decide what can be measured on it, each with the next step where something is missing."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hopscope.errors import KernelError
from hopscope.kernel.nic import nic_facts
from hopscope.libbpf._library import BUNDLED, lib
from hopscope.libbpf.btf import KERNEL_BTF
from hopscope.libbpf.capabilities import NEEDED, STANDS_FOR_ALL, held_capabilities, missing_capabilities
from hopscope.model.snapshot import HostFact

# What the BPF programs are compiled for.
MACHINES: Final = ("x86_64", "aarch64")

# include/linux/proc_ns.h: PROC_USER_INIT_INO, PROC_CGROUP_INIT_INO, PROC_PID_INIT_INO; the host's own namespaces.
INITIAL_NAMESPACES: Final = {"user": 0xEFFFFFFD, "cgroup": 0xEFFFFFFB, "pid": 0xEFFFFFFC}

# Read by a few instructions. Others (hpet, acpi_pm) are device registers, at about a microsecond each, or (jiffies)
# advance by milliseconds.
FAST_CLOCK_SOURCES: Final = (
    "tsc",
    "kvm-clock",
    "xen",
    "hyperv_clocksource_tsc_page",
    "arch_sys_counter",
)

_MOUNT_SECURITYFS: Final = "Mount it to know: mount -t securityfs securityfs /sys/kernel/security"
_MOUNT_TRACEFS: Final = "Mount it: mount -t tracefs tracefs /sys/kernel/tracing"
_MOUNT_CGROUP: Final = "Mount it: mkdir -p /run/cgroup2 && mount -t cgroup2 cgroup2 /run/cgroup2"


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of mountinfo: which folder of a file system of type `kind` is mounted where."""

    kind: str
    root: str
    point: str


def host_facts(root: Path = Path("/")) -> list[HostFact]:
    """Return what this host offers to a measurement; what cannot be found out is said to be unknown, nothing raises.

    `ok` is False where something is missing, worse than it could be, or unknown.

    Parameters
    ----------
    root
        The folder that has ``proc`` and ``sys`` (the kernel's release, libbpf, clocks and interfaces are always asked
        of the running system).
    """
    mounts = read_mounts(root)
    return [
        _kernel(),
        _rights(root),
        _lockdown(root, mounts),
        _btf(root),
        _libbpf(),
        _jit(root),
        _statistics(root),
        _kallsyms(root),
        _tracefs(mounts),
        _cgroup(root, mounts),
        _clock_source(root),
        _tai(),
        _cpus(root),
        *nic_facts(),
    ]


def read_mounts(root: Path = Path("/")) -> list[Mount]:
    """Return the mounts that this process sees, by proc_pid_mountinfo(5); none where /proc is not readable."""
    try:
        lines = os.fsdecode((root / "proc/self/mountinfo").read_bytes()).splitlines()
    except OSError:
        return []
    mounts = []
    for line in lines:
        before, _, after = line.partition(" - ")
        folder, point = before.split(" ")[3:5]
        mounts.append(Mount(after.split(" ")[0], _unescape(folder), _unescape(point)))
    return mounts


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text)


def _read(path: Path) -> str:
    return path.read_text(errors="replace").strip()


def _unknown(name: str, error: OSError, next_step: str) -> HostFact:
    return HostFact(name, f"unknown: {error.filename}: {error.strerror}", ok=False, next_step=next_step)


def _kernel() -> HostFact:
    host = os.uname()
    value = f"{host.sysname} {host.release}, {host.machine}"
    if host.machine in MACHINES:
        return HostFact("kernel", value, ok=True)
    return HostFact("kernel", value, ok=False, next_step=f"Use a machine of type {' or '.join(MACHINES)}")


def _rights(root: Path) -> HostFact:
    status = root / "proc/self/status"
    try:
        fields = dict(re.findall(r"^(\w+):\s*(.*)$", _read(status), re.MULTILINE))
        held, missing = held_capabilities(status), missing_capabilities(status=status)
    except OSError as error:
        return _unknown("rights", error, "Mount /proc")
    uid = int(fields["Uid"].split()[1])
    value = f"{'root' if uid == 0 else f'user {uid}'}, {_held(held)}"
    if not in_initial_namespace("user", root):
        value += "; but in a user namespace, whose rights do not count for BPF"
        return HostFact("rights", value, ok=False, next_step="Run hopscope as root on the host")
    if missing:
        return HostFact("rights", value, ok=False, next_step=how_to_get(missing, uid))
    if STANDS_FOR_ALL not in held:
        value += "; without CAP_SYS_ADMIN the cost of BPF programs is not counted, other namespaces cannot be entered"
    return HostFact("rights", value, ok=True)


def _held(held: set[str]) -> str:
    names = [name for name in (*NEEDED, STANDS_FOR_ALL) if name in held]
    return ", ".join(names) if names else f"none of {', '.join(NEEDED)}"


def how_to_get(missing: list[str], uid: int) -> str:
    """Return the next step of a user who lacks capabilities."""
    if uid != 0:
        return f"Run hopscope as root (sudo hopscope), or give it {' and '.join(missing)} (docs/privileges.md)"
    return f"Give root the missing {' and '.join(missing)} (a container: --cap-add, or --privileged)"


def in_initial_namespace(kind: str, root: Path = Path("/")) -> bool:
    """Tell whether this process is in the host's own namespace of a kind of :data:`INITIAL_NAMESPACES`."""
    try:
        link = (root / "proc/self/ns" / kind).readlink()
    except OSError:
        return True  # a kernel without such namespaces has only the initial one
    return link.name == f"{kind}:[{INITIAL_NAMESPACES[kind]}]"


def _lockdown(root: Path, mounts: list[Mount]) -> HostFact:
    securityfs = next((mount.point for mount in mounts if mount.kind == "securityfs"), None)
    if securityfs is None:
        return HostFact("lockdown", "unknown: securityfs is not mounted", ok=False, next_step=_MOUNT_SECURITYFS)
    try:
        found = re.search(r"\[(\w+)\]", _read(root / securityfs.lstrip("/") / "lockdown"))
    except FileNotFoundError:
        return HostFact("lockdown", "none: this kernel was built without it", ok=True)
    except OSError as error:
        return _unknown("lockdown", error, "Run hopscope as root")
    mode = found[1] if found else "unknown"
    # enum lockdown_reason, include/linux/security.h: what tracing needs is taken away above LOCKDOWN_INTEGRITY_MAX.
    if mode in {"none", "integrity"}:
        return HostFact("lockdown", mode, ok=True)
    value = f"{mode}: kprobes, tracefs and BPF's reads of kernel memory may be refused"
    return HostFact("lockdown", value, ok=False, next_step="Boot with lockdown=integrity, or without lockdown")


def _btf(root: Path) -> HostFact:
    try:
        size = (root / KERNEL_BTF.relative_to("/")).stat().st_size
    except OSError as error:
        step = "Boot a kernel that was built with CONFIG_DEBUG_INFO_BTF=y, as those of the distributions are"
        return HostFact("kernel BTF", f"none: {KERNEL_BTF}: {error.strerror}", ok=False, next_step=step)
    return HostFact("kernel BTF", f"{KERNEL_BTF}, {size / 1e6:.1f} MB", ok=True)


def _libbpf() -> HostFact:
    try:
        library = lib()
    except KernelError as error:
        return HostFact("libbpf", error.what, ok=False, next_step=error.next_step)
    version = f"{library.libbpf_major_version()}.{library.libbpf_minor_version()}"
    if BUNDLED.exists():
        return HostFact("libbpf", f"{version}, brought along: {BUNDLED}", ok=True)
    found = re.search(r"/\S*/libbpf\.so\S*", Path("/proc/self/maps").read_text())
    return HostFact("libbpf", f"{version}, of the system: {found[0] if found else 'libbpf.so.1'}", ok=True)


def _jit(root: Path) -> HostFact:
    try:
        value = _read(root / "proc/sys/net/core/bpf_jit_enable")
    except FileNotFoundError as error:
        # net_core_table is registered for init_net alone, and only with CONFIG_BPF_JIT.
        return _unknown("BPF JIT", error, "Look in the host's network namespace: nsenter -t 1 -n hopscope probes")
    except OSError as error:
        return _unknown("BPF JIT", error, "Run hopscope as root")
    if value == "0":
        step = "Switch it on: sysctl -w net.core.bpf_jit_enable=1"
        return HostFact("BPF JIT", "off: programs are interpreted, several times slower", ok=False, next_step=step)
    if value == "2":
        step = "Switch that off: sysctl -w net.core.bpf_jit_enable=1"
        return HostFact("BPF JIT", "on, and writing programs to the kernel's log", ok=False, next_step=step)
    return HostFact("BPF JIT", "on", ok=True)


def _statistics(root: Path) -> HostFact:
    try:
        value = _read(root / "proc/sys/kernel/bpf_stats_enabled")
    except OSError as error:
        return _unknown("BPF statistics", error, "Boot Linux 5.1 or newer to see what BPF programs cost")
    if value == "0":
        return HostFact("BPF statistics", "off while hopscope does not run", ok=True)
    return HostFact("BPF statistics", "on at all times: each run of any program reads the clock twice", ok=True)


def _kallsyms(root: Path) -> HostFact:
    try:
        with (root / "proc/kallsyms").open() as lines:
            # Per-CPU variables come first and may be at 0 by right; code never is.
            code = next((line for line in lines if line.split(maxsplit=2)[1] in {"T", "t"}), "0")
    except OSError as error:
        return _unknown("kernel symbols", error, "Run hopscope as root, on a kernel with CONFIG_KALLSYMS=y")
    if int(code.split()[0], 16):
        return HostFact("kernel symbols", "readable", ok=True)
    step = "Run hopscope as root, or with CAP_SYSLOG; if it was, sysctl -w kernel.kptr_restrict=1"
    return HostFact("kernel symbols", "their addresses are hidden: no names in stack traces", ok=False, next_step=step)


def _tracefs(mounts: list[Mount]) -> HostFact:
    points = [mount.point for mount in mounts if mount.kind == "tracefs"]
    if points:
        return HostFact("tracefs", points[0], ok=True)
    return HostFact("tracefs", "not mounted: only classic tracepoints need it", ok=False, next_step=_MOUNT_TRACEFS)


def _cgroup(root: Path, mounts: list[Mount]) -> HostFact:
    found = [mount for mount in mounts if mount.kind == "cgroup2"]
    if not found:
        value = "not mounted: cgroup hooks, filters and groups need it"
        return HostFact("cgroup v2", value, ok=False, next_step=_MOUNT_CGROUP)
    whole = next((mount for mount in found if mount.root == "/"), None)
    if whole is not None and in_initial_namespace("cgroup", root):
        return HostFact("cgroup v2", whole.point, ok=True)
    point = (whole or found[0]).point
    return HostFact(
        "cgroup v2",
        f"{point}, a part of the host's: other cgroups are out of sight",
        ok=False,
        next_step="Run hopscope outside of the container, or with the host's cgroup namespace and mount",
    )


def _clock_source(root: Path) -> HostFact:
    folder = root / "sys/devices/system/clocksource/clocksource0"
    try:
        current = _read(folder / "current_clocksource")
        available = _read(folder / "available_clocksource").split()
    except OSError as error:
        return _unknown("clock source", error, "Mount /sys")
    value = f"{current} (available: {' '.join(available)})"
    if current in FAST_CLOCK_SOURCES:
        return HostFact("clock source", value, ok=True)
    better = next((name for name in FAST_CLOCK_SOURCES if name in available), None)
    step = "See why the kernel rejected a faster one: dmesg | grep -i -e clocksource -e tsc"
    if better:
        step = f"Switch: echo {better} > /sys/devices/system/clocksource/clocksource0/current_clocksource"
    return HostFact("clock source", f"{value}: slow or coarse, and each probe reads it", ok=False, next_step=step)


def _tai() -> HostFact:
    # CLOCK_TAI is CLOCK_REALTIME plus the whole seconds that adjtimex(2) calls `tai`.
    before_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
    offset_s = round((time.clock_gettime_ns(time.CLOCK_TAI) - before_ns) / 1e9)
    value = f"CLOCK_TAI is {offset_s} s ahead of CLOCK_REALTIME" if offset_s else "CLOCK_TAI equals CLOCK_REALTIME"
    return HostFact("TAI offset", f"{value}; no measurement depends on it", ok=True)


def _cpus(root: Path) -> HostFact:
    try:
        online, possible = (_read(root / "sys/devices/system/cpu" / name) for name in ("online", "possible"))
    except OSError as error:
        return _unknown("CPUs", error, "Mount /sys")
    return HostFact("CPUs", f"{_count(online)} online ({online}), {_count(possible)} possible", ok=True)


def _count(ranges: str) -> int:
    ends = [[int(end) for end in part.split("-")] for part in ranges.split(",")]
    return sum(end[-1] - end[0] + 1 for end in ends)
