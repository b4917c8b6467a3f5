# SPDX-License-Identifier: Apache-2.0
"""What a check found, for people: what is wrong, the figures, why it matters, what to do."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from hopscope.model.counters.readings import HOST
from hopscope.term import format as fmt
from hopscope.term.grid import Column, render_grid
from hopscope.term.terminal import Terminal
from hopscope.verbs.check.findings import SEVERITIES
from hopscope.verbs.check.fold import fold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hopscope.verbs.check.conditions import Evidence
    from hopscope.verbs.check.findings import Check, Checked, Finding, Severity
    from hopscope.verbs.check.fold import Folded

_MOST_ROWS: Final = 6
_INDENT: Final = 2
_LOOKS: Final[dict[Severity, str]] = {"critical": "red", "warning": "warn", "notice": "cyan", "note": "dim"}
_PLURALS: Final[dict[str, str]] = {"warning": "warnings", "notice": "notices", "condition": "conditions"}


def render_check(check: Check, terminal: Terminal, *, least: Severity = "notice", everything: bool = False) -> str:
    """Return findings of at least this severity, and a line that says what was looked at.

    Parameters
    ----------
    everything
        Show also notes, what was found well and what could not be seen.
    """
    shown = select(check, least)
    lines = [line for folded in fold(shown) for line in (*_finding(folded, terminal), "")]
    if everything:
        lines += [line for folded in fold(check.notes) for line in (*_finding(folded, terminal), "")]
        lines += _others(check, terminal)
    lines += terminal.fold(_summary(check, shown, everything=everything), 0)
    if not shown:
        lines += terminal.fold(_limits(check), 0)
    for sentence in check.unread:
        lines += [terminal.paint(line, "warn") for line in terminal.fold(f"Not read: {sentence}.")]
    return "\n".join(lines)


def select(check: Check, least: Severity) -> list[Finding]:
    """Return the findings of at least this severity."""
    return [each for each in check.findings if SEVERITIES.index(each.severity) <= SEVERITIES.index(least)]


def _finding(folded: Folded, terminal: Terminal) -> list[str]:
    entry = folded.entry
    heading = f"{entry.severity.upper():<8}  {entry.id}"
    where = _where(folded.namespaces)
    first = terminal.paint(heading, _LOOKS[entry.severity])
    lines = [first + (f"  {terminal.cut(where, terminal.width - len(heading) - 2)}" if where else "")]
    lines += [terminal.paint(line, "bold") for line in _fold(f"{folded.sentence}.", terminal)]
    lines += ["", *_evidence(folded, terminal), ""]
    lines += _fold(entry.why, terminal)
    if causes := folded.findings[0].causes:
        lines += _fold(f"Cause in `hopscope explain`: {', '.join(causes)}.", terminal)
    for fix in folded.fixes:
        lines += _fix(fix, terminal)
    if folded.others:
        lines += _fold(f"and likewise at {folded.others} other {'place' if folded.others == 1 else 'places'}", terminal)
    source = Terminal(terminal.width - _INDENT, terminal.colour, terminal.unicode).fold(f"source: {entry.source}")
    return lines + [terminal.paint(" " * _INDENT + line, "dim") for line in source]


def _where(namespaces: Sequence[str]) -> str:
    if not namespaces:
        return ""
    if len(namespaces) == 1:
        return f"in namespace {namespaces[0]}"
    return f"in {len(namespaces)} namespaces: {', '.join(namespaces)}"


def _fold(text: str, terminal: Terminal, indent: int = _INDENT) -> list[str]:
    narrower = Terminal(terminal.width - indent, terminal.colour, terminal.unicode)
    return [" " * indent + line for line in narrower.fold(text, 0)]


def _fix(fix: str, terminal: Terminal) -> list[str]:
    """Return a command on a line of its own, never broken, and what is said of it where it fits."""
    command, _, note = terminal.text(fix).partition("  # ")
    if not command:
        return []
    if command.startswith("# "):  # an advice that is no command
        return _fold(f"- {command[2:]}", terminal)
    line = f"  $ {command}"
    if not note:
        return [line]
    if len(line) + len(note) + 4 <= terminal.width:
        return [f"{line}  {terminal.paint(f'# {note}', 'dim')}"]
    return [line, *(terminal.paint(text, "dim") for text in _fold(f"# {note}", terminal, 6))]


def _evidence(folded: Folded, terminal: Terminal) -> list[str]:
    rows = folded.evidence[:_MOST_ROWS]
    several = len({(row.key.netns, row.key.subject) for row in folded.evidence}) > 1
    columns = [Column("counter", [row.key.name for row in rows], left=True)]
    if several:
        columns.append(Column("of", [_of(row, folded) for row in rows], left=True))
    columns += [
        Column("before", [_value(row.before) for row in rows], rank=3),
        Column("now", [_value(row.now) for row in rows]),
        Column("by", [fmt.MISSING if row.by is None else f"{row.by:,}" for row in rows]),
        Column("per s", [fmt.MISSING if row.per_s is None else fmt.rate(row.per_s) for row in rows], rank=1),
        Column("share", ["" if row.share is None else fmt.per_cent(row.share * 100) for row in rows], rank=2),
    ]
    columns = [each for each in columns if each.title not in {"share", "by", "per s", "before"} or _tells(each)]
    narrower = Terminal(terminal.width - 2 * _INDENT, terminal.colour, terminal.unicode)
    lines = [" " * 2 * _INDENT + line for line in render_grid(columns, narrower)]
    left = len(folded.evidence) - len(rows)
    return lines + _fold(f"and {left} more", terminal, 2 * _INDENT) if left else lines


def _tells(column: Column) -> bool:
    return any(cell not in {"", fmt.MISSING} for cell in column.cells)


def _of(row: Evidence, folded: Folded) -> str:
    names = {finding.netns: finding.namespace for finding in folded.findings}
    namespace = names.get(row.key.netns, "") if row.key.netns != HOST and len(folded.namespaces) > 1 else ""
    return " ".join(filter(None, (namespace, row.key.subject)))


def _value(value: int | str | None) -> str:
    if value is None:
        return fmt.MISSING
    return value if isinstance(value, str) else f"{value:,}"


def _others(check: Check, terminal: Terminal) -> list[str]:
    lines = [terminal.paint("checked, no problems", "bold")]
    well = [each for each in check.checked if each.state == "well"]
    if well:
        lines += render_grid(
            [
                Column("layer", [each.entry.layer for each in well], left=True),
                Column("what", [each.entry.id for each in well], left=True),
                Column("places", [f"{each.well:,}" for each in well]),
                Column("counted before", [_total(each) for each in well], rank=1),
            ],
            terminal,
        )
    unseen = [each for each in check.checked if each.unseen]
    if unseen:
        lines += ["", terminal.paint("not visible on this host", "bold")]
    for each in unseen:
        here = "" if each.state == "unseen" else "not everywhere: "
        lines += terminal.fold(f"{each.entry.id}: {here}{'; '.join(each.unseen)}")
    return [*lines, ""]


def _total(checked: Checked) -> str:
    return "" if checked.total is None else f"{checked.total:,}"


def _summary(check: Check, shown: Sequence[Finding], *, everything: bool) -> str:
    states = Counter(each.state for each in check.checked if each.entry.severity != "note")
    entries = {each.id: each.severity for each in shown}
    found = Counter(entries.values())
    said = [_counted(found[severity], severity) for severity in SEVERITIES if found[severity]]
    hidden = len({each.id for each in check.findings}) - len(entries)
    said += [f"{hidden} less severe not shown"] if hidden else []
    verdict = ", ".join(said) if said else "no problems found"
    more = "" if everything else " (--all)"
    looked = _counted(states.total() - states["unseen"], "condition")
    where = fmt.plural(check.namespaces, "network namespace")
    return (
        f"{verdict[0].upper()}{verdict[1:]}. Checked {looked} in {where} over {check.seconds:.1f} s; "
        f"{states['unseen']} cannot be checked on this host{more}."
    )


def _limits(check: Check) -> str:
    """Return what a check that found nothing does not exclude."""
    unseen = Counter(
        each.entry.layer for each in check.checked if each.state == "unseen" and each.entry.severity != "note"
    )
    parts = [f"conditions that cannot be checked ({', '.join(f'{n} {layer}' for layer, n in unseen.most_common())})"]
    rules = fmt.plural(check.uncounted_rules, "nftables rule")
    parts += [f"packets dropped by {rules} without a counter"] if check.uncounted_rules else []
    parts += ["losses outside of this host"]
    listed = [*(parts if unseen else parts[1:]), f"anything before or after these {check.seconds:.1f} s"]
    return f"Not covered: {', '.join(listed[:-1])}, and {listed[-1]}."


def _counted(number: int, severity: str) -> str:
    return f"{number} {severity if number == 1 else _PLURALS.get(severity, severity)}"
