# SPDX-License-Identifier: Apache-2.0
"""Families as OpenTelemetry's receivers take them: one ``ExportMetricsServiceRequest``, cumulative since the start.

https://opentelemetry.io/docs/specs/otel/metrics/data-model/ and ``opentelemetry/proto/metrics/v1/metrics.proto`` of
open-telemetry/opentelemetry-proto. A histogram is an exponential one with the buckets that the kernel side counted.
"""

from __future__ import annotations

import json
import math
import os
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from hopscope import __version__
from hopscope.model.histogram import MIN_INDEX, OVERFLOW_SLOT, SCALE, ZERO_SLOT, Histogram
from hopscope.term.protobuf import content, double, fields, fixed64, number, number_in, text_in, varint, zigzag
from hopscope.verbs.serve.family import EXEMPLAR, framed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hopscope.verbs.serve.family import Exemplar, Family, Labels, Value

# The type of requests, and of answers to them.
PROTOBUF: Final = "application/x-protobuf"
_NS_PER_S: Final = 10**9
_CUMULATIVE: Final = 2
# Metric: where the data of each type are.
_DATA: Final = {"gauge": 5, "counter": 7, "histogram": 10}
_UNITS: Final = {"seconds": "s", "bytes": "By"}
_JSON: Final = "application/json"
# No request has more data points.
_MOST_POINTS: Final = 1 << 32


class Partial(NamedTuple):
    """What a receiver says of a request that it took.

    Attributes
    ----------
    rejected
        How many data points it did not take.
    message
        Why, or, where it took all, a warning; may be empty.
    """

    rejected: int
    message: str


def partial_success(answer: bytes, kind: str) -> Partial:
    """Return what an ``ExportMetricsServiceResponse`` says; of one that cannot be read, that all was taken.

    Parameters
    ----------
    kind
        Its ``Content-Type``.
    """
    try:
        if kind.startswith(_JSON):
            part = _in_json(_document(answer), "partialSuccess", "partial_success") or {}
            rejected = int(_in_json(part, "rejectedDataPoints", "rejected_data_points") or 0)
            message = _in_json(part, "errorMessage", "error_message") or ""
        else:
            inner = fields(answer).get(1, [b""])[-1]
            part = inner if isinstance(inner, bytes) else b""
            rejected, message = number_in(part, 1), text_in(part, 2)
    except (ValueError, TypeError, OverflowError):
        return Partial(0, "")
    return Partial(min(max(rejected, 0), _MOST_POINTS), str(message))


def refusal(answer: bytes, kind: str) -> str:
    """Return why a receiver did not take a request, as far as the answer, a ``google.rpc.Status`` or text, says so."""
    try:
        if kind.startswith(_JSON):
            return str(_in_json(_document(answer), "message") or "")
        if kind.startswith(PROTOBUF):
            return text_in(answer, 2)
    except ValueError:
        return ""
    return answer.decode() if answer.isascii() else ""


def _document(answer: bytes) -> Any:  # noqa: ANN401 # any JSON
    try:
        return json.loads(answer)
    except RecursionError as error:
        raise ValueError("It is nested too deeply") from error


def _in_json(document: Any, *names: str) -> Any:  # noqa: ANN401 # any JSON
    """Return the value that has one of these names; None: none has."""
    found = document if isinstance(document, dict) else {}
    return next((found[name] for name in names if name in found), None)


def pushed(families: Iterable[Family], started_ns: int) -> bytes:
    """Return the request, as the process that sends it takes it.

    Parameters
    ----------
    started_ns
        CLOCK_REALTIME since when is counted.
    """
    request = request_of(families, started_ns, time.time_ns())
    return framed(request)


def request_of(families: Iterable[Family], started_ns: int, now_ns: int) -> bytes:
    """Return a request."""
    times = fixed64(2, started_ns) + fixed64(3, now_ns)
    about = {"service.name": "hopscope", "service.version": __version__, "host.name": os.uname().nodename}
    resource = b"".join(content(1, _attribute(name, text)) for name, text in about.items())
    scope = content(1, "hopscope") + content(2, __version__)
    metrics = b"".join(content(2, _metric(family, times)) for family in families)
    return content(1, content(1, resource) + content(2, content(1, scope) + metrics))


def _metric(family: Family, times: bytes) -> bytes:
    points = b"".join(content(1, _point(family, *each, times)) for each in family.series.items())
    if family.type != "gauge":
        points += number(2, _CUMULATIVE)
    if family.type == "counter":
        points += number(3, 1)  # it only increases
    name = family.name.removesuffix("_total").rpartition("_")[2]
    head = content(1, family.name) + content(2, f"{family.help}.") + content(3, _UNITS.get(name, "1"))
    return head + content(_DATA[family.type], points)


def _point(family: Family, values: Labels, value: Value, times: bytes) -> bytes:
    labels = [_attribute(name, text) for name, text in zip(family.labels, values, strict=True)]
    if isinstance(value, Histogram):
        found = family.exemplars.get(values)
        exemplar = content(11, _exemplar(found)) if found else b""
        return b"".join(content(1, each) for each in labels) + times + _histogram(value) + exemplar
    figure = fixed64(6, value) if isinstance(value, int) else double(4, value)
    return b"".join(content(7, each) for each in labels) + times + figure


def _exemplar(exemplar: Exemplar) -> bytes:
    label = content(7, _attribute(EXEMPLAR, exemplar.message))
    return fixed64(2, exemplar.at_ns) + double(3, exemplar.value_ns / _NS_PER_S) + label


def _histogram(histogram: Histogram) -> bytes:
    counts = [*histogram.counts[1:OVERFLOW_SLOT].tolist()]
    if beyond := int(histogram.counts[OVERFLOW_SLOT]):
        # The longest of them is known, and none is longer: they go where that one does.
        last = math.ceil(math.log2(histogram.max_ns / _NS_PER_S) * 2**SCALE) - MIN_INDEX
        counts += [0] * (last + 1 - len(counts))
        counts[last] += beyond
    used = np.flatnonzero(counts)
    first, end = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)
    # An index is that of Prometheus less one: both begin at 1 s, of which that one names the upper bound.
    buckets = number(1, zigzag(MIN_INDEX + first - 1)) + content(2, b"".join(map(varint, counts[first:end])))
    found = [
        fixed64(4, histogram.count),
        double(5, histogram.sum_ns / _NS_PER_S),
        number(6, zigzag(SCALE)),
        fixed64(7, int(histogram.counts[ZERO_SLOT])),
        content(8, buckets),
        double(13, histogram.max_ns / _NS_PER_S) if histogram.count else b"",
        double(14, 2.0**-24),
    ]
    return b"".join(found)


def _attribute(name: str, text: str) -> bytes:
    return content(1, name) + content(2, content(1, text))
