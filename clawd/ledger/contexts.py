"""The context life cycle in the ledger: one row a session, what it holds on to, its compactions, and the lines of its
journal until they are in their files. `clawd/ledger/migrations/0009.sql` says what each column is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clawd.errors import UsageError
from clawd.ledger.db import Row, Transaction

OPEN = ("running", "phase_boundary", "awaiting_confirm", "stopped")
ENDED = ("completed", "handoff", "failed")
MOST_NOTED = 512 << 10  # characters of what the agent of a turn notes in it
NOT_DONE = "state IN ('begun', 'asked', 'ready')"  # of a compaction, in the words of its index
GROWN = 1.1  # what came to nothing, or was said no to, is tried again when the window grew by so much


def of(tx: Transaction, session: str, now: str) -> Row:
    """The row of a session, made when it is new. `session` is a segment's exact id."""
    tx.execute(
        "INSERT INTO context (session, grp, status, updated) SELECT id, grp, 'running', ? FROM session WHERE id = ?"
        " ON CONFLICT DO NOTHING",
        now,
        session,
    )
    row = find(tx, session)
    assert row is not None
    return row


def find(tx: Transaction, session: str) -> Row | None:
    return tx.one("SELECT * FROM context WHERE session = ?", session)


def heir(tx: Transaction, session: str) -> str:
    """The session that goes on where this one was handed over; itself where it was not. A file or a ledger that was
    brought here may lead in a circle: that ends with the last one before it closes."""
    seen = {session}
    while (
        row := tx.one("SELECT successor FROM context WHERE session = ? AND successor IS NOT NULL", session)
    ) is not None and row["successor"] not in seen:
        session = row["successor"]
        seen.add(session)
    return session


def is_refused(row: Row) -> bool:
    """Whether it could not be handed over, and its window is much as it was then."""
    return row["refused"] is not None and row["window"] < GROWN * json.loads(row["refused"])["window"]


def update(tx: Transaction, session: str, now: str, **values: Any) -> None:
    """Set columns; its files are to be written again."""
    sets = ", ".join(f"{name} = ?" for name in values)
    tx.execute(
        f"UPDATE context SET {sets + ', ' if sets else ''}dirty = dirty + 1, updated = ? WHERE session = ?",
        *values.values(),
        now,
        session,
    )


def pin(
    tx: Transaction,
    session: str,
    cls: str,
    text: str,
    *,
    turn: int | None,
    at: str,
    origin: str,
    trust: float,
    inherited: bool = False,
) -> bool:
    """Hold on to something. The same words again change nothing, but for its place: the last goal holds."""
    known_by = known(text)
    if cls in ("goal", "next_safe_action"):
        tx.execute("DELETE FROM pinned WHERE session = ? AND class = ? AND known_by = ?", session, cls, known_by)
    return bool(
        tx.one(
            "INSERT INTO pinned (session, class, text, known_by, turn, at, origin, trust, inherited)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING id",
            *(session, cls, text, known_by, turn, at, origin, trust, int(inherited)),
        )
    )


def known(text: str) -> str:
    """What a pinned text is known by."""
    return hashlib.sha256(" ".join(text.casefold().split()).encode("utf-8", "surrogatepass")).hexdigest()


def unpin(tx: Transaction, ids: Sequence[int]) -> None:
    for id in ids:
        tx.execute("DELETE FROM pinned WHERE id = ?", id)


def pinned(tx: Transaction, session: str) -> list[Row]:
    return tx.all("SELECT * FROM pinned WHERE session = ? ORDER BY id", session)


_COUNTED = {"decisions": "seq", "metrics": "measured"}


def note(tx: Transaction, session: str, kind: str, line: Mapping[str, Any]) -> int:
    """A line of decisions.jsonl or metrics.jsonl; it is given the next `seq` of its kind, which this gives."""
    counted = _COUNTED[kind]
    row = tx.one(
        f"UPDATE context SET {counted} = {counted} + 1, dirty = dirty + 1 WHERE session = ? RETURNING {counted} AS seq",
        session,
    )
    assert row is not None
    text = json.dumps({"seq": row["seq"], **{key: value for key, value in line.items() if key != "seq"}},
                      ensure_ascii=False)  # fmt: skip
    tx.insert("journal", session=session, kind=kind, line=text)
    return int(row["seq"])


def lines(tx: Transaction, session: str) -> list[Row]:
    """Those that are not in their files yet, in order."""
    return tx.all("SELECT * FROM journal WHERE session = ? ORDER BY id", session)


def written(tx: Transaction, session: str, upto: int, dirty: int) -> None:
    """The lines up to this key are in their files, and the state as it was when it had changed so often."""
    tx.execute("DELETE FROM journal WHERE session = ? AND id <= ?", session, upto)
    tx.execute("UPDATE context SET dirty = 0 WHERE session = ? AND dirty = ?", session, dirty)


def add_noted(tx: Transaction, turn: int, notes: Mapping[str, Any]) -> None:
    """What an agent noted in its turn. Raises UsageError for what would be too much: all of it is gone through when
    the turn is settled, and a session holds on to a small part of so much."""
    text = json.dumps(dict(notes), ensure_ascii=False)
    kept = tx.one("SELECT COALESCE(SUM(LENGTH(notes)), 0) AS size FROM noted WHERE turn = ?", turn)
    assert kept is not None
    if kept["size"] + len(text) > MOST_NOTED:
        raise UsageError(f"a turn may note {MOST_NOTED >> 10} KiB")
    tx.insert("noted", turn=turn, notes=text)


def take_noted(tx: Transaction, turn: int) -> list[Any]:
    """The same in order, which is not kept any longer."""
    rows = tx.all("SELECT notes FROM noted WHERE turn = ? ORDER BY id", turn)
    tx.execute("DELETE FROM noted WHERE turn = ?", turn)
    return [json.loads(row["notes"]) for row in rows]


def last_call(tx: Transaction, turn: Row) -> Row | None:
    """The newest model call of a turn that was settled by us, of the model that answered where there is one."""
    return tx.one(
        "SELECT * FROM reservation WHERE turn = ? AND service <> '' AND state = 'settled'"
        " ORDER BY model = ? DESC, id DESC LIMIT 1",
        turn["id"],
        turn["model"] or "",
    )


def calls(tx: Transaction, turn: int) -> list[Row]:
    """What a turn's model calls used, those that an engine told of itself among them."""
    return tx.all("SELECT * FROM reservation WHERE turn = ? AND state IN ('settled', 'assumed') ORDER BY id", turn)


def was_compacted(tx: Transaction, session: str, since: str | None) -> bool:
    """Whether a compaction of the session came to stand after this moment."""
    after = "SELECT 1 FROM compaction WHERE session = ? AND state = 'written' AND ended > ? LIMIT 1"
    return tx.one(after, session, since) is not None


def is_live(tx: Transaction, session: str) -> bool:
    """Whether a turn of the session is at work, or has ended and is not settled yet."""
    live = "recorded_at IS NULL AND state IN ('claimed', 'answered', 'stopped', 'failed')"
    return tx.one(f"SELECT 1 FROM turn WHERE session = ? AND {live} LIMIT 1", session) is not None


_OF_IT = "SELECT 1 FROM session WHERE id = ? AND grp = ? AND base = ? AND segment"
_LINKED = {"parent": f"{_OF_IT} < ?", "successor": f"{_OF_IT} > ?"}


def take_back(
    tx: Transaction, session: str, columns: Mapping[str, Any], pins: Sequence[Mapping[str, Any]], now: str
) -> bool:
    """A session that the ledger lost, as its state.json has it; gives whether it had no row. Of the sessions that it
    names only segments of its own conversation count, an earlier one as its parent and a later one as successor."""
    place = tx.one("SELECT * FROM session WHERE id = ?", session)
    if find(tx, session) is not None or place is None:
        return False
    of(tx, session, now)
    known = {
        name: value
        for name, value in columns.items()
        if name not in _LINKED or tx.one(_LINKED[name], value, place["grp"], place["base"], place["segment"])
    }
    later = "SELECT 1 FROM session WHERE grp = ? AND base = ? AND segment > ?"
    if known.get("status") == "handoff" and not tx.one(later, place["grp"], place["base"], place["segment"]):
        known |= {"status": "running", "stopped_reason": None, "sealed_at": None}  # nothing goes on for it: it does
    known["taint"] = min(known.get("taint", 1.0), place["taint"])
    update(tx, session, now, **{name: value for name, value in known.items() if name != "updated"})
    for row in pins:
        pin(
            tx, session, row["class"], row["text"], turn=row["turn"], at=row["at"] or now, origin=row["origin"],
            trust=row["trust"], inherited=bool(row["inherited"]),
        )  # fmt: skip
    return True


def trust_again(tx: Transaction, group: str, now: str) -> None:
    """The owner vouches for all that is in a group's sessions."""
    tx.execute("UPDATE context SET taint = 1.0, dirty = dirty + 1, updated = ? WHERE grp = ? AND taint < 1", now, group)


def written_compactions(tx: Transaction, session: str) -> list[Row]:
    """Those that stand in the session's file, oldest first."""
    return tx.all("SELECT * FROM compaction WHERE session = ? AND state = 'written' ORDER BY id", session)


def last_engine(tx: Transaction, session: str) -> str | None:
    """What answered last in it."""
    engines = "SELECT engine FROM turn WHERE session = ? AND claimed_at IS NOT NULL AND engine IS NOT NULL"
    row = tx.one(f"{engines} ORDER BY id DESC LIMIT 1", session)
    return row["engine"] if row is not None else None


def last_compaction(tx: Transaction, session: str) -> Row | None:
    """The newest, whatever became of it."""
    return tx.one("SELECT * FROM compaction WHERE session = ? ORDER BY id DESC LIMIT 1", session)


def open_compaction(tx: Transaction, session: str) -> Row | None:
    """The one that is not done yet; there is one at most."""
    return tx.one(f"SELECT * FROM compaction WHERE session = ? AND {NOT_DONE} ORDER BY id LIMIT 1", session)


def drop_compactions(tx: Transaction, session: str, why: str, now: str) -> None:
    """What is open of them comes to nothing."""
    tx.execute(
        f"UPDATE compaction SET state = 'failed', error = ?, ended = ? WHERE session = ? AND {NOT_DONE}",
        *(why, now, session),
    )


def unfinished(tx: Transaction) -> list[str]:
    """Sessions of which something is to be done: files to write, compactions that are open, a successor to begin."""
    rows = tx.all(
        "SELECT session FROM context WHERE dirty > 0 OR seed IS NOT NULL"
        " OR (manifest IS NOT NULL AND manifest_file IS NULL)"
        f" UNION SELECT session FROM compaction WHERE {NOT_DONE}"
        " UNION SELECT session FROM journal"
    )
    return [row["session"] for row in rows]


@dataclass(frozen=True, slots=True)
class Compacted:
    """A compaction that the ledger knows. Only one that is `written` stands for anything; `starts` and `kept` are where
    its block and what it keeps were in the file."""

    id: int
    written: bool
    upto: int | None
    masked: int | None
    trust: float
    starts: int | None = None
    kept: int | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """What a session's file is shown by: its compactions, the newest first, and whether it began with a manifest.
    `profile`, `soft` and `hard` are its own, None where the config says them."""

    compactions: tuple[Compacted, ...] = ()
    seeded: bool = False
    profile: str | None = None
    soft: int | None = None
    hard: int | None = None


AS_IT_IS = Standing()
"""Of a session that nothing stands for: its file is shown as it is."""


def standing(tx: Transaction, session: str) -> Standing:
    row = find(tx, session)
    if row is None:
        return AS_IT_IS
    known = tx.all(
        "SELECT id, state = 'written' AS written, upto, masked, trust, starts, kept FROM compaction"
        " WHERE session = ? AND state <> 'failed' ORDER BY id DESC",
        session,
    )
    compacted = tuple(Compacted(**{**dict(each), "written": bool(each["written"])}) for each in known)
    return Standing(compacted, row["parent"] is not None, row["profile"], row["soft"], row["hard"])
