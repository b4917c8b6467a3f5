# SPDX-License-Identifier: Apache-2.0
"""The explanations: their form, how they are looked up, and that none is missing."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from hopscope.kernel.counters.reader import CounterReader
from hopscope.model.counters.explanation import SIGNS, is_pattern, parse
from hopscope.model.counters.names import BY_SUBJECT, explained, find, names_of, near, table
from hopscope.model.counters.readings import HOST, Key
from hopscope.model.counters.sources import SOURCES

# What /proc/net/{snmp,snmp6,netstat} of Debian's kernels name, as they were booted.
NAMES = sorted((Path(__file__).parent / "names").glob("linux-*.txt"))
# Kernels whose names are all to be explained.
KNOWN = ("5.10.", "6.1.", "6.12.", "6.18.", "7.2.")
SEEN = [source for source in SOURCES if table(source)]


def unexplained(keys: list[Key]) -> set[str]:
    return {f"{key.source} {key.subject} {key.name}" for key in keys if explained(key) is None}


def test_everything_that_this_kernel_counts_is_explained() -> None:
    keys = list(CounterReader().read(settings=False).numbers)
    assert len(keys) > 300
    missing = unexplained(keys)
    listed = f"counters that no table explains: {', '.join(sorted(missing))}"
    if missing and not platform.release().startswith(KNOWN):
        pytest.skip(listed)  # of a kernel that these tables were not made for; `counters` shows them all the same
    assert not missing, listed


@pytest.mark.parametrize("path", NAMES, ids=lambda path: path.stem)
def test_names_of_other_kernels_are_explained_one_by_one(path: Path) -> None:
    names = path.read_text().split()
    assert len(names) > 250
    keys = [Key(1, "snmp", "", name) for name in names]
    assert unexplained(keys) == set()
    # None of them is left to the text for names that nobody knows yet.
    assert [key.name for key in keys if (entry := explained(key)) and entry.names == ("MPTcpExt*",)] == []


@pytest.mark.parametrize("source", SEEN)
def test_no_name_is_explained_twice(source: str) -> None:
    names = [name.lower() for name in names_of(source)]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("source", SEEN)
def test_name_has_its_own_entry_and_no_family_that_comes_before(source: str) -> None:
    for entry in table(source):
        for name in entry.names:
            if not is_pattern(name):
                key = Key(1, source, name if source in BY_SUBJECT else "", name)
                assert explained(key) == entry, name


@pytest.mark.parametrize("source", SEEN)
def test_texts_are_sentences(source: str) -> None:
    for entry in table(source):
        assert entry.sign in SIGNS
        for text in (entry.counts, entry.means):
            assert text[-1] in ".)?", (entry.names, text)
            assert "  " not in text
        assert len(entry.counts) < 400, entry.names


@pytest.mark.parametrize(
    ("source", "name", "sign"),
    [
        ("netstat", "TcpExtListenOverflows", "loss"),
        ("netstat", "TcpExtTCPTimeouts", "bad"),
        ("snmp", "UdpRcvbufErrors", "loss"),
        ("snmp", "IcmpMsgInType9", "plain"),
        ("ethtool", "rx0_drops", "loss"),
        ("ethtool", "rx3_xdp_drops", "either"),
        ("ethtool", "rx_missed_errors", "loss"),
        ("ethtool", "rx_no_buffer_count", "loss"),
        ("ethtool", "tx_tx_timeouts", "bad"),
        ("ethtool", "rx_discards_phy", "loss"),
        ("ethtool", "rx_prio0_discards", "loss"),
        ("ethtool", "rx_crc_errors_phy", "loss"),
        ("ethtool", "tx_pause_ctrl_phy", "bad"),
        ("ethtool", "bw_in_allowance_exceeded", "loss"),
        ("ethtool", "rx_queue_0_packets", "plain"),
        ("ethtool", "alloc_rx_page_failed", "loss"),
        ("ethtool", "queue_3_tx_cnt", "plain"),
        ("softnet", "dropped", "loss"),
        ("link", "rx_dropped", "loss"),
        ("qdisc", "drops", "loss"),
        ("conntrack", "insert_failed", "loss"),
    ],
)
def test_sign(source: str, name: str, sign: str) -> None:
    entry = explained(Key(1, source, "eth0", name))
    assert entry is not None
    assert entry.sign == sign, entry.names


def test_interrupts_are_explained_by_what_they_are_of() -> None:
    net_rx = explained(Key(HOST, "softirq", "NET_RX", "cpu 0"))
    assert net_rx is not None
    assert net_rx.names == ("NET_RX",)
    assert explained(Key(HOST, "interrupt", "24 eth0-TxRx-3", "cpu 0")) is not None


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("TcpExtTCPTimeouts", [("snmp", "TcpExtTCPTimeouts")]),
        ("tcptimeouts", [("snmp", "TcpExtTCPTimeouts")]),
        ("LISTENDROPS", [("snmp", "TcpExtListenDrops")]),
        ("rx_missed_errors", [("ethtool", "rx_missed_errors"), ("link", "rx_missed_errors")]),
        ("IcmpMsgInType9", [("snmp", "IcmpMsgInType9")]),
        ("rx7_drops", [("ethtool", "rx7_drops")]),
        ("Tcp*Overflow*", [
            ("snmp", "TcpExtListenOverflows"),
            ("snmp", "TcpExtTCPFastOpenListenOverflow"),
            ("snmp", "TcpExtTCPTimeWaitOverflow"),
        ]),
        ("TcpExtListenDropz", []),
        ("*nothing*", []),
        ("", []),
    ],
)  # fmt: skip
def test_find(wanted: str, found: list[tuple[str, str]]) -> None:
    assert sorted((source, name) for source, name, _ in find(wanted)) == found


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        ("TcpExtListenDropz", "TcpExtListenDrops"),
        ("listendropz", "TcpExtListenDrops"),
        ("rx_mised_errors", "rx_missed_errors"),
        ("UdpRcvBufError", "UdpRcvbufErrors"),
    ],
)
def test_near_misses_are_named(wanted: str, meant: str) -> None:
    assert near(wanted)[0] == meant


def test_nothing_is_near_to_nonsense() -> None:
    assert near("qqqqqqqq") == []


def test_table_takes_names_over_several_lines() -> None:
    (entry,) = parse("One Two\nThree# | bad | net/core/dev.c\n  What it\n  counts.\n  = What it means.\n")
    assert entry.names == ("One", "Two", "Three#")
    assert (entry.counts, entry.means, entry.source) == ("What it counts.", "What it means.", "net/core/dev.c")
    assert entry.covers("three12")
    assert not entry.covers("three")


@pytest.mark.parametrize(
    "text",
    [
        "One | good | dev.c\n  Counts.\n  = Means.\n",
        "One | bad | dev.c\n  Counts.\n",
        "One | bad |\n  Counts.\n  = Means.\n",
    ],
)
def test_entry_that_lacks_something_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="One"):
        parse(text)
