# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno

import pytest

from hopscope.libbpf import _failure


@pytest.mark.parametrize(
    ("log", "name"),
    [
        ("libbpf: prog 'on_rx': failed to load: -22\nlibbpf: failed to load object 'x'\n", "on_rx"),
        ("libbpf: prog 'on_rx': failed to load: -EINVAL\n", "on_rx"),
        ("libbpf: prog 'a': failed to find kernel BTF type ID of 'nope': -3\n", "a"),
        ("libbpf: prog 'a': failed to prepare load attributes: -3\nlibbpf: failed to load object 'x'\n", "a"),
        ("libbpf: prog 'b': missing BPF prog type, check ELF section name 'netfilter'\n", "b"),
        ("libbpf: prog 'c': relo #3: failed to relocate: -22\n", "c"),
        ("libbpf: prog 'a': failed to patch\nlibbpf: prog 'b': BPF program load failed: Permission denied\n", "b"),
        ("libbpf: map 'm': failed to create: Invalid argument(-22)\n", None),
        ("0: R1=ctx() libbpf: prog 'quoted': failed to load\n", None),
        ("", None),
    ],
)
def test_refused_program_is_the_one_that_the_log_blames_last(log: str, name: str | None) -> None:
    assert _failure.refused_program(log) == name


@pytest.mark.parametrize(
    ("code", "missing", "said"),
    [
        (errno.EPERM, ["CAP_BPF"], r"as root, or with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN \(missing: CAP_BPF\)"),
        (errno.EACCES, ["CAP_BPF"], r"as root, or with CAP_BPF"),
        (errno.EPERM, [], "forbids it even to root"),
        (errno.EACCES, [], "verifier refused it"),
        (errno.ENOSPC, [], "smaller maps"),
        (errno.E2BIG, [], "larger than this kernel allows"),
        (errno.EBUSY, [], "end the other tracing tool"),
    ],
)
def test_next_step_fits_the_errno(monkeypatch: pytest.MonkeyPatch, code: int, missing: list[str], said: str) -> None:
    monkeypatch.setattr(_failure, "missing_capabilities", lambda: missing)
    error = _failure.load_error("x cannot be loaded", -code)
    assert error.errno == code
    with pytest.raises(type(error), match=said):
        raise error


def test_error_carries_program_and_log() -> None:
    log = "libbpf: prog 'on_rx': failed to load: -22\n"
    error = _failure.load_error("rx.bpf.o cannot be loaded", -errno.EINVAL, log=log)
    assert (error.program, error.log) == ("on_rx", log.rstrip())
    assert error.what == "rx.bpf.o cannot be loaded (program on_rx): Invalid argument"
    assert "(program" not in _failure.load_error("on_rx cannot be attached", errno.EINVAL, program="on_rx").what
