# SPDX-License-Identifier: Apache-2.0
"""Families in the two forms that Prometheus reads: text 0.0.4, and Protocol Buffers with native histograms.

https://prometheus.io/docs/instrumenting/exposition_formats/ and ``io/prometheus/client/metrics.proto`` of
prometheus/client_model. A histogram is native with the buckets that the kernel side counted, none merged; beside them,
and in the text alone, it has classic buckets, a doubling each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.model.histogram import MIN_INDEX, OVERFLOW_SLOT, SCALE, ZERO_SLOT, Histogram
from hopscope.term.protobuf import content, double, number, zigzag

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hopscope.verbs.serve.family import Family, Value

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
PROTOBUF: Final = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
_NS_PER_S: Final = 10**9
_ZERO_S: Final = 2.0**-24
# MetricFamily.type.
_TYPES: Final = {"counter": 0, "gauge": 1, "histogram": 4}
# Metric: where the value of each type is.
_VALUES: Final = {"counter": 3, "gauge": 2, "histogram": 7}
# What is longer than the longest bucket, 256 s: the bucket of a native histogram that ends at infinity.
_INFINITE: Final = (1024 << SCALE) + 1
# A gap of no more empty buckets is cheaper than a span of its own.
_GAP: Final = 2


def text_of(families: Iterable[Family]) -> bytes:
    """Return the text form."""
    lines: list[str] = []
    for family in families:
        lines += [f"# HELP {family.name} {_escaped(family.help)}.", f"# TYPE {family.name} {family.type}"]
        for values, value in family.series.items():
            labels = [_label(name, text) for name, text in zip(family.labels, values, strict=True)]
            lines += _lines(family.name, labels, value)
    return "".join(f"{line}\n" for line in lines).encode()


def _lines(name: str, labels: Sequence[str], value: Value) -> Iterator[str]:
    if isinstance(value, Histogram):
        for upper_s, count in _classic(value):
            yield f"{name}_bucket{_braces([*labels, _label('le', repr(upper_s))])} {count}"
        yield f"{name}_bucket{_braces([*labels, _label('le', '+Inf')])} {value.count}"
        yield f"{name}_sum{_braces(labels)} {value.sum_ns / _NS_PER_S!r}"
        yield f"{name}_count{_braces(labels)} {value.count}"
    else:
        yield f"{name}{_braces(labels)} {value!r}"


def _classic(histogram: Histogram) -> list[tuple[float, int]]:
    """Return upper bounds in seconds and cumulative counts, without the last, infinite one."""
    buckets = histogram.downscale(0)
    running = np.cumsum([buckets.zero_count, *buckets.counts.tolist()]).tolist()
    return list(zip(buckets.edges_s().tolist(), running, strict=True))


def _braces(labels: Sequence[str]) -> str:
    return f"{{{','.join(labels)}}}" if labels else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _label(name: str, text: str) -> str:
    quoted = _escaped(text).replace('"', '\\"')
    return f'{name}="{quoted}"'


def protobuf_of(families: Iterable[Family], started_ns: int) -> bytes:
    """Return the form in Protocol Buffers, each family after its length.

    Parameters
    ----------
    started_ns
        CLOCK_REALTIME since when is counted.
    """
    created = _timestamp(started_ns)
    found = bytearray()
    for family in families:
        head = content(1, family.name) + content(2, f"{family.help}.") + number(3, _TYPES[family.type])
        metrics = [content(4, _metric(family, *each, created)) for each in family.series.items()]
        message = head + b"".join(metrics)
        found += content(0, message)[1:]  # the length and the message, without the field's number
    return bytes(found)


def _metric(family: Family, values: Sequence[str], value: Value, created: bytes) -> bytes:
    labels = [content(1, content(1, name) + content(2, text)) for name, text in zip(family.labels, values, strict=True)]
    if isinstance(value, Histogram):
        inner = _histogram(value) + content(15, created)
    else:
        inner = double(1, float(value)) + (content(3, created) if family.type == "counter" else b"")
    return b"".join(labels) + content(_VALUES[family.type], inner)


def _histogram(histogram: Histogram) -> bytes:
    classic = [content(3, number(1, count) + double(2, upper_s)) for upper_s, count in _classic(histogram)]
    return b"".join([
        number(1, histogram.count),
        double(2, histogram.sum_ns / _NS_PER_S),
        *classic,
        number(5, zigzag(SCALE)),
        double(6, _ZERO_S),
        number(7, int(histogram.counts[ZERO_SLOT])),
        *_spans(histogram),
    ])  # fmt: skip


def _spans(histogram: Histogram) -> Iterator[bytes]:
    """Yield the spans of buckets that are in use, and each bucket's difference to the one before."""
    counts = {index: count for index, count in _native(histogram) if count}
    runs: list[list[int]] = []
    for index in counts:
        if runs and index - runs[-1][-1] <= _GAP + 1:
            runs[-1] += range(runs[-1][-1] + 1, index + 1)
        else:
            runs.append([index])
    end = 0
    for run in runs:
        yield content(12, number(1, zigzag(run[0] - end)) + number(2, len(run)))
        end = run[-1] + 1
    before = 0
    for index in (each for run in runs for each in run):
        count = counts.get(index, 0)
        yield number(13, zigzag(count - before))
        before = count
    if not runs:
        yield content(12, number(1, 0) + number(2, 0))  # else it would not be known to be native


def _native(histogram: Histogram) -> Iterator[tuple[int, int]]:
    counts = histogram.counts.tolist()
    yield from enumerate(counts[1:OVERFLOW_SLOT], MIN_INDEX)
    yield _INFINITE, counts[OVERFLOW_SLOT]


def _timestamp(at_ns: int) -> bytes:
    return number(1, at_ns // _NS_PER_S) + number(2, at_ns % _NS_PER_S)
