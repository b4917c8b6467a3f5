# SPDX-License-Identifier: Apache-2.0
"""What is no condition on events is said in one sentence that names the place, and docs list every field."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopscope.errors import UsageError
from hopscope.model.condition import Comparison, Joined, Not, Time, parse
from hopscope.model.event_fields import FIELDS, OTHERS, Kind, Known, event_condition

KNOWN = Known(["rx.core", "rx.tcp_queue", "e_tcp_tcp_probe"], {"snd_cwnd": Kind.NUMBER})


def test_or_binds_less_than_and_and_both_less_than_not() -> None:
    a, b, c = (Comparison(name, "==", 1) for name in "abc")
    assert parse("a==1 or b=1&&!c==1") == Joined(both=False, left=a, right=Joined(both=True, left=b, right=Not(c)))
    assert parse("not a in (1, 1.5ms)") == Not(
        Joined(both=False, left=a, right=Comparison("a", "==", Time("1.5ms", 1_500_000)))
    )


def test_short_forms_mean_what_the_docs_say() -> None:
    assert event_condition("rx.core > 1us", KNOWN) == event_condition("point == rx.core and hop_ns > 1000ns", KNOWN)
    assert event_condition("port == 53", KNOWN) == event_condition("source_port == 53 or destination_port == 53", KNOWN)
    assert event_condition("port != 53", KNOWN) == event_condition("source_port != 53 && destination_port != 53", KNOWN)
    assert event_condition("protocol == TCP", KNOWN) == event_condition("protocol == 6", KNOWN)
    assert event_condition("skb == 0xffff888193246f00", KNOWN) == Comparison(
        "skb", "==", 0xFFFF888193246F00 - (1 << 64)
    )
    assert event_condition("comm == 'my \"app\"' or comm == 7", KNOWN) == Joined(
        both=False, left=Comparison("comm", "==", 'my "app"'), right=Comparison("comm", "==", "7")
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "'' is not a condition: expected the name of a field at its end"),
        ("port == 1 port == 2", "expected and, or, or the end at 'port == 2'"),
        ("port = = 1", "expected a value at '= 1'"),
        ("port 443", "expected == != < <= > >= & or in at '443'"),
        ("comm == 'x", "expected a closing quote at"),
        ("(port == 1", r"expected \) at its end"),
        ("not " * 99 + "port == 1", "at most 32 parentheses"),
        ("prot == tcp", "Events have no field prot. Did you mean port or protocol"),
        ("xyzzy == 1", "Events have no field xyzzy. The fields are point, time_ns"),
        ("point == rx.kore", "rx.kore is not a probe point. Did you mean rx.core"),
        ("hop > 5", "hop_ns is a time with a unit, such as 1.5ms, and cannot be compared with 5"),
        ("port == https", "source_port is a whole number, and cannot be compared with https"),
        ("len_bytes > 1ms", "len_bytes is a whole number, and cannot be compared with 1ms"),
        ("len_bytes > 99999999999999999999", "is a whole number, and cannot be compared with 99999999999999999999"),
        ("hop > 999999999999999999s", "cannot be compared with 999999999999999999s"),
        ("comm < x", "comm is a name, which < does not compare"),
        ("address == 10.0.0.300", "cannot be compared with 10.0.0.300"),
        ("protocol == sctp", "protocol is tcp, udp or a number, and cannot be compared with sctp"),
        ("snd_cwnd == many", "snd_cwnd is a whole number"),
    ],
)
def test_what_is_no_condition_is_said(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        event_condition(text, KNOWN)


def test_the_docs_list_every_field() -> None:
    page = (Path(__file__).parents[2] / "docs" / "conditions.md").read_text("utf-8")
    assert [line for field in FIELDS if (line := f"| `{field.name}` | {field.meaning} |") not in page] == []
    assert [name for name in OTHERS if f"| `{name}` |" not in page] == []
