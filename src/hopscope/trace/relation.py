# SPDX-License-Identifier: Apache-2.0
"""Relations over a recording: tables and views in SQL, each declared with the relations that it reads.

A relation is a function that returns a query, decorated with :func:`relation`, or a constant query (:func:`fixed`).
:func:`build` creates the requested relations and those that they need, each once per open trace and per value of the
parameters on which it depends, in the order given by ``needs``. The tables of the trace itself, ``points`` and
``reasons`` already exist.

A ``temporary`` relation is dropped as soon as the last relation of the same :func:`build` that reads it has been
created: with 100 million events, an intermediate table takes gigabytes. It is kept if it was requested by name.

Scratch tables are not relations: they are used by a query that needs a loop whose number of steps depends on the data
(a packet forwarded by several routers, a flow that was translated several times), and have no meaning before the loop
ends. Such a table is listed in ``scratch`` of the relation that creates it, and dropped when that has been created.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from hopscope.errors import UsageError
from hopscope.progress import doing
from hopscope.store.schema import BY_NAME
from hopscope.trace.relation_columns import MEANINGS
from hopscope.trace.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hopscope.store.trace import Trace

Kind: TypeAlias = "Literal['view', 'table']"
# A column's unit (empty: none) and meaning.
Meaning: TypeAlias = "tuple[str, str]"

GIVEN: Final = frozenset({*BY_NAME, "points", "reasons"})
SELECTION: Final = "selection"


@dataclass(frozen=True, slots=True)
class Context:
    """The inputs of a query.

    Attributes
    ----------
    trace
        The trace, in which everything that the relation needs has been created.
    parameters
        Parameters declared by the relation; None: not given.
    """

    trace: Trace
    parameters: Mapping[str, Any]

    @property
    def selection(self) -> Selection:
        """The selected part of the trace; everything if none was given."""
        return self.parameters[SELECTION] or Selection()

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 # of whatever type the report gives
        return self.parameters[name]


Query: TypeAlias = "Callable[[Context], str]"
Condition: TypeAlias = "Callable[[Context], bool]"


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or view that can be derived from a trace.

    Attributes
    ----------
    name
        Name in SQL.
    row
        Meaning of a row.
    columns
        Name → unit and meaning, in the order of the query.
    query
        Returns it.
    kind
        A table is computed once, a view whenever it is read.
    needs
        Relations that the query reads.
    needs_if
        Relations that it reads if the condition holds.
    parameters
        Parameters of the context on which it depends directly.
    temporary
        Whether it is dropped when nothing in the same build needs it any more.
    aliases
        Earlier names, which are also available as views.
    scratch
        Tables left by its query that nothing else reads.
    report
        The only report that uses it, as it depends on its options; empty: independent of reports.
    """

    name: str
    row: str
    columns: Mapping[str, Meaning]
    query: Query
    kind: Kind = "table"
    needs: tuple[str, ...] = ()
    needs_if: Mapping[str, Condition] = field(default_factory=dict)
    parameters: tuple[str, ...] = ()
    temporary: bool = False
    aliases: tuple[str, ...] = ()
    scratch: tuple[str, ...] = ()
    report: str = ""

    @property
    def may_need(self) -> tuple[str, ...]:
        """Everything that it may read, for any trace and parameters."""
        return (*self.needs, *self.needs_if)


_RELATIONS: Final[dict[str, Relation]] = {}
_ALIASES: Final[dict[str, str]] = {}


def relations() -> Mapping[str, Relation]:
    """Return name → relation: those of :mod:`hopscope.trace.relations`, and of imported reports."""
    import_module("hopscope.trace.relations")  # not at the top, because the modules that it imports import this one
    return _RELATIONS


def aliases() -> Mapping[str, str]:
    """Return earlier name → name."""
    relations()
    return _ALIASES


def relation(name: str, row: str, columns: Mapping[str, Meaning], **declared: Any) -> Callable[[Query], Query]:  # noqa: ANN401 # as Relation has them
    """Declare the relation whose query the decorated function returns."""

    def declare(query: Query) -> Query:
        _register(Relation(name, row, columns, query, **declared))
        return query

    return declare


def fixed(name: str, row: str, columns: Mapping[str, Meaning], query: str, **declared: Any) -> None:  # noqa: ANN401 # as Relation has them
    """Declare a relation whose query depends on nothing."""
    _register(Relation(name, row, columns, lambda _: query, **declared))


def columns(*names: str, **own: str | Meaning) -> dict[str, Meaning]:
    """Return columns with their units and meanings.

    Parameters
    ----------
    names
        Names in order, separated by spaces.
    own
        Name → meaning, or unit and meaning, of columns whose meaning differs from
        :data:`hopscope.trace.relation_columns.MEANINGS`, or that only this relation has.
    """
    meanings = {name: own[name] if name in own else MEANINGS[name] for name in " ".join(names).split()}
    return {name: (unit_of(name), text) if isinstance(text, str) else text for name, text in meanings.items()}


def unit_of(name: str) -> str:
    """Return the unit at the end of a column's name; empty: none."""
    return {"ns": "ns", "bytes": "bytes", "byte": "byte"}.get(name.rpartition("_")[2], "")


def _register(new: Relation) -> None:
    taken = {*_RELATIONS, *_ALIASES, *GIVEN} & {new.name, *new.aliases}
    if taken:
        raise ValueError(f"there is a relation {min(taken)} already")
    _RELATIONS[new.name] = new
    _ALIASES.update(dict.fromkeys(new.aliases, new.name))


def build(trace: Trace, *names: str, selection: Selection | None = None, **parameters: Any) -> None:  # noqa: ANN401 # as queries want them
    """Create relations, and those that they need, unless they already exist.

    Parameters
    ----------
    trace
        The trace.
    names
        Names of relations; earlier names are allowed.
    selection, parameters
        Inputs of the relations.

    Raises
    ------
    UsageError
        There is no such relation, or a query is invalid.
    """
    relations()
    given = {SELECTION: selection, **parameters}
    wanted = [_known(_ALIASES.get(name, name)).name for name in names]
    order = _order(trace, wanted, given)
    last = _last_users(order, set(wanted))
    for place, each in enumerate(order):
        doing(f"making the relation {each.name} ({place + 1} of {len(order)})", share=trace.share_done)
        _make(trace, each, given)
        for name in last.get(place, ()):
            _drop(trace, _RELATIONS[name])
    if order:
        doing("querying the relations", share=trace.share_done)
    for name in names:
        if name in _ALIASES:
            trace.make_view(name, f"SELECT * FROM {_ALIASES[name]}")


def _known(name: str, needed_by: str = "") -> Relation:
    if name not in _RELATIONS:
        if needed_by:
            raise ValueError(f"{needed_by} needs {name}, which is no relation")
        raise UsageError(f"No relation is named {name}", "`hopscope sql TRACE --tables` lists them")
    return _RELATIONS[name]


def _context(trace: Trace, each: Relation, given: Mapping[str, Any]) -> Context:
    return Context(trace, {name: given.get(name) for name in each.parameters})


def _key(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters on which a relation depends, directly or through others, with their values."""
    return {each: given.get(each) for each in depends_on(name)}


@cache
def depends_on(name: str) -> tuple[str, ...]:
    """Return the parameters on which a relation may depend, directly or through others."""
    return tuple(dict.fromkeys(each for other in closure(name) for each in _RELATIONS[other].parameters))


@cache
def closure(name: str) -> tuple[str, ...]:
    """Return a relation and all that it may need, in a valid order of creation.

    Raises
    ------
    ValueError
        Relations need each other, or one that does not exist.
    """
    return tuple(_walk(name, lambda each: each.may_need))


def _walk(name: str, needs: Callable[[Relation], Sequence[str]]) -> list[str]:
    """Return a relation and all that it needs, dependencies first."""
    found: dict[str, None] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            circle = (*path[path.index(name) :], name)
            raise ValueError(f"relations need each other: {' → '.join(circle)}")
        if name not in found:
            for need in needs(_known(name, path[-1] if path else "")):
                if need not in GIVEN:
                    visit(need, (*path, name))
            found[name] = None

    visit(name, ())
    return list(found)


def _order(trace: Trace, wanted: Sequence[str], given: Mapping[str, Any]) -> list[Relation]:
    """Return the relations to be created, in order."""

    def is_made(name: str) -> bool:
        return name in trace.made and trace.made[name] == _key(name, given)

    def needs(each: Relation) -> Sequence[str]:
        if is_made(each.name):
            return ()
        context = _context(trace, each, given)
        return *each.needs, *(name for name, holds in each.needs_if.items() if holds(context))

    found = dict.fromkeys(name for each in wanted for name in _walk(each, needs))
    return [_RELATIONS[name] for name in found if not is_made(name)]


def _last_users(order: Sequence[Relation], kept: set[str]) -> dict[int, list[str]]:
    """Return position in the order → temporary relations that no later one reads.

    Whatever a view reads is kept until the view is dropped.
    """
    until: dict[str, int] = {}
    for each in reversed(order):
        if each.kind == "view" and (each.name in kept or not each.temporary):
            kept = kept | set(each.may_need)
    for place, each in reversed(list(enumerate(order))):
        end = max(place, until.get(each.name, place)) if each.kind == "view" else place
        for need in each.may_need:
            until[need] = max(until.get(need, 0), end)
    made = {each.name for each in order if each.temporary and each.name not in kept}
    found: dict[int, list[str]] = {}
    for name in made & until.keys():
        found.setdefault(until[name], []).append(name)
    return {place: sorted(names) for place, names in found.items()}


def _make(trace: Trace, each: Relation, given: Mapping[str, Any]) -> None:
    for name in _stale(trace, each):
        del trace.made[name]
    make = trace.make_view if each.kind == "view" else trace.make_table
    make(each.name, each.query(_context(trace, each, given)))
    trace.drop(*each.scratch)
    trace.made[each.name] = _key(each.name, given)


def _stale(trace: Trace, each: Relation) -> Iterator[str]:
    """Iterate over relations derived from an earlier version of these, which is about to be replaced."""
    if each.name in trace.made:
        yield from [name for name in trace.made if each.name in closure(name)]


def _drop(trace: Trace, each: Relation) -> None:
    if each.kind == "view":
        trace.drop_view(each.name)
    else:
        trace.drop(each.name)
    trace.made.pop(each.name, None)
