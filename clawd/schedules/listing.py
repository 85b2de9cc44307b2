"""What can be seen of a group's schedules: the files as they are now, with what the ledger knows of them, and what is
only proposed. JSON-ready, under the contract's names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from clawd.clock import moment_of, rfc3339
from clawd.config.home import Home
from clawd.errors import ClawdError
from clawd.ledger import authored
from clawd.ledger.db import Row, Transaction
from clawd.schedules import edits, times
from clawd.schedules.file import parse_schedule
from clawd.schedules.making import coming

Shown = dict[str, Any]


def of_group(tx: Transaction | None, home: Home, group: str, zone: str, now: datetime) -> list[Shown]:
    """Each: {id, group, expr, tz, next, last, enabled, proposed, error}. `tx` is None for a home without a ledger."""
    directory = home.group(group).schedules
    known = {row["id"]: row for row in _rows(tx, group)}
    last = _last(tx, group)
    ids = edits.ids(directory)
    found = [_of_file(directory, group, id, known.get(id), last.get(id), zone, now) for id in ids]
    for effect in proposed(tx, group):
        if effect["id"] not in ids:  # else it is being carried out
            shown = _said(group, effect["id"], effect["text"], None, zone, now)
            found.append({**shown, "last": None, "proposed": True})
    return found


def details(tx: Transaction | None, home: Home, group: str, id: str, zone: str, now: datetime) -> Shown | None:
    """The same of one, with all that its file says, for whom it acts, and the next three times; None where there is
    neither file nor proposal."""
    directory = home.group(group).schedules
    text, is_proposed = edits.read(directory, id), False
    if text is None:
        texts = [effect["text"] for effect in proposed(tx, group) if effect["id"] == id]
        text, is_proposed = next(iter(texts), None), True
    if text is None:
        return None
    row = next((row for row in _rows(tx, group) if row["id"] == id and not is_proposed), None)
    shown = _said(group, id, text, row, zone, now)
    shown |= {"last": _last(tx, group).get(id), "proposed": is_proposed}
    acts = authored.acts(tx, "schedule", group, edits.digest(text)) if tx is not None else authored.OWNER
    shown |= {"file": None if is_proposed else str(directory / f"{id}.toml"), "acts_for": acts.role}
    return {**shown, "trust": acts.taint, "times": _times(id, text, row, zone, now), "text": text}


def proposed(tx: Transaction | None, group: str | None = None) -> list[Shown]:
    """The effects of open approvals that would add a schedule, of one group or of all."""
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
    from zoneinfo import ZoneInfo

    return f"{due.astimezone(ZoneInfo(zone)):%a %Y-%m-%d %H:%M}"


def locals_(dues: Iterable[datetime], zone: str) -> str:
    return ", ".join(local(due, zone) for due in dues)


def _rows(tx: Transaction | None, group: str) -> Sequence[Row]:
    return tx.all("SELECT * FROM schedule WHERE grp = ? AND gone IS NULL", group) if tx is not None else ()


def _last(tx: Transaction | None, group: str) -> dict[str, str]:
    if tx is None:
        return {}
    newest = "SELECT schedule, fired, MAX(id) FROM firing WHERE grp = ? AND fired IS NOT NULL GROUP BY schedule"
    rows = tx.all(newest, group)
    return {row["schedule"]: row["fired"] for row in rows}


def _of_file(
    directory: Path, group: str, id: str, row: Row | None, last: str | None, zone: str, now: datetime
) -> Shown:
    try:
        text = edits.read(directory, id)
    except (ClawdError, OSError) as error:
        shown = _unread(group, id, zone, error)
    else:
        shown = _said(group, id, text or "", row, zone, now)
    return {**shown, "last": last, "proposed": False}


def _unread(group: str, id: str, zone: str, error: Exception) -> Shown:
    what = {"id": f"{group}/{id}", "group": group, "expr": "", "tz": zone, "next": None, "enabled": False}
    return {**what, "error": str(error)}


def _said(group: str, id: str, text: str, row: Row | None, zone: str, now: datetime) -> Shown:
    try:
        file = parse_schedule(text, f"schedules/{id}.toml")
        rule = times.rule_of(file, zone)
        expr = times.said(rule)
        due = next(iter(coming(rule, _newest(row, now), _since(row, text, now))), None)
    except ClawdError as error:
        return _unread(group, id, zone, error)
    paused = row["paused"] if row is not None else None
    enabled = file.enabled and not paused
    shown = {"id": f"{group}/{id}", "group": group, "expr": expr, "tz": file.tz or zone, "enabled": enabled}
    return {**shown, "next": rfc3339(due) if due is not None and enabled else None, "error": paused}


def _times(id: str, text: str, row: Row | None, zone: str, now: datetime) -> list[str]:
    try:
        file = parse_schedule(text, f"schedules/{id}.toml")
        dues = coming(times.rule_of(file, zone), _newest(row, now), _since(row, text, now))
        return [rfc3339(due) for due in dues]
    except ClawdError:
        return []


def _newest(row: Row | None, now: datetime) -> datetime:
    """What is due next is later than now, and than all that was due."""
    last = moment_of(row["last_due"]) if row is not None and row["last_due"] else None
    return max(now, last or now)


def _since(row: Row | None, text: str, now: datetime) -> datetime:
    """Since when the file is in force as it is."""
    if row is None or row["sha256"] != edits.digest(text):
        return now
    return moment_of(row["since"]) or now
