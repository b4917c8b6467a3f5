# SPDX-License-Identifier: Apache-2.0
"""``rx`` counts data that comes in the SYN (TCP Fast Open), and says of MPTCP that it is not followed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lab.measure import all_discarded, counts, ping, run
from tests.lab.opening import fast_open_listener, mptcp_pair, send_fast_open

if TYPE_CHECKING:
    from hopscope.lab import Lab

pytestmark = pytest.mark.root

_CONNECTIONS = 6


@pytest.mark.parametrize("options", [{}, {"protocol": "tcp"}], ids=["all", "filter on the socket"])
def test_data_in_a_syn_is_read_and_counted(lab: Lab, options: dict[str, str]) -> None:
    with fast_open_listener(lab) as listener, run(lab, **options) as rx:
        for _ in range(_CONNECTIONS):
            send_fast_open(lab, listener, "sendto", [bytes(100), bytes(50)])
        # The second message comes while the data of the SYN still waits.
        for _ in range(_CONNECTIONS):
            send_fast_open(lab, listener, "sendto", [bytes(100), bytes(50)], late=True)
        rx.interval()
        total = rx.total()
    assert counts(total)["rx.tcp_total"] == counts(total)["rx.tcp_read"] == 4 * _CONNECTIONS
    assert all_discarded(total) == {("rx.tcp_queue", "skipped_stage"): 2 * _CONNECTIONS}
    assert counts(total)["rx.tcp_queue"] == 2 * _CONNECTIONS


def test_segments_of_mptcp_are_counted_as_not_followed(lab: Lab) -> None:
    with run(lab) as rx:
        with mptcp_pair(lab) as (sender, receiver):
            ping(sender, receiver, _CONNECTIONS)
        rx.interval()
        total = rx.total()
    assert counts(total)["rx.tcp_total"] == 0
    assert all_discarded(total) == {("rx.tcp_read", "mptcp"): _CONNECTIONS}
