# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from hopscope.errors import PrivilegeError
from hopscope.kernel import capabilities as rights
from hopscope.kernel.capabilities import require_rights


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(rights, "in_initial_namespace", lambda _: True)
    monkeypatch.setattr(rights, "missing_capabilities", list)
    return monkeypatch


def test_root_of_the_host_may(host: pytest.MonkeyPatch) -> None:
    del host
    require_rights()


@pytest.mark.parametrize(("uid", "step"), [(0, "Give root the missing CAP_BPF "), (1000, "sudo hopscope")])
def test_missing_capability_is_named_with_the_next_step(uid: int, step: str, host: pytest.MonkeyPatch) -> None:
    host.setattr(rights, "missing_capabilities", lambda: ["CAP_BPF"])
    host.setattr("os.geteuid", lambda: uid)
    with pytest.raises(PrivilegeError, match=r"\(missing: CAP_BPF\)") as caught:
        require_rights()
    assert caught.value.exit_code == 77
    assert step in caught.value.next_step


def test_root_of_a_user_namespace_may_not(host: pytest.MonkeyPatch) -> None:
    host.setattr(rights, "in_initial_namespace", lambda _: False)
    with pytest.raises(PrivilegeError, match="user namespace"):
        require_rights()
