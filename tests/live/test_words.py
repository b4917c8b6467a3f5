# SPDX-License-Identifier: Apache-2.0
"""Which options of a verb another host may ask for, and that they arrive as they were given."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

import click
import pytest

from hopscope.errors import FormatError, UsageError
from hopscope.live.words import MOST_WORDS, values_of, words_of

if TYPE_CHECKING:
    from pathlib import Path

# Whoever adds an option decides whether it may travel: none that opens a file or starts a program.
SOCKETS = {"pids", "comms", "cgroups", "namespaces", "addresses", "ports"}
HERE = {
    *("interval", "duration", "as_json", "show_plan", "command", "hosts", "ssh", "remote_command", "together"),
    *("tls_cert", "tls_key", "tls_ca"),
}
TRAVEL = {
    "rx": SOCKETS
    | {
        "events",
        "slowest",
        "hops",
        "group_by",
        "max_groups",
        "sample",
        "budget",
        "order",
        "since_entry",
        "nic_stamps",
        "interfaces",
        "protocol",
    }
    | {"min_queue", "ways"},
    "tx": SOCKETS
    | {
        "events",
        "slowest",
        "fields",
        "cdf",
        "hops",
        "group_by",
        "max_groups",
        "sample",
        "rate",
        "budget",
        "protocol",
        "hooks",
        "ways",
    },
    "cpu": {"group_by", "max_groups", "counters", "hz", "sampled", "budget", "ways"},
    "drops": SOCKETS | {"group_by", "interfaces", "protocol", "ways"},
}
STAY = {
    "rx": HERE | {"histogram"},
    "tx": HERE | {"histogram", "svg"},
    "cpu": HERE | {"limit", "breakdown", "folded", "flame", "speedscope"},
    "drops": HERE | {"limit"},
}


def verb(name: str) -> tuple[click.Command, set[str]]:
    """Return a verb's command and the options that may travel."""
    module = importlib.import_module(f"hopscope.verbs.{name}.command")
    return module.command, set(inspect.signature(module.collector).parameters)


@pytest.mark.parametrize("name", TRAVEL)
def test_each_option_travels_or_stays(name: str) -> None:
    command, allowed = verb(name)
    assert allowed == TRAVEL[name]
    assert {option.name for option in command.params} == TRAVEL[name] | STAY[name]
    assert not any(isinstance(each.type, click.File | click.Path) for each in command.params if each.name in allowed)


def given(name: str, *arguments: str) -> dict[str, Any]:
    """Return the values of a verb's options that travel, as its command line has them."""
    command, allowed = verb(name)
    values = command.make_context(name, [*arguments]).params
    return {option: values[option] for option in allowed}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("rx", ""),
        ("rx", "--hop rx.ip --hop rx.tcp -g interface --max-groups 3 --sample 7 --order include --since-entry"),
        ("rx", "-p 1 -p 2 --comm nginx --cgroup /a --netns self --address fd00::/8 --port 443 --min-queue 5"),
        (
            "rx",
            "--events --slowest 2 --comm=-x --attach rx.core=kprobe --nic-stamps --protocol tcp --interface eth0@host",
        ),
        ("tx", "--events --slowest 3 --fields cwnd,srtt_ns --cdf tx.ack --rate 9 --hooks host --protocol udp"),
        ("cpu", "-g process --sampled -F 49 --max-groups 2 --counters"),
        ("cpu", "--budget 0.5"),
        ("drops", "-g reason -g cpu --interface lo"),
        ("drops", ""),
    ],
)
def test_options_arrive_as_they_were_given(name: str, arguments: str) -> None:
    command, allowed = verb(name)
    values = given(name, *arguments.split())
    assert values_of(command, allowed, words_of(command, values)) == values


def test_what_is_usual_is_not_said() -> None:
    command, _ = verb("rx")
    assert words_of(command, given("rx", "--port", "443", "--since-entry")) == ["--since-entry", "--port=443"]


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("cpu", ["--flame={file}"], "No such option '--flame'"),
        ("tx", ["--svg={file}"], "No such option '--svg'"),
        ("rx", ["--host=b"], "No such option '--host'"),
        ("rx", ["--json"], "No such option '--json'"),
        ("rx", ["--help"], "No such option '--help'"),
        ("rx", ["--duration=1"], "No such option '--duration'"),
        ("rx", ["--", "touch", "{file}"], "Got unexpected extra arguments"),
        ("rx", ["touch"], "Got unexpected extra argument"),
        ("rx", ["--port=0"], "Invalid value for '--port'"),
        ("rx", ["--hop"], "Option '--hop' requires an argument"),
        ("rx", ["--netns=/etc/passwd"], "/etc/passwd is a path, which cannot name a namespace"),
        ("drops", ["--interface=eth0@/proc/1/ns/net"], "is a path, which cannot name a namespace"),
    ],
)
def test_what_another_host_may_not_ask_for_is_refused(name: str, words: list[str], said: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    command, allowed = verb(name)
    with pytest.raises(UsageError, match=said):
        values_of(command, allowed, [word.format(file=file) for word in words])
    assert not file.exists()


@pytest.mark.parametrize("words", [None, "--port=1", {"--port": 1}, [1], ["--port=1"] * (MOST_WORDS + 1), ["-" * 5000]])
def test_what_are_no_words_is_refused(words: object) -> None:
    command, allowed = verb("rx")
    with pytest.raises(FormatError, match="options of a request"):
        values_of(command, allowed, words)
