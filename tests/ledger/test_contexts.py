"""Contexts that the ledger lost, taken back from files that anybody may have written."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from clawd.errors import Refused, UsageError
from clawd.ledger import contexts, groups, moved, turns
from clawd.ledger.db import Ledger, Transaction
from clawd.trust import Role

NOW = "2026-12-01T09:00:00Z"


def begun(tx: Transaction) -> None:
    groups.add(tx, "main", NOW)
    groups.add(tx, "other", NOW)
    for id, group, base in (("a", "main", ""), ("a.2", "main", "a"), ("a.3", "main", "a"), ("b", "other", "")):
        groups.take_in(tx, id, group, id, 1.0, NOW, base)


@pytest.mark.parametrize(
    ("session", "said", "status", "kept"),
    [
        ("a", {"status": "handoff", "successor": "a.2"}, "handoff", (None, "a.2")),
        ("a.2", {"status": "running", "parent": "a"}, "running", ("a", None)),
        ("a.2", {"status": "handoff", "parent": "a.3", "successor": "a"}, "handoff", (None, None)),
        ("a", {"status": "handoff", "successor": "b", "parent": "b"}, "handoff", (None, None)),
        (
            "a.3",
            {"status": "handoff", "successor": "a.3"},
            "running",
            (None, None),
        ),
        ("a.3", {"status": "handoff", "successor": "nobody"}, "running", (None, None)),
    ],
)
def test_a_file_leads_to_its_own_conversation_alone_and_never_back(
    ledger: Ledger, session: str, said: dict[str, Any], status: str, kept: tuple[str | None, str | None]
) -> None:
    def taken(tx: Transaction) -> Any:
        begun(tx)
        assert contexts.take_back(tx, session, said, [], NOW)
        return contexts.find(tx, session)

    row = ledger.tx(taken)
    assert (row["status"], (row["parent"], row["successor"])) == (status, kept)


def test_a_circle_of_successors_ends(ledger: Ledger) -> None:
    """As a ledger that was restored may have it."""

    def turned(tx: Transaction) -> str:
        begun(tx)
        for session, successor in (("a", "a.2"), ("a.2", "a.3"), ("a.3", "a.2"), ("b", "b")):
            contexts.of(tx, session, NOW)
            contexts.update(tx, session, NOW, status="handoff", successor=successor)
        assert contexts.heir(tx, "b") == "b"
        place = {"grp": "main", "session": "a", "channel": "t", "account": "", "chat": "c", "thread": ""}
        return str(turns.get(tx, turns.queue(tx, place, Role.OWNER, 1.0, NOW))["session"])

    assert ledger.tx(turned) == "a.3"


def test_a_turn_notes_so_much_and_no_more(ledger: Ledger) -> None:
    """All of it is gone through in the transaction that settles the turn."""

    def noted(tx: Transaction) -> int:
        begun(tx)
        place = {"grp": "main", "session": "a", "channel": "t", "account": "", "chat": "c", "thread": ""}
        turn = turns.queue(tx, place, Role.OWNER, 1.0, NOW)
        with pytest.raises(UsageError, match="KiB"):
            for _ in range(1000):
                contexts.add_noted(tx, turn, {"verified": ["x" * 500] * 100})
        return len(contexts.take_noted(tx, turn))

    assert 1 < ledger.tx(noted) < 20


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("context", {"status": "evil"}), ("context", {"gate": "shut"}), ("context", {"window": "x"}),
        ("context", {"cumulative": 1 << 62}), ("context", {"taint": 7.0}), ("context", {"require_confirm": "{"}),
        ("context", {"declined": "[]"}), ("context", {"refused": "{}"}), ("context", {"seed": "7"}),
        ("pinned", {"class": "law"}), ("pinned", {"origin": "king"}), ("pinned", {"trust": 2.0}),
        ("pinned", {"text": "x" * 5000}), ("compaction", {"state": "true"}), ("compaction", {"trust": -1.0}),
        ("journal", {"kind": "hosts"}), ("journal", {"line": "[]"}),
    ],
)  # fmt: skip
def test_a_backup_with_a_window_that_no_ledger_has_is_refused(ledger: Ledger, table: str, said: dict[str, Any]) -> None:
    """Its session would be settled, and answered, no more."""

    def rows(tx: Transaction) -> moved.Rows:
        begun(tx)
        contexts.of(tx, "a", NOW)
        contexts.pin(tx, "a", "goal", "g", turn=None, at=NOW, origin="owner", trust=1.0)
        contexts.note(tx, "a", "decisions", {"action": "continue"})
        tx.insert("compaction", session="a", state="written", cause="manual", before=1, made=NOW)
        return moved.of_ledger(tx, "main")

    found = ledger.tx(rows)

    def read() -> moved.Rows:
        lines = [json.dumps({"table": name, "row": row}) for name, each in found.items() for row in each]
        return moved.read(io.BytesIO("\n".join(lines).encode()), "main")

    assert read() == found
    found[table][0].update(said)
    with pytest.raises(Refused):
        read()
