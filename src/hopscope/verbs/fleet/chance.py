# SPDX-License-Identifier: Apache-2.0
"""How sure one has to be, and how much has to differ, for something to be found. Quick to import, for the help."""

from __future__ import annotations

from typing import Final

# So often chance may have made what is found.
FALSE_RATE: Final = 0.01
# An effect that is smaller interests nobody (Cliff's delta).
LEAST_DELTA: Final = 0.1
