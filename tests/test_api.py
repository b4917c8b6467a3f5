# SPDX-License-Identifier: Apache-2.0
"""What programs may use: recordings, live measurements, and nothing internal in what we show them."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import re
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import hopscope
from hopscope.errors import FormatError, HopscopeError, UsageError
from hopscope.verbs.report.command import command as report_command
from hopscope.verbs.script.command import program
from tests.lab.command import environ
from tests.lab.command import hopscope as run
from tests.lab.measure import NetworkPath, ping, tcp_pair
from tests.shared import first
from tests.waiting import TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hopscope.lab import Lab

ROOT = Path(__file__).resolve().parent.parent
RECORDINGS = ROOT / "tests" / "recordings"
TRACE = RECORDINGS / "tcp-rx"
NO_CAPABILITIES = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
# A block of Python, and the block that says what it prints.
_BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n^```\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def recording() -> Iterator[hopscope.Recording]:
    with hopscope.open(TRACE) as opened:
        yield opened


def python(*words: object, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    argv = [*before, sys.executable, *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=environ())


# ---- recordings ----


def test_a_recording_says_what_it_is_of(recording: hopscope.Recording) -> None:
    (host,) = recording.hosts
    assert (host.name, host.kernel, host.machine) == ("recorder", "6.18.44-fc-v595", "x86_64")
    assert recording.started.isoformat() == "2026-11-22T19:54:01.894129+00:00"
    assert recording.duration == timedelta(seconds=1, microseconds=433033)
    assert (recording.lost, recording.warnings) == (0, [])


def test_what_is_lost_is_counted() -> None:
    with hopscope.open(RECORDINGS / "losses") as recording:
        assert recording.lost == int(recording["losses"].numpy()["lost"].sum()) > 0


def test_hosts_that_were_recorded_together_are_one_recording(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = shutil.copytree(RECORDINGS / "two-hosts", tmp_path / "two-hosts")
    with hopscope.open(folder) as recording:
        assert [host.name for host in recording.hosts] == ["a", "b"]
        assert {host.kernel for host in recording.hosts} == {"6.18.44-fc-v595"}
        assert len(recording["messages"]) > 0
    assert capfd.readouterr() == ("", "")


def test_each_relation_that_is_listed_can_be_read(recording: hopscope.Recording) -> None:
    assert {"packets", "points", "flow_names", "skb_lifetimes", "messages"} <= set(recording)
    for name, row in recording.relations().items():
        relation = recording[name]
        assert (relation.name, relation.row, bool(row)) == (name, row, True)
        assert len(relation) == len(relation.rows())
        assert list(relation.numpy()) == relation.columns


def test_rows_arrays_and_frames_are_the_same(recording: hopscope.Recording) -> None:
    pytest.importorskip("pyarrow", reason="pip install 'hopscope[test]'")
    pytest.importorskip("pandas", reason="pip install 'hopscope[test]'")
    found = recording.sql("SELECT flow, seq, NULL AS nothing FROM packets ORDER BY time_ns, seq LIMIT 50;")
    rows = found.rows()
    assert (len(rows), list(rows[0])) == (50, ["flow", "seq", "nothing"])
    arrays = found.numpy()
    assert arrays["flow"].tolist() == [row["flow"] for row in rows]
    assert np.ma.getmaskarray(arrays["nothing"]).all()
    assert found.arrow().to_pylist() == rows
    assert found.pandas()["seq"].tolist() == [row["seq"] for row in rows]


@pytest.mark.parametrize("module", ["pyarrow", "pandas"])
def test_a_library_that_is_missing_is_named(
    module: str, recording: hopscope.Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr("hopscope.api.relation.find_spec", lambda name: None if name == module else find(name))
    relation = recording["points"]
    with pytest.raises(UsageError, match=rf"^{module} is not installed\. pip install 'hopscope\["):
        getattr(relation, {"pyarrow": "arrow", "pandas": "pandas"}[module])()


def test_a_report_is_what_the_command_shows(recording: hopscope.Recording) -> None:
    report = recording.report("hops", port=[43423], limit=5)
    shown = run("report", "hops", "--csv", "--port", "43423", "--limit", "5", TRACE).stdout.splitlines()
    assert shown[0].split(",") == [column.name for column in report.columns]
    assert [line.split(",")[0] for line in shown[1:]] == report.column("hop")
    assert report.columns[3].unit == "count"


@pytest.mark.parametrize("name", sorted(report_command.commands))
def test_every_report_can_be_had(name: str, recording: hopscope.Recording) -> None:
    more: dict[str, dict[str, object]] = {
        "after": {"event": "rx.core"},
        "compare": {"other": recording},
        "netdev-times": {"rx": True},
    }
    if name == "network":
        with wrong(f"{TRACE} contains only one host"):
            recording.report(name)
        return
    report = recording.report(name, **more.get(name, {}))
    assert isinstance(report, hopscope.Report)
    rows = list(report.rows())
    assert (len(rows), {len(row) for row in rows} <= {len(report.columns)}) == (len(report), True)


def test_events_are_those_that_the_command_lists(recording: hopscope.Recording) -> None:
    report = recording.report("events", limit=100)
    shown = run("report", "events", "--csv", "--limit", "100", TRACE).stdout.splitlines()
    assert [line.split(",")[2] for line in shown[1:]] == report.column("point")


def test_a_relation_is_whole_after_a_report_of_a_part(recording: hopscope.Recording) -> None:
    messages = recording["messages"]
    before = len(messages)
    assert len(recording.report("messages", port=[43423])) < before
    assert len(messages) == len(recording["messages"]) == before


def wrong(message: str) -> contextlib.AbstractContextManager[pytest.ExceptionInfo[HopscopeError]]:
    return pytest.raises(UsageError, match=f"^{re.escape(message)}")


def test_wrong_use_is_one_sentence(recording: hopscope.Recording, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"is not a trace: it has no hopscope\.json\. `hopscope record -o DIR` makes"):
        hopscope.open(tmp_path)
    with wrong("There is no relation 'mesages'. Did you mean messages"):
        recording["mesages"]
    with wrong("There is no report 'hop'. Did you mean hops?"):
        recording.report("hop")
    with wrong("`hopscope report hops` has no option 'prt'. Did you mean port?"):
        recording.report("hops", prt=443)
    with wrong("Invalid value for '--port': 0 is not in the range"):
        recording.report("hops", port=0)
    with wrong("json says what `hopscope report hops` prints"):
        recording.report("hops", json=True)
    with wrong("netdev-times gives two reports: netdev-times.rx and netdev-times.tx. Ask for one"):
        recording.report("netdev-times")
    with wrong("compare needs a second recording"):
        recording.report("compare")
    with wrong("There is no query"):
        recording.sql(" ; ")
    with pytest.raises(UsageError, match="nope"):
        recording.sql("SELECT nope FROM packets")


def test_a_closed_recording_says_so() -> None:
    with hopscope.open(TRACE) as recording:
        packets = recording["packets"]
    recording.close()
    for read in (packets.rows, recording.relations, lambda: recording.report("hops")):
        with wrong(f"The recording {TRACE} is closed"):
            read()


# ---- live ----


@pytest.mark.root
def test_23_messages_are_23_in_a_program_s_snapshots(lab: Lab, veth: NetworkPath) -> None:
    namespaces = [lab.client.inode, lab.server.inode]
    with (
        tcp_pair(veth) as (sender, receiver),
        hopscope.live("rx", interval=0.2, netns=namespaces, port=receiver.getsockname()[1]) as rx,
    ):
        snapshots = iter(rx)
        next(snapshots)
        assert ping(sender, receiver, 23) == 23
        counts = {row.hop: row.histogram.count for row in next(snapshots).hops}
        assert counts["rx.tcp_read"] == 23
        assert {row.hop: row.histogram.count for row in rx.total().hops}["rx.tcp_read"] == 23
        assert "attached" in {row.status for row in rx.plan()}
    with wrong("Nothing is attached"):
        rx.total()
    with wrong("A live measurement can be used once"):
        next(iter(rx))


@pytest.mark.root
def test_every_message_of_a_flow_reaches_the_program(lab: Lab, veth: NetworkPath) -> None:
    namespaces = [lab.client.inode, lab.server.inode]
    with (
        tcp_pair(veth) as (sender, receiver),
        hopscope.live("tx", interval=0.3, events=True, netns=namespaces, port=receiver.getsockname()[1]) as tx,
    ):
        assert ping(sender, receiver, 7) == 7
        snapshots = iter(tx)
        found = []
        while len(found) < 7:
            next(snapshots)
            found += tx.messages()
    assert len(found) == 7
    assert all(message.total_ns is None or message.total_ns > 0 for message in found)


@pytest.mark.root
@pytest.mark.parametrize("verb", ["cpu", "drops", "counters", "sockets"])
def test_each_verb_gives_its_snapshots_for_the_duration(verb: str) -> None:
    snapshots = list(hopscope.live(verb, interval=0.1, duration=0.2))  # type: ignore[call-overload] # of one type each
    assert len(snapshots) == 2
    kinds = {"cpu": "CpuSnapshot", "drops": "DropSnapshot", "counters": "CounterSnapshot", "sockets": "SocketReport"}
    assert {type(each) for each in snapshots} == {getattr(hopscope, kinds[verb])}


@pytest.mark.root
@pytest.mark.parametrize("end", ["break", "raise"])
def test_it_is_detached_however_the_loop_ends(end: str) -> None:
    code = f"""
import os
import hopscope
def links():
    held = 0
    for each in os.listdir("/proc/self/fd"):
        try:
            held += "bpf_link" in os.readlink(f"/proc/self/fd/{{each}}")
        except FileNotFoundError:  # the listing's own
            pass
    return held
def loop():
    for _ in hopscope.live("drops", interval=0.1):
        global most
        most = links()
        {"return" if end == "break" else "raise RuntimeError"}
try:
    loop()
except RuntimeError:
    pass
print(most, links())"""
    done = python("-c", code)
    assert re.fullmatch(r"[1-9]\d* 0\n", done.stdout), done.stderr


def test_wrong_use_of_live_is_told_before_anything_is_attached() -> None:
    calls: dict[str, Callable[[], object]] = {
        "There is no live verb 'drop'. Did you mean drops?": lambda: hopscope.live("drop"),  # type: ignore[call-overload]
        "`hopscope rx` has no option 'prot'. Did you mean": lambda: hopscope.live("rx", prot=443),
        "host is for other hosts": lambda: hopscope.live("rx", host="a"),
        "plan says what `hopscope rx` prints": lambda: hopscope.live("rx", plan=True),
        "Invalid value for '-i' / '--interval'": lambda: hopscope.live("rx", interval=0),
        "since_entry is a flag": lambda: hopscope.live("rx", since_entry="yes"),
        "order of `hopscope rx` takes one value": lambda: hopscope.live("rx", order=["apart", "include"]),
        "slowest is for people": lambda: hopscope.live("tx", slowest=3),
    }
    for sentence, call in calls.items():
        with wrong(sentence):
            call()


@pytest.mark.root
def test_a_missing_right_is_one_sentence() -> None:
    done = python("-c", program("live"), before=NO_CAPABILITIES)
    assert (done.returncode, done.stdout) == (1, "")
    assert "missing: CAP_" in done.stderr
    assert len(done.stderr.splitlines()) == 1


# ---- the package ----


def test_import_is_cheap() -> None:
    done = python("-c", "import sys, hopscope; dir(hopscope); hopscope.HopscopeError; print(*sys.modules)")
    imported = set(done.stdout.split())
    assert "hopscope.errors" in imported
    assert imported & {"numpy", "duckdb", "click", "hopscope.api", "hopscope.libbpf"} == set()


def test_each_public_name_is_there_and_documented() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    for name in hopscope.__all__:
        assert getattr(hopscope, name)
        assert name.startswith("__") or f"`{name}" in page or f"hopscope.{name}" in page
    assert set(hopscope.__all__) <= set(dir(hopscope))
    with pytest.raises(AttributeError, match="has no attribute 'nope'"):
        _ = hopscope.nope  # type: ignore[attr-defined]


def test_live_is_the_function_although_a_package_has_its_name() -> None:
    done = python(
        "-c", "import hopscope.live.verb; import hopscope; print(hopscope.live.__name__, type(hopscope.live))"
    )
    assert done.stdout == "live <class 'function'>\n"


# ---- what we show ----

PAGES = sorted(path for path in (*ROOT.glob("docs/*.md"), *ROOT.glob("*.md")) if "```python" in path.read_text())
PROGRAMS = {
    **{path.name: path.read_text() for path in sorted((ROOT / "examples").glob("*.py"))},
    **{f"script --template {name}": program(name) for name in ("recording", "live")},
    **{path.name: "\n".join(block for block, _ in _BLOCK.findall(path.read_text())) for path in PAGES},
}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_what_is_shown_to_users_uses_public_names_alone(name: str) -> None:
    found = set()
    for node in ast.walk(ast.parse(PROGRAMS[name])):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "hopscope":
            found.add(f"hopscope.{node.attr}")
    ours = {each for each in found if each.partition(".")[0] == "hopscope"} - {"hopscope"}
    modules = ("hopscope.errors.", "hopscope.timestamping.")
    assert {
        each for each in ours if not each.startswith(modules) and each.removeprefix("hopscope.") not in hopscope.__all__
    } == set()


def test_blocks_of_the_page_print_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trace").symlink_to(TRACE)
    blocks = [(code, said) for code, said in _BLOCK.findall((ROOT / "docs" / "api.md").read_text()) if said]
    assert len(blocks) == 4
    for code, said in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "docs/api.md", "exec"), {})  # noqa: S102 # our own page
        assert printed.getvalue() == said


@pytest.mark.parametrize("name", first(["tcp-rx", "drops", "events", "udp"]))
def test_the_template_runs_on_any_recording(name: str, tmp_path: Path) -> None:
    printed = run("script", "--template")
    (tmp_path / "analysis.py").write_text(printed.stdout)
    done = python(tmp_path / "analysis.py", RECORDINGS / name)
    assert (done.returncode, done.stderr) == (0, "")
    for heading in ("Relations", "Hops", "The flows with most packets", "The slowest messages"):
        assert f"\n{heading}" in done.stdout
    if name == "tcp-rx":
        assert re.search(r"\n\nrx\.tcp_queue → rx\.copy, µs:\n +7\.7 to +18\.4 +53  #+\n", done.stdout)
        assert "8,011.7 µs  10.77.0.1:53324 > 10.77.0.2:43423, held longest by reader-runnable\n" in done.stdout


def test_the_template_refuses_what_is_no_recording(tmp_path: Path) -> None:
    (tmp_path / "analysis.py").write_text(run("script", "--template=recording").stdout)
    done = python(tmp_path / "analysis.py", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.root
def test_the_template_of_live_runs(tmp_path: Path) -> None:
    (tmp_path / "watch.py").write_text(run("script", "--template", "live").stdout)
    done = python(tmp_path / "watch.py", "1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\nThe whole time:\n" in done.stdout


def test_script_alone_is_its_help() -> None:
    assert run("script").stdout == run("script", "--help").stdout


def test_the_example_names_the_threads_that_ran() -> None:
    done = python(ROOT / "examples" / "slowest_messages.py", TRACE)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(r"  8,011\.7 µs  at 0\.738294 s, 2003 bytes, 10\.77\.0\.1:53324 > ", done.stdout)
    assert "client-6915\n" in done.stdout.splitlines(keepends=True)[1]
