# SPDX-License-Identifier: Apache-2.0
"""The process that asks a container runtime for the names of pods: it has no rights, but connections that it is given.

The runtime (containerd, CRI-O) answers by gRPC on a unix socket: ``runtime.v1.RuntimeService`` of
``pkg/apis/runtime/v1/api.proto`` in kubernetes/cri-api. Two calls list all there is. Their messages are read by hand,
as six fields of them are needed.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

import h2.config
import h2.connection
import h2.events
import h2.exceptions

from hopscope.errors import HopscopeError
from hopscope.term.protobuf import fields, text_in
from hopscope.verbs.serve.family import HEAD, framed, received

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_SERVICE: Final = "/runtime.v1.RuntimeService/"
_DEADLINE_S: Final = 5.0
# Some hundred containers take a megabyte.
_MOST_BYTES: Final = 64 << 20
_PREFIX: Final = struct.Struct("!BI")
_UNIMPLEMENTED: Final = "12"
# Of Container and of PodSandbox: id; of Container: the sandbox it is in. Of both: metadata.
_ID, _SANDBOX, _METADATA = 1, 2, 3
_SANDBOX_METADATA: Final = 2
# Of ContainerMetadata and PodSandboxMetadata.
_NAME, _NAMESPACE = 1, 3
# No name of Kubernetes is longer.
_LONGEST: Final = 253


class Pod(NamedTuple):
    """What Kubernetes calls a container.

    Attributes
    ----------
    namespace, pod, container
        Names; that of the container is empty for the one that only holds the pod's namespaces.
    """

    namespace: str
    pod: str
    container: str


def name_pods(line: socket.socket) -> None:
    """Answer questions until the line ends.

    A question is a list of beginnings of ids in JSON, with a connection to the runtime; the answer is an object with
    ``names``, id → the three of :class:`Pod`, or with ``error``, a sentence. Each has its length before it.
    """
    while head := _with_connection(line):
        size, connection = head
        wanted = json.loads(received(line, size))
        try:
            with connection:
                answer: dict[str, Any] = {"names": names(connection, wanted)}
        except OSError as error:
            answer = {"error": error.strerror or str(error)}
        except Exception as error:  # noqa: BLE001 # whatever a library makes of what a runtime says, measuring goes on
            answer = {"error": str(error) or type(error).__name__}
        line.sendall(framed(json.dumps(answer).encode()))


def _with_connection(line: socket.socket) -> tuple[int, socket.socket] | None:
    """Return the size of the next question, and the connection that came with it; None: there is none."""
    data, fds, _, _ = socket.recv_fds(line, HEAD.size, 1)
    if not data:
        return None
    data += received(line, HEAD.size - len(data))
    return HEAD.unpack(data)[0], socket.socket(fileno=fds[0])


def names(connection: socket.socket, wanted: Collection[str]) -> dict[str, Pod]:
    """Return what containers are called, by the beginnings of their ids, as far as the runtime has them.

    Raises
    ------
    HopscopeError, OSError, ValueError, H2Error
        It does not say so, or not in time.
    """
    calls = _Calls(connection, time.monotonic() + _DEADLINE_S)
    sandboxes = {text_in(each, _ID): _sandbox(each) for each in _listed(calls.call("ListPodSandbox"))}
    containers = [(text_in(each, _ID), each) for each in _listed(calls.call("ListContainers"))]
    found = dict(sandboxes)
    for number, each in containers:
        if pod := sandboxes.get(text_in(each, _SANDBOX)):
            found[number] = pod._replace(container=text_in(each, _METADATA, _NAME)[:_LONGEST])
    beginnings = {each: [pod for number, pod in found.items() if number.startswith(each)] for each in wanted}
    return {each: pods[0] for each, pods in beginnings.items() if len(pods) == 1}


def _sandbox(message: bytes) -> Pod:
    namespace, pod = (text_in(message, _SANDBOX_METADATA, field)[:_LONGEST] for field in (_NAMESPACE, _NAME))
    return Pod(namespace, pod, "")


def _listed(answer: bytes) -> Iterator[bytes]:
    """Yield the messages of a list, which is the first field of both answers."""
    for each in fields(answer).get(1, []):
        if isinstance(each, bytes):
            yield each


class _Calls:
    """Calls of gRPC, one after the other, on a connection: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md."""

    def __init__(self, connection: socket.socket, end_s: float) -> None:
        self._connection, self._end_s = connection, end_s
        self._http = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self._http.initiate_connection()

    def call(self, method: str) -> bytes:
        """Return the answer to an empty request."""
        stream = self._http.get_next_available_stream_id()
        self._http.send_headers(stream, [
            (":method", "POST"), (":scheme", "http"), (":path", f"{_SERVICE}{method}"), (":authority", "localhost"),
            ("te", "trailers"), ("content-type", "application/grpc"), ("user-agent", "hopscope"),
        ])  # fmt: skip
        self._http.send_data(stream, _PREFIX.pack(0, 0), end_stream=True)
        body, headers = bytearray(), dict[str, str]()
        for event in self._events():
            if isinstance(event, h2.events.DataReceived):
                body += event.data
                self._http.acknowledge_received_data(event.flow_controlled_length, stream)
                if len(body) > _MOST_BYTES:
                    raise HopscopeError(f"its answer to {method} is too long")
            elif isinstance(event, (h2.events.ResponseReceived, h2.events.TrailersReceived)):
                headers |= {str(name): str(value) for name, value in event.headers}
            elif isinstance(event, (h2.events.StreamReset, h2.events.ConnectionTerminated)):
                raise HopscopeError(f"it ended the call of {method}")
            elif isinstance(event, h2.events.StreamEnded):
                break
        return _message(method, bytes(body), headers)

    def _events(self) -> Iterator[h2.events.Event]:
        while True:
            self._connection.settimeout(max(self._end_s - time.monotonic(), 1e-3))
            self._connection.sendall(self._http.data_to_send())
            if not (data := self._connection.recv(1 << 16)):
                raise HopscopeError("it ended the connection")
            yield from self._http.receive_data(data)
            if time.monotonic() > self._end_s:
                raise TimeoutError("timed out")


def _message(method: str, body: bytes, headers: dict[str, str]) -> bytes:
    status = headers.get("grpc-status", "")
    if status == _UNIMPLEMENTED:
        raise HopscopeError("it does not speak runtime.v1 of Kubernetes' CRI")
    if status != "0" or len(body) < _PREFIX.size:
        said = unquote(headers.get("grpc-message", "")) or f"status {status or headers.get(':status', '')}"
        raise HopscopeError(f"{method} fails with {said}")
    compressed, size = _PREFIX.unpack_from(body)
    if compressed or len(body) != _PREFIX.size + size:
        raise HopscopeError(f"its answer to {method} is cut off")
    return body[_PREFIX.size :]
