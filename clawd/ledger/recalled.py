"""Which memories were put before the model of which turn, and since when what memory gave before is not shown again.
Ids alone, never content."""

from __future__ import annotations

from collections.abc import Iterable

from clawd.ledger.db import Row, Transaction


def note(tx: Transaction, group: str, memories: Iterable[str], turn: int, now: str) -> None:
    """These were given to a turn; what is known already stays as it was."""
    for memory in memories:
        values = (group, memory, turn, now)
        tx.execute("INSERT OR IGNORE INTO recalled (grp, memory, turn, at) VALUES (?, ?, ?, ?)", *values)


def shown_in(tx: Transaction, group: str, memory: str) -> list[Row]:
    """{turn, at, session} of each turn that was given a memory, the newest last."""
    return tx.all(
        "SELECT r.turn, r.at, t.session FROM recalled r JOIN turn t ON t.id = r.turn"
        " WHERE r.grp = ? AND r.memory = ? ORDER BY r.turn",
        group,
        memory,
    )


def forgot(tx: Transaction, group: str) -> str | None:
    """When something of the group's memory was forgotten last (RFC 3339), None if nothing ever was."""
    row = tx.one("SELECT forgot FROM remembering WHERE grp = ?", group)
    return row["forgot"] if row else None


def set_forgot(tx: Transaction, group: str, now: str) -> None:
    """Something was forgotten just now: no later prompt has what memory gave until then."""
    tx.execute(
        "INSERT INTO remembering (grp, forgot) VALUES (?, ?)"
        " ON CONFLICT (grp) DO UPDATE SET forgot = MAX(COALESCE(forgot, ''), excluded.forgot)",
        group,
        now,
    )
