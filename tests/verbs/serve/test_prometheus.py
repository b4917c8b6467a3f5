# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus reads what is known: counts, sums and quantiles are the same there."""

from __future__ import annotations

import http.server
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hopscope.model.histogram import Histogram, lower_bounds_s, upper_bounds_s
from hopscope.verbs.serve.exposition import OPENMETRICS, PROTOBUF, openmetrics_of, protobuf_of, text_of
from hopscope.verbs.serve.family import Exemplar, Family
from tests.agent.certificates import Authority, agent_files, client_files
from tests.lab.command import only
from tests.lab.measure import ping, udp_pair, way
from tests.verbs.serve.served import prometheus, serving
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Lab
    from tests.verbs.serve.served import Prometheus, Served

pytestmark = pytest.mark.root
EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "prometheus"
S = 1_000_000_000
SENT = 1009
LOST = 23
TOKEN = "0123456789abcdef0123456789abcdef"  # noqa: S105 # of this test
ODD = 'a "quoted" \\ name\nof two lines'
# From what is too short for a bucket to what is longer than the longest one.
VALUES_NS = [0, 59, 60, *np.geomspace(100, 240 * S, 997).astype(np.int64).tolist(), 270 * S, 300 * S]
KNOWN = {
    "all": Histogram.from_values(VALUES_NS),
    "none": Histogram.empty(),
    "short": Histogram.from_values([0, 5]),
    "one": Histogram.from_values([1_000_000]),
    ODD: Histogram.from_values([1000, 1001, 10**9]),
}
# Of the one with one value, which is 1 ms; soon after now, as Prometheus takes no older ones for new.
EXEMPLAR = Exemplar("@1995808587948", 1_000_000, time.time_ns() // 1_000_000 * 1_000_000)
FAMILIES = [
    Family(
        "known_seconds",
        "histogram",
        "Known",
        ("kind",),
        {(kind,): each for kind, each in KNOWN.items()},
        {("one",): EXEMPLAR},
    ),
    Family("known_total", "counter", "Counted\nin two lines", ("kind",), {(ODD,): (1 << 53) - 1, ("b",): 7}),
    Family("known_ratio", "gauge", "A gauge", (), {(): -0.25}),
]


@pytest.fixture(scope="module")
def known() -> Iterator[int]:
    """Serve known families from this process, and yield the port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_protobuf = self.headers["Accept"].startswith("application/vnd.google.protobuf")
            body = protobuf_of(FAMILIES, time.time_ns()) if is_protobuf else openmetrics_of(FAMILIES)
            self.send_response(200)
            self.send_header("Content-Type", PROTOBUF if is_protobuf else OPENMETRICS)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def live(kept_lab: Lab) -> Iterator[Served]:
    with serving(*only(kept_lab), "--collect=rx", "--collect=drops", "-i", "0.3") as made:
        yield made


@pytest.fixture(scope="module")
def asked(known: int, live: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Return a Prometheus that reads known families, this host, and what is protected by certificates or a token."""
    folder = tmp_path_factory.mktemp("prometheus")
    authority = Authority.new(folder / "ca")
    own, theirs = agent_files(authority), client_files(authority)
    token_file = folder / "token"
    token_file.write_text(TOKEN)
    token_file.chmod(0o600)
    tls = ["--collect=check", "-i", "0.3", f"--tls-cert={own.certificate}", f"--tls-key={own.key}"]
    with (
        serving(*tls, f"--tls-ca={own.authority}", "--allow=oncall", ready=False) as mutual,
        serving(*tls, f"--token-file={token_file}", ready=False) as bearing,
    ):
        trusting = {"ca_file": str(own.authority)}
        shown = {"cert_file": str(theirs.certificate), "key_file": str(theirs.key)}
        jobs = {
            "known": _job(known),
            "live": _job(live.port),
            "mutual": _job(mutual.port) | {"scheme": "https", "tls_config": trusting | shown},
            "token": _job(bearing.port)
            | {"scheme": "https", "tls_config": trusting, "authorization": {"credentials_file": str(token_file)}},
            "stranger": _job(mutual.port) | {"scheme": "https", "tls_config": trusting},
            "guesser": _job(bearing.port)
            | {"scheme": "https", "tls_config": trusting, "authorization": {"credentials": TOKEN[:-1]}},
            "open": _job(mutual.port),
        }
        with prometheus(folder / "data", jobs) as made:
            yield made


def _job(port: int) -> dict[str, Any]:
    return {"static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}


@pytest.mark.parametrize("kind", KNOWN)
def test_known_histograms_are_the_same_there(asked: Prometheus, kind: str) -> None:
    histogram = KNOWN[kind]
    quoted = kind.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    series = f'known_seconds{{kind="{quoted}"}}'
    eventually(lambda: asked.ask(f"histogram_count({series})"))
    assert asked.one(f"histogram_count({series})") == histogram.count
    assert asked.one(f"histogram_sum({series})") == histogram.sum_ns / S
    for percent in (1, 25, 50, 90, 99):
        found = asked.one(f"histogram_quantile({percent / 100}, {series})")
        assert _is_within(histogram, percent, found), (percent, found)


def _is_within(histogram: Histogram, percent: float, found_s: float | None) -> bool:
    """Tell whether a quantile is in the bucket that holds it; where there are no samples, whether it is none."""
    place = histogram._place(percent)
    if place is None or found_s is None:
        return place is None and (found_s is None or bool(np.isnan(found_s)))
    lower_s, upper_s = lower_bounds_s()[place[0]], upper_bounds_s()[place[0]]
    if not histogram.counts[1:].any():
        lower_s = -upper_s  # Prometheus cannot know that none is negative
    return bool(lower_s * (1 - 1e-12) <= found_s <= upper_s * (1 + 1e-12))


def _of_the_exemplar(asked: Prometheus) -> set[tuple[str, float, float]]:
    """Return the exemplars there, of whichever series of the histogram."""
    found = eventually(lambda: asked.exemplars('{__name__=~"known_seconds.*"}'))
    assert all('"kind": "one"' in labels for labels in found)
    return {each for series in found.values() for each in series}


def test_an_exemplar_is_the_same_there_in_either_form(known: int, asked: Prometheus, tmp_path: Path) -> None:
    expected = {(EXEMPLAR.message, EXEMPLAR.value_ns / S, EXEMPLAR.at_ns / S)}
    assert _of_the_exemplar(asked) == expected
    with prometheus(tmp_path / "classic", {"known": _job(known)}, native=False) as classic:
        assert _of_the_exemplar(classic) == expected
        assert classic.one('known_seconds_count{kind="one"}') == 1
        assert sorted(classic.ask("known_total").values()) == [7, (1 << 53) - 1]


def test_what_is_longer_than_the_longest_bucket_is_counted_there(asked: Prometheus) -> None:
    eventually(lambda: asked.ask('histogram_count(known_seconds{kind="all"})'))
    share = asked.one('histogram_fraction(256, +Inf, known_seconds{kind="all"})')
    assert share == pytest.approx(2 / len(VALUES_NS), rel=1e-9)


def test_counters_and_gauges_are_the_same_there(asked: Prometheus) -> None:
    eventually(lambda: asked.ask("known_total"))
    assert sorted(asked.ask("known_total").values()) == [7, (1 << 53) - 1]
    assert asked.one("known_ratio") == -0.25


def test_known_traffic_is_counted_to_the_packet(asked: Prometheus, live: Served, kept_lab: Lab) -> None:
    series = 'hopscope_receive_hop_seconds{hop="rx.udp_total"}'
    with (
        udp_pair(way(kept_lab, "veth-4")) as pair,
        kept_lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as stray,
    ):
        assert ping(*pair, SENT) == SENT
        for _ in range(LOST):
            stray.sendto(b"x", ("10.77.0.2", 9))
    dropped = 'reason="NO_SOCKET",location="__udp4_lib_rcv"'
    eventually(lambda: live.samples().get(("hopscope_dropped_packets_total", dropped)) == LOST)
    own = live.samples()
    labels = 'hop="rx.udp_total",unit="packet"'
    assert own["hopscope_receive_hop_seconds_count", labels] == SENT
    eventually(lambda: asked.one(f"histogram_count({series})") == SENT)
    assert asked.one(f"histogram_sum({series})") == own["hopscope_receive_hop_seconds_sum", labels]
    eventually(lambda: asked.one(f"hopscope_dropped_packets_total{{{dropped}}}") == LOST)
    for part in (0.5, 0.99):
        found = asked.one(f"histogram_quantile({part}, {series})")
        assert found
        lower_s, upper_s = _classic_bucket(own, labels, part * SENT)
        assert lower_s <= found <= upper_s


def _classic_bucket(own: dict[tuple[str, str], float], labels: str, rank: float) -> tuple[float, float]:
    prefix = f'{labels},le="'
    buckets = [(float(each.removeprefix(prefix).rstrip('"')), count) for (name, each), count in own.items()
               if name == "hopscope_receive_hop_seconds_bucket" and each.startswith(prefix)]  # fmt: skip
    assert 32 <= len(buckets) <= 36
    at = next(number for number, (_, count) in enumerate(buckets) if count >= rank)
    return (buckets[at - 1][0] if at else 0.0), buckets[at][0]


def test_who_has_a_certificate_or_the_token_reads_and_nobody_else(asked: Prometheus) -> None:
    jobs = {"mutual": 1, "token": 1, "stranger": 0, "guesser": 0, "open": 0}
    eventually(lambda: all(asked.one(f'up{{job="{job}"}}') is not None for job in jobs))
    eventually(lambda: [asked.one(f'up{{job="{job}"}}') for job in jobs] == list(jobs.values()))


def test_promtool_finds_nothing_to_blame(live: Served) -> None:
    for text in (live.get()[2], text_of(FAMILIES)):
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
        assert (done.returncode, done.stderr, done.stdout) == (0, b"", b"")


def test_examples_are_valid() -> None:
    for words in (("rules", "alerts.yml"), ("config", "--syntax-only", "prometheus.yml")):
        done = subprocess.run(["promtool", "check", *words], cwd=EXAMPLES, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
