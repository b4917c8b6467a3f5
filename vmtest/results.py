# SPDX-License-Identifier: Apache-2.0
"""What a kernel's run came to: read from what it left, written as JSON, shown as a table."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from vmtest import VmtestError, suite

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vmtest.boot import Outcome
    from vmtest.kernels import Unpacked

SCHEMA: Final = 1


@dataclass(frozen=True)
class Tests:
    """Counts of a JUnit file, and what was said of each test that failed or was skipped, by its name."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    skips: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """A kernel's run.

    Attributes
    ----------
    kernel, suite, release, version
        Its label, its Debian suite, ``uname -r``, and the version of its package.
    verdict
        ``passed``, ``failed``, ``lost`` (the guest ended before the command did) or ``timeout``.
    exit_code
        Of the command; None if lost.
    tests
        None if the command ran no tests.
    boot_s, total_s
        Seconds until the command could begin, and in all.
    facts
        Of the running kernel, by name.
    probes
        What ``hopscope probes --json`` said; None if it said nothing.
    """

    kernel: str
    suite: str
    release: str
    version: str
    verdict: str
    exit_code: int | None
    tests: Tests | None
    boot_s: float | None
    total_s: float
    facts: dict[str, str]
    probes: dict[str, Any] | None
    schema: int = SCHEMA


def read(kernel: Unpacked, outcome: Outcome, folder: Path) -> Result:
    """Read what a run left in `folder`.

    A command that ended well passed only if no test failed; no file of test results is as good as the exit code.
    """
    junit = folder / suite.JUNIT_FILE
    tests = parse_junit(junit.read_text()) if junit.exists() else None
    if outcome.exit_code is None:
        verdict = "timeout" if outcome.timed_out else "lost"
    else:
        verdict = "passed" if outcome.exit_code == 0 and not (tests and tests.failed) else "failed"
    return Result(
        kernel=kernel.label,
        suite=kernel.suite,
        release=kernel.release,
        version=kernel.version,
        verdict=verdict,
        exit_code=outcome.exit_code,
        tests=tests,
        boot_s=outcome.boot_s,
        total_s=outcome.total_s,
        facts=_facts(folder / suite.FACTS_FILE),
        probes=_json_object(folder / suite.PROBES_FILE),
    )


def parse_junit(text: str) -> Tests:
    """Count what pytest wrote with ``--junitxml``; an error in a fixture is a failure.

    A test that fails and whose fixture then fails too is in the file twice: it counts once, as failed.
    """
    failures: dict[str, str] = {}
    skips: dict[str, str] = {}
    seen: set[str] = set()
    for case in ET.fromstring(text).iter("testcase"):  # noqa: S314 - our own pytest wrote it
        name = f"{case.get('classname')}::{case.get('name')}"
        seen.add(name)
        for kind, into in (("failure", failures), ("error", failures), ("skipped", skips)):
            for element in case.iter(kind):
                into.setdefault(name, element.get("message", ""))
    for name in failures:
        skips.pop(name, None)
    return Tests(len(seen) - len(failures) - len(skips), len(failures), len(skips), failures, skips)


def write(result: Result, path: Path) -> None:
    """Write a result as JSON."""
    path.write_text(json.dumps(asdict(result), indent=1) + "\n")


def load(path: Path) -> Result:
    """Read a result that `write` wrote.

    Raises
    ------
    VmtestError
        It is none, or of another schema.
    """
    try:
        fields = json.loads(path.read_text())
        if fields["schema"] != SCHEMA:
            raise VmtestError(f"{path} is of schema {fields['schema']}, this reads {SCHEMA}. Run the kernels again")
        tests = Tests(**fields.pop("tests")) if fields["tests"] else fields.pop("tests")
        return Result(tests=tests, **fields)
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise VmtestError(f"{path} is not a result of vmtest ({exc}). Run the kernels again") from exc


def table(results: Sequence[Result]) -> str:
    """Return a line for each kernel, with a heading."""
    rows = [("kernel", "release", "verdict", "passed", "failed", "skipped", "boot s", "total s")]
    rows += [
        (
            result.kernel,
            result.release,
            result.verdict,
            *_counts(result.tests),
            "-" if result.boot_s is None else f"{result.boot_s:.0f}",
            f"{result.total_s:.0f}",
        )
        for result in results
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    texts = 3  # the columns that are read, not compared
    lines = [
        "  ".join(
            cell.ljust(width) if column < texts else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join(lines)


def _counts(tests: Tests | None) -> tuple[str, str, str]:
    return (str(tests.passed), str(tests.failed), str(tests.skipped)) if tests else ("-", "-", "-")


def _facts(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def _json_object(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
