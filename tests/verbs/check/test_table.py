# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest

from hopscope.gate import passed
from hopscope.model.counters.readings import Unread
from hopscope.term.terminal import Terminal
from hopscope.verbs.check.findings import Check, evaluate
from hopscope.verbs.check.json import check_lines
from hopscope.verbs.check.knowledge.all import ENTRIES
from hopscope.verbs.check.page import table, with_table
from hopscope.verbs.check.table import render_check
from tests.verbs.check.world import NETNS, Values, key, of_keys, readings

if TYPE_CHECKING:
    from collections.abc import Callable

DOCS = Path(__file__).resolve().parents[3] / "docs"
SCHEMA = json.loads((DOCS / "json" / "hopscope.check-1.schema.json").read_text())

TROUBLE: Values = {
    "netstat::TcpExtListenOverflows": 211,
    "sysctl::net.core.somaxconn": 128,
    "socket:0.0.0.0;80 tcp listener:queue": 60,
    "socket:0.0.0.0;80 tcp listener:backlog": 128,
    "snmp::UdpRcvbufErrors": 1200,
    "snmp::UdpInDatagrams": 100_000,
    "udp_socket:0.0.0.0;53 inode 7:drops": 1200,
    "snmp::IcmpInRedirects": 12,
    "snmp::TcpRetransSegs": 20,
    "netstat::TcpExtTCPSynRetrans": 0,
    "netstat::TcpExtTCPOrigDataSent": 100_000,
    "sysctl::net.ipv4.tcp_slow_start_after_idle": 1,
    **{f"link:eth{number}:rx_missed_errors": 100 * (number + 1) for number in range(9)},
    **{f"link:eth{number}:rx_packets": 10_000 for number in range(9)},
    **{f"ring:eth{number}:rx": 512 for number in range(9)},
    **{f"ring:eth{number}:rx_max": 4096 for number in range(9)},
}
# What the golden files are of: they stay as they are when entries are added.
TOLD = (
    "nic-rx-missed",
    "tcp-listen-overflow",
    "udp-receive-buffer",
    "icmp-redirects",
    "tcp-retransmission",
    "ip-martians",
)


@pytest.fixture
def check() -> Check:
    unread = (Unread(NETNS, "conntrack", "this kernel has no /proc/sys/net/netfilter/nf_conntrack_count"),)
    return evaluate(*readings(TROUBLE, unread=unread))


@pytest.mark.parametrize(("width", "look"), [(80, ""), (40, ""), (120, ""), (80, "_ascii")])
def test_findings_are_told_the_gravest_first(width: int, look: str, golden: Callable[[str, str], None]) -> None:
    known = [entry for entry in ENTRIES if entry.id in TOLD]
    shown = render_check(evaluate(*readings(TROUBLE), known), Terminal(width, unicode=not look))
    golden(f"check_{width}{look}", shown)
    assert all(len(line) <= width for line in shown.splitlines() if not line.startswith("  $ "))


def test_all_shows_notes_what_is_well_and_what_cannot_be_seen(check: Check) -> None:
    shown = render_check(check, Terminal(80), everything=True)
    findings, _, others = shown.partition("checked, no problems\n")
    assert "\nNOTE      note-slow-start-after-idle\n" in findings
    well, _, unseen = others.partition("\nnot visible on this host\n")
    assert well.splitlines()[1].split() == ["tcp", "tcp-retransmission", "1", "1,020"]
    assert "conntrack-filling: this kernel has no /proc/sys/net/netfilter/nf_conntrack_count " in " ".join(
        unseen.split()
    )
    assert "\ntcp-timeouts: nstat -az has no TcpExtTCPTimeouts on this host\n" in unseen


def test_less_severe_ones_are_left_out_and_counted(check: Check) -> None:
    shown = render_check(check, Terminal(200), least="critical")
    assert "WARNING" not in shown
    assert shown.splitlines()[-1].startswith("2 critical, 3 less severe not shown. ")


def test_nothing_found_says_what_was_looked_at_and_what_was_not() -> None:
    values: Values = {"snmp::UdpNoPorts": 1, "nft::drop_rules_without_counter": 2}
    looked, limits = render_check(evaluate(*readings(values)), Terminal(400)).splitlines()
    assert looked == (
        f"No problems found. Checked 1 condition in 1 network namespace over 5.0 s; {_entries() - 1} cannot be checked "
        "on this host (--all)."
    )
    assert limits.startswith("Not covered: conditions that cannot be checked (")
    assert limits.endswith(
        "), packets dropped by 2 nftables rules without a counter, losses outside of this host, and anything before or "
        "after these 5.0 s."
    )


def test_what_was_refused_is_told_after_the_summary() -> None:
    refused = [Unread(NETNS + 1, source, "it cannot be entered: operation not permitted") for source in "abcde"]
    unread = (*refused, Unread(NETNS, "sysctl", "no"), Unread(NETNS, "conntrack", "this kernel has no /proc/x"))
    check = evaluate(*readings({"snmp::UdpNoPorts": 1}, unread=unread))
    assert render_check(check, Terminal(400)).splitlines()[2:] == [
        f"Not read: most of {NETNS + 1}: it cannot be entered: operation not permitted.",
        "Not read: sysctl of host: no.",
    ]


def test_colour_is_only_where_there_is_colour(check: Check) -> None:
    plain, painted = render_check(check, Terminal(80)), passed(render_check(check, Terminal(80, colour=True)))
    assert "\x1b" not in plain
    assert painted.startswith("\x1b[31mCRITICAL  nic-rx-missed\x1b[0m\n")


def test_hostile_names_do_not_reach_the_terminal() -> None:
    values = {key("link:\x1b[2Jx:tx_carrier_errors"): 7}
    before, now = of_keys(values)
    names = {NETNS: "\x1b]0;blue\x07"}
    changed = (type(each)(each.time_ns, each.until_ns, each.numbers, each.words, names) for each in (before, now))
    shown = render_check(evaluate(*changed), Terminal(80), everything=True)
    assert not {char for char in shown if not char.isprintable()} - {"\n"}


def test_json_has_a_line_a_finding_and_a_summary(check: Check) -> None:
    lines = [json.loads(line) for line in check_lines(check, 0)]
    for line in lines:
        jsonschema.Draft202012Validator(SCHEMA).validate(line)
    findings = [line for line in lines if line["kind"] == "finding"]
    assert [line["id"] for line in findings] == [finding.id for finding in check.findings]
    assert lines[-1] == {
        "schema": "hopscope.check/1",
        "kind": "summary",
        "time": "1970-01-01T00:00:00.000000Z",
        "interval_s": 5.0,
        "worst": "critical",
        "findings": len(check.findings),
        "unread": [],
        **{state: sum(_state(each, state) for each in check.checked) for state in ("looked_at", "well", "unseen")},
    }
    (overflow,) = [line for line in findings if line["id"] == "tcp-listen-overflow"]
    assert overflow["evidence"] == [
        {
            "source": "netstat", "netns": NETNS, "subject": None, "counter": "TcpExtListenOverflows", "before": 1000,
            "now": 1211, "by": 211, "per_s": 42.2, "share": None, "how": "counted",
        },
        {
            "source": "socket", "netns": NETNS, "subject": "0.0.0.0:80 tcp listener", "counter": "queue",
            "before": 60, "now": 60, "by": None, "per_s": None, "share": None, "how": None,
        },
    ]  # fmt: skip
    assert overflow["fixes"][1] == {
        "command": "sysctl -w net.core.somaxconn=4096",
        "note": "now 128; the application's backlog is cut to it; then restart the application",
    }


def test_json_of_all_has_notes_and_every_entry(check: Check) -> None:
    lines = [json.loads(line) for line in check_lines(check, 0, everything=True)]
    for line in lines:
        jsonschema.Draft202012Validator(SCHEMA).validate(line)
    entries = {line["id"]: line for line in lines if line["kind"] == "entry"}
    assert sorted(entries) == sorted(entry.id for entry in ENTRIES)
    assert entries["nic-rx-missed"]["places_found"] == 9
    assert entries["tcp-retransmission"]["state"] == "well"
    assert entries["tcp-retransmission"]["total"] == 1020
    assert entries["conntrack-filling"]["unseen"] == ["this kernel has no /proc/sys/net/netfilter/nf_conntrack_count"]
    assert [line["id"] for line in lines if line["kind"] == "finding"][-1] == "note-slow-start-after-idle"


def test_table_of_the_documentation_is_that_of_the_entries() -> None:
    page = (DOCS / "check.md").read_text(encoding="utf-8")
    assert with_table(page) == page, "python -m hopscope.verbs.check.page docs/check.md"
    assert table().count("\n| `") == len(ENTRIES)


def _entries() -> int:
    return sum(entry.severity != "note" for entry in ENTRIES)


def _state(checked: object, state: str) -> bool:
    entry, found = getattr(checked, "entry"), getattr(checked, "state")  # noqa: B009
    if entry.severity == "note":
        return False
    return found != "unseen" if state == "looked_at" else found == state
