# SPDX-License-Identifier: Apache-2.0
"""An agent that sends blocks as fast as they are taken: ``python -m bench.agent_served`` is as ``hopscope agent``."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from hopscope.__main__ import main
from hopscope.verbs.agent.command import SERVICES

if TYPE_CHECKING:
    from hopscope.agent.stream import Stream

SERVICE: Final = "bench"


def serve(stream: Stream, request: dict[str, Any]) -> None:
    """Send `count` blocks of `block_bytes`, then how much CPU that took."""
    data = os.urandom(request["block_bytes"])
    start_ns = time.process_time_ns()
    for _ in range(request["count"]):
        stream.send_block({}, [data])
    stream.send({"cpu_ns": time.process_time_ns() - start_ns})


if __name__ == "__main__":
    SERVICES[SERVICE] = "bench.agent_served"
    sys.argv[1:] = ["agent"]
    main()
