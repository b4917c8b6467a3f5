# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from hopscope import bpf
from hopscope.errors import KernelError, LoadError
from hopscope.probes import grants
from hopscope.probes.grants import KINDS, AttachSupport, refusal, try_kind
from tests import leftovers


@pytest.mark.root
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_granted_or_refused_with_a_reason_and_taken_away_again(kind: str) -> None:
    before = leftovers.seen()
    grant = try_kind(kind)
    assert grant.granted != bool(grant.reason)
    assert leftovers.left_since(before) == set()


@pytest.mark.root
def test_tracepoints_and_cgroups_are_granted_on_every_kernel_of_the_matrix() -> None:
    assert [kind for kind in ("tp_btf", "cgroup_skb") if not try_kind(kind).granted] == []


def test_kernel_without_kprobes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants, "KPROBE_PMU", Path("/no/such"))
    assert try_kind("kprobe") == AttachSupport(
        granted=False, reason="this kernel was built without kprobes (CONFIG_KPROBES)", next_step=""
    )


def test_missing_object_is_no_fault_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> Path:
        raise KernelError("The BPF object features.bpf.o is not built", "Run `make build`")

    monkeypatch.setattr(grants, "object_path", missing)
    with pytest.raises(KernelError, match="not built"):
        try_kind("tp_btf")
    assert bpf.object_path("features").exists()


def test_refusal_has_the_errno_and_what_the_verifier_said_last() -> None:
    log = "libbpf: prog 'x': BPF program load failed\n0: R1=ctx()\nunknown func bpf_nope#0\nprocessed 1 insns\n"
    grant = refusal(LoadError("cannot be loaded", "See the log", errno=22, log=log))
    assert grant == AttachSupport(
        granted=False, reason="errno 22 (Invalid argument): unknown func bpf_nope#0", next_step=""
    )


def test_refusal_for_want_of_rights_says_what_to_do() -> None:
    grant = refusal(LoadError("cannot be loaded", "Run it as root, or with CAP_BPF", errno=1))
    assert grant.next_step == "Run it as root, or with CAP_BPF"


def test_refusal_without_errno_is_the_sentence() -> None:
    grant = refusal(KernelError("cgroup version 2 is not mounted", "Mount it"))
    assert grant == AttachSupport(granted=False, reason="cgroup version 2 is not mounted", next_step="Mount it")
