"""What is known of which turn was given which memory."""

from __future__ import annotations

from pathlib import Path

from clawd.ledger import recalled, turns
from clawd.ledger.db import Ledger
from clawd.ledger.salvage import FoundGroup, FoundSession, salvage
from tests.ledger.conftest import NOW, Desk
from tests.ledger.test_forget import answer, pass_days

LATER = "2026-12-01T10:00:00.000+00:00"


def test_a_memory_knows_the_turns_that_it_was_shown_in_until_they_are_forgotten(desk: Desk, ledger: Ledger) -> None:
    desk.run("r")
    given: list[int] = []
    for text in ("one", "two"):
        desk.accept(text)
        given.append(answer(desk))
    for turn in given:
        ledger.tx(lambda tx, turn=turn: recalled.note(tx, "main", ["ep_1", "fact:K"], turn, NOW))  # type: ignore[misc]
    ledger.tx(lambda tx: recalled.note(tx, "main", ["ep_1"], given[0], LATER))  # searched for, too
    ledger.tx(lambda tx: recalled.note(tx, "side", ["ep_1"], given[0], NOW))
    shown = [tuple(row) for row in ledger.tx(lambda tx: recalled.shown_in(tx, "main", "ep_1"))]
    assert shown == [(turn, NOW, "terminal:main") for turn in given]
    pass_days(ledger, 10)
    assert len(ledger.tx(lambda tx: recalled.shown_in(tx, "main", "ep_1"))) == 2
    pass_days(ledger, 40)
    assert ledger.tx(lambda tx: tx.all("SELECT * FROM recalled")) == []


def test_what_was_forgotten_last_holds_and_is_claimed_with_the_turn(desk: Desk, ledger: Ledger) -> None:
    assert ledger.tx(lambda tx: recalled.forgot(tx, "main")) is None
    for moment in (NOW, LATER, NOW):  # a clock that was turned back brings nothing back
        ledger.tx(lambda tx, moment=moment: recalled.set_forgot(tx, "main", moment))  # type: ignore[misc]
    assert ledger.tx(lambda tx: recalled.forgot(tx, "main")) == LATER
    assert ledger.tx(lambda tx: recalled.forgot(tx, "side")) is None
    desk.run("r")
    desk.accept("hi")
    claim = ledger.tx(lambda tx: turns.claim(tx, "r", "main", 0, NOW))
    assert claim is not None and claim.forgot == LATER


def test_salvage_keeps_it(desk: Desk, ledger: Ledger, tmp_path: Path) -> None:
    desk.run("r")
    desk.accept("one")
    turn = answer(desk)
    ledger.tx(lambda tx: recalled.note(tx, "main", ["ep_1"], turn, NOW))
    ledger.tx(lambda tx: recalled.note(tx, "main", ["ep_1"], 99, NOW))  # of a turn that is lost
    ledger.tx(lambda tx: recalled.set_forgot(tx, "main", NOW))
    file, found = ledger.path, FoundSession("terminal:main", "main", "terminal_main", frozenset({turn}))
    ledger.close()
    salvage(file, tmp_path / "new.db", [FoundGroup("main", 1)], [found], NOW)
    mended = Ledger.open(tmp_path / "new.db")
    assert [row["turn"] for row in mended.tx(lambda tx: recalled.shown_in(tx, "main", "ep_1"))] == [turn]
    assert mended.tx(lambda tx: tx.all("SELECT turn FROM recalled"))[0][0] == turn
    assert mended.tx(lambda tx: recalled.forgot(tx, "main")) == NOW
    mended.close()
