# SPDX-License-Identifier: Apache-2.0
"""The modules that declare relations over a recording: importing this one declares all of them.

Relations of a single report, which depend on its options, are declared in the report's module.
"""

from __future__ import annotations

from typing import Final

from hopscope.trace import clock_bounds, events, names, owners
from hopscope.trace.causes import arrivals, limits, pending, queues, threads
from hopscope.trace.causes import table as causes
from hopscope.trace.messages import calls, contents, exchanges, hosts, segments, table, tcp, udp
from hopscope.trace.packets import crossings, journeys, skb_lifetimes, translations

MODULES: Final = (
    names, owners, clock_bounds, skb_lifetimes, journeys, crossings, translations, segments, calls, hosts, tcp, udp,
    table, exchanges, contents, threads, limits, queues, arrivals, causes, pending, events,
)  # fmt: skip
