from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from clawd import __version__
from clawd.cli.catalogue import COMMANDS
from clawd.cli.main import parse, run
from clawd.errors import UsageError
from tests.cli.conftest import ROOT, Cli, environment

SHARED = ["--home", "H", "--json"]


@pytest.mark.parametrize(
    ("argv", "words", "left"),
    [
        (["status"], ("status",), []),
        ([*SHARED, "groups", "list"], ("groups", "list"), SHARED),
        (["groups", *SHARED, "list"], ("groups", "list"), SHARED),
        (["groups", "list", *SHARED], ("groups", "list"), SHARED),
        (["--home=H", "chat", "-m", "--json"], ("chat",), ["--home=H", "-m", "--json"]),
        (["memory", "search", "x", "--explain"], ("memory", "search"), ["x", "--explain"]),
    ],
)
def test_words_and_what_is_left(argv: list[str], words: tuple[str, ...], left: list[str]) -> None:
    command, arguments = parse(argv)
    assert command is not None and (command.words, arguments) == (words, left)


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["chta"], "did you mean chat?"),
        (["groups", "lits"], "did you mean list?"),
        (["--jsn", "status"], "did you mean --json?"),
        (["groups"], "clawd groups --help"),
        (["bridge"], "clawd bridge --help"),
        (["bridge", "pythonclaw"], "clawd bridge pythonclaw --help"),
        ([], "clawd --help"),
    ],
)
def test_what_is_not_understood_is_answered_with_the_nearest(argv: list[str], hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(argv)
    assert caught.value.hint == hint


@pytest.mark.parametrize("words", [words for words, command in COMMANDS.items() if not command.does])
def test_later_commands_say_so(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, "--anything", "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["error"] == f"clawd {' '.join(words)} is not built yet"
    assert "not built yet" in err


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["chat", "--mesage", "x"], 2, "does not take --mesage"),
        (["messages", "list", "--limit", "few"], 2, "--limit"),
        (["messages", "show"], 2, "required"),
        (["status", "--home", "/nowhere/at/all"], 5, "no home"),
        (["sandbox", "exec", "--nonsense", "--", "ls"], 125, "does not take"),
        (["sandbox", "exec", "--home", "/nowhere/at/all", "--", "ls"], 125, "no home"),
    ],
)
def test_errors_are_sentences_and_codes(
    argv: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == code
    out, err = capsys.readouterr()
    assert out == "" and says in err and "Traceback" not in err
    assert run(["--json", *argv]) == code
    assert says in json.loads(capsys.readouterr().out)["error"]


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for words, command in COMMANDS.items():
        if command.does:
            with pytest.raises(SystemExit, match="0"):
                run([*words, "--help"])
    assert "--home" in capsys.readouterr().out
    assert run(["--help"]) == 0
    assert "chat" in capsys.readouterr().out


def test_every_argument_is_explained() -> None:
    arguments = [(words, each) for words, command in COMMANDS.items() for each in command.arguments]
    assert [(words, each.names) for words, each in arguments if not each.settings.get("help")] == []


def test_the_version_imports_next_to_nothing() -> None:
    code = "import sys, clawd.__main__ as m; sys.argv[1:] = ['--version']; m.main(); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment(), cwd=ROOT
    )
    first, modules = done.stdout.splitlines()
    assert first == f"clawd {__version__}"
    assert not {"argparse", "asyncio", "json", "clawd.cli.main", "rich"} & set(modules.split())


def test_a_defect_reaches_the_log_and_no_person(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "home" / "state" / "ledger.db").mkdir()  # what cannot be read, however it is read
    (tmp_path / "home" / "state" / "standin.json").write_text("{ torn")
    done = cli("messages", "list")
    assert done.returncode != 0 and "Traceback" not in done.stderr and "clawd: " in done.stderr


def test_a_reader_that_has_enough_is_no_error(cli: Cli) -> None:
    script = f"{sys.executable} -m clawd --help | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=environment(), cwd=ROOT, check=False
    )
    assert done.returncode in (0, 1) and done.stderr == ""


def test_a_long_command_and_what_it_is_for_stand_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bridge", "pythonclaw", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[lines.index("  bridge pythonclaw import") + 1].startswith(" " * 21 + "bring in a PythonClaw home")
    assert run(["bridge", "pythonclaw"]) == 2
    assert "clawd bridge pythonclaw needs one of: import, export, sync" in capsys.readouterr().err


def test_the_readme_s_table_has_every_command() -> None:
    """A row has calls in backticks; the first of them has the noun, and `import/export` are two verbs."""
    rows = re.findall(r"(?m)^\| (`clawd .*?) \| [^|]*\|$", (ROOT / "README.md").read_text().replace("\\|", "/"))
    told = set()
    for row in rows:
        noun = ""
        for call in re.findall(r"`([^`]+)`", row):
            words = call.removeprefix("clawd ").split()
            noun = words[0] if call.startswith("clawd ") else noun
            words = words if call.startswith("clawd ") else [noun, *words]
            for size in range(1, 4):
                *first, last = words[:size]
                told |= {(*first, each) for each in last.split("/")}
    known = {command.words for command in COMMANDS.values() if command.does}
    assert [" ".join(words) for words in sorted(known - told)] == []
