# SPDX-License-Identifier: Apache-2.0
"""Matching of datagrams that arrived at one host with those that left another one.

A datagram has the same flow, IP identification, payload length and hash of its first bytes (`packets.seq`) where it
leaves and where it arrives. Several datagrams may be equal in all of these. If, between two times at which none of them
is in flight, as many arrive as left, they are assumed to arrive in order. If fewer or more arrive, they cannot be
matched: they are not linked, but counted. After a pause of one second, a new batch begins.
"""

from __future__ import annotations

from typing import Any, Final

from hopscope.trace.clock_bounds import slot
from hopscope.trace.packets.continues import ID_STEP
from hopscope.trace.relation import columns, fixed

SILENCE_NS: Final = 1_000_000_000
# Minimum Ethernet frame: a receiving device may have padded a shorter datagram.
_SHORTEST_BYTES: Final = 18
_HASHED_BYTES: Final = 8

_KEY: Final = ("flow", "id", "len_bytes")

# If the payload of a flow is in pages on one host (as with GSO), the hash cannot be used.
_PAGED: Final = f"""
    SELECT DISTINCT flow FROM {{given}} d
    WHERE len_bytes >= {_HASHED_BYTES} AND seq < {ID_STEP}"""
# Arrivals are shifted later by the maximum clock error, so that nothing arrives before it left.
_SLACK: Final = "SELECT slot_ns, 2 * max(bound_ns) AS slack_ns FROM clock_bounds GROUP BY slot_ns"
_KEYED: Final = f"""
    SELECT packet, host, time_ns, step, flow, greatest(len_bytes, {_SHORTEST_BYTES}) AS len_bytes,
           CASE WHEN flow IN ({_PAGED}) THEN seq % {ID_STEP} ELSE seq END AS id,
           CASE WHEN step < 0 THEN time_ns + coalesce(slack_ns, 0) ELSE time_ns END AS at_ns
    FROM {{given}} d LEFT JOIN ({_SLACK}) s ON s.slot_ns = {slot("d.time_ns")}"""

# Most arrive before the next equal one leaves. If this holds for all datagrams of a key, each is followed by its own
# arrival, or was lost; the others are tangled.
_OWN: Final = f"PARTITION BY {', '.join(_KEY)}"
_ORDER: Final = "ORDER BY at_ns, step DESC, packet"
_FOLLOWED: Final = f"""
    SELECT packet, host, time_ns, step, {", ".join(_KEY)}, at_ns,
           {", ".join(f"lag({name}) OVER own AS before_{name}" for name in ("step", "host", "at_ns"))},
           {", ".join(f"lead({name}) OVER own AS next_{name}" for name in ("step", "packet", "host", "time_ns"))}
    FROM {{keyed}} WINDOW own AS ({_OWN} {_ORDER})"""
_TANGLED: Final = f"""
    SELECT DISTINCT {", ".join(_KEY)} FROM {{followed}}
    WHERE CASE WHEN step > 0 THEN before_step > 0 AND at_ns - before_at_ns <= {SILENCE_NS}
               ELSE before_step IS NULL OR before_step < 0 OR before_host = host
                    OR at_ns - before_at_ns > {SILENCE_NS} END"""
_IS_TANGLED: Final = f"{{}} JOIN {{{{tangled}}}} t ON {' AND '.join(f't.{name} = d.{name}' for name in _KEY)}"

_BATCHED: Final = f"""
    SELECT *, coalesce(sum(ends) OVER ({_OWN} {_ORDER} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS batch
    FROM (SELECT *, CASE WHEN on_way = 0 OR lead(silence) OVER ({_OWN} {_ORDER}) <> silence THEN 1 ELSE 0 END AS ends
          FROM (SELECT *, sum(step) OVER ({_OWN}, silence {_ORDER} ROWS UNBOUNDED PRECEDING) AS on_way
                FROM (SELECT d.*, sum(CASE WHEN at_ns - before_at_ns > {SILENCE_NS} THEN 1 ELSE 0 END)
                                  OVER (PARTITION BY {", ".join(f"d.{name}" for name in _KEY)} {_ORDER}
                                        ROWS UNBOUNDED PRECEDING) AS silence
                      FROM {{followed}} d {_IS_TANGLED.format("")}) apart) counted) ended"""

_BATCHES: Final = f"""
    SELECT {", ".join(_KEY)}, batch, sum(CASE WHEN step > 0 THEN 1 ELSE 0 END) AS sent,
           sum(CASE WHEN step < 0 THEN 1 ELSE 0 END) AS came, min(on_way) AS fewest
    FROM {{batched}} GROUP BY {", ".join(_KEY)}, batch"""
_NUMBERED: Final = f"""
    SELECT e.*, b.sent, b.came, b.fewest,
           row_number() OVER (PARTITION BY {", ".join(f"e.{name}" for name in (*_KEY, "batch", "step"))}
                              ORDER BY e.time_ns, e.packet) AS place
    FROM {{batched}} e
    JOIN ({_BATCHES}) b ON {" AND ".join(f"b.{name} = e.{name}" for name in (*_KEY, "batch"))}"""

# `state`: outcome of a departed datagram: it `came`, was `lost`, or is `unsure`, if it cannot be distinguished from
# others. Of the latter, `short` is set for as many as did not arrive.
_TRANSFERS: Final = f"""
    SELECT d.packet, d.flow, d.host, d.time_ns AS left_ns,
           {
    ", ".join(
        f"CASE WHEN next_step < 0 THEN next_{of} END AS {name}"
        for name, of in (("arrived", "packet"), ("to_host", "host"), ("came_ns", "time_ns"))
    )
},
           CASE WHEN next_step < 0 THEN 'came' ELSE 'lost' END AS state, coalesce(next_step > 0, TRUE) AS short
    FROM {{followed}} d {_IS_TANGLED.format("LEFT")} WHERE step > 0 AND t.flow IS NULL
    UNION ALL
    SELECT d.packet, d.flow, d.host, d.time_ns AS left_ns, a.packet AS arrived, a.host AS to_host, a.time_ns AS came_ns,
           CASE WHEN a.packet IS NOT NULL THEN 'came' WHEN d.came = 0 THEN 'lost' ELSE 'unsure' END AS state,
           d.fewest >= 0 AND d.place > d.came AS short
    FROM (SELECT * FROM {{numbered}} WHERE step > 0) d
    LEFT JOIN (SELECT * FROM {{numbered}} WHERE step < 0 AND sent = came AND fewest >= 0) a
           ON {" AND ".join(f"a.{name} = d.{name}" for name in (*_KEY, "batch", "place"))} AND a.host <> d.host"""


def transfers(name: str, given: str, **declared: Any) -> None:  # noqa: ANN401 # as Relation has them
    """Declare ``<name>_transfers``: one row per datagram that left a host, with its outcome.

    Parameters
    ----------
    name
        Name of the datagrams.
    given
        A relation of datagrams that left (`step` 1) or arrived (-1): ``packet``, ``host``, ``time_ns``, ``flow``,
        ``seq``, ``len_bytes`` of the payload. The trace was joined.
    declared
        Further declarations of all relations.
    """
    names = {part: f"{name}_{part}" for part in _PARTS}
    for part, (row, query, needs, listed) in _PARTS.items():
        fixed(
            names[part],
            row,
            columns(listed, **_OWN_MEANINGS.get(part, {})),
            query.format(given=given, **names),
            needs=tuple(given if need == "given" else names.get(need, need) for need in needs),
            temporary=True,
            **declared,
        )


_GIVEN: Final = "packet host time_ns step flow"
_AROUND: Final = "before_step before_host before_at_ns next_step next_packet next_host next_time_ns"
_IN_BATCH: Final = f"{_GIVEN} id len_bytes at_ns {_AROUND} silence on_way ends batch"
_PAYLOAD: Final = "length of the payload, at least 18 because shorter frames are padded"
_OWN_MEANINGS: Final[dict[str, dict[str, str]]] = {
    **{part: {"len_bytes": _PAYLOAD} for part in ("keyed", "followed", "tangled", "batched")},
    "numbered": {
        "len_bytes": _PAYLOAD,
        "sent": "number of its batch that left",
        "came": "number of its batch that arrived",
        "place": "its position among those of its batch that left or arrived",
    },
    "transfers": {"state": "`came`, `lost`, or `unsure` (indistinguishable from others)"},
}
# Part → meaning of a row, the query, the relations that it needs, its columns.
_PARTS: Final[dict[str, tuple[str, str, tuple[str, ...], str]]] = {
    "keyed": (
        "a datagram with the properties that it has at both ends",
        _KEYED,
        ("given", "clock_bounds"),
        f"{_GIVEN} len_bytes id at_ns",
    ),
    "followed": (
        "a datagram with the previous and next identical ones",
        _FOLLOWED,
        ("keyed",),
        f"{_GIVEN} id len_bytes at_ns {_AROUND}",
    ),
    "tangled": (
        "the common properties of identical datagrams of which several were in flight at a time",
        _TANGLED,
        ("followed",),
        "flow id len_bytes",
    ),
    "batched": (
        "one of several identical datagrams, with the batch in which as many arrived as left",
        _BATCHED,
        ("followed", "tangled"),
        _IN_BATCH,
    ),
    "numbered": (
        "one of several identical datagrams, with its position in its batch",
        _NUMBERED,
        ("batched",),
        f"{_IN_BATCH} sent came fewest place",
    ),
    "transfers": (
        "a datagram that left a host, and its outcome",
        _TRANSFERS,
        ("followed", "tangled", "numbered"),
        "packet flow host left_ns arrived to_host came_ns state short",
    ),
}
