# SPDX-License-Identifier: Apache-2.0
"""What was found once, as it was printed: each of these did harm, and must not do so again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fuzz.kernel_bytes import Dump
from tests.fuzz.lines import Line
from tests.fuzz.recordings import Case, Column, Files, Named
from tests.fuzz.texts import Text

if TYPE_CHECKING:
    from tests.fuzz.__main__ import Case as AnyCase

KEPT: Final[tuple[AnyCase, ...]] = (
    Text(language="comm", text="\udc80"),
    Text(language="trigger", text="rx.tcp_queue>1.2.3ms"),
    Text(language="trigger", text="rx.tcp_queue>" + "9" * 400 + "ms"),
    Case("tcp-rx", (Column(0, 205, "null"),), "report compare T T2"),
    Case("tcp-rx", (Column(200, 205, "null"),), "report compare T T2"),
    Case("tcp-rx", (Column(1, 0, "null"),), "report summary T"),
    Case("tcp-rx", (Column(210, 0, "null"),), "report hops T"),
    Case("tcp-rx", (Files(1, "gone", 0), Column(193, 0, "least")), "report counters T"),
    Case("tcp-rx", (Column(9, 0, "first"),), "report compare T T2"),
    Case("apart", (Column(250, 0, "least"),), "report messages T --waterfall --limit 2"),
    Case("apart", (Column(1, 0, "twice"),), "report requests T"),
    Case("tcp-rx", (Column(210, 189, "null"),), "report packets T"),
    Case("containers", (Files(0, "swap", 0),), "check T"),
    Case("two-hosts", (Named("packets", "cpu", "least"),), "report network T"),
    Case("apart", (Named("hosts", "host", "least"),), "explain T"),
    Case("apart", (Named("hosts", "host", "least"),), "report summary T"),
    Case("killed", (Named("readings", "time_ns", "zero"),), "report counters T"),
    Case("killed", (Named("readings", "time_ns", "first"),), "report moments T"),
    Case("two-hosts", (Named("probes", "bound_ns", "least"),), "report summary T"),
    Case("drops", (Named("counters", "source", "zero"),), "report counters T"),
    Case("drops", (Named("flows", "source", "zero"),), "export pcapng T -o X"),
    Case("containers", (Named("flows", "destination", "least"),), "export pcapng T -o X"),
    Dump(reader="hooks", bodies=(b"",)),
    Dump(reader="rules", bodies=(bytes(4),)),
    Line(words=("cdf", "total", "/dev/zero")),
    Line(words=("cdf", "total", "deep")),
    Line(words=("cdf", "--svg", "link", "T", "T")),
    Line(words=("explain", "9" * 400)),
    Line(words=("record", "-d", "0.1", "-o", "9" * 400)),
)
