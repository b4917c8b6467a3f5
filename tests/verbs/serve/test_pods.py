# SPDX-License-Identifier: Apache-2.0
"""Names of pods: those of the container runtime, asked for seldom, and ids where it does not say them."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import h2.exceptions
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope.errors import HopscopeError
from hopscope.lab import Lab
from hopscope.term.protobuf import content
from hopscope.verbs.serve import cri, pods
from hopscope.verbs.serve.pods import Pods
from tests.lab.command import complaint, hopscope, only
from tests.lab.cri import Runtime, answering, containerd, why_no_containerd
from tests.lab.measure import cgroup, in_thread, sink_traffic, way
from tests.verbs.serve.served import serving
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.verbs.serve.served import Served

WEB, OTHER_WEB, DB, UNKNOWN = (digits * 16 for digits in ("0a1b", "0a1c", "2d3e", "4f5a"))
NAMED = {WEB: ("shop", "web-7d9f", "nginx"), OTHER_WEB: ("shop", "web-7d9f", "nginx"), DB: ("shop", "db-0", "postgres")}
REST = ("other",) * 4


def called(number: str) -> tuple[str]:
    return (f"container {number[:12]}",)


@contextlib.contextmanager
def naming(where: Path) -> Iterator[Pods]:
    """Yield names that a thread asks for."""
    ours, theirs = socket.socketpair()

    def answer() -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # nobody wants it any more
            cri.name_pods(theirs)

    with theirs, in_thread(answer), ours:
        yield Pods(str(where), ours)


def looked(names: Pods, *numbers: str) -> list[tuple[str, ...]]:
    """Return labels as an interval has them."""
    names.take()
    found = [names.labels(called(number)) for number in numbers]
    names.ask()
    return found


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no time between two questions, and a short one for an answer."""
    monkeypatch.setattr(pods, "_LEAST_S", 0.0)
    monkeypatch.setattr(cri, "_DEADLINE_S", 0.5)


def test_a_container_has_its_name_after_one_question_and_others_their_ids(tmp_path: Path) -> None:
    runtime = Runtime(dict(NAMED))
    with answering(tmp_path / "s", runtime), naming(tmp_path / "s") as names:
        assert looked(names, WEB, UNKNOWN) == [REST, REST]
        eventually(lambda: looked(names, WEB) == [("", *NAMED[WEB])])
        assert looked(names, UNKNOWN, OTHER_WEB[::-1]) == [(*called(UNKNOWN), "", "", ""), REST]
        # A group that is no container, and what the kernel side does not tell apart.
        assert [names.labels(each) for each in [("/user.slice",), ("other",)]] == [("/user.slice", "", "", ""), REST]
        for _ in range(1000):
            looked(names, WEB, UNKNOWN)
    assert runtime.calls == {"ListPodSandbox": 1, "ListContainers": 1}


def test_thousands_of_pods_are_read(tmp_path: Path) -> None:
    many = {f"{number:064x}"[::-1]: ("shop", f"web-{number}", "nginx") for number in range(3000)}
    with answering(tmp_path / "s", Runtime(many)), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(tmp_path / "s"))
        wanted = {number[:12]: names for number, names in list(many.items())[5::1000]}
        assert cri.names(connection, wanted) == wanted


def test_two_containers_that_begin_alike_have_no_name(tmp_path: Path) -> None:
    alike = {WEB: ("shop", "web", "a"), WEB[:12] + "f" * 52: ("shop", "web", "b")}
    with answering(tmp_path / "s", Runtime(alike)), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(tmp_path / "s"))
        assert cri.names(connection, [WEB[:12]]) == {}


@pytest.mark.usefixtures("at_once")
def test_a_runtime_that_is_not_there_is_told_of_once_and_asked_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s"
    with naming(path) as names:
        assert looked(names, WEB) == [REST]
        for _ in range(3):
            assert looked(names, WEB) == [(*called(WEB), "", "", "")]
        with answering(path, Runtime(dict(NAMED))):
            eventually(lambda: looked(names, WEB) == [("", *NAMED[WEB])])
    instead = "containers are named by their ids. Give --kubernetes the socket of the node's container runtime"
    assert capsys.readouterr().err.splitlines() == [
        f"hopscope: {path} does not give the names of pods: No such file or directory; {instead}",
        f"hopscope: {path} gives the names of pods again",
    ]


def test_a_runtime_that_is_not_there_is_told_of_without_any_container(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with naming(tmp_path / "s") as names:
        for _ in range(3):
            looked(names)
    (line,) = capsys.readouterr().err.splitlines()
    assert "No such file or directory" in line


def silent(_connection: socket.socket) -> None:
    pass


def ends(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)


def speaks_http1(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(("act", "why"), [(silent, "timed out"), (ends, ""), (speaks_http1, "")])
def test_a_runtime_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, act: Callable[[socket.socket], None], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, kept = tmp_path / "s", []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    kept.append(listener.accept()[0])
                    act(kept[-1])

        with in_thread(accept):
            with naming(path) as names:
                assert looked(names, WEB) == [REST]
                eventually(lambda: looked(names, WEB) == [(*called(WEB), "", "", "")])
            listener.shutdown(socket.SHUT_RDWR)
    for each in kept:
        each.close()
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line


def test_a_runtime_of_another_version_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cri, "_SERVICE", "/runtime.v2.RuntimeService/")
    with answering(tmp_path / "s", Runtime({})), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(tmp_path / "s"))
        with pytest.raises(HopscopeError, match=r"does not speak runtime\.v1"):
            cri.names(connection, [])


@given(answers=st.lists(st.binary(max_size=60) | st.binary(max_size=20).map(lambda each: content(1, each)), max_size=2))
def test_whatever_a_runtime_answers_is_read_or_an_error(answers: list[bytes]) -> None:
    left = iter(answers)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cri._Calls, "call", lambda *_: next(left, b""))
        with socket.socket() as connection, contextlib.suppress(ValueError):
            assert set(cri.names(connection, ["a", "0a1b"])) <= {"a", "0a1b"}


@given(answer=st.binary(max_size=60), begins=st.booleans())
def test_whatever_is_no_http_is_an_error(answer: bytes, begins: bool) -> None:  # noqa: FBT001 # Hypothesis gives it
    settings = b"\0\0\0\4\0\0\0\0\0"  # an empty frame, as a server begins
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall((settings if begins else b"") + answer)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises((HopscopeError, OSError, ValueError, h2.exceptions.H2Error)):
            cri.names(ours, ["0a1b"])


@pytest.mark.parametrize("words", [["--group-by=interface"], []])
def test_without_groups_of_cgroups_it_is_refused(words: list[str]) -> None:
    done = hopscope("serve", "--listen=127.0.0.1:0", "--check", *words, "--kubernetes")
    assert "--group-by cgroup" in complaint(done, 2)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("kubernetes = true", 0),
        ("kubernetes = '/run/x.sock'", 0),
        ("kubernetes = false", 2),
        ("kubernetes = []", 2),
        ("max-groups = true", 2),  # which takes no word alone
    ],
)
def test_the_configuration_may_name_a_socket_or_not(tmp_path: Path, line: str, code: int) -> None:
    config = tmp_path / "serve.toml"
    config.write_text(f"listen = '127.0.0.1:0'\ngroup-by = 'cgroup'\n{line}\n")
    assert hopscope("serve", "--config", config, "--check").returncode == code


def counts(served: Served, hop: str = "rx.udp_total") -> dict[str, float]:
    """Return the labels of each group of a hop → its samples."""
    prefix = f'hop="{hop}",unit="packet",'
    name = "hopscope_receive_hop_seconds_count"
    return {key[1].removeprefix(prefix): value for key, value in served.samples().items()
            if key[0] == name and key[1].startswith(prefix)}  # fmt: skip


def labels(cgroup: str, namespace: str, pod: str, container: str) -> str:
    return f'cgroup="{cgroup}",k8s_namespace="{namespace}",k8s_pod="{pod}",k8s_container="{container}"'


@pytest.mark.root
def test_metrics_have_names_of_pods_and_no_sample_is_lost_or_counted_twice(tmp_path: Path) -> None:
    words = ("-i", "0.2", "--collect=rx", "--group-by=cgroup", f"--kubernetes={tmp_path / 's'}")
    with (
        answering(tmp_path / "s", Runtime(dict(NAMED))),
        Lab() as lab,
        cgroup(f"cri-containerd-{WEB}.scope") as web, cgroup(f"crio-{OTHER_WEB}.scope") as again,
        cgroup(f"docker-{UNKNOWN}.scope") as unknown,
        serving(*words, *only(lab)) as served,
    ):  # fmt: skip
        path = way(lab, "veth-4")
        sent = 0

        def send(group: Path, wanted: str) -> None:
            """Send until what is sent has the wanted label, and see that the sum is exact."""
            nonlocal sent
            before = counts(served).get(wanted, 0)

            def is_named() -> bool:
                nonlocal sent
                sink_traffic(path, 5, "--cgroup", group)
                sent += 5
                found = eventually(lambda: sum((now := counts(served)).values()) == sent and now)
                return found.get(wanted, 0) > before

            eventually(is_named)

        of_web, of_unknown = labels("", *NAMED[WEB]), labels(*called(UNKNOWN), "", "", "")
        send(web, of_web)
        send(again, of_web)  # a container of the same name that was started anew
        send(unknown, of_unknown)
        assert set(counts(served)) <= {of_web, of_unknown, labels(*REST)}
        status = Path(f"/proc/{served.children()[1]}/status").read_text()
        asks = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert (asks["Uid"].split()[1] != "0", int(asks["CapBnd"], 16), asks["Seccomp"]) == (True, 0, "2")


@pytest.mark.root
@pytest.mark.skipif(bool(why_no_containerd()), reason=why_no_containerd())
def test_containerd_gives_the_names_of_its_pods(tmp_path: Path) -> None:
    with Lab() as lab, containerd(tmp_path, lab.server) as daemon:
        daemon.start("shop", "web-7d9f", "httpd", "httpd", "-f", "-p", "8080")
        words = ("-i", "0.2", "--collect=rx", "--group-by=cgroup", f"--kubernetes={daemon.path}", *only(lab))
        with serving(*words) as served:
            wanted = labels("", "shop", "web-7d9f", "httpd")

            def is_named() -> bool:
                with lab.client.call(socket.create_connection, ("10.77.0.2", 8080)) as client:
                    client.sendall(b"GET / HTTP/1.0\r\n\r\n")
                    while client.recv(4096):
                        pass
                return wanted in counts(served, "rx.tcp_total")

            eventually(is_named)
