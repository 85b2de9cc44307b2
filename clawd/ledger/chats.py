"""Channels in the ledger: where each was read up to, and which chats there are."""

from __future__ import annotations

from clawd.ledger.db import Row, Transaction


def keep(tx: Transaction, channel: str, cursor: str, now: str) -> None:
    """The channel was read up to here."""
    tx.execute(
        "INSERT INTO cursor (channel, value, at) VALUES (?, ?, ?)"
        " ON CONFLICT (channel) DO UPDATE SET value = excluded.value, at = excluded.at",
        channel,
        cursor,
        now,
    )


def cursor(tx: Transaction, channel: str) -> str | None:
    row = tx.one("SELECT value FROM cursor WHERE channel = ?", channel)
    return row["value"] if row else None


def direct(tx: Transaction, channel: str | None = None) -> list[Row]:
    """Direct chats with people, the one that was spoken in last first."""
    return tx.all(
        "SELECT * FROM chat WHERE direct = 1 AND person IS NOT NULL AND channel = COALESCE(?, channel)"
        " ORDER BY seen DESC",
        channel,
    )
