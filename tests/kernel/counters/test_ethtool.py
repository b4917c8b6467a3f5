# SPDX-License-Identifier: Apache-2.0
"""What drivers count and how they are set, against ethtool."""

from __future__ import annotations

import errno
import os
import re
import socket
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from hopscope.kernel.counters import ethtool, ethtool_features, queue_stats
from hopscope.kernel.counters.ethtool_settings import request
from hopscope.kernel.counters.reader import PER_NAMESPACE
from hopscope.kernel.ethtool import Ethtool
from hopscope.kernel.netlink import Generic, Listed, Message, Netlink
from hopscope.lab import Lab, Namespace
from hopscope.lab.netlink import wait_up
from hopscope.lab.veth import CLIENT_IFNAME, SERVER_IFNAME, SERVER_IPV4
from tests.kernel.counters.tools import said, shown, text
from tests.verbs.cpu.work_programs import attach_xdp, programs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.kernel.counters.tools import Said

SETTINGS = ("ring", "channels", "coalesce", "features", "pause", "driver")
# Titles of ethtool by our names; a section's title stands before those that are in two.
RING = {"RX": "rx", "RX Mini": "rx_mini", "RX Jumbo": "rx_jumbo", "TX": "tx", "TX Push": "tx_push"}
CHANNELS = {"RX": "rx", "TX": "tx", "Other": "other", "Combined": "combined"}
INFO = {"driver": "driver", "version": "version", "firmware-version": "firmware_version", "bus-info": "bus_info"}
LINK = {
    "Speed": "speed_mbps",
    "Duplex": "duplex",
    "Auto-negotiation": "autonegotiation",
    "Link detected": "link_detected",
}


def pairs(output: str) -> Iterator[tuple[str, str]]:
    for line in output.splitlines()[1:]:
        title, colon, value = line.partition(":")
        if colon:
            yield title.strip(), value.strip()


def of_sections(output: str, names: dict[str, str]) -> dict[str, str]:
    """Return what ``ethtool -g`` or ``-l`` shows, the maxima as ``rx_max``."""
    maxima, _, now = output.partition("Current hardware settings:")
    found = {f"{names[title]}_max": value for title, value in pairs(maxima) if title in names}
    return found | {names[title]: value for title, value in pairs(f"\n{now}") if title in names}


def of_coalescing(output: str) -> dict[str, str]:
    found = {}
    for title, value in pairs(output):
        if title in {"Adaptive RX", "CQE mode RX"}:
            receive, _, transmit = value.partition("  TX: ")
            option = "adaptive" if title == "Adaptive RX" else "cqe-mode"
            found |= {f"{option}-rx": receive, f"{option}-tx": transmit}
        else:
            # ethtool writes some of them in the singular, its options are in the plural.
            found[re.sub("frame(?=-)", "frames", title)] = value
    return found


def of_link(output: str) -> dict[str, str]:
    found = {LINK[title]: value for title, value in pairs(output) if title in LINK}
    found["speed_mbps"] = found.get("speed_mbps", "Unknown!").removesuffix("Mb/s")
    return {name: value.lower() for name, value in found.items()}


def known(found: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in found.items() if value and value != "n/a" and "unknown" not in value.lower()}


def by_ethtool(show: Callable[..., str], interface: str) -> dict[str, dict[str, str]]:
    """Return what ethtool says of an interface, by source."""

    def of(letter: str) -> str:
        return show("ethtool", f"-{letter}", interface)

    info = {INFO[title]: value for title, value in pairs("\n" + of("i")) if title in INFO}
    return {
        "ring": known(of_sections(of("g"), RING)),
        "channels": known(of_sections(of("l"), CHANNELS)),
        "coalesce": known(of_coalescing(of("c"))),
        "features": dict(pairs(of("k"))),
        "pause": {title.lower(): value for title, value in pairs(of("a"))},
        "driver": known(info | of_link(show("ethtool", interface))),
    }


def as_text(found: Said, interface: str) -> dict[str, str]:
    # What this ethtool does not show yet, or what it shows elsewhere.
    newer = {"rx_push", "tcp_data_split", "hds_thresh", "hds_thresh_max", "timestamps", "phc_index", "numa_node"}
    return {name: str(value) for name, value in found.get(interface, {}).items() if name not in newer}


@pytest.fixture(scope="module")
def namespace() -> Iterator[Namespace]:
    with Namespace() as made:
        made.sysctl("net.ipv6.conf.default.disable_ipv6", 1)
        for words in (
            "link add bridge0 type bridge",
            "link add left numrxqueues 4 numtxqueues 3 type veth peer name right",
            "link set left up",
            "link set right up",
            "link add single type veth peer name other",
            "link add upper link left type macvlan",
            "link add ifb7 type ifb",
            "tuntap add tun7 mode tun",
            "tuntap add tap7 mode tap multi_queue",
        ):
            made.run(["ip", *words.split()], check=True)
        made.run([b"ip", b"link", b"add", b"name", b"v\xff", b"type", b"ifb"], check=True)
        yield made


INTERFACES = ("lo", "bridge0", "left", "right", "single", "upper", "ifb7", "tun7", "tap7")


@pytest.mark.root
@pytest.mark.parametrize("interface", INTERFACES)
def test_settings_are_those_of_ethtool(interface: str, namespace: Namespace) -> None:
    shown = by_ethtool(lambda *argv: text(namespace, *argv), interface)
    ours = {source: as_text(said(source, namespace), interface) for source in SETTINGS}
    assert ours == shown
    assert len(shown["features"]) > 50


def test_the_hosts_settings_are_those_of_ethtool() -> None:
    def show(*argv: str) -> str:
        result = subprocess.run(argv, capture_output=True, text=True, check=False)
        return result.stdout if result.returncode == 0 else ""

    found: dict[str, Said] = {source: {} for source in SETTINGS}
    for source, of_source in found.items():
        for subject, name, value in PER_NAMESPACE[source]():
            of_source.setdefault(subject, {})[name] = value
    for interface in found["features"]:
        if interface.isalnum():
            shown = by_ethtool(show, interface)
            assert {source: as_text(of_source, interface) for source, of_source in found.items()} == shown


@pytest.mark.root
def test_what_is_set_is_what_is_read(namespace: Namespace) -> None:
    for words in (
        "-L left rx 3 tx 2",
        "-C tap7 rx-frames 17",
        "-K single gro on",
        "-K single tx off",
        "-K left lro off",
    ):
        namespace.run(["ethtool", *words.split()], capture_output=True)
    channels = said("channels", namespace)["left"]
    assert (channels["rx"], channels["rx_max"], channels["tx"], channels["tx_max"]) == (3, 4, 2, 3)
    assert said("coalesce", namespace)["tap7"] == {"rx-frames": 17}
    features = said("features", namespace)["single"]
    assert features["generic-receive-offload"] == "on"
    assert features["tx-checksumming"] == "off"
    assert features["tx-tcp-segmentation"] == "off [requested on]"
    assert features["rx-fcs"] == "off [fixed]"


@pytest.mark.root
@pytest.mark.parametrize(("flags", "mode"), [(2, "generic"), (4, "driver")])
def test_23_packets_that_a_program_drops_are_23_of_the_drivers_and_of_ethtools(
    flags: int, mode: str, tmp_path: Path
) -> None:
    with Lab() as lab, programs(tmp_path) as bpf:
        attach_xdp(lab.server, SERVER_IFNAME, bpf.programs["give_up"].fd, flags)
        wait_up_again(lab)
        lab.client.call(send, 23)
        for namespace, interface in ((lab.client, CLIENT_IFNAME), (lab.server, SERVER_IFNAME)):
            counters = {name: int(value) for name, value in pairs(text(namespace, "ethtool", "-S", interface))}
            assert said("ethtool", namespace) == {interface: counters}
        by_driver = 23 if mode == "driver" else 0
        assert counters["rx_queue_0_xdp_packets"] == counters["rx_queue_0_xdp_drops"] == by_driver
        setting = said("link_setting", lab.server)[SERVER_IFNAME]
        (listed,) = shown_links(lab.server)
        assert setting["xdp"] == mode
        assert setting["xdp_prog_id"] == listed["xdp"]["prog"]["id"]


def wait_up_again(lab: Lab) -> None:
    for namespace, interface in ((lab.client, CLIENT_IFNAME), (lab.server, SERVER_IFNAME)):
        namespace.call(wait_up, interface)


def send(count: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(count):
            sender.sendto(bytes(100), (SERVER_IPV4, 9))


def shown_links(namespace: Namespace) -> list[dict[str, Any]]:
    return [each for each in shown(namespace, "ip", "-d", "-j", "link") if each["ifname"] != "lo"]


@pytest.mark.root
@pytest.mark.parametrize("source", ["ethtool", "ring", "coalesce", "pause", "queue_stats", "qdisc", "class"])
def test_what_no_interface_has_is_nothing(source: str) -> None:
    with Namespace() as empty:
        assert said(source, empty) == {}


@pytest.mark.root
def test_names_of_odd_bytes_are_asked_by_their_bytes(namespace: Namespace) -> None:
    assert said("driver", namespace)[r"v\xff"]["driver"] == "ifb"
    assert r"v\xff" in said("features", namespace)


@pytest.mark.root
@pytest.mark.parametrize("source", ["ethtool", "driver"])
def test_an_interface_that_went_since_it_was_listed_has_no_rows(
    source: str, namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = said(source, namespace)
    listed = namespace.call(lambda: list(ethtool.interfaces()))
    monkeypatch.setattr(ethtool, "interfaces", lambda: iter([(99, b"renamed"), *listed, (98, b"gone")]))
    assert said(source, namespace) == expected


@pytest.mark.root
def test_one_driver_that_fails_hides_no_other(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Ethtool.statistics

    def failing(self: Ethtool, interface: bytes) -> list[tuple[str, int]]:
        if interface == b"left":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return ask(self, interface)

    expected = said("ethtool", namespace)
    monkeypatch.setattr(Ethtool, "statistics", failing)

    def read() -> tuple[set[str], OSError | None]:
        seen = set()
        try:
            for subject, _, _ in ethtool._of_each(failing):
                seen.add(subject)
        except OSError as error:
            return seen, error
        return seen, None

    seen, error = namespace.call(read)
    assert seen == expected.keys() - {"left"}
    assert error is not None
    assert (error.filename, error.errno) == ("left", errno.EIO)


@pytest.mark.root
@pytest.mark.parametrize("source", ["ethtool", "driver", "link", "link_setting", "features", "qdisc", "channels"])
def test_what_a_disturbed_list_has_is_said_before_that_it_was_disturbed(
    source: str, namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = said(source, namespace)
    dump = Netlink.dump

    def disturbed(self: Netlink, kind: int, body: bytes) -> Listed:
        listed = dump(self, kind, body)
        return Listed(listed.messages, OSError(errno.EINTR, "it changed while the kernel listed it"))

    monkeypatch.setattr(Netlink, "dump", disturbed)
    rows: list[tuple[str, str, int | str]] = []

    def read() -> None:
        with pytest.raises(InterruptedError, match="it changed"):
            rows.extend(PER_NAMESPACE[source]())

    namespace.call(read)
    found: Said = {}
    for subject, name, value in rows:
        found.setdefault(subject, {})[name] = value
    assert found == expected


@pytest.mark.root
def test_one_driver_that_ends_the_list_hides_no_other(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = said("features", namespace)
    dump, ask = Generic.dump_command, Generic.ask_command
    refused = number_of(namespace, "left")

    def cut_short(self: Generic, command: int, body: bytes = b"") -> Listed:
        listed = dump(self, command, body)
        return Listed(listed.messages[:2], OSError(errno.EIO, os.strerror(errno.EIO)))

    def refusing(self: Generic, command: int, body: bytes = b"") -> Message | None:
        if command == ethtool_features.ETHTOOL_MSG_FEATURES_GET and body == request(refused):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return ask(self, command, body)

    monkeypatch.setattr(Generic, "dump_command", cut_short)
    assert said("features", namespace) == expected

    monkeypatch.setattr(Generic, "ask_command", refusing)

    def read() -> tuple[set[str], str]:
        seen = set()
        try:
            for subject, _, _ in ethtool_features.features():
                seen.add(subject)
        except OSError as error:
            return seen, str(error.filename)
        return seen, ""

    assert namespace.call(read) == (expected.keys() - {"left"}, "left")


def number_of(namespace: Namespace, interface: str) -> int:
    return next(
        index for index, name in namespace.call(lambda: list(ethtool.interfaces())) if name.decode() == interface
    )


def test_counters_of_queues_are_between_two_looks_at_the_interface() -> None:
    def look() -> dict[str, int]:
        return {name: int(value) for subject, name, value in PER_NAMESPACE["link"]() if subject == "eth0"}

    before = look()
    try:
        ours = list(queue_stats.statistics())
    except OSError as error:
        pytest.skip(f"this kernel counts no queues: {error}")
    after = look()
    mine = [(name, int(value)) for subject, name, value in ours if subject.startswith("eth0 ")]
    if not mine:
        pytest.skip("this machine has no interface eth0 that counts queue by queue")
    for name in ("rx-packets", "rx-bytes", "tx-packets", "tx-bytes"):
        kernel = name.replace("-", "_")
        total = sum(value for each, value in mine if each == name)
        assert before[kernel] <= total <= after[kernel]
