# SPDX-License-Identifier: Apache-2.0
"""Container runtimes: one that only says what pods there are, as containerd does, and containerd itself in a lab."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc

from hopscope.probes.attach import cgroup_root
from hopscope.term.protobuf import content, fields, number, text_in
from tests.waiting import TIMEOUT_S, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hopscope.lab import Namespace

_SERVICE: Final = "runtime.v1.RuntimeService"
_BUSYBOX: Final = Path("/bin/busybox")
_IMAGE: Final = "hopscope.test/busybox:1"
_ON_NODE: Final = 2  # NamespaceMode
_CGROUP: Final = f"hopscope-test-{os.getpid()}-pods"


@dataclass
class Runtime:
    """What a runtime knows.

    Attributes
    ----------
    pods
        Id of a container → namespace, pod and name. The pod's sandbox has the id backwards.
    calls
        Name of a call → how often there was one.
    """

    pods: dict[str, tuple[str, str, str]]
    calls: Counter[str] = field(default_factory=Counter)

    def answer(self, method: str) -> bytes:
        self.calls[method] += 1
        each = self._container if method == "ListContainers" else self._sandbox
        return b"".join(content(1, each(*item)) for item in self.pods.items())

    @staticmethod
    def _container(id_: str, names: tuple[str, str, str]) -> bytes:
        image = content(4, content(1, _IMAGE)) + content(5, f"sha256:{id_}") + number(6, 1) + number(7, 1 << 60)
        return content(1, id_) + content(2, id_[::-1]) + content(3, content(1, names[2]) + number(2, 3)) + image

    @staticmethod
    def _sandbox(id_: str, names: tuple[str, str, str]) -> bytes:
        label = content(5, content(1, "io.kubernetes.pod.uid") + content(2, "0f" * 16))
        return content(1, id_[::-1]) + content(2, _metadata(names[0], names[1])) + label * 40


def _metadata(namespace: str, pod: str) -> bytes:
    return content(1, pod) + content(2, "0f" * 16) + content(3, namespace) + number(4, 1)


@contextlib.contextmanager
def answering(path: Path, runtime: Runtime) -> Iterator[None]:
    """Have it answer at a socket."""

    class Handler(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
            service, _, method = details.method.lstrip("/").partition("/")
            if service != _SERVICE:
                return None
            return grpc.unary_unary_rpc_method_handler(lambda _request, _context: runtime.answer(method))

    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        server.add_generic_rpc_handlers((Handler(),))
        server.add_insecure_port(f"unix:{path}")
        server.start()
        try:
            yield
        finally:
            server.stop(0).wait()


def why_no_containerd() -> str:
    """Return why no containerd can run here, or nothing."""
    missing = [name for name in ("containerd", "ctr", "runc") if shutil.which(name) is None]
    missing += [] if _BUSYBOX.exists() else ["busybox"]
    return f"needs {' and '.join(missing)}: apt-get install containerd runc busybox-static" if missing else ""


@dataclass
class Containerd:
    """A containerd in a network namespace, whose pods are in that namespace, too."""

    path: Path
    channel: grpc.Channel

    def start(self, namespace: str, pod: str, container: str, *words: str) -> None:
        """Start a pod with a container that runs a command of busybox."""
        namespaces = content(2, content(1, number(1, _ON_NODE) + number(2, _ON_NODE)))
        on_node = content(8, content(1, f"/{_CGROUP}") + namespaces)
        sandbox = content(1, _metadata(namespace, pod)) + on_node
        in_ = text_in(self._call("RunPodSandbox", content(1, sandbox)), 1)
        command = b"".join(content(3, word) for word in (str(_BUSYBOX), *words))
        config = content(1, content(1, container)) + content(2, content(1, _IMAGE)) + command
        made = self._call("CreateContainer", content(1, in_) + content(2, config) + content(3, sandbox))
        self._call("StartContainer", content(1, text_in(made, 1)))

    def ctr(self, *words: str) -> str:
        argv = ["ctr", f"--address={self.path}", "--namespace=k8s.io", *words]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    def remove_all(self) -> None:
        """Stop and remove all pods."""
        for each in fields(self._call("ListPodSandbox", b"")).get(1, []):
            assert isinstance(each, bytes)
            for method in ("StopPodSandbox", "RemovePodSandbox"):
                self._call(method, content(1, text_in(each, 1)))

    def _call(self, method: str, request: bytes) -> bytes:
        answer: bytes = self.channel.unary_unary(f"/{_SERVICE}/{method}")(request, timeout=TIMEOUT_S)
        return answer


@contextlib.contextmanager
def containerd(folder: Path, place: Namespace) -> Iterator[Containerd]:
    """Run one, with its files in a folder, and an image that has busybox."""
    path = folder / "containerd.sock"
    (folder / "config.toml").write_text(f"""
version = 2
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "{path}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{_IMAGE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
""")
    image = folder / "image.tar"
    _write_image(image)
    with (folder / "log").open("w") as log:
        daemon = place.popen(["containerd", f"--config={folder / 'config.toml'}"], stdout=log, stderr=log)
        try:
            with grpc.insecure_channel(f"unix:{path}") as channel:
                grpc.channel_ready_future(channel).result(TIMEOUT_S)
                made = Containerd(path, channel)
                eventually(lambda: _is_up(made), "containerd does not answer")
                made.ctr("images", "import", str(image))
                try:
                    yield made
                finally:
                    made.remove_all()
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait()
            for hierarchy in {cgroup_root(), *Path("/sys/fs/cgroup").iterdir()}:
                with contextlib.suppress(OSError):  # it has none of them
                    (hierarchy / _CGROUP).rmdir()
            shutil.rmtree(folder / "root", ignore_errors=True)


def _is_up(daemon: Containerd) -> bool:
    try:
        return bool(daemon.ctr("version"))
    except subprocess.CalledProcessError:
        return False


def _write_image(path: Path) -> None:
    """Write an image of OCI that has busybox and nothing else, and sleeps."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as files:
        files.add(_BUSYBOX, arcname="bin/busybox")
    blobs: dict[str, bytes] = {}

    def blob(kind: str, data: bytes) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    of_layer = blob("layer.v1.tar", layer.getvalue())
    about = {"architecture": "amd64", "os": "linux", "config": {"Cmd": [str(_BUSYBOX), "sleep", "1000000"]}}
    config = {**about, "rootfs": {"type": "layers", "diff_ids": [of_layer["digest"]]}}
    manifest = {"schemaVersion": 2, "config": blob("config.v1+json", json.dumps(config).encode()), "layers": [of_layer]}
    listed = blob("manifest.v1+json", json.dumps(manifest).encode())
    listed["annotations"] = {"io.containerd.image.name": _IMAGE}
    files_ = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}
    files_["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [listed]}).encode()
    files_ |= {f"blobs/sha256/{digest}": data for digest, data in blobs.items()}
    with tarfile.open(path, mode="w") as archive:
        for name, data in files_.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
