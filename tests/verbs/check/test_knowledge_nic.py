# SPDX-License-Identifier: Apache-2.0
"""Trouble of network cards that no test can provoke: statistics with the names that drivers really give them.

The texts below `ethtool/` are laid out as `ethtool -S` prints them. Their names are those of the drivers' sources
(`drivers/net/…`); the values are made.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hopscope.verbs.check.findings import Check, evaluate
from hopscope.verbs.check.knowledge.all import ENTRIES
from tests.verbs.check.world import Values, readings

FOLDER = Path(__file__).parent / "ethtool"
DRIVERS = sorted(path.stem for path in FOLDER.glob("*.txt"))
# What is received meanwhile: a busy card.
PACKETS = 1_000_000

# Driver, its counter, and what it must be taken for.
SIGNS = (
    ("e1000e", "rx_no_buffer_count", "nic-rx-no-buffer"),
    ("e1000e", "rx_missed_errors", "nic-rx-discards"),
    ("e1000e", "rx_dma_failed", "nic-dma"),
    ("e1000e", "alloc_rx_buff_failed", "nic-rx-alloc"),
    ("e1000e", "tx_timeout_count", "nic-tx-timeout"),
    ("e1000e", "rx_flow_control_xoff", "nic-pause-received"),
    ("e1000e", "tx_flow_control_xoff", "nic-pause-sent"),
    ("e1000e", "rx_csum_offload_errors", "nic-checksum"),
    ("e1000e", "rx_long_length_errors", "nic-rx-length"),
    ("ixgbe", "rx_no_buffer_count", "nic-rx-no-buffer"),
    ("ixgbe", "rx_missed_errors", "nic-rx-discards"),
    ("ixgbe", "rx_no_dma_resources", "nic-dma"),
    ("ixgbe", "alloc_rx_page_failed", "nic-rx-alloc"),
    ("ixgbe", "rx_flow_control_xoff", "nic-pause-received"),
    ("i40e", "port.rx_discards", "nic-rx-discards"),
    ("i40e", "port.rx_crc_errors", "nic-rx-crc"),
    ("i40e", "port.link_xoff_rx", "nic-pause-received"),
    ("i40e", "port.link_xoff_tx", "nic-pause-sent"),
    ("i40e", "port.tx_timeout", "nic-tx-timeout"),
    ("i40e", "port.rx_csum_bad", "nic-checksum"),
    ("ice", "rx_dropped.nic", "nic-rx-discards"),
    ("ice", "rx_crc_errors.nic", "nic-rx-crc"),
    ("ice", "rx_oversize.nic", "nic-rx-length"),
    ("ice", "link_xoff_rx.nic", "nic-pause-received"),
    ("ice", "link_xoff_tx.nic", "nic-pause-sent"),
    ("ice", "tx_timeout.nic", "nic-tx-timeout"),
    ("ice", "rx_csum_bad.nic", "nic-checksum"),
    ("mlx5", "rx_out_of_buffer", "nic-rx-no-buffer"),
    ("mlx5", "rx_discards_phy", "nic-rx-discards"),
    ("mlx5", "rx_crc_errors_phy", "nic-rx-crc"),
    ("mlx5", "rx_oversize_pkts_phy", "nic-rx-length"),
    ("mlx5", "rx_buff_alloc_err", "nic-rx-alloc"),
    ("mlx5", "rx_pause_ctrl_phy", "nic-pause-received"),
    ("mlx5", "tx_pause_ctrl_phy", "nic-pause-sent"),
    ("mlx5", "link_down_events_phy", "nic-carrier"),
    ("mlx5", "module_high_temp", "nic-module"),
    ("mlx5", "rx_pci_signal_integrity", "nic-pci"),
    ("bnxt", "rx_total_ring_discards", "nic-rx-no-buffer"),
    ("bnxt", "rx_total_oom_discards", "nic-rx-alloc"),
    ("bnxt", "rx_fcs_err_frames", "nic-rx-crc"),
    ("bnxt", "rx_ovrsz_frames", "nic-rx-length"),
    ("bnxt", "rx_total_l4_csum_errors", "nic-checksum"),
    ("bnxt", "rx_pause_frames", "nic-pause-received"),
    ("bnxt", "tx_pause_frames", "nic-pause-sent"),
    ("tg3", "rxbds_empty", "nic-rx-no-buffer"),
    ("tg3", "rx_discards", "nic-rx-discards"),
    ("tg3", "rx_fcs_errors", "nic-rx-crc"),
    ("tg3", "rx_xoff_pause_rcvd", "nic-pause-received"),
    ("tg3", "tx_xoff_sent", "nic-pause-sent"),
    ("ena", "rx_drops", "nic-rx-drops"),
    ("ena", "bw_in_allowance_exceeded", "nic-cloud-limit"),
    ("ena", "conntrack_allowance_exceeded", "nic-cloud-limit"),
    ("ena", "queue_1_rx_page_alloc_fail", "nic-rx-alloc"),
    ("ena", "queue_0_rx_skb_alloc_fail", "nic-rx-alloc"),
    ("ena", "queue_0_rx_dma_mapping_err", "nic-dma"),
    ("ena", "queue_1_rx_csum_bad", "nic-checksum"),
    ("ena", "tx_timeout", "nic-tx-timeout"),
    ("virtio_net", "rx_drops", "nic-rx-drops"),
    ("virtio_net", "tx_tx_timeouts", "nic-tx-timeout"),
    ("vmxnet3", "  pkts rx OOB", "nic-rx-no-buffer"),
    ("vmxnet3", "  drv dropped rx total", "nic-rx-drops"),
    ("vmxnet3", "  rx buf alloc fail", "nic-rx-alloc"),
    ("vmxnet3", "tx timeout count", "nic-tx-timeout"),
    ("hv_netvsc", "rx_no_memory", "nic-rx-alloc"),
)


def statistics(driver: str) -> dict[str, int]:
    heading, *lines = (FOLDER / f"{driver}.txt").read_text().splitlines()
    assert heading == "NIC statistics:"
    return {name.removeprefix("     "): int(value) for name, _, value in (line.rpartition(": ") for line in lines)}


def check(driver: str, **moved: int) -> Check:
    """Return the check of a busy card whose counters of trouble stood still, but for these."""
    idle = {name: 0 for name, value in statistics(driver).items() if not value}
    busy = {name: PACKETS for name, value in statistics(driver).items() if value}
    values: Values = {f"ethtool:eth0:{name}": by for name, by in {**idle, **busy, **moved}.items()}
    return evaluate(*readings({**values, "link:eth0:rx_packets": PACKETS, "link:eth0:tx_packets": PACKETS}))


@pytest.mark.parametrize("driver", DRIVERS)
def test_busy_card_that_loses_nothing_is_well(driver: str) -> None:
    result = check(driver)
    assert not result.findings
    assert any(each.well for each in result.checked if each.entry.layer == "nic")


@pytest.mark.parametrize(("driver", "counter", "finding"), SIGNS)
def test_drivers_own_name_is_taken_for_what_it_is(driver: str, counter: str, finding: str) -> None:
    assert counter in statistics(driver) or (driver, counter) == ("ena", "rx_drops")  # of the drivers' newer versions
    (found,) = check(driver, **{counter: 5003}).findings
    assert (found.id, found.subject) == (finding, "eth0")
    assert [(row.key.name, row.before, row.by) for row in found.evidence if row.key.source == "ethtool"] == [
        (counter, 1000, 5003)
    ]


@pytest.mark.slow
def test_every_name_of_a_driver_is_one_that_a_driver_has() -> None:
    """A typo in a name or a pattern would never be seen: no card here has it."""
    known = {driver: statistics(driver) for driver in DRIVERS}
    for ref in {ref for entry in ENTRIES for ref in entry.condition.refs if ref.source == "ethtool"}:
        for name in ref.names:
            assert any((driver, name) in {*_matching(known), *_OTHERS} for driver in DRIVERS), name


# Names of driver versions other than those of the texts.
_OTHERS = {("ena", "rx_drops"), ("ena", "queue_*_rx_bad_csum"), ("i40e", "port.rx_dropped")}


def _matching(known: dict[str, dict[str, int]]) -> set[tuple[str, str]]:
    from fnmatch import fnmatchcase  # noqa: PLC0415

    patterns = {name for entry in ENTRIES for ref in entry.condition.refs for name in ref.names}
    return {
        (driver, pattern)
        for driver, names in known.items()
        for pattern in patterns
        if any(fnmatchcase(name, pattern) for name in names)
    }
