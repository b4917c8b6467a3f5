# SPDX-License-Identifier: Apache-2.0
"""The protocol of a request: the first parser that is certain of it says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hopscope.model.protocols.dns import dns_stream
from hopscope.model.protocols.http1 import http1
from hopscope.model.protocols.kafka import kafka
from hopscope.model.protocols.postgresql import postgresql
from hopscope.model.protocols.redis import redis
from hopscope.model.protocols.tls import tls

if TYPE_CHECKING:
    from hopscope.model.protocols.turn import Named, Turn

_PARSERS: Final = (http1, redis, tls, postgresql, kafka, dns_stream)


def named(request: Turn, answer: Turn) -> Named | None:
    """Return what a request on a stream is, by its bytes and those of its answer; None: no known protocol."""
    return next((found for parser in _PARSERS if (found := parser(request, answer))), None)
