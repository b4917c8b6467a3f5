# SPDX-License-Identifier: Apache-2.0
"""Questions of a made fleet find what was planted in it, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bench.made_fleet import DROPPING, FIRST_HOUR, SLOW_FACT
from hopscope.model.histogram import thresholds_ns
from hopscope.store.fleet.fleet import Fleet, text_of_minute
from hopscope.verbs.fleet.began import began
from hopscope.verbs.fleet.common import common
from hopscope.verbs.fleet.differs import differs
from hopscope.verbs.fleet.drops import drops
from hopscope.verbs.fleet.hosts import hosts
from hopscope.verbs.fleet.objective import objective

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.made_fleet import Planted
    from hopscope.model.report import Report


@pytest.fixture(scope="module")
def fleet(planted: tuple[Path, Planted]) -> Iterator[Fleet]:
    with Fleet(planted[0]) as opened:
        yield opened


@pytest.fixture(scope="module")
def truth(planted: tuple[Path, Planted]) -> Planted:
    return planted[1]


def rows(report: Report) -> list[dict[str, Any]]:
    return list(report.named_rows())


def test_hosts_that_are_slower_are_found_and_no_others(fleet: Fleet, truth: Planted) -> None:
    found = rows(differs(fleet))
    assert {(row["group"], row["hop"]) for row in found} - {(truth.late, truth.hop)} == {
        (host, truth.hop) for host in truth.slow
    }
    deltas = [row["delta"] for row in found]
    assert deltas == sorted(deltas, reverse=True)
    # Six slots of eight to a doubling, and the hosts' own differences.
    assert all(1.4 < row["ratio"] < 2.1 for row in found if row["group"] != truth.late)
    assert all(row["hours"] <= 24 and row["hosts"] == 1 for row in found)


def test_no_rack_kernel_or_driver_is_slower(fleet: Fleet) -> None:
    for by in ("rack", "role", "kernel", "driver"):
        report = differs(fleet, by=by)
        assert not len(report)
        assert f"no {by} differs" in report.notes[0]


def test_what_slow_hosts_have_in_common_is_found_and_nothing_else(fleet: Fleet, truth: Planted) -> None:
    found = rows(common(fleet, hosts=truth.slow))
    assert [(row["fact"], row["value"], row["these"], row["of_these"]) for row in found] == [(SLOW_FACT, "off", 5, 5)]
    assert found[0]["others"] <= 3
    assert not len(common(fleet, hosts=["host-00001", "host-00002", "host-00003"]))


def test_change_is_found_at_its_minute(fleet: Fleet, truth: Planted) -> None:
    (found,) = rows(began(fleet, hosts=[truth.late], hop=truth.hop))
    assert found["earliest"] <= text_of_minute(truth.began) <= found["latest"]
    within = [np.datetime64(str(found[name]).replace(" ", "T")) for name in ("earliest", "latest")]
    assert within[1] - within[0] <= np.timedelta64(10, "m")
    assert found["after_median_ns"] > 1.3 * found["before_median_ns"]


def test_host_that_was_slow_all_the_time_has_no_change(fleet: Fleet, truth: Planted) -> None:
    assert len(began(fleet, hosts=truth.slow, hop=truth.hop)) <= 1


def test_driver_that_drops_is_first_by_far(fleet: Fleet) -> None:
    found = rows(drops(fleet, by="driver"))
    assert [row["group"] for row in found[:2]] == [DROPPING] * 2
    assert all(20 < row["ratio"] < 28 for row in found[:2])  # 12 a minute, and 0.5
    assert found[0]["per_s"] == pytest.approx(12 / 60 / 2, rel=0.05)
    assert all(row["ratio"] < 1 for row in found[2:])


def test_rates_are_over_the_time_that_was_measured(fleet: Fleet) -> None:
    absent = {row["host"] for row in rows(hosts(fleet)) if row["absent"] or row["minutes"] < 1440}
    assert absent
    for row in rows(drops(fleet)):
        ((minutes, dropped),) = fleet.rows(
            f"SELECT (SELECT count(*) FROM minutes WHERE host = '{row['group']}'), sum(count) FROM drops"
            f" WHERE host = '{row['group']}' AND reason = '{row['reason']}'"
        )
        assert row["per_s"] == pytest.approx(float(dropped) / minutes / 60, rel=1e-4)
        assert row["coverage"] == pytest.approx(minutes / 1440, rel=1e-4)


def test_hosts_says_what_was_measured_and_what_was_not(fleet: Fleet) -> None:
    found = rows(hosts(fleet))
    minutes = dict(fleet.rows("SELECT boot, count(DISTINCT minute) FROM minutes GROUP BY boot"))
    assert {row["boot"]: row["minutes"] for row in found} == minutes
    rebooted = [row for row in found if row["boot"].endswith("-1")]
    assert [row["absent"] for row in rebooted] == [6]  # it was away for six minutes
    assert {row["kernel"] for row in found} == {"6.12.63", "6.18.44"}
    assert sum(row["count"] for row in found) == fleet.rows("SELECT sum(list_sum(counts)) FROM hop_minutes")[0][0]


def test_share_above_a_limit_has_exact_bounds(fleet: Fleet, truth: Planted) -> None:
    dense = np.zeros(258, np.int64)
    for slot, count in fleet.rows(
        "SELECT slot, CAST(sum(n) AS BIGINT) FROM (SELECT unnest(slots) AS slot, unnest(counts) AS n FROM hop_minutes"
        f" WHERE hop = '{truth.hop}') GROUP BY slot"
    ):
        dense[slot] = count
    slot = int(np.searchsorted(np.cumsum(dense), dense.sum() * 0.9))
    bound = thresholds_ns()[slot]
    exact, inside = (
        rows(objective(fleet, hop=truth.hop, limit_ns=limit, target=99))[0] for limit in (bound, bound - 1)
    )
    assert exact["above_least"] == exact["above_most"] == dense[slot + 1 :].sum()
    assert inside["above_least"] == dense[slot + 1 :].sum()
    assert inside["above_most"] == dense[slot:].sum()
    assert exact["budget_most"] == pytest.approx(exact["share_most"] / 0.01, rel=0.01)
    by_role = rows(objective(fleet, hop=truth.hop, limit_ns=bound, by="role"))
    assert sum(row["above_most"] for row in by_role[1:]) == exact["above_most"]
    assert sum(row["hosts"] for row in by_role[1:]) == 60


def test_part_of_the_time_is_what_is_asked_for(planted: tuple[Path, Planted]) -> None:
    with Fleet(planted[0], from_hour=FIRST_HOUR + 3, until_hour=FIRST_HOUR + 5) as part:
        assert part.rows("SELECT min(hour), max(hour) FROM hop_hours") == [(FIRST_HOUR + 3, FIRST_HOUR + 4)]
        assert {row["minutes"] for row in rows(hosts(part))} <= {60, 114, 120}
