# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import importlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

import hopscope as package
from hopscope.agent.local import AGENT
from hopscope.live.help import SECTIONS, Command, CommandBeside, Option
from hopscope.live.paths import FleetType, PathType
from hopscope.main import VERBS
from tests.lab.command import complaint, environ, hopscope, printed
from tests.waiting import TIMEOUT_S

RECORDING = Path(__file__).resolve().parent / "recordings" / "udp"


def test_help_mentions_every_verb() -> None:
    done = hopscope("--help")
    assert (done.returncode, done.stderr) == (0, "")
    listed = done.stdout.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == list(VERBS)
    assert "..." not in done.stdout.partition("Commands:\n")[2]


def test_without_a_verb_it_is_the_help() -> None:
    assert hopscope().stdout == hopscope("--help").stdout


def test_every_file_of_a_verb_is_one() -> None:
    folder = Path(package.__file__).parent / "verbs"
    assert {path.parent.name for path in folder.glob("*/command.py")} == set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_is_folded_to_the_terminal(verb: str) -> None:
    done = hopscope(verb, "--help")
    assert done.returncode == 0
    assert "\b" not in done.stdout
    assert "\\b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def commands() -> dict[str, click.Command]:
    """Return every command of the command line, by the words that call it."""
    verbs = {name: importlib.import_module(f"hopscope.verbs.{name}.command") for name in VERBS}
    groups = ("report", "fleet")
    return {
        **{name: module.command for name, module in verbs.items() if name not in groups},
        **{f"{group} {name}": each for group in groups for name, each in verbs[group].command.commands.items()},
        "counters explain": verbs["counters"].explain,
        "wire match": verbs["wire"].match,
    }


def help_of(name: str, command: click.Command) -> str:
    return command.get_help(click.Context(command, info_name=f"hopscope {name}", terminal_width=80))


@pytest.mark.parametrize(("name", "command"), commands().items())
def test_help_has_sections_and_two_examples(name: str, command: click.Command) -> None:
    assert isinstance(command, Command)
    shown = help_of(name, command)
    titles = [line.rstrip(":") for line in shown.splitlines() if re.fullmatch(r"[A-Z][A-Za-z ]+:", line)]
    assert titles == [*(each for each in SECTIONS if each in titles), "Examples"]
    assert {"Options", ""}.isdisjoint(titles)
    assert len(command.examples) == 2
    assert all(f"\n    {line}\n" in shown + "\n" for _, line in command.examples)
    assert max(map(len, shown.splitlines())) <= 80
    options = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
    names = {max(each.opts, key=len) for each in options}
    assert names <= set(re.findall(r"(?m)^  (?:-\w, )?(--[\w-]+)", shown))


@pytest.mark.parametrize(("name", "command"), commands().items())
def test_an_option_is_a_line_or_two(name: str, command: click.Command) -> None:
    context = click.Context(command, info_name=name, terminal_width=80)
    for each in command.params:
        record = each.get_help_record(context) if isinstance(each, click.Option) else None
        assert not record or record[1].split("[")[0].rstrip().endswith("."), record
        most = 160 if "--group-by" in each.opts else 104  # it names what to group by
        assert not record or len(record[1]) <= most, record


@pytest.mark.parametrize(("name", "command"), commands().items())
def test_examples_can_be_run(
    name: str, command: click.Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each calls this command, and every command line in it is taken as it is."""
    monkeypatch.chdir(tmp_path)
    known = commands()
    for _, line in command.examples:
        called = []
        for words in map(shlex.split, re.split(r" && | \| jq | < | > ", line)):
            if words[0] == "hopscope":
                called += [key for key in known if words[1:][: len(key.split())] == key.split()][-1:]
                with known[called[-1]].make_context(called[-1], words[1 + len(called[-1].split()) :]):
                    pass
        assert called[0] == name


def test_an_option_has_one_meaning_everywhere() -> None:
    """Its short name, metavar and type are the same on every verb, and what sections it may be in."""
    shared = ["--limit", "--pid", "--comm", "--protocol", "--port", "--netns", "--cgroup", "--address", "--duration"]
    for wanted in (*shared, "--json", "--group-by", "--host", "--attach", "--interval"):
        found = {
            (tuple(each.opts), each.metavar, each.is_flag, each.section)
            for name, command in commands().items()
            for each in command.params
            if isinstance(each, Option) and wanted in each.opts and (name, wanted) != ("record", "--duration")
        }
        assert len({each[:3] for each in found}) == 1, (wanted, found)


@pytest.mark.parametrize(
    ("verb", "old", "name"),
    [
        ("rx", ["--way", "rx.ip=x"], "ways"),
        ("record", ["--way", "record.rx.l4=x"], "ways"),
        ("cpu", ["--top", "3"], "limit"),
        ("drops", ["--top=3"], "limit"),
        ("sockets", ["--top", "3"], "limit"),
        ("clock", ["--port", "4000"], "port"),
        ("check", ["-i", "3"], "duration"),
        ("check", ["--interval", "3"], "duration"),
        ("report hops", ["--by", "cpu", "trace"], "group_by"),
    ],
)
def test_former_names_work_and_are_not_shown(verb: str, old: list[str], name: str) -> None:
    command = commands()[verb]
    assert command.make_context(verb, [*old]).params[name]
    assert not re.search(rf"{old[0].partition('=')[0]}\b", help_of(verb, command).partition("Examples:")[0])


@pytest.mark.parametrize("verb", [name for name, each in commands().items() if isinstance(each, CommandBeside)])
@pytest.mark.parametrize("words", [["port", "80"], ["-d", "1", "host", "10.0.0.1"], ["sleep", "1", "--", "x"]])
def test_a_command_without_dashes_is_not_run(verb: str, words: list[str]) -> None:
    sentence = complaint(hopscope(verb, *words), 2)
    rest = " ".join(words).removeprefix("-d 1 ")
    assert sentence.startswith(f"{verb} takes no positional arguments, but got '{rest}'. ")
    assert f"write it after --: hopscope {verb} -- {rest}. See hopscope {verb} --help" in sentence
    assert ("To select traffic: --port 80. " in sentence) == (
        words[0] == "port" and verb in {"rx", "tx", "drops", "record"}
    )


def test_words_after_dashes_are_the_command() -> None:
    command = commands()["rx"]
    assert command.make_context("rx", ["--port", "80", "--", "port", "80", "--", "x"]).params["command"] == (
        *("port", "80", "--", "x"),
    )


def test_help_of_rx_has_a_line_a_hop() -> None:
    lines = [line.split()[0] for line in hopscope("rx", "--help").stdout.splitlines() if line.startswith("  rx.")]
    assert lines[:5] == ["rx.softirq", "rx.napi", "rx.nic", "rx.core", "rx.ip"]


@pytest.mark.parametrize(
    "args", [["--help"], ["rx", "--help"], ["cdf", "--help"], ["demo", "--help"], ["probes", "--help"]]
)
def test_help_imports_nothing_heavy(args: list[str]) -> None:
    argv = [sys.executable, "-X", "importtime", "-m", "hopscope", *args]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=True, env=environ())
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "hopscope.main" in imported
    assert imported & {"numpy", "pyroute2", "hopscope.libbpf", "hopscope.probes", "ssl", "subprocess"} == set()


def test_version_is_the_package_s() -> None:
    assert hopscope("--version").stdout.split()[-1] == package.__version__


def test_the_installed_command_is_the_same() -> None:
    script = Path(sys.executable).with_name("hopscope")
    done = subprocess.run(
        [script, "--help"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True, env=environ()
    )
    assert done.stdout == hopscope("--help").stdout


def test_closed_standard_files_are_nobody_else_s() -> None:
    shell = ("sh", "-c", 'exec "$@" 2>&- <&-', "sh")
    done = hopscope("report", "hops", RECORDING, before=shell)
    assert (done.returncode, done.stdout) == (0, hopscope("report", "hops", RECORDING).stdout)
    # 2 as of wrong usage: a traceback, which nobody can see, is 1.
    assert hopscope("report", "hops", "--flow", "x", RECORDING, before=shell).returncode == 2
    assert complaint(hopscope("sql", RECORDING, before=(*shell[:2], 'exec "$@" <&-', "sh")), 2).startswith("No query")


def test_without_address_space_it_is_one_sentence() -> None:
    shell = ("sh", "-c", 'ulimit -v 500000 && exec "$@"', "sh")
    assert complaint(hopscope("report", "hops", RECORDING, before=shell), 1).startswith("The limit of this process's")


@pytest.mark.parametrize(
    ("files", "said"), [(5, "Too many files are open"), (16, "The limit of this process's open files")]
)
def test_without_descriptors_it_is_one_sentence(files: int, said: str, tmp_path: Path) -> None:
    shell = ("sh", "-c", f'ulimit -n {files} && exec "$@"', "sh")
    done = hopscope("export", "csv", RECORDING, "-o", tmp_path / "x", before=shell)
    assert complaint(done, 1).startswith(said)
    assert not list(tmp_path.iterdir())


def test_where_nothing_can_be_written_a_recording_can_be_read() -> None:
    words, full = ("report", "hops", RECORDING), ("sh", "-c", 'ulimit -f 0 && exec "$@"', "sh")
    assert hopscope(*words, before=full).stdout == printed(*words)
    said = complaint(hopscope("wireshark", RECORDING, "--text", before=full), 1)
    assert said.startswith("There is no folder in which temporary files can be written")


@pytest.mark.parametrize("words", [("report", "hops"), ("sql", "--csv", "--")])
def test_damaged_data_are_no_wrong_usage(words: tuple[str, ...], tmp_path: Path) -> None:
    folder = shutil.copytree(RECORDING, tmp_path / "t")
    (part,) = (folder / "packets").iterdir()
    data = part.read_bytes()
    ends = len(data) - 8 - int.from_bytes(data[-8:-4], "little")  # its metadata stay whole
    part.write_bytes(data[:4] + bytes(each ^ 0xFF for each in data[4:ends]) + data[ends:])
    query = ["SELECT * FROM packets"] if words[0] == "sql" else []
    assert complaint(hopscope(*words, folder, *query), 1).startswith(f"{part} is damaged: ")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nope"], "No such command 'nope'"),
        (["recrod"], "No such command 'recrod'. Did you mean one of: 'record', 'recordings'?"),
        (["report", "sumary"], "No such command 'sumary'. Did you mean 'summary'?"),
        (["rx", "--durations"], "No such option '--durations'. Did you mean '--duration'?"),
        (["--nope"], "No such option '--nope'"),
        (["rx", "--nope"], "No such option '--nope'"),
        (["rx", "--pid", "abc"], "'abc' is not a valid integer"),
        (["rx", "--port", "0"], "0 is not in the range 1<=x<=65535"),
        (["rx", "--port", "65536"], "65536 is not in the range"),
        (["rx", "--protocol", "sctp"], "'sctp' is not one of 'tcp', 'udp'"),
        (["rx", "--group-by", "colour"], "'colour' is not one of "),
        (["rx", "--sample", "0"], "0 is not in the range"),
        (["rx", "--min-queue", "4294967296"], "4294967296 is not in the range"),
        (["rx", "--interval", "0"], "0.0 is not in the range"),
        (["rx", "--interval", "nan"], "'nan' is not a number of seconds, e.g. 5 or 0.5"),
        (["rx", "--duration", "inf"], "inf is not in the range"),
        (["rx", "--interval"], "requires an argument"),
        (["demo", "--duration", "5s"], "'5s' is not a number of seconds, e.g. 5 or 0.5"),
        (["demo", "more"], "unexpected extra argument"),
        (["cdf", "tx.ack"], "Missing argument 'FILE...'"),
        (["explain", "--from", "nan", "trace"], "'nan' is not a number of seconds"),
        (["explain", "--until", "inf", "trace"], "inf is not in the range"),
        (["explain", "--message", "1e300", "trace"], "1e+300 is not in the range"),
        (["verify", "--limits", "nan"], "'nan' is not a number, e.g. 2 or 10"),
    ],
)
def test_wrong_usage_is_one_sentence_with_the_next_step(args: list[str], said: str) -> None:
    done = hopscope(*args)
    sentence = complaint(done, 2)
    assert said in sentence
    # click does not tell whose option lacks its argument.
    verb = f" {args[0]}" if args[0] in VERBS and args[-1] != "--interval" else ""
    assert re.search(rf"[a-z0-9>'=.)][.?] See hopscope{verb} --help$", sentence)
    assert done.stdout == ""


# Runs the program, and sends it a signal when it begins to import a module.
INTERRUPTED = """
import os, runpy, sys

class Interrupts:
    def __init__(self, module, number):
        self.module, self.number = module, number

    def find_spec(self, name, path=None, target=None):
        if name == self.module:
            os.kill(os.getpid(), self.number)

sys.meta_path.insert(0, Interrupts(sys.argv.pop(1), int(sys.argv.pop(1))))
runpy.run_module("hopscope", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("module", ["enum", "click", "hopscope.verbs.sql.command", "numpy", "duckdb"])
def test_interrupted_while_it_begins_it_says_nothing(module: str, number: signal.Signals, tmp_path: Path) -> None:
    words = [sys.executable, "-c", INTERRUPTED, module, str(int(number)), "sql", str(tmp_path), "SELECT 1"]
    done = subprocess.run(words, env=environ(), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    # As a shell says of both: that the signal ended it.
    assert done.returncode in {-number, 128 + number}
    assert (done.stdout, done.stderr.strip()) == ("", "")


# A signal comes while DuckDB's compiled module begins: nanobind, which it is made with, would abort the process.
_IN_AN_EXTENSION = """
import enum, os, signal, sys

def call(cls, *args, **named):
    if args[0] == "token_type":
        os.kill(os.getpid(), signal.SIGHUP)
        done.append(True)
    return made(cls, *args, **named)

done = []
made, enum.EnumType.__call__ = enum.EnumType.__call__, call
from hopscope.main import main
try:
    main(own_process=True)
finally:
    assert done
"""


def test_a_signal_while_a_compiled_module_begins_waits_for_its_end() -> None:
    words = [sys.executable, "-c", _IN_AN_EXTENSION, "report", "hops", str(RECORDING)]
    done = subprocess.run(words, env=environ(), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (128 + signal.SIGHUP, "", "")


# A signal comes while C code has called Python's, as libbpf does.
_CALLED_BACK = """
import ctypes, os, signal, sys, types
import click
from hopscope import main
callback = ctypes.CFUNCTYPE(None)(lambda: os.kill(os.getpid(), signal.SIGHUP))
@click.command()
def command():
    callback()
    sys.stdin.read()
sys.modules["hopscope.verbs.rx.command"] = types.SimpleNamespace(command=command)
sys.argv = ["hopscope", "rx"]
main.main(own_process=True)
"""


def test_a_signal_that_comes_where_nothing_can_be_raised_is_not_lost() -> None:
    words = [sys.executable, "-c", _CALLED_BACK]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as child:
        assert child.wait() == 128 + signal.SIGHUP
        assert child.stderr is not None
        assert child.stderr.read().strip() == b""


def test_a_signal_that_passes_exec_is_told_as_that_signal(tmp_path: Path) -> None:
    (tmp_path / "hung_up.py").write_text("""
import click
from hopscope import main

@click.command()
def cli(): exec("import os; os.kill(os.getpid(), 1)")

main.cli = cli
main.main(own_process=True)
""")
    words = [sys.executable, "-m", "hung_up"]
    done = subprocess.run(words, cwd=tmp_path, env=environ(), timeout=TIMEOUT_S, check=False)
    assert done.returncode == 128 + signal.SIGHUP


def test_an_empty_path_is_refused_wherever_a_path_is_taken() -> None:
    taken = [(name, each) for name, command in commands().items() for each in command.params]
    assert {type(each.type) for _, each in taken if isinstance(each.type, click.Path)} == {PathType, FleetType}
    for words in (
        ["record", "-o", ""],
        ["fleet", "hosts", ""],
        ["report", "summary", ""],
        ["sql", "", "SELECT 1"],
        ["join", "x", "-o", ""],
    ):
        assert "an empty path names no file or folder" in complaint(hopscope(*words), 2)
    for words in (["cdf", "--svg", "", "x"], ["record", "--netns", ""], ["recordings", "--delete", ""]):
        complaint(hopscope(*words), 2)


def test_processes_of_its_own_import_nothing_from_the_folder_that_it_runs_in(tmp_path: Path) -> None:
    (tmp_path / "hopscope").mkdir()
    (tmp_path / "hopscope" / "__init__.py").write_text("raise SystemExit('a stranger was here')")
    done = subprocess.run([*AGENT, "--help"], cwd=tmp_path, env=environ(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    sources = Path(package.__file__).parent.rglob("*.py")
    assert [path.name for path in sources if re.search(r'sys\.executable, "-m"', path.read_text())] == []
