# SPDX-License-Identifier: Apache-2.0
"""Asks a fleet, by whichever engine."""

from __future__ import annotations

import importlib.util
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from hopscope.errors import HopscopeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from hopscope.store.fleet.raw import Leaf
    from hopscope.verbs.fleet.raw.answer import Answer, Found
    from hopscope.verbs.fleet.raw.asked import Asked

# Answers a question on traces.
Engine: TypeAlias = "Callable[[Asked, Sequence[Leaf]], Found]"


def ask(fleet: Path, asked: Asked, hosts: Sequence[str], engine: Engine) -> Answer:
    """Answer a question.

    Parameters
    ----------
    fleet
        The directory.
    asked, hosts
        The question, and names of hosts, or patterns, that it is about; none: all.
    engine
        One of those below.

    Raises
    ------
    UsageError
        There is no such fleet, or nothing of such hosts or that time.
    HopscopeError
        Something that the engine needs is not there.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise HopscopeError("There is no pyarrow, which fleets need", "Install it: pip install 'hopscope[arrow]'")
    from hopscope.verbs.fleet.raw.answer import answer, chosen  # noqa: PLC0415 # which need it

    leaves, foreign = chosen(fleet, asked, hosts)
    return answer(asked.asked, engine(asked, leaves), foreign)


def here(processes: int | None = None) -> Engine:
    """Return the engine of this machine, of so many processes; None: as there are CPUs."""

    def run(asked: Asked, leaves: Sequence[Leaf]) -> Found:
        from hopscope.verbs.fleet.raw.local import found_here  # noqa: PLC0415

        return found_here(asked, leaves, processes)

    return run


def on_session(session: SparkSession) -> Engine:
    """Return the engine of a session of Spark."""
    from hopscope.verbs.fleet.raw.spark import found_on_spark  # noqa: PLC0415

    return partial(found_on_spark, session)


def on_master(master: str) -> Engine:
    """Return the engine of a master of Spark, with a session of its own for each question."""

    def run(asked: Asked, leaves: Sequence[Leaf]) -> Found:
        from hopscope.verbs.fleet.raw.spark import found_on_spark, session_at  # noqa: PLC0415

        session = session_at(master)
        try:
            return found_on_spark(session, asked, leaves)
        finally:
            session.stop()

    return run
