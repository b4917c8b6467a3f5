# SPDX-License-Identifier: Apache-2.0
"""The catalogue of probe points, as a table of data: a module for each verb that attaches.

A point has ways to attach in order of preference. A way names its kind, the kernel functions or tracepoints that it
hooks, and the programs of the object that do it; all of them are needed. A new way is a row here and a wrapper in C.
"""

from __future__ import annotations

from typing import Final

from hopscope.probes.catalogue.cpu import CPU
from hopscope.probes.catalogue.record import RECORD
from hopscope.probes.catalogue.rx import RX
from hopscope.probes.catalogue.tx import TX
from hopscope.probes.point import RETURN_KINDS

POINTS: Final = {point.name: point for point in (*RX, *TX, *CPU, *RECORD)}
# By program: what it must be loaded and attached as.
PROGRAM_KINDS: Final = {
    program: kind
    for point in POINTS.values()
    for way in point.ways
    for kind, programs in ((way.kind, way.programs), (RETURN_KINDS.get(way.kind, ""), way.returns))
    for program in programs
}
# By program: the object that it is in, which bears the verb's name.
PROGRAM_OBJECTS: Final = {
    program: point.name.partition(".")[0]
    for point in POINTS.values()
    for way in point.ways
    for program in (*way.programs, *way.returns)
}
OBJECTS: Final = tuple(dict.fromkeys(PROGRAM_OBJECTS.values()))
