"""What came from a channel, a person or a group is found in memory, kept aside and erased; nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawd.clock import SystemClock
from clawd.config.begin import ensure_group
from clawd.config.home import Home
from clawd.ledger.db import Ledger, Transaction
from clawd.memory.kept import MemoryStore
from clawd.memory.protocol import Voice
from clawd.memory.provenance import TrustLedger
from clawd.memory.store import OWNER, GroupMemory
from clawd.stores import Scope
from clawd.trust import Origin
from tests.ledger.conftest import Desk


def memory(home: Home, group: str) -> GroupMemory:
    return GroupMemory(home.group(group).memory, home.state, group, SystemClock())


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """In each group a memory from the command line, one of a Telegram chat, and one of a turn of the owner's."""
    made = Home(tmp_path / "home")
    made.create()
    ledger = Ledger.open(made.ledger_file)
    desk = Desk(ledger)
    for group in ("a", "b"):
        ensure_group(made, group)
        turn = desk.accept(group=group).turn
        kept = memory(made, group)
        kept.put(f"from the command line of {group}", "entity", {}, OWNER)
        kept.put(f"from a chat of {group}", "entity", {}, Voice(Origin.OWNER, source="telegram:7#12", turn=99))
        kept.put(f"from a turn of {group}", "entity", {}, Voice(Origin.AGENT, source=f"terminal:{group}#1", turn=turn))
        kept.put("under a key", "fact", {"key": "told"}, Voice(Origin.OWNER, source="telegram:7#13"))
        kept.close()

    def bob(tx: Transaction) -> None:
        tx.execute("UPDATE inbound SET sender = 'member:bob' WHERE grp = 'b'")

    ledger.tx(bob)
    ledger.close()
    return made


def left(home: Home, group: str) -> list[str]:
    of = memory(home, group)
    of.look()
    texts = sorted(each.text for each in of.every() if each.kind != "day")
    of.close()
    return texts


ALL = ["from a chat of {}", "from a turn of {}", "from the command line of {}", "under a key"]


def every(group: str, *but: int) -> list[str]:
    return [text.format(group) for n, text in enumerate(ALL) if n not in but]


def test_a_channel_is_erased_in_every_group(home: Home) -> None:
    store, scope = MemoryStore(home, SystemClock()), Scope("channel", "telegram")
    found = store.locate(scope)
    assert len(found) == 4 and sum("fact:told" in str(each) for each in found) == 2
    store.erase(scope)
    assert store.locate(scope) == []
    assert left(home, "a") == every("a", 0, 3) and left(home, "b") == every("b", 0, 3)
    assert "telegram:7" not in (home.state / "trust.jsonl").read_text()
    assert not [path for path in home.groups.rglob("*.md") if "under a key" in path.read_text()]
    store.erase(scope)


def test_a_person_is_known_by_their_turns(home: Home) -> None:
    store, scope = MemoryStore(home, SystemClock()), Scope("person", "member:bob")
    [file] = store.locate(scope)
    assert "from a turn of b" in Path(file).read_text()
    store.erase(scope)
    assert left(home, "a") == every("a") and left(home, "b") == every("b", 1)


def test_a_group_is_kept_aside_and_erased_with_all_that_is_known_of_it(home: Home, tmp_path: Path) -> None:
    store, scope = MemoryStore(home, SystemClock()), Scope("group", "a")
    assert str(store.locate(scope)[-1]) == "trust.jsonl: 4 lines"
    store.back_up(scope, tmp_path / "kept")
    copy = Home(tmp_path / "kept")
    assert left(copy, "a") == every("a") and all(
        stamp.group == "a" for stamp in TrustLedger(copy.state / "trust.jsonl").read()
    )
    store.erase(scope)
    assert store.locate(scope) == [] and not home.group("a").memory.exists()
    assert left(home, "a") == [] and left(home, "b") == every("b")
    store.erase(scope)
