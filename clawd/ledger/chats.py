"""Channels in the ledger: where each was read up to, and which chats there are."""

from __future__ import annotations

from clawd.ledger.db import Row, Transaction
from clawd.model import Incoming


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


def met(tx: Transaction, incoming: Incoming, person: str | None, now: str) -> None:
    """Somebody who may speak spoke in this chat just now. `person`: whose it is, if it is direct."""
    tx.execute(
        "INSERT INTO chat (channel, account, chat, direct, title, person, sender, seen) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (channel, account, chat) DO UPDATE SET direct = excluded.direct, title = excluded.title,"
        " person = excluded.person, sender = excluded.sender, seen = excluded.seen",
        incoming.channel,
        incoming.account,
        incoming.chat,
        incoming.direct,
        incoming.title,
        person if incoming.direct else None,
        incoming.sender if incoming.direct else None,
        now,
    )


def direct_of(tx: Transaction, person: str) -> list[Row]:
    """The direct chats of a person that we know, the newest first."""
    return tx.all("SELECT * FROM chat WHERE direct = 1 AND person = ? ORDER BY seen DESC", person)


def direct(tx: Transaction, channel: str | None = None) -> list[Row]:
    """Direct chats with people, the one that was spoken in last first."""
    return tx.all(
        "SELECT * FROM chat WHERE direct = 1 AND person IS NOT NULL AND channel = COALESCE(?, channel)"
        " ORDER BY seen DESC",
        channel,
    )


def is_direct(tx: Transaction, turn: Row) -> bool:
    """Whether one person alone reads what a turn answers: in a direct chat, or at the terminal."""
    at = (turn["channel"], turn["account"], turn["chat"])
    known = tx.one("SELECT direct FROM chat WHERE (channel, account, chat) = (?, ?, ?)", *at)
    return at[0] == "terminal" or bool(known and known["direct"])


def move(tx: Transaction, channel: str, account: str, chat: str, now: str) -> None:
    """The platform calls a chat `now`. Inside of clawd it keeps the name that it was known by first."""
    tx.execute(
        "INSERT OR REPLACE INTO alias (channel, account, chat, now) VALUES (?, ?, ?, ?)",
        channel,
        account,
        first_of(tx, channel, account, chat),
        now,
    )


def first_of(tx: Transaction, channel: str, account: str, now: str) -> str:
    """What a chat that the platform calls `now` is called inside of clawd."""
    row = tx.one("SELECT chat FROM alias WHERE channel = ? AND account = ? AND now = ?", channel, account, now)
    return row["chat"] if row else now


def now_of(tx: Transaction, channel: str, account: str, chat: str) -> str:
    """What the platform calls a chat now."""
    row = tx.one("SELECT now FROM alias WHERE channel = ? AND account = ? AND chat = ?", channel, account, chat)
    return row["now"] if row else chat
