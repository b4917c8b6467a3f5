# SPDX-License-Identifier: Apache-2.0
"""What a recording is asked for on another host: the words that go there, and what is made of words that come."""

from __future__ import annotations

from typing import Any

import pytest

from hopscope.errors import UsageError
from hopscope.live.words import values_of, words_of
from hopscope.verbs.record.asked import SENT, asked
from hopscope.verbs.record.command import command

# What is the business of who records: files, programs, how to reach hosts, and when to stop.
OURS = {
    *("output", "mode", "duration", "max_size", "wire", "budget", "command"),
    *("hosts", "ssh", "remote_command", "tls_cert", "tls_key", "tls_ca"),
}
OPTIONS = (
    *("-P", "rx", "-P", "drops", "--point", "call.enter", "-e", "tcp:*", "--pcap", "-v port 7", "--stacks"),
    *("--sample", "16", "--snap", "96", "--bytes", "7", "--counters", "0.5", "--interface", "eth0@7"),
    *("-p", "1", "-c", "--nginx"),
    *("--cgroup", "/", "--netns", "self", "--address", "10.0.0.0/8", "--port", "80", "--port", "443"),
    *("--class", "a=port == 7", "--class-buffer", "a=8"),
    *("--buffer", "4", "--flight", "10", "--trigger", "rx.core>1ms", "--flight-memory", "7"),
    *("--attach", "rx.l4=fentry", "--protocol", "udp"),
)


def parsed(*words: str) -> dict[str, Any]:
    values = command.make_context("record", list(words)).params
    return {name: value for name, value in values.items() if name in SENT}


def test_every_option_is_either_sent_or_ours() -> None:
    assert {option.name for option in command.params} == SENT | OURS
    assert not SENT & OURS


@pytest.mark.parametrize("words", [(), OPTIONS], ids=["none", "all"])
def test_what_is_sent_means_the_same_there(words: tuple[str, ...]) -> None:
    values = parsed(*words)
    sent = words_of(command, values)
    assert values_of(command, SENT, sent) == values
    assert bool(sent) == bool(words)


@pytest.mark.parametrize(
    "words",
    [
        ["-o", "/x"],
        ["--output=/x"],
        ["--host=other"],
        ["--ssh=touch /x"],
        ["--remote-command=touch /x"],
        ["--tls-key=/x"],
        ["--duration=1"],
        ["--help"],
        ["touch", "/x"],
        ["--", "touch", "/x"],
        ["-P", "rx", "touch"],
        ["@/etc/passwd"],
        ["--sample=0"],
        ["--snap=1000000"],
        ["--bytes=0"],
        ["--buffer=1024"],
        ["--counters=nan"],
        ["--flight"],
        ["--netns=/proc/1/ns/net"],
    ],
)
def test_nothing_else_is_understood(words: list[str]) -> None:
    with pytest.raises(UsageError):
        values_of(command, SENT, words)


@pytest.mark.parametrize(
    ("words", "pcap"),
    [
        ([], ""),
        (["--pcap", "port 7 or port 8"], "port 7 or port 8"),
        (["--protocol", "tcp"], "(tcp)"),
        (["--protocol", "udp", "--pcap", "port 7 or port 8"], "(udp) and (port 7 or port 8)"),
    ],
)
def test_a_protocol_is_a_packet_filter(words: list[str], pcap: str) -> None:
    options = asked(parsed(*words)).options
    assert options.pcap == pcap
    assert options.shown == {
        name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=True)
    }


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--trigger", "sched.switch>1ms"], "packets do not pass sched.switch"),
        (["--trigger", "rx.ip>1ms"], "rx.ip is not recorded"),
        (["-P", "cpu", "--trigger", "drop"], "skb.drop is not recorded"),
    ],
)
def test_trigger_that_cannot_fire_is_refused(words: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        asked(parsed("--flight", "5", *words))


def test_contents_are_those_of_packets() -> None:
    assert asked(parsed("--bytes", "7")).options.payload_bytes == 7
    with pytest.raises(UsageError, match="--bytes needs packets"):
        asked(parsed("--bytes", "7", "-P", "calls"))
