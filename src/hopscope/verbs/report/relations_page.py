# SPDX-License-Identifier: Apache-2.0
"""The relations over a recording, as a page of the documentation.

``python -m hopscope.verbs.report.relations_page docs/relations.md`` writes it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopscope.trace.relation import depends_on, relations
from hopscope.verbs.report import event_lines, hops, netdev_times, outliers, outliers_differences, requests

if TYPE_CHECKING:
    from hopscope.trace.relation import Relation

# The reports that declare relations of their own.
REPORTS: Final = (event_lines, hops, netdev_times, outliers, outliers_differences, requests)
_TITLE: Final = """\
# Relations over a recording

Reports are made of tables and views in SQL over the tables of a trace ([trace.md](trace.md)).
`hopscope sql TRACE --tables` lists them, and a query in `hopscope sql` that names one of the
first two groups makes it, of the whole recording:

```sh
hopscope sql trace "SELECT flow, count(*), max(total_ns) FROM messages GROUP BY flow"
```

NULL is what was not seen, or is not known. *Selected*: in a report, it is of what `--flow`, `--port`, … select.
This page is generated: `python -m hopscope.verbs.report.relations_page docs/relations.md`.
"""
_HEADING: Final = "| column | unit | what it is |\n| --- | --- | --- |\n"


def page() -> str:
    """Return the page."""
    every = list(relations().values())
    groups = {
        "Results": [each for each in every if not each.temporary and not each.report],
        "Intermediate tables": [each for each in every if each.temporary and not each.report],
        "Of single reports": [each for each in every if each.report],
    }
    says = {
        "Intermediate tables": "Dropped as soon as what needs them is there.\n\n",
        "Of single reports": "They depend on the report's options, and are made by it alone.\n\n",
    }
    parts = [
        f"\n## {title}\n\n{says.get(title, '')}" + "\n".join(map(_section, sorted(group, key=lambda each: each.name)))
        for title, group in groups.items()
    ]
    return _TITLE + "".join(parts)


def _section(each: Relation) -> str:
    rows = "".join(f"| `{name}` | {unit} | {meaning} |\n" for name, (unit, meaning) in each.columns.items())
    return f"### `{each.name}`\n\nA row is {each.row}.\n{_facts(each)}\n\n{_HEADING}{rows}"


def _facts(each: Relation) -> str:
    facts = [each.kind.capitalize()]
    if each.report:
        facts.append(f"used by `report {each.report}`")
    if "selection" in depends_on(each.name):
        facts.append("selected")
    if each.may_need:
        facts.append(f"reads {', '.join(f'`{name}`' for name in each.may_need)}")
    if each.aliases:
        facts.append(f"earlier name: {', '.join(f'`{name}`' for name in each.aliases)}")
    return "; ".join(facts) + "."


if __name__ == "__main__":
    for name in sys.argv[1:]:
        Path(name).write_text(page(), encoding="utf-8")
