# SPDX-License-Identifier: Apache-2.0
"""A receiver of OpenTelemetry that keeps what it is sent, and answers as it is told."""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PROTOBUF = "application/x-protobuf"


class Said(NamedTuple):
    """An answer."""

    status: int = 200
    body: bytes = b""
    kind: str = PROTOBUF
    retry_after: str = ""


class Received(NamedTuple):
    """A request that was answered with 200."""

    path: str
    token: str | None
    body: bytes


class Receiver(ThreadingHTTPServer):
    """Gives the answers one after the other; the last one stays.

    Attributes
    ----------
    requests
        Those that were answered with 200; the last one alone, if `keeps_last`.
    asked
        How many requests there were.
    """

    def __init__(self, answers: Sequence[Said], *, keeps_last: bool = False) -> None:
        self.answers = list(answers)
        self.keeps_last = keeps_last
        self.requests: list[Received] = []
        self.asked = 0
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:  # the library's name
        server = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        said = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
        server.asked += 1
        if said.status == 200:
            kept = [] if server.keeps_last else server.requests
            server.requests = [*kept, Received(self.path, self.headers["Authorization"], body)]
        self.send_response(said.status)
        for name, value in (("Content-Type", said.kind), ("Retry-After", said.retry_after)):
            if value:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(said.body)))
        self.end_headers()
        self.wfile.write(said.body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def receiving(*answers: Said, keeps_last: bool = False) -> Iterator[Receiver]:
    """Run one; without answers, it takes all."""
    with Receiver(answers or (Said(),), keeps_last=keeps_last) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        try:
            yield made
        finally:
            made.shutdown()
            thread.join()


def metrics_of(request: bytes) -> dict[str, Any]:
    """Return the metrics of a request by their names."""
    (resource,) = ExportMetricsServiceRequest.FromString(request).resource_metrics
    about = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert about["service.name"] == "hopscope"
    (scope,) = resource.scope_metrics
    return {metric.name: metric for metric in scope.metrics}
