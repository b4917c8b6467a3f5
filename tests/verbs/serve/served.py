# SPDX-License-Identifier: Apache-2.0
"""A running `hopscope serve`, and a Prometheus that reads it."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.lab.command import HOPSCOPE, environ
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")


@dataclass
class Served:
    """A server that has something to read."""

    child: subprocess.Popen[str]
    port: int

    def get(self, path: str = "/metrics", **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    def samples(self) -> dict[tuple[str, str], float]:
        """Return name and labels → value, of all samples in the text form."""
        status, _, body = self.get()
        assert status == 200, body
        lines = [line for line in body.decode().splitlines() if not line.startswith("#")]
        found = {}
        for line in lines:
            name, labels, value = _SAMPLE.fullmatch(line).groups()  # type: ignore[union-attr]
            found[name, labels or ""] = float(value)
        assert len(found) == len(lines)
        return found

    def is_ready(self) -> bool:
        assert self.child.poll() is None
        try:
            return self.get("/readyz")[0] == 200
        except ConnectionError:
            return False

    def children(self) -> list[int]:
        folder = Path(f"/proc/{self.child.pid}/task/{self.child.pid}")
        return [int(each) for each in (folder / "children").read_text().split()]


@contextlib.contextmanager
def serving(*words: object, ready: bool = True, measures_all: bool = True, **changes: str) -> Iterator[Served]:
    """Run it on loopback without a terminal, until there is something to read; it ends well."""
    budget = ["--budget=none"] if measures_all else []
    argv = [*HOPSCOPE, "serve", "--listen=127.0.0.1:0", *budget, *map(str, words)]
    with subprocess.Popen(
        argv, env=environ(**changes), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        assert child.stdout
        assert child.stderr
        url = child.stdout.readline().strip()
        try:
            assert re.fullmatch(r"https?://127\.0\.0\.1:\d+/metrics", url), child.stderr.read()
            served = Served(child, int(urllib.parse.urlsplit(url).port or 0))
            if ready:
                eventually(served.is_ready)
            processes = served.children()
            yield served
        finally:
            child.send_signal(signal.SIGTERM)
            said = child.stderr.read()
            child.wait()
        assert (child.returncode, said) == (0, "")
        assert not [pid for pid in processes if Path(f"/proc/{pid}").exists()]


@dataclass
class Prometheus:
    """A running Prometheus."""

    port: int

    def ask(self, query: str) -> dict[str, float]:
        """Return the result of a query: its labels in JSON, sorted and without job and instance → value.

        Of a native histogram, the value is its count.
        """
        words = urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/query?{words}", timeout=60) as answer:
            document = json.load(answer)
        assert document["status"] == "success"
        return {_labels(each["metric"]): _value(each) for each in document["data"]["result"]}

    def exemplars(self, query: str) -> dict[str, list[tuple[str, float, float]]]:
        """Return the exemplars of a query of the last hour: labels as above → message, value and time of each."""
        words = urllib.parse.urlencode({"query": query, "start": time.time() - 3600, "end": time.time() + 3600})
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.port}/api/v1/query_exemplars?{words}", timeout=60
        ) as answer:
            document = json.load(answer)
        return {
            _labels(each["seriesLabels"]): [
                (one["labels"]["message"], float(one["value"]), float(one["timestamp"])) for one in each["exemplars"]
            ]
            for each in document["data"]
        }

    def one(self, query: str) -> float | None:
        """Return the only value; None where there is none."""
        found = self.ask(query)
        assert len(found) <= 1, found
        return next(iter(found.values()), None)


def _value(result: dict[str, Any]) -> float:
    return float(result["histogram"][1]["count"] if "histogram" in result else result["value"][1])


def _labels(metric: dict[str, Any]) -> str:
    return json.dumps({name: text for name, text in sorted(metric.items()) if name not in {"job", "instance"}})


@contextlib.contextmanager
def prometheus(folder: Path, jobs: dict[str, dict[str, Any]], *, native: bool = True) -> Iterator[Prometheus]:
    """Run one that reads these jobs several times a second, and stores native histograms or classic ones."""
    folder.mkdir()
    configs = [{"job_name": name, **job} for name, job in jobs.items()]
    document = {"global": {"scrape_interval": "250ms"}, "scrape_configs": configs}
    (folder / "prometheus.yml").write_text(json.dumps(document))  # which is YAML, too
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    argv = [
        "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
        f"--enable-feature=exemplar-storage{',native-histograms' if native else ''}",
    ]  # fmt: skip
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        found = Prometheus(port)

        def is_up() -> bool:
            assert child.poll() is None
            try:
                return bool(found.ask("up"))
            except OSError:
                return False

        try:
            eventually(is_up)
            yield found
        finally:
            child.terminate()
