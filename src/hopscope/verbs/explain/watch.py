# SPDX-License-Identifier: Apache-2.0
"""Record this host for as long as ``explain`` watches it, into a folder that is removed afterwards."""

from __future__ import annotations

import contextlib
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hopscope.errors import UsageError
from hopscope.gate import tell
from hopscope.kernel.capabilities import require_rights
from hopscope.live.lookup import record_options
from hopscope.live.recorder.collector import Recorder
from hopscope.store.folder import open_folder
from hopscope.verbs.record.pipeline import Limits
from hopscope.verbs.record.run import record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Everything that tells causes apart; the CPUs' own events are many, and of little use for it.
_PROFILES: Final = ("messages",)
_POINTS: Final = ("call.enter",)
_COUNTERS_S: Final = 1.0
# What a recording can be asked for in the same words.
_SELECTS: Final = ("protocol", "ports", "addresses", "interfaces")
_OF_TRACES: Final = {"flows": "--flow", "from_s": "--from", "until_s": "--until"}


@contextmanager
def watched(chosen: Mapping[str, Any], duration_s: float) -> Iterator[Path]:
    """Record for so long what is chosen; give the folder.

    Raises
    ------
    UsageError
        Something was chosen that only a recording can be searched for.
    """
    require_rights()
    for name, word in _OF_TRACES.items():
        if chosen[name]:
            raise UsageError(f"{word} needs a TRACE", "Record one with `hopscope record -o TRACE`")
    processes = chosen["processes"]
    options = record_options(
        profiles=_PROFILES,
        points=_POINTS,
        **{name: chosen[name] for name in _SELECTS},
        pids=tuple(int(each) for each in processes if each.isdigit()),
        comms=tuple(each for each in processes if not each.isdigit()),
        cgroups=(),
        namespaces=(),
        ways=(),
    )
    with tempfile.TemporaryDirectory(prefix="hopscope-explain-") as temporary:
        folder = Path(temporary) / "trace"
        tell(f"hopscope: watching for {duration_s:g} s")
        limits = Limits(duration_s, None)
        with contextlib.closing(open_folder(folder)) as opened:
            record(Recorder(options), opened, limits, counters_s=_COUNTERS_S, flight=None, command=(), quiet=True)
        yield folder
