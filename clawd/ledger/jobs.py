"""Jobs in the ledger: turns that a room of the daemon asks for itself. A job's session is `job:<id>`, which has no file
and no chat: nothing of it is delivered or recorded, and its trust is that of what it was asked with alone."""

from __future__ import annotations

from clawd.ledger import groups, turns
from clawd.ledger.db import Row, Transaction
from clawd.model import Authority
from clawd.trust import Origin


def put(tx: Transaction, kind: str, group: str, key: str, prompt: str, authority: Authority, now: str) -> int:
    """The job that the room calls `key`, made with its turn if it is new. Gives its id. Raises NotFound when there is
    no such group."""
    if known := tx.one("SELECT id FROM job WHERE key = ?", key):
        return int(known["id"])
    id = tx.insert("job", grp=group, kind=kind, key=key, prompt=prompt)
    session = groups.job_session(tx, id, group, now)
    place = {"grp": group, "session": session, **dict.fromkeys(("channel", "account", "chat", "thread"), "")}
    turn = turns.queue(tx, place, authority.role, authority.taint, now)
    tx.execute("UPDATE job SET turn = ? WHERE id = ?", turn, id)
    told = {"authority": authority.role, "trust": authority.taint, "origin": Origin.SYSTEM}
    wake = tx.insert("wake", kind="job", key=f"job:{id}", state="pending", **told)
    tx.execute("INSERT INTO turn_wake (turn, wake) VALUES (?, ?)", turn, wake)
    return id


def of(tx: Transaction, turn: int) -> Row:
    """The job of a turn, with the turn's authority, taint, state and what went wrong last."""
    row = tx.one(
        "SELECT j.*, t.authority, t.taint, t.state, t.error FROM job j JOIN turn t ON t.id = j.turn WHERE t.id = ?",
        turn,
    )
    assert row is not None
    return row


def answered(tx: Transaction, id: int, answer: str) -> None:
    tx.execute("UPDATE job SET answer = ? WHERE id = ?", answer, id)
