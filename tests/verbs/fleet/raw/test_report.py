# SPDX-License-Identifier: Apache-2.0
"""``hopscope fleet add --raw`` and ``report``: what is asked for is in the answer, and what cannot be is named."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hopscope as package
from hopscope.errors import HopscopeError, UsageError
from hopscope.store.fleet.raw import Raw
from hopscope.store.meta import FILE
from hopscope.verbs.fleet.raw import local
from hopscope.verbs.fleet.raw.asked import Asked
from hopscope.verbs.fleet.raw.asking import ask, here
from hopscope.verbs.fleet.raw.command import NAMES
from hopscope.verbs.fleet.raw.question import unpacked
from hopscope.verbs.fleet.raw.questions import QUESTIONS
from tests.lab.command import hopscope
from tests.lab.fleets import FULL_HOUR, HOUR, SECOND, change, host, in_process, long_trace, put
from tests.lab.small_trace import small
from tests.lab.traces import REALTIME_NS, STARTED_NS

if TYPE_CHECKING:
    from hopscope.store.fleet.raw import Leaf

NEXT = FULL_HOUR + HOUR


def _small(folder: Path, name: str) -> Path:
    made = small()
    made.host = host(name)
    made.add("readings", time_ns=STARTED_NS, until_ns=STARTED_NS)
    return made.write(folder)


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    for name in ("web-1", "web-2", "db"):
        put(tmp_path / "fleet", _small(tmp_path / name, name))
    return tmp_path / "fleet"


def test_the_command_names_all_questions() -> None:
    assert tuple(QUESTIONS) == NAMES


def test_recordings_are_kept_and_asked(tmp_path: Path) -> None:
    for name in ("a", "b"):
        _small(tmp_path / name, name)
    fleet = tmp_path / "fleet"
    kept = hopscope("fleet", "add", "--raw", str(tmp_path / "a"), str(tmp_path / "b"), "--to", str(fleet))
    assert kept.returncode == 0
    assert len(kept.stdout.splitlines()) == 2
    again = hopscope("fleet", "add", "--raw", str(tmp_path / "a"), "--to", str(fleet))
    assert (again.returncode, again.stdout) == (0, "")
    assert "it is there already" in again.stderr
    found = hopscope("fleet", "report", "hops", str(fleet))
    assert found.returncode == 0
    assert found.stdout.splitlines()[0] == "2 hosts, 2 recordings, 20.0 s all together"
    of_both = hopscope("fleet", "report", "hops", str(fleet), "--json", "--group-by", "host")
    rows = [json.loads(line) for line in of_both.stdout.splitlines()]
    assert sorted({row["host"] for row in rows}) == ["a", "b"]
    assert {row["schema"] for row in rows} == {"hopscope.report.fleet.report.hops/1"}
    assert hopscope("report", "summary", kept.stdout.splitlines()[0]).returncode == 0


def test_what_is_not_kept_is_named_and_the_rest_is_kept(tmp_path: Path) -> None:
    first = _small(tmp_path / "a", "a")
    hopscope("fleet", "add", "--raw", str(first), "--to", str(tmp_path / "fleet"))
    change(first, started_ns=STARTED_NS + 5)
    other = _small(tmp_path / "b", "b/../c")
    kept = hopscope("fleet", "add", "--raw", str(first), str(other), "--to", str(tmp_path / "fleet"))
    assert kept.returncode == 1
    assert "not kept: " in kept.stderr
    assert "overlaps with host=a/" in kept.stderr
    (line,) = kept.stdout.splitlines()
    assert "host=b%2F..%2Fc" in line


def _damage(leaf: Path) -> None:
    (file,) = (leaf / "packets").iterdir()
    data = bytearray(file.read_bytes())
    data[4:64] = bytes(60)
    file.write_bytes(data)


def _of_another_version(leaf: Path) -> None:
    document = json.loads((leaf / FILE).read_text())
    del document["checksum"]
    (leaf / FILE).write_text(json.dumps({**document, "version": 99}))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_damage, "packets/000001.parquet is damaged"),
        (_of_another_version, "version 99"),
        (lambda leaf: (leaf / FILE).unlink(), "it has no hopscope.json"),
        (lambda leaf: change(leaf, state="recording"), "the recorder was killed"),
    ],
)
def test_a_recording_that_is_not_whole_is_named(spoil: object, reason: str, fleet: Path) -> None:
    leaf = next((fleet / "raw" / "host=web-2").glob("*/*"))
    spoil(leaf)  # type: ignore[operator] # a function
    found = hopscope("fleet", "report", "hops", str(fleet), "--json", "--group-by", "host")
    assert found.returncode == 1
    (said,) = [line for line in found.stderr.splitlines() if line.startswith("hopscope: host=web-2/boot=")]
    assert reason in said
    hosts = {json.loads(line)["host"] for line in found.stdout.splitlines()}
    assert hosts - {"web-2"} == {"db", "web-1"}
    assert ("web-2" in hosts) == ("killed" in reason)


def test_what_is_no_recording_is_named(fleet: Path) -> None:
    (fleet / "raw" / "host=web-1" / "core").mkdir()
    found = hopscope("fleet", "report", "hops", str(fleet), "--csv")
    assert found.returncode == 1
    assert "host=web-1/core: not in the answer" in found.stderr


def test_a_process_that_dies_costs_the_recording_that_it_read(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    added = local._Pool._read

    def killed(pool: local._Pool, process: subprocess.Popen[bytes], leaf: Leaf) -> bool:
        if leaf.host == "web-1":
            process.kill()
            process.wait()
        return added(pool, process, leaf)

    monkeypatch.setattr(local._Pool, "_read", killed)
    found = ask(fleet, Asked("hosts"), (), here(2))
    assert found.report.column("host") == ["db", "web-2"]
    assert not found.complete
    (said,) = [note for note in found.report.notes if "host=web-1" in note]
    assert "the process that read it was killed by SIGKILL" in said


def test_a_process_that_reads_for_the_command_is_confined(fleet: Path) -> None:
    (leaf, *_), _ = Raw(fleet).leaves()
    told = json.dumps([1, True, asdict(Asked("hosts"))])
    argv = [sys.executable, "-P", "-m", local.__name__, told]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([leaf.host, leaf.name, str(leaf.folder)]).encode() + b"\n")
        process.stdin.flush()
        rows = unpacked(local._received(process.stdout))
        assert rows.column("host").to_pylist() == [leaf.host]
        assert "Seccomp:\t2" in Path(f"/proc/{process.pid}/status").read_text()


def test_without_any_process_left_all_recordings_are_named(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_MODULE", "hopscope.no_such_module")
    found = ask(fleet, Asked("hosts"), (), here(2))
    assert len(found.report) == 0
    assert sorted(note.partition("/")[0] for note in found.report.notes) == ["host=db", "host=web-1", "host=web-2"]


def test_limits_are_those_that_were_asked_for(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hopscope.store.limits._ROWS", 5)
    found = ask(fleet, Asked("hosts"), (), in_process)
    assert (len(found.report), found.complete) == (0, False)
    assert all("more than 5, the limit" in note for note in found.report.notes)
    assert len(ask(fleet, Asked("hosts", limits=1e6), (), in_process).report) == 3


def test_hosts_and_times_are_chosen(fleet: Path, tmp_path: Path) -> None:
    def hosts(*names: str, **times: int) -> list[object]:
        return ask(fleet, Asked("hosts", **times), names, in_process).report.column("host")

    assert hosts() == ["db", "web-1", "web-2"]
    assert hosts("web-*") == ["web-1", "web-2"]
    assert hosts("db", "web-1") == ["db", "web-1"]
    with pytest.raises(UsageError, match="has no host nobody"):
        hosts("nobody")
    assert hosts(from_ns=REALTIME_NS + SECOND) == ["db", "web-1", "web-2"]
    with pytest.raises(UsageError, match=r"It has 2026-01-02T03 to 2026-01-02T03"):
        hosts(until_ns=REALTIME_NS - HOUR)
    put(fleet, long_trace(tmp_path / "long", "old"))

    def count(**times: int) -> int:
        rows = ask(fleet, Asked("hops", **times), ["old"], in_process).report.named_rows()
        return sum(int(row["count"] or 0) for row in rows)

    bounds = [None, *(REALTIME_NS + at for at in (FULL_HOUR, NEXT - SECOND, NEXT, NEXT + SECOND)), None]
    parts = [
        count(**{name: at for name, at in (("from_ns", begin), ("until_ns", end)) if at is not None})
        for begin, end in pairwise(bounds)
    ]
    assert sum(parts) == count()
    assert min(parts) > 0


def test_without_pyarrow_it_says_what_to_install(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(HopscopeError, match=r"hopscope\[arrow\]"):
        ask(fleet, Asked("hops"), (), here())


def test_a_program_asks_as_the_command_does(fleet: Path) -> None:
    shown = hopscope(
        "fleet", "report", "hops", str(fleet), "--json", "--group-by", "host", "--hosts", "web-*", "--limit", "2"
    )
    found = package.fleet_report(
        fleet, "hops", group_by="host", hosts=["web-*"], limit=2, from_=datetime(2026, 1, 2, 3, tzinfo=UTC)
    )
    assert found.left_out > 0
    for row, line in zip(found.named_rows(), shown.stdout.splitlines(), strict=True):
        assert {"schema": "hopscope.report.fleet.report.hops/1", **row} == json.loads(line)
    with pytest.raises(UsageError, match="drops"):
        package.fleet_report(fleet, "drop")
    with pytest.raises(UsageError, match="rack"):
        package.fleet_report(fleet, "drops", group_by="rack")


def test_wrong_times_are_refused(fleet: Path) -> None:
    found = hopscope("fleet", "report", "hops", str(fleet), "--from", "yesterday")
    assert found.returncode == 2
    assert "'yesterday' is not a time" in found.stderr
