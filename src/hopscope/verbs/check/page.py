# SPDX-License-Identifier: Apache-2.0
"""What is known, as a table for the documentation.

``python -m hopscope.verbs.check.page docs/check.md`` writes it into the page, between its marks.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopscope.model.counters.sources import LAYERS
from hopscope.verbs.check.knowledge.all import ENTRIES

if TYPE_CHECKING:
    from hopscope.verbs.check.findings import Entry

BEGIN: Final = "<!-- findings: begin -->\n"
_HEADING: Final = "| finding | severity | looks at | when, and why not sooner |\n| --- | --- | --- | --- |\n"
END: Final = "<!-- findings: end -->\n"


def table() -> str:
    """Return a table for each layer."""
    parts = [part for layer in LAYERS if (part := _of_layer(layer))]
    return "\n".join(parts)


def with_table(page: str) -> str:
    """Return a page with the table between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def _of_layer(layer: str) -> str:
    entries = [entry for entry in ENTRIES if entry.layer == layer]
    if not entries:
        return ""
    return f"### {layer}\n\n{_HEADING}{''.join(map(_row, entries))}"


def _row(entry: Entry) -> str:
    required = [ref for ref in entry.condition.refs if not ref.optional]
    names = dict.fromkeys(f"`{ref.name}`" for ref in required)
    return f"| `{entry.id}` | {entry.severity} | {', '.join(names)} | {entry.threshold} |\n"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(with_table(path.read_text(encoding="utf-8")), encoding="utf-8")
