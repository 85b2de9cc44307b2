"""What lies in a group's `memory/`, kept in step with its index: which file has which memories, what each is worth, and
where a text lies. Derived from the files and the trust ledger, and made again from them whenever it is not there.

A file is read again when its stat is another one, when the ledger said something of its id or its text, or when another
file came to have its id. Any process may look; nothing here writes a memory.
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from clawd.errors import StorageError
from clawd.memory import judgement, keyed, looks, rows, standing, text, tree
from clawd.memory.admission import seen_trust
from clawd.memory.judgement import Worth
from clawd.memory.provenance import Stamp, TrustLedger
from clawd.memory.record import ID, MemoryRecord
from clawd.memory.rows import Held, Loaded
from clawd.memory.standing import LOG, Marked, News, Standing
from clawd.memory.tree import RawMemory
from clawd.search.document import Document
from clawd.search.embedders import Embedder
from clawd.search.index import Index
from clawd.trust import Origin

log = logging.getLogger(__name__)
_BATCH = 2000  # files that are held in memory at once
_MANY = 100  # files from which on tables are read at once


class Catalogue:
    """Calls block, one at a time. Raises StorageError."""

    def __init__(self, root: Path, index: Path, group: str, ledger: TrustLedger, floor: float,
                 embedder: Embedder | None) -> None:  # fmt: skip
        self.root, self._group, self._ledger, self._floor = root, group, ledger, floor
        self._building = False
        self._held = 0
        self.index = Index(index, embedder, rows.TABLES, self._fill)
        self._directories: dict[str, int] = {}  # when each was changed last; 0 while that does not tell

    # ── looking ──

    def look(self, paths: Iterable[str] | None = None) -> list[str]:
        """Bring the index to what the files say: all of them, or these. Gives what is amiss with them."""
        built = self.index.read(rows.is_built)
        notes: list[str] = []
        if self.root.is_symlink() or (self.root.exists() and not self.root.is_dir()):
            notes.append(f"{self.root} is a link, or no folder: nothing in it is read or kept")
        if not built:
            self._build()
        elif paths is None and self._held and self._directories:
            self.freshen()
        elif paths is None:
            self._scan()
        else:
            self._take([path for path in dict.fromkeys(paths) if tree.holds(path)])
        return notes + self.index.read(rows.problems)

    def freshen(self) -> None:
        """The same for what is seen at once: files that came or went, the facts, the ledger."""
        if not self._directories or not self.index.read(rows.is_built):
            self.look()
            return
        folders = {} if self._held else self._directories
        if moved := [folder for folder, seen in folders.items() if looks.moved(self.root, folder) != seen]:
            self._scan(moved)
        if self.is_stale(keyed.FACTS):
            self._take([keyed.FACTS])
        if self.index.read(lambda db: standing.is_behind(db, self._ledger)):
            self._take([])

    def hold(self) -> None:
        """Until `release` much is written by ourselves: directories are not searched for what others wrote."""
        self.freshen()
        self._held += 1

    def release(self) -> None:
        self._held -= 1

    def reindex(self) -> int:
        self._build()
        return self.index.count()

    def is_stale(self, path: str) -> bool:
        """Whether a file is not the one that was read last."""
        row = self.index.read(lambda db: db.execute("SELECT sig FROM files WHERE path = ?", (path,)).fetchone())
        return looks.signature(self.root, path) != (row[0] if row else None)

    @contextmanager
    def writing(self, *paths: str) -> Iterator[None]:
        """While we change these files ourselves, and look at them then: what that does to the times of their
        directories is no news. What is written is kept, though the index has no room for it: the next look has it."""
        folders = {path.rpartition("/")[0] for path in paths}
        quiet = {folder for folder in folders if self._directories.get(folder) == looks.moved(self.root, folder)}
        yield
        try:
            self._take(list(paths))
        except StorageError as error:
            log.warning("what was kept is not in the index yet: %s", error)
            self._directories.clear()
            return
        self._directories |= {folder: looks.moved(self.root, folder) for folder in quiet}

    def _scan(self, folders: Iterable[str] | None = None) -> None:
        """Compare the stats of all files, or of those in some directories."""
        directories = {} if folders is None else dict(self._directories)
        todo = [""] if folders is None else list(folders)
        found = self._walked(todo, directories)
        known = dict(self.index.read(lambda db: db.execute("SELECT path, sig FROM files").fetchall()))
        if folders is not None:
            there = set(todo)
            known = {path: sig for path, sig in known.items() if path.rpartition("/")[0] in there}
        self._take([path for path in {**known, **found} if known.get(path) != found.get(path)])
        self._directories = {folder: seen for folder, seen in directories.items() if seen != -1 or not folder}

    def _walked(self, todo: list[str], directories: dict[str, int]) -> dict[str, str]:
        """The files in these directories, with their stats. Those beneath that are not in `directories` are added to
        them, and to `directories` when each was changed last."""
        began, found = time.time_ns(), dict[str, str]()
        for folder in todo:  # it grows
            seen = looks.moved(self.root, folder)
            directories[folder] = seen if began - seen > looks.SETTLED_NS else 0
            files, below = looks.listed(self.root, folder)
            found |= files
            todo += [each for each in below if each not in directories]
        return found

    def load(self, path: str) -> Loaded | None:
        """A file as it is now; None where there is none that may be read."""
        return _loaded(path, tree.look(self.root, path))

    # ── bringing the tables up ──

    def _build(self) -> None:
        """All of it from nothing. Until it is whole, the next look begins again."""
        self._building = True
        try:
            self._rebuild()
        finally:
            self._building = False

    def _fill(self) -> None:
        """It was made anew under our hands."""
        if not self._building:
            self._build()

    def _rebuild(self) -> None:
        """What is changed meanwhile is news to the next look."""
        directories = dict[str, int]()
        paths = sorted(self._walked([""], directories))
        with tree.reading(self.root) as read:
            found = [each for path in paths if (each := _loaded(path, read(path))) is not None]

        def fill(db: sqlite3.Connection) -> None:
            for table in ("files", "held", "traces", "kept", "trusted", "marks"):
                db.execute(f"DELETE FROM {table}")
            standing.follow(db, self._ledger, self._group)
            rows.fill(db, found)
            fresh, doubled = Standing(db, self._group, many=True), rows.doubled(db)
            held = [
                (each.path, one)
                for each in found
                for one in self._judged(db, fresh, each.memories, each.stat, doubled, each.sha)
            ]
            self.index.replace_in(db, rows.hold_all(db, held, self._floor))
            db.execute("INSERT INTO kept VALUES ('built', '1') ON CONFLICT DO NOTHING")

        self.index.write(fill)
        self._directories = directories
        self.index.embed()

    def _take(self, paths: Sequence[str]) -> bool:
        """Read these files, which may be gone, and whatever the ledger and they say something new of; whether that
        changed what is found."""
        changed = False
        for start in range(0, max(len(paths), 1), _BATCH):
            batch = {path: self.load(path) for path in paths[start : start + _BATCH]}
            if self.index.write(lambda db, batch=batch: self._taken(db, batch)):  # type: ignore[misc]
                self.index.embed()
                changed = True
        return changed

    def _taken(self, db: sqlite3.Connection, batch: dict[str, Loaded | None]) -> bool:
        """Whether there are new documents, or fewer."""
        news = standing.follow(db, self._ledger, self._group)
        claims = {claim for path in batch for (claim,) in db.execute("SELECT claim FROM files WHERE path = ?", (path,))}
        claims |= {each.claim for each in batch.values() if each is not None}
        for path, loaded in batch.items():
            rows.lose(db, path) if loaded is None else rows.keep(db, loaded)
        affected = dict(batch)
        for path in rows.concerned(db, news, claims - {""}):
            if path not in affected:
                affected[path] = self.load(path)
        fresh = Standing(db, self._group, many=len(affected) > _MANY)
        doubled = rows.doubled(
            db, None if len(affected) > _MANY else [each.claim for each in affected.values() if each]
        )
        owners = {
            path: {id for (id,) in db.execute("SELECT id FROM held WHERE path = ?", (path,))} for path in affected
        }
        made: list[Document] = []
        removed = set[str]()
        kept = set[str]()
        for path, loaded in affected.items():
            for held in (
                self._judged(db, fresh, loaded.memories, loaded.stat, doubled, loaded.sha) if loaded is not None else ()
            ):
                kept.add(held.record.id)
                changed, new = rows.hold(db, path, held, self._floor)
                made += new
                if changed and not new:
                    removed.add(held.record.id)
        for path, ids in owners.items():
            for id in ids - kept:
                db.execute("DELETE FROM held WHERE id = ? AND path = ?", (id, path))
                removed.add(id)
        if made or removed:
            self.index.put_in(db, made, removed)
        return bool(made or removed)

    # ── what a file has ──

    def one(self, id: str) -> Held | None:
        """The memory of an id as it is now; one that is gone and lies there, too."""
        for _ in range(2):
            if (path := self._path(id)) is None:
                return None
            if self.is_stale(path):
                self._take([path])
                path = self._path(id) or path
            if found := self.of_file(path, {id}):
                return found[0]
        return None

    def _path(self, id: str) -> str | None:
        row = self.index.read(lambda db: db.execute("SELECT path FROM held WHERE id = ?", (id,)).fetchone())
        return row[0] if row else None

    def all(self, statuses: frozenset[str]) -> list[Held]:
        """The memories that have one of these statuses, as the last look found them."""
        marks = ", ".join("?" * len(statuses))
        rows = self.index.read(
            lambda db: db.execute(f"SELECT id, path FROM held WHERE status IN ({marks})", sorted(statuses)).fetchall()
        )
        held = self.of_files(sorted({path for _, path in rows}), {id for id, _ in rows})
        return [each for each in held if not each.gone and each.record.status in statuses]

    def some(self, ids: Iterable[str]) -> tuple[dict[str, Held], bool]:
        """The memories of these ids, and whether a file turned out to say something else than was searched."""
        wanted = set(ids)
        query = "SELECT path, sig FROM held JOIN files USING (path) WHERE id = ?"
        known = dict(self.index.read(lambda db: [each for id in wanted for each in db.execute(query, (id,))]))
        stale = [path for path, sig in known.items() if looks.signature(self.root, path) != sig]
        changed = bool(stale) and self._take(stale)
        return {each.record.id: each for each in self.of_files(known, wanted)}, changed

    def derived(self, id: str) -> list[Held]:
        """The memories that say they come from this one."""
        paths = self.index.read(lambda db: rows.traced(db, rows.from_id(id)))
        return [
            each for path in paths for each in self.of_file(path) if id in each.record.derived_from and not each.gone
        ]

    def superseding(self, id: str) -> list[str]:
        """The memories that hold and were written in the place of this one."""
        paths = self.index.read(lambda db: rows.traced(db, rows.from_id(id)))
        held = (each.record for path in paths for each in self.of_file(path) if not each.gone)
        return [each.id for each in held if each.supersedes == id and each.status == "active"]

    def alike(self, digest: str) -> list[Held]:
        """The memories in files of their own that have this text."""
        rows = self.index.read(lambda db: db.execute("SELECT path FROM files WHERE sha = ?", (digest,)).fetchall())
        return [each for (path,) in rows for each in self.of_file(path) if not each.gone]

    def better(self, record: MemoryRecord) -> tuple[str, ...]:
        """The marks of a text that stand in what is trusted more: who copies that cannot make it doubted. A person's
        file counts if it was there when this text came, for later it may be the copy."""
        marks = {text.digest(record.text), *text.lines(record.text)}
        paths = self.index.read(lambda db: rows.concerned(db, News(marks=frozenset(marks)), ()))
        stamps = self.index.read(lambda db: Standing(db, self._group).of(record.id))
        found = {mark for each in stamps for mark in each.spared}
        for held in (each for path in sorted(paths) for each in self.of_file(path)):
            other = held.record
            if held.gone or other.status != "active" or other.id == record.id or seen_trust(other) <= record.trust:
                continue
            if other.origin is not Origin.HAND or not stamps:
                texts = [each.text for each in held.entries] if other.kind == "day" else [other.text]
                found |= marks & {mark for each in texts for mark in (text.digest(each), *text.lines(each))}
        return tuple(sorted(found & marks))

    def logged(self, key: str) -> list[str]:
        """What the days' logs have of a key."""
        paths = self.index.read(lambda db: rows.traced(db, rows.of_key(key)))
        return [
            each.text for path in paths for held in self.of_file(path) for each in held.raw.pieces if each.key == key
        ]

    def of_file(self, path: str, ids: Collection[str] | None = None) -> list[Held]:
        """The memories of a file: all, or those with these ids."""
        return self.of_files([path], ids)

    def of_files(self, paths: Iterable[str], ids: Collection[str] | None = None) -> list[Held]:
        """The same of several."""
        with tree.reading(self.root) as read:
            files = [looked for path in paths if (looked := read(path)).stamp is not None]

        def judged(db: sqlite3.Connection) -> list[Held]:
            fresh = Standing(db, self._group, many=len(files) > _MANY)
            # A file with one memory may have another id than it says.
            alone = (looked.memories[0].id for looked in files if len(looked.memories) == 1)
            doubled = rows.doubled(db, None if len(files) > _MANY else alone)
            found = list[Held]()
            for looked in files:
                some = [raw for raw in looked.memories if ids is None or len(looked.memories) == 1 or raw.id in ids]
                found += self._judged(db, fresh, some, looks.sig(looked.stamp), doubled)  # type: ignore[arg-type]
            return found

        return [each for each in self.index.read(judged) if ids is None or each.record.id in ids]

    def _judged(self, db: sqlite3.Connection, fresh: Standing, memories: Iterable[RawMemory], stat: str,
                doubled: frozenset[str], sha: str = "") -> list[Held]:  # fmt: skip
        """`sha`: of the text of a file that is one memory, where it is known."""
        found = list[Held]()
        for raw in memories:
            if raw.kind == "day":
                found += _day(fresh, raw, stat)
            else:
                found.append(self._judge(db, fresh, raw, stat, doubled, sha))
        return found

    def _judge(self, db: sqlite3.Connection, fresh: Standing, raw: RawMemory, stat: str, doubled: frozenset[str],
               sha: str) -> Held:  # fmt: skip
        id = raw.id if raw.id not in doubled or rows.owner(db, fresh, raw.id) == raw.path else f"file:{raw.path}"
        stamps = fresh.of(id)
        known, marked = _worth(fresh, raw.text, stamps, sha)
        if raw.path == keyed.FACTS and raw.kind == "fact":
            known = judgement.of_typed_again(raw, known, stamps, marked)
            return Held(judgement.of_fact(raw, known, stamps), raw, stat, gone=known.gone)
        return Held(judgement.of_page(raw, id, known, stamps), raw, stat, gone=known.gone)

    def close(self) -> None:
        self.index.close()


# ── the files ──


def _loaded(path: str, looked: tree.Looked) -> Loaded | None:
    if looked.stamp is None:
        return None
    settled = time.time_ns() - looked.stamp.mtime_ns > looks.SETTLED_NS
    alone = looked.memories[0] if path != keyed.FACTS and looked.memories and looked.memories[0].kind != "day" else None
    return Loaded(
        path, looks.sig(looked.stamp) if settled else "", looks.sig(looked.stamp), looked.memories,
        alone.id if alone is not None and ID.fullmatch(alone.id) else "", text.digest(alone.text) if alone else "",
        _seal(looked.memories), lambda: _traces(looked.memories, alone), "; ".join(looked.problems),
    )  # fmt: skip


def _seal(memories: Iterable[RawMemory]) -> str:
    said = "\0".join(
        f"{raw.id} {raw.fields.get('derived_from', ())} {raw.fields.get('supersedes')} {raw.text}" for raw in memories
    )
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()


def _traces(memories: Iterable[RawMemory], alone: RawMemory | None) -> Iterator[str]:
    for raw in memories:
        for piece in raw.pieces:
            yield from (text.digest(piece.text), *text.lines(piece.text), rows.of_key(piece.key))
        if not raw.pieces:
            yield from () if raw is alone else [text.digest(raw.text)]
            yield from text.lines(raw.text)
            yield from map(rows.from_id, raw.fields.get("derived_from", ()))
            yield from map(rows.from_id, filter(None, [raw.fields.get("supersedes")]))


def _day(fresh: Standing, raw: RawMemory, stat: str) -> list[Held]:
    """A day's log: what it has of other programs is another memory. A key that they write lines under says nothing else
    in a log: not what a fact of that name is, which they might say again."""
    entries, of = list[judgement.Entry](), dict[str, list[Stamp]]()
    for piece in raw.pieces:
        if piece.key not in of:
            of[piece.key] = (fresh.of(f"{LOG}{piece.key}") or fresh.of(f"fact:{piece.key}")) if piece.key else []
        known, _ = _worth(fresh, piece.text, of[piece.key])
        if (entry := judgement.of_piece(piece, raw.at, known, of[piece.key])) is not None:
            entries.append(entry)
    parts = ([each for each in entries if each.external is external] for external in (False, True))
    return [Held(judgement.of_day(raw, part), raw, stat, part) for part in parts if part]


def _worth(fresh: Standing, of: str, stamps: Sequence[Stamp], digest: str = "") -> tuple[Worth, Marked]:
    digest = digest or text.digest(of)
    marked = fresh.marked(digest, lambda: text.lines(of))
    return judgement.worth(digest, stamps, marked), marked
