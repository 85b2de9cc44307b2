"""The tables of a catalogue, beside the documents in a group's index: its files, which memory each holds, and where
a text, an id or a key can be found again. Functions over one transaction.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from clawd.memory import documents, judgement, keyed, standing
from clawd.memory.judgement import Entry
from clawd.memory.protocol import Voice
from clawd.memory.record import MemoryRecord
from clawd.memory.standing import LOG, News, Standing
from clawd.memory.tree import RawMemory
from clawd.search.document import Document

TABLES = (
    standing.TABLES
    + """
CREATE TABLE files (n INTEGER PRIMARY KEY, path TEXT UNIQUE NOT NULL, sig TEXT NOT NULL, claim TEXT NOT NULL,
                    sha TEXT NOT NULL, seal TEXT NOT NULL, problem TEXT NOT NULL);
CREATE INDEX files_claim ON files (claim) WHERE claim <> '';
CREATE INDEX files_sha ON files (sha);
CREATE INDEX files_problem ON files (problem) WHERE problem <> '';
CREATE TABLE held (id TEXT PRIMARY KEY, path TEXT NOT NULL, status TEXT NOT NULL, seal TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX held_path ON held (path);
CREATE INDEX held_status ON held (status);
CREATE TABLE traces (trace TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (trace, n)) WITHOUT ROWID;
CREATE INDEX traces_file ON traces (n);
"""
)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A file as it was read. `sig` is its `stat`, "" while that may not tell another change. `claim` is the id that it
    says its one memory has, `sha` what that is known by, `traces` what else it can be found by: they are the same where
    `seal` is."""

    path: str
    sig: str
    stat: str
    memories: Sequence[RawMemory]
    claim: str
    sha: str
    seal: str
    traces: Callable[[], Iterable[str]]
    problem: str


@dataclass(frozen=True, slots=True)
class Held:
    """A memory that a file has, whose stat was this; the entries of a day; and `gone`, which is no memory any more and
    still lies there."""

    record: MemoryRecord
    raw: RawMemory
    stat: str
    entries: Sequence[Entry] = ()
    gone: bool = False

    def seen(self, voice: Voice) -> MemoryRecord | None:
        """What of it is in a namespace that a voice reads, and not private where others than the owner read along."""
        if self.raw.kind != "day":
            hidden = self.record.private and voice.others
            return self.record if voice.sees(self.record.namespace) and not hidden else None
        open = [each for each in self.entries
                if voice.sees(each.namespace) and not (each.private and voice.others)]  # fmt: skip
        if len(open) == len(self.entries):
            return self.record
        return judgement.of_day(self.raw, open) if open else None

    def documents(self, floor: float) -> list[Document]:
        if self.gone:
            return []
        if self.record.kind == "day":
            return list(documents.of_entries(self.record.id, self.entries))
        return list(documents.of_record(self.record, self.raw.title, floor))


def is_built(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT 1 FROM kept WHERE name = 'built'").fetchone() is not None


def problems(db: sqlite3.Connection) -> list[str]:
    """What a person is to know of their files."""
    found = [problem for (problem,) in db.execute("SELECT problem FROM files WHERE problem <> '' ORDER BY path")]
    said = "SELECT 1 FROM trusted WHERE trusted.id = held.id AND json_extract(stamp, '$.op') = 'quarantine'"
    moved = db.execute(  # not where the owner said so themselves
        "SELECT DISTINCT path FROM held WHERE status IN ('quarantined', 'gone') AND path NOT LIKE 'quarantine/%'"
        f" AND NOT EXISTS ({said}) ORDER BY path"
    )
    return found + [
        f"memory/{path} has text that is quarantined or was forgotten, and nobody finds it (clawd memory trust {path})"
        for (path,) in moved
    ]


def keep(db: sqlite3.Connection, loaded: Loaded) -> None:
    row = db.execute("SELECT n, seal FROM files WHERE path = ?", (loaded.path,)).fetchone()
    (n,) = db.execute(
        "INSERT INTO files (path, sig, claim, sha, seal, problem) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (path) DO"
        " UPDATE SET sig = excluded.sig, claim = excluded.claim, sha = excluded.sha, seal = excluded.seal,"
        " problem = excluded.problem RETURNING n",
        (loaded.path, loaded.sig, loaded.claim, loaded.sha, loaded.seal, loaded.problem),
    ).fetchone()
    if row is None or row[1] != loaded.seal:
        db.execute("DELETE FROM traces WHERE n = ?", (n,))
        db.executemany("INSERT OR IGNORE INTO traces VALUES (?, ?)", ((each, n) for each in loaded.traces()))


def fill(db: sqlite3.Connection, loaded: Sequence[Loaded]) -> None:
    """`keep` for all that there are."""
    files = ((n, each.path, each.sig, each.claim, each.sha, each.seal, each.problem) for n, each in enumerate(loaded))
    db.executemany("INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?)", files)
    traces = sorted((trace, n) for n, each in enumerate(loaded) for trace in each.traces())
    db.executemany("INSERT OR IGNORE INTO traces VALUES (?, ?)", traces)


def from_id(id: str) -> str:
    return f"from {id}"


def of_key(key: str) -> str:
    return f"key {key}"


def lose(db: sqlite3.Connection, path: str) -> None:
    db.execute("DELETE FROM traces WHERE n = (SELECT n FROM files WHERE path = ?)", (path,))
    db.execute("DELETE FROM files WHERE path = ?", (path,))


def concerned(db: sqlite3.Connection, news: News, claims: Iterable[str]) -> set[str]:
    """The files that something new was said of."""
    if news.anew:
        return {path for (path,) in db.execute("SELECT path FROM files")}
    found = set[str]()
    for claim in {*news.ids, *claims}:
        found |= {path for (path,) in db.execute("SELECT path FROM files WHERE claim = ?", (claim,))}
        found |= {path for (path,) in db.execute("SELECT path FROM held WHERE id = ?", (claim,))}
        if claim.startswith("file:"):
            found |= {path for (path,) in db.execute("SELECT path FROM files WHERE path = ?", (claim[5:],))}
    keys = {of_key(id[5:]) for id in news.ids if id.startswith("fact:")}
    if keys:
        found.add(keyed.FACTS)
    keys |= {of_key(id[len(LOG) :]) for id in news.ids if id.startswith(LOG)}
    for mark in news.marks | keys:
        found |= {path for (path,) in db.execute("SELECT path FROM files WHERE sha = ?", (mark,))}
        found |= set(traced(db, mark))
    return found


def traced(db: sqlite3.Connection, trace: str) -> list[str]:
    rows = db.execute("SELECT path FROM traces JOIN files USING (n) WHERE trace = ?", (trace,))
    return [path for (path,) in rows]


def doubled(db: sqlite3.Connection, claims: Iterable[str] | None = None) -> frozenset[str]:
    """The ids that more than one file says it has: all, or of these."""
    if claims is None:
        rows = db.execute("SELECT claim FROM files WHERE claim <> '' GROUP BY claim HAVING count(*) > 1")
        return frozenset(claim for (claim,) in rows)
    count = "SELECT count(*) FROM files WHERE claim = ? AND claim <> ''"
    return frozenset(claim for claim in claims if db.execute(count, (claim,)).fetchone()[0] > 1)


def owner(db: sqlite3.Connection, fresh: Standing, id: str) -> str:
    """Which of the files that say this id has it: one with a text that was stamped, the last one before others; of
    several the first."""
    shas = {stamp.sha256: n for n, stamp in enumerate(fresh.of(id))}
    files = db.execute("SELECT path, sha FROM files WHERE claim = ?", (id,)).fetchall()
    first: str = min(files, key=lambda each: (-shas.get(each[1], -1), each[0]))[0]
    return first


def hold(db: sqlite3.Connection, path: str, held: Held, floor: float) -> tuple[bool, list[Document]]:
    """Whether it is another one than the index has, and its documents then."""
    status, seal, new = _sealed(held, floor)
    row = db.execute("SELECT path, status, seal FROM held WHERE id = ?", (held.record.id,)).fetchone()
    if row == (path, status, seal):
        return False, []
    db.execute(
        "INSERT INTO held VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE"
        " SET path = excluded.path, status = excluded.status, seal = excluded.seal",
        (held.record.id, path, status, seal),
    )
    return row is None or row[2] != seal, new if row is None or row[2] != seal else []


def hold_all(db: sqlite3.Connection, held: Iterable[tuple[str, Held]], floor: float) -> list[Document]:
    """`hold` for all that there are, by their paths: their documents."""
    made, found = list[Document](), list[tuple[str, str, str, str]]()
    for path, each in held:
        status, seal, new = _sealed(each, floor)
        found.append((each.record.id, path, status, seal))
        made += new
    db.executemany("INSERT OR REPLACE INTO held VALUES (?, ?, ?, ?)", sorted(found))
    return made


def _sealed(held: Held, floor: float) -> tuple[str, str, list[Document]]:
    new = held.documents(floor)
    seal = hashlib.sha256(repr(new).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return "gone" if held.gone else held.record.status, seal, new
