# SPDX-License-Identifier: Apache-2.0
"""What other tools say of a namespace: nstat, ip and tc, each with its own way to read the kernel."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hopscope.lab import Namespace


def nstat(namespace: Namespace) -> dict[str, int]:
    """Return what nstat counts, zeros as well."""
    counted: dict[str, int] = _json(namespace, "nstat", "-asz", "--json")["kernel"]
    return counted


def moved(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """Return what is more now, and by how much."""
    return {name: now[name] - before.get(name, 0) for name in now if now[name] != before.get(name, 0)}


def wait_counted(namespace: Namespace, before: Mapping[str, int], counts: Mapping[str, int]) -> None:
    """Wait until it counts so much more than before: what was sent arrives later where a CPU stands still."""

    def counted() -> bool:
        more = moved(before, nstat(namespace))
        return all(more.get(name, 0) >= count for name, count in counts.items())

    eventually(counted)


def link(namespace: Namespace, ifname: str) -> dict[str, Any]:
    """Return an interface as ``ip -s -s link`` knows it."""
    (found,) = _json(namespace, "ip", "-j", "-s", "-s", "link", "show", "dev", ifname)
    return dict(found)


def qdisc(namespace: Namespace, ifname: str) -> dict[str, Any]:
    """Return the root qdisc of an interface as ``tc -s`` knows it."""
    (found,) = _json(namespace, "tc", "-j", "-s", "qdisc", "show", "dev", ifname, "root")
    return dict(found)


def _json(namespace: Namespace, *argv: str) -> Any:  # noqa: ANN401 - as the tool has it
    return json.loads(namespace.run(argv, capture_output=True, text=True, check=True).stdout)
