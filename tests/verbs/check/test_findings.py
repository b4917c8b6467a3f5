# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hopscope.model.counters.readings import HOST, Key, Readings, Unread
from hopscope.verbs.check.conditions import All, Any, Fill, Judged, Level, Rises, Share, Shown, Word
from hopscope.verbs.check.figures import Now, Times, UpTo, count, per_cent, rate, size
from hopscope.verbs.check.findings import Checked, Checker, Entry, evaluate
from hopscope.verbs.check.fold import fold
from hopscope.verbs.check.knowledge.all import ENTRIES
from hopscope.verbs.check.knowledge.refs import link, nstat, sysctl
from hopscope.verbs.check.scene import Place, Ref, Scene
from tests.verbs.check.world import NETNS, Values, key, of_keys, readings

if TYPE_CHECKING:
    from hopscope.verbs.check.conditions import Condition

LOST = nstat("UdpRcvbufErrors")
GOT = nstat("UdpInDatagrams")


def entry(condition: Condition, sentence: str = "{by} lost", *fixes: str, **more: object) -> Entry:
    return replace(
        Entry("one", "warning", "udp", condition, sentence, "Why.", fixes or ("ss -u",), "source", "Threshold."),
        **more,  # type: ignore[arg-type]
    )


def check(condition: Condition, values: Values, **more: object) -> Checked:
    (checked,) = evaluate(*readings(values), [entry(condition, **more)]).checked  # type: ignore[arg-type]
    return checked


def test_source_that_cannot_be_read_is_told_with_its_reason_and_not_as_well() -> None:
    unread = (Unread(NETNS, "snmp", "this kernel has no /proc/net/snmp"),)
    (checked,) = evaluate(*readings({}, unread=unread), [entry(Rises(LOST))]).checked
    assert (checked.state, checked.unseen) == ("unseen", ("this kernel has no /proc/net/snmp",))


def test_one_namespace_that_cannot_be_read_does_not_hide_that_another_is_well() -> None:
    unread = (Unread(77, "snmp", "its network namespace has ended"),)
    (checked,) = evaluate(*readings({"snmp::UdpRcvbufErrors": 0}, unread=unread), [entry(Rises(LOST))]).checked
    assert (checked.state, checked.well, checked.unseen) == ("well", 1, ("its network namespace has ended",))


def test_counter_that_this_kernel_has_not_is_told_with_who_has_it() -> None:
    checked = check(Rises(nstat("TcpExtTSEcrRejected", "Linux 6.15")), {"netstat::TcpExtTCPTimeouts": 1})
    assert checked.unseen == ("nstat -az has no TcpExtTSEcrRejected on this host (Linux 6.15)",)


def test_reading_that_a_condition_needs_beside_its_own_is_missed() -> None:
    checked = check(Share(LOST, (GOT, LOST), 0.1), {"snmp::UdpRcvbufErrors": 7})
    assert (checked.state, checked.unseen) == ("unseen", ("nstat -az has no UdpInDatagrams on this host",))


def test_readings_that_come_and_go_between_checks_are_looked_for_where_they_are() -> None:
    checker = Checker([entry(Rises(link("rx_dropped")))])
    of_one, of_both = {"link:eth0:rx_dropped": 3}, {"link:eth0:rx_dropped": 3, "link:eth1:rx_dropped": 4}
    for values, subjects in ((of_one, ["eth0"]), (of_one, ["eth0"]), (of_both, ["eth0", "eth1"]), (of_one, ["eth0"])):
        assert [each.subject for each in checker.evaluate(*readings(values)).findings] == subjects


def two(before: int, now: int, of: Key) -> tuple[Readings, Readings]:
    return Readings(0, 1, {of: before}), Readings(10**10, 10**10 + 1, {of: now})


def test_counter_that_went_round_counts_what_it_counted() -> None:
    of = key("softnet:cpu 0:dropped")
    (found,) = evaluate(*two(2**32 - 5, 7, of), [entry(Rises(Ref("softnet", ("dropped",))))]).findings
    (row,) = found.evidence
    assert (found.sentence, row.by, row.per_s, row.how) == ("12 lost", 12, 1.2, "wrapped")


def test_counter_that_fell_tells_nothing() -> None:
    (checked,) = evaluate(*two(500_000, 250_000, key("snmp::UdpRcvbufErrors")), [entry(Rises(LOST))]).checked
    assert checked.state == "well"


def test_counters_of_a_source_that_could_not_be_read_before_tell_nothing() -> None:
    of = key("snmp::UdpRcvbufErrors")
    before = Readings(0, 1, {}, unread=[Unread(of.netns, "snmp", "busy")])
    assert not evaluate(before, Readings(10**9, 10**9 + 1, {of: 900}), [entry(Rises(LOST))]).findings


def test_rate_is_of_the_time_between_the_readings() -> None:
    condition = Rises(LOST, per_s=10)
    assert not evaluate(*readings({"snmp::UdpRcvbufErrors": 99}, seconds=10), [entry(condition)]).findings
    assert evaluate(*readings({"snmp::UdpRcvbufErrors": 100}, seconds=10), [entry(condition)]).findings


def test_total_is_what_was_counted_since_the_beginning_at_all_places() -> None:
    ref = link("rx_dropped")
    assert check(Rises(ref), {"link:a:rx_dropped": 1, "link:b:rx_dropped": 2}).total == 2003
    assert check(Word(Ref("driver", ("duplex",)), ill=frozenset({"half"})), {"driver:a:duplex": "full"}).total is None


@pytest.mark.parametrize(
    ("condition", "values", "found"),
    [
        (Share(LOST, (GOT, LOST), 0.1), {"snmp::UdpRcvbufErrors": 10, "snmp::UdpInDatagrams": 90}, False),
        (Share(LOST, (GOT, LOST), 0.1), {"snmp::UdpRcvbufErrors": 11, "snmp::UdpInDatagrams": 89}, True),
        (Share(LOST, (GOT,), 0.9), {"snmp::UdpRcvbufErrors": 11, "snmp::UdpInDatagrams": 0}, True),
        (Share(LOST, (GOT,), 0.0), {"snmp::UdpRcvbufErrors": 0, "snmp::UdpInDatagrams": 0}, False),
        (Level(sysctl("net.core.busy_read"), above=5), {"sysctl::net.core.busy_read": 5}, False),
        (Level(sysctl("net.core.busy_read"), above=5, below=7), {"sysctl::net.core.busy_read": 6}, True),
        (Level(sysctl("net.core.busy_read"), above=5, below=7), {"sysctl::net.core.busy_read": 7}, False),
        (Fill(Ref("conntrack", ("count",)), Ref("conntrack", ("max",)), 0.5),
         {"conntrack::count": 9, "conntrack::max": 0}, False),
        (Word(Ref("driver", ("duplex",)), well=frozenset({"full"})), {"driver:a:duplex": "full"}, False),
        (Word(Ref("driver", ("duplex",)), well=frozenset({"full"})), {"driver:a:duplex": "half"}, True),
        (All((Rises(LOST), Rises(GOT, 9))), {"snmp::UdpRcvbufErrors": 1, "snmp::UdpInDatagrams": 8}, False),
        (All((Rises(LOST), Rises(GOT, 9))), {"snmp::UdpRcvbufErrors": 1, "snmp::UdpInDatagrams": 9}, True),
        (Any((Rises(nstat("UdpNoSuch")), Rises(GOT))), {"snmp::UdpInDatagrams": 9}, True),
    ],
)  # fmt: skip
def test_condition_at_its_edge(condition: Condition, values: Values, found: bool) -> None:  # noqa: FBT001
    checked = check(condition, values)
    assert (checked.state == "found") == found


def test_rows_that_are_shown_beside_need_not_be_there() -> None:
    condition = Shown(Rises(LOST), (Ref("udp_socket", ("drops",), subjects="*"),))
    (found,) = check(condition, {"snmp::UdpRcvbufErrors": 3}).findings
    assert len(found.evidence) == 1
    (found,) = check(condition, {"snmp::UdpRcvbufErrors": 3, "udp_socket:a:drops": 2}).findings
    assert [(row.key.subject, row.by) for row in found.evidence] == [("", 3), ("a", 2)]


def test_function_decides_where_it_says() -> None:
    place = Place(HOST, "eth9")
    condition = Judged((LOST,), lambda _scene, _place: None, at=lambda _scene: [place, place])
    assert check(condition, {"snmp::UdpRcvbufErrors": 3}).well == 2
    assert check(condition, {}).state == "unseen"


def test_first_name_that_is_there_counts_and_patterns_are_added_up() -> None:
    ref = Ref("ethtool", ("no_such", "rx*_drops", "rx_total"))
    values: Values = {"ethtool:a:rx0_drops": 2, "ethtool:a:rx1_drops": 3, "ethtool:a:rx_total": 5}
    (found,) = check(Rises(ref), values).findings
    assert (found.subject, found.sentence) == ("a", "5 lost")


def test_subjects_of_a_kind_and_all_but_some() -> None:
    values: Values = {f"qdisc:eth0 {kind} 1;:drops": 5 for kind in ("tbf", "fq", "ingress")}
    only = check(Rises(Ref("qdisc", ("drops",), only=("* tbf *",))), values)
    assert [found.subject for found in only.findings] == ["eth0 tbf 1:"]
    but = check(Rises(Ref("qdisc", ("drops",), but=("* ingress *", "* tbf *"))), values)
    assert [found.subject for found in but.findings] == ["eth0 fq 1:"]


def test_device_of_a_subject_is_no_pattern() -> None:
    """Brackets and stars are legal in the names of interfaces."""
    values = {key("link:e[0]*:rx_packets"): 5, key("link:e0x:rx_packets"): 7, key("qdisc:e[0]* fq 1;:qlen"): 1}
    scene = Scene(*of_keys(values))
    received = Ref("link", ("rx_packets",), subjects="{device}")
    assert scene.by(received, Place(NETNS, "e[0]* fq 1:")) == 5


def test_setting_of_the_host_is_found_from_every_namespace() -> None:
    of = entry(Rises(LOST), "{by}", "sysctl -w net.core.rmem_max={more}")
    of = replace(of, advice={"more": Times(sysctl("net.core.rmem_max"), 2, 5)})
    lost = {Key(1234, "snmp", "", "UdpRcvbufErrors"): 3, Key(HOST, "sysctl", "", "net.core.rmem_max"): 100}
    (found,) = evaluate(*of_keys(lost), [of]).findings
    assert found.fixes == ("sysctl -w net.core.rmem_max=200  # now 100",)


def entered(name: str, fix: str, setting: str = "") -> str:
    """Return the command of a finding in a namespace of this name."""
    numbers = {Key(5, "snmp", "", "UdpRcvbufErrors"): 3, Key(5, "link", "$(id)", "rx_dropped"): 3}
    numbers |= {Key(5, "sysctl", "", setting): 7} if setting else {}
    now = Readings(10**9, 10**9, numbers, {}, {5: name})
    before = Readings(0, 0, {**numbers, **dict.fromkeys(list(numbers)[:2], 0)}, {}, {5: name})
    ref = link("rx_dropped") if "{device}" in fix else LOST
    (found,) = evaluate(before, now, [entry(Rises(ref), "{by}", fix)]).findings
    return found.fixes[0]


@pytest.mark.parametrize(
    ("name", "fix", "command"),
    [
        ("host", "ss -u", "ss -u"),
        ("blue", "ss -u", "ip netns exec blue ss -u"),
        ("blue; reboot", "ss -u", "ip netns exec 'blue; reboot' ss -u"),
        ("417 (a) (b)", "ss -u", "nsenter -t 417 -n ss -u"),
        ("blue", "hopscope drops", "hopscope drops"),
        ("blue", "cat /proc/interrupts  # which?", "cat /proc/interrupts  # which?"),
        ("blue", "sysctl -w vm.min_free_kbytes=N", "sysctl -w vm.min_free_kbytes=N"),
        ("417 (a)", "tee /sys/class/net/x", "nsenter -t 417 -n -m tee /sys/class/net/x"),
        ("host", "ethtool {device}", "ethtool '$(id)'"),
        ("host", " # buy more", "# buy more"),
    ],
)
def test_commands_enter_the_namespace_and_quote_what_others_named(name: str, fix: str, command: str) -> None:
    assert entered(name, fix) == command


def test_setting_of_a_namespace_is_changed_in_it() -> None:
    command = entered("blue", "sysctl -w net.core.somaxconn=9", "net.core.somaxconn")
    assert command == "ip netns exec blue sysctl -w net.core.somaxconn=9  # now 7"


def test_command_whose_figure_is_not_known_is_left_out() -> None:
    of = entry(Rises(LOST), "{by}", "ethtool -G a rx {most}", "ethtool -g a")
    ring = UpTo(Ref("ring", ("rx",), subjects="a"), Ref("ring", ("rx_max",), subjects="a"))
    of = replace(of, advice={"most": ring, "now": Now(Ref("ring", ("rx",), subjects="a"))})
    for values, commands in (
        ({}, ("ethtool -g a",)),
        ({"ring:a:rx": 8, "ring:a:rx_max": 8}, ("ethtool -g a",)),
        ({"ring:a:rx": 8, "ring:a:rx_max": 9}, ("ethtool -G a rx 9", "ethtool -g a")),
    ):
        (found,) = evaluate(*readings({**values, "snmp::UdpRcvbufErrors": 3}), [of]).findings
        assert found.fixes == commands


def test_findings_stand_by_severity_and_then_by_layer() -> None:
    entries = [
        entry(Rises(LOST), id="d", severity="notice", layer="nic"),
        entry(Rises(LOST), id="c", severity="warning", layer="udp"),
        entry(Rises(LOST), id="b", severity="warning", layer="nic"),
        entry(Rises(LOST), id="a", severity="critical", layer="udp"),
        entry(Rises(LOST), id="e", severity="note", layer="nic"),
    ]
    result = evaluate(*readings({"snmp::UdpRcvbufErrors": 3}), entries)
    assert [each.id for each in result.findings] == ["a", "b", "c", "d"]
    assert [each.id for each in result.notes] == ["e"]
    assert result.worst == "critical"
    assert evaluate(*readings({}), entries).worst is None


def test_sentence_has_words_for_one_and_for_several() -> None:
    of = entry(Rises(LOST), "{by} [datagram was|datagrams were] lost, {times}")
    said = [evaluate(*readings({"snmp::UdpRcvbufErrors": by}), [of]).findings[0].sentence for by in (1, 1234)]
    assert said == ["1 datagram was lost, once", "1,234 datagrams were lost, 1,234 times"]


def test_several_places_are_told_with_their_sum_and_the_worst_first() -> None:
    of = entry(Share(link("rx_dropped"), (link("rx_packets"),), 0.0), "{by} ({share}) lost at {where}, {per_s}/s")
    values: Values = {f"link:eth{number}:rx_dropped": number for number in range(1, 7)}
    values |= {f"link:eth{number}:rx_packets": 100 for number in range(1, 7)}
    (told,) = fold(evaluate(*readings(values), [of]).findings)
    assert told.sentence == "21 (3.5%) lost at eth6, eth5, eth4 and 3 more, 4.2/s"
    assert [row.key.subject for row in told.evidence[:6]] == [f"eth{number}" for number in range(6, 0, -1)]
    assert {row.key.name for row in told.evidence[:6]} == {"rx_dropped"}
    assert len(told.evidence) == 12


def test_several_namespaces_are_named_and_equal_commands_told_once() -> None:
    lost = {Key(netns, "snmp", "", "UdpRcvbufErrors"): 3 for netns in (5, 6)}
    before, now = of_keys(lost)
    names = {5: "blue", 6: "host"}
    found = evaluate(replace(before, namespaces=names), replace(now, namespaces=names), [entry(Rises(LOST))]).findings
    (told,) = fold(found)
    assert (told.sentence, told.namespaces, told.others) == ("6 lost", ("blue",), 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (count(1234567), "1,234,567"), (rate(0.04), "0.04"), (rate(9.94), "9.9"), (rate(9.96), "10"),
        (rate(12345), "12,345"),
        (per_cent(0), "0%"), (per_cent(0.000001), "0.01%"), (per_cent(0.00095), "0.1%"), (per_cent(0.0994), "9.9%"),
        (per_cent(1.0), "100%"), (size(1), "1 bytes"), (size(2**20), "1 MiB"), (size(1.5 * 2**30), "1.5 GiB"),
    ],
)  # fmt: skip
def test_figures_as_text(text: str, expected: str) -> None:
    assert text == expected


@pytest.mark.parametrize(
    ("backlog", "somaxconn", "advised"),
    [
        (
            7,
            4096,
            "# raise the backlog that the application of 0.0.0.0:80 gives to listen(), now 7: somaxconn allows more",
        ),
        (
            128,
            128,
            (
                "sysctl -w net.core.somaxconn=4096  # now 128; the application's backlog is cut to it; "
                "then restart the application"
            ),
        ),
    ],
)
def test_listener_is_limited_by_its_application_or_by_the_host(backlog: int, somaxconn: int, advised: str) -> None:
    of = next(each for each in ENTRIES if each.id == "tcp-listen-overflow")
    values: Values = {
        "netstat::TcpExtListenOverflows": 9,
        "sysctl::net.core.somaxconn": somaxconn,
        "socket:0.0.0.0;80 tcp listener:queue": backlog + 1,
        "socket:0.0.0.0;80 tcp listener:backlog": backlog,
        "socket:0.0.0.0;81 tcp listener:queue": 0,
        "socket:0.0.0.0;81 tcp listener:backlog": 5,
    }
    (found,) = evaluate(*readings(values), [of]).findings
    assert [fix for fix in found.fixes if not fix.startswith("ss ")] == [advised]
