# SPDX-License-Identifier: Apache-2.0
"""A client that may connect, and asks an agent for what no service offers."""

from __future__ import annotations

import importlib
import inspect
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopscope.agent.channel import Channel
from hopscope.agent.serve import Agent
from hopscope.errors import FormatError, RemoteError, UsageError
from hopscope.live.words import values_of
from hopscope.verbs.agent.command import SERVICES
from hopscope.verbs.record.asked import SENT
from tests.agent.pair import pipes
from tests.waiting import TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

LIVE = ("rx", "tx", "cpu", "drops")


def offered(verb: str) -> tuple[click.Command, set[str]]:
    """Return a verb's command, and the options of it that another host may be asked for."""
    module = importlib.import_module(f"hopscope.verbs.{verb}.command")
    names = {option.name for option in module.command.params}
    asked = SENT if verb == "record" else inspect.signature(module.collector).parameters
    return module.command, names & set(asked)


@pytest.mark.parametrize("verb", [*LIVE, "record"])
def test_no_option_that_is_offered_takes_a_file_or_a_program_or_does_something_at_once(verb: str) -> None:
    command, names = offered(verb)
    assert names
    for option in command.params:
        if option.name in names:
            assert not isinstance(option.type, click.Path | click.File)
            assert option.param_type_name == "option"
            assert not option.is_eager
            assert option.envvar is None


@given(
    st.sampled_from([*LIVE, "record"]),
    st.lists(st.text(max_size=12) | st.from_regex(r"--[a-z-]{1,14}(=.{0,9})?", fullmatch=True), max_size=4),
)
def test_any_words_are_options_that_are_offered_or_refused(verb: str, words: list[str]) -> None:
    command, names = offered(verb)
    try:
        values = values_of(command, names, words)
    except (UsageError, FormatError):
        return
    assert values.keys() <= names


@pytest.fixture(scope="module")
def channel() -> Iterator[Channel]:
    here, there = socket.socketpair()
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(Agent, pipes(there), SERVICES)
        with Channel(pipes(here), "client", "b") as made, pending.result():
            yield made


def refused(channel: Channel, service: str, request: dict[str, Any]) -> RemoteError:
    """Return what the agent says to a request, and see that it goes on."""
    with channel.open(service, request) as stream, pytest.raises(RemoteError) as raised:
        stream.receive(TIMEOUT_S)
    assert str(raised.value).isprintable()
    assert channel.lost is None
    return raised.value


@pytest.mark.parametrize(
    "service", ["", "os", "hopscope.verbs.agent.command", "../record", "record\0", "subprocess:run"]
)
def test_there_are_no_services_but_those_on_the_list(channel: Channel, service: str) -> None:
    assert "This agent has no service" in str(refused(channel, service, {}))


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"words": "-P"},
        {"words": [1]},
        {"words": None},
        {"words": ["--", "id"]},
        {"words": ["-P", "messages"] * 200},
        {"words": [], "own": 7},
        {"words": [], "own": [[]]},
        {"words": [], "own": [["tcp", "10.0.0.1", 1, "x", 2]]},
    ],
)
def test_record_takes_no_other_request(channel: Channel, request_: dict[str, Any]) -> None:
    refused(channel, "record", request_)


@pytest.mark.parametrize("verb", ["", "record", "agent", "sql", "../rx", 7, None, ["rx"]])
def test_live_takes_no_other_verb(channel: Channel, verb: object) -> None:
    refused(channel, "live", {"verb": verb, "words": []})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=40)
@given(
    st.sampled_from(["record", "live"]),
    st.dictionaries(st.sampled_from(["words", "own", "verb"]), JSON, max_size=3).filter(
        lambda request: request.get("words") != []  # which asks for what is usual
    ),
)
def test_any_other_request_is_refused_and_the_agent_goes_on(
    channel: Channel, service: str, request_: dict[str, Any]
) -> None:
    assert "failed:" not in str(refused(channel, service, request_))
