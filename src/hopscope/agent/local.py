# SPDX-License-Identifier: Apache-2.0
"""An agent on this host: a process of its own."""

from __future__ import annotations

import sys
from typing import Final

AGENT: Final = (sys.executable, "-P", "-m", "hopscope", "agent")


def explain(code: int) -> str:
    """Return what an exit code of it means, as a part of a sentence."""
    if code < 0:
        return f"its agent was killed by signal {-code}"
    return f"its agent ended with exit code {code}" if code else ""
