# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import hopscope as package
from cli.command import TIMEOUT_S, complaint, environ, hopscope
from hopscope.cli.main import VERBS


def test_help_mentions_every_verb() -> None:
    done = hopscope("--help")
    assert (done.returncode, done.stderr) == (0, "")
    listed = done.stdout.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == list(VERBS)
    assert "..." not in done.stdout.partition("Commands:\n")[2]


def test_without_a_verb_it_is_the_help() -> None:
    assert hopscope().stdout == hopscope("--help").stdout


def test_every_file_of_a_verb_is_one() -> None:
    folder = Path(package.__file__).parent / "cli"
    verbs = {
        path.stem for path in folder.glob("*.py") if re.search(r'\n@click\.(command|group)\((\n|")', path.read_text())
    }
    assert verbs - {"main"} == set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_is_folded_to_the_terminal(verb: str) -> None:
    done = hopscope(verb, "--help")
    assert done.returncode == 0
    assert "\b" not in done.stdout
    assert "\\b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_help_of_rx_has_a_line_a_hop() -> None:
    lines = [line.split()[0] for line in hopscope("rx", "--help").stdout.splitlines() if line.startswith("  rx.")]
    assert lines[:5] == ["rx.softirq", "rx.napi", "rx.nic", "rx.core", "rx.ip"]


@pytest.mark.parametrize(
    "args", [["--help"], ["rx", "--help"], ["cdf", "--help"], ["demo", "--help"], ["probes", "--help"]]
)
def test_help_imports_nothing_heavy(args: list[str]) -> None:
    argv = [sys.executable, "-X", "importtime", "-m", "hopscope", *args]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=True, env=environ())
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "hopscope.cli.main" in imported
    assert imported & {"numpy", "pyroute2", "hopscope.libbpf", "hopscope.probes"} == set()


def test_version_is_the_package_s() -> None:
    assert hopscope("--version").stdout.split()[-1] == package.__version__


def test_the_installed_command_is_the_same() -> None:
    script = Path(sys.executable).with_name("hopscope")
    done = subprocess.run(
        [script, "--help"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True, env=environ()
    )
    assert done.stdout == hopscope("--help").stdout


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nope"], "No such command 'nope'"),
        (["--nope"], "No such option '--nope'"),
        (["rx", "--nope"], "No such option '--nope'"),
        (["rx", "--pid", "abc"], "'abc' is not a valid integer"),
        (["rx", "--port", "0"], "0 is not in the range 1<=x<=65535"),
        (["rx", "--port", "65536"], "65536 is not in the range"),
        (["rx", "--protocol", "sctp"], "'sctp' is not one of 'tcp', 'udp'"),
        (["rx", "--group-by", "colour"], "'colour' is not one of "),
        (["rx", "--sample", "0"], "0 is not in the range"),
        (["rx", "--min-queue", "4294967296"], "4294967296 is not in the range"),
        (["rx", "--interval", "0"], "0.0 is not in the range"),
        (["rx", "--interval", "nan"], "nan is not a number"),
        (["rx", "--duration", "inf"], "inf is not in the range"),
        (["rx", "--interval"], "requires an argument"),
        (["demo", "--duration", "nan"], "nan is not a number"),
        (["demo", "more"], "unexpected extra argument"),
        (["cdf", "tx.ack"], "Missing argument 'FILE...'"),
    ],
)
def test_wrong_usage_is_one_sentence_with_the_next_step(args: list[str], said: str) -> None:
    done = hopscope(*args)
    sentence = complaint(done, 2)
    assert said in sentence
    # click does not tell whose option lacks its argument.
    verb = f" {args[0]}" if args[0] in VERBS and args[-1] != "--interval" else ""
    assert sentence.endswith(f". See hopscope{verb} --help")
    assert done.stdout == ""
