# SPDX-License-Identifier: Apache-2.0
"""What daemons that set clocks answer becomes a bound, or none."""

from __future__ import annotations

import pytest

from hopscope.clock.daemons import data_set_bound_ns, tracking, tracking_bound_ns

# As chronyc 4 and pmc of linuxptp 3 print it.
CHRONY = (
    "50484330,PHC0,1,1709727533.139866748,-0.000004315,-0.000003372,0.000002759,1.274,-0.005,0.161,0.000000002,"
    "0.000029493,8.0,Normal\n"
)
PTP4L = """sending: GET CURRENT_DATA_SET
\t90e2ba.fffe.20c7f8-0 seq 0 RESPONSE MANAGEMENT CURRENT_DATA_SET\x20
\t\tstepsRemoved     1
\t\toffsetFromMaster -142.5
\t\tmeanPathDelay    9310.0
"""


def test_chronys_bound_is_offset_and_dispersion_and_half_of_the_delay() -> None:
    assert tracking_bound_ns(CHRONY) == 4_315 + 29_493 + 1
    assert tracking(CHRONY) == "stratum 1 by PHC0, -4,315 ns, RMS 2,759 ns"


def test_ptp4ls_bound_is_offset_and_delay() -> None:
    assert data_set_bound_ns(PTP4L) == 9_453


@pytest.mark.parametrize(
    "answer", ["", "506 Cannot talk to daemon\n", CHRONY[:60], CHRONY.replace("0.000029493", "nan")]
)
def test_what_chrony_does_not_say_is_no_bound(answer: str) -> None:
    assert tracking_bound_ns(answer) is None


@pytest.mark.parametrize(
    "answer", ["", "sending: GET CURRENT_DATA_SET\n", PTP4L[:-26], PTP4L.replace("9310.0", "1.2.3")]
)
def test_what_ptp4l_does_not_say_is_no_bound(answer: str) -> None:
    assert data_set_bound_ns(answer) is None
