"""Schedules as they are in force, and what became of each time that they were due.

A firing is an instant in UTC; (group, schedule, generation, instant) is unique, so none is fired twice. Its row, its
wake and the schedule's new last due instant are one transaction of whoever calls these. Instants stand here as text
that sorts as they do (`utc`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from clawd.errors import NotFound
from clawd.ledger.db import Row, Transaction

HEARTBEAT = "[heartbeat]"  # the id of a group's heartbeat: no file has such a name
STRIKES = 5  # failed runs in a row after which a schedule pauses itself
SLICE = 200  # schedules of one transaction

Key = tuple[str, str]  # group and id


def utc(moment: datetime) -> str:
    """An instant as it stands in the rows."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


@dataclass(frozen=True, slots=True)
class Schedule:
    """One that is in force. `facts` is what its file says (None: it never said anything that could be understood) with
    the `zone` that it was read for and `said`, its rule for people. `open`: when the run that is not over was due."""

    group: str
    id: str
    generation: int
    sha256: str
    facts: Mapping[str, Any] | None
    error: str | None
    since: datetime
    next: datetime | None
    last_due: datetime | None
    paused: str | None
    open: datetime | None

    @property
    def key(self) -> Key:
        return self.group, self.id

    @property
    def name(self) -> str:
        return f"{self.group}/{self.id}"


_OPEN = (
    "(SELECT MAX(f.due) FROM firing f WHERE (f.grp, f.schedule) = (s.grp, s.id)"
    " AND f.state IN ('due', 'fired')) AS open"
)


def _schedule(row: Row) -> Schedule:
    def maybe(name: str) -> datetime | None:
        return instant(row[name]) if row[name] else None

    return Schedule(
        row["grp"], row["id"], row["generation"], row["sha256"], json.loads(row["facts"]) if row["facts"] else None,
        row["error"], instant(row["since"]), maybe("next"), maybe("last_due"), row["paused"], maybe("open"),
    )  # fmt: skip


def find(tx: Transaction, key: Key) -> Schedule | None:
    row = tx.one(f"SELECT s.*, {_OPEN} FROM schedule s WHERE grp = ? AND id = ? AND gone IS NULL", *key)
    return _schedule(row) if row else None


def get(tx: Transaction, key: Key) -> Schedule:
    """Raises NotFound."""
    if (found := find(tx, key)) is None:
        raise NotFound(f"there is no schedule {'/'.join(key)}", hint="clawd schedule list")
    return found


def of_group(tx: Transaction, group: str) -> list[Schedule]:
    rows = tx.all(f"SELECT s.*, {_OPEN} FROM schedule s WHERE grp = ? AND gone IS NULL", group)
    return [_schedule(row) for row in rows]


def several(tx: Transaction, keys: Iterable[Key]) -> list[Schedule]:
    """Those of these that there are."""
    return [found for key in keys if (found := find(tx, key)) is not None]


def known(tx: Transaction, group: str | None = None) -> list[Row]:
    """What must be known of all, or of a group's, to see what changed and when the next is due."""
    where, values = (" AND grp = ?", (group,)) if group is not None else ("", ())
    return tx.all(
        "SELECT grp, id, sha256, stamp, facts, error, since, next, last_due, json_extract(facts, '$.zone') AS zone,"
        f" json_extract(facts, '$.file.tz') AS own FROM schedule WHERE gone IS NULL{where}",
        *values,
    )


# ── what the files say ──


@dataclass(frozen=True, slots=True)
class Taken:
    """A file as it was read. `since` is another one where what it says of time is another than before; `before` is the
    name that the same file had. With an `error` all of it but the stamp stays what it was."""

    id: str
    stamp: str
    sha256: str
    facts: Mapping[str, Any] | None
    error: str | None
    since: str | None
    before: str | None = None


def take(tx: Transaction, group: str, taken: Taken, now: str) -> None:
    """What was read is in force from now on. A file that is made again is another generation; one that only has
    another name goes on as it was."""
    known = "SELECT * FROM schedule WHERE grp = ? AND id = ? ORDER BY generation DESC LIMIT 1"
    row = tx.one(known, group, taken.id)
    if row is None or row["gone"] is not None:
        before = tx.one(known, group, taken.before) if taken.before is not None else None
        # What was due before a salvage may have been done.
        salvaged = tx.one("SELECT MAX(since) AS since FROM schedule WHERE grp = ''")
        facts = json.dumps(taken.facts) if taken.facts is not None else None
        kept = ("since", "last_due", "failures", "paused", "told")
        more = (
            {name: before[name] for name in kept}
            if before is not None
            else {"since": taken.since or now, "last_due": salvaged["since"] if salvaged else None}
        )
        tx.insert(
            "schedule", grp=group, id=taken.id, generation=row["generation"] + 1 if row else 1, sha256=taken.sha256,
            stamp=taken.stamp, facts=facts, error=taken.error, **more,
        )  # fmt: skip
        return
    sets: dict[str, Any] = {"stamp": taken.stamp, "error": taken.error}
    if taken.error is None:
        sets |= {"sha256": taken.sha256, "facts": json.dumps(taken.facts), "next": None}
        sets |= {"since": taken.since} if taken.since is not None else {}
    _set(tx, (group, taken.id), row["generation"], **sets)


def mark_salvaged(tx: Transaction, at: str) -> None:
    """A damaged ledger lost what was due until then, and so may have been done: of no schedule that is new to the
    ledger it is due again. No group has the name of this row."""
    tx.execute(
        "INSERT INTO schedule (grp, id, generation, sha256, stamp, since, gone) VALUES ('', 'salvage', 1, '', '', ?, ?)"
        " ON CONFLICT DO UPDATE SET since = excluded.since",
        at,
        at,
    )


def stamp(tx: Transaction, key: Key, stamp: str) -> None:
    """The file was touched, and says what it said."""
    tx.execute("UPDATE schedule SET stamp = ? WHERE grp = ? AND id = ? AND gone IS NULL", stamp, *key)


def vanish(tx: Transaction, key: Key, now: str) -> None:
    """Its file is not there any more. A run that has begun goes on."""
    tx.execute("UPDATE schedule SET gone = ?, next = NULL WHERE grp = ? AND id = ? AND gone IS NULL", now, *key)


def _set(tx: Transaction, key: Key, generation: int, **columns: Any) -> None:
    sets = ", ".join(f"{name} = ?" for name in columns)
    where = "grp = ? AND id = ? AND generation = ?"
    tx.execute(f"UPDATE schedule SET {sets} WHERE {where}", *columns.values(), *key, generation)


# ── when they are due ──


def is_still(tx: Transaction, seen: Schedule) -> bool:
    """Whether a schedule is as it was when it was decided upon."""
    return find(tx, seen.key) == seen


def advance(
    tx: Transaction,
    seen: Schedule,
    *,
    since: datetime,
    last_due: datetime | None,
    next: datetime | None,
    error: str | None = None,
) -> None:
    """How it stands from now on."""
    last, following = (utc(each) if each is not None else None for each in (last_due, next))
    _set(tx, seen.key, seen.generation, since=utc(since), last_due=last, next=following, error=error)


def is_busy(tx: Transaction, group: str) -> bool:
    """Whether a turn of the group waits or is at work."""
    sql = "SELECT 1 FROM turn WHERE grp = ? AND recorded_at IS NULL AND state IN ('queued', 'held', 'claimed')"
    return tx.one(sql, group) is not None


def is_due(tx: Transaction, firing: int) -> bool:
    """Whether its check is not over."""
    return tx.one("SELECT 1 FROM firing WHERE id = ? AND state = 'due'", firing) is not None


def begin(tx: Transaction, of: Schedule, due: datetime) -> int | None:
    """It is due. None where that was known already."""
    if tx.one("SELECT 1 FROM firing WHERE (grp, schedule, generation, due) = (?, ?, ?, ?)",
              *of.key, of.generation, utc(due)):  # fmt: skip
        return None
    return tx.insert(
        "firing", grp=of.group, schedule=of.id, generation=of.generation, due=utc(due), sha256=of.sha256, state="due"
    )


def pass_over(tx: Transaction, of: Schedule, due: datetime, event: str, reason: str) -> None:
    """`skip` or `miss`: nothing is done then."""
    if (firing := begin(tx, of, due)) is not None:
        tx.move("firing", firing, event, reason=reason)


def fire(tx: Transaction, firing: int, wake: int, turn: int, now: datetime, late: str | None) -> None:
    """Its wake is made in this transaction. `late` says that and how it is."""
    tx.move("firing", firing, "fire", wake=wake, turn=turn, fired=utc(now), reason=late)


def skip(tx: Transaction, firing: int, reason: str) -> None:
    """Its check says that there is nothing to do; that went well."""
    tx.move("firing", firing, "skip", reason=reason)
    _went_well(tx, _of(tx, firing))


def fail(tx: Transaction, firing: int, reason: str) -> tuple[int, str]:
    """It could not be fired, or its turn failed. Gives how many failed in a row, and a sentence where the schedule
    pauses because of that."""
    tx.move("firing", firing, "fail", reason=reason)
    return _failed(tx, _of(tx, firing), reason)


def close(tx: Transaction, turn: int, event: str, reason: str | None) -> str:
    """A turn ends by `answer`, `fail` or `stop`, and with it the firings of its wakes. Gives what is to be said beside
    that."""
    said = ""
    for row in tx.all(
        "SELECT f.* FROM turn_wake tw JOIN firing f ON f.wake = tw.wake WHERE tw.turn = ? AND f.state = 'fired'", turn
    ):
        tx.execute("UPDATE firing SET turn = ? WHERE id = ?", turn, row["id"])
        if event == "answer":
            tx.move("firing", row["id"], "run_late" if row["reason"] else "run")
            _went_well(tx, row)
        elif event == "fail":
            said = fail(tx, row["id"], reason or "its turn failed")[1] or said
        else:
            tx.move("firing", row["id"], "skip", reason=reason or "stopped")
    return said


def _of(tx: Transaction, firing: int) -> Row:
    row = tx.one("SELECT * FROM firing WHERE id = ?", firing)
    assert row is not None
    return row


def _went_well(tx: Transaction, firing: Row) -> None:
    tx.execute(
        "UPDATE schedule SET failures = 0 WHERE (grp, id, generation) = (?, ?, ?) AND failures > 0",
        firing["grp"],
        firing["schedule"],
        firing["generation"],
    )


def _failed(tx: Transaction, firing: Row, reason: str) -> tuple[int, str]:
    row = tx.one(
        "UPDATE schedule SET failures = failures + 1 WHERE (grp, id, generation) = (?, ?, ?)"
        " RETURNING failures, paused, gone",
        firing["grp"],
        firing["schedule"],
        firing["generation"],
    )
    if row is None or row["gone"] or row["paused"] or row["failures"] < STRIKES:
        return (row["failures"] if row else 1), ""
    key = (firing["grp"], firing["schedule"])
    _set(tx, key, firing["generation"], paused=f"it failed {row['failures']} times in a row: {reason}", next=None)
    return row["failures"], paused_sentence(key, row["failures"])


def paused_sentence(key: Key, times: int) -> str:
    name = "/".join(key)
    return f"The schedule {name} failed {times} times in a row and is paused. To go on: clawd schedule resume {name}"


def untold(tx: Transaction) -> list[tuple[Key, int]]:
    """Schedules that paused themselves and whose owner does not know, with how often they failed; from now on they
    do."""
    rows = tx.all(
        "UPDATE schedule SET told = 1 WHERE paused IS NOT NULL AND told = 0 AND gone IS NULL"
        " RETURNING grp, id, failures"
    )
    return [((row["grp"], row["id"]), row["failures"]) for row in rows]


def resume(tx: Transaction, key: Key, now: datetime) -> bool:
    """One that paused itself goes on from now; gives whether it had. Raises NotFound."""
    found = get(tx, key)
    if found.paused is None:
        return False
    _set(tx, key, found.generation, paused=None, failures=0, told=0, since=utc(now), next=None)
    return True


def waiting(tx: Transaction) -> list[tuple[int, Schedule, datetime]]:
    """Firings whose check is not over, with what their schedule says: work for the start."""
    rows = tx.all(
        f"SELECT s.*, {_OPEN}, f.id AS firing, f.due FROM firing f JOIN schedule s"
        " ON (s.grp, s.id, s.generation) = (f.grp, f.schedule, f.generation) WHERE f.state = 'due' ORDER BY f.id"
    )
    return [(row["firing"], _schedule(row), instant(row["due"])) for row in rows]


# ── what people are shown ──


def listed(tx: Transaction, group: str | None = None) -> list[dict[str, Any]]:
    """{id, group, expr, tz, next, last, enabled, proposed, error} of each, by group and id. One that paused itself is
    not enabled, and its error says why."""
    where, values = (" AND grp = ?", (group,)) if group is not None else ("", ())
    rows = tx.all(f"SELECT * FROM schedule WHERE gone IS NULL AND id <> '{HEARTBEAT}'{where} ORDER BY grp, id", *values)
    found = []
    for row in rows:
        facts = json.loads(row["facts"]) if row["facts"] else {}
        file = facts.get("file", {})
        last = tx.one("SELECT MAX(fired) AS at FROM firing WHERE grp = ? AND schedule = ?", row["grp"], row["id"])
        found.append(
            {
                "id": f"{row['grp']}/{row['id']}",
                "group": row["grp"],
                "expr": facts.get("said"),
                "tz": file.get("tz") or facts.get("zone"),
                "next": row["next"],
                "last": last["at"] if last else None,
                "enabled": bool(facts) and file.get("enabled", True) and row["paused"] is None,
                "proposed": False,
                "error": row["error"] or row["paused"],
            }
        )
    return found


def history(tx: Transaction, group: str | None = None, id: str | None = None, limit: int = 100) -> list[dict[str, Any]]:
    """{id, due, fired, outcome, reason, turn} of each firing, the newest first. What is not over has the outcome `due`
    (its check runs) or `fired` (its turn waits or is at work)."""
    given = {"grp": group, "schedule": id}
    where = {name: value for name, value in given.items() if value is not None}
    rows = tx.all(
        f"SELECT * FROM firing WHERE {' AND '.join([f'{name} = ?' for name in where]) or '1'} ORDER BY id DESC LIMIT ?",
        *where.values(),
        limit,
    )
    return [
        {
            "id": f"{row['grp']}/{row['schedule']}",
            "due": row["due"],
            "fired": row["fired"],
            "outcome": row["state"],
            "reason": row["reason"],
            "turn": row["turn"],
        }
        for row in rows
    ]
