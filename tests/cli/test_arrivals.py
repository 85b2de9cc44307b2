"""`clawd bridge import|list|accept` as a person and a program see them, in this process and without a daemon."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from clawd.arrivals.items import Brought, Left
from clawd.cli import bridges
from clawd.cli.main import run
from clawd.config.begin import init_home
from clawd.config.home import Home
from clawd.ledger.db import Ledger
from tests.arrivals.conftest import brought, everything, item, place, whole

HOSTILE = "evil\x1b]0;x\x07\u202e.md"


class Line:
    def __init__(self, home: Home, capsys: pytest.CaptureFixture[str]) -> None:
        self.home, self._capsys = home, capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        code = run(["--home", str(self.home.root), "bridge", *words])
        return code, *self._capsys.readouterr()

    def json(self, *words: str) -> Any:
        code, out, err = self(*words, "--json")
        assert code == 0, err
        return json.loads(out)

    def staged(self, what: Brought, *, as_json: bool = False, dry_run: bool = False) -> tuple[str, str]:
        options = Namespace(json=as_json, dry_run=dry_run, source_home=str(self.home.root), group=None)
        assert bridges._staged(options, self.home, lambda *_: what) == 0
        out, err = self._capsys.readouterr()
        return out, err


@pytest.fixture
def line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Line:
    home = Home(tmp_path / "home")
    init_home(home)
    Ledger.open(home.ledger_file).close()
    return Line(home, capsys)


def test_what_comes_is_counted_and_what_does_not_is_said(line: Line) -> None:
    what = whole()
    what.items += [*everything("family"), item("note", f"memory/notes/{HOSTILE}", b"x", source=HOSTILE)]
    what.left += [Left(f"many/{n}", "it is one of many") for n in range(30)]
    out, err = line.staged(what, dry_run=True)
    assert "nothing is written" in out and err == "" and not place(line.home).exists()
    assert not line.home.group("family").root.exists()
    out, err = line.staged(what)
    assert "into group main: groups/main/import/pythonclaw/" in out
    assert "into group family (a new one): groups/family/import/pythonclaw/" in out
    assert "    conversations       1  (1 new)" in out
    assert "its name is tides now" in out and "SOUL.md: clawd has no such thing" in out
    assert "telegram:7 was main" in out and "llm.openai.apiKey" in out and "more (--json has all)" in out
    assert "\x1b" not in out and "\u202e" not in out and "\x07" not in out
    assert "clawd bridge accept pythonclaw" in err
    out, _ = line.staged(what, as_json=True)
    assert {row["state"] for row in json.loads(out)["came"]} == {"same"} and out.isascii()
    assert line.home.group("family").claude_md.exists()  # made by whoever holds the home
    assert {row["use"] for row in json.loads(out)["came"]} == {"waits"} and json.loads(out)["made"] == []


def test_what_is_to_be_done_next_is_what_waits(line: Line) -> None:
    report = place(line.home) / "REPORT.md"
    words = "clawd bridge accept pythonclaw"
    _, err = line.staged(brought(*everything()))
    assert err == f"Nothing of it is used yet. Read {report}, then: {words}\n"
    assert words in report.read_text()
    assert line("accept", "pythonclaw", "--only", "skills")[0] == 0
    _, err = line.staged(brought(*everything()))
    assert err.startswith("What waits (7) is not used yet.") and words in report.read_text()
    assert line("accept", "pythonclaw")[0] == 0
    _, err = line.staged(brought(*everything()))
    assert err == "Nothing of it waits: clawd bridge list says what is in use, and what was left.\n"
    assert words not in report.read_text() and "not used" not in report.read_text()
    assert line.staged(Brought("pythonclaw", Path("/old")))[1] == ""


@pytest.mark.parametrize(
    "words", [("pythonclaw", "import"), ("pythonclaw", "sync"), ("import", "nanoclaw"), ("import", "openclaw")]
)
def test_a_home_that_is_none_is_named(line: Line, tmp_path: Path, words: tuple[str, str]) -> None:
    (tmp_path / "file").touch()
    for named, code, said in (
        (str(tmp_path / "nowhere"), 5, "there is no folder"),
        ("~nobody-is-called-so/x", 5, "there is no folder ~nobody"),
        (str(tmp_path / "file"), 2, "is a file; a home is a folder"),
        ("", 2, "HOME is empty"),
        (str(tmp_path), 2, "(name" if words[0] == "pythonclaw" else "its home is"),
    ):
        ended, out, err = line(*words, named)
        assert (ended, out) == (code, "") and said in err and "defect" not in err


def test_the_list_says_what_waits(line: Line) -> None:
    assert line("list") == (0, "", "nothing was brought in\n")
    line.staged(brought(*everything()))
    [row] = line.json("list")
    assert set(row) == {"source", "group", "home", "brought", "kinds", "path", "error"}
    assert row["kinds"]["skill"] == {"waits": 1, "accepted": 0, "left": 0}
    code, out, _ = line("list", "--group", "main")
    assert code == 0 and "skills (1 wait)" in out and "pythonclaw" in out
    assert line("list", "--group", "nobody")[0] == 5


def test_yes_is_said_once(line: Line) -> None:
    (line.home.group("main").memory / "INDEX.md").write_text("mine\n")
    line.staged(brought(*everything()))
    code, out, _ = line("accept", "pythonclaw", "--only", "skills", "--only", "memory")
    assert code == 0 and "In use in group main: facts (1), daily logs (1), notes (1), skills (1)." in out
    assert "INDEX.md (main): there is an INDEX.md here, which stays" in out
    result = line.json("accept", "pythonclaw")
    assert sorted(row["kind"] for row in result["accepted"]) == ["instructions", "schedule", "session"]
    (line.home.group("main").memory / "INDEX.md").unlink()
    assert line.json("accept", "pythonclaw")["accepted"][0]["to"] == "memory/INDEX.md"
    assert line("accept", "pythonclaw")[1] == "Nothing of pythonclaw waits: all of it is in use.\n"
    code, _, err = line("accept", "nanobot")
    assert code == 5 and "clawd bridge list" in err
    assert line("accept", "../../etc")[0] == 2
