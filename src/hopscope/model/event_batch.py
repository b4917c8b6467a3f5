# SPDX-License-Identifier: Apache-2.0
"""Events as columns, and which of them a condition selects."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from hopscope.model.condition import Comparison, Joined, Not
from hopscope.model.event_fields import BY_NAME, Kind, is_in_network

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from hopscope.model.condition import Condition, Sign


def _has_one_of(values: NDArray[Any], bits: int) -> NDArray[np.bool_]:
    """Return which numbers have a bit of these; a column may be of a type that has none of them."""
    signed = (bits + (1 << 63)) % (1 << 64) - (1 << 63)
    found: NDArray[np.bool_] = (values.astype(np.int64, copy=False) & signed) != 0
    return found


_SIGNS: Final[dict[Sign, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "&": _has_one_of,
}


@dataclass(frozen=True, slots=True)
class Numbers:
    """A column of numbers.

    Attributes
    ----------
    values : ndarray of an integer type, shape (n,)
        0 where it is not known.
    known : ndarray of bool, shape (n,), or None
        Where it is; None: everywhere.
    """

    values: NDArray[Any]
    known: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True)
class Texts:
    """A column of texts, each of which is kept once.

    Attributes
    ----------
    codes : ndarray of an integer type, shape (n,)
        Place in `names`; -1: it is not known.
    names
        The texts.
    """

    codes: NDArray[Any]
    names: list[str]


class Columns(Protocol):
    """Events by columns."""

    def __len__(self) -> int:
        """Return how many."""

    def column(self, name: str) -> Numbers | Texts:
        """Return a column of :data:`~hopscope.model.event_fields.FIELDS`, or of those that a tracepoint has."""


def selected(condition: Condition, events: Columns) -> NDArray[np.bool_]:
    """Return which events a condition selects.

    Parameters
    ----------
    condition
        As :func:`~hopscope.model.event_fields.event_condition` returns it.
    events
        The events.

    Returns
    -------
    ndarray of bool, shape (n,)
        Whether each is.
    """
    match condition:
        case Comparison(field, sign, value):
            return _compared(events.column(field), field, sign, value)
        case Not(inner):
            return ~selected(inner, events)
        case Joined(both, left, right):
            found = selected(left, events)
            if both and not found.any():
                return found
            other = selected(right, events)
            return found & other if both else found | other


def _compared(column: Numbers | Texts, field: str, sign: Sign, value: Any) -> NDArray[np.bool_]:  # noqa: ANN401 # as its kind
    if isinstance(column, Numbers):
        # Tracepoints may have text in a field that others have as a number.
        if isinstance(value, str):
            return np.zeros(len(column.values), bool)
        found: NDArray[np.bool_] = _SIGNS[sign](column.values, value)
        return found if column.known is None else found & column.known
    if field in BY_NAME and BY_NAME[field].kind is Kind.ADDRESS:
        names = [is_in_network(name, value) == (sign == "==") for name in column.names]
    else:
        names = [isinstance(value, str) and _SIGNS[sign](name, value) for name in column.names]
    # The last one is that of -1.
    chosen: NDArray[np.bool_] = np.array([*names, False], bool)[column.codes]
    return chosen
