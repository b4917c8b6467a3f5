# SPDX-License-Identifier: Apache-2.0
"""Conditions of findings, as data: what they look at, and what they say of a place."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from hopscope.model.counters.sources import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hopscope.model.counters.readings import Key
    from hopscope.verbs.check.scene import Place, Ref, Scene

Unit: TypeAlias = Literal["count", "per_s", "share", "bytes", "number", "text"]
Merge: TypeAlias = Literal["sum", "max", "min", "share", "first"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """A reading that a finding rests on.

    Attributes
    ----------
    before, now
        Its values; `before` is None for what counts as it is now, such as a setting.
    by, per_s
        How much it counted in between, and how much a second; None for what does not count.
    share
        The part of the whole that the condition compares it with, 0..1; None where it compares with none.
    how
        As :attr:`hopscope.model.counters.deltas.Move.how`; empty where it did not move.
    """

    key: Key
    before: int | None
    now: int | str
    by: int | None = None
    per_s: float | None = None
    share: float | None = None
    how: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of a sentence; `merge` says how those of several places become one; `whole` is what a share is of."""

    value: float | str
    unit: Unit = "count"
    merge: Merge = "sum"
    part: float = 0.0
    whole: float = 0.0


@dataclass(frozen=True, slots=True)
class Hit:
    """What a condition found: the readings that it rests on, and the figures of its sentence."""

    evidence: Sequence[Evidence]
    figures: Mapping[str, Figure]


class Condition(ABC):
    """What is looked at, and when that is a finding."""

    __slots__ = ()

    @property
    def refs(self) -> Sequence[Ref]:
        """Return what it looks at; the first one decides which places there are."""
        return self._refs()

    def places(self, scene: Scene) -> list[Place]:
        """Return where it can be looked at: where the first of its readings is."""
        return scene.places(self.refs[0])

    def missing(self, scene: Scene, place: Place) -> Ref | None:
        """Return the first reading that it cannot do without and that is not there."""
        return next((ref for ref in self.refs if not ref.optional and not scene.keys(ref, place)), None)

    def judge(self, scene: Scene, place: Place) -> Hit | None:
        """Return what was found; None where it looks well."""
        return self._judge(scene, place)

    @abstractmethod
    def _refs(self) -> Sequence[Ref]: ...

    @abstractmethod
    def _judge(self, scene: Scene, place: Place) -> Hit | None: ...


@dataclass(frozen=True, slots=True)
class Rises(Condition):
    """A counter counted at least this much, and at least so much a second."""

    ref: Ref
    at_least: int = 1
    per_s: float = 0.0
    name: str = "by"

    def _refs(self) -> Sequence[Ref]:
        return (self.ref,)

    def _judge(self, scene: Scene, place: Place) -> Hit | None:
        by = scene.by(self.ref, place)
        if by < max(self.at_least, 1) or by / scene.seconds < self.per_s:
            return None
        return Hit(counted(self.ref, scene, place), rising(self.name, by, scene))


@dataclass(frozen=True, slots=True)
class Share(Condition):
    """A counter counted at least this much, and is more than this part of what these counted together."""

    ref: Ref
    of: tuple[Ref, ...]
    above: float
    at_least: int = 1
    name: str = "by"

    def _refs(self) -> Sequence[Ref]:
        return (self.ref, *self.of)

    def _judge(self, scene: Scene, place: Place) -> Hit | None:
        by = scene.by(self.ref, place)
        of = sum(scene.by(each, place) for each in self.of)
        # Some count what is in no other counter, and one that restarted counted more than is seen of it.
        whole = max(of, by)
        if by < max(self.at_least, 1) or by <= self.above * whole:
            return None
        figures = rising(self.name, by, scene) | {
            "share": Figure(by / whole, "share", "share", by, whole),
            "of": Figure(of),
        }
        others = tuple(row for ref in self.of if ref != self.ref for row in counted(ref, scene, place))
        return Hit((*counted(self.ref, scene, place, whole), *others), figures)


@dataclass(frozen=True, slots=True)
class Level(Condition):
    """A gauge or a setting is, now, above or below this."""

    ref: Ref
    above: float | None = None
    below: float | None = None
    name: str = "now"

    def _refs(self) -> Sequence[Ref]:
        return (self.ref,)

    def _judge(self, scene: Scene, place: Place) -> Hit | None:
        value = scene.value(self.ref, place)
        if value is None or (self.above is not None and value <= self.above):
            return None
        if self.below is not None and value >= self.below:
            return None
        return Hit(standing(self.ref, scene, place), {self.name: Figure(value, "count", "max")})


@dataclass(frozen=True, slots=True)
class Fill(Condition):
    """A gauge is, now, more than this part of its limit."""

    ref: Ref
    of: Ref
    above: float
    at_least: int = 1
    name: str = "now"

    def _refs(self) -> Sequence[Ref]:
        return (self.ref, self.of)

    def _judge(self, scene: Scene, place: Place) -> Hit | None:
        value, limit = scene.value(self.ref, place), scene.value(self.of, place)
        if value is None or not limit or limit < 0 or value < self.at_least or value <= self.above * limit:
            return None
        figures = {
            self.name: Figure(value, "count", "max"),
            "limit": Figure(limit, "count", "max"),
            "share": Figure(value / limit, "share", "max"),
        }
        rows = standing(self.ref, scene, place, value / limit)
        return Hit((*rows, *standing(self.of, scene, place)), figures)


@dataclass(frozen=True, slots=True)
class Word(Condition):
    """A setting is, now, none of `well`, or one of `ill`, where one of these is given."""

    ref: Ref
    well: frozenset[str] = frozenset()
    ill: frozenset[str] = frozenset()
    name: str = "now"

    def _refs(self) -> Sequence[Ref]:
        return (self.ref,)

    def _judge(self, scene: Scene, place: Place) -> Hit | None:
        word = scene.word(self.ref, place)
        if word is None or (self.well and word in self.well) or (self.ill and word not in self.ill):
            return None
        return Hit(standing(self.ref, scene, place), {self.name: Figure(word, "text", "first")})


@dataclass(frozen=True, slots=True)
class All(Condition):
    """All of these hold at one place; figures of the first stand before those of the others."""

    conditions: tuple[Condition, ...]

    def _refs(self) -> Sequence[Ref]:
        return tuple(ref for each in self.conditions for ref in each.refs)

    def places(self, scene: Scene) -> list[Place]:
        """Return where the first of them can be looked at."""
        return self.conditions[0].places(scene)

    def missing(self, scene: Scene, place: Place) -> Ref | None:
        """Return what the first of them lacks that lacks something."""
        return next((ref for each in self.conditions if (ref := each.missing(scene, place))), None)

    def _judge(self, scene: Scene, place: Place) -> Hit | None:
        hits: list[Hit] = []
        for each in self.conditions:
            hit = each.judge(scene, place)
            if hit is None:
                return None
            hits.append(hit)
        return together(hits)


@dataclass(frozen=True, slots=True)
class Any(Condition):
    """One of these holds, or several; those that cannot be seen do not hinder the others."""

    conditions: tuple[Condition, ...]

    def _refs(self) -> Sequence[Ref]:
        return tuple(ref for each in self.conditions for ref in each.refs)

    def places(self, scene: Scene) -> list[Place]:
        """Return where any of them can be looked at."""
        return sorted({place for each in self.conditions for place in each.places(scene)})

    def missing(self, scene: Scene, place: Place) -> Ref | None:
        """Return what the first of them lacks, if all lack something."""
        lacking = [each.missing(scene, place) for each in self.conditions]
        return lacking[0] if all(lacking) else None

    def _judge(self, scene: Scene, place: Place) -> Hit | None:
        seen = [each for each in self.conditions if each.missing(scene, place) is None]
        hits = [hit for each in seen if (hit := each.judge(scene, place))]
        return together(hits) if hits else None


@dataclass(frozen=True, slots=True)
class Shown(Condition):
    """A condition whose evidence has rows of its own to show: what moved of these, or where nothing did, what is."""

    condition: Condition
    also: tuple[Ref, ...]

    def _refs(self) -> Sequence[Ref]:
        return (*self.condition.refs, *(replace(ref, optional=True) for ref in self.also))

    def places(self, scene: Scene) -> list[Place]:
        """Return where the condition can be looked at."""
        return self.condition.places(scene)

    def missing(self, scene: Scene, place: Place) -> Ref | None:
        """Return what the condition lacks; the other rows are not needed."""
        return self.condition.missing(scene, place)

    def _judge(self, scene: Scene, place: Place) -> Hit | None:
        hit = self.condition.judge(scene, place)
        if hit is None:
            return None
        rows = [row for ref in self.also for row in counted(ref, scene, place) or _settings(ref, scene, place)]
        return Hit(tuple(dict.fromkeys((*hit.evidence, *rows))), hit.figures)


@dataclass(frozen=True, slots=True)
class Judged(Condition):
    """A function decides, from these readings; `at` says where, if not where the first of them is."""

    looks_at: tuple[Ref, ...]
    by: Callable[[Scene, Place], Hit | None]
    at: Callable[[Scene], list[Place]] | None = None

    def _refs(self) -> Sequence[Ref]:
        return self.looks_at

    def _judge(self, scene: Scene, place: Place) -> Hit | None:
        return self.by(scene, place)

    def places(self, scene: Scene) -> list[Place]:
        """Return where `at` says."""
        return self.at(scene) if self.at else scene.places(self.looks_at[0])

    def missing(self, scene: Scene, place: Place) -> Ref | None:
        """Return the first reading that it needs and that is not there; of other places than its own, not anywhere."""
        if not self.at:
            return Condition.missing(self, scene, place)
        return next((ref for ref in self.looks_at if not ref.optional and not scene.places(ref)), None)


def rising(name: str, by: int, scene: Scene) -> dict[str, Figure]:
    """Return the figures of what counted `by`: that, and under ``NAME_per_s`` (``per_s`` of ``by``) its rate."""
    return {
        name: Figure(by),
        "per_s" if name == "by" else f"{name}_per_s": Figure(by / scene.seconds, "per_s"),
    }


def counted(ref: Ref, scene: Scene, place: Place, whole: float = 0) -> list[Evidence]:
    """Return the rows of what moved, with its share of `whole` if that is given."""
    return [
        Evidence(
            move.key,
            move.before,
            move.now,
            move.by,
            move.by / scene.seconds,
            min(move.by / whole, 1.0) if whole else None,
            move.how,
        )
        for move in scene.moves(ref, place)
    ]


def standing(ref: Ref, scene: Scene, place: Place, share: float | None = None) -> list[Evidence]:
    """Return the rows of what is, now, as it is."""
    return [
        Evidence(key, scene.before.numbers.get(key), scene.now.numbers[key], share=share)
        if key in scene.now.numbers
        else Evidence(key, None, scene.now.words[key])
        for key in scene.keys(ref, place)
    ]


def _settings(ref: Ref, scene: Scene, place: Place) -> list[Evidence]:
    return [row for row in standing(ref, scene, place) if kind_of(row.key) != "counter"]


def together(hits: Sequence[Hit]) -> Hit:
    """Return all that these found, each row once."""
    figures: dict[str, Figure] = {}
    for hit in hits:
        figures = {**hit.figures, **figures}
    return Hit(tuple(dict.fromkeys(row for hit in hits for row in hit.evidence)), figures)
