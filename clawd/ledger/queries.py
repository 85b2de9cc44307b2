"""What the ledger shows: JSON-ready rows under the contract's names, read beside the daemon."""

from __future__ import annotations

import json
from typing import Any

from clawd.errors import NotFound
from clawd.ledger.db import Row, Transaction

Shown = dict[str, Any]

_MESSAGE = (
    "SELECT i.seq, i.channel, i.chat, i.platform_id, i.grp, i.session, i.sender, i.role, i.state, i.turn,"
    " t.attempt, i.received, i.reason, i.parts FROM inbound i LEFT JOIN turn t ON t.id = i.turn"
)


def _message(row: Row) -> Shown:
    return {
        "id": row["seq"],
        "channel": row["channel"],
        "chat": row["chat"],
        "platform_id": row["platform_id"],
        "group": row["grp"],
        "session": row["session"],
        "sender": row["sender"],
        "role": row["role"],
        "state": row["state"],
        "turn": row["turn"],
        "attempt": row["attempt"] or 0,
        "received": row["received"],
        "reason": row["reason"],
    }


def messages(tx: Transaction, group: str | None, state: str | None, limit: int) -> list[Shown]:
    """The newest `limit` messages, oldest of them first."""
    rows = tx.all(
        f"{_MESSAGE} WHERE (? IS NULL OR i.grp = ?) AND (? IS NULL OR i.state = ?) ORDER BY i.seq DESC LIMIT ?",
        group,
        group,
        state,
        state,
        limit,
    )
    return [_message(row) for row in reversed(rows)]


def message(tx: Transaction, seq: int) -> Shown:
    """One message with its parts, wakes, steps, deliveries and reply; `forgotten` when its text has left the ledger.
    Raises NotFound."""
    row = tx.one(f"{_MESSAGE} WHERE i.seq = ?", seq)
    if row is None:
        raise NotFound(f"there is no message {seq}", hint="clawd messages list")
    turn = row["turn"]
    wakes = tx.all("SELECT id, kind, authority, trust, origin, state, why FROM wake WHERE inbound = ? ORDER BY id", seq)
    steps = tx.all("SELECT n, attempt, message FROM step WHERE turn = ? ORDER BY n", turn)
    sent = tx.all("SELECT * FROM delivery WHERE turn = ? OR inbound = ? ORDER BY id", turn, seq)
    return {
        **_message(row),
        "forgotten": row["parts"] == "[]",
        "parts": [{"origin": part["origin"], "text": part["text"]} for part in json.loads(row["parts"])],
        "wakes": [dict(wake) for wake in wakes],
        "steps": [{"n": step["n"], "attempt": step["attempt"], **json.loads(step["message"])} for step in steps],
        "deliveries": [delivery(each) for each in sent],
        "reply": reply(tx, turn, seq),
    }


def reply(tx: Transaction, turn: int | None, seq: int) -> str | None:
    """What was said to a message, or None while nothing was, or when that has left the ledger."""
    rows = tx.all(
        "SELECT text FROM delivery WHERE (turn = ? OR inbound = ?) AND kind IN ('text', 'notice')"
        " AND state <> 'cancelled' ORDER BY id",
        turn,
        seq,
    )
    return "\n\n".join(row["text"] for row in rows if row["text"]) or None


def delivery(row: Row) -> Shown:
    return {
        "id": row["id"],
        "turn": row["turn"],
        "channel": row["channel"],
        "chat": row["chat"],
        "n": row["n"],
        "kind": row["kind"],
        "state": row["state"],
        "platform_id": row["platform_id"],
        "attempts": row["attempts"],
        "error": row["error"],
    }


def deliveries(tx: Transaction, limit: int = 1000) -> list[Shown]:
    return [delivery(row) for row in reversed(tx.all("SELECT * FROM delivery ORDER BY id DESC LIMIT ?", limit))]


def turn_counts(tx: Transaction) -> dict[str, int]:
    """{queued, running, held}."""
    rows = tx.all("SELECT state, COUNT(*) AS n FROM turn WHERE recorded_at IS NULL GROUP BY state")
    found = {row["state"]: row["n"] for row in rows}
    return {"queued": found.get("queued", 0), "running": found.get("claimed", 0), "held": found.get("held", 0)}


def outcome(tx: Transaction, seq: int) -> Shown | None:
    """How a message ended, None while it is open. `ms` is from received to ended, on the wall clock."""
    row = tx.one("SELECT * FROM inbound WHERE seq = ?", seq)
    if row is None:
        raise NotFound(f"there is no message {seq}")
    if row["state"] not in ("delivered", "recorded", "failed", "stopped", "held", "withdrawn", "stale"):
        return None
    turn = tx.one("SELECT * FROM turn WHERE id = ?", row["turn"])
    if row["state"] == "failed" and turn is not None and _undelivered(tx, turn["id"]):
        return None  # the sentence that says so is on its way
    error = None
    if row["state"] in ("failed", "held", "stopped", "stale", "withdrawn"):
        error = row["reason"] or row["state"]
        if error == "rate":
            error = "more messages came than may in a minute; this one is kept, and taken by and by"
    elif row["reason"]:
        error = row["reason"]
    files = tx.all("SELECT name, blob FROM delivery WHERE turn = ? AND kind = 'file' ORDER BY id", row["turn"])
    usage = None
    if turn is not None and turn["input"] is not None:
        usage = {name: turn[name] for name in ("input", "output", "cached", "usd")}
    return {
        "state": row["state"],
        "turn": row["turn"],
        "session": row["session"],
        "group": row["grp"],
        "reply": reply(tx, row["turn"], seq),
        "files": [dict(file) for file in files],
        "engine": turn["engine"] if turn else None,
        "model": turn["model"] if turn else None,
        "backend": turn["backend"] if turn else None,
        "attempt": turn["attempt"] if turn else 0,
        "ms": _ms(row["received"], turn["ended_at"] if turn else None),
        "usage": usage,
        "error": error,
    }


def _undelivered(tx: Transaction, turn: int) -> bool:
    return tx.one("SELECT 1 FROM delivery WHERE turn = ? AND state IN ('pending', 'sending')", turn) is not None


def _ms(began: str, ended: str | None) -> int | None:
    from datetime import datetime

    if ended is None:
        return None
    return round((datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds() * 1000)
