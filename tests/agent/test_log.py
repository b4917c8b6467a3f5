# SPDX-License-Identifier: Apache-2.0
"""What a listening agent logs cannot be made much, long or harmful."""

from __future__ import annotations

import io

from hopscope.agent.log import Log


def test_lines_beyond_the_limit_are_counted_and_said() -> None:
    out, now_s = io.StringIO(), [0.0]
    log = Log(out, lambda: now_s[0])
    for number in range(100):
        log.say("10.0.0.1:4711", f"stranger {number}")
    assert len(out.getvalue().splitlines()) == 30
    now_s[0] = 10.0
    log.say("", "later")
    assert [line.partition(" UTC ")[2] for line in out.getvalue().splitlines()[29:]] == [
        "10.0.0.1:4711: stranger 29",
        "not shown: 70 more within 10 s",
        "later",
    ]


def test_last_lines_that_were_left_out_are_said_at_the_end() -> None:
    out = io.StringIO()
    log = Log(out, lambda: 0.0)
    for _ in range(31):
        log.say("", "stranger")
    log.close()
    log.close()
    assert out.getvalue().count("not shown: 1 more within") == 1


def test_a_line_is_one_line_printable_and_short() -> None:
    out = io.StringIO()
    Log(out).say("10.0.0.1:4711", "\x1b[2J\n" * 1000)
    (line,) = out.getvalue().splitlines()
    assert line.isprintable()
    assert len(line) < 500
