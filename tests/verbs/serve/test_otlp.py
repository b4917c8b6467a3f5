# SPDX-License-Identifier: Apache-2.0
"""What is pushed, as the messages of opentelemetry-proto read it, and how it is pushed."""

from __future__ import annotations

import contextlib
import signal
import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)

from hopscope.errors import UsageError
from hopscope.model.histogram import Histogram
from hopscope.verbs.serve.family import Exemplar, Family, framed
from hopscope.verbs.serve.otlp import Partial, partial_success, request_of
from hopscope.verbs.serve.push import Receiver, push
from hopscope.verbs.serve.tally import PUSHED, Tally
from tests.lab.command import complaint, hopscope, start
from tests.lab.measure import in_thread
from tests.verbs.serve.receiver import PROTOBUF, Said, metrics_of, receiving
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STARTED_NS, NOW_NS = 1_700_000_000 * 10**9, 1_700_000_005 * 10**9
TOKEN = "0123456789abcdef"  # noqa: S105 # of this test


def labels_of(point: Any) -> dict[str, str]:  # noqa: ANN401 # of the generated classes
    return {each.key: each.value.string_value for each in point.attributes}


@given(values_ns=st.lists(st.integers(0, 3200 * 10**9), min_size=1, max_size=60))
def test_a_histogram_has_each_value_in_the_bucket_that_holds_it(values_ns: list[int]) -> None:
    family = Family("hop_seconds", "histogram", "Time", ("hop",), {("rx.l4",): Histogram.from_values(values_ns)})
    metric = metrics_of(request_of([family], STARTED_NS, NOW_NS))["hop_seconds"]
    assert (metric.unit, metric.exponential_histogram.aggregation_temporality) == ("s", 2)
    (point,) = metric.exponential_histogram.data_points
    assert labels_of(point) == {"hop": "rx.l4"}
    assert (point.start_time_unix_nano, point.time_unix_nano) == (STARTED_NS, NOW_NS)
    assert (point.count, point.sum, point.max) == (len(values_ns), sum(values_ns) / 1e9, max(values_ns) / 1e9)
    counted = np.array(point.positive.bucket_counts, np.int64)
    assert point.zero_count + counted.sum() == point.count
    base = 2 ** (2**-point.scale)
    values_s = np.array(values_ns) / 1e9
    assert point.zero_count == np.count_nonzero(values_s <= point.zero_threshold)
    lowest_s = base ** (point.positive.offset + np.arange(len(counted)))
    longest_s = 256.0  # what is longer is counted with the longest one
    for lower_s, count in zip(lowest_s, counted, strict=True):
        if lower_s * base <= longest_s * 1.001:
            assert count == np.count_nonzero((values_s > lower_s) & (values_s <= lower_s * base))
    if max(values_s) > longest_s:
        assert counted[-1] == np.count_nonzero(values_s > longest_s)
        assert lowest_s[-1] < max(values_s) <= lowest_s[-1] * base


def test_an_exemplar_goes_with_its_histogram() -> None:
    series = {(hop,): Histogram.from_values([1_500_000]) for hop in ("rx.core", "rx.l4")}
    exemplars = {("rx.l4",): Exemplar("@1995808587948", 1_500_000, NOW_NS - 7)}
    family = Family("hop_seconds", "histogram", "Time", ("hop",), series, exemplars)
    points = metrics_of(request_of([family], STARTED_NS, NOW_NS))["hop_seconds"].exponential_histogram.data_points
    without, having = points
    (found,) = having.exemplars
    assert (len(without.exemplars), found.as_double, found.time_unix_nano) == (0, 0.0015, NOW_NS - 7)
    assert [(each.key, each.value.string_value) for each in found.filtered_attributes] == [
        ("message", "@1995808587948")
    ]


def test_counters_and_gauges_keep_their_kinds() -> None:
    families = [
        Family("cpu_seconds_total", "counter", "CPU time", ("part",), {("tcp",): 1.25}),
        Family("drops_total", "counter", "Drops", ("reason",), {("NO_SOCKET",): 2**40}),
        Family("queue_bytes", "gauge", "Queued", (), {(): 7}),
    ]
    metrics = metrics_of(request_of(families, STARTED_NS, NOW_NS))
    assert [metrics[each.name].unit for each in families] == ["s", "1", "By"]
    sums = [metrics[name].sum for name in ("cpu_seconds_total", "drops_total")]
    assert [(each.is_monotonic, each.aggregation_temporality) for each in sums] == [(True, 2), (True, 2)]
    assert [each.data_points[0].as_double for each in sums[:1]] == [1.25]
    assert (sums[1].data_points[0].as_int, labels_of(sums[1].data_points[0])) == (2**40, {"reason": "NO_SOCKET"})
    assert metrics["queue_bytes"].gauge.data_points[0].as_int == 7


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://collector.example:4318", "in the clear"),
        ("ftp://127.0.0.1/", "not the URL"),
        ("http://a:b@127.0.0.1/", "not the URL"),
        ("http://127.0.0.1:x/", "not the URL"),
        ("127.0.0.1:4318", "not the URL"),
    ],
)
def test_what_is_no_receiver_is_refused(url: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Receiver.of(url, None)


def test_the_path_and_tls_follow_from_the_url() -> None:
    here, there = Receiver.of("http://localhost:4318", None), Receiver.of("https://collector.example/otlp", None)
    assert (here.port, here.path, here.tls) == (4318, "/v1/metrics", None)
    assert (there.host, there.path, bool(there.tls)) == ("collector.example", "/otlp", True)


def test_a_token_without_a_receiver_is_one_sentence(tmp_path: Path) -> None:
    done = hopscope("serve", "--listen=127.0.0.1:0", f"--otlp-token-file={tmp_path / 'token'}")
    assert "--otlp-token-file is for --otlp" in complaint(done, 2)


def response(rejected: int, message: str) -> bytes:
    """Return what a receiver answers in Protocol Buffers."""
    part = ExportMetricsPartialSuccess(rejected_data_points=rejected, error_message=message)
    return ExportMetricsServiceResponse(partial_success=part).SerializeToString()


@pytest.mark.parametrize(
    ("answer", "kind", "expected"),
    [
        (b"", PROTOBUF, Partial(0, "")),
        (response(3, "too old"), PROTOBUF, Partial(3, "too old")),
        (response(0, "deprecated"), PROTOBUF, Partial(0, "deprecated")),
        (response(-1, ""), PROTOBUF, Partial(0, "")),
        (response(2**63 - 1, ""), PROTOBUF, Partial(2**32, "")),
        (response(3, "cut off")[:-4], PROTOBUF, Partial(0, "")),
        (b'{"partialSuccess": {"rejectedDataPoints": "7", "errorMessage": "x"}}', "application/json", Partial(7, "x")),
        (b'{"partial_success": {"rejected_data_points": 7}}', "application/json; charset=utf-8", Partial(7, "")),
        (b'{"partialSuccess": {"rejectedDataPoints": []}}', "application/json", Partial(0, "")),
        (b"[" * 50_000, "application/json", Partial(0, "")),
    ],
)
def test_what_a_receiver_rejected_is_read(answer: bytes, kind: str, expected: Partial) -> None:
    assert partial_success(answer, kind) == expected


@given(answer=st.binary(max_size=40))
def test_whatever_a_receiver_answers_is_read_or_left(answer: bytes) -> None:
    assert [partial_success(answer, kind).rejected >= 0 for kind in (PROTOBUF, "application/json")] == [True, True]


@pytest.mark.parametrize(
    ("status", "retry_after", "least_s", "most_s"),
    [
        (503, "7", 7, 7),
        (429, "7", 7, 7),
        (429, "9" * 400, 300, 300),
        (429, 200, 1, 200),
        (503, 10**6, 300, 300),
        (503, -100, 0, 0),
        (503, "soon", 0, 0),
        (429, "", 0, 0),
    ],
)
def test_a_receiver_that_is_busy_says_for_how_long(
    status: int, retry_after: str | int, least_s: int, most_s: int
) -> None:
    if isinstance(retry_after, int):  # from now on, as a date
        retry_after = format_datetime(datetime.now(UTC) + timedelta(seconds=retry_after), usegmt=True)
    reason = b"\x08\x0e\x12\x0atoo \x1b much"  # google.rpc.Status
    with receiving(Said(status, reason, retry_after=retry_after)) as receiver:
        answer = Receiver.of(receiver.url, None).send(b"")
    assert least_s <= answer.wait_s <= most_s
    assert (answer.why.startswith(f"{status} "), answer.why.endswith(": too \x1b much")) == (True, True)


@contextlib.contextmanager
def pushing(url: str, tally: Tally) -> Iterator[Callable[[], None]]:
    """Push in a thread; yield what gives it a request."""
    ours, theirs = socket.socketpair()
    with ours, theirs, in_thread(lambda: push(Receiver.of(url, None), theirs, tally)):
        yield lambda: ours.sendall(framed(b"x"))
        ours.shutdown(socket.SHUT_WR)


def test_what_was_rejected_is_counted_and_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    answers = (response(3, "too old"), response(0, "deprecated"), response(1, "other"), response(0, "again"), b"")
    tally = Tally(PUSHED)
    with receiving(*[Said(body=each) for each in answers]) as receiver, pushing(receiver.url, tally) as give:
        for number in range(len(answers)):
            give()
            eventually(lambda wanted=number + 1: receiver.asked == wanted)
    assert tally["rejected"] == 4
    counts = "hopscope_otlp_rejected_points_total counts all of them"
    assert capsys.readouterr().err.splitlines() == [
        f"hopscope: {receiver.url} rejected 3 data points: too old; {counts}",
        f"hopscope: {receiver.url} takes what is pushed, and warns: deprecated",
    ]


@pytest.mark.parametrize("wait_s", [1, 300])
def test_a_receiver_that_wants_to_be_left_alone_is(capsys: pytest.CaptureFixture[str], wait_s: int) -> None:
    answers = Said(429, retry_after=str(wait_s)), Said()
    with receiving(*answers) as receiver, pushing(receiver.url, Tally(PUSHED)) as give:
        give()
        eventually(lambda: receiver.asked == 1)

        def is_taken() -> bool:
            give()
            return bool(receiver.requests)

        if wait_s == 1:
            eventually(is_taken)
        else:
            assert not any(is_taken() for _ in range(1000))
    said = capsys.readouterr().err.splitlines()
    assert (receiver.asked > 1) == (wait_s == 1)
    assert said[0].endswith(f"; it is tried again in {wait_s} s")


@pytest.mark.root
def test_it_is_pushed_until_the_end_whether_it_is_taken_or_not(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    words = (f"--otlp-token-file={token}", "--collect=sockets", "-i", 0.2)
    busy, rejects = Said(503), Said(body=response(2, "not these"))
    with receiving(busy, busy, rejects, Said()) as collector:
        url = collector.url
        with start("serve", f"--otlp={url}", *words, start_new_session=True) as child:
            assert child.stdout
            assert child.stderr
            assert child.stdout.readline() == f"pushing to {url}\n"
            eventually(lambda: "rejected_points_total" in str(pushed := _last(collector)) and _rejected(pushed) == 2)
            pids = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
            status = Path(f"/proc/{pids[1]}/status").read_text().splitlines()
            pushes = dict(line.split(":\t", 1) for line in status if ":\t" in line)
            child.send_signal(signal.SIGTERM)
            said = child.stderr.read().splitlines()
            assert child.wait() == 0
    assert (len(pids), pushes["Uid"].split()[1] != "0", int(pushes["CapBnd"], 16)) == (2, True, 0)
    assert [line.partition(f" {url}")[0] for line in said] == [
        "hopscope: metrics cannot be pushed to", "hopscope: metrics are pushed to", "hopscope:"
    ]  # fmt: skip
    assert "503 Service Unavailable" in said[0]
    last = collector.requests[-1]
    assert (last.path, last.token) == ("/v1/metrics", f"Bearer {TOKEN}")
    assert "hopscope_sockets" in metrics_of(last.body)


def _last(collector: Any) -> dict[str, Any]:  # noqa: ANN401
    return metrics_of(collector.requests[-1].body) if collector.requests else {}


def _rejected(metrics: dict[str, Any]) -> int:
    (point,) = metrics["hopscope_otlp_rejected_points_total"].sum.data_points
    return int(point.as_int)
