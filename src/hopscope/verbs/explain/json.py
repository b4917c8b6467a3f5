# SPDX-License-Identifier: Apache-2.0
"""An explanation as one JSON object (``docs/json/hopscope.explain-1.schema.json``)."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hopscope.verbs.explain.explanation import Explanation

VERSION: Final = 1
_DIGITS: Final = 6


def explanation_line(explanation: Explanation) -> str:
    """Return the object in one line."""
    document = {"schema": f"hopscope.explain/{VERSION}", **asdict(explanation)}
    for each in document["causes"]:
        each["share"] = round(each["share"], _DIGITS)
    return json.dumps(document)
