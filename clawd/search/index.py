"""The index of one group: documents that are found by their words, by their meaning, or both.

Its file is made anew, empty, whenever it is not right (`amiss`): whoever fills it sees by tables of its own that there
is nothing, and fills it again. What is trusted below VOUCHED lies in a table of its own: however much of it there is,
it moves nothing in a search that it may not take part in. One loader says for every method what may be found.

Calls block; any thread may make them, and several processes. They raise StorageError, and DiskFull.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from clawd.search import ranking, tables, terms
from clawd.search.document import Document, Found, Where
from clawd.search.embedders import Embedder
from clawd.search.file import IndexFile

if TYPE_CHECKING:
    from clawd.search.vectors import Matrix

Method = Literal["file", "vector", "hybrid"]

_EMBED_S, _CATCH_UP_S = 10.0, 0.5  # how long a write, and a search, embeds what has no vector yet
_FEW = 1000  # documents that can always be weighed
_QUERY = 2000  # letters of a query that are embedded
_MATCH = """SELECT rowid, bm25(words{side}, 1.0, 0.4) AS score FROM words{side} WHERE words{side} MATCH ? {only}
ORDER BY score LIMIT ?"""
_LACKING = """SELECT row, title, text FROM points JOIN documents USING (row)
WHERE vector IS NULL AND points.vouched >= 0 ORDER BY row DESC LIMIT ?"""


class Index:
    """`path` is its file; without an `embedder` only words are searched. `tables` are the caller's own, as SQL: `read`
    and `write` them, together with documents by `put_in` and `replace_in`. `fill` is called when it was made anew."""

    def __init__(
        self,
        path: Path,
        embedder: Embedder | None = None,
        tables: str = "",
        fill: Callable[[], object] = lambda: None,
    ) -> None:
        self.path = path
        self._embedder = embedder
        self._file = IndexFile(path, embedder.name if embedder else "", tables, fill)
        self.read, self.write = self._file.read, self._file.write
        self._matrix: tuple[Any, Matrix] | None = None
        self._counted: tuple[int, int, dict[tuple[int, str], int]] = (-1000, 0, {})

    @property
    def amiss(self) -> str:
        """Why the file was made anew, like "it was missing"; "" once a search has told it."""
        return self._file.amiss

    def version(self, db: sqlite3.Connection) -> Any:
        """It differs when anything may have changed, by whomever."""
        return self._file.version(db)

    def count(self) -> int:
        """How many documents there are."""
        return self._file.read(tables.size)

    # ── writing ──

    def put(self, documents: Iterable[Document]) -> None:
        """Let the ids of these documents have these pieces and no others."""
        documents = list(documents)
        self._file.write(lambda db: self.put_in(db, documents))
        self.embed()

    def put_in(self, db: sqlite3.Connection, documents: Iterable[Document], remove: Collection[str] = ()) -> None:
        """`put`, in a transaction of the caller's, who has them embedded after it."""
        pieces = tables.sound(documents)
        tables.put(db, pieces, {each.id for each in pieces} | set(remove))

    def remove(self, ids: Iterable[str]) -> None:
        removed = set(ids)
        self._file.write(lambda db: self.put_in(db, (), removed))

    def replace_all(self, documents: Iterable[Document]) -> None:
        """These and no others. Vectors of texts that are the same are kept."""
        documents = list(documents)
        self._file.write(lambda db: self.replace_in(db, documents))
        self.embed()

    def replace_in(self, db: sqlite3.Connection, documents: Iterable[Document]) -> None:
        """`replace_all`, in a transaction of the caller's, who has them embedded after it."""
        tables.replace(db, tables.sound(documents))

    def forget(self, ids: Iterable[str]) -> None:
        """Remove them so that no byte of them is left in the file or its log. It rewrites the file."""
        self.remove(ids)
        self._file.scrub()

    def close(self) -> None:
        self._file.close()

    # ── searching ──

    def search(self, query: str, k: int, where: Where, *, method: Method = "file", now: float) -> Found:
        """The best `k` of what `where` allows. `now` in seconds since the epoch."""
        used: list[str] = []
        meant = self._meant(query, used) if method != "file" else None
        spaced, runs = terms.words(query)

        def search(db: sqlite3.Connection) -> Found:
            lanes = list(used)
            documents: dict[int, Document] = {}
            scores: dict[str, dict[int, float]] = {}
            if meant is None or method == "hybrid":
                lanes.extend(name for name, asked in (("lexical", spaced), ("trigram", runs)) if asked)
                matched = self._lexical(db, [*spaced, *runs], where, k)
                documents = {row: document for row, (_, document) in matched.items()}
                scores["lexical"] = ranking.within({row: score for row, (score, _) in matched.items()})
            if meant is not None:
                nearest, near, bounds = self._dense(db, meant, where, k, documents, lanes)
                documents |= nearest
                scores["dense"] = ranking.within(near, *bounds) if scores else near
            return Found(ranking.ranked(documents, scores, now)[:k], lanes)

        found = self._file.read(search)
        if self._file.amiss:
            found.lanes.append(f"rebuilt: {self._file.amiss}")
            self._file.amiss = ""
        return found

    def _lexical(self, db: sqlite3.Connection, words: list[str], where: Where, k: int
                 ) -> dict[int, tuple[float, Document]]:  # fmt: skip
        """The documents that match best, and how well. At first only those are weighed that have a rare one of the
        words, and the filter comes after; where that does not find enough, all of them."""
        found: dict[int, tuple[float, Document]] = {}
        for side in _sides(where) if words else ():
            match, whole = self._match(db, side, words)
            best = db.execute(_MATCH.format(side=side, only=""), (match, _pool(k))).fetchall()
            loaded = tables.load(db, [row for row, _ in best], where)
            if len(loaded) < 2 * k and not (whole and len(best) < _pool(k)):
                condition, values = tables.condition(where)
                # The + keeps SQLite from asking FTS5 for each of these rows.
                only = f"AND +rowid IN (SELECT row FROM documents WHERE {condition})"
                best = db.execute(
                    _MATCH.format(side=side, only=only), (terms.quoted(words), *values, _pool(k))
                ).fetchall()
                loaded = tables.load(db, [row for row, _ in best], where)
            found |= {row: (-score, loaded[row]) for row, score in best if row in loaded}
        return found

    def _match(self, db: sqlite3.Connection, side: int, words: Sequence[str]) -> tuple[str, bool]:
        """An expression for FTS5 that can be weighed in time, and whether it finds all that has any of the words. How
        many documents have a word is counted again when the index has another size."""
        newest = tables.one(db, "SELECT max(row) FROM documents") or 0
        if abs(newest - self._counted[0]) > 100 + self._counted[1] // 20:
            self._counted = (newest, tables.size(db), {})
        _, size, counts = self._counted
        budget = max(_FEW, size // 12)
        if size <= budget:
            return terms.quoted(words), True
        for word in words:
            if (side, word) not in counts:
                counts[side, word] = tables.one(
                    db, f"SELECT count(*) FROM words{side} WHERE words{side} MATCH ?", terms.quoted([word])
                )
        rare = ranking.affordable([(word, counts[side, word]) for word in words], budget)
        others = [(word, counts[side, word]) for word in words if word not in rare]
        if not others:
            return terms.quoted(words), True
        heard = ranking.affordable(others, 3 * budget)
        return f"({terms.quoted(rare)}) AND ({terms.quoted([*heard, tables.EVERY])})", False

    def _dense(self, db: sqlite3.Connection, meant: Any, where: Where, k: int, known: Mapping[int, Document],
               lanes: list[str]) -> tuple[dict[int, Document], dict[int, float], tuple[float, float]]:  # fmt: skip
        """The documents that are nearest in meaning, how near these and the `known` ones are, and how near the farthest
        and the nearest of all."""
        import numpy as np

        matrix = self._current(db)
        waiting, count = matrix.waiting()
        if waiting:
            lanes.append(f"vector: {waiting} of {count} wait for theirs")
        near = matrix.scores(meant, _sides(where))
        open_ = np.isfinite(near)
        if not open_.any():
            return {}, {}, (0.0, 1.0)
        bounds = float(near[open_].min()), float(near[open_].max())
        loaded = tables.load(db, matrix.best(near, _pool(k)), where)
        if len(loaded) < 2 * k and int(open_.sum()) > _pool(k):
            condition, values = tables.condition(where)
            rows = [row for (row,) in db.execute(f"SELECT row FROM documents WHERE {condition}", values)]
            near[~np.isin(matrix.rows, np.array(rows, dtype=np.int64))] = -np.inf
            loaded = tables.load(db, matrix.best(near, _pool(k)), where)
        return loaded, matrix.of(near, [*loaded, *known]), bounds

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
        if (embedder := self._embedder) is None:
            return
        deadline = time.monotonic() + seconds
        while True:
            lacking = self._file.read(lambda db: db.execute(_LACKING, (embedder.batch,)).fetchall())
            if not lacking:
                return
            vectors = embedder.embed([f"{title} {text}" if title else text for _, title, text in lacking])
            made = [(row, vector.tobytes()) for (row, _, _), vector in zip(lacking, vectors, strict=True)]

            def keep(db: sqlite3.Connection, made: list[tuple[int, bytes]] = made) -> None:
                now = tables.change(db)
                db.executemany(
                    "UPDATE points SET vector = ?, changed = ? WHERE row = ? AND vouched >= 0",
                    ((vector, now, row) for row, vector in made),
                )

            self._file.write(keep)
            if time.monotonic() > deadline:
                return


def _pool(k: int) -> int:
    """How many candidates each method gives: what else counts may move one up."""
    return max(40, 4 * k)


def _sides(where: Where) -> tuple[int, ...]:
    return (1,) if where.floor >= ranking.VOUCHED else (1, 0)
