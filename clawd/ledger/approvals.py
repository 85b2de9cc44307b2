"""Approvals in the ledger: `open → approved → executing → done` or `failed`; `denied`, `expired`, `void`.

Only the daemon writes them. People call one by its `number`, which the owner alone is shown and nobody can guess: a
text that pretends to be an approval cannot name a real one. Rows that are a standing yes are kept for ever.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from clawd.clock import moment_of, rfc3339
from clawd.errors import NotFound
from clawd.ledger.db import Row, Transaction
from clawd.ledger.deliveries import Address

Verdict = Literal["approve", "deny"]
LIVE = ("open", "approved", "executing")
_LIVE = "('open', 'approved', 'executing')"
_VALUE = re.compile(r"(approve|deny):([1-9][0-9]{5}):([A-Za-z0-9_-]{8,40})")
_DID = {"approved": "approved", "executing": "approved", "done": "approved", "failed": "approved", "denied": "denied",
        "expired": "over: nobody decided in time", "void": "void: what it rests on has changed"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Press:
    """What the value of one of our buttons says."""

    verdict: Verdict
    number: int
    secret: str


def canonical(value: Any) -> str:
    """The one JSON text of a value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(kind: str, effect: Mapping[str, Any], rests_on: Any) -> str:
    """What is approved: the effect, and what it rests on."""
    text = canonical({"kind": kind, "effect": effect, "rests_on": rests_on})
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def add(
    tx: Transaction,
    kind: str,
    effect: Mapping[str, Any],
    hash: str,
    *,
    subject: str,
    person: str,
    at: Address,
    group: str | None,
    turn: int | None,
    now: datetime,
    expires: datetime,
) -> Row:
    """An open approval; its words and the message that shows them follow."""
    number = secrets.randbelow(900_000) + 100_000
    while tx.one("SELECT 1 FROM approval WHERE number = ?", number):
        number = secrets.randbelow(900_000) + 100_000
    id = tx.insert(
        "approval",
        number=number,
        kind=kind,
        subject=subject,
        effect=canonical(effect),
        hash=hash,
        words="",
        grp=group,
        turn=turn,
        person=person,
        channel=at.channel,
        account=at.account,
        chat=at.chat,
        secret=secrets.token_urlsafe(12),
        state="open",
        expires=rfc3339(expires),
        made=rfc3339(now),
    )
    return get(tx, id)


def shown(tx: Transaction, id: int, words: str, delivery: int | None) -> None:
    """What the person is shown, and by which message."""
    tx.execute("UPDATE approval SET words = ?, delivery = ? WHERE id = ?", words, delivery, id)


def get(tx: Transaction, id: int) -> Row:
    row = tx.one("SELECT * FROM approval WHERE id = ?", id)
    assert row is not None, f"approval {id} does not exist"
    return row


def numbered(tx: Transaction, number: int) -> Row:
    """Raises NotFound."""
    row = tx.one("SELECT * FROM approval WHERE number = ?", number)
    if row is None:
        raise NotFound(f"there is no approval {number}", hint="clawd approvals list")
    return row


def lately(tx: Transaction, kind: str, subject: str, since: datetime | None) -> Row | None:
    """The last approval of this kind about the same thing, if nobody is to be asked again: one that is not at its end,
    or to which the answer was no, or none, after `since`; without `since` whatever became of it."""
    row = tx.one("SELECT * FROM approval WHERE kind = ? AND subject = ? ORDER BY id DESC LIMIT 1", kind, subject)
    if row is None or row["state"] in LIVE or since is None:
        return row
    made = moment_of(row["made"])
    return row if row["state"] in ("denied", "expired") and made is not None and made > since else None


def open_count(tx: Transaction, kind: str, group: str | None = None) -> int:
    row = tx.one(f"SELECT COUNT(*) AS n FROM approval WHERE kind = ? AND grp IS ? AND state IN {_LIVE}", kind, group)
    assert row is not None
    return int(row["n"])


def live(tx: Transaction, kind: str, group: str) -> list[Row]:
    """Approvals of this kind in a group that are not at their end."""
    return tx.all(f"SELECT * FROM approval WHERE kind = ? AND grp = ? AND state IN {_LIVE} ORDER BY id", kind, group)


def said_yes(tx: Transaction, kind: str, subject: str) -> bool:
    """Whether the owner said yes to this, some time."""
    asked = "SELECT 1 FROM approval WHERE kind = ? AND subject = ? AND state = 'done' LIMIT 1"
    return tx.one(asked, kind, subject) is not None


def decide(tx: Transaction, row: Row, verdict: Verdict, how: str, person: str | None, now: datetime) -> str:
    """Somebody's word about an open approval, which comes too late after its time. Gives its new state. `person` is
    whose word it is; None for whoever reaches the host."""
    if (moment_of(row["expires"]) or now) <= now:
        return tx.move("approval", row["id"], "expire", decided=rfc3339(now))
    return tx.move("approval", row["id"], verdict, decided=f"{rfc3339(now)} {how}", decider=person)


def became(row: Row) -> str:
    """How one says that it is decided already."""
    return f"Approval {row['number']} is {_DID.get(row['state'], row['state'])} already."


def press_of(value: str) -> Press | None:
    """What a button's value says; None for one that is none of ours."""
    match = _VALUE.fullmatch(value)
    if match is None:
        return None
    verdict: Verdict = "approve" if match[1] == "approve" else "deny"
    return Press(verdict, int(match[2]), match[3])


def value(row: Row, verdict: Verdict) -> str:
    """The value of a button: at most 64 bytes."""
    return f"{verdict}:{row['number']}:{row['secret']}"


def is_pressed(tx: Transaction, row: Row, press: Press, message: Row) -> bool:
    """Whether a button's message comes from the very message that we sent, in the private chat that we sent it to."""
    sent = tx.one("SELECT platform_id FROM delivery WHERE id = ?", row["delivery"])
    return (
        hmac.compare_digest(str(row["secret"]), press.secret)
        and sent is not None
        and sent["platform_id"] is not None
        and sent["platform_id"] == message["target"]
        and all(message[name] == row[name] for name in ("channel", "account", "chat"))
        and bool(message["direct"])
    )


def listed(tx: Transaction) -> list[Row]:
    """What is open or under way, then what is over, the newest first."""
    return tx.all(f"SELECT * FROM approval ORDER BY state IN {_LIVE} DESC, id DESC LIMIT 1000")


def shown_as(row: Row) -> dict[str, Any]:
    """{id, kind, what, group, state, person, channel, chat, made, expires, decided, result}, JSON-ready."""
    told = ("kind", "state", "person", "channel", "chat", "made", "expires", "decided", "result")
    what = row["words"].partition("\n")[0].partition("may I ")[2].rstrip("?")
    return {"id": row["number"], **{name: row[name] for name in told}, "what": what, "group": row["grp"]}


def unfinished(tx: Transaction) -> list[int]:
    """What was said yes to and is not done yet, the oldest first."""
    rows = tx.all("SELECT id FROM approval WHERE state IN ('approved', 'executing') ORDER BY id")
    return [row["id"] for row in rows]


def decided(tx: Transaction, how: str) -> list[Row]:
    """What was said yes to in this way and is not begun yet."""
    return tx.all("SELECT * FROM approval WHERE state = 'approved' AND decided LIKE '% ' || ? ORDER BY id", how)


def over(tx: Transaction, now: datetime) -> tuple[list[Row], datetime | None]:
    """The open approvals whose time is over, and when the next one's is."""
    ends = [(moment_of(row["expires"]) or now, row) for row in tx.all("SELECT * FROM approval WHERE state = 'open'")]
    return [row for end, row in ends if end <= now], min((end for end, _ in ends if end > now), default=None)


def unsent(tx: Transaction) -> list[Row]:
    """Open approvals whose message is still to be sent."""
    return tx.all(
        "SELECT a.* FROM approval a JOIN delivery d ON d.id = a.delivery WHERE a.state = 'open' AND d.state = 'pending'"
    )
