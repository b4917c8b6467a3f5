# SPDX-License-Identifier: Apache-2.0
"""Which CPUs packets and interrupts go to, against sysfs and procfs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.errors import FormatError
from hopscope.kernel.counters import affinity, interrupts, sysfs
from hopscope.kernel.counters.affinity import nodes_of_cpus
from hopscope.kernel.counters.reader import IN_PARTS, OF_HOST, PER_NAMESPACE, CounterReader
from hopscope.kernel.counters.sysfs import decimal
from hopscope.kernel.irqs import network_irqs
from hopscope.lab import Namespace
from hopscope.model.counters.readings import Key
from hopscope.model.counters.sources import SOURCES, kind_of
from tests.kernel.counters.tools import refuses_or, said

if TYPE_CHECKING:
    from collections.abc import Iterator

NET = Path("/sys/class/net")


@pytest.fixture(scope="module")
def namespace() -> Iterator[Namespace]:
    with Namespace() as made:
        for words in (
            "link add left numrxqueues 2 numtxqueues 2 type veth peer name right",
            "link add single numrxqueues 1 numtxqueues 1 type veth peer name other",
        ):
            made.run(["ip", *words.split()], check=True)
        made.run([b"ip", b"link", b"add", b"name", b"v\xff", b"type", b"ifb"], check=True)
        yield made


@pytest.mark.root
def test_steering_that_is_set_is_read(namespace: Namespace) -> None:
    script = """
        mount -t sysfs none /sys
        cd /sys/class/net
        echo 2 > left/queues/rx-1/rps_cpus
        echo 4096 > left/queues/rx-1/rps_flow_cnt
        echo 1 > left/queues/tx-0/xps_cpus
        echo 20000 > left/gro_flush_timeout
        echo 2 > left/napi_defer_hard_irqs
        for file in left/queues/*/* */threaded; do
            test -f $file && read -r value < $file && echo $file $value
        done 2> /dev/null
    """
    output = namespace.run(["unshare", "--mount", "sh", "-c", script], capture_output=True).stdout
    expected = dict(line.split(" ", 1) for line in output.decode(errors="replace").splitlines())
    ours = said("queue", namespace)
    assert (ours["left rx-1"]["rps_cpus"], ours["left rx-1"]["rps_flow_cnt"]) == ("2", 4096)
    assert (ours["left tx-0"]["xps_cpus"], ours["left rx-0"]["rps_cpus"]) == ("1", "0")
    assert (ours["left"]["gro_flush_timeout"], ours["left"]["napi_defer_hard_irqs"]) == (20000, 2)
    for queue in ("rx-0", "rx-1", "tx-0", "tx-1"):
        for name, value in ours[f"left {queue}"].items():
            assert expected[f"left/queues/{queue}/{name}"] == str(value)
    assert "xps_cpus" not in ours["single tx-0"]  # which is the only one
    assert r"v\xff rx-0" in ours


@pytest.mark.root
def test_the_hosts_steering_is_that_of_sysfs() -> None:
    ours: dict[str, dict[str, int | str]] = {}
    for subject, name, value in PER_NAMESPACE["queue"]():
        ours.setdefault(subject, {})[name] = value
    assert {subject.split()[0] for subject in ours} >= {path.name for path in NET.iterdir()}
    for subject, values in ours.items():
        interface, _, queue = subject.partition(" ")
        folder = NET / interface / "queues" / queue if queue else NET / interface
        assert {name: str(value) for name, value in values.items()} == {
            name: (folder / name).read_text().strip() for name in values
        }


@pytest.mark.root
def test_an_interface_that_went_since_it_was_listed_has_no_rows(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = said("queue", namespace)
    listed = sysfs._listed

    def with_another(root: int, folder: str) -> list[str]:
        return [*listed(root, folder), "gone", "rx-77"]

    monkeypatch.setattr(sysfs, "_listed", with_another)
    assert said("queue", namespace) == expected
    assert namespace.call(lambda: list(sysfs.devices())) == []


def test_numa_nodes_of_interfaces_are_those_of_sysfs() -> None:
    expected = {}
    for path in NET.glob("*/device/numa_node"):
        if int(path.read_text()) >= 0:
            expected[path.parent.parent.name] = int(path.read_text())
    assert {subject: node for subject, name, node in sysfs.devices() if name == "numa_node"} == expected


# As drivers/pci/pci-sysfs.c writes them: of 6.x, of 5.4, of a link that is down, and of a device that has none.
LINKS = {
    "eth0": (
        ["8.0 GT/s PCIe", "16.0 GT/s PCIe", "4", "16", "1"],
        {"pcie_mt_per_s": 8000, "pcie_max_mt_per_s": 16_000, "pcie_lanes": 4, "pcie_max_lanes": 16, "numa_node": 1},
    ),
    "eth1": (
        ["2.5 GT/s", "8 GT/s", "1", "8", "-1"],
        {"pcie_mt_per_s": 2500, "pcie_max_mt_per_s": 8000, "pcie_lanes": 1, "pcie_max_lanes": 8},
    ),
    "eth2": (["Unknown", "Unknown speed", "0", "255"], {}),
    "eth3": ([], {}),
}
FILES = ("current_link_speed", "max_link_speed", "current_link_width", "max_link_width", "numa_node")


def test_pcie_links_are_those_of_sysfs(tmp_path: Path) -> None:
    (tmp_path / "class/net/lo").mkdir(parents=True)
    for number, (name, (texts, _)) in enumerate(LINKS.items()):
        device = tmp_path / f"devices/pci0000:00/0000:00:1c.0/0000:0{number}:00.0"
        (device / "net" / name).mkdir(parents=True)
        (device / "net" / name / "device").symlink_to("../..")
        (tmp_path / "class/net" / name).symlink_to(device / "net" / name)
        for file, text in zip(FILES, texts, strict=False):
            (device / file).write_text(f"{text}\n")
    root = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        found = list(sysfs.devices_of(root))
    finally:
        os.close(root)
    for name, (_, expected) in LINKS.items():
        assert {reading: value for subject, reading, value in found if subject == name} == expected


# /proc/interrupts of a machine with line interrupts, as kernel/irq/proc.c show_interrupts() writes it.
SHARED = """\
           CPU0       CPU1
  1:         12          0   IO-APIC    1-edge      i8042
 16:       4711       9000   IO-APIC   16-fasteoi   uhci_hcd:usb1, eth0, snd_hda_intel:card0
 17:          3          4   IO-APIC   17-fasteoi   eth1-rx-0, eth1-tx-0
NMI:          0          0   Non-maskable interrupts
"""


def test_a_shared_interrupt_is_the_interfaces_whoever_else_has_it(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/interrupts").write_text(SHARED)
    for number, name in enumerate(("eth0", "eth1")):
        device = tmp_path / f"devices/0000:0{number}:00.0"
        device.mkdir(parents=True)
        (tmp_path / "sys/class/net" / name).mkdir(parents=True)
        (tmp_path / "sys/class/net" / name / "device").symlink_to(device)
    assert network_irqs(tmp_path) == {16: "eth0", 17: "eth1"}
    assert interrupts.interrupt_names(SHARED.encode())[16] == "16 uhci_hcd:usb1, eth0, snd_hda_intel:card0"


def test_interrupts_are_those_of_procfs() -> None:
    ours: dict[str, dict[str, int | str]] = {}
    for subject, name, value in OF_HOST["interrupt_setting"]():
        assert name not in ours.setdefault(subject, {})
        ours[subject][name] = value
    cpus = {subject: each for subject, each in ours.items() if subject.startswith("cpu ")}
    found = {subject.split()[0]: each for subject, each in ours.items() if subject not in cpus}
    assert found.keys() <= {path.name for path in Path("/proc/irq").iterdir()}
    counted = {subject for subject, _, _ in interrupts.interrupt() if subject[0].isdigit()}
    assert counted <= ours.keys()
    for number, each in found.items():
        folder = Path("/proc/irq") / number
        assert each["affinity"] == (folder / "smp_affinity_list").read_text().strip()
        if (folder / "node").exists():
            assert each.get("numa_node", -1) == int((folder / "node").read_text())
    assert {subject: each["numa_node"] for subject, each in cpus.items()} == {
        f"cpu {cpu}": node for cpu, node in nodes_of_cpus().items()
    }


@pytest.mark.root
def test_an_interrupt_that_is_set_is_read() -> None:
    path = next(iter(sorted(Path("/proc/irq").glob("*/*-input.0"))), None)
    if path is None:
        pytest.skip("this machine has no interrupt of a virtio NIC")
    number, file = path.parent.name, path.parent / "smp_affinity_list"
    before = file.read_text()
    try:
        file.write_text("0")
        mine = {name: value for subject, name, value in affinity.interrupts() if subject.split()[0] == number}
    finally:
        file.write_text(before)
    assert mine["affinity"] == "0"
    assert mine["effective_affinity"]  # which becomes the same when it comes next
    assert mine.get("interface", "") in {"", *os.listdir(NET)}  # noqa: PTH208


def test_nodes_of_cpus(tmp_path: Path) -> None:
    for node, cpus in {"node0": "0-1,4\n", "node1": "2-3\n", "node2": "\n"}.items():
        (tmp_path / node).mkdir()
        (tmp_path / node / "cpulist").write_text(cpus)
    assert nodes_of_cpus(tmp_path) == {0: 0, 1: 0, 4: 0, 2: 1, 3: 1}
    assert nodes_of_cpus(tmp_path / "none") == {}


def test_interrupts_have_one_name_in_both_sources() -> None:
    text = (
        b"           CPU0       CPU1\n"
        b" 24:          1          0  IO-APIC   5-edge      ACPI:Ged\n"
        b" 36:          0          3  PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0, eth1\n"
        b" 37:          0          1  IO-APIC  16-fasteoi  \n"
        b"NMI:          0          7   Non-maskable interrupts\n"
        b"ERR:          0\n"
    )
    names = interrupts.interrupt_names(text)
    assert names == {24: "24 ACPI:Ged", 36: "36 virtio2-input.0, eth1", 37: "37"}
    assert set(names.values()) <= {subject for subject, _, _ in interrupts.parse_interrupts(text)}


@given(st.text(max_size=20))
def test_what_is_no_number_is_refused(text: str) -> None:
    try:
        assert str(decimal(text)) == text or text.lstrip("-").startswith("0")
    except FormatError:
        assert not (text.isascii() and text.isdigit())


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_read(text: bytes) -> None:
    refuses_or(lambda: interrupts.interrupt_names(b"  CPU0 CPU1\n" + text))


def test_every_source_is_described() -> None:
    assert {**PER_NAMESPACE, **OF_HOST}.keys() <= SOURCES.keys()
    assert all(SOURCES[name].scope == "namespace" for name in PER_NAMESPACE)
    assert PER_NAMESPACE.keys() >= IN_PARTS


@pytest.mark.parametrize(
    ("source", "name", "kind"),
    [
        ("link_setting", "mtu", "setting"),
        ("link", "carrier_changes", "counter"),
        ("queue", "tx_timeout", "counter"),
        ("qdisc", "drops", "counter"),
        ("qdisc", "memory_usage", "gauge"),
        ("class", "tokens", "gauge"),
        ("interrupt_setting", "numa_node", "setting"),
    ],
)
def test_kinds_of_names(source: str, name: str, kind: str) -> None:
    assert kind_of(Key(0, source, "", name)) == kind


@pytest.mark.root
def test_all_sources_of_all_namespaces_are_read_at_once(namespace: Namespace) -> None:
    found = CounterReader(namespaces=[namespace.inode]).read()
    sources = {key.source for key in (*found.numbers, *found.words) if key.netns == namespace.inode}
    assert {"link", "link_setting", "ethtool", "channels", "features", "driver", "queue"} <= sources
    unread = {each.source for each in found.unread if each.netns == namespace.inode}
    assert not unread & IN_PARTS - {"queue_stats"}  # which Linux has since 6.10
