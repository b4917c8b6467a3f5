# SPDX-License-Identifier: Apache-2.0
"""From the catalogue to a plan: which way is used for each probe point on this kernel, and why not a better one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.errors import UsageError
from hopscope.libbpf import Btf
from hopscope.model.snapshot import PlanRow
from hopscope.probes.attach import NETFILTER_KINDS
from hopscope.probes.catalogue import POINTS, PROGRAM_KINDS
from hopscope.probes.grants import GRANTED, AttachSupport, try_kind
from hopscope.probes.point import LIBRARY_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hopscope.probes.point import AttachMethod, Point


class Resolver:
    """Judges ways on the running kernel; each kind of attachment is tried once."""

    def __init__(self) -> None:
        self._btf = Btf.kernel()
        self._kinds: dict[str, AttachSupport] = {}

    def judge(self, way: AttachMethod) -> AttachSupport:
        """Say whether a way should work: the kernel has what it hooks, and grants its kind and that of its helpers.

        Raises
        ------
        KernelError
            The programs are not built.
        """
        missing = [hook for hook in way.hooks if not self._has(way.kind, hook)]
        if missing:
            what = "tracepoint" if way.kind == "tp_btf" else "function"
            return AttachSupport(granted=False, reason=f"this kernel's BTF has no {what} {', '.join(missing)}")
        absent = [kfunc for kfunc in way.kfuncs if not self._btf.has_func(kfunc)]
        if absent:
            return AttachSupport(granted=False, reason=f"this kernel has no kfunc {', '.join(absent)}")
        verdicts = [self._judge_kind(PROGRAM_KINDS[program]) for program in way.used]
        return next((verdict for verdict in verdicts if not verdict.granted), GRANTED)

    def _judge_kind(self, kind: str) -> AttachSupport:
        kind = "netfilter" if kind in NETFILTER_KINDS else "uprobe" if kind in LIBRARY_KINDS else kind
        if kind not in self._kinds:
            self._kinds[kind] = try_kind(kind)
        return self._kinds[kind]

    def _has(self, kind: str, hook: str) -> bool:
        if kind == "tp_btf":
            return self._btf.has_tracepoint(hook)
        if kind in {"cgroup_skb", "sockops", "iter", "perf_event"} | NETFILTER_KINDS | LIBRARY_KINDS:
            return True
        return self._btf.has_func(hook)


class Plan:
    """The way that is used for each point. A refusal in the act moves a point to its next way.

    Parameters
    ----------
    resolver
        Judges the ways.
    points
        The points that are wanted.
    forced
        Point name → way name, for the points at which only one way may be used.

    Raises
    ------
    UsageError
        `forced` names a point or a way that the catalogue does not have, or a point that is not wanted.
    """

    def __init__(self, resolver: Resolver, points: Iterable[Point], forced: Mapping[str, str] | None = None) -> None:
        self.points = list(points)
        self.forced = dict(forced or {})
        self._verdicts: dict[tuple[str, str], AttachSupport] = {}
        # Until a refusal, as both are asked for at each interval.
        self._chosen: dict[str, AttachMethod | None] = {}
        self._rows: list[PlanRow] | None = None
        self._resolver = resolver
        for name, way in self.forced.items():
            _check_forced(name, way, wanted=[point.name for point in self.points])

    def chosen(self, point: Point) -> AttachMethod | None:
        """Return the first way that is granted, or the forced one if it is."""
        if point.name not in self._chosen:
            granted = (way for way in point.ways if self._allowed(point, way) and self.verdict(point, way).granted)
            self._chosen[point.name] = next(granted, None)
        return self._chosen[point.name]

    def verdict(self, point: Point, way: AttachMethod) -> AttachSupport:
        """Return the judgement of a way, or the refusal that it met."""
        key = (point.name, way.name)
        if key not in self._verdicts:
            self._verdicts[key] = self._resolver.judge(way)
        return self._verdicts[key]

    def refuse(self, program: str, verdict: AttachSupport) -> bool:
        """Take note that the kernel refused a program; False if no chosen way uses it."""
        hit = False
        for point in self.points:
            way = self.chosen(point)
            if way and program in way.used:
                self._verdicts[point.name, way.name] = verdict
                del self._chosen[point.name]
                self._rows = None
                hit = True
        return hit

    def programs(self) -> dict[str, str]:
        """Return program name → kind of all programs that the chosen ways need."""
        used = [way for point in self.points if (way := self.chosen(point))]
        return {program: PROGRAM_KINDS[program] for way in used for program in way.used}

    def rows(self) -> list[PlanRow]:
        """Return the plan as shown: for each point the chosen way, and the better ones with their reasons."""
        if self._rows is None:
            self._rows = [row for point in self.points for row in self._point_rows(point)]
        return list(self._rows)

    def _point_rows(self, point: Point) -> list[PlanRow]:
        rows = []
        chosen = self.chosen(point)
        for way in point.ways:
            if not self._allowed(point, way):
                rows.append(PlanRow(point.name, way.name, "not needed", reason="another way is forced"))
            elif way is chosen:
                differs = way.differs if way is not point.ways[0] else ""
                rows.append(PlanRow(point.name, way.name, "attached", differs=differs))
                break
            else:
                verdict = self.verdict(point, way)
                rows.append(
                    PlanRow(point.name, way.name, "unavailable", reason=verdict.reason, next_step=verdict.next_step)
                )
        return rows

    def _allowed(self, point: Point, way: AttachMethod) -> bool:
        return self.forced.get(point.name, way.name) == way.name


def _check_forced(name: str, way: str, wanted: Iterable[str]) -> None:
    if name not in POINTS:
        raise UsageError(f"No probe point is named {name}", f"The points are {', '.join(POINTS)}")
    names = [each.name for each in POINTS[name].ways]
    if way not in names:
        raise UsageError(f"{name} has no attach method {way}", f"Its methods are {', '.join(names)}")
    if name not in wanted:
        raise UsageError(f"None of the selected hops uses {name}", "Leave out this --attach, or select more hops")
