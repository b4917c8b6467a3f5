# SPDX-License-Identifier: Apache-2.0
"""Which of the hosts that are recorded have their clocks compared with each other."""

from __future__ import annotations

import pytest

from hopscope.verbs.record.clocks import ends_of


@pytest.mark.parametrize("hosts", range(2, 5))
def test_of_a_few_all_are(hosts: int) -> None:
    assert len(ends_of(hosts)) == hosts * (hosts - 1) / 2


@pytest.mark.parametrize("hosts", [5, 8, 32])
def test_of_many_each_has_the_first_and_two_neighbours(hosts: int) -> None:
    ends = ends_of(hosts)
    assert len(ends) == len(set(ends)) == 2 * (hosts - 1)
    assert all(0 <= first < second < hosts for first, second in ends)
    for host in range(1, hosts):
        assert (0, host) in ends
        assert sum(host in pair for pair in ends) == 3
