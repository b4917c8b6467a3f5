# SPDX-License-Identifier: Apache-2.0
"""The tables agree with each other and with the compiled programs."""

from __future__ import annotations

import pytest

from hopscope.bpf import object_path
from hopscope.bpf.layout import HopRxDiscard, HopRxHop
from hopscope.collectors.rx_hops import HOPS, MEANINGS, Hop
from hopscope.libbpf import BpfObject
from hopscope.probes.catalogue import POINTS, PROGRAM_KINDS, RX, Point, Way
from hopscope.probes.grants import KINDS

WAYS = [pytest.param(way, id=f"{point.name}-{way.name}") for point in RX for way in point.ways]
# What libbpf takes from the name of a program's section.
SECTIONS = {"tp_btf": "tp_btf/", "fentry": "fentry/", "fexit": "fexit/", "kprobe": "kprobe/"}


@pytest.fixture(scope="module")
def sections() -> dict[str, str]:
    """Section of each program of the object."""
    with BpfObject.open(object_path("rx")) as bpf:
        return {program.name: program.section for program in bpf.programs.values()}


def test_catalogue_and_object_have_the_same_programs(sections: dict[str, str]) -> None:
    named = {program for point in RX for way in point.ways for program in (*way.programs, *way.helpers)}
    assert named == sections.keys()


@pytest.mark.parametrize("way", WAYS)
def test_programs_hook_what_their_way_says(way: Way, sections: dict[str, str]) -> None:
    if way.kind in SECTIONS:
        assert [sections[program] for program in way.programs] == [SECTIONS[way.kind] + hook for hook in way.hooks]
    else:
        assert [sections[program].partition("/")[0] for program in way.programs] == [way.kind]


@pytest.mark.parametrize("way", WAYS)
def test_kinds_are_known_and_helpers_are_programs_of_a_way(way: Way) -> None:
    assert way.kind in KINDS
    assert all(PROGRAM_KINDS[program] == way.kind for program in way.programs)
    assert set(way.helpers) <= PROGRAM_KINDS.keys()
    assert not set(way.helpers) & set(way.programs)


@pytest.mark.parametrize("point", RX, ids=lambda point: point.name)
def test_ways_of_a_point_can_be_told_apart(point: Point) -> None:
    names = [way.name for way in point.ways]
    assert len(set(names)) == len(names) > 0
    assert POINTS[point.name] is point
    assert point.marks


def test_kinds_have_a_feature_program_each() -> None:
    with BpfObject.open(object_path("features")) as bpf:
        assert set(bpf.programs) == {f"feature_{kind}" for kind in KINDS}


@pytest.mark.parametrize("hop", HOPS, ids=lambda hop: hop.name)
def test_points_of_a_hop_are_in_the_catalogue(hop: Hop) -> None:
    assert {*hop.starts, hop.ends, *hop.also} <= POINTS.keys()
    assert hop.hop.name == f"HOP_{hop.name.upper().replace('.', '_')}"


def test_every_hop_of_the_kernel_side_is_shown_once() -> None:
    assert sorted(hop.hop for hop in HOPS) == [hop for hop in HopRxHop if hop != HopRxHop.HOP_RX_HOPS]
    assert len({hop.name for hop in HOPS}) == len(HOPS)


def test_every_reason_to_discard_has_a_meaning() -> None:
    assert set(MEANINGS) == set(HopRxDiscard) - {HopRxDiscard.HOP_RX_DISCARDS}
    assert len(set(MEANINGS.values())) == len(MEANINGS)
