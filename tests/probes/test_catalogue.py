# SPDX-License-Identifier: Apache-2.0
"""The tables agree with each other and with the compiled programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hopscope.bpf import object_path
from hopscope.bpf.layout import HopRxDiscard, HopRxHop, HopTxDiscard, HopTxHop
from hopscope.libbpf import BpfObject
from hopscope.probes.attach import NETFILTER_KINDS
from hopscope.probes.catalogue import OBJECTS, POINTS, PROGRAM_KINDS
from hopscope.probes.grants import KINDS
from hopscope.probes.point import RETURN_KINDS
from hopscope.verbs.rx import hops as rx_hops
from hopscope.verbs.rx.nic import POINT as NIC_POINT
from hopscope.verbs.tx import collector as tx_collector
from hopscope.verbs.tx import hops as tx_hops

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from enum import IntEnum

    from hopscope.live.hops import Hop
    from hopscope.probes.point import AttachMethod, Point

WAYS = [pytest.param(way, id=f"{point.name}-{way.name}") for point in POINTS.values() for way in point.ways]
# What libbpf takes from the name of a program's section.
SECTIONS = {"tp_btf": "tp_btf/", "fentry": "fentry/", "fexit": "fexit/", "kprobe": "kprobe/", "kretprobe": "kretprobe/"}


@pytest.fixture(scope="module")
def sections() -> dict[str, str]:
    """Section of each program of the objects."""
    found = {}
    for name in OBJECTS:
        with BpfObject.open(object_path(name)) as bpf:
            found |= {program.name: program.section for program in bpf.programs.values()}
    return found


def test_catalogue_and_objects_have_the_same_programs(sections: dict[str, str]) -> None:
    ways = [way for point in POINTS.values() for way in point.ways]
    named = {program for way in ways for program in way.used}
    assert named == sections.keys()


@pytest.mark.parametrize("way", WAYS)
def test_programs_hook_what_their_way_says(way: AttachMethod, sections: dict[str, str]) -> None:
    if way.kind in SECTIONS:
        assert [sections[program] for program in way.programs] == [SECTIONS[way.kind] + hook for hook in way.hooks]
        after = [SECTIONS[RETURN_KINDS[way.kind]] + hook for hook in way.hooks] if way.returns else []
        assert [sections[program] for program in way.returns] == after
    else:
        section = "netfilter" if way.kind in NETFILTER_KINDS else way.kind
        assert {sections[program].partition("/")[0] for program in (*way.programs, *way.returns)} == {section}


@pytest.mark.parametrize("name", [name for name in POINTS if name.startswith("cpu.")])
def test_no_beginning_is_attached_before_its_end(name: str) -> None:
    for way in POINTS[name].ways:
        order = {program: place for place, program in enumerate(way.used)}
        for beginning, end in (("entry", "exit"), ("enter", "exit"), ("fentry", "fexit"), ("kprobe", "kretprobe")):
            for program in [each for each in order if each.endswith(f"_{beginning}")]:
                assert order[program.removesuffix(beginning) + end] < order[program], way.name


@pytest.mark.parametrize("way", WAYS)
def test_kinds_are_known_and_helpers_are_programs_of_a_way(way: AttachMethod) -> None:
    assert way.kind in {*KINDS, *NETFILTER_KINDS}
    assert all(PROGRAM_KINDS[program] == way.kind for program in way.programs)
    assert set(way.helpers) <= PROGRAM_KINDS.keys()
    assert not set(way.helpers) & set(way.programs)


@pytest.mark.parametrize("point", POINTS.values(), ids=lambda point: point.name)
def test_ways_of_a_point_can_be_told_apart(point: Point) -> None:
    names = [way.name for way in point.ways]
    assert len(set(names)) == len(names) > 0
    assert POINTS[point.name] is point
    assert point.marks


@pytest.mark.parametrize("name", tx_collector.STAMPED_ONLY)
def test_without_stamps_it_is_said_that_there_are_none(name: str) -> None:
    # What else such a program needs came with them, but is refused with a number instead of a reason.
    assert all(each.kfuncs for each in POINTS[name].ways)


def test_kinds_have_a_feature_program_each() -> None:
    with BpfObject.open(object_path("features")) as bpf:
        assert set(bpf.programs) == {f"feature_{kind}" for kind in KINDS}


@pytest.mark.parametrize("hop", [*rx_hops.HOPS, *tx_hops.HOPS], ids=lambda hop: hop.name)
def test_points_of_a_hop_are_in_the_catalogue(hop: Hop) -> None:
    assert {*hop.starts, hop.ends, *hop.also} <= {*POINTS, NIC_POINT}


@pytest.mark.parametrize(("table", "numbers"), [(rx_hops.HOPS, HopRxHop), (tx_hops.HOPS, HopTxHop)])
def test_every_hop_of_the_kernel_side_is_shown_once_and_bears_its_name(
    table: Sequence[Hop], numbers: type[IntEnum]
) -> None:
    known = {number.name: number for number in numbers if not number.name.endswith("_HOPS")}
    assert {f"HOP_{hop.name.upper().replace('.', '_')}": hop.hop for hop in table} == known
    assert len(table) == len(known)


@pytest.mark.parametrize(("meanings", "reasons"), [(rx_hops.MEANINGS, HopRxDiscard), (tx_hops.MEANINGS, HopTxDiscard)])
def test_every_reason_to_discard_has_a_meaning(meanings: Mapping[IntEnum, str], reasons: type[IntEnum]) -> None:
    assert set(meanings) == {reason for reason in reasons if not reason.name.endswith("_DISCARDS")}
    assert len(set(meanings.values())) == len(meanings)
