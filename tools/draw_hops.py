# SPDX-License-Identifier: Apache-2.0
"""Write docs/hops.svg: a packet's path through the network stack, with each hop's name at its place in it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).resolve().parents[1] / "docs" / "hops.svg"

# From top to bottom; where the two directions differ: sent | received.
LAYERS: Final = ("application", "socket", "TCP, UDP", "IP", "qdisc|core", "driver", "NIC", "network")
# A hop is the time up to a place: in a layer, or, at half, between that layer and the next one below.
SENT: Final[dict[float, tuple[str, ...]]] = {
    1: ("tx.tcp_sndbuf",),
    1.5: ("tx.tcp",),
    2: (
        "tx.sched_cwnd", "tx.sched_rwnd", "tx.sched_nagle", "tx.sched_cork", "tx.sched_pacing", "tx.sched_tsq",
        "tx.sched_other",
    ),
    2.5: ("tx.sched",),
    3.5: ("tx.udp",),
    4: ("tx.qdisc", "tx.udp_qdisc"),
    4.5: ("tx.driver", "tx.udp_driver"),
    6: ("tx.udp_free",),
    6.5: ("tx.nic",),
    7: ("tx.ack",),
}  # fmt: skip
RECEIVED: Final[dict[float, tuple[str, ...]]] = {
    0.5: ("rx.tcp_read", "rx.udp_read"),
    1: (
        "rx.tcp_order",
        "rx.tcp_wake",
        "rx.udp_wake",
        "rx.tcp_asleep",
        "rx.tcp_runnable",
        "rx.udp_asleep",
        "rx.udp_runnable",
    ),
    1.5: ("rx.tcp_queue", "rx.udp_queue"),
    2.5: ("rx.tcp", "rx.udp"),
    3.5: ("rx.ip",),
    4.5: ("rx.core",),
    5: ("rx.softirq", "rx.napi"),
    5.5: ("rx.nic",),
}
# From the first place to the second.
WHOLE_SENT: Final = {"tx.total": (0.5, 7.0), "tx.host": (0.5, 4.5), "tx.udp_total": (0.5, 4.5)}
WHOLE_RECEIVED: Final = {"rx.tcp_total": (4.8, 0.5), "rx.udp_total": (4.8, 0.5)}

_BAND: Final = 74
_TOP: Final = 46
_WIDTH: Final = 860
_MIDDLE: Final = _WIDTH // 2
_HALF: Final = 0.5
_A_LINE: Final = 2
_ALONG: Final = 'text-anchor="middle" dy="-5"'
_ATTRIBUTES: Final = """font-family="sans-serif" font-size="13" role="img" \
aria-label="The layers of the network stack, and at which of them each hop of tx and rx ends\""""
_STYLE: Final = """\
    .paper { fill: #ffffff } .band { fill: #eef2f6 } .text { fill: #24292f } .layer { fill: #57606a }
    .tx { fill: #9a4a00; stroke: #9a4a00 } .rx { fill: #0a5aa8; stroke: #0a5aa8 } text.hop { stroke: none }
    .arrow { fill: none; stroke-width: 2 } .hop { font-family: monospace }
    @media (prefers-color-scheme: dark) {
      .paper { fill: #0d1117 } .band { fill: #1c232c } .text { fill: #e6edf3 } .layer { fill: #9aa4af }
      .tx { fill: #f0a35e; stroke: #f0a35e } .rx { fill: #79b8ff; stroke: #79b8ff }
    }"""


def _y(place: float) -> float:
    """Return the height of a layer's middle, or of the border below it."""
    return _TOP + (place + _HALF) * _BAND


def _bands() -> list[str]:
    lines = []
    for number, name in enumerate(LAYERS):
        top = _TOP + number * _BAND
        sent, _, received = name.partition("|")
        lines.append(f'  <rect class="band" x="10" y="{top + 2}" width="{_WIDTH - 20}" height="{_BAND - 4}" rx="4"/>')
        for anchor, x, label in (("start", 18, sent), ("end", _WIDTH - 18, received or sent)):
            lines.append(f'  <text class="layer" x="{x}" y="{top + 18}" text-anchor="{anchor}">{label}</text>')
    return lines


def _names(places: dict[float, tuple[str, ...]], kind: str, x: int, anchor: str) -> list[str]:
    lines = []
    for place, names in places.items():
        rows = [names[at : at + _A_LINE] for at in range(0, len(names), _A_LINE)]
        for number, row in enumerate(rows):
            y = _y(place) + 5 + (number - (len(rows) - 1) / 2) * 18
            lines.append(f'  <text class="hop {kind}" x="{x}" y="{y:g}" text-anchor="{anchor}">{"  ".join(row)}</text>')
    return lines


def _wholes(places: dict[str, tuple[float, float]], kind: str, xs: tuple[int, ...]) -> list[str]:
    lines = []
    for (name, (start, end)), x in zip(places.items(), xs, strict=True):
        y = _y((start + end) / 2)
        lines += [
            f'  <path class="arrow {kind}" d="M{x} {_y(start):g}V{_y(end):g}" stroke-dasharray="5 4"/>',
            f'  <text class="hop {kind}" x="{x}" y="{y:g}" {_ALONG} transform="rotate(-90 {x} {y:g})">{name}</text>',
        ]
    return lines


def _arrow(kind: str, x: int, start: float, end: float) -> list[str]:
    tip = _y(end)
    back = tip + (10 if end < start else -10)
    return [
        f'  <path class="arrow {kind}" d="M{x} {_y(start):g}V{tip:g}"/>',
        f'  <path class="{kind}" d="M{x - 5} {back:g}H{x + 5}L{x} {tip:g}Z"/>',
    ]


def draw() -> str:
    """Return the picture."""
    height = _TOP + len(LAYERS) * _BAND + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" {_ATTRIBUTES}>',
        "  <!-- made by tools/draw_hops.py -->",
        f"  <style>\n{_STYLE}\n  </style>",
        f'  <rect class="paper" width="{_WIDTH}" height="{height}"/>',
        f'  <text class="text" x="{_MIDDLE - 60}" y="28" text-anchor="end">hopscope tx: a message is sent</text>',
        f'  <text class="text" x="{_MIDDLE + 60}" y="28">hopscope rx: a packet is received</text>',
        *_bands(),
        *_arrow("tx", _MIDDLE - 24, 0, 7),
        *_arrow("rx", _MIDDLE + 24, 7, 0),
        *_names(SENT, "tx", _MIDDLE - 38, "end"),
        *_names(RECEIVED, "rx", _MIDDLE + 38, "start"),
        *_wholes(WHOLE_SENT, "tx", (88, 112, 136)),
        *_wholes(WHOLE_RECEIVED, "rx", (_WIDTH - 136, _WIDTH - 112)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(draw())
