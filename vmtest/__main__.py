# SPDX-License-Identifier: Apache-2.0
"""Run the kernel tests in other kernels: ``python -m vmtest [--kernel 6.12]... [-- COMMAND...]``."""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vmtest import VmtestError, boot, emulator, kernels, pair, results, setup, suite

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHOWN_LINES = 15


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m vmtest",
        description="Boot Debian's kernels under QEMU, one after the other, and run the kernel tests in each.",
    )
    parser.add_argument("--kernel", action="append", default=[], metavar="LABEL", help="this one; default: all")
    parser.add_argument("--list", action="store_true", help="show the kernels and which are on disk")
    parser.add_argument("--requirements", action="store_true", help="print the Debian packages that this needs")
    parser.add_argument("--setup", action="store_true", help="install those that are missing")
    parser.add_argument("--refresh", action="store_true", help="fetch the newest packages even if there are some")
    parser.add_argument(
        "--pair", nargs=2, metavar="LABEL", help="these two at once, as hosts a and b; without --kernel, also by itself"
    )
    parser.add_argument("--without-nics", action="store_true", help="leave out the NICs with clocks, and their tests")
    parser.add_argument("--out", type=Path, default=boot.REPOSITORY / "build" / "vmtest", help="folder for results")
    parser.add_argument("--timeout", type=float, default=1800.0, metavar="SECONDS", help="for each kernel")
    parser.add_argument("command", nargs="*", help="after --: what to run instead of the tests, in the source tree")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """Do what the command line says and return the exit code: 0 only if every kernel passed."""
    arguments = _arguments(argv)
    try:
        # Without a choice of either: all that there is.
        chosen = kernels.select(arguments.kernel) if arguments.kernel or not arguments.pair else []
        if not arguments.kernel and not arguments.pair and not arguments.command:
            arguments.pair = list(pair.DEFAULT)
        if arguments.requirements:
            sys.stdout.write("\n".join(setup.REQUIREMENTS) + "\n")
        elif arguments.setup:
            setup.install()
        elif arguments.list:
            _list(chosen)
        else:
            return _run_all(chosen, arguments)
    except VmtestError as exc:
        sys.stderr.write(f"vmtest: {exc}\n")
        return 1
    return 0


def _list(chosen: Sequence[kernels.Kernel]) -> None:
    for kernel in chosen:
        there = kernels.fetched(kernel, kernels.cache_folder())
        state = f"{there.release} (package {there.version})" if there else "not fetched"
        sys.stdout.write(f"{kernel.label:<6}{kernel.suite:<10}{state}\n")


def _run_all(chosen: Sequence[kernels.Kernel], arguments: argparse.Namespace) -> int:
    finished = []
    refused = False
    for kernel in chosen:
        sys.stdout.write(f"== {kernel.label} (Debian {kernel.suite})\n")
        sys.stdout.flush()
        try:
            finished.append(_run(kernel, arguments))
        except VmtestError as exc:  # the others can still run
            sys.stderr.write(f"vmtest: {kernel.label}: {exc}\n")
            refused = True
    if arguments.pair:
        sys.stdout.write(f"== {' and '.join(arguments.pair)}\n")
        sys.stdout.flush()
        try:
            finished += _run_pair(arguments)
        except VmtestError as exc:
            sys.stderr.write(f"vmtest: {' and '.join(arguments.pair)}: {exc}\n")
            refused = True
    if finished:
        sys.stdout.write(f"\n{results.table(finished)}\nDetails are in {arguments.out}\n")
    return 1 if refused or any(result.verdict != "passed" for result in finished) else 0


def _run(kernel: kernels.Kernel, arguments: argparse.Namespace) -> results.Result:
    nics = kernel.nics and not arguments.without_nics
    command = arguments.command or suite.pytest_command(suite.TESTS + suite.NIC_TESTS if nics else suite.TESTS)
    cache = kernels.cache_folder()
    unpacked = _unpacked(kernel, cache, refresh=arguments.refresh)
    folder = arguments.out / kernel.label
    shutil.rmtree(folder, ignore_errors=True)  # what an earlier run left must not pass for this one's
    machine = emulator.with_nics(cache) if nics else None
    script = suite.guest_commands(command, machine.modules if machine else ())
    outcome = boot.boot(unpacked, script, folder, timeout_s=arguments.timeout, show=True, machine=machine)
    result = results.read(unpacked, outcome, folder)
    results.write(result, arguments.out / f"{kernel.label}.json")
    _tell_why(result, folder, arguments.timeout)
    return result


def _run_pair(arguments: argparse.Namespace) -> list[results.Result]:
    cache = kernels.cache_folder()
    booted = [
        _unpacked(kernel, cache, refresh=arguments.refresh)
        for label in arguments.pair
        for kernel in kernels.select([label])
    ]
    folder = arguments.out / "pair"
    shutil.rmtree(folder, ignore_errors=True)
    command = arguments.command or suite.pytest_command(suite.PAIR_TESTS)
    outcomes = pair.run(booted, command, folder, cache, timeout_s=arguments.timeout)
    found = []
    for name, kernel, outcome in zip(pair.NAMES, booted, outcomes, strict=True):
        result = results.read(replace(kernel, label=f"{name}: {kernel.label}"), outcome, folder / name)
        _tell_why(result, folder / name, arguments.timeout)
        found.append(result)
    return found


def _unpacked(kernel: kernels.Kernel, cache: Path, *, refresh: bool) -> kernels.Unpacked:
    found = None if refresh else kernels.fetched(kernel, cache)
    return found or kernels.fetch(kernel, cache)


def _tell_why(result: results.Result, folder: Path, timeout_s: float) -> None:
    if result.verdict in {"lost", "timeout"}:
        why = f"ended after {timeout_s:.0f} s" if result.verdict == "timeout" else "the guest ended early"
        sys.stderr.write(f"vmtest: {result.kernel}: {why}; its console ends so:\n{_last_words(folder)}\n")


def _last_words(folder: Path) -> str:
    console = (folder / "console.txt").read_text(errors="replace").strip().splitlines()
    return "\n".join(console[-_SHOWN_LINES:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
