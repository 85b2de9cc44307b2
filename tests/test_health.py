"""What the doctor sees of a home that no daemon runs on, and what he makes of a damaged ledger."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clawd.config.begin import ensure_group, init_home
from clawd.config.home import Home
from clawd.errors import LedgerNewer, StorageError
from clawd.health import doctor, recover
from clawd.ledger import groups
from clawd.ledger.db import Ledger, schema_version
from clawd.ledger.groups import UID_BASE
from clawd.model import Block
from clawd.sessions.file import SessionFile

NOW = "2026-12-01T09:00:00.000+00:00"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    init_home(made)
    ledger = Ledger.open(made.ledger_file)
    ledger.tx(lambda tx: groups.add(tx, "main", NOW))
    ledger.close()
    return made


def told(home: Home, check: str) -> list[tuple[str, str]]:
    return [(each["level"], each["message"]) for each in doctor(home) if each["check"] == check]


def test_a_sound_home_is_sound(home: Home) -> None:
    assert told(home, "ledger") == [("ok", "sound; 0 turns wait, 0 run")]
    assert told(home, "config") == [("ok", "config.toml and every group.toml are understood")]
    assert told(home, "rights") == [] and {level for level, _ in told(home, "groups")} == {"ok"}


def test_rights_that_let_others_look_in_are_an_error(home: Home) -> None:
    home.groups.chmod(0o755)
    [(level, message)] = told(home, "rights")
    assert level == "error" and "others can look into" in message


def test_a_group_whose_folder_is_gone_is_a_warning(home: Home) -> None:
    home.group("main").root.rename(home.root / "elsewhere")
    [(level, message), _] = told(home, "groups")
    assert level == "warn" and "groups/main is gone" in message


def test_one_check_that_fails_does_not_end_the_others(home: Home) -> None:
    home.ledger_file.write_bytes(b"no database at all" * 300)
    home.config_file.write_text("schema = 1\n[claw]\nnaem = 'x'\n")
    assert told(home, "ledger")[0][0] == told(home, "config")[0][0] == "error"
    assert "did you mean name?" in told(home, "config")[0][1]
    assert told(home, "disk") and told(home, "daemon")


def test_a_lost_ledger_is_rebuilt_from_the_folders(home: Home) -> None:
    ensure_group(home, "second")
    if os.geteuid() == 0:
        os.chown(home.group("second").work, UID_BASE + 7, UID_BASE + 7)
    blocks = [Block("user", "hello"), Block("assistant", "hi")]
    SessionFile(home.group("second").sessions / "terminal_second.md", "terminal:second").append(blocks, 41)
    home.ledger_file.write_bytes(b"")
    found = recover(home)
    assert any("1 turns are finished" in each["message"] for each in found), found
    assert [each["command"] for each in found if each["check"] == "groups"] == [
        "clawd groups trust second",
        "clawd groups trust main",
    ][:: 1 if os.geteuid() == 0 else -1]
    ledger = Ledger.open(home.ledger_file)
    rows = {row.name: row for row in ledger.tx(groups.every)}
    session = ledger.tx(lambda tx: groups.session(tx, "terminal:second"))
    turns = [tuple(row) for row in ledger.tx(lambda tx: tx.all("SELECT id, state FROM turn"))]
    ledger.close()
    assert session is not None and (session.group, session.stem) == ("second", "terminal_second")
    assert turns == [(41, "answered")]
    assert os.geteuid() or rows["second"].number == 7
    [kept] = home.backups.glob("damaged-*/ledger.db")
    assert kept.read_bytes() == b""


def test_a_ledger_of_a_newer_program_is_not_recovered(home: Home) -> None:
    import sqlite3

    connection = sqlite3.connect(home.ledger_file)
    connection.execute(f"PRAGMA user_version = {schema_version() + 1}")
    connection.close()
    before = home.ledger_file.read_bytes()
    with pytest.raises(LedgerNewer):
        recover(home)
    assert home.ledger_file.read_bytes() == before


def test_a_home_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be written"):
        Home(tmp_path / "file" / "home").create()
