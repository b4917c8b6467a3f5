# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import socket
import subprocess
from typing import TYPE_CHECKING, NoReturn

import pytest

from hopscope.errors import KernelError, UsageError
from hopscope.kernel import ethtool, nic
from hopscope.kernel.nic import TimestampInfo, describe, nic_facts, timestamp_info
from hopscope.lab import Namespace
from tests import headers

if TYPE_CHECKING:
    from collections.abc import Iterator

# net/ethtool/common.c: sof_timestamping_names, ts_tx_type_names, ts_rx_filter_names
ETHTOOL_NAMES = {
    "SOF_TIMESTAMPING_TX_HARDWARE": "hardware-transmit",
    "SOF_TIMESTAMPING_TX_SOFTWARE": "software-transmit",
    "SOF_TIMESTAMPING_RX_HARDWARE": "hardware-receive",
    "SOF_TIMESTAMPING_RX_SOFTWARE": "software-receive",
    "SOF_TIMESTAMPING_SOFTWARE": "software-system-clock",
    "SOF_TIMESTAMPING_RAW_HARDWARE": "hardware-raw-clock",
}
RX_SOFTWARE = ["SOF_TIMESTAMPING_RX_SOFTWARE", "SOF_TIMESTAMPING_SOFTWARE"]
BOTH_SOFTWARE = ["SOF_TIMESTAMPING_TX_SOFTWARE", *RX_SOFTWARE]


TS_FIELDS = ("so_timestamping", "phc_index", "tx_types", "rx_filters")


class EthtoolTsInfo(ctypes.Structure):
    """``struct ethtool_ts_info``, as include/uapi/linux/ethtool.h writes it."""

    _fields_ = (
        ("cmd", ctypes.c_uint32),
        ("so_timestamping", ctypes.c_uint32),
        ("phc_index", ctypes.c_int32),
        ("tx_types", ctypes.c_uint32),
        ("tx_reserved", ctypes.c_uint32 * 3),
        ("rx_filters", ctypes.c_uint32),
        ("rx_reserved", ctypes.c_uint32 * 3),
    )


def answer(monkeypatch: pytest.MonkeyPatch, driver: bytes = b"igc", **fields: int) -> TimestampInfo:
    """Return what is made of a driver's answer of these fields."""
    replies = {
        nic.ETHTOOL_GET_TS_INFO: bytes(EthtoolTsInfo(nic.ETHTOOL_GET_TS_INFO, **fields)),
        ethtool.ETHTOOL_GDRVINFO: (b"\3\0\0\0" + driver).ljust(196, b"\0"),
    }
    with monkeypatch.context() as patch:
        patch.setattr(ethtool.Ethtool, "command", lambda _self, _name, command, size: replies[command][:size])
        return timestamp_info("eth9")


def refuse(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def ioctl(*_: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "ioctl", ioctl)


@pytest.fixture(scope="module")
def namespace() -> Iterator[Namespace]:
    with Namespace() as made:
        for words in (
            "link add fifteen-letters type veth peer name v1",
            "link add ifb7 type ifb",
            "tuntap add tun7 mode tun",
            "link add v\udcff type veth peer name v2",
        ):
            made.run(["ip", *words.split(" ")], check=True)
        yield made


def by_ethtool(output: str) -> tuple[set[str], int | None]:
    """Return the capabilities and the hardware clock in the output of ``ethtool -T``."""
    clock = re.search(r"^(?:PTP Hardware Clock|Hardware timestamp provider index): (\w+)$", output, re.MULTILINE)
    assert clock is not None
    listed = re.search(r"^Capabilities:\n((?:\t.*\n)*)", output, re.MULTILINE)
    assert listed is not None
    return {line.split()[0] for line in listed[1].splitlines()}, None if clock[1] == "none" else int(clock[1])


def modes_by_ethtool(output: str, title: str) -> int:
    found = re.search(rf"^{title}:(?: none\n|\n((?:\t.*\n)*))", output, re.MULTILINE)
    assert found is not None
    return (found[1] or "").count("\n")


def assert_same(info: TimestampInfo, output: str) -> None:
    assert ({ETHTOOL_NAMES[flag] for flag in info.capabilities}, info.phc_index) == by_ethtool(output)
    assert len(info.tx_types) == modes_by_ethtool(output, "Hardware Transmit Timestamp Modes")
    assert len(info.rx_filters) == modes_by_ethtool(output, "Hardware Receive Filter Modes")


def test_every_interface_of_the_host_is_as_ethtool_says() -> None:
    names = [name for _, name in socket.if_nameindex()]
    assert "lo" in names
    for name in names:
        shown = subprocess.run(["ethtool", "-T", name], capture_output=True, text=True, check=True)
        assert_same(timestamp_info(name), shown.stdout)


@pytest.mark.root
@pytest.mark.parametrize(
    ("interface", "capabilities", "driver"),
    [
        ("lo", BOTH_SOFTWARE, ""),
        ("fifteen-letters", BOTH_SOFTWARE, "veth"),
        ("tun7", BOTH_SOFTWARE, "tun"),
        ("ifb7", RX_SOFTWARE, "ifb"),
    ],
)
def test_virtual_interface_is_as_ethtool_says(
    interface: str, capabilities: list[str], driver: str, namespace: Namespace
) -> None:
    info = namespace.call(timestamp_info, interface)
    assert_same(info, namespace.run(["ethtool", "-T", interface], capture_output=True, text=True).stdout)
    assert info == TimestampInfo(interface, capabilities, None, [], [], driver)


@pytest.mark.root
def test_facts_are_of_the_calling_threads_namespace(namespace: Namespace) -> None:
    facts = {fact.name: fact for fact in namespace.call(nic_facts)}
    assert facts.keys() == {f"nic {name}" for name in ("lo", "fifteen-letters", "v1", "ifb7", "tun7", "v\\xff", "v2")}
    assert all(fact.ok for fact in facts.values())
    assert facts["nic lo"].value == "software receive and transmit; no hardware clock"
    assert facts["nic v1"].value == "software receive and transmit; no hardware clock; driver veth"
    assert facts["nic ifb7"].value == "software receive; no hardware clock; driver ifb"


@pytest.mark.root
def test_too_long_a_name_is_not_cut_to_another_interfaces(namespace: Namespace) -> None:
    assert namespace.call(timestamp_info, "fifteen-letters").driver == "veth"
    with pytest.raises(UsageError, match="no interface fifteen-letters2 "):
        namespace.call(timestamp_info, "fifteen-letters2")


def test_unknown_interface_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"no interface hopscope-none .* See `ip link`"):
        timestamp_info("hopscope-none")


def test_hardware_clock_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    info = answer(monkeypatch, so_timestamping=0b1011111, phc_index=0, tx_types=0b11, rx_filters=0b11)
    assert info == TimestampInfo(
        "eth9",
        [
            "SOF_TIMESTAMPING_TX_HARDWARE",
            "SOF_TIMESTAMPING_TX_SOFTWARE",
            "SOF_TIMESTAMPING_RX_HARDWARE",
            "SOF_TIMESTAMPING_RX_SOFTWARE",
            "SOF_TIMESTAMPING_SOFTWARE",
            "SOF_TIMESTAMPING_RAW_HARDWARE",
        ],
        0,
        ["HWTSTAMP_FILTER_NONE", "HWTSTAMP_FILTER_ALL"],
        ["HWTSTAMP_TX_OFF", "HWTSTAMP_TX_ON"],
        "igc",
    )
    assert describe(info) == (
        "software receive and transmit; hardware receive and transmit; hardware clock /dev/ptp0; driver igc"
    )


def test_hardware_that_stamps_ptp_alone_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    info = answer(monkeypatch, so_timestamping=0b1011111, phc_index=3, tx_types=0b10, rx_filters=1 << 12)
    assert info.rx_filters == ["HWTSTAMP_FILTER_PTP_V2_EVENT"]
    assert "only some kinds of received packets" in describe(info)
    assert "/dev/ptp3" in describe(info)


def test_bits_that_are_newer_than_this_program_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    info = answer(monkeypatch, so_timestamping=3 << 18, phc_index=-1, tx_types=1 << 31, rx_filters=3 << 15)
    assert info.capabilities == ["SOF_TIMESTAMPING_TX_COMPLETION", "bit 19"]
    assert info.tx_types == ["bit 31"]
    assert info.rx_filters == ["HWTSTAMP_FILTER_NTP_ALL", "bit 16"]
    assert info.phc_index is None
    assert describe(info) == "no software stamps; no hardware clock; driver igc"


def test_constants_and_layouts_are_those_of_the_kernels_headers() -> None:
    values = {name: 1 << bit for bit, name in enumerate(nic.SOF_TIMESTAMPING)}
    values |= {name: value for names in (nic.HWTSTAMP_TX, nic.HWTSTAMP_FILTER) for value, name in enumerate(names)}
    values |= {name: getattr(ethtool, name) for name in ("SIOCETHTOOL", "ETHTOOL_GDRVINFO")}
    values["ETHTOOL_GET_TS_INFO"] = nic.ETHTOOL_GET_TS_INFO
    values |= {
        "sizeof(struct ethtool_drvinfo)": ethtool._DRVINFO.size,
        "sizeof(struct ethtool_ts_info)": nic._TS_INFO.size,
        "offsetof(struct ethtool_drvinfo, driver)": 4,
    }
    values |= {f"offsetof(struct ethtool_ts_info, {name})": getattr(EthtoolTsInfo, name).offset for name in TS_FIELDS}
    headers.assert_values(("stddef", "linux/ethtool", "linux/net_tstamp", "linux/sockios"), values)


def test_kernel_that_does_not_tell_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, errno.EOPNOTSUPP)
    with pytest.raises(KernelError, match=r"lo can take: Operation not supported\. See the output of"):
        timestamp_info("lo")
    facts = nic_facts()
    assert "nic lo" in {fact.name for fact in facts}
    for fact in facts:
        assert fact.value.startswith("unknown: the kernel does not tell")
        assert not fact.ok
        assert "ethtool -T" in fact.next_step


def test_interface_that_went_away_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "lo"), (4321, "hopscope-gone")])
    assert [fact.name for fact in nic_facts()] == ["nic lo"]


def test_interfaces_that_cannot_be_listed_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def if_nameindex() -> NoReturn:
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))

    monkeypatch.setattr(socket, "if_nameindex", if_nameindex)
    (fact,) = nic_facts()
    assert not fact.ok
    assert fact.value == "unknown: the interfaces cannot be listed: Address family not supported by protocol"


def test_interface_whose_arrivals_are_not_stamped_is_not_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    info = answer(monkeypatch, so_timestamping=0b10, phc_index=-1)
    monkeypatch.setattr(nic, "timestamps", lambda *_: info)
    fact = nic_facts()[0]
    assert fact.value == "software transmit; no hardware clock; driver igc"
    assert not fact.ok
    assert fact.next_step
