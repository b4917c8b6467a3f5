# SPDX-License-Identifier: Apache-2.0
"""A flame graph: one SVG file that needs nothing else, with zoom and search where scripts run.

After Brendan Gregg's: a frame's width is its samples, callers are below, and neighbours are in alphabetical order,
not that of time. The colour is that of the category that a stack ending in this frame has.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from hopscope.gate import one_line
from hopscope.model.categories import OTHER
from hopscope.model.classify import classify
from hopscope.model.stacks import merge
from hopscope.term.category_colours import COLOURS, NEUTRAL
from hopscope.term.format import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hopscope.model.classify import Category
    from hopscope.model.stacks import Stack

_WIDTH: Final = 1200
_MARGIN: Final = 10
_GRAPH_WIDTH: Final = _WIDTH - 2 * _MARGIN
_FRAME_HEIGHT: Final = 16
_HEAD_HEIGHT: Final = 66
_FOOT_HEIGHT: Final = 34
_KEYS_IN_ROW: Final = 6
_KEY_HEIGHT: Final = 20
_CHAR_WIDTH: Final = 7.25  # of the frames' font
_FEWEST_CHARS: Final = 3
_NARROWEST: Final = 0.1
_THIN: Final = 3  # an outline would hide most of it


@dataclass(slots=True)
class _Frame:
    """A function with its callers: where it begins and how wide it is, in samples."""

    name: str
    category: str = ""
    detail: str = ""
    part: str = ""
    level: int = 0
    start: int = 0
    samples: int = 0
    called: dict[str, _Frame] = field(default_factory=dict)

    def walk(self) -> Iterator[_Frame]:
        """Yield it and all that are called from it."""
        yield self
        for frame in self.called.values():
            yield from frame.walk()


def _samples(count: int) -> str:
    return plural(count, "sample")


def render_flamegraph(
    title: str,
    stacks: Iterable[Stack],
    own: tuple[str, ...] = (),
    *,
    category: Callable[[Sequence[str]], Category] | None = None,
    amount: Callable[[int], str] = _samples,
) -> str:
    """Return the picture as an SVG document.

    Parameters
    ----------
    title
        Stands above it.
    stacks
        The part is the first level, the group (where there is one) the second.
    own
        Beginnings of the names of hopscope's own BPF programs.
    category
        Returns the category of frames that are no functions of the kernel.
    amount
        Returns as words what the samples of a stack count.
    """
    of = category or (lambda frames: classify(frames, own))
    stacks = [stack for stack in merge(stacks) if stack.samples]
    root = _tree(stacks, of)
    frames = [frame for frame in root.walk() if frame.samples]
    drawn = [frame for frame in frames if _pixels(frame, root) >= _NARROWEST]
    shares = Counter[str]()
    for stack in stacks:
        shares[of(stack.frames).category] += stack.samples
    keys = _legend(shares, root.samples)
    top = _HEAD_HEIGHT + _KEY_HEIGHT * -(-len(shares) // _KEYS_IN_ROW)
    levels = max((frame.level for frame in drawn), default=0) + 1
    bottom = top + levels * _FRAME_HEIGHT
    parts = [
        _text(_MARGIN, 26, title, "title"),
        _text(_MARGIN, 48, _summary(root, amount, len(frames) - len(drawn)), "faint"),
        f'<text id="reset" class="reset hidden" x="{_WIDTH - 370}" y="30">reset zoom</text>',
        f'<text id="matched" class="faint" x="{_WIDTH - 250}" y="56"></text>',
        *keys,
        *(_frame(frame, root, amount, bottom) for frame in drawn),
        _text(_MARGIN, bottom + 22, "", "faint", 'id="detail"'),
    ]
    return _document(title, bottom + _FOOT_HEIGHT, parts, scripted=bool(drawn))


def _tree(stacks: Sequence[Stack], of: Callable[[Sequence[str]], Category]) -> _Frame:
    root = _Frame("all")
    for stack in stacks:
        root.samples += stack.samples
        above = root
        path = stack.path()
        first_function = len(path) - len(stack.frames)
        for level, name in enumerate(path):
            frame = above.called.get(name)
            if frame is None:
                frame = _Frame(name, part=stack.part, level=level + 1)
                if level >= first_function:
                    frame.category, frame.detail = of(path[first_function : level + 1])
                above.called[name] = frame
            frame.samples += stack.samples
            above = frame
    _place(root)
    return root


def _place(root: _Frame) -> None:
    """Set where each frame begins. What is merged is sorted: the parts are in their order, and names in theirs."""
    for frame in root.walk():
        start = frame.start
        for called in frame.called.values():
            called.start = start
            start += called.samples


def _pixels(frame: _Frame, root: _Frame) -> float:
    return frame.samples * _GRAPH_WIDTH / root.samples


def _summary(root: _Frame, amount: Callable[[int], str], hidden: int) -> str:
    summary = amount(root.samples)
    if hidden:
        summary += f"; {plural(hidden, 'frame')} narrower than {_NARROWEST} px not shown"
    return summary


def _legend(shares: Counter[str], total: int) -> list[str]:
    """Return a key a category, the one with the most samples first."""
    keys = []
    ordered = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
    for number, (category, samples) in enumerate(ordered):
        row, column = divmod(number, _KEYS_IN_ROW)
        x = _MARGIN + column * _GRAPH_WIDTH // _KEYS_IN_ROW
        y = _HEAD_HEIGHT + row * _KEY_HEIGHT
        keys.append(
            f'<g class="key" data-category="{category}"><rect x="{x}" y="{y}" width="14" height="12" '
            f'fill="{COLOURS[category]}"/>{_text(x + 20, y + 11, f"{_words(category)} {samples / total:.1%}")}</g>'
        )
    return keys


def _frame(frame: _Frame, root: _Frame, amount: Callable[[int], str], bottom: int) -> str:
    x = _MARGIN + frame.start * _GRAPH_WIDTH / root.samples
    y = bottom - (frame.level + 1) * _FRAME_HEIGHT
    pixels = _pixels(frame, root)
    room = int((pixels - 6) / _CHAR_WIDTH)
    name = _clean(frame.name)
    text = ""
    if room >= _FEWEST_CHARS:
        text = _text(x + 3, y + 12, name if len(name) <= room else f"{name[: room - 1]}…")
    colour = COLOURS[frame.category] if frame.category else NEUTRAL
    return (
        f'<g class="frame{" thin" if pixels < _THIN else ""}" '
        f'data-x="{frame.start}" data-n="{frame.samples}" data-level="{frame.level}" '
        f'data-category="{frame.category}"><title>{escape(_tooltip(frame, root, amount))}</title>'
        f'<rect x="{x:.2f}" y="{y}" width="{pixels:.2f}" height="{_FRAME_HEIGHT - 1}" fill="{colour}"/>{text}</g>'
    )


def _tooltip(frame: _Frame, root: _Frame, amount: Callable[[int], str]) -> str:
    lines = [_clean(frame.name), f"{amount(frame.samples)}, {frame.samples / root.samples:.1%}"]
    if frame.level > 1:
        of = root.called[frame.part].samples
        lines[1] += f", {frame.samples / of:.1%} of {frame.part}"
    if frame.category and frame.category != OTHER:
        lines.append(f"{_words(frame.category)} {_clean(frame.detail)}".rstrip())
    return "\n".join(lines)


def _document(title: str, height: int, parts: Sequence[str], *, scripted: bool) -> str:
    here = files("hopscope.term")
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    room = f'data-left="{_MARGIN}" data-width="{_GRAPH_WIDTH}" data-char="{_CHAR_WIDTH}" data-thin="{_THIN}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {room} role="img" aria-labelledby="title">',
        f'<title id="title">{escape(_clean(title))}</title>',
        f"<style>\n{here.joinpath('flamegraph.css').read_text()}</style>",
        f'<rect class="paper" width="{_WIDTH}" height="{height}"/>',
        *parts,
        *([f"<script><![CDATA[\n{here.joinpath('flamegraph.js').read_text()}]]></script>"] if scripted else []),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _text(x: float, y: float, text: str, look: str = "", more: str = "") -> str:
    attributes = [f'x="{x:g}" y="{y:g}"', *([f'class="{look}"'] if look else []), *([more] if more else [])]
    return f"<text {' '.join(attributes)}>{escape(_clean(text))}</text>"


def _words(category: str) -> str:
    return category.replace("_", " ")


def _clean(text: str) -> str:
    """Return what XML can hold: no control characters."""
    return one_line(text)
