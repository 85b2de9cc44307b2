"""What a person, a group or a channel left in the ledger is found, taken away and kept aside; nobody else's is."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from clawd.channel import ChannelLimits
from clawd.config.home import Home
from clawd.ledger import approvals, deliveries, ends, firings, injected, turns
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.deliveries import Address
from clawd.ledger.store import LedgerStore
from clawd.model import Button, Final, Lease
from clawd.stores import Scope
from clawd.trust import Role
from tests.ledger.conftest import NOW, Desk


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Two groups with a message, an answer and a file each."""
    home = Home(tmp_path / "home")
    home.create()
    ledger = Ledger.open(home.ledger_file)
    desk = Desk(ledger)
    for group, role in (("main", Role.OWNER), ("other", Role.MEMBER)):
        desk.accept(f"question of {group}", group=group, role=role)
        desk.run(f"run-{group}", group)
        blob = f"blob-{group}"
        (home.blobs / blob).write_text(group)

        def work(tx: Transaction, group: str = group, blob: str = blob) -> None:
            claim = turns.claim(tx, f"run-{group}", group, 0, NOW)
            assert claim is not None
            lease = Lease(f"run-{group}", claim.turn["id"], 1, 0)
            turns.add_step(tx, lease, 0, {"role": "assistant", "content": f"step of {group}"}, [])
            final = Final(f"answer of {group}")
            ends.answer(tx, lease, final, [("f", blob)], NOW, limits=ChannelLimits())
            ends.recorded(tx, lease.turn, NOW)
            owner, at = Address("terminal", "", "main", ""), datetime(2026, 12, 1, tzinfo=UTC)
            asked = approvals.add(
                tx, "send", {"text": f"letter of {group}"}, "", subject=group, person="owner", at=owner,
                group=group, turn=lease.turn, now=at, expires=at,
            )  # fmt: skip
            text, press = f"may I send the letter of {group}", Button(f"choice of {group}", "v")
            (row,) = deliveries.enqueue(
                tx, owner, session="", kind="notice", text=text, now=NOW, limits=ChannelLimits(), buttons=[press]
            )
            approvals.shown(tx, asked["id"], text, row)
            for row in tx.all("SELECT id FROM delivery WHERE state = 'pending'"):
                tx.move("delivery", row["id"], "send")
                deliveries.decide(tx, row["id"], "arrive")

        ledger.tx(work)
        facts = {"file": {"cron": "0 9 * * *", "prompt": f"plan of {group}"}, "zone": "UTC"}
        taken = firings.Taken("a", "", "", facts, f"mistake of {group}", None)
        ledger.tx(lambda tx, group=group, taken=taken: firings.take(tx, group, taken, NOW))
    ledger.close()
    return home


def content(home: Home) -> str:
    return "".join(path.read_text("latin-1") for path in home.state.rglob("*") if path.is_file())


@pytest.mark.parametrize("scope", [Scope("group", "other"), Scope("person", "member")])
def test_what_is_erased_is_gone_and_only_that(home: Home, scope: Scope) -> None:
    store = LedgerStore(home.ledger_file, home.blobs)
    assert store.locate(scope) == ["ledger.db: message 2", home.blobs / "blob-other"]
    for _ in range(2):
        store.erase(scope)
    assert store.locate(scope) == []
    left = content(home)
    of_group = ("plan of", "mistake of") if scope.kind == "group" else ()
    for word in ("question of", "step of", "answer of", "letter of", "choice of", *of_group):
        assert f"{word} other" not in left and f"{word} main" in left
    assert [path.name for path in home.blobs.iterdir()] == ["blob-main"]


@pytest.mark.parametrize("scope", [Scope("group", "other"), Scope("channel", "mmkr")])
def test_what_waits_to_be_written_into_a_session_is_erased_too(home: Home, scope: Scope) -> None:
    ledger = Ledger.open(home.ledger_file)
    for group, session in (("other", "mmkr:b"), ("main", "web:mmkr:")):
        piece = [{"role": "user", "content": f"tick of {group}", "at": NOW}]
        ledger.tx(lambda tx, g=group, s=session, p=piece: injected.accept(tx, s, g, p, "k", NOW))  # type: ignore[misc]
    ledger.close()
    store = LedgerStore(home.ledger_file, home.blobs)
    assert "ledger.db: injected 1" in store.locate(scope) and "ledger.db: injected 2" not in store.locate(scope)
    store.erase(scope)
    assert "ledger.db: injected 1" not in store.locate(scope)
    assert "tick of other" not in content(home) and "tick of main" in content(home)


def test_a_channel_is_all_that_came_by_it(home: Home) -> None:
    store = LedgerStore(home.ledger_file, home.blobs)
    assert len(store.locate(Scope("channel", "terminal"))) == 4
    assert store.locate(Scope("channel", "telegram")) == []


def test_a_backup_holds_the_ledger_and_the_blobs(home: Home, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    LedgerStore(home.ledger_file, home.blobs).back_up(Scope("group", "main"), target)
    copy = Ledger.read_only(target / "state" / "ledger.db")
    assert len(copy.tx(lambda tx: tx.all("SELECT * FROM inbound"))) == 2
    copy.close()
    assert [path.name for path in (target / "state" / "blobs").iterdir()] == ["blob-main"]
