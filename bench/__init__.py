# SPDX-License-Identifier: Apache-2.0
"""Measures hopscope's own cost: ``python -m bench [NAME...]``.

Every figure is a ratio or a difference of two things that were measured in one run, in turns; none is an assertion.
``measure`` has the arithmetic, ``traffic`` the load; each other module is a benchmark or what one of them needs.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The front end of the compiler is a script, and no package.
sys.path.append(str(Path(__file__).resolve().parent.parent / "tools"))
