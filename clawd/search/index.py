"""The index of one group: documents that are found by their words, by their meaning, or both.

Its file is made anew whenever it is not right (`amiss`): whoever fills it compares `stamps` before each search, finds
none, and reads everything again. What is trusted below VOUCHED lies in a table of its own: however much of it there is,
it moves nothing in a search that it may not take part in. One loader says for every method what may be found.

Calls block; any thread may make them, and several processes. They raise StorageError, and DiskFull.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from clawd.search import ranking, terms
from clawd.search.document import Document, Found, Where
from clawd.search.embedders import Embedder
from clawd.search.file import IndexFile

if TYPE_CHECKING:
    from clawd.search.vectors import Matrix

Method = Literal["file", "vector", "hybrid"]

_EMBED_S, _CATCH_UP_S = 10.0, 0.5  # how long a write, and a search, embeds what has no vector yet
_BATCH = 256
_POOL = 100  # candidates of each method, at least
_EVERY = "xzeveryx"  # a word in each document: it matches all and weighs nothing
_ROWS = "(SELECT value FROM json_each(?))"
_FIELDS = "row, id, kind, text, at, trust, taint, status, shown, thread, piece, title"


class Index:
    """`path` is its file; without an `embedder` only words are searched. `tables` are the caller's own, as SQL: `read`
    and `write` them, together with documents by `put_in` and `replace_in`."""

    def __init__(self, path: Path, embedder: Embedder | None = None, tables: str = "") -> None:
        self.path = path
        self._embedder = embedder
        self._file = IndexFile(path, embedder.name if embedder else "", tables)
        self.read, self.write = self._file.read, self._file.write
        self._matrix: tuple[Any, Matrix] | None = None
        self._counted: tuple[int, int, dict[tuple[int, str], int]] = (-1000, 0, {})

    @property
    def amiss(self) -> str:
        """Why the file was made anew, like "it was missing"; "" once a search has told it."""
        return self._file.amiss

    def count(self) -> int:
        """How many documents there are."""
        return self._file.read(_size)

    # ── stamps of what was indexed, for whoever fills it ──

    def stamps(self) -> dict[str, Any]:
        return self._file.read(
            lambda db: {path: json.loads(stamp) for path, stamp in db.execute("SELECT path, stamp FROM stamps")}
        )

    # ── writing ──

    def put(self, documents: Iterable[Document], *, stamps: Mapping[str, Any] | None = None,
            remove: Collection[str] = ()) -> None:  # fmt: skip
        """Let the ids of these documents have these pieces and no others. In the same transaction `remove` ids, and set
        `stamps`: path → JSON, None to take one away."""
        documents = list(documents)

        def put(db: sqlite3.Connection) -> None:
            self.put_in(db, documents, remove)
            _stamp(db, stamps or {})

        self._file.write(put)
        if documents:
            self.embed()

    def put_in(self, db: sqlite3.Connection, documents: Sequence[Document], remove: Collection[str] = ()) -> None:
        """`put`, in a transaction of the caller's, who has them embedded after it."""
        ids = {each.id for each in documents} | set(remove)
        stirred: set[int] = set()
        vectors = _vectors(db, ids)
        _delete(db, ids, stirred)
        for each in documents:
            row = _insert(db, each, stirred)
            if vector := vectors.get((each.id, each.piece, each.title, each.text)):
                db.execute(_VECTOR, (row, vector))
        _index(db, stirred)

    def remove(self, ids: Iterable[str]) -> None:
        self.put((), remove=set(ids))

    def stamp(self, path: str, stamp: Any) -> None:
        """Keep what its file looked like; None to forget it."""
        self.put((), stamps={path: stamp})

    def replace_all(self, documents: Iterable[Document], *, stamps: Mapping[str, Any] | None = None) -> None:
        """These and no others. Vectors of texts that are the same are kept."""
        documents = list(documents)

        def replace(db: sqlite3.Connection) -> None:
            self.replace_in(db, documents)
            db.execute("DELETE FROM stamps")
            _stamp(db, stamps or {})

        self._file.write(replace)
        self.embed()

    def replace_in(self, db: sqlite3.Connection, documents: Iterable[Document]) -> None:
        """`replace_all`, in a transaction of the caller's, who has them embedded after it."""
        ordered = sorted(documents, key=lambda each: (_place(each), each.at, each.id, each.piece))
        vectors = _vectors(db, None)
        for table in ("documents", "vectors", "words1", "words0"):
            db.execute(f"DELETE FROM {table}")
        first = 1 + (db.execute("SELECT seq FROM sqlite_sequence").fetchone() or (0,))[0]
        rows: list[tuple[Any, ...]] = []
        words: dict[bool, list[tuple[int, str, str]]] = {True: [], False: []}
        for place, group in groupby(enumerate(ordered, first), key=lambda each: _place(each[1])):
            members = list(group)
            own = [_own(each.title, each.text, each.at) for _, each in members]
            for n, (row, each) in enumerate(members):
                before = n - 1 if place[0] and n else None
                after = n + 1 if place[0] and n + 1 < len(members) else None
                rows.append((*_values(row, each), members[before][0] if before is not None else 0,
                             members[after][0] if after is not None else 0))  # fmt: skip
                near = " ".join(own[beside] for beside in (before, after) if beside is not None)
                words[place[2]].append((row, f"{own[n]} {_EVERY}", near))
        marks = ", ".join("?" * 14)
        db.executemany(f"INSERT INTO documents ({_FIELDS}, before, after) VALUES ({marks})", rows)
        for side, texts in words.items():
            db.executemany(f"INSERT INTO words{int(side)} (rowid, own, near) VALUES (?, ?, ?)", texts)
        kept = ((row, vectors.get((each.id, each.piece, each.title, each.text)))
                for row, each in enumerate(ordered, first))  # fmt: skip
        db.executemany("INSERT INTO vectors VALUES (?, ?)", (each for each in kept if each[1]))

    def forget(self, ids: Iterable[str]) -> None:
        """Remove them so that no byte of them is left in the file or its log. It rewrites the file."""
        self.remove(ids)
        self._file.scrub()

    def close(self) -> None:
        self._file.close()

    # ── searching ──

    def search(self, query: str, k: int, where: Where, *, method: Method = "file", now: float) -> Found:
        """The best `k` of what `where` allows. `now` in seconds since the epoch."""
        lanes: list[str] = []
        meant = None
        if method != "file":
            meant = self._meant(query, lanes)
        spaced, runs = terms.words(query)

        def search(db: sqlite3.Connection) -> Found:
            pool = max(_POOL, 4 * k)
            documents: dict[int, Document] = {}
            scores: dict[str, dict[int, float]] = {}
            if meant is None or method == "hybrid":
                lanes.extend(name for name, asked in (("lexical", spaced), ("trigram", runs)) if asked)
                matched = self._lexical(db, [*spaced, *runs], where, pool)
                documents = {row: document for row, (_, document) in matched.items()}
                scores["lexical"] = ranking.within({row: score for row, (score, _) in matched.items()})
            if meant is not None:
                nearest, scores["dense"] = self._dense(db, meant, where, pool, documents, lanes)
                documents |= nearest
            return Found(ranking.ranked(documents, scores, now)[:k], lanes)

        found = self._file.read(search)
        if self._file.amiss:
            lanes.append(f"rebuilt: {self._file.amiss}")
            self._file.amiss = ""
        return found

    def _lexical(self, db: sqlite3.Connection, words: list[str], where: Where, wanted: int
                 ) -> dict[int, tuple[float, Document]]:  # fmt: skip
        """The documents that match best, and how well. At first only those are weighed that have a rare one of the
        words, and the filter comes after; where that does not find enough, all of them."""
        found: dict[int, tuple[float, Document]] = {}
        for side in _sides(where) if words else ():
            rare = self._rare(db, side, words)
            some = match = terms.quoted(words)
            if len(rare) < len(words):
                others = [each for each in words if each not in rare]
                some = f"({terms.quoted(rare)}) AND ({terms.quoted([*others, _EVERY])})"
            best = db.execute(_MATCH.format(side=side, only=""), (some, 2 * wanted)).fetchall()
            loaded = _load(db, [row for row, _ in best], where)
            if len(loaded) < wanted and (some != match or len(best) == 2 * wanted):
                condition, values = _condition(where)
                only = f"AND rowid IN (SELECT row FROM documents WHERE {condition})"
                best = db.execute(_MATCH.format(side=side, only=only), (match, *values, wanted)).fetchall()
                loaded = _load(db, [row for row, _ in best], where)
            found |= {row: (-score, loaded[row]) for row, score in best if row in loaded}
        return found

    def _rare(self, db: sqlite3.Connection, side: int, words: Sequence[str]) -> list[str]:
        """The words by which candidates are chosen. Counts are kept while the index is about as large."""
        newest = _one(db, "SELECT max(row) FROM documents") or 0
        if abs(newest - self._counted[0]) > 100 + self._counted[1] // 20:
            self._counted = (newest, _size(db), {})
        _, size, counts = self._counted
        for word in words:
            if (side, word) not in counts:
                counts[side, word] = _one(
                    db, f"SELECT count(*) FROM words{side} WHERE words{side} MATCH ?", terms.quoted([word])
                )
        return ranking.affordable([(word, counts[side, word]) for word in words], _FEW + size // 10)

    def _dense(self, db: sqlite3.Connection, meant: Any, where: Where, wanted: int, known: Mapping[int, Document],
               lanes: list[str]) -> tuple[dict[int, Document], dict[int, float]]:  # fmt: skip
        """The documents that are nearest in meaning, and how near these and the `known` ones are, from 0 to 1."""
        import numpy as np

        matrix = self._current(db)
        if matrix.missing:
            lanes.append(f"vector: {matrix.missing} of {len(matrix.rows)} wait for theirs")
        near = matrix.scores(meant)
        if len(_sides(where)) == 1:
            near[~matrix.vouched] = -np.inf
        open_ = np.isfinite(near)
        if not open_.any():
            return {}, {}
        lowest, highest = float(near[open_].min()), float(near[open_].max())
        loaded = _load(db, matrix.best(near, 2 * wanted), where)
        if len(loaded) < wanted < int(open_.sum()):
            condition, values = _condition(where)
            rows = [row for (row,) in db.execute(f"SELECT row FROM documents WHERE {condition}", values)]
            near[~np.isin(matrix.rows, np.array(rows, dtype=np.int64))] = -np.inf
            loaded = _load(db, matrix.best(near, wanted), where)
        return loaded, ranking.within(matrix.of(near, [*loaded, *known]), lowest, highest)

    # ── vectors ──

    def _meant(self, query: str, lanes: list[str]) -> Any:
        """The vector of a query; None where nothing can make one."""
        if self._embedder is None:
            lanes.append("vector: not installed")
            return None
        vector = self._embedder.embed([query[:_QUERY]])[0]
        if not vector.any():
            return None
        self.embed(_CATCH_UP_S)
        lanes.append(f"vector: {self._embedder.name}")
        return vector

    def _current(self, db: sqlite3.Connection) -> Matrix:
        from clawd.search.vectors import Matrix

        assert self._embedder is not None
        version = self._file.version(db)
        if self._matrix is None:
            self._matrix = (None, Matrix(self._embedder.dimensions))
        if self._matrix[0] != version:
            self._matrix[1].refresh(db)
            self._matrix = (version, self._matrix[1])
        return self._matrix[1]

    def embed(self, seconds: float = _EMBED_S) -> None:
        """Make the vectors that are missing, for so long; outside of a transaction, so that nobody waits for it."""
        if self._embedder is None:
            return
        deadline = time.monotonic() + seconds
        while True:
            lacking = self._file.read(lambda db: db.execute(_LACKING, (_BATCH,)).fetchall())
            if not lacking:
                return
            vectors = self._embedder.embed([f"{title} {text}" if title else text for _, title, text in lacking])
            made = [(row, vector.tobytes()) for (row, _, _), vector in zip(lacking, vectors, strict=True)]
            self._file.write(lambda db, made=made: db.executemany(_VECTOR, made))  # type: ignore[misc]
            if time.monotonic() > deadline:
                return


_FEW = 600  # documents that can always be weighed
_QUERY = 2000  # letters of a query that are embedded
_MATCH = """SELECT rowid, bm25(words{side}, 1.0, 0.4) AS score FROM words{side} WHERE words{side} MATCH ? {only}
ORDER BY score LIMIT ?"""
_LACKING = """SELECT row, title, text FROM documents WHERE row NOT IN (SELECT row FROM vectors) ORDER BY row DESC
LIMIT ?"""
_VECTOR = "INSERT OR IGNORE INTO vectors SELECT row, ?2 FROM documents WHERE row = ?1"


def _sides(where: Where) -> tuple[int, ...]:
    return (1,) if where.floor >= ranking.VOUCHED else (1, 0)


def _condition(where: Where) -> tuple[str, list[Any]]:
    """What may be found at all, as SQL over `documents`."""
    terms: list[tuple[str, list[Any]]] = [
        ("trust >= ?", [where.floor]),
        ("taint >= ?", [where.taint]),
        (f"status IN ({', '.join('?' * len(where.statuses))})", sorted(where.statuses)),
    ]
    if where.kinds:
        terms.append((f"kind IN ({', '.join('?' * len(where.kinds))})", sorted(where.kinds)))
    if not where.hidden:
        terms.append(("shown", []))
    if where.since is not None:
        terms.append(("at >= ?", [where.since]))
    if where.until is not None:
        terms.append(("at <= ?", [where.until]))
    return " AND ".join(sql for sql, _ in terms), [value for _, values in terms for value in values]


def _load(db: sqlite3.Connection, rows: Sequence[int], where: Where) -> dict[int, Document]:
    """The documents among these rows that may be found."""
    condition, values = _condition(where)
    found = db.execute(
        f"SELECT {_FIELDS} FROM documents WHERE row IN {_ROWS} AND {condition}", (json.dumps(rows), *values)
    )
    return {
        row: Document(id, kind, text, at, trust, taint, status, bool(shown), thread, piece, title)
        for row, id, kind, text, at, trust, taint, status, shown, thread, piece, title in found
    }


# ── the tables ──


def _one(db: sqlite3.Connection, sql: str, *values: Any) -> Any:
    row = db.execute(sql, values).fetchone()
    return row[0] if row is not None else None


def _size(db: sqlite3.Connection) -> int:
    return int(_one(db, "SELECT count(*) FROM documents"))


def _place(document: Document) -> tuple[str, bool, bool]:
    """Who are neighbours: those of one thread, of whom none lends the others words that they may not show."""
    return document.thread, document.shown, document.trust >= ranking.VOUCHED


def _own(title: str, text: str, at: float) -> str:
    return f"{terms.indexed(f'{title} {text}')} {terms.day(at)}"


def _values(row: int | None, each: Document) -> tuple[Any, ...]:
    """In the order of _FIELDS."""
    return (row, each.id, each.kind, each.text, each.at, each.trust, each.taint, each.status, each.shown, each.thread,
            each.piece, each.title)  # fmt: skip


def _insert(db: sqlite3.Connection, each: Document, stirred: set[int]) -> int:
    """Put it between its neighbours; gives its row."""
    place = (each.thread, each.shown, each.trust >= ranking.VOUCHED, each.at, each.id, each.piece)
    before, after = (_one(db, sql, *place) or 0 for sql in _BESIDE) if each.thread else (0, 0)
    marks = ", ".join("?" * 14)
    row = db.execute(f"INSERT INTO documents ({_FIELDS}, before, after) VALUES ({marks})",
                     (*_values(None, each), before, after)).lastrowid or 0  # fmt: skip
    db.execute("UPDATE documents SET after = ? WHERE row = ?", (row, before))
    db.execute("UPDATE documents SET before = ? WHERE row = ?", (row, after))
    stirred |= {row, before, after}
    return row


def _delete(db: sqlite3.Connection, ids: Collection[str], stirred: set[int]) -> None:
    found = db.execute(f"SELECT row, before, after, vouched FROM documents WHERE id IN {_ROWS}", (json.dumps([*ids]),))
    for row, _, _, vouched in found.fetchall():
        before, after = db.execute("SELECT before, after FROM documents WHERE row = ?", (row,)).fetchone()
        db.execute("UPDATE documents SET after = ? WHERE row = ?", (after, before))
        db.execute("UPDATE documents SET before = ? WHERE row = ?", (before, after))
        db.execute("DELETE FROM documents WHERE row = ?", (row,))
        db.execute("DELETE FROM vectors WHERE row = ?", (row,))
        db.execute(f"DELETE FROM words{vouched} WHERE rowid = ?", (row,))
        stirred |= {before, after}


def _index(db: sqlite3.Connection, rows: Iterable[int]) -> None:
    """Give FTS5 the words of these rows and of their neighbours as they are now."""
    for row in sorted(rows):
        if (found := db.execute(_OWN, (row,)).fetchone()) is None:
            continue
        vouched, before, after, *own = found
        near = [_own(*db.execute(_TEXT, (each,)).fetchone()) for each in (before, after) if each]
        db.execute(f"INSERT OR REPLACE INTO words{vouched} (rowid, own, near) VALUES (?, ?, ?)",
                   (row, f"{_own(*own)} {_EVERY}", " ".join(near)))  # fmt: skip


def _vectors(db: sqlite3.Connection, ids: Collection[str] | None) -> dict[tuple[str, int, str, str], bytes]:
    """Those that are there, by the text that they are of; of these ids, or all."""
    sql = "SELECT id, piece, title, text, vector FROM documents JOIN vectors USING (row)"
    found = db.execute(sql) if ids is None else db.execute(f"{sql} WHERE id IN {_ROWS}", (json.dumps([*ids]),))
    return {(id, piece, title, text): vector for id, piece, title, text, vector in found}


def _stamp(db: sqlite3.Connection, stamps: Mapping[str, Any]) -> None:
    for path, stamp in stamps.items():
        if stamp is None:
            db.execute("DELETE FROM stamps WHERE path = ?", (path,))
        else:
            db.execute("INSERT OR REPLACE INTO stamps VALUES (?, ?)", (path, json.dumps(stamp)))


_TEXT = "SELECT title, text, at FROM documents WHERE row = ?"
_OWN = "SELECT vouched, before, after, title, text, at FROM documents WHERE row = ?"
_BESIDE = tuple(
    f"""SELECT row FROM documents WHERE thread <> '' AND thread = ? AND shown = ? AND vouched = ?
    AND (at, id, piece) {than} (?, ?, ?) ORDER BY at {way}, id {way}, piece {way} LIMIT 1"""
    for than, way in (("<", "DESC"), (">", "ASC"))
)
