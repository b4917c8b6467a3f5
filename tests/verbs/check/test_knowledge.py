# SPDX-License-Identifier: Apache-2.0
"""Every entry: when it is a finding, what it says then, when it just is none, and that what it names is there."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path
from typing import Final

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.kernel.counters.reader import CounterReader
from hopscope.lab import Lab
from hopscope.main import cli
from hopscope.model.cause import BY_NAME
from hopscope.model.counters.readings import HOST, Key
from hopscope.model.counters.sources import LAYERS, SOURCES, kind_of
from hopscope.term.terminal import Terminal
from hopscope.verbs.check.figures import blanks
from hopscope.verbs.check.findings import SEVERITIES, Check, Entry, evaluate
from hopscope.verbs.check.fold import fold
from hopscope.verbs.check.json import check_lines
from hopscope.verbs.check.knowledge.all import ENTRIES
from hopscope.verbs.check.knowledge.causes import _CAUSES
from hopscope.verbs.check.table import render_check
from hopscope.verbs.rx.hops import HOPS as RX_HOPS
from hopscope.verbs.tx.hops import HOPS as TX_HOPS
from tests.verbs.check.cases_device import CASES as OF_DEVICES
from tests.verbs.check.cases_ip import CASES as OF_IP
from tests.verbs.check.cases_socket import CASES as OF_SOCKETS
from tests.verbs.check.cases_tcp import CASES as OF_TCP
from tests.verbs.check.world import BEFORE, NETNS, SECONDS, Case, key, of_keys, readings

CASES = (*OF_DEVICES, *OF_IP, *OF_TCP, *OF_SOCKETS)
BY_ID = {entry.id: entry for entry in ENTRIES}
EVERY_CASE = pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
EVERY_ENTRY = pytest.mark.parametrize("entry", ENTRIES, ids=list(BY_ID))


def test_every_entry_has_its_case_and_a_name_of_its_own() -> None:
    assert sorted(BY_ID) == sorted(case.id for case in CASES)
    assert len(BY_ID) == len(ENTRIES)


@EVERY_CASE
def test_finding_has_exactly_its_sentence_evidence_and_command(case: Case) -> None:
    result = evaluate(*readings(case.values), [BY_ID[case.id]])
    (found,) = result.checked[0].findings
    assert found.sentence == case.sentence
    assert (found.id, found.subject) == (case.id, case.subject)
    shows = [text for text in case.values if not text.startswith("sysctl")] if case.shows is None else case.shows
    assert {row.key for row in found.evidence} == {key(text) for text in shows}
    for text in shows:
        (row,) = [row for row in found.evidence if row.key == key(text)]
        value = case.values[text]
        if kind_of(row.key) == "counter" and isinstance(value, int):
            assert (row.before, row.now, row.by, row.how) == (BEFORE, BEFORE + value, value, "counted")
            assert row.per_s == pytest.approx(value / SECONDS)
        else:
            assert (row.now, row.by, row.how) == (value, None, "")
    assert not case.fix or found.fixes[0] == case.fix
    assert (found in result.findings) == (BY_ID[case.id].severity != "note")


@EVERY_CASE
def test_just_below_it_is_looked_at_and_well(case: Case) -> None:
    (checked,) = evaluate(*readings({**case.values, **case.below}), [BY_ID[case.id]]).checked
    assert (checked.findings, checked.state) == ([], "well")


@EVERY_CASE
def test_nothing_is_said_where_nothing_is_read(case: Case) -> None:
    (checked,) = evaluate(*readings({}), [BY_ID[case.id]]).checked
    assert (checked.findings, checked.state) == ([], "unseen")
    assert len(checked.unseen) == 1


@EVERY_CASE
def test_same_trouble_at_ten_places_is_told_once(case: Case) -> None:
    """Of a host's ten namespaces, or of a namespace's ten interfaces."""
    values = {}
    for number in range(10):
        for text, value in case.values.items():
            of = key(text, NETNS + number)
            first, _, rest = of.subject.partition(" ")
            if of.netns == HOST and of.subject and first == "cpu" and case.subject.startswith("cpu"):
                of = of._replace(subject=f"cpu {number}")
            elif first == "eth0" and of.netns != HOST:
                of = of._replace(netns=NETNS, subject=f"eth{number} {rest}".strip())
            values[of] = value
    result = evaluate(*of_keys(values), [BY_ID[case.id]])
    assert len(fold([*result.findings, *result.notes])) == 1
    shown = render_check(result, Terminal(80), everything=True)
    assert shown.count(f"  {case.id}") == 1
    assert max(len(line) for line in shown.splitlines() if not line.startswith("  $ ")) <= 80


# A host that has much to do, in five seconds, with the little losses and oddities that are everybody's.
HEALTHY: Final = {
    "link:eth0:rx_packets": 4_000_000, "link:eth0:tx_packets": 3_000_000, "link:eth0:rx_dropped": 12,
    "link:eth0:rx_missed_errors": 3, "link:eth0:rx_crc_errors": 1, "link:eth0:rx_fifo_errors": 0,
    "link:eth0:tx_dropped": 4, "link:eth0:tx_errors": 0, "link:eth0:rx_nohandler": 20, "link:eth0:collisions": 0,
    "link:eth0:carrier_changes": 0, "link:bond1:rx_packets": 1500, "link:bond1:rx_nohandler": 1500,
    "ethtool:eth0:rx_no_buffer_count": 30, "ethtool:eth0:rx_flow_control_xoff": 4, "ring:eth0:rx": 512,
    "ring:eth0:rx_max": 4096, "driver:eth0:duplex": "full", "driver:eth0:speed_mbps": 25_000,
    "features:eth0:generic-receive-offload": "on", "queue:eth0 rx-0:rps_cpus": "0", "queue:eth0 rx-1:rps_cpus": "0",
    "softnet:cpu 0:processed": 2_000_000, "softnet:cpu 0:dropped": 0, "softnet:cpu 0:time_squeeze": 400,
    "softnet:cpu 0:flow_limit_count": 0, "softnet:cpu 0:backlog_len": 3, "sysctl::net.core.netdev_budget": 300,
    "cpu:cpu 0:user": 120, "cpu:cpu 0:nice": 0, "cpu:cpu 0:system": 130, "cpu:cpu 0:idle": 40, "cpu:cpu 0:iowait": 5,
    "cpu:cpu 0:irq": 3, "cpu:cpu 0:softirq": 200, "cpu:cpu 0:steal": 2,
    "qdisc:eth0 fq_codel 8001;:drops": 2_000, "qdisc:eth0 fq_codel 8001;:packets": 3_000_000,
    "qdisc:eth0 fq_codel 8001;:overlimits": 0, "qdisc:eth0 fq_codel 8001;:requeues": 90_000,
    "qdisc:eth0 fq_codel 8001;:qlen": 120,
    "neighbour:arp:entries": 300, "neighbour:arp cpu 0:table_fulls": 0, "neighbour:arp cpu 0:res_failed": 3,
    "neighbour:arp cpu 0:unresolved_discards": 4, "sysctl::net.ipv4.neigh.default.gc_thresh3": 1024,
    "snmp::IpInReceives": 4_000_000, "snmp::IpInDelivers": 4_000_000, "snmp::IpOutRequests": 3_000_000,
    "snmp::IpOutTransmits": 3_000_000, "snmp::IpInHdrErrors": 2, "snmp::IpInAddrErrors": 3, "snmp::IpOutNoRoutes": 1,
    "snmp::IpInDiscards": 0, "snmp::IpOutDiscards": 12, "snmp::IpReasmReqds": 40_000, "snmp::IpReasmOKs": 20_000,
    "snmp::IpReasmFails": 4, "snmp::IpReasmTimeout": 2, "snmp::IpFragFails": 3, "snmp::IpFragCreates": 40_000,
    "snmp6::Ip6OutNoRoutes": 6, "netstat::IpExtInNoRoutes": 4, "netstat::IpExtInCEPkts": 1000,
    "netstat::IpExtInECT0Pkts": 900_000, "netstat::IpExtInECT1Pkts": 0, "netstat::IpExtInCsumErrors": 0,
    "snmp::IcmpOutDestUnreachs": 30, "snmp::IcmpInDestUnreachs": 30, "snmp::IcmpOutTimeExcds": 2,
    "snmp::IcmpInTimeExcds": 40, "snmp::IcmpInRedirects": 1, "netstat::TcpExtIPReversePathFilter": 4,
    "conntrack::count": 120_000, "conntrack::max": 262_144, "conntrack::buckets": 65_536,
    "conntrack:cpu 0:insert_failed": 3, "conntrack:cpu 0:drop": 3, "conntrack:cpu 0:early_drop": 0,
    "conntrack:cpu 0:invalid": 200,
    "snmp::TcpInSegs": 2_500_000, "snmp::TcpOutSegs": 2_400_000, "snmp::TcpActiveOpens": 4_000,
    "snmp::TcpPassiveOpens": 20_000, "snmp::TcpAttemptFails": 300, "snmp::TcpEstabResets": 900,
    "snmp::TcpOutRsts": 2000,
    "snmp::TcpRetransSegs": 9_000, "snmp::TcpInErrs": 1, "snmp::TcpInCsumErrors": 1,
    "netstat::TcpExtTCPOrigDataSent": 1_800_000, "netstat::TcpExtTCPSynRetrans": 300, "netstat::TcpExtTCPTimeouts": 900,
    "netstat::TcpExtTCPLostRetransmit": 300, "netstat::TcpExtTCPDSACKRecv": 2_000,
    "netstat::TcpExtTCPSpuriousRTOs": 100, "netstat::TcpExtTCPSACKReorder": 3_000, "netstat::TcpExtTCPTSReorder": 100,
    "netstat::TcpExtTCPOFOQueue": 20_000, "netstat::TcpExtTCPDSACKOldSent": 2_000, "netstat::TcpExtListenOverflows": 0,
    "netstat::TcpExtListenDrops": 2, "netstat::TcpExtTCPReqQFullDrop": 0, "netstat::TcpExtSyncookiesSent": 0,
    "netstat::TcpExtTCPAbortOnData": 90, "netstat::TcpExtTCPAbortOnClose": 60, "netstat::TcpExtTCPAbortOnTimeout": 2,
    "netstat::TcpExtTCPAbortOnMemory": 0, "netstat::TcpExtTCPAbortOnLinger": 0, "netstat::TcpExtTCPRcvCollapsed": 500,
    "netstat::TcpExtTCPBacklogDrop": 2, "netstat::TcpExtTCPToZeroWindowAdv": 1, "netstat::TcpExtTCPWinProbe": 5,
    "netstat::TcpExtPAWSEstab": 40, "netstat::TcpExtPAWSActive": 0, "netstat::TcpExtTCPChallengeACK": 9,
    "netstat::TcpExtTCPMTUPFail": 1, "netstat::TcpExtTCPSACKReneging": 0, "netstat::TcpExtTCPRetransFail": 3,
    "netstat::TcpExtTCPSpuriousRtxHostQueues": 4, "netstat::TcpExtTCPZeroWindowDrop": 2,
    "sockstat::TCP.mem": 9_000, "sockstat::TCP.tw": 21_000, "sockstat::TCP.orphan": 40, "sockstat::UDP.mem": 700,
    "sockstat::FRAG.memory": 90_000, "sysctl::net.ipv4.tcp_mem": "180000 240000 360000",
    "sysctl::net.ipv4.udp_mem": "180000 240000 360000", "sysctl::net.ipv4.tcp_max_tw_buckets": 65_536,
    "sysctl::net.ipv4.tcp_max_orphans": 65_536, "sysctl::net.ipv4.ipfrag_high_thresh": 4_194_304,
    "snmp::UdpInDatagrams": 900_000, "snmp::UdpOutDatagrams": 900_000, "snmp::UdpRcvbufErrors": 60,
    "snmp::UdpSndbufErrors": 40, "snmp::UdpNoPorts": 30, "snmp::UdpInCsumErrors": 1, "snmp::UdpMemErrors": 0,
    "snmp6::Udp6RcvbufErrors": 0, "udp_socket:0.0.0.0;53 inode 7:drops": 61,
    "memory::MemTotal_kB": 16_000_000, "memory::MemAvailable_kB": 3_000_000,
    "pressure::memory.some.total_us": 9_000, "pressure::cpu.some.total_us": 1_900_000,
    "clock::current_clocksource": "kvm-clock",
}  # fmt: skip


def test_what_is_said_of_causes_has_names_that_are_there() -> None:
    assert _CAUSES.keys() <= {entry.id for entry in ENTRIES}
    assert {cause for causes in _CAUSES.values() for cause in causes} <= BY_NAME.keys()


def test_healthy_busy_host_gives_no_finding() -> None:
    result = evaluate(*readings(HEALTHY))
    assert [finding.sentence for finding in result.findings] == []
    assert len([each for each in result.checked if each.well]) > 100


def test_carrier_of_what_has_no_cable_is_that_of_others() -> None:
    values: dict[str, int | str] = {"link:docker0:carrier_changes": 4, "link_setting:docker0:kind": "bridge"}
    assert not evaluate(*readings(values)).findings
    assert evaluate(*readings({**values, "link_setting:docker0:kind": "veth"})).findings


def test_what_is_handed_packets_that_were_put_together_need_not_do_it_again() -> None:
    values: dict[str, int | str] = {"features:eth0:generic-receive-offload": "off", "link:eth0:rx_packets": 1_000_000}
    assert [each.id for each in evaluate(*readings(values)).findings] == ["nic-gro-off"]
    assert not evaluate(*readings({**values, "link_setting:eth0:kind": "veth"})).findings


@EVERY_ENTRY
def test_texts_are_whole(entry: Entry) -> None:
    assert entry.layer in LAYERS
    assert entry.severity in SEVERITIES
    assert re.fullmatch(r"[a-z0-9-]+", entry.id)
    for sentences in (entry.why, entry.threshold):
        assert sentences.endswith((".", "?"))
        assert sentences[0].isupper() or sentences[0].isdigit() or sentences.split()[0].islower()  # tsc is a name
    for text in (entry.sentence, entry.why, entry.source, entry.threshold, *entry.fixes):
        assert text == text.strip() or text.startswith(" # ")
        assert "  " not in text.replace("  # ", "")
        assert text.isascii()
    assert not entry.sentence.endswith(".")
    assert entry.fixes


@EVERY_CASE
def test_every_blank_is_filled(case: Case) -> None:
    (found,) = evaluate(*readings(case.values), [BY_ID[case.id]]).checked[0].findings
    assert "?" not in found.sentence
    assert not re.search(r"\{\w+\}|\[[^]]*\|", found.sentence)
    assert not any(blanks(fix) for fix in found.fixes)
    # Without its figures a command is left out, but for those whose figure is there in any case.
    named = set().union(*(blanks(fix) for fix in BY_ID[case.id].fixes)) - found.figures.keys()
    assert named <= {"ring", "ring_max", "queues", "queues_max", "length", "listener", "backlog", "larger"}


@EVERY_ENTRY
def test_settings_in_commands_exist(entry: Entry) -> None:
    for fix in entry.fixes:
        for name in re.findall(r"\bsysctl (?:-w )?([a-z][\w.{}]+)", fix):
            path = name.replace("DEVICE", "lo").replace(".", "/")
            assert Path("/proc/sys", path).exists(), name


@EVERY_ENTRY
def test_our_own_commands_are_understood_and_name_real_hops(entry: Entry) -> None:
    for fix in entry.fixes:
        command = fix.partition("  # ")[0]
        if not command.startswith("hopscope "):
            continue
        _, verb, *words = shlex.split(command.replace("{device}", "eth0"))
        found = cli.get_command(click.Context(cli), verb)
        assert found, verb
        if "--help" not in words:
            found.make_context(verb, list(words))
        hops = {word for before, word in itertools.pairwise(words) if before == "--hop"}
        assert hops <= {each.name for each in (*RX_HOPS, *TX_HOPS)}


# Read only where something was lost, or is close to its limit; tests/provoke has them.
_ONLY_IN_TROUBLE: Final = {
    ("udp_socket", "drops"), ("nft", "drops"), ("socket", "local_ports_used"), ("socket", "local_ports_time_wait"),
    ("socket", "descriptors"), ("socket", "descriptor_limit"),
}  # fmt: skip


@pytest.mark.root
def test_every_name_is_one_that_the_kernel_has() -> None:
    """A typo in the name of a counter would never be seen: it is always well."""
    with Lab(), CounterReader() as reader:
        now = reader.read()
    has = {(each.source, each.name) for each in (*now.numbers, *now.words)}
    read = {source for source, _ in has}
    for ref in {ref for entry in ENTRIES for ref in entry.condition.refs}:
        if ref.since or ref.source not in read or (ref.source, ref.name) in _ONLY_IN_TROUBLE:
            continue  # declared, or tested with that source
        for name in ref.names:
            assert "*" in name or (ref.source, name) in has, f"{ref.source} {name}"


@given(data=st.data())
def test_whatever_is_read_it_is_told_without_fail(data: st.DataObject) -> None:
    names = sorted({(ref.source, name) for entry in ENTRIES for ref in entry.condition.refs for name in ref.names})
    subjects = ["", "eth0", "eth0 rx-0", "eth0 tbf 8001:", "cpu 0", "cpu 1", "arp", "arp cpu 0", "$(x) [*", "24 eth0"]
    keys = st.builds(
        lambda netns, pair, subject: Key(netns, pair[0], subject, pair[1].replace("*", "x")),
        st.sampled_from([HOST, NETNS, NETNS + 1]),
        st.sampled_from(names),
        st.sampled_from(subjects),
    )
    values = st.integers(0, 2**64 - 1) | st.text(max_size=12)
    before = data.draw(st.dictionaries(keys, values, max_size=40))
    now = {**before, **data.draw(st.dictionaries(keys, values, max_size=40))}
    earlier, _ = of_keys(before)
    _, later = of_keys(now, seconds=data.draw(st.sampled_from([0.0, 0.1, 5.0, 1e6])))
    result: Check = evaluate(earlier, later)
    assert len(result.checked) == len(ENTRIES)
    assert render_check(result, Terminal(40, unicode=False), everything=True)
    assert list(check_lines(result, 0, everything=True))
    assert all(SOURCES[each.entry.condition.refs[0].source] for each in result.checked)
