# SPDX-License-Identifier: Apache-2.0
"""Families in the forms that Prometheus reads: two of text, and Protocol Buffers with native histograms.

https://prometheus.io/docs/instrumenting/exposition_formats/, the text of OpenMetrics 1.0, and
``io/prometheus/client/metrics.proto`` of prometheus/client_model. A histogram is native with the buckets that the
kernel side counted, none merged; beside them, and in texts alone, it has classic buckets, a doubling each. Text 0.0.4
has no exemplars.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from hopscope.model.histogram import MIN_INDEX, OVERFLOW_SLOT, SCALE, ZERO_SLOT, Histogram
from hopscope.term.protobuf import content, double, number, zigzag
from hopscope.verbs.serve.family import EXEMPLAR

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hopscope.verbs.serve.family import Exemplar, Family, Labels, Value

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PROTOBUF: Final = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
# In the order of simplicity.
FORMS: Final = (TEXT, OPENMETRICS, PROTOBUF)
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


def form_of(form: str, families: Sequence[Family], started_ns: int) -> bytes:
    """Return one of the forms; `started_ns` is as of :func:`protobuf_of`."""
    if form == PROTOBUF:
        return protobuf_of(families, started_ns)
    return openmetrics_of(families) if form == OPENMETRICS else text_of(families)


def text_of(families: Iterable[Family]) -> bytes:
    """Return the text form."""
    return _joined(each for family in families for each in _text(family, family.name))


def openmetrics_of(families: Iterable[Family]) -> bytes:
    """Return the text of OpenMetrics, with exemplars: a counter's family is called without ``_total``."""
    lines = (each for family in families for each in _text(family, _stem(family), exemplars=True))
    return _joined(lines) + b"# EOF\n"


def _stem(family: Family) -> str:
    return family.name.removesuffix("_total") if family.type == "counter" else family.name


def _joined(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _text(family: Family, name: str, *, exemplars: bool = False) -> Iterator[str]:
    yield f"# HELP {name} {_escaped(family.help)}."
    yield f"# TYPE {name} {family.type}"
    for values, value in family.series.items():
        labels = [_label(label, text) for label, text in zip(family.labels, values, strict=True)]
        yield from _lines(family.name, labels, value, family.exemplars.get(values) if exemplars else None)


def _lines(name: str, labels: Sequence[str], value: Value, exemplar: Exemplar | None) -> Iterator[str]:
    if isinstance(value, Histogram):
        for upper_s, count, found in _classic(value, exemplar):
            bound = "+Inf" if upper_s == math.inf else repr(upper_s)
            said = _said(found) if found else ""
            yield f"{name}_bucket{_braces([*labels, _label('le', bound)])} {count}{said}"
        yield f"{name}_sum{_braces(labels)} {value.sum_ns / _NS_PER_S!r}"
        yield f"{name}_count{_braces(labels)} {value.count}"
    else:
        yield f"{name}{_braces(labels)} {value!r}"


def _said(exemplar: Exemplar) -> str:
    """Return an exemplar as it follows its bucket in OpenMetrics."""
    label = _braces([_label(EXEMPLAR, exemplar.message)])
    return f" # {label} {exemplar.value_ns / _NS_PER_S!r} {exemplar.at_ns / _NS_PER_S:.3f}"


def _classic(histogram: Histogram, exemplar: Exemplar | None) -> Iterator[tuple[float, int, Exemplar | None]]:
    """Yield upper bounds in seconds, the last one infinite, cumulative counts, and the exemplar at its bucket."""
    buckets = histogram.downscale(0)
    running = np.cumsum([buckets.zero_count, *buckets.counts.tolist()]).tolist()
    before_s = -1.0
    for upper_s, count in (*zip(buckets.edges_s().tolist(), running, strict=True), (math.inf, histogram.count)):
        yield upper_s, count, exemplar if exemplar and before_s < exemplar.value_ns / _NS_PER_S <= upper_s else None
        before_s = upper_s


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


def _metric(family: Family, values: Labels, value: Value, created: bytes) -> bytes:
    labels = [content(1, content(1, name) + content(2, text)) for name, text in zip(family.labels, values, strict=True)]
    if isinstance(value, Histogram):
        inner = _histogram(value, family.exemplars.get(values)) + content(15, created)
    else:
        inner = double(1, float(value)) + (content(3, created) if family.type == "counter" else b"")
    return b"".join(labels) + content(_VALUES[family.type], inner)


def _histogram(histogram: Histogram, exemplar: Exemplar | None) -> bytes:
    encoded = _exemplar(exemplar) if exemplar else b""
    classic = [
        content(3, number(1, count) + double(2, upper_s) + (content(3, encoded) if found else b""))
        for upper_s, count, found in _classic(histogram, exemplar)
        if upper_s < math.inf
    ]
    return b"".join([
        number(1, histogram.count),
        double(2, histogram.sum_ns / _NS_PER_S),
        *classic,
        number(5, zigzag(SCALE)),
        double(6, _ZERO_S),
        number(7, int(histogram.counts[ZERO_SLOT])),
        *_spans(histogram),
        content(16, encoded) if encoded else b"",
    ])  # fmt: skip


def _exemplar(exemplar: Exemplar) -> bytes:
    label = content(1, EXEMPLAR) + content(2, exemplar.message)
    return content(1, label) + double(2, exemplar.value_ns / _NS_PER_S) + content(3, _timestamp(exemplar.at_ns))


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
