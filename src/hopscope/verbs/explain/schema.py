# SPDX-License-Identifier: Apache-2.0
"""The schema of what ``hopscope explain --json`` prints.

``python -m hopscope.verbs.explain.schema FOLDER`` writes ``hopscope.explain-1.schema.json``.
"""

from __future__ import annotations

import sys
from typing import Any, Final, get_args

from hopscope.model.cause import CAUSES
from hopscope.term.schema_files import line_schema, object_schema, write_schemas
from hopscope.verbs.explain.explanation import Confidence
from hopscope.verbs.explain.json import VERSION

_NAMES: Final = [cause.name for cause in CAUSES]
_COUNT: Final = {"type": "integer", "minimum": 0}
_SENTENCES: Final = {"type": "array", "items": {"type": "string"}}

CAUSE: Final[dict[str, dict[str, Any]]] = {
    "cause": {"enum": _NAMES, "description": "Its name (docs/causes.md)."},
    "time_ns": {**_COUNT, "description": "Time for which it held messages, in total."},
    "share": {"type": "number", "minimum": 0, "maximum": 1, "description": "Its share of total_ns."},
    "messages": {
        **_COUNT,
        "description": "Messages that it held longer than any other cause did; application: answered requests.",
    },
    "sentence": {"type": "string", "description": "What held the messages, in words."},
    "culprit": {
        "type": "string",
        "description": "Thread, flow, device or address that is responsible; empty: unknown, or nobody in particular.",
    },
    "evidence": {**_SENTENCES, "description": "What the sentence rests on, one sentence each."},
    "confidence": {"enum": list(get_args(Confidence)), "description": "How certain the sentence is."},
    "advice": {"type": "string", "description": "What to try next; empty: nothing."},
}
EXPLANATION: Final[dict[str, dict[str, Any]]] = {
    "messages": {**_COUNT, "description": "Number of messages."},
    "slow": {
        **_COUNT,
        "description": "Messages that took a millisecond or longer, and answers that the server took as long for.",
    },
    "pending": {**_COUNT, "description": "Those of the slow messages that had not been read at the end."},
    "total_ns": {**_COUNT, "description": "Time of all causes: of the messages, and between requests and answers."},
    "median_ns": {**_COUNT, "description": "Median of the messages' times."},
    "worst_ns": {**_COUNT, "description": "The longest time of a message, or between a request and its answer."},
    "causes": {
        "type": "array",
        "items": object_schema(CAUSE),
        "description": "All causes that held messages, longest first.",
    },
    "finding": {"enum": [*_NAMES, None], "description": "The main cause; null: nothing held the messages for long."},
    "limits": {**_SENTENCES, "description": "What was not recorded or was lost, one sentence each."},
    "dropped": {
        **_SENTENCES,
        "description": "Datagrams that were dropped on this host, a sentence a reason and place.",
    },
    "counters": {**_SENTENCES, "description": "Problems that the kernel's counters of the same time show."},
}


def schema() -> dict[str, Any]:
    """Return the JSON schema of the object."""
    meaning = "The line of `hopscope explain --json`: why messages were slow."
    return line_schema("explain", VERSION, meaning, object_schema(EXPLANATION))


if __name__ == "__main__":
    sys.exit(write_schemas(sys.argv[1:], [schema()]))
