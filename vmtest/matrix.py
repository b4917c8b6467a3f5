# SPDX-License-Identifier: Apache-2.0
"""Make ``docs/support-matrix.md`` from the results of the kernels: which way to attach which kernel grants.

Run as ``python -m vmtest.matrix RESULTS OUT``: the folder with a JSON file a kernel, and the page to write. What
``hopscope probes --json`` says on this machine becomes a column as well.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from vmtest import VmtestError, kernels, results

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_HEAD: Final = """\
# Support matrix

Made by `python -m vmtest.matrix` from a run of `make vmtest`, which boots each kernel under QEMU; not written by hand.

- **used**: granted, and the first that is: this is what hopscope attaches there
- yes: granted as well; it can be forced, and the tests force it
- no: refused, for the numbered reason below the table
- ·: not a way that this kernel was asked about
"""


@dataclass(frozen=True)
class Column:
    """A kernel of the page.

    Attributes
    ----------
    heading
        What stands above it.
    result
        Its run; None for this machine, on which the tests run by ``make test``.
    probes
        What ``hopscope probes --json`` said there; None if it said nothing.
    """

    heading: str
    result: results.Result | None
    probes: Mapping[str, Any] | None

    def ways(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield each way to attach with the probe point that it is for, in the order of preference."""
        for point in (self.probes or {}).get("points", ()):
            for way in point["ways"]:
                yield point["point"], way


def page(columns: Sequence[Column]) -> str:
    """Return the page in Markdown.

    Raises
    ------
    VmtestError
        No column has probe points: there is nothing to make a matrix of.
    """
    if not any(column.probes for column in columns):
        raise VmtestError("no result has probe points in it. See probes.err beside the results")
    return "\n".join([_HEAD, *_kernel_lines(columns), "", *_way_lines(columns)]) + "\n"


def _kernel_lines(columns: Sequence[Column]) -> list[str]:
    lines = ["## Kernels", "", "| kernel | release | package | tests passed | failed | skipped |"]
    lines.append("| --- | --- | --- | ---: | ---: | ---: |")
    for column in columns:
        result = column.result
        if result is None:
            lines.append(f"| {column.heading} | {platform.release().partition('-')[0]} | | | | |")
            continue
        tests = result.tests
        counts = f"{tests.passed} | {tests.failed} | {tests.skipped}" if tests else f"{result.verdict} | |"
        lines.append(f"| {column.heading} | {result.release} | {result.suite} {result.version} | {counts} |")
    return lines


def _way_lines(columns: Sequence[Column]) -> list[str]:
    # A kernel may be asked about ways that another is not; each stands where it first occurs among those of its point.
    order: dict[str, dict[str, None]] = {}
    for column in columns:
        for point, way in column.ways():
            order.setdefault(point, {})[way["way"]] = None
    said = [{(point, way["way"]): way for point, way in column.ways()} for column in columns]
    lines = ["## Ways to attach", "", f"| probe point | way | {' | '.join(column.heading for column in columns)} |"]
    lines.append("| --- | --- |" + " --- |" * len(columns))
    reasons: dict[str, int] = {}
    for point, ways in order.items():
        name = f"`{point}`"
        for label in ways:
            cells = [_cell(answers.get((point, label)), reasons) for answers in said]
            lines.append(f"| {name} | `{label}` | {' | '.join(cells)} |")
            name = ""
    return [*lines, "", *(f"{number}. {reason}" for reason, number in reasons.items())]


def _cell(way: Mapping[str, Any] | None, reasons: dict[str, int]) -> str:
    if way is None:
        return "·"
    if way["granted"]:
        return "**used**" if way["chosen"] else "yes"
    reason = " ".join(str(way["reason"]).split()) or "no reason given"
    return f"no ({reasons.setdefault(reason, len(reasons) + 1)})"


def host_column() -> Column:
    """Ask ``hopscope probes --json`` on this machine.

    Raises
    ------
    VmtestError
        It failed.
    """
    command = [str(Path(sys.executable).with_name("hopscope")), "probes", "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        probes = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.CalledProcessError) as exc:
        raise VmtestError(f"`hopscope probes --json` failed on this machine: {exc}") from exc
    major_minor = ".".join(platform.release().split(".")[:2])
    return Column(f"{major_minor} (host)", None, probes)


def result_columns(folder: Path) -> list[Column]:
    """Read the results in a folder, in the order of the table of kernels; one that is missing has no column."""
    paths = [folder / f"{kernel.label}.json" for kernel in kernels.KERNELS]
    found = [results.load(path) for path in paths if path.exists()]
    return [Column(result.kernel, result, result.probes) for result in found]


def main() -> int:
    """Write the page, or say why not."""
    parser = argparse.ArgumentParser(prog="python -m vmtest.matrix", description="Make the support matrix.")
    parser.add_argument("results", type=Path, help="folder with the results of `python -m vmtest`")
    parser.add_argument("out", type=Path, help="the page to write")
    parser.add_argument("--no-host", action="store_true", help="leave out this machine's kernel")
    arguments = parser.parse_args()
    try:
        columns = result_columns(arguments.results)
        if not arguments.no_host:
            columns.append(host_column())
        arguments.out.write_text(page(columns))
    except VmtestError as exc:
        sys.stderr.write(f"vmtest: {exc}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
