# SPDX-License-Identifier: Apache-2.0
"""The DaemonSet is what Kubernetes takes, has the rights that the page names and no others, and these are enough."""

from __future__ import annotations

import contextlib
import shlex
import ssl
import subprocess
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Final

import kubernetes_validate
import pytest
import yaml

from hopscope.lab import Lab
from tests.agent.certificates import Authority, agent_files
from tests.lab.command import HOPSCOPE, environ, hopscope
from tests.lab.cri import Runtime, answering
from tests.lab.measure import cgroup, sink_traffic, way
from tests.shared import HERE
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLDER: Final = HERE.parent / "examples" / "kubernetes"
OBJECTS: Final[list[dict[str, Any]]] = list(yaml.safe_load_all((FOLDER / "hopscope.yaml").read_text()))
KINDS: Final = {each["kind"]: each for each in OBJECTS}
POD: Final = KINDS["DaemonSet"]["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
CAPABILITIES: Final = [f"CAP_{name}" for name in CONTAINER["securityContext"]["capabilities"]["add"]]
TOKEN: Final = "0123456789abcdef0123456789abcdef"  # noqa: S105 # of this test


@pytest.mark.parametrize("version", ["1.27", "1.37"])
def test_each_object_is_what_kubernetes_takes(version: str) -> None:
    for each in OBJECTS:
        kubernetes_validate.validate(each, version, strict=True)


def test_capabilities_are_those_that_the_page_names() -> None:
    page = (HERE.parent / "docs" / "privileges.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith("| `serve` |")]
    (rule,) = [line for line in page.splitlines() if line.startswith("- **CAP_SETUID, CAP_SETGID, CAP_KILL**")]
    measuring, besides = row.split("|")[2].replace(",", "").split(), rule.split("**")[1].split(", ")
    assert measuring + besides == CAPABILITIES
    assert CONTAINER["securityContext"]["capabilities"]["drop"] == ["ALL"]


def test_what_objects_name_of_each_other_is_there() -> None:
    names = {(each["kind"], each["metadata"]["name"]) for each in OBJECTS}
    volumes = {each["name"]: each for each in POD["volumes"]}
    assert ("ServiceAccount", POD["serviceAccountName"]) in names
    assert ("ConfigMap", volumes["config"]["configMap"]["name"]) in names
    assert {each["name"] for each in CONTAINER["volumeMounts"]} == set(volumes)
    monitor = yaml.safe_load((FOLDER / "podmonitor.yaml").read_text())["spec"]
    labels = KINDS["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"] == labels == KINDS["DaemonSet"]["spec"]["selector"]["matchLabels"]
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert endpoint["port"] in {each["name"] for each in CONTAINER["ports"]}
    secret = volumes["secret"]["secret"]["secretName"]
    assert endpoint["authorization"]["credentials"]["name"] == endpoint["tlsConfig"]["ca"]["secret"]["name"] == secret


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """What is mounted into the pod, in a folder of the test: the configuration and its secrets."""
    own = agent_files(Authority.new(tmp_path / "ca"))
    for name, text in (
        ("tls.crt", own.certificate.read_text()), ("tls.key", own.key.read_text()), ("token", TOKEN),
        ("serve.toml", _moved(KINDS["ConfigMap"]["data"]["serve.toml"], tmp_path)),
    ):  # fmt: skip
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o400)
    return tmp_path


def _moved(config: str, folder: Path) -> str:
    for mounted_ in ("/run/hopscope", "/run/containerd"):
        config = config.replace(mounted_, str(folder))
    return config


def test_its_configuration_is_valid(mounted: Path) -> None:
    assert hopscope("serve", "--config", mounted / "serve.toml", "--check").stdout == "The options are valid.\n"


@contextlib.contextmanager
def in_its_place(capabilities: list[str], config: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run the service as the pod has it: its capabilities, and a file system of which one folder can be written.

    That is /var/tmp, as our own /tmp has what the test has made.
    """
    folders = map(shlex.quote, ("/", "/run", "/var", str(config.parent)))
    script = "\n".join((
        *(f"if mountpoint -q {each}; then mount -o remount,bind,ro {each}; fi" for each in folders),
        "for each in tracing debug; do if mountpoint -q /sys/kernel/$each; then umount -l /sys/kernel/$each; fi; done",
        "mount -t tmpfs -o size=16m none /var/tmp", 'exec "$@"',
    ))  # fmt: skip
    names = ["-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in capabilities)]
    rights = ["setpriv", *(f"--{kind}={','.join(names)}" for kind in ("inh-caps", "bounding-set")), "--no-new-privs"]
    place = ["unshare", "--mount", "--cgroup", "--propagation=slave", "sh", "-ec", script, "sh"]
    argv = [*place, *rights, *HOPSCOPE, "serve", "--config", str(config), "--listen", "127.0.0.1:0", *words]
    with subprocess.Popen(
        argv, env=environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        try:
            yield child
        finally:
            child.terminate()


@pytest.mark.root
def test_it_measures_with_what_the_pod_has(mounted: Path) -> None:
    number = "0a1b" * 16
    with (
        answering(mounted / "containerd.sock", Runtime({number: ("shop", "web-7d9f", "nginx")})),
        Lab() as lab, cgroup(f"cri-containerd-{number}.scope") as group,
        in_its_place(CAPABILITIES, mounted / "serve.toml", "--interval=1", "--budget=none", "--max-groups=99") as child,
    ):  # fmt: skip
        assert child.stdout
        assert child.stderr
        url = child.stdout.readline().strip()
        assert url.startswith("https://"), child.stderr.read()
        eventually(lambda: child.poll() is not None or _status(url.replace("metrics", "readyz")) == 200)
        assert child.poll() is None, child.stderr.read()
        assert _status(url.replace("metrics", "healthz")) == 200
        token = {"Authorization": f"Bearer {TOKEN}"}
        found = _read(url, **token)
        for collector in KINDS["ConfigMap"]["data"]["serve.toml"].split("collect = [")[1].split("]")[0].split(", "):
            assert f"hopscope_collector_up{{collector={collector}}} 1" in found
        assert 'hopscope_point_attached{point="tx.sockets"} 1' in found  # at the root of all cgroups

        def is_named() -> bool:
            sink_traffic(way(lab, "veth-4"), 5, "--cgroup", group)
            return 'k8s_namespace="shop",k8s_pod="web-7d9f",k8s_container="nginx"' in _read(url, **token)

        eventually(is_named)
        child.terminate()
        assert child.wait() == 0, child.stderr.read()


def _read(url: str, **headers: str) -> str:
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE  # as the kubelet does
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 # our own
    with urllib.request.urlopen(request, context=unchecked) as answer:  # noqa: S310 # our own
        text: str = answer.read().decode()
        return text


def _status(url: str) -> int:
    try:
        _read(url)
    except urllib.error.HTTPError as error:
        return error.code
    except urllib.error.URLError:
        return 0  # it does not listen yet
    return 200


@pytest.mark.root
@pytest.mark.parametrize("missing", ["CAP_SETUID", "CAP_SETGID", "CAP_KILL"])
def test_without_one_that_root_needs_a_sentence_names_it(mounted: Path, missing: str) -> None:
    held = [each for each in CAPABILITIES if each != missing]
    with in_its_place(held, mounted / "serve.toml") as child:
        _, said = child.communicate()
    assert child.returncode == 77
    assert f"(missing: {missing})" in said
