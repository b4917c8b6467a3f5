# SPDX-License-Identifier: Apache-2.0
"""The parsers of the kernel's text files, on what kernels wrote and on what none would."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hopscope.errors import FormatError
from hopscope.kernel.counters import host_files, interrupts, per_cpu, proc_net, socket_files, sysctl
from hopscope.kernel.counters.text import numbers, parse_cpus
from tests.kernel.counters import texts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hopscope.kernel.counters.text import Said
    from tests.kernel.counters.texts import Text

EVERY = pytest.mark.parametrize("kind", texts.TEXTS, ids=[each.name for each in texts.TEXTS])
WORD = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", min_size=1, max_size=9)
# Digits, but not the kernel's.
FOREIGN = "\u0661\u0665"
VALUE = st.integers(0, (1 << 64) - 1)


def by_name(said: Iterable[Said]) -> dict[tuple[str, str], int | str]:
    listed = list(said)
    found = {(subject, name): value for subject, name, value in listed}
    assert len(found) == len(listed)
    return found


def assert_refused_or_well_formed(kind: Text, text: bytes) -> None:
    try:
        said = list(kind.parse(text))
    except FormatError:
        return
    written = numbers_in(text)
    for subject, name, value in said:
        assert isinstance(value, int)
        assert -(1 << 63) <= value < 1 << 64
        assert value in written or kind.name in {"pressure", "cpus"}
        (subject + name).encode()


def numbers_in(text: bytes) -> set[int]:
    words = [word for word in re.split(rb"[\s:]+", text) if len(word) < 99]
    decimal = {int(word) for word in words if re.fullmatch(rb"-?[0-9]+", word)}
    return decimal | {int(word, 16) for word in words if re.fullmatch(rb"[0-9a-fA-F]+", word)}


def test_snmp() -> None:
    assert list(proc_net.parse_pairs(texts.SNMP, ["Ip", "Icmp", "Tcp", "Udp"])) == [
        ("", "IpForwarding", 2), ("", "IpDefaultTTL", 64), ("", "IpInReceives", 22512884), ("", "IpInHdrErrors", 0),
        ("", "IcmpInMsgs", 1281), ("", "IcmpInErrors", 621), ("", "IcmpMsgInType3", 660), ("", "IcmpMsgOutType3", 656),
        ("", "TcpRtoMax", 120000), ("", "TcpMaxConn", -1), ("", "TcpActiveOpens", 2542),
        ("", "UdpInDatagrams", 5943386), ("", "UdpNoPorts", 656),
        ("", "UdpLiteInDatagrams", 0), ("", "UdpLiteNoPorts", 0),
    ]  # fmt: skip


def test_netstat_of_a_kernel_without_mptcp() -> None:
    assert list(proc_net.parse_pairs(texts.NETSTAT_510, ["TcpExt", "IpExt"])) == [
        ("", "TcpExtSyncookiesSent", 3), ("", "TcpExtTW", 2060), ("", "TcpExtListenDrops", 17),
        ("", "IpExtInNoRoutes", 0), ("", "IpExtInOctets", 329281101951), ("", "IpExtOutOctets", 321672178208),
    ]  # fmt: skip


@given(
    st.lists(
        st.tuples(WORD, st.lists(st.tuples(WORD, VALUE), min_size=1, unique_by=lambda pair: pair[0])),
        min_size=1,
        unique_by=lambda group: group[0],
    )
)
def test_pairs_of_lines_of_any_names(groups: list[tuple[str, list[tuple[str, int]]]]) -> None:
    text = "".join(
        f"{group}: {' '.join(name for name, _ in said)}\n{group}: {' '.join(str(value) for _, value in said)}\n"
        for group, said in groups
    )
    expected = [("", group + name, value) for group, said in groups for name, value in said]
    assert list(proc_net.parse_pairs(text.encode(), [group for group, _ in groups])) == expected
    with pytest.raises(FormatError, match="it has no Another"):
        list(proc_net.parse_pairs(text.encode(), ["Another0"]))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "empty"),
        (b"Udp: InDatagrams NoPorts\n", "no line of values"),
        (b"Udp: InDatagrams NoPorts\nUdp: 1009\n", "2 names and 1 values"),
        (b"Udp: InDatagrams\nUdp: 1009 0\n", "1 names and 2 values"),
        (b"Udp: InDatagrams NoPorts\nUdp: 1009 0", "cut off"),
        (b"Udp: InDatagrams\nTcp: 1009\n", "do not follow"),
        (b"Udp: InDatagrams\nUdpLite: 1009\n", "do not follow"),
        (b"Udp: InDatagrams\nUdp: 1_009\n", "not a line of numbers"),
        (b"Udp: InDatagrams\nUdp: 1-009\n", "not a line of numbers"),
        (b"Udp: InDatagrams\nUdp: 18446744073709551616\n", "not a line of numbers"),
        (b"Udp: InDatagrams\nUdp: " + b"9" * 5000 + b"\n", "not a line of numbers"),
        (b"Udp: InDatagrams\nUdp: " + FOREIGN.encode() + b"\n", "not a line of numbers"),
        (b"Udp: In\xffDatagrams\nUdp: 1009\n", "not text"),
        (b"InDatagrams\n1009\n", "not a line of names"),
        (b"\n\n", "not a line of names"),
    ],
)
def test_pairs_of_lines_that_are_none(text: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        list(proc_net.parse_pairs(text, ["Udp"]))


def test_snmp6_and_sockstat() -> None:
    assert list(proc_net.parse_lines(texts.SNMP6, ["Ip6InReceives"])) == [
        ("", "Ip6InReceives", 77216), ("", "Icmp6InMsgs", 1397), ("", "Icmp6InType1", 155),
        ("", "Udp6InDatagrams", 10623),
    ]  # fmt: skip
    assert by_name(socket_files.parse_sockstat(texts.SOCKSTAT, ["TCP", "UDP", "FRAG"])) == {
        ("", "sockets.used"): 17, ("", "TCP.inuse"): 1, ("", "TCP.orphan"): 0, ("", "TCP.tw"): 3, ("", "TCP.alloc"): 2,
        ("", "TCP.mem"): 4, ("", "UDP.inuse"): 5, ("", "UDP.mem"): 26, ("", "UDPLITE.inuse"): 0, ("", "RAW.inuse"): 0,
        ("", "FRAG.inuse"): 2, ("", "FRAG.memory"): 4096,
    }  # fmt: skip


def test_udp_sockets_without_drops_are_counted_but_not_named() -> None:
    assert list(socket_files.parse_udp(texts.UDP)) == [
        ("", 0), ("0.0.0.0:8080 inode 4711", 4294967295), ("127.0.0.1:67 inode 0", 7),
    ]  # fmt: skip
    assert list(socket_files.parse_udp(texts.UDP6)) == [("[fe80::5054:ff:fe00:9fb7]:546 inode 99", 13)]


def softnet(text: bytes) -> dict[tuple[str, str], int | str]:
    return by_name(per_cpu.parse_softnet(text, (0, 2)))


def test_softnet_of_kernels_with_more_and_more_columns() -> None:
    first = {
        ("cpu 0", "processed"): 0x1BC52371, ("cpu 0", "dropped"): 2, ("cpu 0", "time_squeeze"): 0x129,
        ("cpu 0", "cpu_collision"): 0, ("cpu 0", "received_rps"): 0x1187, ("cpu 0", "flow_limit_count"): 3,
        ("cpu 2", "processed"): 0x045FCFA4, ("cpu 2", "dropped"): 0, ("cpu 2", "time_squeeze"): 0xB1,
        ("cpu 2", "cpu_collision"): 0, ("cpu 2", "received_rps"): 0x12E4, ("cpu 2", "flow_limit_count"): 0,
    }  # fmt: skip
    second = first | {("cpu 0", "backlog_len"): 5, ("cpu 2", "backlog_len"): 5}
    third = second | {
        (cpu, name): value for cpu in ("cpu 0", "cpu 2") for name, value in (("input_qlen", 4), ("process_qlen", 1))
    }
    assert softnet(texts.SOFTNET_11) == first
    assert softnet(texts.SOFTNET_13) == second
    assert softnet(texts.SOFTNET) == third
    newer = b"".join(line + b" 0000abcd\n" for line in texts.SOFTNET.splitlines())
    assert softnet(newer) == third


def test_softnet_without_a_row_for_a_cpu() -> None:
    for text in (texts.SOFTNET_11, texts.SOFTNET):
        with pytest.raises(FormatError, match="not one row for each of 3 CPUs"):
            list(per_cpu.parse_softnet(text, (0, 1, 2)))
    with pytest.raises(FormatError, match="not one row"):  # they are numbered otherwise
        list(per_cpu.parse_softnet(texts.SOFTNET, (0, 1)))


def test_tables_of_cpus() -> None:
    found = by_name(per_cpu.parse_table(texts.ARP, "arp", (0, 5)))
    assert found["arp", "entries"] == 10
    assert found["arp cpu 0", "res_failed"] == 8
    assert found["arp cpu 5", "lookups"] == 0xC7A5
    assert ("arp cpu 0", "entries") not in found
    assert len(found) == 1 + 2 * 7
    found = by_name(per_cpu.parse_table(texts.ROUTE, "", (0, 1)))
    assert (found["cpu 0", "in_martian_src"], found["cpu 1", "in_no_route"], found["", "entries"]) == (0x126, 0xA0, 5)
    found = by_name(per_cpu.parse_table(texts.CONNTRACK, "", (0, 1)))
    assert [found["cpu 0", name] for name in ("invalid", "insert_failed", "drop")] == [0x11, 2, 1]
    assert found["", "entries"] == 3
    with pytest.raises(FormatError, match="2 rows and there may be 4 CPUs"):
        list(per_cpu.parse_table(texts.ARP, "arp", range(4)))


def test_interrupts_that_came() -> None:
    assert list(interrupts.parse_interrupts(texts.INTERRUPTS)) == [
        ("0 timer", "cpu 0", 7),
        ("24 ACPI:Ged", "cpu 0", 1),
        ("27 ehci_hcd:usb1, uhci_hcd:usb3", "cpu 0", 4),
        ("38 virtio2-input.0", "cpu 2", 107851),
        ("39", "cpu 0", 12),
        ("LOC Local timer interrupts", "cpu 0", 60949479),
        ("LOC Local timer interrupts", "cpu 2", 38016096),
        ("ERR", "total", 0),
        ("MIS", "total", 5),
    ]
    assert list(interrupts.parse_interrupts(texts.INTERRUPTS_ARM)) == [
        ("11 arch_timer", "cpu 0", 3024),
        ("11 arch_timer", "cpu 1", 2960),
        ("53 virtio1-output.0", "cpu 0", 1),
        ("IPI0 Rescheduling interrupts", "cpu 0", 4131),
        ("IPI0 Rescheduling interrupts", "cpu 1", 5128),
        ("Err", "total", 0),
    ]


def test_interrupts_of_one_cpu() -> None:
    text = (
        b"           CPU0       \n"
        b"  1:          9   IO-APIC   1-edge      i8042\n"
        b"NMI:          3   Non-maskable interrupts\n"
        b"ERR:          2\n"
    )
    assert list(interrupts.parse_interrupts(text)) == [
        ("1 i8042", "cpu 0", 9), ("NMI Non-maskable interrupts", "cpu 0", 3), ("ERR", "total", 2),
    ]  # fmt: skip


def test_interrupt_with_a_name_that_is_no_text() -> None:
    text = texts.INTERRUPTS.replace(b"virtio2-input.0", b"eth\xff\xfe-rx 0")
    assert ("38 eth\\xff\\xfe-rx 0", "cpu 2", 107851) in list(interrupts.parse_interrupts(text))


def test_softirqs_ticks_memory_and_pressure() -> None:
    found = by_name(interrupts.parse_softirqs(texts.SOFTIRQS, (0, 1)))
    assert (found["NET_RX", "cpu 0"], found["NET_RX", "cpu 1"], len(found)) == (424696431, 60890002, 8)
    found = by_name(host_files.parse_stat(texts.STAT))
    assert [value for (subject, _), value in found.items() if subject == "cpu 2"] == [
        1480730, 44930, 761051, 1238500, 7289, 0, 27860, 6100, 0, 0,
    ]  # fmt: skip
    assert found["cpu 0", "softirq"] == 132285
    assert {subject for subject, _ in found} == {"cpu 0", "cpu 2"}
    assert by_name(host_files.parse_meminfo(texts.MEMINFO)) == {
        ("", "MemTotal_kB"): 24684084, ("", "MemFree_kB"): 16151800, ("", "MemAvailable_kB"): 24056020,
        ("", "Slab_kB"): 2175216, ("", "Percpu_kB"): 864,
    }  # fmt: skip
    assert by_name(host_files.parse_pressure(texts.PRESSURE, "memory")) == {
        ("", "memory.some.total_us"): 10421247358, ("", "memory.some.avg10_per_10000"): 3989,
        ("", "memory.full.total_us"): 0, ("", "memory.full.avg10_per_10000"): 10000,
    }  # fmt: skip


def test_flags_of_a_processor() -> None:
    text = b"processor\t: 0\nflags\t\t: fpu tsc constant_tsc\nbugs\t\t:\n\nprocessor\t: 1\nflags\t\t: fpu\n"
    assert host_files.parse_flags(text) == {"fpu", "tsc", "constant_tsc"}
    assert host_files.parse_flags(b"processor\t: 0\nFeatures\t: fp asimd\n") == frozenset()


def test_settings_are_numbers_but_for_lists_and_masks() -> None:
    assert sysctl.meaning("net.ipv4.tcp_max_orphans", b"131072\n") == 131072
    assert sysctl.meaning("net.ipv4.tcp_adv_win_scale", b"-2\n") == -2
    assert sysctl.meaning("net.ipv4.tcp_rmem", b"4096\t131072\t33554432\n") == "4096 131072 33554432"
    assert sysctl.meaning("net.core.rps_default_mask", b"3\n") == "3"
    assert sysctl.meaning("net.ipv4.ip_local_reserved_ports", b"8080\n") == "8080"
    assert sysctl.meaning("net.ipv4.ip_local_reserved_ports", b"\n") == ""
    assert sysctl.meaning("net.ipv4.tcp_retries2", FOREIGN.encode()) == FOREIGN
    assert sysctl.meaning("net.ipv4.tcp_retries2", b"9" * 5000) == "9" * 5000
    assert sysctl.meaning("net.ipv4.tcp_congestion_control", b"b\xffr\n") == "b\\xffr"


@given(st.sets(st.integers(0, 300), min_size=1))
def test_lists_of_cpus(cpus: set[int]) -> None:
    ordered = sorted(cpus)
    assert parse_cpus(",".join(map(str, ordered)).encode()) == ordered
    assert parse_cpus(f"0-{ordered[-1]}\n".encode()) == list(range(ordered[-1] + 1))


@pytest.mark.parametrize("text", [b"", b"\n", b"3-1", b"0-", b"1,1", b"0-99999999999", b"2,0", b"a"])
def test_lists_of_cpus_that_are_none(text: bytes) -> None:
    with pytest.raises(FormatError):
        parse_cpus(text)


@given(st.lists(st.integers(-(1 << 63), (1 << 64) - 1)))
def test_lines_of_numbers(values: list[int]) -> None:
    assert numbers(" ".join(map(str, values)).encode()) == values


def test_what_is_a_blank_elsewhere_is_part_of_a_name() -> None:
    text = texts.SOCKSTAT.replace(b"FRAG: inuse 2", b"FRAG: in\x1cuse 2")
    assert ("", "FRAG.in\x1cuse", 2) in list(socket_files.parse_sockstat(text, ["FRAG"]))
    with pytest.raises(FormatError, match="not a protocol"):
        list(socket_files.parse_sockstat(texts.SOCKSTAT.replace(b"mem 26", b"mem\x1c26"), ["FRAG"]))


@EVERY
def test_text_that_is_cut_off_gives_nothing_wrong(kind: Text) -> None:
    whole = by_name(kind.parse(kind.text))
    assert whole
    for end in range(len(kind.text)):
        try:
            part = by_name(kind.parse(kind.text[:end]))
        except FormatError:
            continue
        # A shorter list is right where nothing says how long it ought to be; it can only end with a line.
        assert kind.text[end - 1 : end] == b"\n" or kind.name == "cpus"
        assert part.items() <= whole.items() or kind.name == "cpus"


@pytest.mark.slow
@EVERY
@given(st.data())
def test_text_that_is_damaged(kind: Text, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(kind.text)))
    end = data.draw(st.integers(begin, min(begin + 9, len(kind.text))))
    other = data.draw(st.binary(max_size=9) | st.text("-_ \n\t\0\r9:", max_size=3).map(str.encode))
    assert_refused_or_well_formed(kind, kind.text[:begin] + other + kind.text[end:])


@EVERY
@given(st.binary())
@example(b"\n")
@example(b"\0\n")
@example(b": : :\n: : :\n")
def test_text_of_something_else(kind: Text, text: bytes) -> None:
    assert_refused_or_well_formed(kind, text)


# Of those whose lines stand for themselves: a line of another kernel.
@pytest.mark.parametrize(
    ("name", "more", "adds"),
    [
        ("snmp", b"DccpExt: New Old\nDccpExt: 1 2\n", {("", "DccpExtNew"): 1, ("", "DccpExtOld"): 2}),
        ("snmp6", b"Quic6InPackets \t5\n", {("", "Quic6InPackets"): 5}),
        ("sockstat", b"QUIC: inuse 3\n", {("", "QUIC.inuse"): 3}),
        ("interrupts", b"XYZ:          1          0   New interrupts\n", {("XYZ New interrupts", "cpu 0"): 1}),
        ("softirqs", b"NET_XX:  1 2\n", {("NET_XX", "cpu 0"): 1, ("NET_XX", "cpu 1"): 2}),
        ("meminfo", b"NewKind:  77 GB\n", {}),
    ],
)
def test_line_of_a_newer_kernel(name: str, more: bytes, adds: dict[tuple[str, str], int]) -> None:
    kind = next(each for each in texts.TEXTS if each.name == name)
    assert by_name(kind.parse(kind.text + more)) == by_name(kind.parse(kind.text)) | adds


@pytest.mark.parametrize("name", ["arp", "conntrack", "route"])
def test_column_of_a_newer_kernel(name: str) -> None:
    kind = next(each for each in texts.TEXTS if each.name == name)
    heading, *rows = kind.text.splitlines()
    text = b"\n".join([heading + b" brand_new", *(row + b" 0000002a" for row in rows), b""])
    prefix = "arp " if name == "arp" else ""
    added = {(f"{prefix}cpu {cpu}", "brand_new"): 42 for cpu in (0, 1)}
    assert by_name(kind.parse(text)) == by_name(kind.parse(kind.text)) | added
    with pytest.raises(FormatError, match="not as long as its heading"):
        list(kind.parse(b"\n".join([heading + b" brand_new", *rows, b""])))
    with pytest.raises(FormatError, match="its columns are others"):
        list(kind.parse(b"\n".join([heading + b" invalid allocs invalid", *rows, b""])))
