# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hopscope.errors import UsageError
from hopscope.store.schema import EVENT_TABLES
from hopscope.store.trace import Trace
from hopscope.trace.relation import build
from hopscope.trace.selection import Selection
from hopscope.verbs.report.drops import drop_reasons
from hopscope.verbs.report.events import event_report
from hopscope.verbs.report.flows import flows

RECORDINGS = Path(__file__).parents[1] / "recordings"

REQUEST, REPLY, QUERY = (
    "10.0.0.1:40000 > 10.0.0.2:80",
    "10.0.0.2:80 > 10.0.0.1:40000",
    "[fd00::1]:5353 > [fd00::2]:53",
)


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ({}, {REQUEST, REPLY, QUERY}),
        ({"ports": [53]}, {QUERY}),
        ({"ports": [53, 80]}, {REQUEST, REPLY, QUERY}),
        ({"addresses": ["10.0.0.0/24"]}, {REQUEST, REPLY}),
        ({"addresses": ["fd00:0::2"]}, {QUERY}),
        ({"addresses": ["192.0.2.0/24"]}, set()),
        ({"flows": ["10.0.0.1:40000>10.0.0.2:80"]}, {REQUEST}),
        ({"flows": ["10.0.0.1:40000 > 10.0.0.2:80"]}, {REQUEST}),
        ({"flows": ["10.0.0.1:40000=10.0.0.2:80"]}, {REQUEST, REPLY}),
        ({"flows": [QUERY]}, {QUERY}),
        ({"processes": ["nginx"]}, {REQUEST, REPLY}),
        ({"processes": ["16"]}, {QUERY}),
        ({"processes": ["nginx"], "ports": [53]}, set()),
        ({"protocol": "udp"}, {QUERY}),
        ({"protocol": "tcp", "ports": [53]}, set()),
        ({"interfaces": ["eth1"]}, {QUERY}),
        ({"from_s": 3e-6}, {REPLY}),
        ({"from_s": 2e-6, "until_s": 3e-6}, {QUERY}),
    ],
)
def test_what_is_chosen_is_what_is_found(chosen: dict[str, Any], names: set[str], trace: Trace) -> None:
    assert set(flows(trace, Selection(**chosen)).column("flow_name")) == names


def test_flow_is_chosen_by_its_number(trace: Trace) -> None:
    build(trace, "flow_names")
    ((number,),) = trace.rows(f"SELECT flow FROM flow_names WHERE name = '{QUERY}'")
    assert flows(trace, Selection(flows=[str(number)])).column("flow_name") == [QUERY]


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        ({"flows": ["web"]}, "--flow web is not a flow"),
        ({"flows": ["10.0.0.1>10.0.0.2:80"]}, "10.0.0.1 is not an endpoint of a flow"),
        ({"flows": ["a:1>b:2"]}, "a is not an IP address"),
        ({"flows": ["9" * 30]}, "--flow 9+ is not a flow"),
        ({"flows": ["1.2.3.4:\u0663>1.2.3.4:5"]}, "is not an endpoint of a flow"),
        ({"addresses": ["host"]}, "--address host is not an IP address"),
        ({"addresses": ["1.2.3.4/99"]}, "--address 1.2.3.4/99 is not an IP address"),
        ({"interfaces": ["\udcff"]}, "is not text in UTF-8"),
        ({"processes": ["\udcff"]}, "is not text in UTF-8"),
        ({"processes": ["9" * 30]}, "has no process 9+"),
        ({"processes": ["apache"]}, "has no process apache"),
        ({"interfaces": ["wlan0"]}, "no packets at interface wlan0. The recorded interfaces are eth0, eth1"),
        ({"namespaces": ["blue"]}, "no packets in the network namespace blue. The recorded namespaces are "),
    ],
)
def test_what_cannot_be_chosen_is_said(chosen: dict[str, Any], sentence: str, trace: Trace) -> None:
    with pytest.raises(UsageError, match=sentence):
        flows(trace, Selection(**chosen))


def test_selection_is_true_when_it_leaves_something_out() -> None:
    assert not Selection()
    assert Selection(ports=[1])
    assert Selection(until_s=0.0)


@pytest.mark.parametrize("named", ["8153 (hopscope-netns)", "8153", "4026532246"])
def test_a_namespace_has_the_events_of_its_packets_and_sockets(named: str) -> None:
    with Trace(RECORDINGS / "drops") as trace:
        found = event_report(trace, Selection(namespaces=[named]))
        tables = " UNION ALL ".join(f"SELECT netns FROM {table} WHERE netns = 4026532246" for table in EVENT_TABLES)
        ((expected,),) = trace.rows(f"SELECT count(*) FROM ({tables}) events")
        assert len([*found.rows()]) == expected > 0
        lost = [len([*drop_reasons(trace, Selection(namespaces=each)).rows()]) for each in ([named], [])]
        assert lost == [0, 3]  # all were at the other end
