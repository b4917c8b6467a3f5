# SPDX-License-Identifier: Apache-2.0
"""``hopscope fleet`` as users have it: recordings in, answers out, and a sentence where there is none."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hopscope.store.fleet.fleet import Fleet
from hopscope.store.fleet.place import Place
from hopscope.store.trace import Trace
from hopscope.verbs.fleet.add import add_recording
from tests.lab.command import complaint, hopscope, objects, printed

if TYPE_CHECKING:
    from bench.made_fleet import Planted

RECORDINGS = Path(__file__).resolve().parents[2] / "recordings"


@pytest.mark.parametrize("name", ["drops", "losses", "udp"])
def test_recording_is_added_once_with_all_of_its_hops_messages_and_drops(name: str, tmp_path: Path) -> None:
    trace, folder = RECORDINGS / name, tmp_path
    assert add_recording(Place(folder), trace)[1] == 0
    assert add_recording(Place(folder), trace)[0] == 0
    with Fleet(folder) as fleet:
        found = dict(fleet.rows("SELECT hop, CAST(sum(list_sum(counts)) AS BIGINT) FROM hop_hours GROUP BY hop"))
        sums = dict(fleet.rows("SELECT hop, CAST(sum(sum_ns) AS BIGINT) FROM hop_minutes GROUP BY hop"))
        dropped = set(fleet.rows("SELECT reason, CAST(sum(count) AS BIGINT) FROM drops GROUP BY 1"))
        ((lost,),) = fleet.rows("SELECT sum(lost) FROM minutes")
        ((measured_ns,),) = fleet.rows("SELECT sum(measured_ns) FROM minutes")
    reported = objects(printed("report", "hops", "--json", trace))
    assert {hop: count for hop, count in found.items() if hop != "message"} == {
        f"{row['from_point']}:{row['to_point']}": row["count"] for row in reported
    }
    assert {hop: count for hop, count in sums.items() if hop != "message"} == {
        f"{row['from_point']}:{row['to_point']}": row["sum_ns"] for row in reported
    }
    messages = objects(printed("report", "messages", "--json", trace))
    read = [row for row in messages if row["rx_read_ns"] is not None or row["rx_received_ns"] is not None]
    assert found.get("message", 0) == len(read)
    with Trace(trace) as opened:
        assert lost == opened.rows("SELECT coalesce(sum(lost), 0) FROM losses")[0][0]
        assert measured_ns == (opened.metadata.ended_ns or 0) - opened.metadata.started_ns
        reasons = opened.rows(
            "SELECT coalesce(r.name, CAST(d.reason AS STRING)), count(*) FROM drops d"
            " LEFT JOIN reasons r ON r.reason = d.reason GROUP BY 1"
        )
    assert dropped == set(reasons)


def test_each_host_of_a_recording_of_several_is_added(tmp_path: Path) -> None:
    done = hopscope("fleet", "add", RECORDINGS / "two-hosts", "--to", tmp_path / "fleet")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.endswith("two-hosts: 2 batches\n")
    found = objects(printed("fleet", "hosts", "--json", tmp_path / "fleet"))
    assert [row["host"] for row in found] == ["a", "b"]
    assert all(row["kernel"] == "6.18.44-fc-v595" for row in found)


def test_compact_keeps_every_answer(tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    hopscope("fleet", "add", RECORDINGS / "two-hosts", RECORDINGS / "drops", "--to", folder)
    before = hopscope("fleet", "drops", folder, "--csv").stdout
    assert before.count("\n") > 1
    assert (
        hopscope("fleet", "compact", folder).stdout
        == "packed 3 batches of 1 hour; removed 0 batches and 0 recordings\n"
    )
    assert hopscope("fleet", "drops", folder, "--csv").stdout == before
    assert hopscope("fleet", "compact", folder, "--older-than", "1h").stdout == (
        "packed 0 batches of 0 hours; removed 4 batches and 0 recordings\n"
    )


@pytest.mark.parametrize(
    "words",
    [
        ("hosts",), ("differs",), ("differs", "--by", "kernel"), ("drops",), ("drops", "--by", "rack"),
        ("objective", "--hop", "HOP", "--above", "2us", "--by", "role"), ("began", "--hop", "HOP", "--hosts", "LATE"),
        ("common",),
    ],
)  # fmt: skip
def test_answer_fits_a_terminal(words: tuple[str, ...], planted: tuple[Path, Planted]) -> None:
    folder, truth = planted
    argv = [{"HOP": truth.hop, "LATE": truth.late}.get(word, word) for word in words]
    lines = hopscope("fleet", *argv, folder).stdout.splitlines()
    assert lines[0] == "2026-11-20 00:00 to 2026-11-21 00:00 UTC"
    assert max(map(len, lines)) <= 80


def test_csv_has_the_rows_of_json(planted: tuple[Path, Planted]) -> None:
    found = objects(hopscope("fleet", "differs", planted[0], "--json").stdout)
    table = list(csv.DictReader(hopscope("fleet", "differs", planted[0], "--csv").stdout.splitlines()))
    assert [row["group"] for row in table] == [row["group"] for row in found]
    assert {"schema", *table[0]} == set(found[0])


def test_common_is_of_what_differs(planted: tuple[Path, Planted]) -> None:
    folder, truth = planted
    assert "features eth0 rx-gro" in hopscope("fleet", "common", folder, "--hop", truth.hop).stdout
    assert "features eth0 rx-gro" in hopscope("fleet", "common", folder, "--hosts", ",".join(truth.slow)).stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("hosts", "nowhere"), r"nowhere is no directory\. `hopscope fleet add"),
        (("compact", "nowhere"), r"nowhere has no histograms of a fleet\. `hopscope fleet add"),
        (("differs", "FLEET", "--hop", "rx.nothing"), r"has no hop rx\.nothing\. It has .*tx\.queue:tx\.start"),
        (("differs", "FLEET", "--by", "colour"), r"not say which colour .* knows kernel, driver, rack, role"),
        (("began", "FLEET", "--hosts", "host-9", "--hop", "tx.start"), r"has no host host-9 .* It has host-00000"),
        (("hosts", "FLEET", "--from", "2020-01-01", "--until", "2020-01-02"), r"nothing of that time: it has 2026"),
        (("hosts", "FLEET", "--from", "2026-11-20T10", "--until", "2026-11-20T09"), r"--from is not before --until"),
        (("common", "FLEET", "--hosts", "host-00001", "--hop", "tx.start"), r"--hop is for the hosts"),
        (("objective", "FLEET", "--hop", "tx.start", "--above", "10"), r"'10' is not a duration, e\.g\. 500us or 10ms"),
        (("add", "FLEET", "--to", "other"), r"is not a trace: it has no hopscope\.json"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_said_in_one_sentence(
    words: tuple[str, ...], sentence: str, planted: tuple[Path, Planted], tmp_path: Path
) -> None:
    places = {"nowhere": tmp_path / "nowhere", "FLEET": planted[0], "other": tmp_path / "other"}
    done = hopscope("fleet", *(places.get(word, word) for word in words))
    said = complaint(done, done.returncode)
    assert done.returncode

    assert re.search(sentence, said), said


def refusal(*words: object) -> str:
    done = hopscope(*words)
    assert done.returncode
    return complaint(done, done.returncode)


def test_empty_directory_and_a_single_host_say_what_to_do(tmp_path: Path) -> None:
    assert "has no histograms of a fleet" in refusal("fleet", "hosts", tmp_path)
    (tmp_path / "hist").mkdir()
    assert "is empty" in refusal("fleet", "hosts", tmp_path)
    add_recording(Place(tmp_path), RECORDINGS / "drops")
    assert "1 host in that time, and 3 are needed" in refusal("fleet", "differs", tmp_path)


def test_labels_that_are_no_table_are_named(tmp_path: Path) -> None:
    add_recording(Place(tmp_path), RECORDINGS / "drops")
    (tmp_path / "hosts.csv").write_text("name,rack\na,1\n")
    assert "hosts.csv has no column host" in refusal("fleet", "hosts", tmp_path)
