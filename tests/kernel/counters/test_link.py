# SPDX-License-Identifier: Apache-2.0
"""Interfaces: what the stack counts of them and how they are set, against ip."""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.errors import FormatError
from hopscope.kernel.counters import link
from hopscope.kernel.counters.link import CHANGES, STATISTICS, Names, counted, flag_names, link_of, links, set_so
from hopscope.kernel.netlink import Listed, Message, attribute, printable
from hopscope.lab import Lab, Namespace, Workload
from hopscope.lab.veth import CLIENT_IFNAME, SERVER_IFNAME, SERVER_IPV4
from tests import headers
from tests.kernel.counters.tools import cuts, garbled, in_the_same_instant, refuses_or, said, shown
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

ODD = (b"v\xff", rb"v\xff", b"e\x1b[31m", "a\u2003b".encode(), b"x$(y)z")
# Settings by the names of ip.
BY_IP = {
    "mtu": "mtu", "txqlen": "tx_queue_len", "promiscuity": "promiscuity", "num_tx_queues": "num_tx_queues",
    "num_rx_queues": "num_rx_queues", "gso_max_size": "gso_max_size", "gso_max_segs": "gso_max_segs",
    "tso_max_size": "tso_max_size", "tso_max_segs": "tso_max_segs", "gro_max_size": "gro_max_size",
    "min_mtu": "min_mtu", "max_mtu": "max_mtu", "operstate": "operstate", "qdisc": "qdisc", "master": "master",
}  # fmt: skip


def by_ip(stats: dict[str, dict[str, int]]) -> dict[str, int]:
    """Return the statistics of ip by the names of the kernel."""
    whole = {"multicast": "multicast", "collisions": "collisions"}
    return {
        whole.get(name, f"{direction}_{name}"): value
        for direction in ("rx", "tx")
        for name, value in stats[direction].items()
        if name != "carrier_changes"
    }


@pytest.fixture(scope="module")
def namespace() -> Iterator[Namespace]:
    with Namespace() as made:
        made.sysctl("net.ipv6.conf.default.disable_ipv6", 1)  # which would ask for routers now and then
        for words in (
            "link add bridge0 type bridge",
            "link add few numrxqueues 1 numtxqueues 3 type veth peer name port",
            "link set port master bridge0 up",
            "link set few up mtu 1400 txqueuelen 77 group 5",
            "link set few gso_max_size 32000",
            "link set few promisc on",
            "link add upper link few type macvlan",
            "tuntap add tun7 mode tun",
        ):
            made.run(["ip", *words.split()], check=True)
        for name in ODD:
            made.run([b"ip", b"link", b"add", b"name", name, b"type", b"ifb"], check=True)
        yield made


@pytest.fixture(scope="module")
def bodies(namespace: Namespace) -> list[bytes]:
    listed = namespace.call(link.listing)
    listed.check()
    return [message.body for message in listed.messages]


def test_constants_and_the_order_of_counters_are_those_of_the_kernels_headers() -> None:
    values = {f"offsetof(struct rtnl_link_stats64, {name})": 8 * place for place, name in enumerate(STATISTICS)}
    names = ("IFNAME", "QDISC", "MASTER", "OPERSTATE", "LINKINFO", "STATS64", "EXT_MASK", "XDP", "INFO_KIND")
    values |= {f"IFLA_{name}": getattr(link, f"IFLA_{name}") for name in (*names, "XDP_ATTACHED", "XDP_PROG_ID")}
    ifla = {"tx_queue_len": "TXQLEN"}
    values |= {f"IFLA_{ifla.get(name, name.upper())}": number for number, name in (link.NUMBERS | link.CHANGES).items()}
    values |= {f"IFF_{name}": bit for name, bit in link.FLAGS.items()}
    modes = ("NONE", "DRV", "SKB", "HW", "MULTI")
    values |= {f"XDP_ATTACHED_{name}": mode for mode, name in enumerate(modes)}
    values |= {f"IF_OPER_{name}": state for state, name in enumerate(link.OPERSTATES)}
    values |= {"RTM_GETLINK": link.RTM_GETLINK, "sizeof(struct ifinfomsg)": link.IFINFOMSG.size}
    values |= {"RTEXT_FILTER_SKIP_STATS": link.RTEXT_FILTER_SKIP_STATS, "sizeof(struct rtnl_link_stats64)": 8 * 25}
    headers.assert_values(("stddef", "linux/rtnetlink", "linux/if_link", "linux/if"), values)


@pytest.mark.root
def test_counters_are_those_of_ip() -> None:
    with Lab(bridged=True) as lab:
        with (
            Workload(lab.server, "udp-sink", "--bind", SERVER_IPV4, "--count", 23) as sink,
            Workload(lab.client, "udp-send", SERVER_IPV4, sink.port, "--count", 23, "--rate", 1000) as source,
        ):
            assert source.result().messages == 23
            assert sink.result().messages == 23
        for namespace in (lab.client, lab.server, lab._middle):
            assert namespace is not None
            listed, ours = in_the_same_instant(
                lambda namespace=namespace: shown(namespace, "ip", "-s", "-s", "-j", "link"),  # type: ignore[misc]
                lambda namespace=namespace: said("link", namespace),  # type: ignore[misc]
            )
            assert ours.keys() == {each["ifname"] for each in listed}
            for each in listed:
                mine = ours[each["ifname"]]
                assert by_ip(each["stats64"]).items() <= mine.items()
                assert {*STATISTICS, *CHANGES.values()} >= mine.keys()
                assert mine["carrier_changes"] == each["stats64"]["tx"].get("carrier_changes", 0)
        assert said("link", lab.client)[CLIENT_IFNAME]["tx_packets"] == 23
        assert said("link", lab.server)[SERVER_IFNAME]["rx_packets"] == 23


@pytest.mark.root
def test_settings_are_those_of_ip(namespace: Namespace) -> None:
    listed: list[dict[str, Any]] = shown(namespace, "ip", "-s", "-s", "-d", "-j", "-N", "link")
    ours = said("link_setting", namespace)
    decoded = {each["ifname"]: each for each in listed if each["ifname"].isascii() and each["ifname"].isalnum()}
    assert decoded.keys() == {"lo", "bridge0", "few", "port", "upper", "tun7"}
    for name, each in decoded.items():
        mine = ours[name]
        assert {BY_IP[key]: each[key] for key in BY_IP if key in each}.items() <= {"tx_queue_len": 0, **mine}.items()
        assert ("master" in mine) == ("master" in each)
        assert mine["flags"] == ",".join(each["flags"])
        assert mine["group"] == int(each["group"])
        assert mine.get("kind") == each.get("linkinfo", {}).get("info_kind")
        assert mine["xdp"] == "off"
    assert (ours["few"]["mtu"], ours["few"]["tx_queue_len"], ours["few"]["group"]) == (1400, 77, 5)
    assert (ours["port"]["master"], ours["upper"]["kind"]) == ("bridge0", "macvlan")
    assert ours["few"]["num_tx_queues"] == 3


@pytest.mark.root
def test_a_changing_link_is_seen_to_change(namespace: Namespace) -> None:
    def look(operstate: str) -> dict[str, int | str]:
        # The kernel tells devices above of it in its own time.
        eventually(lambda: said("link_setting", namespace)["few"]["operstate"] == operstate)
        return said("link_setting", namespace)["few"] | said("link", namespace)["few"]

    before = look("UP")
    namespace.run(["ip", "link", "set", "port", "down"], check=True)
    down = look("LOWERLAYERDOWN")
    namespace.run(["ip", "link", "set", "port", "up"], check=True)
    after = look("UP")
    assert str(down["flags"]).startswith("NO-CARRIER,")
    assert [int(each["carrier_down_count"]) - int(before["carrier_down_count"]) for each in (down, after)] == [1, 1]
    assert [int(each["carrier_changes"]) - int(before["carrier_changes"]) for each in (down, after)] == [1, 2]


@pytest.mark.root
@pytest.mark.parametrize("source", ["link", "link_setting"])
def test_names_of_odd_bytes_are_told_apart(source: str, namespace: Namespace) -> None:
    assert {printable(name) for name in ODD} <= said(source, namespace).keys()


@pytest.mark.root
@pytest.mark.parametrize("source", ["link", "link_setting", "ethtool", "driver", "features", "queue", "qdisc"])
def test_interfaces_that_come_go_and_are_renamed_harm_no_other(source: str, namespace: Namespace) -> None:
    expected = said(source, namespace)
    # Of these every reading must be the same, whatever else there is.
    stable = {subject: names for subject, names in expected.items() if "few" in subject.split(" ")}
    stop = threading.Event()

    def churn() -> None:
        for nth in itertools.count():
            if stop.is_set():
                return
            commands = f"link add c{nth} type veth peer name d{nth}\nlink set c{nth} name e{nth}\nlink del e{nth}\n"
            namespace.run(["ip", "-batch", "-"], input=commands.encode(), check=True)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(15):
            try:
                found = said(source, namespace)
            except InterruptedError:
                continue  # it was told: four lists in a row were disturbed
            assert {subject: found.get(subject) for subject in stable} == stable
    finally:
        stop.set()
        thread.join()


def test_the_hosts_counters_are_between_two_looks_of_ip() -> None:
    def look() -> dict[str, dict[str, int]]:
        output = subprocess.run(["ip", "-s", "-s", "-j", "link"], capture_output=True, text=True, check=True).stdout
        return {each["ifname"]: by_ip(each["stats64"]) for each in json.loads(output)}

    before = look()
    ours: dict[str, dict[str, int]] = {}
    for subject, name, value in link.statistics():
        ours.setdefault(subject, {})[name] = int(value)
    after = look()
    assert "lo" in before
    for name in before.keys() & after.keys():
        low, high, mine = before[name], after[name], ours[name]
        assert all(low[each] <= mine[each] <= high[each] for each in low)


def test_one_that_was_renamed_while_it_was_listed_is_one() -> None:
    def listed(*named: tuple[int, bytes]) -> Listed:
        return Listed([Message(16, 0, 1, link.IFINFOMSG.pack(0, 0, i, 0, 0) + attribute(3, name)) for i, name in named])

    assert [each.name for each in links(listed((7, b"old\0"), (8, b"b\0"), (7, b"new\0")))] == [b"new", b"b"]
    # And two that went by one name, one after the other.
    assert [each.ifindex for each in links(listed((7, b"a\0"), (8, b"a\0")))] == [8]


def test_an_older_kernel_has_fewer_counters_and_a_newer_one_more() -> None:
    values = b"".join(place.to_bytes(8, "little") for place in range(30))
    older = {link.IFLA_STATS64: values[: 8 * 24]}
    assert list(counted(older)) == list(zip(STATISTICS[:24], range(24), strict=True))
    newer = {link.IFLA_STATS64: values, 35: b"\7\0\0\0"}
    assert list(counted(newer)) == [*zip(STATISTICS, range(25), strict=True), ("carrier_changes", 7)]
    assert list(counted({})) == []


def test_flags_that_are_newer_than_this_program_are_kept() -> None:
    assert flag_names(1 << 0 | 1 << 6 | 1 << 16 | 1 << 30) == "UP,LOWER_UP,40000000"
    assert flag_names(1 << 0) == "NO-CARRIER,UP"
    assert flag_names(0) == ""


def test_the_name_of_an_interface_that_is_gone_is_empty() -> None:
    names = Names()
    assert names.of(1) == "lo"
    assert names.of(0x7FFFFFFE) == ""
    assert names.of(1 << 40) == ""


@pytest.mark.root
def test_a_message_cut_off_anywhere_is_refused_or_says_less(bodies: list[bytes]) -> None:
    for body in bodies[:4]:
        whole = link_of(body)
        told = dict(set_so(whole, {}))
        for cut in cuts(body):
            try:
                found = link_of(cut)
            except FormatError:
                continue
            assert found.attributes.items() <= whole.attributes.items()
            assert dict(set_so(found, {})).items() <= told.items()


@pytest.mark.root
@given(st.data())
def test_a_garbled_message_is_refused_or_read(bodies: list[bytes], data: st.DataObject) -> None:
    body = garbled(bodies, data)

    def read() -> None:
        found = link_of(body)
        list(set_so(found, {}))
        list(counted(found.attributes))

    refuses_or(read)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_read(body: bytes) -> None:
    refuses_or(lambda: list(set_so(link_of(body), {})))
