"""What a watched tree was like when its group was last told of it (`seen`), and what is not like that any more
(`changed`): a rule's rows. Whoever looks at the tree is the only one that writes them.

A change is told by the transaction that makes its wake, and is seen from then on: nothing is lost between, and nothing
told twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from clawd.ledger.db import Row, Transaction

Event = Literal["added", "modified", "deleted"]
Rule = tuple[str, str]  # the group, and the sha256 of the rule's paths and globs
SLICE = 1000  # rows that are forgotten at a time
_OF = "grp = ? AND rule = ?"


class Stat(NamedTuple):
    """What differs whenever a file was changed, or is another one."""

    size: int
    mtime_ns: int
    ino: int


@dataclass(frozen=True, slots=True)
class Known:
    """A path of which there are rows. `seen` is what it was, with its `sha256`; `changed`: it differs from that, and is
    `now`, since `at`; None stands for no file. `own`: a turn of the group itself did it."""

    path: bytes
    seen: Stat | None
    sha256: bytes | None = None
    changed: bool = False
    now: Stat | None = None
    at: float = 0.0
    own: bool = False


@dataclass(frozen=True, slots=True)
class Changes:
    """What is to be told: how many of each event, and the first of them, (path, event, size)."""

    counts: Mapping[str, int]
    first: list[tuple[bytes, str, int | None]]


# ── rules ──


def rules(tx: Transaction) -> list[Rule]:
    """All of which there are rows."""
    return [(row["grp"], row["rule"]) for row in tx.all("SELECT grp, rule FROM watching")]


def begin(tx: Transaction, rule: Rule) -> Row:
    """The rule's row, made if it is new. What an earlier life saw change has stood still since."""
    if tx.one(f"SELECT 1 FROM watching WHERE {_OF}", *rule) is None:  # one that was removed and made again goes on
        tx.execute(
            "INSERT INTO watching (grp, rule, wakes) VALUES (?, ?, (SELECT COALESCE(MAX(id), 0) FROM wake))", *rule
        )
    tx.execute(f"UPDATE changed SET at = 0 WHERE {_OF}", *rule)
    row = tx.one(f"SELECT * FROM watching WHERE {_OF}", *rule)
    assert row is not None
    return row


def rests(tx: Transaction, rule: Rule, since: str) -> bool:
    """It has had its wakes of the hour. Whether nobody knew yet."""
    return tx.execute(f"UPDATE watching SET rests = ? WHERE {_OF} AND rests IS NULL", since, *rule).rowcount > 0


def keep_roots(tx: Transaction, rule: Rule, roots: Mapping[str, Any]) -> None:
    tx.execute(f"UPDATE watching SET roots = ? WHERE {_OF}", json.dumps(roots, sort_keys=True), *rule)


def forget(tx: Transaction, rule: Rule) -> bool:
    """A slice of what is known of a rule that is gone. Whether that was all."""
    for table in ("changed", "seen"):
        some = f"SELECT path FROM {table} WHERE {_OF} LIMIT {SLICE}"
        if tx.execute(f"DELETE FROM {table} WHERE {_OF} AND path IN ({some})", *rule, *rule).rowcount:
            return False
    tx.execute(f"DELETE FROM watching WHERE {_OF}", *rule)
    return True


# ── looking ──


def between(tx: Transaction, rule: Rule, low: bytes, high: bytes, most: int) -> list[Known]:
    """The first so many paths from `low` to before `high`, in their order."""
    rows = tx.all(
        "SELECT s.path, s.size AS was, s.mtime_ns AS was_mtime, s.ino AS was_ino, s.sha256,"
        " c.at, c.own, c.size, c.mtime_ns, c.ino FROM seen s LEFT JOIN changed c USING (grp, rule, path)"
        " WHERE s.grp = ? AND s.rule = ? AND s.path >= ? AND s.path < ? UNION ALL"
        " SELECT path, NULL, NULL, NULL, NULL, at, own, size, mtime_ns, ino FROM changed c"
        f" WHERE {_OF} AND path >= ? AND path < ? AND NOT EXISTS (SELECT 1 FROM seen s"
        "  WHERE s.grp = c.grp AND s.rule = c.rule AND s.path = c.path) ORDER BY 1 LIMIT ?",
        *(*rule, low, high, *rule, low, high, most),
    )
    return [_known(row) for row in rows]


def differs(tx: Transaction, rule: Rule, path: bytes, now: Stat | None, at: float, own: bool) -> None:
    """It is not what was seen, since now; what came of it must be looked at again."""
    values = (*rule, path, *(now or (None, None, None)), at, own)
    tx.execute("INSERT OR REPLACE INTO changed (grp, rule, path, size, mtime_ns, ino, at, own)"
               " VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *values)  # fmt: skip


def same(tx: Transaction, rule: Rule, path: bytes) -> None:
    """It is what was seen, again."""
    tx.execute(f"DELETE FROM changed WHERE {_OF} AND path = ?", *rule, path)


def keep(tx: Transaction, rule: Rule, path: bytes, now: Stat | None, sha256: bytes | None) -> None:
    """It is seen as it is, and nobody is told."""
    same(tx, rule, path)
    if now is None:
        tx.execute(f"DELETE FROM seen WHERE {_OF} AND path = ?", *rule, path)
    else:
        tx.execute("INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?, ?, ?, ?)", *rule, path, *now, sha256)


# ── telling ──


def unread(tx: Transaction, rule: Rule, after: bytes, most: int) -> list[Known]:
    """The next so many of what differs and was not read since."""
    rows = tx.all(
        "SELECT c.path, s.size AS was, s.mtime_ns AS was_mtime, s.ino AS was_ino, s.sha256,"
        " c.at, c.own, c.size, c.mtime_ns, c.ino FROM changed c LEFT JOIN seen s USING (grp, rule, path)"
        " WHERE c.grp = ? AND c.rule = ? AND c.event IS NULL AND c.path > ? ORDER BY c.path LIMIT ?",
        *(*rule, after, most),
    )
    return [_known(row) for row in rows]


def read(tx: Transaction, rule: Rule, path: bytes, event: Event, sha256: bytes | None) -> None:
    """It stood still, and this is what came of it: it waits to be told."""
    tx.execute(f"UPDATE changed SET event = ?, sha256 = ? WHERE {_OF} AND path = ?", event, sha256, *rule, path)


def waiting(tx: Transaction, rule: Rule, most: int) -> Changes:
    """What waits to be told, the first so many of it by name."""
    told = f"FROM changed WHERE {_OF} AND event IS NOT NULL"
    counts = {row["event"]: row["n"] for row in tx.all(f"SELECT event, COUNT(*) AS n {told} GROUP BY event", *rule)}
    first = tx.all(f"SELECT path, event, size {told} ORDER BY path LIMIT ?", *rule, most)
    return Changes(counts, [(row["path"], row["event"], row["size"]) for row in first])


def is_waiting(tx: Transaction, rule: Rule, low: bytes, high: bytes) -> bool:
    """Whether anything of this range waits to be told."""
    told = f"SELECT 1 FROM changed WHERE {_OF} AND event IS NOT NULL AND path >= ? AND path < ? LIMIT 1"
    return tx.one(told, *rule, low, high) is not None


def told(tx: Transaction, rule: Rule) -> int:
    """What waited is told, and seen from now on. Gives the number of this wake."""
    waits = f"FROM changed WHERE {_OF} AND event IS NOT NULL"
    tx.execute(f"DELETE FROM seen WHERE {_OF} AND path IN (SELECT path {waits} AND size IS NULL)", *rule, *rule)
    columns = "grp, rule, path, size, mtime_ns, ino, sha256"
    tx.execute(f"INSERT OR REPLACE INTO seen SELECT {columns} {waits} AND size IS NOT NULL", *rule)
    tx.execute(f"DELETE {waits}", *rule)
    row = tx.one(f"UPDATE watching SET wakes = wakes + 1, rests = NULL WHERE {_OF} RETURNING wakes", *rule)
    assert row is not None
    return int(row["wakes"])


def _known(row: Row) -> Known:
    seen = None if row["was"] is None else Stat(row["was"], row["was_mtime"], row["was_ino"])
    now = None if row["size"] is None else Stat(row["size"], row["mtime_ns"], row["ino"])
    changed = row["at"] is not None
    return Known(row["path"], seen, row["sha256"], changed, now, row["at"] or 0.0, bool(row["own"]))


def turns(tx: Transaction, group: str) -> list[tuple[str, str | None]]:
    """When the group's last turns began and ended; None: it is live."""
    rows = tx.all(
        "SELECT claimed_at, ended_at FROM turn WHERE id > (SELECT COALESCE(MAX(id), 0) FROM turn) - 500 AND grp = ?"
        " AND claimed_at IS NOT NULL AND (state = 'claimed' OR ended_at IS NOT NULL) AND session NOT LIKE 'job:%'",
        group,
    )
    return [(row["claimed_at"], row["ended_at"]) for row in rows]
