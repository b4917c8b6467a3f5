# SPDX-License-Identifier: Apache-2.0
"""What perf's samples say of calls, and shares beside each other, out of figures made up here."""

from __future__ import annotations

from bench.services import Taken, accounts_table, in_calls

SAMPLES = """\
service1  4711 [001]  12.345678:    1001001 cpu-clock:
\tffffffff81000001 tcp_sendmsg+0x11 ([kernel.kallsyms])
\tffffffff81000002 __sys_sendto+0x12 ([kernel.kallsyms])
\t    7f0000000001 send+0x1 (/lib/libc.so.6)

service1  4711 [001]  12.346679:    1001001 cpu-clock:
\tffffffff81000003 net_rx_action+0x11 ([kernel.kallsyms])
\tffffffff81000004 handle_softirqs+0x11 ([kernel.kallsyms])
\tffffffff81000002 __sys_sendto+0x12 ([kernel.kallsyms])

service1  4711 [001]  12.347680:    1001001 cpu-clock:
\t    7f0000000002 main+0x1 (/usr/bin/python3)
"""


def test_what_a_softirq_does_during_a_call_is_not_the_call_s() -> None:
    assert in_calls(SAMPLES.splitlines()) == {"service1": (1, 3)}


def test_rounds_are_added_up_and_shares_have_the_error_of_sampling() -> None:
    rounds = [{"a": Taken(10_000_000, 40_000_000, 10, 40), "b": Taken(0, 10_000_000, 0, 10)}] * 2
    rows = [line.split() for line in accounts_table(rounds).splitlines()]
    assert rows[1] == ["a", "80.0", "20.0", "25.0%", "80", "25.0%", "±4.8%"]
    assert rows[-1] == ["all", "100.0", "20.0", "20.0%", "100", "20.0%", "±4.0%"]
