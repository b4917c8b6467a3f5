# SPDX-License-Identifier: Apache-2.0
"""Where received and sent packets spend their time in the Linux network stack, hop by hop.

The public interface for programs, which docs/api.md describes: :func:`open` gives what was recorded, :func:`live` what
is happening now. The names in ``__all__``, :mod:`hopscope.errors` and :mod:`hopscope.timestamping` are stable; all else
may change with any version.

Importing this package imports nothing else: NumPy, DuckDB and libbpf are loaded when something needs them.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

__version__ = "0.1.0"

# Name → the module that has it; `__init__.pyi` says the same to type checkers.
_MODULES = {
    "Column": "model.report",
    "CounterSnapshot": "model.counters.rows",
    "CpuSnapshot": "model.cpu",
    "DropSnapshot": "model.drops",
    "Histogram": "model.histogram",
    "HopRow": "model.snapshot",
    "HopscopeError": "errors",
    "Host": "api.recording",
    "Live": "api.snapshots",
    "Message": "model.message",
    "ReceivedMessage": "model.message",
    "Recording": "api.recording",
    "Relation": "api.relation",
    "Report": "model.report",
    "SentMessage": "model.message",
    "Snapshot": "model.snapshot",
    "SocketReport": "verbs.sockets.report",
    "Subscription": "api.subscription",
    "fleet_report": "api.fleet",
    "live": "api.snapshots",
    "open": "api.recording",
    "subscribe": "api.subscription",
}


__all__ = [*_MODULES, "__version__"]  # noqa: PLE0604 # texts


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Keeps ``hopscope.live`` the function: importing the internal package of that name would replace it."""

    @property
    def live(self) -> object:
        return __getattr__("live")

    @live.setter
    def live(self, _package: ModuleType) -> None: ...


sys.modules[__name__].__class__ = _Package
