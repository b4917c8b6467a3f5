# SPDX-License-Identifier: Apache-2.0
"""A service that does what tests ask for, and an agent that has it: ``python service.py`` is as ``hopscope agent``."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from hopscope.agent.stream import Message
from hopscope.errors import PrivilegeError

if TYPE_CHECKING:
    from hopscope.agent.stream import Stream

NAME = "test"


def serve(stream: Stream, request: dict[str, Any]) -> None:
    """Do what the request says."""
    DEEDS[request["do"]](stream, request)


def echo(stream: Stream, _request: dict[str, Any]) -> None:
    """Send back all that comes."""
    while (got := stream.receive()) is not None:
        if isinstance(got, Message):
            stream.send(got.body)
        else:
            stream.send_block(got.head, [got.data])


def bulk(stream: Stream, request: dict[str, Any]) -> None:
    """Send `count` blocks of `size_bytes` each."""
    data = bytes(request["size_bytes"])
    for number in range(request["count"]):
        stream.send_block({"number": number}, [data])


def refuse(_stream: Stream, _request: dict[str, Any]) -> None:
    """Lack a right."""
    raise PrivilegeError("It may not do this", "Run it as root")


def fail(_stream: Stream, _request: dict[str, Any]) -> None:
    """Have a bug."""
    raise KeyError("a bug")


def chatter(stream: Stream, _request: dict[str, Any]) -> None:
    """Print to standard output, as a library might."""
    print("noise on standard output")  # noqa: T201
    sys.stdout.flush()
    stream.send({"printed": True})


def hang(stream: Stream, _request: dict[str, Any]) -> None:
    """Do not notice that nobody is there any more."""
    stream.send({"hangs": True})
    threading.Event().wait()


def ignore(stream: Stream, _request: dict[str, Any]) -> None:
    """Take nothing of what comes."""
    while True:
        stream.send({"takes": False})
        time.sleep(0.02)


DEEDS = {function.__name__: function for function in (echo, bulk, refuse, fail, chatter, hang, ignore)}

if __name__ == "__main__":
    from hopscope.__main__ import main
    from hopscope.verbs.agent.command import SERVICES

    SERVICES[NAME] = "service"
    sys.argv[1:] = ["agent"]
    main()
