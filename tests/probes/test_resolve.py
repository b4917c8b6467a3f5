# SPDX-License-Identifier: Apache-2.0
"""Plans on kernels that do not exist: which way is taken, what a refusal changes, what is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hopscope.errors import UsageError
from hopscope.probes import resolve
from hopscope.probes.catalogue import POINTS, RX
from hopscope.probes.grants import GRANTED, KINDS, AttachSupport
from hopscope.probes.resolve import Plan, Resolver

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hopscope.probes.point import AttachMethod

NO = AttachSupport(granted=False, reason="not here", next_step="go there")
FENTRY, KPROBE, NETFILTER = (way.name for way in POINTS["rx.ip"].ways)


class Kernel(Resolver):
    """A kernel that grants these kinds and has all functions."""

    def __init__(self, kinds: Iterable[str]) -> None:
        self._granted = set(kinds)
        self.judged: list[str] = []

    def judge(self, way: AttachMethod) -> AttachSupport:
        self.judged.append(way.name)
        return GRANTED if way.kind in self._granted else NO


class Types:
    """BTF that has everything but these."""

    def __init__(self, *absent: str) -> None:
        self._absent = absent

    def has_func(self, name: str) -> bool:
        return name not in self._absent

    has_tracepoint = has_func


def plan(*kinds: str, point: str = "rx.ip", **forced: str) -> Plan:
    return Plan(Kernel(kinds), [POINTS[point]], {name.replace("_", ".", 1): way for name, way in forced.items()})


def shown(made: Plan) -> list[tuple[str, str]]:
    return [(row.way, row.status) for row in made.rows()]


@pytest.mark.parametrize(
    ("kinds", "chosen"),
    [
        (KINDS, FENTRY),
        (["kprobe", "netfilter"], KPROBE),
        (["netfilter"], NETFILTER),
    ],
)
def test_the_first_way_that_is_granted_is_taken(kinds: Iterable[str], chosen: str) -> None:
    made = plan(*kinds)
    way = made.chosen(POINTS["rx.ip"])
    assert way is not None
    assert way.name == chosen
    assert shown(made)[-1] == (chosen, "attached")
    assert [status for _, status in shown(made)[:-1]] == ["unavailable"] * (len(shown(made)) - 1)


def test_point_without_a_way_is_shown_with_all_reasons() -> None:
    made = plan()
    assert made.chosen(POINTS["rx.ip"]) is None
    assert shown(made) == [(FENTRY, "unavailable"), (KPROBE, "unavailable"), (NETFILTER, "unavailable")]
    assert {(row.reason, row.next_step) for row in made.rows()} == {("not here", "go there")}
    assert made.programs() == {}


def test_only_what_is_worse_than_the_best_differs() -> None:
    assert plan(*KINDS).rows()[-1].differs == ""
    assert plan("netfilter").rows()[-1].differs == POINTS["rx.ip"].ways[2].differs != ""


def test_refusal_in_the_act_moves_to_the_next_way() -> None:
    made = plan("fentry", "netfilter")
    assert made.programs() == {"rx_ip_fentry": "fentry", "rx_ip6_fentry": "fentry"}
    assert made.refuse("rx_ip6_fentry", AttachSupport(granted=False, reason="verifier"))
    assert made.programs() == {"rx_ip_netfilter": "netfilter"}
    assert next((row.way, row.reason) for row in made.rows()) == (FENTRY, "verifier")
    assert made.refuse("rx_ip_netfilter", NO)
    assert made.programs() == {}


def test_refusal_of_a_program_that_is_not_used_changes_nothing() -> None:
    made = plan("fentry", "netfilter")
    before = made.programs()
    assert not made.refuse("rx_ip_netfilter", NO)
    assert not made.refuse("rx_core", NO)
    assert made.programs() == before


def test_refused_helper_takes_every_way_that_needs_it() -> None:
    points = [POINTS[name] for name in ("rx.tcp", "rx.udp_queue", "rx.core")]
    made = Plan(Kernel(["cgroup_skb", "tp_btf"]), points)
    assert made.programs() == {
        "rx_l4_cgroup": "cgroup_skb",
        "rx_ready": "tp_btf",
        "rx_core": "tp_btf",
    }
    assert made.refuse("rx_l4_cgroup", NO)
    assert made.programs() == {"rx_core": "tp_btf"}


def test_forced_way_is_the_only_one() -> None:
    made = plan(*KINDS, rx_ip=NETFILTER)
    assert shown(made) == [(FENTRY, "not needed"), (KPROBE, "not needed"), (NETFILTER, "attached")]
    assert made.programs() == {"rx_ip_netfilter": "netfilter"}


def test_forced_way_that_is_not_granted_is_not_replaced() -> None:
    made = plan("fentry", rx_ip=KPROBE)
    assert made.chosen(POINTS["rx.ip"]) is None
    assert shown(made) == [(FENTRY, "not needed"), (KPROBE, "unavailable"), (NETFILTER, "not needed")]


@pytest.mark.parametrize(
    ("forced", "said"),
    [
        ({"rx.nope": "x"}, "No probe point is named rx.nope"),
        ({"rx.ip": "x"}, "rx.ip has no attach method x"),
        ({"rx.core": "tp_btf:netif_receive_skb"}, "None of the selected hops uses rx.core"),
    ],
)
def test_force_that_cannot_be_is_a_sentence(forced: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Plan(Kernel(KINDS), [POINTS["rx.ip"]], forced)


def test_each_way_is_judged_once() -> None:
    made = plan("netfilter")
    for _ in range(3):
        made.rows()
        made.programs()
    resolver = made._resolver
    assert isinstance(resolver, Kernel)
    assert sorted(resolver.judged) == sorted([FENTRY, KPROBE, NETFILTER])


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    """Real judgement, of a kernel with all types and kinds; `_kinds` can be set to refuse some."""
    made = Resolver.__new__(Resolver)
    made._btf = Types()  # type: ignore[assignment]
    made._kinds = {}
    monkeypatch.setattr(resolve, "try_kind", lambda _: GRANTED)
    return made


def test_way_is_granted_where_nothing_is_missing(resolver: Resolver) -> None:
    assert all(resolver.judge(way).granted for point in RX for way in point.ways)


@pytest.mark.parametrize(
    ("point", "way", "absent", "reason"),
    [
        ("rx.ip", 0, "ip6_rcv_core", "this kernel's BTF has no function ip6_rcv_core"),
        ("rx.napi", 0, "napi_poll", "this kernel's BTF has no tracepoint napi_poll"),
        ("rx.tcp", 2, "bpf_cast_to_kern_ctx", "this kernel has no kfunc bpf_cast_to_kern_ctx"),
    ],
)
def test_missing_type_is_named(resolver: Resolver, point: str, way: int, absent: str, reason: str) -> None:
    resolver._btf = Types(absent)  # type: ignore[assignment]
    assert resolver.judge(POINTS[point].ways[way]) == AttachSupport(granted=False, reason=reason)


def test_refused_kind_is_passed_on(resolver: Resolver) -> None:
    resolver._kinds["fentry"] = NO
    assert resolver.judge(POINTS["rx.ip"].ways[0]) == NO


def test_refused_kind_of_a_helper_is_passed_on(resolver: Resolver) -> None:
    resolver._kinds["cgroup_skb"] = NO
    way = next(way for way in POINTS["rx.udp_queue"].ways if way.kind == "tp_btf")
    assert resolver.judge(way) == NO


def test_each_kind_is_tried_once(resolver: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def try_kind(kind: str) -> AttachSupport:
        tried.append(kind)
        return GRANTED

    monkeypatch.setattr(resolve, "try_kind", try_kind)
    for _ in range(2):
        for point in POINTS.values():
            for way in point.ways:
                resolver.judge(way)
    assert sorted(tried) == sorted(KINDS)
