# SPDX-License-Identifier: Apache-2.0
"""Every question is answered by this machine and by Spark's executors, two processes, and all cells are compared."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hopscope.errors import HopscopeError
from hopscope.verbs.fleet.raw.asked import Asked
from hopscope.verbs.fleet.raw.asking import ask, here, on_session
from hopscope.verbs.fleet.raw.questions import QUESTIONS
from tests.lab.fleets import host, long_trace, put
from tests.lab.small_trace import small

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.store.fleet.raw import Leaf

pytest.importorskip("pyspark.sql", reason="no Spark here: pip install pyspark")
pytestmark = [
    pytest.mark.skipif(shutil.which("java") is None, reason="no Java here, which Spark needs: 17 or 21"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.spark,
]
RECORDINGS = Path(__file__).parents[3] / "recordings"


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    from hopscope.verbs.fleet.raw.spark import session_at  # noqa: PLC0415 # it needs pyspark

    made = session_at("local-cluster[2,1,1024]")
    made.sparkContext.setLogLevel("OFF")
    yield made
    gateway = made.sparkContext._gateway
    made.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a fleet with something of everything: losses, a recorder that was killed, and what cannot be read."""
    folder = tmp_path_factory.mktemp("spark")
    kept = (each for each in sorted(RECORDINGS.iterdir()) if each.name not in {"apart", "expected", "runs"})
    put(folder / "fleet", *(each for each in kept if each.is_dir()))
    put(folder / "fleet", *(long_trace(folder / name, name, seed=seed) for seed, name in enumerate(("w1", "w2"))))
    made = small()
    for name in ("damaged", "cut off"):
        made.host = host(name)
        (leaf,) = put(folder / "fleet", made.write(folder / name))
        _spoil(leaf)
    (folder / "fleet" / "raw" / "something else").mkdir()
    return folder / "fleet"


def _spoil(leaf: Leaf) -> None:
    (file,) = (leaf.folder / "packets").iterdir()
    data = file.read_bytes()
    file.write_bytes(data[:4] + bytes(60) + data[64:] if leaf.host == "damaged" else data[:-9])


def _executors(session: Any) -> int:  # noqa: ANN401 # pyspark's
    return int(session.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1  # without the driver


@pytest.mark.parametrize("limit", [None, 3])
@pytest.mark.parametrize("lines_of", ["fleet", "host"])
@pytest.mark.parametrize("name", QUESTIONS)
def test_spark_answers_what_this_machine_does(
    name: str,
    lines_of: str,
    limit: int | None,
    fleet: Path,
    session: Any,  # noqa: ANN401 # pyspark's
) -> None:
    asked = Asked(name, lines_of == "host", limit=limit, most=limit or 1000)
    ours, theirs = (ask(fleet, asked, (), engine) for engine in (here(2), on_session(session)))
    assert _executors(session) == 2
    names = [column.name for column in ours.report.columns]
    for row, other in zip(ours.report.rows(), theirs.report.rows(), strict=True):
        assert dict(zip(names, other, strict=True)) == dict(zip(names, row, strict=True))
    assert len(ours.report) >= 2
    assert list(theirs.report.notes) == list(ours.report.notes)
    assert theirs.report.heading == ours.report.heading
    assert theirs.report.left_out == ours.report.left_out
    assert not theirs.complete
    assert not ours.complete
    for reason in ("host=damaged/", "host=cut%20off/", "the recorder was killed", "something else: not in the answer"):
        assert sum(reason in note for note in theirs.report.notes) == 1


def test_times_and_hosts_are_those_that_were_asked_for(fleet: Path, session: Any) -> None:  # noqa: ANN401 # pyspark's
    leaves = put(fleet.parent / "more", fleet.parent / "w1")
    from hopscope.store.fleet.raw import hour_ns  # noqa: PLC0415 # of this one test

    asked = Asked("hops", from_ns=hour_ns(leaves[1].hour), until_ns=hour_ns(leaves[2].hour))
    ours, theirs = (ask(fleet, asked, ["w*"], engine) for engine in (here(2), on_session(session)))
    assert list(theirs.report.rows()) == list(ours.report.rows())
    assert theirs.report.heading[0].startswith("2 hosts, 2 recordings, 7,200.0 s")


def test_executors_of_another_version_are_refused(
    fleet: Path,
    session: Any,  # noqa: ANN401 # pyspark's
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hopscope.verbs.fleet.raw.spark.__version__", "9.8")
    with pytest.raises(HopscopeError, match=r"the driver 9\.8"):
        ask(fleet, Asked("hosts"), (), on_session(session))
