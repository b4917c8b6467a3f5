# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from hopscope.errors import PrivilegeError
from hopscope.kernel import capabilities as rights
from hopscope.kernel.capabilities import require_rights
from tests.lab.command import complaint, hopscope


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(rights, "in_initial_namespace", lambda _: True)
    monkeypatch.setattr(rights, "missing_capabilities", lambda _: [])
    return monkeypatch


def test_root_of_the_host_may(host: pytest.MonkeyPatch) -> None:
    del host
    require_rights()


@pytest.mark.parametrize(("uid", "step"), [(0, "Give root the missing CAP_BPF "), (1000, "or give it CAP_BPF (")])
def test_missing_capability_is_named_with_the_next_step(uid: int, step: str, host: pytest.MonkeyPatch) -> None:
    host.setattr(rights, "missing_capabilities", lambda _: ["CAP_BPF"])
    host.setattr("os.geteuid", lambda: uid)
    with pytest.raises(PrivilegeError, match=r"\(missing: CAP_BPF\)") as caught:
        require_rights()
    assert caught.value.exit_code == 77
    assert step in caught.value.next_step


def test_root_of_a_user_namespace_may_not(host: pytest.MonkeyPatch) -> None:
    host.setattr(rights, "in_initial_namespace", lambda _: False)
    with pytest.raises(PrivilegeError, match="user namespace"):
        require_rights()


@pytest.mark.root
def test_another_clock_than_the_kernel_s_is_refused() -> None:
    done = hopscope("rx", "-d", "0.1", before=("unshare", "--fork", "--time", "--monotonic", "100"))
    assert complaint(done, 1).startswith("The monotonic clock of this time namespace is not the kernel's")
