"""Saving what can be saved of a damaged ledger: every row that is still readable goes into a new one.

Groups and sessions that it lost are in the folders. Turns that their session files hold are finished, whatever the
ledger last knew. What is in doubt is never sent as if it were new: sends that had begun or were waiting become
`unknown`, and the outbox decides each by its channel.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from clawd.channel import NOTICE
from clawd.errors import UsageError
from clawd.ledger import contexts, deliveries, firings, groups, held, inbound
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.trust import TRUST, Origin, Role

# In the order of their references.
TABLES = (
    "grp",
    "session",
    "injected",
    "turn",
    "context",
    "pinned",
    "compaction",
    "play",
    "noted",
    "journal",
    "inbound",
    "wake",
    "turn_wake",
    "step",
    "effect",
    "delivery",
    "run",
    "cursor",
    "chat",
    "alias",
    "question",
    "approval",
    "reservation",
    "budget_raise",
    "authored",
    "schedule",
    "firing",
    "hook",
    "recalled",
    "remembering",
)
MOST_MISSES = 20_000  # keys without a row, one after another, behind which nothing more is expected
GAP = 1_000  # keys that are left out behind a damaged table: the lost rows' are never given again
_HEADER_BYTES = 100
_INTERIOR = 5


@dataclass(frozen=True, slots=True)
class FoundSession:
    """A session as its file shows it. `finished`: the turns whose blocks are all there; `trust`: the lowest of what is
    in it from outside; `base`: the conversation that it goes on with, where it is a later segment of one. `context` and
    `pins` are what its state.json has of it (columns, rows), None where there is none that can be read."""

    id: str
    group: str
    stem: str
    finished: frozenset[int]
    trust: float = 1.0
    base: str = ""
    context: Mapping[str, Any] | None = None
    pins: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class FoundGroup:
    """A group as its folder shows it. `number` is told by the owner of its `work/`, where that is the group's uid."""

    name: str
    number: int | None


@dataclass(slots=True)
class Salvaged:
    """What came over: rows by table, tables whose rows could not all be read, groups that only their folder shows,
    turns that the files finished, messages that wait again, turns that lost theirs, and sessions whose context is known
    from their files alone."""

    rows: dict[str, int] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    waiting: int = 0
    lost: int = 0
    contexts: list[str] = field(default_factory=list)


def salvage(
    damaged: Path, new: Path, folders: Sequence[FoundGroup], sessions: Sequence[FoundSession], now: str
) -> Salvaged:
    """Fill a new ledger at `new` from the one at `damaged`, which is left as it is, and from the folders."""
    found = Salvaged()
    scratch = new.with_name(f"{new.name}.scratch")
    ledger = Ledger.open(new)
    try:
        source = _readable(damaged, scratch, new)
        try:
            ledger.tx(lambda tx: _fill(tx, source, folders, sessions, now, found))
        finally:
            if source is not None:
                source.close()
    finally:
        ledger.close()
        _remove(scratch)
    return found


def _readable(damaged: Path, scratch: Path, sound: Path) -> sqlite3.Connection | None:
    """A connection to a copy of the damaged ledger; where its header or its schema cannot be read, with those of a
    sound one. None when nothing of it can be."""
    for mend in (_nothing, _header, _schema):
        content = mend(bytearray(damaged.read_bytes()), sound.read_bytes())
        scratch.write_bytes(content)
        journal = damaged.with_name(f"{damaged.name}-wal")
        if journal.exists():
            shutil.copyfile(journal, scratch.with_name(f"{scratch.name}-wal"))
        connection = sqlite3.connect(scratch, isolation_level=None)
        connection.row_factory = sqlite3.Row
        with suppress(sqlite3.Error):
            if connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
                return connection
        connection.close()
        _remove(scratch)
    return None


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


# The file format: https://www.sqlite.org/fileformat2.html


def _nothing(content: bytearray, sound: bytes) -> bytes:
    return bytes(content)


def _header(content: bytearray, sound: bytes) -> bytes:
    """With a sound ledger's header (page size, encoding, schema format), made fit for this file's length."""
    page = int.from_bytes(sound[16:18], "big")
    pages = max(1, -(-len(content) // page))
    content += bytes(pages * page - len(content))
    content[:_HEADER_BYTES] = sound[:_HEADER_BYTES]
    content[28:32] = pages.to_bytes(4, "big")
    content[32:40] = bytes(8)  # no free pages: those that there are stay unused
    return bytes(content)


def _schema(content: bytearray, sound: bytes) -> bytes:
    """With a sound ledger's schema too: the same migrations put each table at the same page."""
    page = int.from_bytes(sound[16:18], "big")
    mended = bytearray(_header(content, sound))
    mended[_HEADER_BYTES:page] = sound[_HEADER_BYTES:page]
    if sound[_HEADER_BYTES] == _INTERIOR:  # page 1 only points to the pages that hold it
        count = int.from_bytes(sound[_HEADER_BYTES + 3 : _HEADER_BYTES + 5], "big")
        cells = [int.from_bytes(sound[at : at + 2], "big") for at in range(112, 112 + 2 * count, 2)]
        for at in (*cells, _HEADER_BYTES + 8):
            number = int.from_bytes(sound[at : at + 4], "big")
            mended[(number - 1) * page : number * page] = sound[(number - 1) * page : number * page]
    return bytes(mended)


def _fill(
    tx: Transaction,
    source: sqlite3.Connection | None,
    folders: Sequence[FoundGroup],
    sessions: Sequence[FoundSession],
    now: str,
    found: Salvaged,
) -> None:
    tx.execute("PRAGMA defer_foreign_keys = ON")
    for table in TABLES if source is not None else ():
        columns = [row["name"] for row in tx.all(f"PRAGMA table_info({table})")]
        count = 0
        for row in _rows(source, table, found):  # type: ignore[arg-type]
            names = [name for name in columns if name in row.keys()]  # noqa: SIM118 (a sqlite3.Row iterates values)
            marks = ", ".join("?" * len(names))
            with suppress(sqlite3.IntegrityError):
                tx.execute(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})", *(row[name] for name in names))
                count += 1
        found.rows[table] = count
    _take_in_folders(tx, folders, sessions, now, found)
    _finish(tx, sessions, now, found)
    _skip_keys(tx, TABLES if source is None else found.damaged)
    _drop_dangling(tx)
    _settle(tx, now, found)


def _rows(source: sqlite3.Connection, table: str, found: Salvaged) -> Iterator[sqlite3.Row]:
    """Every row that can be read: in one go, and beyond the first damage one by one."""
    last = 0
    try:
        for row in source.execute(f"SELECT rowid AS _key, * FROM {table} ORDER BY rowid"):
            last = row["_key"]
            yield row
        return
    except sqlite3.OperationalError:
        yield from _rows_without_key(source, table, found)
        return
    except sqlite3.Error:
        found.damaged.append(table)
    misses = 0
    while misses < MOST_MISSES:
        last += 1
        try:
            with closing(source.execute(f"SELECT * FROM {table} WHERE rowid = ?", (last,))) as cursor:
                row = cursor.fetchone()
        except sqlite3.Error:
            row = None
        misses = misses + 1 if row is None else 0
        if row is not None:
            yield row


def _rows_without_key(source: sqlite3.Connection, table: str, found: Salvaged) -> Iterator[sqlite3.Row]:
    """Of a table without row ids, or one that is gone: from both ends up to the damage."""
    for order in ("ASC", "DESC"):  # what comes twice is kept once
        try:
            yield from source.execute(f"SELECT * FROM {table} ORDER BY 1 {order}, 2 {order}")
            return
        except sqlite3.Error:
            if table not in found.damaged:
                found.damaged.append(table)


def _skip_keys(tx: Transaction, tables: Sequence[str]) -> None:
    """Keys that a lost row had must not be given again: a session file, or a terminal, may know them."""
    for table in tables:
        if tx.one("SELECT 1 FROM sqlite_master WHERE name = ? AND sql LIKE '%AUTOINCREMENT%'", table):
            last = tx.one("SELECT COALESCE(MAX(seq), 0) AS seq FROM sqlite_sequence WHERE name = ?", table)
            tx.execute("DELETE FROM sqlite_sequence WHERE name = ?", table)
            tx.execute(
                "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", table, (last["seq"] if last else 0) + GAP
            )


def _take_in_folders(
    tx: Transaction, folders: Sequence[FoundGroup], sessions: Sequence[FoundSession], now: str, found: Salvaged
) -> None:
    """Every folder is a group and every session file a session, whatever the ledger lost; and what a row speaks of."""
    named = tx.all("SELECT grp FROM inbound UNION SELECT grp FROM turn UNION SELECT grp FROM session")
    known = {folder.name for folder in folders}
    folders = [*folders, *(FoundGroup(row["grp"], None) for row in named if row["grp"] not in known)]
    for folder in sorted(folders, key=lambda each: (each.number is None, each.name)):
        if groups.find(tx, folder.name) is not None:
            continue
        with suppress(UsageError):  # a name that differs from another's in case alone
            groups.add(tx, folder.name, now)
            groups.fall(tx, folder.name, Role.NONE, 0.0)  # what its work tree had fallen to is not known any more
            if folder.number is not None and not tx.one("SELECT 1 FROM grp WHERE number = ?", folder.number):
                tx.execute("UPDATE grp SET number = ? WHERE name = ?", folder.number, folder.name)
            found.groups.append(folder.name)
    for session in sorted(sessions, key=lambda each: (bool(each.base), len(each.id))):  # a base before what is of it
        if groups.find(tx, session.group) is not None:
            groups.take_in(tx, session.id, session.group, session.stem, session.trust, now, session.base)
    for session in sessions:  # all of them are there now: one may name another
        if session.context is not None and contexts.take_back(tx, session.id, session.context, session.pins, now):
            found.contexts.append(session.id)
    for row in tx.all("SELECT DISTINCT session, grp FROM injected WHERE session NOT IN (SELECT id FROM session)"):
        with suppress(UsageError):  # accepted, and not in a file yet
            if groups.find(tx, row["grp"]) is not None:
                groups.open_session(tx, row["session"], row["grp"], now)
                groups.distrust(tx, row["session"], TRUST[Origin.EXTERNAL])


def _finish(tx: Transaction, sessions: Sequence[FoundSession], now: str, found: Salvaged) -> None:
    """What a session file holds whole is finished. A turn that the ledger lost keeps its number."""
    for session in sessions:
        row = tx.one("SELECT grp FROM session WHERE id = ?", session.id)
        for turn in sorted(session.finished) if row is not None else ():
            known = tx.one("SELECT state, recorded_at FROM turn WHERE id = ?", turn)
            if known is None:
                tx.insert(
                    "turn", id=turn, grp=session.group, session=session.id, ordinal=0, state="answered",
                    authority="none", taint=0.0, channel="", account="", chat="", thread="", queued_at=now,
                )  # fmt: skip
            elif known["recorded_at"] is not None:
                continue
            tx.execute(
                "UPDATE turn SET state = CASE WHEN state IN ('failed', 'stopped') THEN state ELSE 'answered' END,"
                " recorded_at = ?, ended_at = COALESCE(ended_at, ?) WHERE id = ?",
                now,
                now,
                turn,
            )
            _end_messages(tx, turn)
            found.finished.append(turn)


def _end_messages(tx: Transaction, turn: int) -> None:
    tx.execute("UPDATE wake SET state = 'closed' WHERE id IN (SELECT wake FROM turn_wake WHERE turn = ?)", turn)
    tx.execute(
        "UPDATE inbound SET state = 'recorded', reason = 'recovered' WHERE turn = ?"
        " AND state NOT IN ('failed', 'stopped', 'recorded')",
        turn,
    )


def _drop_dangling(tx: Transaction) -> None:
    """Rows whose owner was lost cannot be kept, but for messages: these are told from each other by themselves."""
    tx.execute("DELETE FROM wake WHERE kind = 'job'")  # a room asks again for what its jobs were to give it
    tx.execute("DELETE FROM session WHERE grp NOT IN (SELECT name FROM grp) OR stem = ''")
    tx.execute("DELETE FROM turn WHERE grp NOT IN (SELECT name FROM grp) OR session NOT IN (SELECT id FROM session)")
    tx.execute("UPDATE wake SET inbound = NULL WHERE inbound NOT IN (SELECT seq FROM inbound)")
    tx.execute("DELETE FROM turn_wake WHERE turn NOT IN (SELECT id FROM turn) OR wake NOT IN (SELECT id FROM wake)")
    for table in ("step", "effect", "recalled", "noted"):
        tx.execute(f"DELETE FROM {table} WHERE turn NOT IN (SELECT id FROM turn)")
    tx.execute("UPDATE turn SET retry_of = NULL WHERE retry_of NOT IN (SELECT id FROM turn)")
    tx.execute("DELETE FROM run WHERE grp NOT IN (SELECT name FROM grp)")
    for table in ("context", "pinned", "compaction", "journal"):
        tx.execute(f"DELETE FROM {table} WHERE session NOT IN (SELECT id FROM session)")
    for column in ("parent", "successor"):
        tx.execute(f"UPDATE context SET {column} = NULL WHERE {column} NOT IN (SELECT id FROM session)")
    tx.execute("DELETE FROM injected WHERE session NOT IN (SELECT id FROM session)")
    tx.execute("UPDATE injected SET joined = NULL, state = 'recorded' WHERE joined NOT IN (SELECT id FROM injected)")


def _settle(tx: Transaction, now: str, found: Salvaged) -> None:
    """Bring what was on its way into states that a start can go on from. This is no move: the law was broken."""
    tx.execute("UPDATE run SET state = 'gone' WHERE state <> 'gone'")
    tx.execute("UPDATE turn SET state = 'queued', run = NULL, worker = NULL WHERE state IN ('claimed', 'held')")
    tx.execute("UPDATE turn SET held = NULL WHERE state = 'queued'")
    for turn in tx.all("SELECT * FROM turn WHERE recorded_at IS NULL"):
        if turn["state"] == "queued":
            _settle_waiting(tx, turn["id"], now, found)
        elif turn["state"] == "answered" and not tx.one("SELECT 1 FROM delivery WHERE turn = ?", turn["id"]):
            _say_again(tx, turn, now)
    tx.execute("UPDATE delivery SET state = 'unknown' WHERE state IN ('pending', 'sending', 'draft')")
    for row in tx.all("SELECT * FROM inbound WHERE state IN ('received', 'claimed', 'held', 'answered', 'delivered')"):
        _settle_message(tx, row, now, found)
    for column, owner, key in (("turn", "turn", "id"), ("effect", "effect", "id"), ("inbound", "inbound", "seq")):
        tx.execute(f"UPDATE delivery SET {column} = NULL WHERE {column} NOT IN (SELECT {key} FROM {owner})")
    tx.execute("UPDATE inbound SET turn = NULL WHERE turn NOT IN (SELECT id FROM turn)")
    tx.execute("DELETE FROM question WHERE turn NOT IN (SELECT id FROM turn)")
    tx.execute("UPDATE question SET wake = NULL WHERE wake NOT IN (SELECT id FROM wake)")
    tx.execute("UPDATE approval SET turn = NULL WHERE turn NOT IN (SELECT id FROM turn)")
    tx.execute("UPDATE approval SET delivery = NULL WHERE delivery NOT IN (SELECT id FROM delivery)")
    _settle_schedules(tx, now, found)
    why = "the ledger was damaged before it was surely done"  # it may have been, and nothing is done twice
    tx.execute("UPDATE approval SET state = 'failed', result = ? WHERE state IN ('approved', 'executing')", why)


def _settle_schedules(tx: Transaction, now: str, found: Salvaged) -> None:
    """Where it is not known any more what was due, all of it may have been done: nothing before now is due again."""
    for table in ("firing", "hook"):
        tx.execute(f"UPDATE {table} SET wake = NULL WHERE wake NOT IN (SELECT id FROM wake)")
    tx.execute("UPDATE firing SET turn = NULL WHERE turn NOT IN (SELECT id FROM turn)")
    if {"schedule", "firing"}.intersection(found.damaged) or not found.rows:
        at = firings.utc(datetime.fromisoformat(now))
        tx.execute("UPDATE schedule SET last_due = ?, next = NULL WHERE COALESCE(last_due, '') < ?", at, at)
        firings.mark_salvaged(tx, at)
    over = "SELECT state FROM turn WHERE turn.id = firing.turn"
    tx.execute(
        "UPDATE firing SET state = CASE WHEN reason IS NULL THEN 'ran' ELSE 'late' END"
        f" WHERE state = 'fired' AND ({over}) = 'answered'"
    )
    tx.execute(
        "UPDATE firing SET state = 'failed', reason = 'the ledger was damaged before it was over'"
        f" WHERE state = 'fired' AND (wake IS NULL OR COALESCE(({over}), '') NOT IN ('queued', 'joined'))"
    )


def _settle_waiting(tx: Transaction, turn: int, now: str, found: Salvaged) -> None:
    """A turn that is to be played: with the steps that are there up to the first that is lost, if anybody asked."""
    numbers = [row["n"] for row in tx.all("SELECT n FROM step WHERE turn = ? ORDER BY n", turn)]
    whole = next((at for at, n in enumerate(numbers) if n != at), len(numbers))
    tx.execute("DELETE FROM step WHERE turn = ? AND n >= ?", turn, whole)
    tx.execute("UPDATE turn_wake SET joined = MIN(joined, ?) WHERE turn = ?", whole, turn)
    told = "turn_wake tw JOIN wake w ON w.id = tw.wake WHERE tw.turn = ? AND w.inbound IS NULL AND w.text IS NOT NULL"
    tx.execute(f"UPDATE wake SET state = 'pending' WHERE id IN (SELECT w.id FROM {told})", turn)
    if not tx.one("SELECT 1 FROM inbound WHERE turn = ?", turn) and not tx.one(f"SELECT 1 FROM {told}", turn):
        why = "its message was lost with the damaged ledger"
        sql = "UPDATE turn SET state = 'failed', error = ?, ended_at = ?, recorded_at = ? WHERE id = ?"
        tx.execute(sql, why, now, now, turn)
        found.lost += 1


def _say_again(tx: Transaction, turn: Row, now: str) -> None:
    """An answer whose deliveries were lost: it may have arrived, or not."""
    text = json.loads(turn["final"])["text"] if turn["final"] else ""
    if text:
        to = deliveries.Address.of(turn)
        deliveries.enqueue(
            tx, to, session=turn["session"], kind="text", text=text, now=now, limits=NOTICE, turn=turn["id"]
        )


def _settle_message(tx: Transaction, row: Row, now: str, found: Salvaged) -> None:
    """A message that was not at its end: it waits for its turn, or for a new one if that was lost unanswered."""
    seq, number = row["seq"], row["turn"]
    if number is None and (row["kind"] != "message" or row["reason"] in held.REASONS):
        return
    turn = tx.one("SELECT state FROM turn WHERE id = ? AND state <> 'joined'", number)
    if turn is not None and turn["state"] != "queued":
        if row["state"] not in ("answered", "delivered"):
            tx.execute("UPDATE inbound SET state = ?, reason = 'recovered' WHERE seq = ?", turn["state"], seq)
        return
    answer = "SELECT 1 FROM delivery WHERE turn = ? AND effect IS NULL AND kind <> 'notice'"
    if turn is None and (row["state"] in ("answered", "delivered") or tx.one(answer, number)):
        tx.execute("UPDATE inbound SET state = 'recorded', reason = 'recovered' WHERE seq = ?", seq)
        return
    if groups.find(tx, row["grp"]) is None:
        return
    found.waiting += 1
    tx.execute("UPDATE inbound SET state = 'received', reason = NULL WHERE seq = ?", seq)
    if turn is None:
        tx.execute("UPDATE inbound SET turn = NULL WHERE seq = ?", seq)
        tx.execute("DELETE FROM turn_wake WHERE wake IN (SELECT id FROM wake WHERE inbound = ?)", seq)
        tx.execute("DELETE FROM wake WHERE inbound = ?", seq)
        groups.open_session(tx, row["session"], row["grp"], now)
        inbound.enqueue(tx, [seq], now)
    elif tx.execute("UPDATE wake SET state = 'pending' WHERE inbound = ?", seq).rowcount == 0:
        tx.execute("INSERT INTO turn_wake (turn, wake) VALUES (?, ?)", number, inbound.add_wake(tx, row))
    else:
        wakes = tx.all("SELECT id FROM wake WHERE inbound = ?", seq)
        newest = max(wake["id"] for wake in wakes)  # a retry has one of its own
        tx.execute("INSERT OR IGNORE INTO turn_wake (turn, wake) VALUES (?, ?)", number, newest)
