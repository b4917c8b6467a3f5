# SPDX-License-Identifier: Apache-2.0
"""What is pushed, as the messages of opentelemetry-proto read it, and how it is pushed."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from hopscope.errors import UsageError
from hopscope.model.histogram import Histogram
from hopscope.verbs.serve.family import Exemplar, Family
from hopscope.verbs.serve.otlp import request_of
from hopscope.verbs.serve.push import Receiver
from tests.lab.command import complaint, hopscope, start
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

STARTED_NS, NOW_NS = 1_700_000_000 * 10**9, 1_700_000_005 * 10**9
TOKEN = "0123456789abcdef"  # noqa: S105 # of this test


def metrics_of(request: bytes) -> dict[str, Any]:
    """Return the metrics of a request by their names."""
    (resource,) = ExportMetricsServiceRequest.FromString(request).resource_metrics
    about = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert about["service.name"] == "hopscope"
    (scope,) = resource.scope_metrics
    return {metric.name: metric for metric in scope.metrics}


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


class Collector(ThreadingHTTPServer):
    """A receiver that is busy at first."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, bytes]] = []
        self.answers = Counter[int]()
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:  # the library's name
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = 503 if self.server.answers.total() < 2 else 200
        self.server.answers[status] += 1
        if status == 200:
            self.server.requests.append((f"{self.path} {self.headers['Authorization']}", body))
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.mark.root
def test_it_is_pushed_until_the_end_whether_it_is_taken_or_not(collector: Collector, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    url = f"http://127.0.0.1:{collector.server_port}"
    words = (f"--otlp={url}", f"--otlp-token-file={token}", "--collect=sockets", "-i", 0.2)
    with start("serve", *words, start_new_session=True) as child:
        assert child.stdout
        assert child.stderr
        assert child.stdout.readline() == f"pushing to {url}\n"
        eventually(lambda: len(collector.requests) >= 2)
        pids = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        pushes = dict(
            line.split(":\t", 1) for line in Path(f"/proc/{pids[1]}/status").read_text().splitlines() if ":\t" in line
        )
        child.send_signal(signal.SIGTERM)
        said = child.stderr.read().splitlines()
        assert child.wait() == 0
    assert (len(pids), pushes["Uid"].split()[1] != "0", int(pushes["CapBnd"], 16)) == (2, True, 0)
    assert [line.partition(f" {url}")[0] for line in said] == [
        "hopscope: metrics cannot be pushed to", "hopscope: metrics are pushed to"
    ]  # fmt: skip
    assert "503 Service Unavailable" in said[0]
    where, body = collector.requests[-1]
    assert where == f"/v1/metrics Bearer {TOKEN}"
    assert "hopscope_sockets" in metrics_of(body)
