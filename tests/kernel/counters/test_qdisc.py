# SPDX-License-Identifier: Apache-2.0
"""Queueing disciplines and classes, against tc."""

from __future__ import annotations

import re
import socket
import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.errors import FormatError
from hopscope.kernel.counters import qdisc, qdisc_xstats
from hopscope.kernel.counters.qdisc import classid, qdisc_name, queue_of
from hopscope.kernel.counters.qdisc_xstats import own_figures
from hopscope.kernel.netlink import NETLINK_ROUTE, Netlink, attribute
from hopscope.lab import Lab, Namespace
from hopscope.lab.veth import CLIENT_IFNAME, SERVER_IPV4
from tests import headers
from tests.kernel.counters.tools import cuts, garbled, in_the_same_instant, refuses_or, said, shown, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kernel.counters.tools import Said

COMMON = {"bytes", "packets", "drops", "overlimits", "requeues", "qlen"}
KINDS = {
    "tbf": "tbf rate 1mbit burst 5000 limit 9000",
    "pfifo": "pfifo limit 7",
    "bfifo": "bfifo limit 9000",
    "fq": "fq",
    "fq_codel": "fq_codel",
    "fq_pie": "fq_pie",
    "codel": "codel",
    "pie": "pie",
    "red": "red limit 400000 min 30000 max 90000 avpkt 1000 burst 55 bandwidth 10mbit",
    "sfq": "sfq",
    "sfb": "sfb",
    "choke": "choke limit 1000 bandwidth 10mbit min 20 max 90",
    "hhf": "hhf",
    "cake": "cake bandwidth 10mbit",
    "prio": "prio",
    "drr": "drr",
    "netem": "netem limit 9",
    "mq": "mq",
}
# What tc calls otherwise, and what it prints in other units: pie's probability.
TC_NAMES = {
    "fq": {"flows_inactive": "inactive_flows", "flows_throttled": "throttled_flows", "flows_gc": "gc_flows",
           "gc": "gc_flows", "highprio": "highprio_packets", "latency": "unthrottle_latency_ns"},
    "fq_codel": {"new_flows": "new_flow_count"},
}  # fmt: skip


def by_tc(each: dict[str, Any]) -> dict[str, int]:
    """Return what all kinds count, of tc's JSON, by our names."""
    found = {name: each[name] for name in COMMON if name in each}
    return found | ({"backlog_bytes": each["backlog"]} if "backlog" in each else {})


def qdisc_subject(each: dict[str, Any]) -> str:
    parent = "" if each.get("root") else f" parent {each['parent']}"
    return f"{each['dev']} {each['kind']} {each['handle']}{parent}"


def classes_by_tc(output: str) -> Said:
    """Return the figures of classes of tc's text: it has no JSON of HTB's."""
    pattern = (
        r"class (?P<name>htb \S+) .*\n Sent (?P<bytes>\d+) bytes (?P<packets>\d+) pkt \(dropped (?P<drops>\d+), "
        r"overlimits (?P<overlimits>\d+) requeues (?P<requeues>\d+)\) \n backlog (?P<backlog_bytes>\d+)b "
        r"(?P<qlen>\d+)p requeues \d+\n lended: (?P<lends>\d+) borrowed: (?P<borrows>\d+) giants: (?P<giants>\d+)\n"
        r" tokens: (?P<tokens>-?\d+) ctokens: (?P<ctokens>-?\d+)\n"
    )
    found = (match.groupdict() for match in re.finditer(pattern, output))
    return {f"{CLIENT_IFNAME} {each.pop('name')}": {name: int(each[name]) for name in each} for each in found}


def send(bytes_each: int, count: int, port: int = 9) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(count):
            sender.sendto(bytes(bytes_each), (SERVER_IPV4, port))


def tc(namespace: Namespace, *lines: str) -> None:
    for line in lines:
        namespace.run(["tc", *line.split()], check=True)


def qdiscs_of(namespace: Namespace) -> tuple[list[dict[str, Any]], Said]:
    return in_the_same_instant(  # type: ignore[return-value]
        lambda: [each for each in shown(namespace, "tc", "-s", "-j", "qdisc") if each["kind"] != "noqueue"],
        lambda: said("qdisc", namespace),
    )


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab() as made:
        yield made


@pytest.fixture(scope="module")
def bodies() -> Iterator[list[bytes]]:
    with Lab() as made:
        tc(
            made.client,
            f"qdisc add dev {CLIENT_IFNAME} root handle 1: htb default 10",
            f"class add dev {CLIENT_IFNAME} parent 1: classid 1:10 htb rate 100mbit",
            f"qdisc add dev {CLIENT_IFNAME} parent 1:10 handle 20: tbf rate 1mbit burst 5000 limit 9000",
        )
        made.client.call(send, 100, 3)

        def listed() -> list[bytes]:
            with Netlink(NETLINK_ROUTE) as netlink:
                index = socket.if_nametoindex(CLIENT_IFNAME)
                both = (
                    netlink.dump(kind, qdisc.TCMSG.pack(0, index, 0, 0, 0))
                    for kind in (qdisc.RTM_GETQDISC, qdisc.RTM_GETTCLASS)
                )
                return [message.body for each in both for message in each.messages]

        yield made.client.call(listed)


def test_constants_and_layouts_are_those_of_the_kernels_headers() -> None:
    names = ("RTM_GETQDISC", "RTM_GETTCLASS", "TCA_KIND", "TCA_XSTATS", "TCA_STATS2", "TCA_STATS_BASIC")
    names = (*names, "TCA_STATS_QUEUE", "TCA_STATS_APP", "TCA_STATS_PKT64", "TC_H_ROOT")
    values = {name: getattr(qdisc, name) for name in names}
    values |= {"sizeof(struct tcmsg)": qdisc.TCMSG.size, "sizeof(struct gnet_stats_queue)": qdisc._QUEUE.size}
    members = ("qlen", "backlog", "drops", "requeues", "overlimits")
    values |= {f"offsetof(struct gnet_stats_queue, {name})": 4 * place for place, name in enumerate(members)}
    values["offsetof(struct gnet_stats_basic, packets)"] = 8
    headers.assert_values(("stddef", "linux/rtnetlink", "linux/gen_stats", "linux/pkt_sched"), values)


def test_own_figures_lie_where_the_kernels_headers_have_them() -> None:
    structs = {"fq": "tc_fq_qd_stats", "fq_codel": "tc_fq_codel_xstats"}
    members = {f"band{band}_{what}": f"band_{what}[{band}]" for band in range(3) for what in ("drops", "pkt_count")}
    values = {}
    for kind, layout in qdisc_xstats._LAYOUTS.items():
        at = 0
        for field in layout.split():
            width, _, name = field.partition(":")
            member = f"qdisc_stats.{name}" if kind == "fq_codel" else members.get(name, name)
            if name:
                values[f"offsetof(struct {structs.get(kind, f'tc_{kind}_xstats')}, {member})"] = at
            at += qdisc_xstats._WIDTHS[width].size
    headers.assert_values(("stddef", "linux/pkt_sched"), values)


@pytest.mark.root
@pytest.mark.parametrize("kind", KINDS)
def test_figures_are_those_of_tc(kind: str, lab: Lab) -> None:
    added = lab.client.run(
        ["tc", "qdisc", "add", "dev", CLIENT_IFNAME, "root", "handle", "1:", *KINDS[kind].split()], capture_output=True
    )
    if added.returncode:
        pytest.skip(f"this kernel has no {kind}")
    lab.client.call(send, 100, 23)
    listed, ours = qdiscs_of(lab.client)
    assert ours.keys() == {qdisc_subject(each) for each in listed}
    for each in listed:
        mine = ours[qdisc_subject(each)]
        assert by_tc(each).items() <= mine.items()
        assert COMMON | {"backlog_bytes"} <= mine.keys()
        names = TC_NAMES.get(kind, {})
        own = {name for name, _ in own_figures(each["kind"], bytes(200))}
        shared = {names.get(name, name): value for name, value in each.items() if names.get(name, name) in own}
        shared.pop("prob", None)  # which tc makes a share of
        assert shared.items() <= mine.items()


@pytest.mark.root
def test_classes_and_their_queues_are_those_of_tc(lab: Lab) -> None:
    device = f"dev {CLIENT_IFNAME}"
    tc(
        lab.client,
        f"qdisc add {device} root handle 1: htb default 20 r2q 1000",
        f"class add {device} parent 1: classid 1:1 htb rate 900mbit",
        f"class add {device} parent 1:1 classid 1:10 htb rate 1mbit ceil 900mbit",
        f"class add {device} parent 1:1 classid 1:20 htb rate 500mbit",
        f"qdisc add {device} parent 1:20 handle 8001: tbf rate 100mbit burst 5000 limit 90000",
        f"qdisc add {device} clsact",
    )
    lab.client.call(send, 300, 29)
    listed, ours = qdiscs_of(lab.client)
    subjects = {"htb 1:", "tbf 8001: parent 1:20", "clsact ffff: parent ffff:fff1"}
    assert ours.keys() == {f"{CLIENT_IFNAME} {each}" for each in subjects} == {qdisc_subject(each) for each in listed}
    assert all(by_tc(each).items() <= ours[qdisc_subject(each)].items() for each in listed)

    found, ours = in_the_same_instant(
        lambda: classes_by_tc(text(lab.client, "tc", "-s", "class", "show", "dev", CLIENT_IFNAME)),
        lambda: said("class", lab.client),
    )
    assert ours.keys() == found.keys() == {f"{CLIENT_IFNAME} htb 1:{each}" for each in (1, 10, 20)}
    assert ours == found
    assert ours[f"{CLIENT_IFNAME} htb 1:20"]["packets"] == 29
    assert ours[f"{CLIENT_IFNAME} htb 1:10"]["packets"] == 0


@pytest.mark.root
def test_queues_of_mq_are_told_apart_by_their_parent() -> None:
    with Namespace() as namespace:
        for words in ("link add left numtxqueues 3 type veth peer name right", "link set right up", "link set left up"):
            namespace.run(["ip", *words.split()], check=True)
        tc(namespace, "qdisc replace dev left root handle 7: mq")
        listed, ours = qdiscs_of(namespace)
        kind = next(each["kind"] for each in listed if not each.get("root"))
        assert ours.keys() == {qdisc_subject(each) for each in listed}
        assert ours.keys() == {"left mq 7:", *(f"left {kind} 0: parent 7:{queue}" for queue in (1, 2, 3))}
        assert said("class", namespace).keys() == {f"left mq 7:{queue}" for queue in (1, 2, 3)}


@pytest.mark.root
def test_23_packets_that_no_bucket_holds_are_23_drops(lab: Lab) -> None:
    tc(lab.client, f"qdisc add dev {CLIENT_IFNAME} root handle 8001: tbf rate 100mbit burst 500 limit 90000")
    lab.client.call(send, 100, 17)
    lab.client.call(send, 1000, 23)  # each larger than the bucket
    _, ours = qdiscs_of(lab.client)
    figures = ours[f"{CLIENT_IFNAME} tbf 8001:"]
    assert (figures["drops"], figures["packets"], figures["bytes"]) == (23, 17, 17 * 142)
    sent = said("link", lab.client)[CLIENT_IFNAME]
    assert (sent["tx_packets"], sent["tx_bytes"]) == (17, 17 * 142)


@pytest.mark.root
def test_a_full_queue_drops_what_neither_waits_nor_was_sent(lab: Lab) -> None:
    # Of 1042 bytes each, one fits into the bucket, seven into the queue; the bucket fills again within three seconds.
    tc(lab.client, f"qdisc add dev {CLIENT_IFNAME} root handle 1: tbf rate 2700bit burst 1100 limit {7 * 1042}")
    lab.client.call(send, 1000, 31 + 1 + 7)
    listed, ours = qdiscs_of(lab.client)
    figures = ours[f"{CLIENT_IFNAME} tbf 1:"]
    assert by_tc(listed[0]).items() <= figures.items()
    assert int(figures["qlen"]) * 1042 == figures["backlog_bytes"]
    # On a machine that slept in between, a packet more was sent and one less was dropped.
    assert int(figures["drops"]) + int(figures["qlen"]) + int(figures["packets"]) == 31 + 1 + 7
    assert figures["overlimits"] >= 1
    assert int(figures["drops"]) in range(20, 32)


@pytest.mark.parametrize(
    ("handle", "written"),
    [
        (0x00010010, "1:10"),
        (0x80010000, "8001:"),
        (0x00000001, ":1"),
        (0xFFFFFFF1, "ffff:fff1"),
        (0xFFFFFFFF, "root"),
        (0, "none"),
        (0x00100000, "10:"),
    ],
)
def test_numbers_of_classes_are_written_as_tc_does(handle: int, written: str) -> None:
    assert classid(handle) == written


def made(kind: bytes, handle: int, parent: int, *attributes: bytes) -> bytes:
    return qdisc.TCMSG.pack(0, 1, handle, parent, 0) + attribute(qdisc.TCA_KIND, kind + b"\0") + b"".join(attributes)


def test_packets_have_64_bits_where_the_kernel_has_them() -> None:
    basic = attribute(qdisc.TCA_STATS_BASIC, struct.pack("=QI4x", 1 << 40, 7))
    wide = attribute(qdisc.TCA_STATS_PKT64, struct.pack("=Q", (1 << 32) + 7))
    old = queue_of(made(b"fq", 0, qdisc.TC_H_ROOT, attribute(qdisc.TCA_STATS2, basic)))
    new = queue_of(made(b"fq", 0, qdisc.TC_H_ROOT, attribute(qdisc.TCA_STATS2, basic + wide)))
    assert (old.figures, qdisc_name(old)) == ({"bytes": 1 << 40, "packets": 7}, "fq 0:")
    assert new.figures == {"bytes": 1 << 40, "packets": (1 << 32) + 7}


def test_an_older_kernel_has_fewer_figures_of_its_own_and_a_newer_one_more() -> None:
    raw = struct.pack("=10I", *range(10))
    assert dict(own_figures("fq_codel", raw))["drop_overmemory"] == 9
    assert dict(own_figures("fq_codel", raw + bytes(64))) == dict(own_figures("fq_codel", raw))
    assert list(own_figures("fq_codel", raw[:12])) == [("maxpacket", 1), ("drop_overlimit", 2)]
    assert dict(own_figures("htb", struct.pack("=3I2i", 1, 2, 3, -4, -5)))["ctokens"] == -5
    assert list(own_figures("of tomorrow", raw)) == []


@pytest.mark.root
def test_a_message_cut_off_anywhere_is_refused_or_says_less(bodies: list[bytes]) -> None:
    assert len(bodies) >= 3
    for body in bodies:
        whole = queue_of(body)
        for cut in cuts(body):
            try:
                found = queue_of(cut)
            except FormatError:
                continue
            assert (found.kind, found.handle, found.parent) == (whole.kind, whole.handle, whole.parent)
            assert found.figures.items() <= whole.figures.items()


@pytest.mark.root
@given(st.data())
def test_a_garbled_message_is_refused_or_read(bodies: list[bytes], data: st.DataObject) -> None:
    body = garbled(bodies, data)
    refuses_or(lambda: queue_of(body))


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_read(body: bytes) -> None:
    refuses_or(lambda: queue_of(body))
    assert all(-(1 << 63) <= value < 1 << 64 for kind in qdisc_xstats._LAYOUTS for _, value in own_figures(kind, body))
