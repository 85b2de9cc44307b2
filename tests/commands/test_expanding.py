"""What a compaction left out of what a model is shown, seen again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clawd.cli.main import run
from clawd.commands import looking, standing
from clawd.commands.expanding import expand
from clawd.config.begin import ensure_group
from clawd.config.home import Home
from clawd.errors import NotFound
from clawd.ledger import contexts, groups
from clawd.ledger.db import Ledger, Transaction
from clawd.model import Block
from clawd.sessions.file import SessionFile

NOW = "2026-12-01T09:00:00.000+00:00"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Turns 1 to 8; compaction 1 leaves out the results up to 3, 2 stands for the turns up to 4 and leaves out 6."""
    made = Home(tmp_path / "h")
    made.create()
    made.config_file.write_text('schema = 1\n[claw]\nname = "t"\n')
    ensure_group(made, "main")
    file = SessionFile(made.group("main").sessions / "terminal_main.md", "terminal:main")
    for n in range(1, 9):
        call: dict[str, Any] = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
        blocks = [Block("user", f"ask {n}"), Block("assistant", "", None, (call,))]
        file.append([*blocks, Block("tool", f"{n} " + "x" * 1000, tool_call_id="c"), Block("assistant", f"is {n}")], n)
    ledger = Ledger.open(made.ledger_file)

    def work(tx: Any) -> None:
        groups.add(tx, "main", NOW)
        groups.open_session(tx, "terminal:main", "main", NOW)
        contexts.of(tx, "terminal:main", NOW)
        rows = ((None, 3, "written"), (4, 6, "written"), (7, 7, "failed"), (7, 7, "ready"))
        for upto, masked, state in rows:
            tx.insert("compaction", session="terminal:main", state=state, cause="soft_compact", method="mask",
                      upto=upto, masked=masked, before=9, made=NOW)  # fmt: skip

    ledger.tx(work)
    ledger.close()
    return made


def said(rows: list[dict[str, Any]]) -> list[str]:
    return [f"{row['role']} {row['content'][:5]}".strip() for row in rows]


def test_what_it_stands_for_and_what_it_left_out_is_shown(home: Home) -> None:
    assert said(expand(home, "terminal:main", 1)) == [f"tool {n} xxx" for n in (1, 2, 3)]
    rows = said(expand(home, "terminal:main"))
    assert rows == said(expand(home, "terminal:main", 2, "main"))
    turns = [(f"user ask {n}", "assistant", f"tool {n} xxx", f"assistant is {n}") for n in range(1, 5)]
    assert rows == [*(each for turn in turns for each in turn), "tool 5 xxx", "tool 6 xxx"]


@pytest.mark.parametrize(
    "asked", [("terminal:other",), ("terminal:main", 3), ("terminal:main", 4), ("terminal:main", 2, "other")]
)
def test_what_is_not_there_is_said(home: Home, asked: Any) -> None:
    with pytest.raises(NotFound):
        expand(home, *asked)


def test_by_command(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--home", str(home.root), "context", "expand", "--session", "terminal:main"]
    assert run([*words, "--compaction", "1", "--json"]) == 0
    assert [row["turn"] for row in json.loads(capsys.readouterr().out)] == [1, 2, 3]
    assert run([*words, "--compaction", "7"]) == 5
    assert run(words) == 0 and "ask 4" in capsys.readouterr().out


@pytest.mark.parametrize("status", ["handoff", "running"])  # handed over, or left by /new
def test_what_the_conversation_was_before_is_found_by_its_old_id(home: Home, status: str) -> None:
    def goes_on(tx: Transaction) -> None:
        groups.next_segment(tx, "terminal:main", NOW)
        contexts.of(tx, "terminal:main.2", NOW)
        contexts.update(tx, "terminal:main", NOW, status=status)

    before = expand(home, "terminal:main", 2)
    ledger = Ledger.open(home.ledger_file)
    ledger.tx(goes_on)
    ledger.close()
    for session in ("terminal:main", "terminal:main.1", "terminal:main.2"):
        assert expand(home, session, 2) == before
    assert expand(home, "terminal:main.1") == before
    shown = looking.session_blocks(home, "terminal:main.1")
    assert len(shown) == 32 and looking.session_blocks(home, "terminal:main") == []
    assert standing.status(home, "terminal:main.1")["session"] == "terminal:main"
    with pytest.raises(NotFound):
        looking.session_file(home, "terminal:main.2.1")
