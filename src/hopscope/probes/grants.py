# SPDX-License-Identifier: Apache-2.0
"""Which kinds of attachment this kernel grants, found by trying each with an empty program."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

from hopscope.bpf import object_path
from hopscope.errors import KernelError, LoadError
from hopscope.libbpf import BpfObject, Btf
from hopscope.libbpf.perf_event import KPROBE_PMU, UPROBE_PMU
from hopscope.probes.attach import attach, prepare

KINDS: Final = (
    "tp_btf",
    "fentry",
    "fexit",
    "kprobe",
    "kretprobe",
    "cgroup_skb",
    "netfilter",
    "sockops",
    "iter",
    "perf_event",
    "uprobe",
)


@dataclass(frozen=True, slots=True)
class AttachSupport:
    """Whether something can be had, and if not, why and what to do."""

    granted: bool
    reason: str = ""
    next_step: str = ""


GRANTED: Final = AttachSupport(granted=True)


def refusal(error: KernelError) -> AttachSupport:
    """Return why an attach method is not supported."""
    if isinstance(error, LoadError) and error.errno:
        return AttachSupport(
            granted=False, reason=f"{error.reason}{_last_words(error.log)}", next_step=_next_step(error)
        )
    return AttachSupport(granted=False, reason=error.what, next_step=error.next_step)


def try_kind(kind: str) -> AttachSupport:
    """Load and attach an empty program of a kind, and take it away again.

    Raises
    ------
    KernelError
        The programs are not built.
    """
    name = f"feature_{kind}"
    if kind in {"kprobe", "kretprobe"} and not KPROBE_PMU.exists():
        return AttachSupport(granted=False, reason="this kernel was built without kprobes (CONFIG_KPROBES)")
    if kind == "uprobe" and not UPROBE_PMU.exists():
        return AttachSupport(granted=False, reason="this kernel was built without uprobes (CONFIG_UPROBE_EVENTS)")
    if kind == "netfilter" and not Btf.kernel().has_func("bpf_nf_link_attach"):
        return AttachSupport(
            granted=False, reason="this kernel has no BPF for netfilter (6.4, CONFIG_NETFILTER_BPF_LINK)"
        )
    path = object_path("features")
    try:
        with BpfObject.open(path) as bpf:
            for program in bpf.programs.values():
                program.autoload = program.name == name
            prepare(bpf.programs[name], kind)
            bpf.load()
            attach(bpf.programs[name], kind)
    except KernelError as error:
        return refusal(error)
    return GRANTED


def lacks_socket_storage(error: LoadError) -> bool:
    """Say whether a program was refused because tracing programs have no socket storage (before 5.11, 8e4597c627fb)."""
    return "bpf_sk_storage_get" in error.log


def _last_words(log: str) -> str:
    """Return what the verifier said last, if it said anything."""
    lines = [line.strip() for line in log.splitlines()]
    for before, line in itertools.pairwise(lines):
        if line.startswith(("processed ", "verification time")) and not before.startswith("libbpf:"):
            return f": {before}"
    return ""


def _next_step(error: LoadError) -> str:
    if error.errno in {1, 13} and "root" in error.next_step:
        return error.next_step
    return ""
