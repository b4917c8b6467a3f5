# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import struct
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.kernel import ethtool
from hopscope.kernel.ethtool import Driver, Ethtool, counter_names, is_absent
from hopscope.lab import Namespace
from tests import headers

if TYPE_CHECKING:
    import array
    from collections.abc import Iterator, Sequence


def strings(*names: bytes) -> bytes:
    return b"".join(name.ljust(ethtool.ETH_GSTRING_LEN, b"\0") for name in names)


class Nic(Ethtool):
    """A driver whose counters become other ones while they are read: what each request finds, in turn."""

    def __init__(self, *counts: Sequence[str]) -> None:
        super().__init__()
        self.counts = list(counts)
        self.written = 0

    def ioctl(self, _interface: str | bytes, _request: int, _data: bytes) -> bytes:
        return ethtool._SSET_INFO.pack(ethtool.ETHTOOL_GSSET_INFO, 1 << ethtool.ETH_SS_STATS, len(self.counts.pop(0)))

    def hand_over(self, _interface: str | bytes, _request: int, buffer: array.array[int]) -> None:
        names = self.counts.pop(0)
        (command,) = struct.unpack_from("=I", buffer)
        if command == ethtool.ETHTOOL_GSTRINGS:
            answer = struct.pack("=III", command, 1, len(names)) + strings(*(name.encode() for name in names))
        else:
            answer = struct.pack(f"=II{len(names)}Q", command, len(names), *range(1, len(names) + 1))
        assert len(answer) <= len(buffer), "the kernel would write beyond the buffer"
        self.written = len(answer)
        memoryview(buffer)[: len(answer)] = answer


@pytest.fixture(scope="module")
def namespace() -> Iterator[Namespace]:
    with Namespace() as made:
        made.run(["ip", "link", "add", "v\udcff", "type", "veth", "peer", "name", "fifteen-letters"], check=True)
        made.run(["ip", "tuntap", "add", "tun7", "mode", "tun"], check=True)
        yield made


def ask(namespace: Namespace, method: str, interface: str | bytes) -> object:
    def inside() -> object:
        with Ethtool() as made:
            return getattr(made, method)(interface)

    return namespace.call(inside)


def test_constants_and_layouts_are_those_of_the_kernels_headers() -> None:
    names = ("ETHTOOL_GDRVINFO", "ETHTOOL_GSTRINGS", "ETHTOOL_GSTATS", "ETHTOOL_GSSET_INFO")
    values = {name: getattr(ethtool, name) for name in (*names, "ETH_SS_STATS", "ETH_GSTRING_LEN", "SIOCETHTOOL")}
    values |= {
        "sizeof(struct ethtool_drvinfo)": ethtool._DRVINFO.size,
        "offsetof(struct ethtool_drvinfo, version)": 36,
        "offsetof(struct ethtool_drvinfo, fw_version)": 68,
        "offsetof(struct ethtool_drvinfo, bus_info)": 100,
        "offsetof(struct ethtool_sset_info, sset_mask)": 8,
        "offsetof(struct ethtool_sset_info, data)": 16,
        "offsetof(struct ethtool_gstrings, data)": ethtool._GSTRINGS.size,
        "offsetof(struct ethtool_stats, data)": ethtool._GSTATS.size,
    }
    headers.assert_values(("stddef", "linux/ethtool", "linux/sockios"), values)


@pytest.mark.root
@pytest.mark.parametrize("interface", ["v\udcff", b"v\xff", "fifteen-letters"])
def test_a_veths_counters_have_its_names(interface: str | bytes, namespace: Namespace) -> None:
    found = dict(ask(namespace, "statistics", interface))  # type: ignore[call-overload]
    assert found["peer_ifindex"] > 1
    assert "rx_queue_0_xdp_packets" in found
    assert ask(namespace, "driver", interface) == Driver("veth", "1.0", "", "")


@pytest.mark.root
@pytest.mark.parametrize("interface", ["lo", "tun7"])
def test_a_driver_without_counters_is_no_error(interface: str, namespace: Namespace) -> None:
    assert ask(namespace, "statistics", interface) == []


@pytest.mark.root
def test_an_interface_without_a_driver_is_no_error(namespace: Namespace) -> None:
    with pytest.raises(OSError, match="not supported") as raised:
        ask(namespace, "driver", "lo")
    assert is_absent(raised.value)


@pytest.mark.parametrize("interface", ["hopscope-none", "far-too-long-for-a-name", b"lo\xff"])
def test_an_interface_that_is_gone_is_no_error(interface: str | bytes) -> None:
    with Ethtool() as made, pytest.raises(OSError, match="No such device") as raised:
        made.statistics(interface)
    assert is_absent(raised.value)


def test_counters_of_the_host_are_between_two_looks_of_ethtool() -> None:
    def shown(name: str) -> dict[str, int]:
        lines = subprocess.run(["ethtool", "-S", name], capture_output=True, text=True, check=False).stdout.splitlines()
        return {key.strip(): int(value) for key, _, value in (line.rpartition(":") for line in lines[1:])}

    with Ethtool() as made:
        before = shown("eth0")
        if not before:
            pytest.skip("this machine has no interface eth0 with counters of its own")
        ours = dict(made.statistics("eth0"))
        after = shown("eth0")
    assert ours.keys() == before.keys()
    assert all(before[name] <= ours[name] <= after[name] for name in ours)


def test_counters_that_become_more_while_they_are_read_are_read_again() -> None:
    few, many = ["a", "b"], [f"rx{queue}" for queue in range(900)]
    with Nic(few, many, many, many, many, many) as made:
        assert made.statistics("eth9") == [(name, place) for place, name in enumerate(many, 1)]
        assert made.written > len(many) * 8


def test_counters_that_become_fewer_while_they_are_read_are_read_again() -> None:
    few, many = ["a", "b"], ["a", "b", "c"]
    with Nic(many, many, few, few, few, few) as made:
        assert made.statistics("eth9") == [("a", 1), ("b", 2)]


def test_counters_that_never_stay_are_refused() -> None:
    changing = [["a"] * count for count in range(1, 20)]
    with Nic(*changing) as made, pytest.raises(OSError, match="more or fewer") as raised:
        made.statistics("eth9")
    assert raised.value.errno == errno.EAGAIN


def test_names_are_trimmed_and_told_apart() -> None:
    table = strings(b"  rx_bytes", b"rx_bytes", b"", b"rx_bytes #2", b"rx_bytes", b"x" * 32, b"\xff\x1b")
    expected = ("rx_bytes", "rx_bytes #2", "", "rx_bytes #2 #2", "rx_bytes #3", "x" * 32, r"\xff\x1b")
    assert counter_names(table) == expected


def test_a_counter_without_a_name_is_left_out() -> None:
    with Nic(*[["a", "", "c"]] * 3) as made:
        assert made.statistics("eth9") == [("a", 1), ("c", 3)]


@given(st.lists(st.binary(max_size=32), max_size=6))
def test_any_names_are_distinct(names: list[bytes]) -> None:
    found = [name for name in counter_names(strings(*names)) if name]
    assert len(found) == len(set(found))
    assert len(counter_names(strings(*names))) == len(names)
