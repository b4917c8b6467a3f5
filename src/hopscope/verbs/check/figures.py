# SPDX-License-Identifier: Apache-2.0
"""Figures in the sentences and commands of findings."""

from __future__ import annotations

import math
import re
import shlex
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hopscope.verbs.check.conditions import Figure
from hopscope.verbs.check.scene import Place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hopscope.verbs.check.scene import Ref, Scene

_BLANK: Final = re.compile(r"\{(\w+)\}")
# Of two wordings in a sentence the first stands where one was counted: "{by} [packet was|packets were] lost".
_CHOICE: Final = re.compile(r"\[([^|\]]*)\|([^|\]]*)\]")
_UNKNOWN: Final = "?"
_KIB: Final = 1024


class Advice(ABC):
    """A figure that is worked out from readings beside those of the condition."""

    __slots__ = ()

    def figure(self, scene: Scene, place: Place) -> Figure | None:
        """Return it; None where it is not known, or there is nothing to advise: then its command is left out."""
        return self._figure(scene, place)

    @abstractmethod
    def _figure(self, scene: Scene, place: Place) -> Figure | None: ...


@dataclass(frozen=True, slots=True)
class Now(Advice):
    """What a reading is now; of a setting that is a list, the `field`-th."""

    ref: Ref
    field: int | None = None

    def _figure(self, scene: Scene, place: Place) -> Figure | None:
        value = _number(self.ref, self.field, scene, place)
        if value is not None:
            return Figure(value, "count", "max")
        word = scene.word(self.ref, place)
        return Figure(word, "text", "first") if word else None


@dataclass(frozen=True, slots=True)
class UpTo(Advice):
    """The most that a setting may be, where it is less."""

    ref: Ref
    most: Ref

    def _figure(self, scene: Scene, place: Place) -> Figure | None:
        now, most = scene.value(self.ref, place), scene.value(self.most, place)
        return Figure(most, "number", "first") if now is not None and most is not None and now < most else None


@dataclass(frozen=True, slots=True)
class Times(Advice):
    """So many times what a reading is now, at least `least`, at most `most` (if that is not 0)."""

    ref: Ref
    factor: int
    least: int
    field: int | None = None
    most: int = 0

    def _figure(self, scene: Scene, place: Place) -> Figure:
        value = max((_number(self.ref, self.field, scene, place) or 0) * self.factor, self.least)
        return Figure(min(value, self.most) if self.most else value, "number", "max")


def _number(ref: Ref, field: int | None, scene: Scene, place: Place) -> int | None:
    if field is None:
        return scene.value(ref, place)
    parts = (scene.word(ref, place) or "").split()
    return int(parts[field]) if field < len(parts) and parts[field].isdecimal() else None


def blanks(template: str) -> frozenset[str]:
    """Return the names of the figures that a text has places for."""
    return frozenset(_BLANK.findall(template)) - {"where", "device", "times"}


def fill(template: str, figures: Mapping[str, Figure], subject: str, *, exact: bool = False) -> str:
    """Return a text with its figures filled in, as commands take them if `exact`; unknown ones are question marks."""
    quoted = shlex.quote if exact else str

    def filled(blank: re.Match[str]) -> str:
        name = blank[1]
        if name == "device":
            return quoted(Place(0, subject).device)
        if name == "where":
            return quoted(subject)
        if name == "times":
            return _times(figures.get("by"))
        figure = figures.get(name)
        return shown(figure, exact=exact) if figure else _UNKNOWN

    if exact:
        return _BLANK.sub(filled, template)
    one = any(name in figures and figures[name].value == 1 for name in ("by", "least"))
    sentence = _BLANK.sub(filled, _CHOICE.sub(r"\1" if one else r"\2", template))
    # A name at its beginning stays as it is.
    return sentence if template.startswith(("{where}", "{device}")) else sentence[:1].upper() + sentence[1:]


def _times(by: Figure | None) -> str:
    """Return how often something happened."""
    return "once" if by and by.value == 1 else f"{shown(by) if by else _UNKNOWN} times"


def shown(figure: Figure, *, exact: bool = False) -> str:
    """Return a figure as text."""
    value = figure.value
    if isinstance(value, str):
        return value
    if exact or figure.unit == "number":
        return f"{value:.0f}"
    return {"per_s": rate, "share": per_cent, "bytes": size}.get(figure.unit, count)(value)


def count(value: float) -> str:
    """Return a count, exactly: ``12,345``."""
    return f"{value:,.0f}"


def rate(per_s: float) -> str:
    """Return a rate without its unit: ``0.2``, ``31``, ``12,345``."""
    return f"{per_s:,.0f}" if per_s >= 9.95 else f"{per_s:.2g}"


def per_cent(share: float) -> str:
    """Return a share as a percentage: two digits below 10 %, never 0 for what is more."""
    value = share * 100
    if value >= 9.95 or not value:
        return f"{value:.0f}%"
    return f"{value:.1f}%" if value >= 0.095 else f"{max(value, 0.01):.2f}%"


def size(length_bytes: float) -> str:
    """Return a number of bytes: ``212,992 bytes``, ``4 MiB``."""
    power = min(int(math.log(length_bytes, _KIB)), 4) if length_bytes >= 1024 * _KIB else 0
    if not power:
        return f"{length_bytes:,.0f} bytes"
    return f"{length_bytes / _KIB**power:.3g} {'KMGT'[power - 1]}iB"
