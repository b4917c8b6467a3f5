# SPDX-License-Identifier: Apache-2.0
"""``hopscope check`` of the running host."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from hopscope.lab.veth import SERVER_IPV4
from tests.lab.command import assert_fits, complaint, hopscope, objects
from tests.provoke.common import TIMES
from tests.provoke.listeners import accept_queue_full
from tests.provoke.udp import receive_buffer_full
from tests.verbs.check.checking import while_it_waits

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from hopscope.lab import Lab

pytestmark = pytest.mark.root


def troubled(kept_lab: Lab, trouble: AbstractContextManager[object], *words: str) -> tuple[str, str, int]:
    """Make trouble between the two readings."""
    with contextlib.ExitStack() as stack:
        return while_it_waits(lambda: stack.enter_context(trouble), "--netns", kept_lab.server.inode, *words)


def _code(out: str) -> int:
    """Return the exit code for an output: others on this machine may make trouble meanwhile, too."""
    return 4 if "CRITICAL" in out else 3


def test_trouble_is_found_and_the_exit_code_says_how_grave(kept_lab: Lab) -> None:
    out, complaints, code = troubled(kept_lab, accept_queue_full(kept_lab))
    assert (code, complaints) == (4, "")
    assert "CRITICAL  tcp-listen-overflow  in namespace " in out
    assert f"{TIMES} TCP segments (SYN or final ACK) were refused because" in out
    out, complaints, code = troubled(kept_lab, receive_buffer_full(kept_lab))
    assert (code, complaints) == (_code(out), "")
    assert "WARNING   udp-receive-buffer  in namespace " in out
    assert f"{TIMES} UDP datagrams over IPv4" in out


def test_json_fits_its_schema_and_has_the_evidence(kept_lab: Lab) -> None:
    out, _, code = troubled(kept_lab, receive_buffer_full(kept_lab), "--json", "--all")
    lines = objects(out)
    assert code == {"critical": 4, "warning": 3}[lines[-1]["worst"]]
    for line in lines:
        assert_fits(line, "check-1")
    (found,) = [line for line in lines if line.get("id") == "udp-receive-buffer" and line["kind"] == "finding"]
    assert found["netns"] == kept_lab.server.inode
    assert [row["by"] for row in found["evidence"] if row["counter"] == "UdpRcvbufErrors"] == [TIMES]
    (drops,) = [row for row in found["evidence"] if row["counter"] == "drops"]
    assert drops["subject"].startswith(f"{SERVER_IPV4}:")
    assert drops["by"] == TIMES


def test_only_what_is_as_grave_counts(kept_lab: Lab) -> None:
    out, _, code = troubled(kept_lab, receive_buffer_full(kept_lab), "--severity", "critical")
    assert code == (_code(out) if "CRITICAL" in out else 0)
    assert "UDP datagrams" not in out
    assert "less severe not shown" in out


def test_quiet_namespace_has_no_warning(kept_lab: Lab) -> None:
    done = hopscope("check", "-d", 0.5, "--netns", kept_lab.server.inode, "--json")
    warned = [
        line for line in objects(done.stdout) if line["kind"] == "finding" and line["netns"] == kept_lab.server.inode
    ]
    assert warned == []
    assert done.stderr == ""


def test_all_says_what_is_well_and_what_is_not_to_be_seen(kept_lab: Lab) -> None:
    done = hopscope("check", "-d", 0.1, "--netns", kept_lab.server.inode, "--all")
    assert "checked, no problems" in done.stdout
    assert "\nnot visible on this host\n" in done.stdout
    assert "nic-cloud-limit: ethtool -S has no *_allowance_exceeded on this host" in done.stdout


def test_namespace_that_is_not_there_is_said() -> None:
    assert complaint(hopscope("check", "--netns", "no-such"), 2).startswith("No network namespace is named no-such.")


def test_help_says_the_exit_codes() -> None:
    said = " ".join(hopscope("check", "-h").stdout.split())
    assert "Exit codes: 0 nothing, or notices only; 3 a warning; 4 something critical." in said
