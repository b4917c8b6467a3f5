# SPDX-License-Identifier: Apache-2.0
"""The condition that a counter counts more than others explain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopscope.verbs.check.conditions import Figure, Hit, Judged, counted, rising

if TYPE_CHECKING:
    from hopscope.verbs.check.scene import Place, Ref, Scene


def beyond(
    ref: Ref, *others: Ref, at_least: int, per_s: float = 0.0, above: float = 0.0, of: tuple[Ref, ...] = ()
) -> Judged:
    """Return the condition that a counter counted more than these together, which count a part of the same.

    Parameters
    ----------
    ref, others
        The counter, and those that are taken from it.
    at_least, per_s, above, of
        What is left must be so much, so much a second, and more than this part of what `of` counted.
    """

    def judge(scene: Scene, place: Place) -> Hit | None:
        by = scene.by(ref, place) - sum(scene.by(other, place) for other in others)
        whole = sum(scene.by(each, place) for each in of)
        if by < max(at_least, 1) or by < per_s * scene.seconds or by <= above * max(whole, by):
            return None
        rows = [row for each in (ref, *others, *of) for row in counted(each, scene, place)]
        share = min(by / whole, 1.0) if whole else 1.0
        figures = {"share": Figure(share, "share", "share", by, whole), "of": Figure(whole)} if of else {}
        return Hit(tuple(rows), rising("by", by, scene) | figures)

    return Judged((ref, *others, *of), judge)
