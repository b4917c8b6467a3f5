# SPDX-License-Identifier: Apache-2.0
"""Try every way of every probe point for real: load its programs, attach them, and take them away again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.bpf import object_path
from hopscope.errors import KernelError, LoadError
from hopscope.libbpf import BpfObject
from hopscope.model.snapshot import MethodStatus, PointStatus
from hopscope.probes.attach import attach, prepare
from hopscope.probes.catalogue import OBJECTS, POINTS, PROGRAM_KINDS, PROGRAM_OBJECTS
from hopscope.probes.grants import GRANTED, AttachSupport, lacks_socket_storage, refusal
from hopscope.probes.resolve import Resolver
from hopscope.progress import doing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hopscope.probes.point import AttachMethod, Point


def try_everything() -> list[PointStatus]:
    """Return what each point's ways came to on this kernel.

    Raises
    ------
    KernelError
        The kernel has no BTF, or the programs are not built.
    """
    resolver = Resolver()
    for name in OBJECTS:
        object_path(name)  # or each way would say that it is missing
    tried: dict[tuple[str, ...], AttachSupport] = {}
    found = []
    for number, point in enumerate(POINTS.values()):
        doing("trying probe points", number, len(POINTS))
        found.append(_try_point(resolver, point, tried))
    return found


def _try_point(resolver: Resolver, point: Point, tried: dict[tuple[str, ...], AttachSupport]) -> PointStatus:
    verdicts = [_try_way(resolver, way, tried) for way in point.ways]
    chosen = next((way.name for way, verdict in zip(point.ways, verdicts, strict=True) if verdict.granted), None)
    ways = [
        MethodStatus(way.name, verdict.granted, way.name == chosen, verdict.reason, verdict.next_step, way.differs)
        for way, verdict in zip(point.ways, verdicts, strict=True)
    ]
    return PointStatus(point.name, point.marks, chosen, ways)


def _try_way(resolver: Resolver, way: AttachMethod, tried: dict[tuple[str, ...], AttachSupport]) -> AttachSupport:
    """Try a way; what the same programs came to at another point is known."""
    verdict = resolver.judge(way)
    if not verdict.granted:
        return verdict
    if way.programs not in tried:
        # As a run loads them: without time stamps it traces, and reads nothing that came to the kernel with them.
        stamped = resolver.judge(POINTS["tx.tcp"].ways[0]).granted
        tried[way.programs] = _try_programs(way, {"rx": {"cfg_socket_storage": 1}, "tx": {"cfg_stamped": int(stamped)}})
    return tried[way.programs]


def _try_programs(way: AttachMethod, constants: Mapping[str, Mapping[str, int]]) -> AttachSupport:
    try:
        _load_and_attach(way, constants)
    except KernelError as error:
        if constants["rx"]["cfg_socket_storage"] and isinstance(error, LoadError) and lacks_socket_storage(error):
            return _try_programs(way, {**constants, "rx": {"cfg_socket_storage": 0}})
        return refusal(error)
    return GRANTED


def _load_and_attach(way: AttachMethod, constants: Mapping[str, Mapping[str, int]]) -> None:
    name = PROGRAM_OBJECTS[way.programs[0]]
    own = (*way.programs, *way.returns)
    with BpfObject.open(object_path(name)) as bpf:
        for program in bpf.programs.values():
            program.autoload = program.name in own
        for program_name in own:
            prepare(bpf.programs[program_name], PROGRAM_KINDS[program_name])
        for constant, value in constants.get(name, {}).items():
            bpf.set_const(constant, value)
        bpf.load()
        for program_name in own:
            attach(bpf.programs[program_name], PROGRAM_KINDS[program_name])
