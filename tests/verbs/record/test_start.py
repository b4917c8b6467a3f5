# SPDX-License-Identifier: Apache-2.0
"""All sources of a recording begin at the same moment: what one has seen, none of the others has not been there for."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hopscope.live.recorder.captures import CAPTURE
from hopscope.live.recorder.collector import Recorder
from hopscope.live.recorder.options import RecordOptions
from tests.lab.measure import in_thread, udp_pair
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from hopscope.lab import Lab
    from tests.lab.measure import NetworkPath

    Columns = dict[str, np.ndarray[Any, np.dtype[Any]]]

pytestmark = pytest.mark.root
EVENT = "e_net_netif_rx"
# Of a packet, one source may be on this side of the moment and another one on the other: one for each CPU.
AT_THE_EDGE = 2


def recorded(recorder: Recorder, enough: Callable[[dict[str, list[Columns]]], bool]) -> dict[str, Columns]:
    """Return what there is by table as soon as it is enough."""
    parts: dict[str, list[Columns]] = defaultdict(list)

    def read() -> bool:
        for table, columns in recorder.read():
            parts[table].append(columns)
        return enough(parts)

    eventually(read)
    recorder.stop()
    read()
    return {
        name: {key: np.concatenate([each[key] for each in found]) for key in found[0]} for name, found in parts.items()
    }


def test_tracepoints_and_captures_have_seen_each_packet_from_the_first_on(lab: Lab, veth: NetworkPath) -> None:
    over = threading.Event()
    with udp_pair(veth) as (sender, _):

        def flood() -> None:
            while not over.wait(0.0002):
                sender.send(bytes(100))

        options = RecordOptions(
            profiles=(),
            points=("rx.driver",),
            namespaces=[lab.server.inode],
            tracepoints=["net:netif_rx:len == 128", "sched:*", "skb:*"],
            snap_bytes=64,
        )
        with in_thread(flood), Recorder(options) as recorder:
            try:
                found = recorded(recorder, lambda parts: sum(len(each["time_ns"]) for each in parts["packets"]) > 500)
            finally:
                over.set()
    started_ns = recorder.started_ns
    for table in ("packets", EVENT, CAPTURE):
        assert found[table]["time_ns"].min() >= started_ns
    # Packets are known by their address, which comes again; by when, a CPU that is taken away in between is let pass.
    packets, events = found["packets"], found[EVENT]
    before_end = packets["time_ns"] < events["time_ns"].max()
    seen = {int(skb): events["time_ns"][events["skbaddr"] == skb] for skb in np.unique(events["skbaddr"])}
    times = zip(packets["skb"][before_end].tolist(), packets["time_ns"][before_end].tolist(), strict=True)
    alone = [at_ns for skb, at_ns in times if not np.any(np.abs(seen.get(skb, np.zeros(0)) - at_ns) < 5_000_000)]
    assert len(alone) <= AT_THE_EDGE, (len(alone), len(packets["time_ns"]), min(alone) - started_ns)
    captured = {*found[CAPTURE]["time_ns"].tolist()}
    missing = [at_ns for at_ns in packets["time_ns"].tolist() if at_ns not in captured]
    assert len(missing) <= AT_THE_EDGE, (len(missing), min(missing) - started_ns)
    assert recorder.captures_lost() == 0
