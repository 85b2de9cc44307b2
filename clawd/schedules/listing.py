"""What can be seen of a group's schedules: the files as they are now, with what the ledger knows of them, and what is
only proposed. JSON-ready, under the contract's names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from clawd.clock import rfc3339
from clawd.config.home import Home
from clawd.errors import ClawdError
from clawd.ledger import authored, firings
from clawd.ledger.db import Transaction
from clawd.ledger.firings import Schedule
from clawd.schedules import edits, store, times
from clawd.schedules.file import parse_schedule
from clawd.schedules.making import coming
from clawd.schedules.store import Read

Shown = dict[str, Any]


def of_group(tx: Transaction | None, home: Home, group: str, zone: str, now: datetime) -> list[Shown]:
    """Each: {id, group, expr, tz, next, last, enabled, proposed, error}. `tx` is None for a home without a ledger."""
    folder, found, last = home.group(group).schedules, [], _last(tx, group)
    known = {row.id: row for row in firings.of_group(tx, group)} if tx is not None else {}
    there = sorted(store.stamps(folder))
    for id in there:
        try:
            read = store.read(folder, id, zone, f"groups/{group}/schedules/{id}.toml")
        except FileNotFoundError:
            continue
        found.append(_shown(group, id, read, known.get(id), zone, now) | {"last": last.get(id)})
    # One whose file is there is being carried out.
    waiting = [effect for effect in proposed(tx, group) if effect["id"] not in there]
    return found + [
        _shown(group, effect["id"], _read(effect["text"], zone), None, zone, now) | {"proposed": True}
        for effect in waiting
    ]


def details(tx: Transaction | None, home: Home, group: str, id: str, zone: str, now: datetime) -> Shown | None:
    """The same of one, with its file, for whom it acts, and the next three times; None where there is neither file nor
    proposal."""
    rows = {row["id"]: row for row in of_group(tx, home, group, zone, now)}
    if (shown := rows.get(f"{group}/{id}")) is None:
        return None
    folder = home.group(group).schedules
    texts = [effect["text"] for effect in proposed(tx, group) if effect["id"] == id]
    text = (texts[0] if shown["proposed"] else edits.read(folder, id)) or ""
    acts = authored.voice(tx, "schedule", group, edits.digest(text))[0] if tx is not None else authored.OWNER
    row = firings.find(tx, (group, id)) if tx is not None and not shown["proposed"] else None
    shown |= {"times": [rfc3339(due) for due in _coming(_read(text, zone), row, now)] if shown["enabled"] else []}
    shown |= {"acts_for": acts.role, "trust": acts.taint, "text": text}
    return {**shown, "file": None if shown["proposed"] else str(folder / f"{id}.toml")}


def proposed(tx: Transaction | None, group: str | None = None) -> list[Shown]:
    """The effects of approvals under way that would add a schedule, of one group or of all."""
    if tx is None:
        return []
    rows = tx.all(
        "SELECT effect FROM approval WHERE kind = 'schedule' AND state IN ('open', 'approved', 'executing')"
        " AND (? IS NULL OR grp = ?) ORDER BY id",
        group,
        group,
    )
    effects = [json.loads(row["effect"]) for row in rows]
    return [effect for effect in effects if effect["action"] == "add"]


def local(due: datetime, zone: str) -> str:
    """A time as one says it: Mon 2026-11-30 09:00."""
    return f"{due.astimezone(ZoneInfo(zone)):%a %Y-%m-%d %H:%M}"


def locals_(dues: Iterable[datetime], zone: str) -> str:
    return ", ".join(local(due, zone) for due in dues)


def _last(tx: Transaction | None, group: str) -> Mapping[str, str]:
    if tx is None:
        return {}
    newest = "SELECT schedule, MAX(fired) AS fired FROM firing WHERE grp = ? AND fired IS NOT NULL GROUP BY schedule"
    return {row["schedule"]: row["fired"] for row in tx.all(newest, group)}


def _read(text: str, zone: str) -> Read:
    try:
        return Read(edits.digest(text), store.facts_of(parse_schedule(text, "the schedule"), zone), None)
    except ClawdError as error:
        return Read("", None, str(error))


def _shown(group: str, id: str, read: Read, row: Schedule | None, zone: str, now: datetime) -> Shown:
    """A file that is not understood is shown with what still holds, if anything does."""
    facts = read.facts or (row.facts if row is not None else None) or {}
    file, paused = facts.get("file", {}), row.paused if row is not None else None
    enabled = bool(facts) and file.get("enabled", True) and not paused
    due = next(iter(_coming(Read(read.sha256, facts, None), row, now)), None) if enabled else None
    return {
        "id": f"{group}/{id}",
        "group": group,
        "expr": facts.get("said", ""),
        "tz": file.get("tz") or facts.get("zone", zone),
        "next": rfc3339(due) if due is not None else None,
        "last": None,
        "enabled": enabled,
        "proposed": False,
        "error": read.error or paused,
    }


def _coming(read: Read, row: Schedule | None, now: datetime) -> list[datetime]:
    """What is due next is later than now, and than all that was due."""
    if not read.facts:
        return []
    since = row.since if row is not None and row.facts == read.facts else now
    newest = max(now, row.last_due or now) if row is not None else now
    return coming(times.rule_of(store.file_of(read.facts), read.facts["zone"]), newest.astimezone(UTC), since)
