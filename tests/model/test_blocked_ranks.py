# SPDX-License-Identifier: Apache-2.0
"""Hosts that differ are found, and of hosts that do not, no more than the stated rate."""

from __future__ import annotations

import numpy as np
import pytest

from hopscope.model.blocked_ranks import Durations, block_scores, compare_group, compare_hosts
from hopscope.model.rank_test import benjamini_hochberg

SLOTS = np.arange(60, 160)


def fleet(  # noqa: PLR0913 # what the truth is
    random: np.random.Generator,
    hosts: int,
    blocks: int = 24,
    *,
    slower: int = 0,
    by: float = 4.0,
    spread: float = 0.5,
    similar: float = 0.6,
    samples: int = 2000,
) -> Durations:
    """Return hosts with differences of their own, hours that resemble each other, the day's load, and gaps."""
    day = np.sin(np.arange(blocks) / 24 * 2 * np.pi)
    centre = 100 + 8 * day[None] + random.normal(0, spread, (hosts, 1))
    state = random.normal(0, 1, hosts)
    for block in range(blocks):
        state = similar * state + np.sqrt(1 - similar**2) * random.normal(0, 1, hosts)
        centre[:, block] += 0.5 * state
    centre[:slower] += by
    load = samples * (1 + 0.8 * day)[None] * random.lognormal(0, 0.7, (hosts, 1))
    load[random.random(hosts) < 0.1] *= 0.01
    shapes = np.exp(-0.5 * ((SLOTS - centre[..., None]) / 6) ** 2)
    counts = random.poisson(shapes / shapes.sum(-1, keepdims=True) * load[..., None])
    counts[random.random((hosts, blocks)) < 0.05] = 0
    host, block, slot = np.nonzero(counts)
    return Durations(host, block, SLOTS[slot], counts[host, block, slot], hosts, blocks)


def test_superiority_is_the_share_of_pairs_in_which_the_host_is_slower() -> None:
    random = np.random.default_rng(3)
    values = [random.integers(0, 6, 5) for _ in range(4)]
    host = np.repeat(np.arange(4), 5)
    durations = Durations(host, np.zeros(20, np.int64), np.concatenate(values), np.ones(20, np.int64), 4, 1)
    scores, _ = block_scores(durations)
    for each in range(4):
        rest = np.concatenate([values[other] for other in range(4) if other != each])
        pairs = np.sign(values[each][:, None] - rest[None])
        assert scores[each, 0] == pytest.approx((pairs.mean() + 1) / 2)


def false_findings(rounds: int, hosts: int, rate: float) -> float:
    random = np.random.default_rng(11)
    found = 0
    for _ in range(rounds):
        rates = benjamini_hochberg(compare_hosts(fleet(random, hosts)).probability.tolist())
        found += min(rates) <= rate
    return found / rounds


@pytest.mark.parametrize(
    ("rounds", "hosts"), [(30, 100), *(pytest.param(600, hosts, marks=pytest.mark.slow) for hosts in (100, 300))]
)
def test_of_hosts_that_do_not_differ_one_is_found_no_more_often_than_stated(rounds: int, hosts: int) -> None:
    for rate in (0.05, 0.2):
        error = np.sqrt(rate * (1 - rate) / rounds)
        assert false_findings(rounds, hosts, rate) <= rate + 3 * error


def test_packets_alone_would_make_every_host_differ() -> None:
    # Two hosts of many whose durations differ by 5 %: with millions of samples it is certain, and it is usual.
    found = compare_hosts(fleet(np.random.default_rng(5), 100, samples=100_000))
    assert (np.abs(found.superiority - 0.5) > 0.01).mean() > 0.5
    assert min(benjamini_hochberg(found.probability.tolist())) > 0.01


def test_slower_hosts_are_found_and_no_others() -> None:
    found = compare_hosts(fleet(np.random.default_rng(6), 300, slower=7, by=8.0))
    rates = np.array(benjamini_hochberg(found.probability.tolist()))
    assert np.flatnonzero(rates <= 0.01).tolist() == list(range(7))
    assert (found.superiority[:7] > 0.7).all()


def test_third_of_hosts_that_differ_does_not_hide_itself() -> None:
    found = compare_hosts(fleet(np.random.default_rng(7), 60, slower=18, by=10.0))
    rates = np.array(benjamini_hochberg(found.probability.tolist()))
    assert (rates[:18] <= 0.05).mean() > 0.9
    assert not (rates[18:] <= 0.05).any()


def test_group_is_compared_by_its_hosts() -> None:
    random = np.random.default_rng(8)
    slower = compare_hosts(fleet(random, 100, slower=20, by=3.0)).superiority
    members = np.arange(100) < 20
    superiority, probability = compare_group(slower, members)
    assert superiority > 0.6
    assert probability < 1e-6
    alike = [compare_group(compare_hosts(fleet(random, 60)).superiority, np.arange(60) < 12)[1] for _ in range(60)]
    assert np.mean(np.array(alike) < 0.1) < 0.1 + 3 * np.sqrt(0.09 / 60)


def test_two_hosts_are_not_compared() -> None:
    found = compare_hosts(fleet(np.random.default_rng(9), 2))
    assert np.isnan(found.superiority).all()
    assert (found.probability == 1).all()
