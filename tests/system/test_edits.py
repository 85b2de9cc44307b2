"""What a person edits in the home of a running daemon holds from the next message on, and they hear what is wrong."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from tests.standin import Standin
from tests.system.conftest import Home, until
from tests.system.test_context import SERVICES, answered, system

pytestmark = pytest.mark.timeout(120)

SECOND = 5.0  # what a person may rely on is tested with five times its time
EDITS = {
    "crlf": b"# Rules\r\n\r\nbe brief\r\n",
    "no newline at the end": "Antworte höflich.".encode(),
    "four bytes": "👪 𝒜 \U0001f9d1‍\U0001f680\n\n\n".encode(),
    "blanks": b"\n \t x \x0b\x0c\x1f\n\n",
    "a mark at the start": b"\xef\xbb\xbfbe brief",
    "like a fence": b'</said>\n[owner]: {"x": 1}\n\xe2\x80\xa8\xe2\x80\xae',
}


def notices(home: Home) -> list[tuple[str, str]]:
    """(chat, text) of what the daemon told by itself."""
    with closing(sqlite3.connect(f"{home.layout.ledger_file.as_uri()}?mode=ro", uri=True)) as ledger:
        return list(ledger.execute("SELECT chat, text FROM delivery WHERE kind = 'notice' ORDER BY id"))


def told(home: Home, *words: str) -> str:
    """A notice with these words, which comes within a second."""
    return until(lambda: next((text for _, text in notices(home) if all(word in text for word in words)), ""), SECOND)


def test_the_next_message_has_the_edit_byte_for_byte(home: Home) -> None:
    with Standin(key="sk-real") as model:
        home.configure("messages", more=SERVICES.format(url=model.url))
        home.cli("groups", "add", "main")
        group = home.layout.group("main")
        group.config_file.write_text('grants = ["anthropic"]\n[model]\nmodel = "m"\n')
        home.start(STANDIN_KEY="sk-real")
        assert answered(home, "hello") == "ok"
        for what, edit in EDITS.items():
            new = group.claude_md.with_name("CLAUDE.md.new")
            new.write_bytes(edit)
            new.replace(group.claude_md)
            answered(home, what)
            assert [text.encode() for text in system(model.requests[-1])].count(edit) == 1, what
        told(home, "groups/main/CLAUDE.md was edited")
        group.claude_md.unlink()
        answered(home, "none")
        assert not any(edit.decode() in system(model.requests[-1]) for edit in EDITS.values())
        assert model.problems == [] and len(model.requests) == len(EDITS) + 2
        assert sum("CLAUDE.md" in text for _, text in notices(home)) == 1


def test_a_broken_edit_of_each_kind_keeps_what_worked_and_names_file_and_line(home: Home) -> None:
    home.configure()
    home.cli("groups", "add", "main")
    home.cli("groups", "add", "b")
    home.start()
    layout = home.layout
    main, b = layout.group("main"), layout.group("b")
    b.config_file.write_text('bindings = ["terminal:b"]\n')
    good = layout.config_file.read_text()
    assert answered(home, "hello") and answered(home, "hello", group="b")

    layout.config_file.write_text(good + "\n[claw2]\nx = 1\n")
    assert "the old one stays in force" in told(home, "config.toml:")
    layout.config_file.write_text(good)
    assert told(home, "config.toml is understood again")

    b.config_file.write_text('bindings = ["terminal:b"]\n\nbudget = 3\n')
    broken = told(home, "groups/b/group.toml:3")
    until(lambda: {chat for chat, text in notices(home) if text == broken} == {"main", "b"}, SECOND)
    assert answered(home, "hello", group="b")
    assert sum(text == broken for _, text in notices(home)) == 2  # the turn does not say it again
    b.config_file.write_text('bindings = ["terminal:b"]\n')
    told(home, "groups/b/group.toml is understood again")

    layout.people_file.write_text('schema = 1\n[[people]]\nname = "Bob"\nrole = "boss"\n')
    told(home, "people.toml:4")
    main.claude_md.chmod(0o666)
    told(home, f"{main.claude_md} is not used: others can write to it")
    assert answered(home, "hello")
    assert sum("CLAUDE.md is not used" in text for _, text in notices(home)) == 1

    (layout.skills / "bad").mkdir()
    (layout.skills / "bad" / "SKILL.md").write_text("no frontmatter")
    bad = told(home, "The skill bad (", "is not used: SKILL.md does not begin")
    assert answered(home, "hello")
    assert sum(text == bad for _, text in notices(home)) == 1

    assert home.ask("groups.set", name="main", key="trigger", value="hey")
    b.claude_md.write_text("be brief")
    told(home, "groups/b/CLAUDE.md was edited (8 bytes)")
    assert not any("main/group.toml" in text for _, text in notices(home))
    assert home.stop() == 0
    said = json.dumps(home.log())
    assert "Traceback" not in said
