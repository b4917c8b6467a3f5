# SPDX-License-Identifier: Apache-2.0
"""``hopscope cdf`` on files made up here: it needs no root."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from hopscope.model.histogram import Histogram
from hopscope.model.snapshot import HopRow, Overhead, Snapshot
from hopscope.term.json_lines import line, to_json
from tests.lab.command import complaint, hopscope, objects, printed

RECORDINGS = Path(__file__).resolve().parents[2] / "recordings"


def written(path: Path, **hops_us: int) -> Path:
    """Write a run whose hops took so long, a hundred times each."""
    rows = [
        HopRow(f"tx.{hop}", "a", "b", "message", {}, Histogram.from_values([1_000 * us] * 100))
        for hop, us in hops_us.items()
    ]
    path.write_text(line(to_json(Snapshot("tx", "total", 0, 1.0, rows, Overhead(0, None, None, 0.0, 0)))) + "\n")
    return path


def test_two_runs_are_compared(tmp_path: Path) -> None:
    before, after = written(tmp_path / "before.jsonl", ack=40), written(tmp_path / "after.jsonl", ack=100)
    done = hopscope("cdf", "tx.ack", before, after)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:2] == [
        "A  before.jsonl: 100 samples, mean 40.0µs, max 40.0µs",
        "B  after.jsonl: 100 samples, mean 100µs, max 100µs",
    ]
    assert "p99   40.0µs  100µs   2.50" in lines
    assert "p99 is 2.50 times as long" in done.stdout
    assert max(map(len, lines)) <= 80


def test_two_hops_of_a_run_are_compared(tmp_path: Path) -> None:
    done = hopscope("cdf", "tx.sched,tx.ack", written(tmp_path / "run.jsonl", sched=5, ack=100))
    assert [each.split()[1] for each in done.stdout.splitlines()[:2]] == ["tx.sched:", "tx.ack:"]


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    paths = [written(tmp_path / folder / "run.jsonl", ack=5) for folder in ("a", "b")]
    found = hopscope("cdf", "tx.ack", *paths, COLUMNS="160").stdout.splitlines()
    assert [each.split()[1] for each in found[:2]] == [f"{path}:" for path in paths]


def test_picture_is_written(tmp_path: Path) -> None:
    picture = tmp_path / "run.svg"
    done = hopscope("cdf", "tx.ack", written(tmp_path / "run.jsonl", ack=5), "--svg", picture)
    assert (done.returncode, done.stderr) == (0, "")
    assert ET.parse(picture).getroot().tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314 - our own


@pytest.mark.skipif(os.getuid() != 0, reason="becoming nobody needs root")
def test_nobody_may_compare() -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own is closed to others
        Path(folder).chmod(0o755)
        run = written(Path(folder) / "run.jsonl", ack=5)
        done = hopscope("cdf", "tx.ack", run, before=("setpriv", "--reuid=65534", "--clear-groups"))
    assert (done.returncode, done.stderr) == (0, "")


def test_recordings_have_the_packets_and_messages_of_their_reports() -> None:
    tcp, udp = RECORDINGS / "tcp-rx", RECORDINGS / "udp"
    found = hopscope("cdf", "message", tcp, udp).stdout.splitlines()[:2]
    wanted = [
        sum(
            None not in (row["tx_send_ns" if row["protocol"] == "tcp" else "tx_queue_ns"], row["rx_received_ns"])
            for row in objects(printed("report", "messages", "--json", each))
        )
        for each in (tcp, udp)
    ]
    # Messages that were seen at one point alone have no duration, and others no beginning or no end.
    said = complaint(hopscope("cdf", "message", RECORDINGS / "losses"), 2)
    assert "has no message from its send call to its read" in said
    assert [re.sub(r"samples.*", "", line) for line in found] == [
        f"A  tcp-rx: {wanted[0]} ", f"B  udp: {wanted[1]} ",
    ]  # fmt: skip
    hops = objects(printed("report", "hops", "--group-by", "interface", "--json", tcp))
    said = hopscope("cdf", "rx.core:rx.l4,rx.core", "--group-by", "interface", tcp, COLUMNS="160").stdout
    assert sorted(re.findall(r"^\w  (\S.*) (\S+): (\d+) samples", said, re.MULTILINE)) == sorted(
        (row["interface"], f"{row['from_point']}:{row['to_point']}", str(row["count"]))
        for row in hops
        if row["to_point"] in {"rx.core", "rx.l4"}
    )


def test_wrong_input_is_one_sentence(tmp_path: Path) -> None:
    run = written(tmp_path / "run.jsonl", ack=5)
    cut = tmp_path / "cut.jsonl"
    cut.write_text(run.read_text()[:-20])
    assert complaint(hopscope("cdf", "tx.ack", run, cut), 1).startswith(f"{cut} is cut off in line 1. ")
    assert complaint(hopscope("cdf", "tx.ack", tmp_path / "none"), 2).endswith("Name the output of a run with --json")
    assert complaint(hopscope("cdf", "tx.nope", run), 2) == f"{run} has no hop tx.nope. It has tx.ack"
    assert complaint(hopscope("cdf", "tx.ack", *[run] * 7), 2).startswith("A plot has room for at most 6 curves")
    assert complaint(hopscope("cdf", "tx.ack", run, "--group-by", "flow"), 2).startswith(f"{run} is no recording")
    udp = RECORDINGS / "udp"
    assert complaint(hopscope("cdf", "nope", udp), 2).startswith(
        f"{udp} has no hop nope. It has message, tx.queue:tx.start, "
    )
    assert complaint(hopscope("cdf", "message", udp, "--group-by", "cpu"), 2).startswith(
        "Messages are not grouped by cpu"
    )
    assert "No such file or directory" in complaint(hopscope("cdf", "tx.ack", run, "--svg", "/nowhere/x.svg"), 2)
