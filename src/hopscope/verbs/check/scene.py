# SPDX-License-Identifier: Apache-2.0
"""Two readings beside each other, looked up by what a finding is about rather than by single keys."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from hopscope.model.counters.deltas import Move, moves, seconds_between
from hopscope.model.counters.readings import HOST, Key
from hopscope.model.counters.sources import SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hopscope.model.counters.readings import Readings

# Sources whose readings are of a whole namespace or host unless a reference says of which subject.
_WHOLE: Final = frozenset({"snmp", "snmp6", "netstat", "sockstat", "memory", "clock", "sysctl"})

SAME: Final = "{subject}"
DEVICE: Final = "{device}"

_NOT_A_TIME: Final = 1e-9


class Place(NamedTuple):
    """Where a finding may be: a namespace (or the host), and of several subjects in it one; empty where all count."""

    netns: int
    subject: str

    @property
    def device(self) -> str:
        """The interface that a subject such as ``eth0 fq_codel 8001:`` begins with."""
        return self.subject.partition(" ")[0]


@dataclass(frozen=True, slots=True)
class Ref:
    """A reading that a condition looks at.

    Attributes
    ----------
    source
        One of :data:`hopscope.model.counters.sources.SOURCES`.
    names
        Its name; where drivers or kernels call it differently, several, of which the first that is there counts.
        ``*`` stands for any characters (for names that drivers choose); all that match are added up.
    subjects
        Which subjects: that of the place (:data:`SAME`), the interface that it begins with (:data:`DEVICE`, and what
        follows it as a pattern), or a pattern; those that match are added up.
    only, but
        Patterns: of the subjects of :data:`SAME`, those that match one of `only` and none of `but`.
    optional
        Whether a condition can do without.
    since
        The kernel, driver or module that has it, where not every one does: for the reason that it is not seen.
    """

    source: str
    names: tuple[str, ...]
    subjects: str = SAME
    only: tuple[str, ...] = ("*",)
    but: tuple[str, ...] = ()
    optional: bool = False
    since: str = ""

    @property
    def name(self) -> str:
        """What it is called where one name has to do."""
        return self.names[0]


class Index:
    """Which readings there are, looked up by what a finding is about.

    Parameters
    ----------
    readings
        Whose keys and namespaces these are; their values do not matter.
    """

    def __init__(self, readings: Readings) -> None:
        self._readings = [*readings.numbers, *readings.words]
        self._namespaces = dict(readings.namespaces)
        self._places: dict[Ref, Sequence[Place]] = {}
        self._found: dict[tuple[Ref, Place], Sequence[Key]] = {}

    def fits(self, readings: Readings) -> bool:
        """Whether these are of the same keys, in the same order, and of the same namespaces."""
        return self._readings == [*readings.numbers, *readings.words] and self._namespaces == readings.namespaces

    def places(self, ref: Ref) -> Sequence[Place]:
        """Return where this can be read, in order."""
        if ref not in self._places:
            keys = (key for name in self._names(ref) for key in self._by_name[ref.source, name])
            found = {
                Place(key.netns, self._subject_of(key.subject, ref)) for key in keys if self._may_be(key.subject, ref)
            }
            self._places[ref] = sorted(found)
        return self._places[ref]

    def keys(self, ref: Ref, place: Place) -> Sequence[Key]:
        """Return the keys that `ref` stands for at `place`: none where it is not there."""
        if (ref, place) not in self._found:
            self._found[ref, place] = self._find(ref, place)
        return self._found[ref, place]

    def _find(self, ref: Ref, place: Place) -> Sequence[Key]:
        for netns in self._namespaces_for(ref, place):
            for pattern in ref.names:
                names = self._matching(ref.source, pattern)
                found = [
                    key
                    for name in names
                    for key in self._at.get((netns, ref.source, name), ())
                    if self._is_subject(key.subject, ref, place)
                ]
                if found:
                    return sorted(found)
        return ()

    def _namespaces_for(self, ref: Ref, place: Place) -> Iterator[int]:
        if SOURCES[ref.source].scope == "host":
            yield HOST
            return
        if place.netns != HOST:
            yield place.netns
        if ref.source == "sysctl":  # some are of the host alone
            yield HOST
        if place.netns == HOST or ref.source == "sysctl":  # what all namespaces share and each of them shows
            yield from sorted(self._namespaces, key=lambda inode: self._namespaces[inode] != "host")[:1]

    @staticmethod
    def _subject_of(subject: str, ref: Ref) -> str:
        if ref.subjects.startswith(DEVICE):
            return Place(0, subject).device
        return subject if ref.subjects == SAME and ref.source not in _WHOLE else ""

    @staticmethod
    def _may_be(subject: str, ref: Ref) -> bool:
        if ref.subjects.startswith(DEVICE):
            return fnmatchcase(subject[len(Place(0, subject).device) :], ref.subjects[len(DEVICE) :])
        if ref.subjects != SAME:
            return fnmatchcase(subject, ref.subjects)
        if ref.source in _WHOLE:
            return not subject
        return any(fnmatchcase(subject, each) for each in ref.only) and not any(
            fnmatchcase(subject, each) for each in ref.but
        )

    @staticmethod
    def _is_subject(subject: str, ref: Ref, place: Place) -> bool:
        if ref.subjects == SAME:
            return subject == ("" if ref.source in _WHOLE else place.subject)
        if ref.subjects.startswith(DEVICE):  # names of interfaces may have characters that patterns do
            device, rest = place.device, ref.subjects[len(DEVICE) :]
            return subject.startswith(device) and fnmatchcase(subject[len(device) :], rest)
        return fnmatchcase(subject, ref.subjects)

    def _names(self, ref: Ref) -> Iterator[str]:
        for pattern in ref.names:
            yield from self._matching(ref.source, pattern)

    def _matching(self, source: str, pattern: str) -> Sequence[str]:
        if "*" not in pattern:
            return (pattern,) if (source, pattern) in self._by_name else ()
        return [name for name in self._names_of.get(source, ()) if fnmatchcase(name, pattern)]

    @cached_property
    def _by_name(self) -> dict[tuple[str, str], list[Key]]:
        found: dict[tuple[str, str], list[Key]] = {}
        for key in self._readings:
            found.setdefault((key.source, key.name), []).append(key)
        return found

    @cached_property
    def _at(self) -> dict[tuple[int, str, str], list[Key]]:
        found: dict[tuple[int, str, str], list[Key]] = {}
        for keys in self._by_name.values():
            for key in keys:
                found.setdefault((key.netns, key.source, key.name), []).append(key)
        return found

    @cached_property
    def _names_of(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for source, name in sorted(self._by_name):
            found.setdefault(source, []).append(name)
        return found


class Scene:
    """Two readings, and what lies between them.

    Parameters
    ----------
    before, now
        The earlier and the later reading.
    index
        Of the later one, if there is one already.
    """

    def __init__(self, before: Readings, now: Readings, index: Index | None = None) -> None:
        self.before = before
        self.now = now
        self.seconds = max(seconds_between(before, now), _NOT_A_TIME)
        self._moves = {move.key: move for move in moves(before, now)}
        self._index = index or Index(now)

    def places(self, ref: Ref) -> list[Place]:
        """Return where this can be read, in order."""
        return list(self._index.places(ref))

    def keys(self, ref: Ref, place: Place) -> Sequence[Key]:
        """Return the keys that `ref` stands for at `place`: none where it is not there."""
        return self._index.keys(ref, place)

    def moves(self, ref: Ref, place: Place) -> list[Move]:
        """Return what moved of it.

        A counter that fell may have been reset, or be a sum of fewer parts than before (``ethtool -L``): what it
        counted in between is not known, and not told.
        """
        found = (self._moves[key] for key in self.keys(ref, place) if key in self._moves)
        return [move for move in found if move.how != "restarted"]

    def by(self, ref: Ref, place: Place) -> int:
        """Return by how much it moved, all subjects and names together; 0 also where it is not there."""
        return sum(move.by for move in self.moves(ref, place))

    def value(self, ref: Ref, place: Place) -> int | None:
        """Return its value now, all subjects and names together; None where it is not there."""
        keys = self.keys(ref, place)
        values = [self.now.numbers[key] for key in keys if key in self.now.numbers]
        return sum(values) if values else None

    def word(self, ref: Ref, place: Place) -> str | None:
        """Return a setting as text, also where it is a number."""
        for key in self.keys(ref, place):
            if key in self.now.words:
                return self.now.words[key]
            return str(self.now.numbers[key])
        return None
