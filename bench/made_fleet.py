# SPDX-License-Identifier: Apache-2.0
"""A fleet's histograms from those of one recording, with effects of known truth planted.

Each host has its own small difference, hours that resemble each other, and the day's load. Besides: hosts with a slower
hop that share a setting, one more that became so within the time; a driver that drops; hosts that start anew, are not
measured for a while, or whose clocks are minutes off.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from hopscope.model.histogram import SLOTS, thresholds_ns
from hopscope.store.fleet.batches import add_relations, identity, writing_engine
from hopscope.store.fleet.place import Place
from hopscope.store.fleet.schema import DRIVER, KERNEL, MINUTES_OF_HOUR, NS_OF_MINUTE, PROGRAM
from hopscope.store.trace import Trace
from hopscope.trace.selection import Selection
from hopscope.verbs.report.hops import hops_by

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

# 2026-11-20 00:00 UTC.
FIRST_HOUR: Final = 498_648
SLOW_FACT: Final = "features eth0 rx-gro"
DROPPING: Final = "ixgbe"
_DRIVERS: Final = ("mlx5_core", DROPPING, "virtio_net", "ena")
_KERNELS: Final = ("6.12.63", "6.18.44")
_ROLES: Final = ("web", "database", "cache")
_REASONS: Final = ("NO_SOCKET", "TCP_OLD_DATA")
_PLACES: Final = ("__udp4_lib_rcv", "tcp_rcv_established")
# In slots, of which eight are a doubling: how hosts spread, their hours, and the day's load.
_HOSTS_SPREAD: Final = 0.35
_HOURS_SPREAD: Final = 0.35
_HOURS_SIMILAR: Final = 0.6
_DAYS_SWING: Final = 1.5


@dataclass(frozen=True, slots=True)
class Planted:
    """What is known of a fleet that was made.

    Attributes
    ----------
    slow
        Hosts with a slower hop.
    hop
        Which.
    late, began
        One more that became so within the time, and the minute since 1970, by its clock.
    samples
        Durations in all histograms.
    """

    slow: list[str]
    hop: str
    late: str
    began: int
    samples: int


@dataclass(slots=True)
class Recipe:
    """How to make it.

    Attributes
    ----------
    hosts, hours
        How many.
    per_minute
        Durations of a hop, host and minute on average.
    slow
        How many hosts have a slower hop.
    slower
        By how many slots, of which eight are a doubling.
    seed
        Of all that is due to chance.
    """

    hosts: int
    hours: int = 24
    per_minute: int = 2000
    slow: int = 7
    slower: float = 4.0
    seed: int = 1
    shapes: dict[str, NDArray[np.float64]] = field(default_factory=dict)


def shapes_of(recording: Path, most: int = 6) -> dict[str, NDArray[np.float64]]:
    """Return hop → the share of each slot, of a recording's hops with most samples, smoothed as they are few."""
    with Trace(recording) as trace:
        found = {":".join(ends): sum(each.values(), start=next(iter(each.values())) - next(iter(each.values())))
                 for ends, each in hops_by(trace, Selection(), "0").items()}  # fmt: skip
    kernel = np.exp(-0.5 * (np.arange(-6, 7) / 2.5) ** 2)
    busiest = sorted(found, key=lambda hop: -found[hop].count)[:most]
    shapes = {hop: np.convolve(found[hop].counts, kernel, "same") for hop in busiest}
    return {hop: shape / shape.sum() for hop, shape in shapes.items()}


def make(folder: Path, recipe: Recipe) -> Planted:
    """Fill a directory, hour by hour, and return what is known of it."""
    random = np.random.default_rng(recipe.seed)
    hosts = np.array([f"host-{number:05}" for number in range(recipe.hosts)])
    chosen = random.choice(recipe.hosts, recipe.slow + 1, replace=False)
    slow, late = np.sort(chosen[1:]), int(chosen[0])
    began = (FIRST_HOUR + recipe.hours * 5 // 8) * MINUTES_OF_HOUR + 17
    _write_labels(folder, hosts, random)
    world = _World(recipe, hosts, slow, late, began, random)
    samples = 0
    for hour in range(FIRST_HOUR, FIRST_HOUR + recipe.hours):
        samples += world.write(Place(folder), hour)
    hop = next(iter(recipe.shapes))
    names = [str(hosts[each]) for each in slow]
    return Planted(names, hop, str(hosts[late]), began + world.shift(late), samples)


def _write_labels(folder: Path, hosts: NDArray[np.str_], random: np.random.Generator) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    roles = random.choice(_ROLES, len(hosts))
    lines = [f"{host},rack-{number // 20:03},{roles[number]}" for number, host in enumerate(hosts)]
    (folder / Place.LABELS).write_text("\n".join(["host,rack,role", *lines, ""]), encoding="utf-8")


class _World:
    """The hosts, and how they go on from hour to hour."""

    def __init__(  # noqa: PLR0913, PLR0917 # what `make` has found out
        self,
        recipe: Recipe,
        hosts: NDArray[np.str_],
        slow: NDArray[np.int64],
        late: int,
        began: int,
        random: np.random.Generator,
    ) -> None:
        count = recipe.hosts
        self._recipe, self._hosts, self._random = recipe, hosts, random
        self._slow = np.isin(np.arange(count), slow)
        self._late, self._began = late, began
        self._shapes = np.stack(list(recipe.shapes.values()))
        self._hops = np.array(list(recipe.shapes))
        self._own = random.normal(0, _HOSTS_SPREAD, (count, len(self._hops)))
        self._state = random.normal(0, _HOURS_SPREAD, (count, len(self._hops)))
        self._load = random.lognormal(0, 0.6, count)
        self._boots = np.zeros(count, np.int64)
        self._driver = random.integers(0, len(_DRIVERS), count)
        self._kernel = random.integers(0, len(_KERNELS), count)
        # Those that are slow have a setting that few of the others have.
        self._has_fact = self._slow | (random.random(count) < 0.01)
        few = random.permutation(count)
        self._reboots = dict.fromkeys(few[: count // 50].tolist(), 0)
        for host in self._reboots:
            self._reboots[host] = FIRST_HOUR + int(random.integers(1, max(recipe.hours, 2)))
        self._absent = {
            host: FIRST_HOUR + int(random.integers(0, recipe.hours)) for host in few[count // 50 : count // 20].tolist()
        }
        self._shift = np.zeros(count, np.int64)
        off = few[count // 20 : count // 20 + max(count // 100, 1)]
        self._shift[off] = random.integers(-9, 10, len(off))

    def shift(self, host: int) -> int:
        """Return how many minutes the clock of a host is ahead."""
        return int(self._shift[host])

    def write(self, place: Place, hour: int) -> int:
        """Write the batch of an hour, of all hosts; return how many samples it has."""
        random, recipe = self._random, self._recipe
        count, hops = recipe.hosts, len(self._hops)
        noise = random.normal(0, _HOURS_SPREAD * np.sqrt(1 - _HOURS_SIMILAR**2), (count, hops))
        self._state = _HOURS_SIMILAR * self._state + noise
        day = np.sin((hour % 24 - 8) / 24 * 2 * np.pi)
        there = self._measured(hour)
        minutes = hour * MINUTES_OF_HOUR + np.arange(MINUTES_OF_HOUR)
        shift = (self._own + self._state + _DAYS_SWING * day)[:, None, :].repeat(MINUTES_OF_HOUR, axis=1)
        # A host whose clock is ahead calls a moment a later minute.
        moments = minutes[None] - self._shift[:, None]
        slow = self._slow[:, None] | ((np.arange(count) == self._late)[:, None] & (moments >= self._began))
        shift[:, :, 0] += recipe.slower * slow
        samples = recipe.per_minute * (1 + 0.6 * day) * self._load
        host, minute = np.nonzero(there)
        with writing_engine() as engine:
            base = self._base(host, minutes[minute])
            written = 0
            tables = []
            for hop in range(hops):
                table, counted = self._of_hop(hop, base, shift[host, minute, hop], samples[host])
                tables.append(table)
                written += counted
            relations = {"hop_minutes": pa.concat_tables(tables), **self._others(hour, base, host)}
            for name, relation in relations.items():
                engine.register(name, relation)
            add_relations(place, hour, identity("made", recipe.seed, hour), engine, relations)
        return written

    def _measured(self, hour: int) -> NDArray[np.bool_]:
        """Return which minutes of which hosts were measured, and let hosts boot."""
        there = np.ones((self._recipe.hosts, MINUTES_OF_HOUR), np.bool_)
        for host, at in self._reboots.items():
            if at == hour:
                there[host, 20:26] = False
                self._boots[host] += 1
        for host, at in self._absent.items():
            if at <= hour < at + 2:
                there[host] = False
        return there

    def _base(self, host: NDArray[np.int64], minute: NDArray[np.int64]) -> dict[str, Any]:
        boots = np.array([f"boot-{host}-{boot}" for host, boot in enumerate(self._boots)])
        return {
            "host": pa.DictionaryArray.from_arrays(pa.array(host.astype(np.int32)), pa.array(self._hosts)),
            "boot": pa.DictionaryArray.from_arrays(pa.array(host.astype(np.int32)), pa.array(boots)),
            "minute": pa.array(minute.astype(np.int32)),
        }

    def _of_hop(
        self, hop: int, base: dict[str, Any], shift: NDArray[np.float64], samples: NDArray[np.float64]
    ) -> tuple[Any, int]:
        """Return the rows of a hop, and how many samples they have."""
        shape = self._shapes[hop]
        used = np.flatnonzero(shape > 1e-7)
        first, last = max(int(used[0]) - 6, 1), min(int(used[-1]) + 10, SLOTS - 1)
        whole = np.floor(shift).astype(np.int64)
        part = (shift - whole).astype(np.float32)
        # Every whole shift of the shape, of which a row takes two.
        steps = np.arange(whole.min(), whole.max() + 2)
        shifted = np.stack([np.roll(shape, step)[first:last] for step in steps]).astype(np.float32)
        index = whole - steps[0]
        expected = shifted[index] * (1 - part)[:, None] + shifted[index + 1] * part[:, None]
        expected *= samples.astype(np.float32)[:, None]
        counts = self._random.poisson(expected)
        row, slot = np.nonzero(counts)
        values = counts[row, slot]
        offsets = np.concatenate(([0], np.cumsum((counts > 0).sum(axis=1))))
        upper = np.array([*thresholds_ns(), thresholds_ns()[-1]])[first:last]
        rows = len(shift)
        most = upper[counts.shape[1] - 1 - (counts[:, ::-1] > 0).argmax(axis=1)]
        table = pa.table(
            {
                **base,
                "hop": pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([self._hops[hop]])),
                "labels": pa.array([""]).take(pa.array(np.zeros(rows, np.int32))),
                "count": pa.array(counts.sum(axis=1)),
                "sum_ns": pa.array((counts @ upper.astype(np.float64) * 0.96).astype(np.int64)),
                "max_ns": pa.array(most.astype(np.int64)),
                "lost": pa.array(np.zeros(rows, np.int64)),
                "coverage": pa.array(np.ones(rows, np.float32)),
                "slots": pa.ListArray.from_arrays(
                    pa.array(offsets.astype(np.int32)), pa.array((slot + first).astype(np.int16))
                ),
                "counts": pa.ListArray.from_arrays(
                    pa.array(offsets.astype(np.int32)), pa.array(values.astype(np.int64))
                ),
            }
        )
        return table.filter(pa.array(counts.any(axis=1))), int(values.sum())

    def _others(self, hour: int, base: dict[str, Any], host: NDArray[np.int64]) -> dict[str, Any]:
        """Return the rows of the tables `minutes`, `drops` and `facts`."""
        rows = len(host)
        minutes = pa.table(
            {
                **base,
                "measured_ns": pa.array(np.full(rows, NS_OF_MINUTE)),
                "measured": pa.array(["hops drops"]).take(pa.array(np.zeros(rows, np.int32))),
                "lost": pa.array(np.zeros(rows, np.int64)),
            }
        )
        dropped = self._random.poisson(np.where(self._driver[host] == _DRIVERS.index(DROPPING), 12.0, 0.5))
        reason = self._random.integers(0, len(_REASONS), rows).astype(np.int32)
        drops = pa.table(
            {
                **base,
                "reason": pa.DictionaryArray.from_arrays(pa.array(reason), pa.array(_REASONS)),
                "place": pa.DictionaryArray.from_arrays(pa.array(reason), pa.array(_PLACES)),
                "count": pa.array(dropped),
            }
        ).filter(pa.array(dropped > 0))
        return {"minutes": minutes, "drops": drops, "facts": self._facts(hour)}

    def _facts(self, hour: int) -> Any:  # noqa: ANN401 # pyarrow has no types
        """Return facts of all hosts that began, or were started anew, in an hour."""
        fresh = [
            host
            for host in range(self._recipe.hosts)
            if hour % 24 == FIRST_HOUR % 24 or self._reboots.get(host) == hour
        ]
        found = [
            (self._hosts[host], f"boot-{host}-{self._boots[host]}", hour * MINUTES_OF_HOUR, name, value)
            for host in fresh
            for name, value in {
                KERNEL: _KERNELS[self._kernel[host]],
                DRIVER: _DRIVERS[self._driver[host]],
                PROGRAM: "made",
                SLOW_FACT: "off" if self._has_fact[host] else "on",
                # Settings that say nothing.
                **{f"sysctl net.made.{number}": str(hash((host, number)) % 3) for number in range(40)},
            }.items()
        ]
        columns = zip(*found, strict=True) if found else [()] * 5
        kinds = (pa.string(), pa.string(), pa.int32(), pa.string(), pa.string())
        names = ("host", "boot", "minute", "name", "value")
        return pa.table(
            {name: pa.array(list(values), kind) for name, values, kind in zip(names, columns, kinds, strict=True)}
        )
