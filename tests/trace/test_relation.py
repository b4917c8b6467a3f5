# SPDX-License-Identifier: Apache-2.0
"""Relations: each can be made of what it says that it needs, has the columns that it says, and is made once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from hopscope.errors import UsageError
from hopscope.store.schema import BY_NAME
from hopscope.store.trace import Trace
from hopscope.trace import relation as registry
from hopscope.trace.each_host import each_host
from hopscope.trace.relation import Relation, aliases, build, closure, columns, relations
from hopscope.trace.selection import Selection
from hopscope.verbs.report.relations_page import REPORTS
from tests.lab.recordings import Recording
from tests.lab.small_trace import small
from tests.lab.traces import MadeTrace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

assert REPORTS  # their relations are declared, too
NAMES = sorted(relations())


class Watched(Trace):
    """A trace that remembers what was made and dropped, and of what."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.queries: dict[str, str] = {}
        self.there: set[str] = set()
        self.makings: list[str] = []

    def make_table(self, name: str, query: str) -> None:
        super().make_table(name, query)
        self._remember(name, query)

    def make_view(self, name: str, query: str) -> None:
        super().make_view(name, query)
        self._remember(name, query)

    def drop(self, *names: str) -> None:
        super().drop(*names)
        self.there -= {*names}

    def drop_view(self, name: str) -> None:
        super().drop_view(name)
        self.there.discard(name)

    def _remember(self, name: str, query: str) -> None:
        self.queries[name] = query
        self.there.add(name)
        self.makings.append(name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small().write(tmp_path_factory.mktemp("relations") / "trace")


@pytest.fixture
def trace(folder: Path) -> Iterator[Watched]:
    with Watched(folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    recording = Recording(tmp_path_factory.mktemp("hosts") / "recording", "a", "b")
    for name in ("a", "b"):
        recording.part(name, small())
    recording.probe("a", "b", until_s=2)
    with recording.joined() as trace:
        return trace.folder


def test_each_relation_reads_what_it_needs_and_has_the_columns_that_it_says(trace: Watched) -> None:
    wrong = {}
    for name in NAMES:
        build(trace, name)
        declared = relations()[name]
        assert name in trace.there
        assert trace.names(f"SELECT * FROM {name}") == [*declared.columns], name
        queries = (trace.queries[each] for each in (name, *declared.scratch) if each in trace.queries)
        read = set().union(*map(trace.tables_of, queries)) & relations().keys()
        if more := read - {*declared.may_need}:
            wrong[name] = more
    assert not wrong


def test_all_relations_of_several_hosts_have_their_columns(joined: Path) -> None:
    with Trace(joined) as trace:
        for name in NAMES:
            build(trace, name)
            assert trace.names(f"SELECT * FROM {name}") == [*relations()[name].columns], name


def test_every_column_is_explained() -> None:
    for each in relations().values():
        assert each.row, each.name
        assert all(meaning for _, meaning in each.columns.values()), each.name


def test_none_needs_itself_and_every_need_is_there() -> None:
    for name in NAMES:
        assert closure(name)[-1] == name


def test_a_view_that_stays_reads_nothing_that_goes() -> None:
    for each in relations().values():
        if each.kind == "view" and not each.temporary:
            assert not [need for need in each.may_need if relations()[need].temporary], each.name


def test_earlier_names_are_views_of_the_same_rows(trace: Watched) -> None:
    for alias, name in aliases().items():
        build(trace, alias)
        count = "SELECT count(*) FROM {}".format
        assert trace.rows(count(alias)) == trace.rows(count(name))


def test_a_relation_is_made_once_for_a_selection(trace: Watched) -> None:
    build(trace, "messages", selection=Selection(ports=[80]))
    once = list(trace.makings)
    assert len(once) == len({*once})
    build(trace, "messages", "flow_names", selection=Selection(ports=[80]))
    assert trace.makings == [*once, "flow_names"]
    build(trace, "messages", selection=Selection(ports=[81]))
    again = trace.makings[len(once) + 1 :]
    assert "messages" in again
    assert not {"flow_translations", "flow_names"} & {*again}


def test_what_was_made_of_another_selection_is_made_anew(trace: Watched) -> None:
    build(trace, "ordered_messages", selection=Selection(ports=[80]))
    build(trace, "messages", selection=Selection(ports=[81]))
    assert "udp_ordered_messages" not in trace.made
    assert "flow_translations" in trace.made


def test_intermediate_tables_are_dropped(trace: Watched) -> None:
    build(trace, "exchanges")
    assert not [name for name in trace.there if name not in relations() or relations()[name].temporary]
    build(trace, "tcp_sends")
    assert "tcp_sends" in trace.there
    build(trace, "exchanges", selection=Selection(ports=[80]))
    assert "tcp_sends" not in trace.there


def test_nothing_is_made_that_a_trace_without_datagrams_needs_not(tmp_path: Path) -> None:
    made = MadeTrace()
    made.flow("10.0.0.1:40000", "10.0.0.2:80")
    with Watched(made.write(tmp_path / "t")) as trace:
        build(trace, "messages")
        assert not [name for name in trace.makings if name.startswith(("udp", "skb"))]


def test_relations_are_those_of_the_host_at_hand(joined: Path) -> None:
    with Trace(joined) as trace:
        counts = []
        for _ in each_host(trace):
            build(trace, "skb_steps")
            counts += trace.rows("SELECT count(*) FROM skb_steps")
        build(trace, "skb_steps")
        ((whole,),) = trace.rows("SELECT count(*) FROM skb_steps")
        assert sum(count for (count,) in counts) == whole > 0


def test_an_unknown_relation_is_one_sentence(trace: Watched) -> None:
    with pytest.raises(UsageError, match=r"^No relation is named nothing\. `hopscope sql TRACE --tables` lists them$"):
        build(trace, "nothing")


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> Iterator[partial[Relation]]:
    """Return what makes a relation that is known for the length of a test."""
    relations()
    monkeypatch.setattr(registry, "_RELATIONS", dict(relations()))
    monkeypatch.setattr(registry, "_ALIASES", dict(aliases()))
    yield partial(Relation, row="a test", columns={}, query=lambda _: "SELECT 1 AS one")
    closure.cache_clear()
    registry.depends_on.cache_clear()


def test_a_cycle_is_told_by_names(declared: partial[Relation]) -> None:
    for name, need in (("first", "second"), ("second", "third"), ("third", "first")):
        registry._register(declared(name, needs=(need,)))
    with pytest.raises(ValueError, match="relations need each other: first → second → third → first"):
        closure("first")


def test_a_need_that_is_no_relation_is_told(declared: partial[Relation]) -> None:
    registry._register(declared("first", needs=("second",)))
    with pytest.raises(ValueError, match="first needs second, which is no relation"):
        closure("first")


@pytest.mark.parametrize("name", ["packets", "points", "messages", "lives"])
def test_a_name_is_taken_once(declared: partial[Relation], name: str) -> None:
    with pytest.raises(ValueError, match=f"there is a relation {name} already"):
        registry._register(declared(name))


def test_columns_mean_the_same_everywhere_but_where_it_is_said() -> None:
    assert columns("flow time_ns") == {
        "flow": ("", "number of the flow (`flows`)"),
        "time_ns": ("ns", BY_NAME["packets"].columns[0].meaning),
    }
    assert columns("flow payload", flow="of the link")["flow"] == ("", "of the link")
    with pytest.raises(KeyError):
        columns("unheard_of")
