# SPDX-License-Identifier: Apache-2.0
"""What people call a cgroup."""

from __future__ import annotations

import re
from typing import Final

_CONTAINER: Final = re.compile(r"([0-9a-f]{64})")


def shorten(path: str) -> str:
    """Return a cgroup's path, for a container its id's first twelve digits as its tools show them."""
    container = _CONTAINER.search(path)
    return f"container {container[1][:12]}" if container else path
