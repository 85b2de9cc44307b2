"""Groups and sessions in the ledger: their numbers, their fallen authority, and which file a session's id has."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from clawd.errors import NotFound, UsageError
from clawd.ids import choose_stem, is_job, segment_id
from clawd.ledger import contexts
from clawd.ledger.db import Transaction
from clawd.model import Authority
from clawd.trust import Role, lowest

UID_BASE = 64_000


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group as the ledger knows it. `number` fixes its uid (64000 + number) for ever."""

    name: str
    folder: str
    number: int
    authority: Authority


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One segment of a conversation and its file."""

    id: str
    base: str
    segment: int
    group: str
    stem: str


def _group(row: sqlite3.Row) -> GroupRow:
    return GroupRow(row["name"], row["folder"], row["number"], Authority(Role(row["authority"]), row["taint"]))


def _session(row: sqlite3.Row) -> SessionRow:
    return SessionRow(row["id"], row["base"], row["segment"], row["grp"], row["stem"])


def add(tx: Transaction, name: str, now: str) -> GroupRow:
    """The group `name`, made if it is new. Names that differ only in case are one group on some disks: refused."""
    if known := find(tx, name):
        return known
    if twin := tx.one("SELECT name FROM grp WHERE folder = ? COLLATE NOCASE", name):
        raise UsageError(f"there is a group {twin['name']!r} already; choose a name that differs in more than case")
    row = tx.one("SELECT COALESCE(MAX(number), 0) + 1 AS number FROM grp")
    assert row is not None
    tx.insert("grp", name=name, folder=name, number=row["number"], made=now)
    return get(tx, name)


def find(tx: Transaction, name: str) -> GroupRow | None:
    row = tx.one("SELECT * FROM grp WHERE name = ?", name)
    return _group(row) if row else None


def get(tx: Transaction, name: str) -> GroupRow:
    """The group. Raises NotFound with the command that makes one."""
    if group := find(tx, name):
        return group
    raise NotFound(f"there is no group {name!r}", hint=f"clawd groups add {name}")


def every(tx: Transaction) -> list[GroupRow]:
    return [_group(row) for row in tx.all("SELECT * FROM grp ORDER BY number")]


def distrust(tx: Transaction, session: str, trust: float) -> None:
    """Text of this trust is in a session from outside: no turn of it is trusted more, until the owner lifts that."""
    tx.execute("UPDATE session SET taint = MIN(taint, ?) WHERE id = ?", trust, session)


def stems(tx: Transaction) -> dict[str, set[str]]:
    """The session files of every group, by its folder."""
    found: dict[str, set[str]] = {group.folder: set() for group in every(tx)}
    for row in tx.all("SELECT g.folder, s.stem FROM session s JOIN grp g ON g.name = s.grp WHERE s.stem <> ''"):
        found[row["folder"]].add(row["stem"])
    return found


def session_ids(tx: Transaction) -> set[str]:
    return {row["id"] for row in tx.all("SELECT id FROM session")}


def session_counts(tx: Transaction) -> dict[str, int]:
    """How many sessions each group has that has any."""
    rows = tx.all("SELECT grp, COUNT(*) AS n FROM session WHERE stem <> '' GROUP BY grp")
    return {row["grp"]: row["n"] for row in rows}


def fall(tx: Transaction, name: str, authority: Role, taint: float) -> None:
    """At a turn's end its authority and taint fall onto the group's work tree; they never rise here."""
    group = get(tx, name)
    tx.execute(
        "UPDATE grp SET authority = ?, taint = ? WHERE name = ?",
        lowest([group.authority.role, authority]),
        min(group.authority.taint, taint),
        name,
    )


def lift(tx: Transaction, name: str, *, sessions: bool = False, now: str = "") -> None:
    """The owner says that the work tree is clean again; with `sessions`, that what was put into those from outside is
    theirs as well."""
    get(tx, name)
    tx.execute("UPDATE grp SET authority = 'owner', taint = 1.0 WHERE name = ?", name)
    if sessions:
        tx.execute("UPDATE session SET taint = 1.0 WHERE grp = ? AND taint < 1", name)
        contexts.trust_again(tx, name, now)


def session(tx: Transaction, id: str) -> SessionRow | None:
    """A segment by its exact id, else the newest segment of the conversation with that plain id."""
    row = tx.one("SELECT * FROM session WHERE base = ? ORDER BY segment DESC LIMIT 1", id) or tx.one(
        "SELECT * FROM session WHERE id = ?", id
    )
    return _session(row) if row and row["stem"] else None


def meant(tx: Transaction, id: str) -> SessionRow | None:
    """The same for who wants to look at one: the first segment, whose plain id is its conversation's, is `<id>.1`."""
    if (found := session(tx, id)) is not None or not id.endswith(".1"):
        return found
    row = tx.one("SELECT * FROM session WHERE id = ? AND base = id AND segment = 1", id.removesuffix(".1"))
    return _session(row) if row and row["stem"] else None


def segment_of_compaction(tx: Transaction, base: str, compaction: int) -> SessionRow | None:
    """The segment of a conversation that was compacted by this."""
    row = tx.one(
        "SELECT s.* FROM session s JOIN compaction c ON c.session = s.id WHERE s.base = ? AND c.id = ?",
        base,
        compaction,
    )
    return _session(row) if row else None


def open_session(tx: Transaction, base: str, group: str, now: str) -> SessionRow:
    """The newest segment of `base`, made if it is new. Raises UsageError when the id belongs to another group, or is of
    the kind that jobs have."""
    if is_job(base):
        raise UsageError(f"session ids that begin with job: are clawd's own; {base!r} is none for a conversation")
    known = session(tx, base)
    if known is None:
        get(tx, group)
        return _new_session(tx, base, 1, base, group, now)
    if known.group != group:
        raise UsageError(f"session {base!r} belongs to group {known.group!r}, and an id belongs to one group for ever")
    return known


def take_in(tx: Transaction, id: str, group: str, stem: str, trust: float, now: str, base: str = "") -> bool:
    """A session whose file is there, made by a person or by a ledger that was lost. Gives whether it was new. `base` is
    the conversation that its file says it goes on with. An id that only looks like a segment's (`mmkr:v1.2` beside
    `mmkr:v1`) is a conversation of its own: else one of them would lead to the other's file."""
    if is_job(id) or tx.one("SELECT 1 FROM session WHERE id = ? OR (grp = ? AND stem = ?)", id, group, stem):
        return False
    number = id.removeprefix(f"{base}.")
    segment = int(number) if base and number.isdecimal() and len(number) < 10 else 1
    others = tx.one("SELECT 1 FROM session WHERE base = ? AND grp <> ? OR id = ? AND base <> id", base, group, base)
    if segment < 2 or segment_id(base, segment) != id or others is not None:
        base, segment = id, 1
    tx.insert("session", id=id, base=base, segment=segment, grp=group, stem=stem, made=now, taint=trust)
    return True


def own_base(tx: Transaction, base: str, group: str) -> str:
    """The plain id for a group's conversation: `base`, or where another group has had it, as an id belongs to one group
    for ever, one of its own."""
    while (known := session(tx, base)) is not None and known.group != group:
        base += f"@{group}"  # also that may be another's: whoever writes from outside, or is brought in, chooses ids
    return base


def job_session(tx: Transaction, job: int, group: str, now: str) -> str:
    """The session of a job: a row without a file. Raises NotFound when there is no such group."""
    get(tx, group)
    id = f"job:{job}"
    tx.insert("session", id=id, base=id, segment=1, grp=group, stem="", made=now)
    return id


def next_segment(tx: Transaction, base: str, now: str) -> SessionRow:
    """Open the next segment of a conversation: `<id>.2`, `<id>.3` …, skipping ids that are taken."""
    last = session(tx, base)
    if last is None:
        raise NotFound(f"there is no session {base!r}")
    number = last.segment + 1
    while tx.one("SELECT 1 FROM session WHERE id = ?", segment_id(last.base, number)):
        number += 1
    return _new_session(tx, last.base, number, segment_id(last.base, number), last.group, now)


def _new_session(
    tx: Transaction,
    base: str,
    segment: int,
    id: str,
    group: str,
    now: str,
) -> SessionRow:
    taken = tx.all("SELECT stem FROM session WHERE grp = ?", group)
    stem = choose_stem(id, (row["stem"] for row in taken))
    tx.insert("session", id=id, base=base, segment=segment, grp=group, stem=stem, made=now)
    return SessionRow(id, base, segment, group, stem)
