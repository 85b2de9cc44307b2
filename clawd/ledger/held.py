"""Messages that are durable and have no turn yet: why each is held, and what becomes of it.

`rate`: its sender spoke too often. `album`: more of its album may come. `fetching`: its files are not here yet.
`unaddressed`: of an album, not for us unless another of the album is. `listening`: what a member said between what we
answer; it wakes nobody and is read with the next answer. `stale` with the reason `old`: it came too late.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from clawd.clock import moment_of
from clawd.ledger.db import Row, Transaction
from clawd.model import Incoming, Part

RATE, ALBUM, FETCHING, UNADDRESSED, LISTENING = REASONS = ("rate", "album", "fetching", "unaddressed", "listening")
OLD = "old"
MOST_LINES, LINES_LAST = 50, timedelta(days=1)  # of a chat so many are kept, so long, to be read with the next answer


def waiting(tx: Transaction) -> list[Row]:
    """Every message that only the daemon's own timers bring on, oldest first: work for the start."""
    return tx.all(
        "SELECT * FROM inbound WHERE state = 'held' AND turn IS NULL AND reason IN (?, ?, ?, ?) ORDER BY seq",
        *(RATE, ALBUM, FETCHING, UNADDRESSED),
    )


def change(tx: Transaction, seq: int, reason: str) -> None:
    """It is held for another reason from now on."""
    tx.execute("UPDATE inbound SET reason = ? WHERE seq = ? AND state = 'held'", reason, seq)


def album(tx: Transaction, row: Row) -> list[Row]:
    """What is held of the album of a message, in its order."""
    return tx.all(
        "SELECT * FROM inbound WHERE state = 'held' AND turn IS NULL AND channel = ? AND account = ? AND chat = ?"
        " AND album = ? ORDER BY seq",
        *(row[name] for name in ("channel", "account", "chat", "album")),
    )


def has_album(tx: Transaction, incoming: Incoming) -> bool:
    """Whether another message of its album is held already."""
    sql = "SELECT 1 FROM inbound WHERE channel = ? AND account = ? AND chat = ? AND album = ? AND state = 'held'"
    return tx.one(sql, incoming.channel, incoming.account, incoming.chat, incoming.album) is not None


def expire(tx: Transaction, seq: int) -> None:
    """It will not be answered, and nobody is told."""
    tx.move("inbound", seq, "expire", told=1)


# -- listening --


def _lines(tx: Transaction, row: Row) -> list[Row]:
    """What is kept of what was said in the chat and session of a message, newest first."""
    return tx.all(
        "SELECT seq FROM inbound WHERE state = 'held' AND reason = ? AND session = ? AND channel = ?"
        " AND account = ? AND chat = ? ORDER BY seq DESC",
        *(LISTENING, row["session"], row["channel"], row["account"], row["chat"]),
    )


def bound_lines(tx: Transaction, seq: int) -> None:
    """Only the newest are kept of the lines that this one is of."""
    row = tx.one("SELECT * FROM inbound WHERE seq = ?", seq)
    assert row is not None
    for old in _lines(tx, row)[MOST_LINES:]:
        expire(tx, old["seq"])


def expire_lines(tx: Transaction, now: str) -> None:
    """What was said longer ago than a day is context for nothing any more."""
    moment = moment_of(now)
    for row in tx.all("SELECT seq, received FROM inbound WHERE state = 'held' AND reason = ?", LISTENING):
        received = moment_of(row["received"])
        if moment is not None and (received is None or moment - received > LINES_LAST):
            expire(tx, row["seq"])


def take_lines(tx: Transaction, row: Row, now: str) -> list[Row]:
    """The lines that are to be read with a message, oldest first; they are received from now on."""
    if not _lines(tx, row):
        return []
    expire_lines(tx, now)
    lines = [line["seq"] for line in reversed(_lines(tx, row))]
    for seq in lines:
        tx.move("inbound", seq, "release", reason=None)
    return [each for seq in lines if (each := tx.one("SELECT * FROM inbound WHERE seq = ?", seq)) is not None]


# -- files --


def files(row: Row) -> list[dict[str, Any]]:
    """What came with a message, {name, handle, size, mime, voice}; with `done` once it was dealt with."""
    return list(json.loads(row["attachments"] or "[]"))


def have_files(row: Row) -> bool:
    """Whether every file of a message was dealt with."""
    return all("done" in file for file in files(row))


def dealt_with(tx: Transaction, seq: int, n: int, parts: Sequence[Part]) -> None:
    """The n-th file of a message was fetched, or cannot be had: its parts say which."""
    row = tx.one("SELECT * FROM inbound WHERE seq = ? AND state = 'held'", seq)
    if row is None or "done" in (found := files(row))[n]:
        return
    found[n] = {**found[n], "done": True}
    said = [*json.loads(row["parts"]), *(asdict(part) for part in parts)]
    tx.execute(
        "UPDATE inbound SET parts = ?, attachments = ? WHERE seq = ?",
        *(json.dumps(said, ensure_ascii=False), json.dumps(found), seq),
    )


# -- too late --


def late(tx: Transaction) -> list[Row]:
    """The newest message of each chat in which some came too late and nobody was told."""
    return tx.all(
        "SELECT *, MAX(seq) FROM inbound WHERE state = 'stale' AND reason = ? AND NOT told"
        " GROUP BY channel, account, chat",
        OLD,
    )


def tell_late(tx: Transaction, channel: str, account: str, chat: str) -> int:
    """How many came too late in a chat that it was not told of; from now on it was."""
    where = "state = 'stale' AND reason = ? AND NOT told AND channel = ? AND account = ? AND chat = ?"
    return tx.execute(f"UPDATE inbound SET told = 1 WHERE {where}", OLD, channel, account, chat).rowcount
