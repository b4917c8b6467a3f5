# SPDX-License-Identifier: Apache-2.0
"""Whatever others call things, a terminal gets no control character but line ends, tabs and hopscope's own styles."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopscope import gate, main
from hopscope.lab import Lab
from tests.lab.command import environ, hopscope, on_terminal
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = Path(main.__file__).parent
RECORDINGS = Path(__file__).parent / "recordings"
EVIL = "\x1b]0;pwned\x07\x1b[45m\r\x9b45m\x7f\u202e\x08,\"'</script>&"
OWN = re.compile(r"\x1b\[(?:[0-2]|3[1-6])m|\r\x1b\[K")
BIDI = {*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}
VERBS = (
    *("report summary", "report flows", "report flows --csv", "report flows --json", "report hops", "report packets"),
    *("report hops --by process", "report hops --by interface", "report hops --by flow", "report packets --slowest"),
    *("report messages", "report requests", "report network", "report drops --stacks", "report drops --csv"),
    *("report netdev-times", "report events", "report events --csv", "report events --json", "report outliers"),
    *("report counters", "report moments", "report flows --process nobody", "check --all", "check --json", "verify"),
    *("export csv -o -", "export jsonl -o -", "export chrome -o -", "export speedscope -o -", "export folded -o -"),
    *("report flows --interface nothing", "explain", "recordings .", "sql --tables", "sql", "sql --csv", "sql --json"),
)
BINARY = ("ctf", "perfetto")
NAMES = "SELECT comm FROM threads UNION ALL SELECT name FROM devices"


def steering(text: str) -> set[str]:
    """Return the characters of a terminal's input that steer it, other than by hopscope's own sequences."""
    rest = OWN.sub("", text.replace("\r\n", "\n"))
    return {char for char in rest if unicodedata.category(char) in {"Cc", "Cs"} or char in BIDI} - {"\n", "\t"}


class Terminal(io.TextIOWrapper):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def run(words: list[str], stream: type[io.TextIOWrapper] = Terminal) -> str:
    """Run the command line in this process; return all that it wrote."""
    raw = io.BytesIO()
    out = stream(raw, encoding="utf-8", newline="", write_through=True)
    with (
        mock.patch.dict(os.environ, environ(TERM="xterm"), clear=True),
        mock.patch.object(sys, "argv", ["hopscope", *words]),
        mock.patch.object(sys, "stdout", out),
        mock.patch.object(sys, "stderr", out),
        pytest.raises(SystemExit),
    ):
        main.main()
    out.flush()
    return raw.getvalue().decode("utf-8", "surrogatepass")


def hostile(value: Any, spared: set[str]) -> Any:  # noqa: ANN401 # JSON
    """Return a document with escape sequences in all of its texts but those of some members."""
    if isinstance(value, dict):
        return {key: each if key in spared else hostile(each, spared) for key, each in value.items()}
    if isinstance(value, list):
        return [hostile(each, spared) for each in value]
    return value + EVIL if isinstance(value, str) else value


def poison(folder: Path, *, everything: bool) -> None:
    """Put escape sequences into the texts of a recording: all of them, or those that leave it what it is."""
    spared = {"format"} if everything else {"format", "points", "tables", "folder", "state"}
    for path in folder.rglob("*.json"):
        path.write_text(json.dumps(hostile(json.loads(path.read_text()), spared)))
    for path in folder.rglob("*.parquet"):
        known = duckdb.sql(f"SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM '{path}')").fetchall()
        kept = set() if everything else {"source", "destination"}
        texts = [name for name, kind in known if kind == "VARCHAR" and name not in kept]
        if texts and not (path.parent.name == "counters" and not everything):
            changed = ", ".join(f"concat({name}, {quoted(EVIL)}, chr(0)) AS {name}" for name in texts)
            fresh = path.with_suffix(".fresh")
            duckdb.sql(f"COPY (SELECT * REPLACE ({changed}) FROM '{path}') TO '{fresh}' (FORMAT parquet)")
            fresh.replace(path)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@pytest.fixture(scope="module", params=["names", "everything"])
def recordings(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    for name in ("events", "containers", "two-hosts"):
        shutil.copytree(RECORDINGS / name, folder / name, ignore=shutil.ignore_patterns("joined"))
        poison(folder / name, everything=request.param == "everything")
    return folder


@pytest.mark.parametrize("verb", VERBS)
def test_nothing_in_a_recording_steers_the_terminal(verb: str, recordings: Path) -> None:
    for name in ("events", "containers", "two-hosts"):
        query = [NAMES] if verb.startswith("sql") and verb != "sql --tables" else []
        said = run([*verb.split(), str(recordings / name), *query])
        assert said
        assert "Traceback" not in said
        assert steering(said) == set(), (name, said)


def test_names_in_exports_for_other_tools_are_text(recordings: Path, tmp_path: Path) -> None:
    said = {form: run(["export", form, str(recordings / "events"), "-o", str(tmp_path / form)]) for form in BINARY}
    if "damaged" in said["ctf"]:
        assert not list(tmp_path.iterdir())
        return
    done = subprocess.run(["babeltrace2", tmp_path / "ctf"], capture_output=True, text=True, check=True)
    assert "pwned" in done.stdout
    assert done.stderr == ""
    assert steering(done.stdout) == set()
    _, *after = (tmp_path / "perfetto").read_bytes().split(b"]0;pwned")
    assert {each[:1] for each in after} == {b"?"}


def test_data_are_raw_unless_a_terminal_reads_them(tmp_path: Path) -> None:
    query = [f"SELECT {quoted(EVIL)} AS name, '=1+1' AS formula"]
    folder = str(RECORDINGS / "events")
    quoted_evil = EVIL.replace('"', '""')
    raw = run(["sql", "--csv", folder, *query], io.TextIOWrapper)
    assert raw == f'name,formula\n"{quoted_evil}",=1+1\n'
    assert steering(run(["sql", "--csv", folder, *query])) == set()
    (line,) = run(["sql", "--json", folder, *query], io.TextIOWrapper).splitlines()
    assert steering(line) == set()
    assert json.loads(line)["name"] == EVIL
    assert steering(run(["report", "flows", f"{tmp_path}/{EVIL}"], io.TextIOWrapper)) == set()


@given(st.text(st.characters()))
def test_all_that_passes_is_text(text: str) -> None:
    assert steering(gate.passed(text)) == set()
    assert gate.passed(text) == text or steering(text) | {char for char in text if not char.isprintable()}
    assert gate.one_line(text).isprintable()
    forged = text + gate.style("x", "red")
    assert gate.passed(forged).endswith("\x1b[31mx\x1b[0m")
    *rest, last = gate.styled_parts(forged)
    assert last == ("x", "red")
    assert [(gate.one_line(text), "")] * bool(text) == rest


def test_bytes_pass_in_parts_of_any_size() -> None:
    raw = io.BytesIO()
    with mock.patch.object(sys, "stdout", gate.Gate(io.TextIOWrapper(raw, encoding="utf-8"))):
        out = gate.bytes_out(data=False)
        for octet in "a\tµ\x1b日\x9b\n".encode():
            out.write(bytes([octet]))
        out.flush()
    assert raw.getvalue().decode() == "a\tµ?日?\n"


def test_an_uncaught_error_passes_the_gate() -> None:
    code = f"from hopscope import main; main.cli.main = lambda *a, **k: int({EVIL!r}); main.main(own_process=True)"
    done = hopscope(before=(sys.executable, "-c", code, "--"))
    assert "invalid literal" in done.stderr
    assert steering(done.stderr) == set()


@pytest.fixture
def hostile_host() -> Iterator[tuple[Lab, str]]:
    """Make traffic of a process and a cgroup, through a device, that are called so."""
    name = "\x1b]0;x\x07\x9b1m"
    cgroup = next(line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if " cgroup2 " in line)
    folder = Path(cgroup) / f"hopscope-{name}"
    with Lab() as lab:
        for words in (["down"], ["name", name], ["up"]):
            lab.server.run(["ip", "link", "set", "server0" if words != ["up"] else name, *words], check=True)
        lab.server.run(["ip", "address", "replace", "10.77.0.2/24", "dev", name], check=True)
        folder.mkdir()
        flood = (
            f"open('/proc/self/comm', 'w').write({name!r}); open({str(folder / 'cgroup.procs')!r}, 'w').write('0')\n"
            "import socket, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('10.77.0.2', 7))\n"
            "while True:\n    s.sendto(b'x', ('10.77.0.2', 7)); s.sendto(b'x', ('10.77.0.1', 9)); s.recv(9)\n"
            "    time.sleep(.001)"
        )
        child = lab.server.popen([sys.executable, "-c", flood])
        try:
            eventually(lambda: name in Path(f"/proc/{child.pid}/comm").read_text(), "it has no such name")
            yield lab, name
        finally:
            child.kill()
            child.wait()
            eventually(lambda: not (folder / "cgroup.procs").read_text(), "the process is left")
            folder.rmdir()


@pytest.mark.root
def test_no_name_of_this_host_steers_the_terminal(hostile_host: tuple[Lab, str], tmp_path: Path) -> None:
    lab, name = hostile_host
    link = f'ln -s /proc/{lab.server.pid}/ns/net "/run/netns/n$0"'
    script = f'mount -t tmpfs none /run; mkdir /run/netns; {link}; exec "$@"'
    before = ("unshare", "--mount", "sh", "-ec", script, name)
    inside = f"--netns={lab.server.inode}"
    folder = tmp_path / "trace"
    shown = set()
    for words in (
        *(["rx", inside, "-d.3", "--group-by", by] for by in ("interface", "cgroup", "netns")),
        ["tx", inside, "-d.3", "--group-by=process", "--slowest=3"],
        ["cpu", "-d.3", "--group-by=process"],
        ["drops", inside, "-d.3", "--group-by=interface"],
        ["sockets", inside],
        ["counters", inside, "-d.3"],
        ["check", inside, "-d.3", "--all"],
        ["record", inside, "-d.5", "-o", folder],
        ["report", "hops", "--by=process", folder],
        ["report", "events", "--limit=200", folder],
        ["rx", "--interface", name, "-d.1"],
        ["rx", "--interface", f"{name}-", "-d.1"],
        ["report", "hops", tmp_path / name],
    ):
        _, said = on_terminal(*words, before=before)
        assert "Traceback" not in said
        assert steering(said) == set(), said
        shown |= {words[0]} if "]0;x" in said else set()
    assert {"rx", "cpu", "sockets", "counters", "report"} <= shown


# What may look at whether text can be printed other than through the gate, and why.
MAY_LOOK = {
    "agent/allow.py": "refuses clients' names that cannot be printed",
    "kernel/netlink.py": "gives names in bytes a text of their own each",
}
# Streams of others, numbers of descriptors, and frames: see the comment at each.
MAY_TAKE_DESCRIPTORS = {"main.py", "verbs/agent/command.py"}


def is_past(node: ast.AST, name: str) -> bool:
    """Tell whether an expression of a module writes past the gate, or could steer a terminal."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and bool(re.search("[\x1b\x9b]|/dev/(std|tty|pts|fd)", node.value))
    if isinstance(node, ast.Call):
        return bool(re.match(r"(os\.(write|fdopen)|open)\([12]\b", ast.unparse(node)))
    if not isinstance(node, ast.Attribute):
        return False
    if node.attr == "isprintable":
        return name not in MAY_LOOK
    if re.fullmatch(r"sys\.std(out|err)\.fileno", text := ast.unparse(node)):
        return name not in MAY_TAKE_DESCRIPTORS
    return bool(re.fullmatch(r"sys\.(std(out|err)\.(buffer|detach|reconfigure|stream)|__std(out|err)__)", text))


def ways_past(path: Path) -> list[str]:
    name = str(path.relative_to(SOURCES))
    return [ast.unparse(node) for node in ast.walk(ast.parse(path.read_text())) if is_past(node, name)]


@pytest.mark.parametrize(
    "text",
    ["sys.stdout.buffer", "sys.__stderr__", "os.write(1, b'')", "'\\x1b[1m'", "open('/dev/tty')"],
)
def test_what_would_write_past_the_gate_is_seen(text: str) -> None:
    assert any(is_past(node, "module.py") for node in ast.walk(ast.parse(text)))


def test_no_module_writes_past_the_gate() -> None:
    # The lab's programs write what their own parent reads, in this host's namespaces.
    paths = [path for path in SOURCES.rglob("*.py") if "lab" not in path.parts and path.name != "gate.py"]
    assert len(paths) > 400
    assert {str(path): ways_past(path) for path in paths if ways_past(path)} == {}
