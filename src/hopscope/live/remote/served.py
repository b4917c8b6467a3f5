# SPDX-License-Identifier: Apache-2.0
"""Service ``live``: a verb's collector on this host, as the options of its own command line ask for it."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

from hopscope.live.remote import service as live
from hopscope.live.remote.codec import CODECS
from hopscope.live.words import values_of
from hopscope.model.checked_json import Fields

if TYPE_CHECKING:
    from hopscope.agent.stream import Stream


def serve(stream: Stream, request: dict[str, Any]) -> None:
    """Run the collector of ``{"verb": "rx", "words": ["--port=443"], "own": [...]}`` until the stream ends.

    Raises
    ------
    HopscopeError
        What it could not do.
    """
    verb = Fields(request, "A request").choice("verb", CODECS)
    module = importlib.import_module(f"hopscope.verbs.{verb}.command")
    values = values_of(module.command, inspect.signature(module.collector).parameters, request.get("words"))
    live.serve(stream, request, verb, module.collector(**values))
