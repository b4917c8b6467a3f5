# SPDX-License-Identifier: Apache-2.0
"""Options that select sockets are the filter that a user would write for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hopscope.kernel.sockets.filter_parse import parse
from hopscope.kernel.sockets.table import TCP, UDP, UDPLITE
from hopscope.verbs.sockets.command import _options

if TYPE_CHECKING:
    from hopscope.verbs.sockets.collector import SocketOptions

_NOTHING = {
    **dict.fromkeys(("tcp", "udp", "listening", "all"), False),
    **dict.fromkeys(("port", "address", "cgroup", "netns", "filter"), ()),
}


def options(**chosen: object) -> SocketOptions:
    return _options({**_NOTHING, **chosen}, "trouble", processes=False)


@pytest.mark.parametrize(
    ("chosen", "written"),
    [
        ({"port": (80,)}, "sport = :80 or dport = :80"),
        ({"port": (80, 443)}, "sport = :80 or dport = :80 or sport = :443 or dport = :443"),
        (
            {"address": ("10.0.0.0/8", "fd00::1")},
            "src 10.0.0.0/8 or dst 10.0.0.0/8 or src fd00::1/128 or dst fd00::1/128",
        ),
        (
            {"filter": ("dport", "=", ":22", "or", "dport", "=", ":23"), "port": (80,), "address": ("::1",)},
            "(( dport = :22 or dport = :23 ) and ( sport = :80 or dport = :80 )) and ( src ::1/128 or dst ::1/128 )",
        ),
        ({}, ""),
    ],
)
def test_options_are_the_filter_that_is_written(chosen: dict[str, object], written: str) -> None:
    assert options(**chosen).filter.condition == parse([written], int).condition


def test_states_of_a_filter_stay_beside_options() -> None:
    assert (
        options(filter=("state", "established"), port=(80,)).filter.states == parse(["state established"], int).states
    )


@pytest.mark.parametrize(
    ("chosen", "protocols"), [({}, [TCP, UDP, UDPLITE]), ({"tcp": True}, [TCP]), ({"udp": True}, [UDP, UDPLITE])]
)
def test_protocols(chosen: dict[str, object], protocols: list[int]) -> None:
    assert list(options(**chosen).protocols) == protocols


def test_what_was_chosen_is_shown_with_the_result() -> None:
    assert options(port=(80, 443), filter=("dport", "=", ":22")).shown == {"port": "80, 443", "filter": "dport = :22"}
