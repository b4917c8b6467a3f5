# SPDX-License-Identifier: Apache-2.0
"""Each command runs with the capabilities that its page names, over traffic, and says which of them is missing."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import re
import shlex
import shutil
import socket
import subprocess
import threading
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import hopscope as hopscope_api
from tests.lab.another_user import AnotherUser, another_user
from tests.lab.command import HOPSCOPE, complaint, environ, hopscope
from tests.lab.measure import ping, tcp_pair, udp_pair, way
from tests.lab.tmux import Tmux
from tests.verbs.web.served import Site
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hopscope.lab import Lab

pytestmark = pytest.mark.root

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "privileges.md"
_ROW: Final = re.compile(r"^\| (`.*?) \| (.*?) \| (.*?) ?\|$", re.MULTILINE)
_NAME: Final = re.compile(r"CAP_\w+")
_COST: Final = "CPU in BPF unknown"
_NAMESPACES: Final = r"without .*CAP_SYS_ADMIN.*, hopscope can enter no network namespace"
_PROCESSES: Final = r"without .*CAP_SYS_PTRACE.*, hopscope can enter no network namespace"
_OWNERS: Final = "could not be inspected, which takes CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"


def _of(*names: str) -> str:
    """Return the path of a kept recording, or of a part of one."""
    return str(Path(__file__).parent.joinpath("recordings", *names))


_TRACE: Final = _of("apart")
_UDP: Final = _of("udp")
_SECONDS: Final = ("-d", "0.5")


@dataclass(frozen=True)
class Case:
    """How a row's command is run, what it shows of the traffic, and what it says without what shows more."""

    words: tuple[str, ...]
    shows: str
    says: dict[str, str] = field(default_factory=dict)


_HOOKS: Final = {"CAP_SYS_ADMIN": _NAMESPACES, "CAP_SYS_PTRACE": _PROCESSES}
_ALL: Final = {**_HOOKS, "CAP_SYSLOG": "CAP_SYSLOG shows them", "CAP_DAC_READ_SEARCH": _OWNERS}
CASES: Final = {
    "rx": Case(("rx", *_SECONDS), r"rx\.udp_total +[1-9]", _HOOKS),
    "tx": Case(("tx", *_SECONDS), r"tx\.\S+ .*[1-9]", _HOOKS),
    "cpu": Case(
        ("cpu", *_SECONDS), r"(?m)^send .*[1-9]", {"CAP_SYSLOG": "CAP_SYSLOG shows them", "CAP_SYS_ADMIN": _COST}
    ),
    "cpu --breakdown": Case(("cpu", "--breakdown", *_SECONDS), r"(?m)^send .*[1-9]", {"CAP_SYS_ADMIN": _COST}),
    "cpu --sampled": Case(
        ("cpu", "--sampled", "-F", "999", *_SECONDS), r"(?m)^(send|receive|net_rx) .*[1-9]", {"CAP_SYS_ADMIN": _COST}
    ),
    "drops": Case(("drops", *_SECONDS), r"(?i)no_socket", {"CAP_SYSLOG": "CAP_SYSLOG", "CAP_SYS_ADMIN": _COST}),
    "record": Case(("record", "-o", "t", *_SECONDS), r"[1-9][\d,]* events in", {**_HOOKS, "CAP_SYSLOG": "CAP_SYSLOG"}),
    "record --library": Case(
        ("record", "-o", "t", "--library", "openssl", *_SECONDS),
        r"[1-9][\d,]* events in",
        {"CAP_SYSLOG": "CAP_SYSLOG", "CAP_SYS_PTRACE": "inspected, which takes CAP_SYS_PTRACE"},
    ),
    "record -e": Case(
        ("record", "-o", "t", "-e", "net:net_dev_queue", *_SECONDS),
        r"[1-9][\d,]* events in",
    ),
    "serve": Case(
        ("serve", "--listen", "127.0.0.1:0", "--socket", "t", "-i", "0.2"),
        r'(?s)udp_total".* [1-9].*"point": "rx.l4"',
        {name: f"without .*{name}.*, some names" for name in ("CAP_SYSLOG", "CAP_SYS_ADMIN", "CAP_SYS_PTRACE")},
    ),
    "wire": Case(
        ("wire", *_SECONDS),
        r"[1-9][\d,]* events? sent to hop0",
        {"CAP_SYSLOG": "CAP_SYSLOG", "CAP_SYS_PTRACE": _PROCESSES},
    ),
    "wire -e": Case(
        ("wire", "-e", "net:net_dev_queue", *_SECONDS),
        r"[1-9][\d,]* events? sent to hop0",
    ),
    "wire TRACE": Case(("wire", _UDP, "--speed", "50", "--wait", "0"), r"[1-9][\d,]* events? sent to hop0"),
    "wire match -e": Case(("wire", "match", "-e", "net:net_dev_queue", "len > 100"), "ether.16:2. = 1024"),
    "record --wire": Case(("record", "-o", "t", "--wire", "hop0", "-d", "1"), r"[1-9][\d,]* events in"),
    "mark": Case(("mark", "here"), r"marked the recording of process \d+"),
    "count": Case(("count", "net:net_dev_queue", *_SECONDS), r"[1-9][\d,]* events\n"),
    "count -g pid": Case(
        ("count", "net:net_dev_queue", "-g", "pid", *_SECONDS), r"[1-9][\d,]* events\n", {"CAP_SYS_ADMIN": _COST}
    ),
    "top": Case(("top", "-i", "0.5"), r"rx\.udp_total +[1-9]", _ALL),
    "web": Case(("web", "--no-browser", "-i", "0.5"), r'"rx.udp_total"[^]]*?"count": [1-9]', _ALL),
    "agent": Case(("agent",), r"a.*b"),
    "explain": Case(("explain", *_SECONDS), r"[1-9]\d* messages", _HOOKS),
    "demo": Case(("demo", "-d", "1"), r"UDP: [1-9]\d* datagrams were read", {"CAP_SYS_PTRACE": _PROCESSES}),
    "probes": Case(("probes",), r"", dict.fromkeys(("CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"), "CAP_")),
    "check": Case(("check", *_SECONDS), "Checked", {"CAP_NET_ADMIN": "nft", **_HOOKS}),
    "counters": Case(("counters", *_SECONDS), r"UdpInDatagrams|InDatagrams", {"CAP_NET_ADMIN": "nft", **_HOOKS}),
    "sockets": Case(
        ("sockets",),
        r"udp 10\.77",
        {"CAP_NET_ADMIN": "CAP_NET_ADMIN", **_HOOKS, "CAP_DAC_READ_SEARCH": _OWNERS},
    ),
    "clock": Case(("clock", *(f"--host=local,name={name},address=127.0.0.1" for name in "ab"), "-d", "1"), r"a.*b"),
    "report": Case(("report", "summary", _TRACE), "rx.driver"),
    "sql": Case(("sql", _TRACE, "SELECT count(*) AS events FROM packets"), "events"),
    "export": Case(("export", "csv", _TRACE, "-o", "t"), "t"),
    "verify": Case(("verify", _TRACE), "checked"),
    "join": Case(("join", *(_of("two-hosts", part) for part in "ab"), "-o", "t"), ""),
    "cdf": Case(("cdf", "message", _TRACE), "message"),
    "fleet": Case(("fleet", "add", _of("drops"), "--to", "t"), "1 batch"),
    "explain TRACE": Case(("explain", _TRACE), "messages"),
    "check TRACE": Case(("check", _of("containers")), "Checked"),
    "top TRACE": Case(("top", _UDP), r"rx\.core → rx\.l4 +[1-9]"),
    "web TRACE": Case(("web", "--no-browser", _UDP), "hops"),
    "recordings": Case(("recordings",), "recordings"),
    "script": Case(("script", "--template"), "import hopscope"),
    "wire match": Case(("wire", "match", "hop > 1ms"), "tcpdump -i hop0"),
}


# Of each page that is looked at, what it has when all of it is there.
_PAGES: Final = {
    "rx": r"(?s)udp_total.*",
    "cpu": r"(?s)CAP_SYSLOG.*|cost:",
    "sockets": r"(?s)could not be inspected.*",
    "findings": r"Checked",
}
# One that reads a recording does so for all of them.
_SLOW: Final = {
    "clock",
    "sql",
    "export",
    "verify",
    "join",
    "cdf",
    "fleet",
    "explain TRACE",
    "check TRACE",
    "web TRACE",
    "recordings",
    "script",
}


def rows() -> Iterator[tuple[str, set[str], set[str]]]:
    """Yield command, what it needs and what shows more, of each row of the page that is about one command."""
    for names, needed, more in _ROW.findall(PAGE.read_text()):
        for name in re.findall(r"`(.*?)`", names):
            yield name, set(_NAME.findall(needed)), set(_NAME.findall(more))


@pytest.fixture(scope="module")
def user() -> Iterator[AnotherUser]:
    with another_user() as made:
        yield made


@pytest.fixture(scope="module")
def busy_lab(kept_lab: Lab) -> Iterator[Lab]:
    """Have datagrams, a stream, and datagrams to a closed port go through the laboratory all the time."""
    over = threading.Event()
    with (
        udp_pair(way(kept_lab, "veth-4")) as udp,
        tcp_pair(way(kept_lab, "veth-4")) as tcp,
        kept_lab.client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as lost,
    ):
        lost.connect(("10.77.0.2", 9))

        def send() -> None:
            while not over.wait(0.01):
                ping(*udp, 5)
                ping(*tcp, 5)
                with contextlib.suppress(ConnectionRefusedError):
                    lost.send(b"x")

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield kept_lab
        finally:
            over.set()
            thread.join()


def run(
    words: tuple[str, ...], capabilities: set[str], user: AnotherUser, lab: Lab
) -> subprocess.CompletedProcess[str]:
    folder = user.folder / "t"
    given = [folder if word == "t" else word for word in words]
    before = user.words(capabilities, lab.server)
    variables = {"HOME": str(user.folder), "HOPSCOPE_RECORDINGS": str(user.folder), "COLUMNS": "400"}
    argv = [*before, *HOPSCOPE, *map(str, given)]
    match words[0]:
        case "serve":
            return served(argv, variables, folder, lab)
        case "top":
            return looked_at(argv, variables, user)
        case "web":
            return opened(argv, variables, lab)
        case "agent":
            return hopscope("clock", "-d", 1, *(f"--host={name},address=127.0.0.1" for name in "ab"), *through(argv))
    try:
        with contextlib.ExitStack() as stack:
            if "--wire" in words:
                stack.enter_context(wired(lab))
            if words[0] == "mark":
                stack.enter_context(recording(user, lab, variables, folder))
            return hopscope(*given, before=before, **variables)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            folder.unlink()


@contextlib.contextmanager
def wired(lab: Lab) -> Iterator[None]:
    """Have events arrive at hop0."""
    argv = [*HOPSCOPE, "wire", "--full", "-P", "packets"]
    with lab.server.popen(argv, env=environ(), stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr
        assert "Sending events" in child.stderr.readline()
        yield
        child.terminate()
        child.communicate()


@contextlib.contextmanager
def recording(user: AnotherUser, lab: Lab, variables: dict[str, str], folder: Path) -> Iterator[None]:
    """Have a recording of this user's own run meanwhile."""
    held = user.words({"CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"}, lab.server)
    argv = [*held, *HOPSCOPE, "record", "-o", str(folder)]
    unix = Path("/proc/thread-self/net/unix")
    with subprocess.Popen(argv, env=environ(**variables), stderr=subprocess.DEVNULL) as child:
        eventually(lambda: "hopscope-mark-" in lab.server.call(unix.read_text), "it takes no marks")
        yield
        child.terminate()


def served(argv: list[str], variables: dict[str, str], path: Path, lab: Lab) -> subprocess.CompletedProcess[str]:
    """Run a service until there are hops among its metrics, and an event has come; return both as its output."""
    with subprocess.Popen(
        argv, env=environ(**variables), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout
        found = ""
        if url := child.stdout.readline().strip():
            assert child.stdout.readline() == f"unix:{path}\n"
            found = lab.server.call(_metrics, url, lambda: child.poll() is None)
            with hopscope_api.subscribe(points=["rx.l4"], path=path) as subscription:
                found += json.dumps(next(iter(subscription)))
            child.terminate()
        _, said = child.communicate()
    return subprocess.CompletedProcess(argv, child.returncode, found, said)


def looked_at(argv: list[str], variables: dict[str, str], user: AnotherUser) -> subprocess.CompletedProcess[str]:
    """Run it on a screen, and return each of its pages as its output."""
    script, errors = user.folder / "script", user.folder / "errors"
    given = shlex.join(f"{name}={value}" for name, value in variables.items())
    script.write_text(f"export {given}\n{shlex.join(argv)} 2>{errors}\necho ended with $?\n")
    with contextlib.closing(Tmux(user.folder, 200, 100)) as terminal:
        terminal.keys(f"sh {script}", "Enter")
        pages = []
        if argv[-1] == _UDP:
            terminal.until("(?m)^> ")
            areas = {"rx": r"rx\.core → rx\.l4"}
        else:
            terminal.until(r"findings +(?!is being)\w|ended with")
            areas = {} if "ended with" in terminal.text() else _PAGES
        for area, whole in areas.items():
            eventually(functools.partial(_chosen, terminal, area), f"no {area}")
            terminal.keys("Enter")
            terminal.until(f"overview > {area}")
            pages.append(terminal.until(whole).string)
            terminal.keys("Escape")
            terminal.until("(?m)^overview *$")
        terminal.keys("q")
        code = int(terminal.until(r"ended with (\d+)")[1])
    return subprocess.CompletedProcess(argv, code, re.sub(r"\s*\n\s*", " ", "\n".join(pages)), errors.read_text())


def _chosen(terminal: Tmux, area: str) -> bool:
    """Tell whether the cursor is on the line of an area; move it there if not: lines change places."""
    names, at = _areas(terminal)
    if names[at : at + 1] == [area]:
        return True
    if area in names:
        terminal.keys("Down" if names.index(area) > at else "Up")

        def moved() -> bool:
            now, there = _areas(terminal)
            return now[there : there + 1] != names[at : at + 1]

        # A key that is not seen yet would move it on once it is where it is to be.
        eventually(moved, "the cursor stays where it is")
    return False


def _areas(terminal: Tmux) -> tuple[list[str], int]:
    """Return the areas on the screen, and which of them the cursor is on."""
    lines = re.findall(r"(?m)^([> ]) (\w+) ", terminal.text())
    at = next((number for number, (mark, _) in enumerate(lines) if mark == ">"), 0)
    return [name for _, name in lines], at


def opened(argv: list[str], variables: dict[str, str], lab: Lab) -> subprocess.CompletedProcess[str]:
    """Open the page, and return what it is sent until findings have come, or the answer of a recording."""
    with subprocess.Popen(
        argv, env=environ(**variables), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout
        found = ""
        if line := child.stdout.readline():
            base, token = line.strip().split("#token=")
            found = lab.server.call(_sent, Site(child, base, token), live=argv[-1] != _UDP)
            child.terminate()
        _, said = child.communicate()
    return subprocess.CompletedProcess(argv, child.returncode, found, said)


def _sent(site: Site, *, live: bool) -> str:
    """Return frames up to one with findings and sockets, or what a recording has."""
    _, headers, _ = site.send("/api/session", {"token": site.token}, cookie=False)
    site.cookie = headers["set-cookie"].partition(";")[0]
    if not live:
        return json.dumps(site.ask({"ask": "report", "name": "hops", "options": {}}))
    connection = http.client.HTTPConnection("127.0.0.1", site.port)
    connection.request("GET", "/api/events", headers={"Cookie": site.cookie})
    lines = []
    for line in connection.getresponse():
        lines.append(line.decode())
        if '"check": [' in lines[-1] and '"sockets": {' in lines[-1] and "udp_total" in lines[-1]:
            break
    connection.close()
    return "".join(lines)


def through(argv: list[str]) -> list[str]:
    """Return the options that have an agent started by this command, as if by ssh."""
    last = 'for each; do :; done; eval "$each"'
    return ["--ssh", shlex.join(["sh", "-c", last, "ssh"]), "--remote-command", shlex.join(argv)]


def _metrics(url: str, runs: Callable[[], bool]) -> str:
    """Return metrics in which packets have been received."""
    while runs():
        with contextlib.suppress(OSError), urllib.request.urlopen(url) as answer:  # noqa: S310 # our own
            text: str = answer.read().decode()
            if re.search('rx.udp_total".* [1-9]', text):
                return text
    return ""


@pytest.mark.parametrize(
    ("name", "needed", "more"),
    [pytest.param(*row, id=row[0], marks=[pytest.mark.slow] * (row[0] in _SLOW)) for row in rows()],
)
def test_a_command_runs_with_what_its_page_names(
    name: str, needed: set[str], more: set[str], user: AnotherUser, busy_lab: Lab
) -> None:
    case = CASES[name]
    done = run(case.words, needed, user, busy_lab)
    said = done.stdout + done.stderr
    assert done.returncode in ({0, 3, 4} if name.startswith("check") else {0}), done.stderr
    assert re.search(case.shows, said)
    for each in more:
        assert re.search(case.says[each], said), each
    assert case.says.keys() == more


@pytest.mark.parametrize(
    ("name", "held", "missing"),
    [(name, needed - {each}, each) for name, needed, _ in rows() for each in sorted(needed)],
    ids=[f"{name} without {each}" for name, needed, _ in rows() for each in sorted(needed)],
)
def test_without_one_of_them_a_sentence_names_it(
    name: str, held: set[str], missing: str, user: AnotherUser, busy_lab: Lab
) -> None:
    done = run(CASES[name].words, held, user, busy_lab)
    assert missing in complaint(done, 77)


@pytest.mark.parametrize("missing", [None, "CAP_NET_ADMIN"])
def test_an_agent_needs_what_its_client_s_command_needs(missing: str | None, user: AnotherUser, busy_lab: Lab) -> None:
    held = {"CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN"} - {missing}
    agent = [*user.words(held, busy_lab.server), *HOPSCOPE, "agent"]
    done = hopscope("rx", "--host=there", "--netns=self", *_SECONDS, *through(agent))
    if missing:
        assert missing in complaint(done, 77)
    else:
        assert done.returncode == 0, done.stderr
        assert re.search(CASES["rx"].shows, done.stdout)
