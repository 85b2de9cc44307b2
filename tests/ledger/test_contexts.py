"""Contexts that the ledger lost, taken back from files that anybody may have written."""

from __future__ import annotations

from typing import Any

import pytest

from clawd.ledger import contexts, groups, turns
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
