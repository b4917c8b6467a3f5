# SPDX-License-Identifier: Apache-2.0
"""The same batches in object storage, of a real S3 server: moto's, in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hopscope.errors import UsageError
from hopscope.store.fleet.batches import batches_of, compact, keep
from hopscope.store.fleet.fleet import Fleet
from hopscope.store.fleet.objects import place_of
from hopscope.store.fleet.place import DOCUMENT
from hopscope.verbs.fleet.add import add_recording
from hopscope.verbs.serve.fleet_minutes import Minutes
from tests.lab.command import hopscope
from tests.store.fleet.test_batches import HOUR, NEVER, add, one
from tests.verbs.serve.test_fleet_minutes import FIRST, of, reading
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.store.fleet.place import Place

RECORDINGS = Path(__file__).resolve().parents[2] / "recordings"
MOTO = os.environ.get("HOPSCOPE_MOTO", sys.executable)
pytestmark = pytest.mark.skipif(
    sys.executable == MOTO and find_spec("moto") is None,
    reason="no S3 server: pip install 'moto[server]', or set HOPSCOPE_MOTO to a Python that has it",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    said = tmp_path_factory.mktemp("moto") / "said"
    with said.open("w") as out, pytest.MonkeyPatch.context() as patched:
        patched.setenv("AWS_ACCESS_KEY_ID", "testing")
        patched.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        with subprocess.Popen(
            [MOTO, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"], stdout=out, stderr=out
        ) as child:
            try:
                port = eventually(lambda: re.search(r"http://127\.0\.0\.1:(\d+)\n", said.read_text()))[1]
                yield f"127.0.0.1:{port}"
            finally:
                child.terminate()


@pytest.fixture
def url(server: str, request: pytest.FixtureRequest) -> str:
    made = f"s3://b{abs(hash(request.node.name))}/of/us?endpoint_override={server}&scheme=http&region=us-east-1"
    bucket_is(made, "PUT")
    return made


def bucket_is(url: str, method: str) -> None:
    """Have the bucket of an URL made (PUT), or be gone (DELETE)."""
    bucket, server = re.fullmatch(r"s3://(\w+)/.*endpoint_override=([\d.:]+)&.*", url).groups()  # type: ignore[union-attr]
    urllib.request.urlopen(urllib.request.Request(f"http://{server}/{bucket}", method=method), timeout=30).close()


def hours(url: str) -> int:
    with Fleet(url) as fleet:
        return int(fleet.rows("SELECT coalesce(sum(count), 0) FROM hop_hours")[0][0])


def objects(place: Place) -> list[str]:
    return [name.path for name in place.names()[0]]


def test_batches_are_added_once_packed_and_removed_as_in_a_directory(url: str, tmp_path: Path) -> None:
    place, local = place_of(url), place_of(tmp_path)
    for each in (place, local):
        for host in "abc":
            for hour in (HOUR, HOUR + 1):
                assert add(each, host, hour, one(hour * 60, 1000, 5000))
        assert not add(each, "a", HOUR, one(HOUR * 60, 1000, 5000))
    assert objects(place) == objects(local)
    for each in (place, local):
        assert compact(each, before_hour=HOUR + 1, grace_s=0) == (1, 3)
    assert objects(place) == objects(local)
    with Fleet(url) as fleet, Fleet(tmp_path) as beside:
        for table in ("hop_minutes", "hop_hours", "minutes"):
            query = f"SELECT * FROM {table} ORDER BY ALL"
            assert fleet.rows(query) == beside.rows(query)
    assert keep(place, since_hour=HOUR + 1) == (1, 0)
    assert hours(url) == 6


def test_batch_whose_document_is_not_there_does_not_count(url: str) -> None:
    place = place_of(url)
    for host in "ab":
        add(place, host, HOUR, one(HOUR * 60, 1000))
    name = place.names()[0][0]
    place._store.delete_file(place._object(name, DOCUMENT))  # type: ignore[attr-defined]
    assert len(batches_of(place).counted) == 1
    assert hours(url) == 1
    assert compact(place, before_hour=NEVER, grace_s=0) == (0, 0)
    assert len(place.names()[0]) == 2  # somebody may still be putting it


def test_commands_take_a_bucket(url: str, tmp_path: Path) -> None:
    assert hopscope("fleet", "hosts", url).returncode == 2  # there is nothing
    done = hopscope("fleet", "add", RECORDINGS / "two-hosts", RECORDINGS / "drops", "--to", url)
    assert done.returncode == 0, done.stderr
    hopscope("fleet", "add", RECORDINGS / "two-hosts", RECORDINGS / "drops", "--to", tmp_path)
    for words in (("hosts",), ("drops",), ("objective", "--hop", "message", "--above", "1ms")):
        answers = [hopscope("fleet", words[0], where, "--json", *words[1:]).stdout for where in (url, tmp_path)]
        assert answers[0] == answers[1] != ""
    assert "packed 3 batches of 1 hour" in hopscope("fleet", "compact", url).stdout


def test_service_keeps_what_the_storage_does_not_take(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    bucket_is(url, "DELETE")
    minutes = Minutes(url, "a", "boot", 8)
    minutes.add(reading(FIRST, core=of(1, 2)))
    minutes.write(everything=True)
    assert "it is tried again" in capsys.readouterr().err
    bucket_is(url, "PUT")
    minutes.write(everything=True)
    assert hours(url) == 2


def test_storage_that_is_not_there_is_one_sentence_without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    with pytest.raises(UsageError, match=r"^s3://bucket/x cannot be used: ") as raised:
        Fleet("s3://key:secret@bucket/x?endpoint_override=127.0.0.1:1&scheme=http&region=us-east-1")
    assert "secret" not in str(raised.value)


def test_recording_is_added_from_python(url: str) -> None:
    assert add_recording(place_of(url), RECORDINGS / "udp") == (1, 0)
    assert add_recording(place_of(url), RECORDINGS / "udp") == (0, 1)
