"""Whom a test of a channel writes to."""

from pathlib import Path

from clawd.commands import channels
from clawd.config.begin import init_home
from clawd.config.home import Home
from clawd.ledger import chats
from clawd.ledger.db import Ledger
from tests.ledger.conftest import NOW
from tests.people.conftest import DIRECT, PEOPLE, replace


def test_a_test_goes_to_an_owner_and_to_nobody_else(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    init_home(home)
    (home.root / "people.toml").write_text(PEOPLE)
    ledger = Ledger.open(home.ledger_file)
    for chat, name in (("7", "Ada"), ("8", "bob")):  # who spoke last is no owner
        met = replace(DIRECT, chat=chat, sender=f"telegram:{chat}")
        ledger.tx(lambda tx, met=met, name=name, chat=chat: chats.met(tx, met, name, f"{NOW}{chat}"))
    ledger.close()
    assert channels._chats(home, "telegram") == ["7"]
    assert channels._chats(home, "slack") == []
