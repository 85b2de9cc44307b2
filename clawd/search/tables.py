"""What a put, a removal or a search does in the tables of an index. Each function is part of a transaction."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby, repeat
from typing import Any

from clawd.search import ranking, terms
from clawd.search.document import Document, Where

EVERY = "xzeveryx"  # a word in each document: it matches all and weighs nothing

_PURGE = 1000  # transactions
_ROWS = "(SELECT value FROM json_each(?))"
_FIELDS = "row, id, kind, text, at, trust, taint, status, shown, thread, piece, title, space"
_DOCUMENT = f"INSERT INTO documents ({_FIELDS}) VALUES ({', '.join('?' * 13)})"
_POINT = "INSERT INTO points (row, before, after, vouched, changed, vector) VALUES (?, ?, ?, ?, ?, ?)"
_WORDS = "INSERT OR REPLACE INTO words{side} (rowid, own, near) VALUES (?, ?, ?)"
_TEXT = "SELECT title, text, at FROM documents WHERE row = ?"
_OWN = """SELECT points.vouched, before, after, title, text, at FROM documents JOIN points USING (row)
WHERE row = ?"""
_BESIDE = tuple(
    f"""SELECT row FROM documents WHERE thread <> '' AND thread = ? AND space = ? AND shown = ? AND vouched = ?
    AND (at, id, piece) {than} (?, ?, ?) ORDER BY at {way}, id {way}, piece {way} LIMIT 1"""
    for than, way in (("<", "DESC"), (">", "ASC"))
)


def condition(where: Where) -> tuple[str, list[Any]]:
    """What may be found at all, as SQL over `documents`."""
    parts: list[tuple[str, list[Any]]] = [
        ("trust >= ?", [where.floor]),
        ("taint >= ?", [where.taint]),
        (f"status IN ({', '.join('?' * len(where.statuses))})", sorted(where.statuses)),
        (f"space IN ({', '.join('?' * len(where.spaces))})", sorted(where.spaces)),
    ]
    if where.kinds:
        parts.append((f"kind IN ({', '.join('?' * len(where.kinds))})", sorted(where.kinds)))
    if not where.hidden:
        parts.append(("shown", []))
    if where.since is not None:
        parts.append(("at >= ?", [where.since]))
    if where.until is not None:
        parts.append(("at <= ?", [where.until]))
    return " AND ".join(sql for sql, _ in parts), [value for _, values in parts for value in values]


def load(db: sqlite3.Connection, rows: Sequence[int], where: Where) -> dict[int, Document]:
    """The documents among these rows that may be found."""
    allowed, values = condition(where)
    found = db.execute(
        f"SELECT {_FIELDS} FROM documents WHERE row IN {_ROWS} AND {allowed}", (json.dumps(rows), *values)
    )
    return {
        row: Document(id, kind, text, at, trust, taint, status, bool(shown), thread, piece, title, space)
        for row, id, kind, text, at, trust, taint, status, shown, thread, piece, title, space in found
    }


def one(db: sqlite3.Connection, sql: str, *values: Any) -> Any:
    row = db.execute(sql, values).fetchone()
    return row[0] if row is not None else None


def size(db: sqlite3.Connection) -> int:
    return int(one(db, "SELECT count(*) FROM documents"))


def spaces(db: sqlite3.Connection) -> frozenset[str]:
    """The namespaces that documents are in."""
    return frozenset({"", *(name for (name,) in db.execute("SELECT DISTINCT space FROM documents WHERE space <> ''"))})


def _place(document: Document) -> tuple[str, str, bool, bool]:
    """Who are neighbours: those of one thread, of whom none lends the others words that they may not show."""
    return document.thread, document.space, document.shown, document.trust >= ranking.VOUCHED


def _own(title: str, text: str, at: float) -> str:
    """A document's own words, its day among them."""
    return f"{terms.indexed(f'{title} {text}')} {terms.day(at)}"


def _values(row: int | None, each: Document) -> tuple[Any, ...]:
    """In the order of _FIELDS."""
    return (row, each.id, each.kind, each.text, each.at, each.trust, each.taint, each.status, each.shown, each.thread,
            each.piece, each.title, each.space)  # fmt: skip


def sound(documents: Iterable[Document]) -> list[Document]:
    """One of each id and piece, the last; nothing in them that UTF-8 has no bytes for."""
    pieces = {(each.id, each.piece): each for each in documents}
    return [
        dataclasses.replace(each, text=terms.storable(each.text), title=terms.storable(each.title))
        if not f"{each.text}{each.title}".isascii() else each
        for each in pieces.values()
    ]  # fmt: skip


def put(db: sqlite3.Connection, documents: Sequence[Document], ids: Collection[str]) -> None:
    """Let these ids have these documents and no others."""
    now, vectors = change(db), _vectors(db, ids)
    stirred = _delete(db, ids, now)
    for each in documents:
        stirred |= _insert(db, each, vectors.get(_meaning(each)), now)
    _index(db, stirred)


def replace(db: sqlite3.Connection, documents: Iterable[Document]) -> None:
    """These and no others."""
    now, vectors = change(db), _vectors(db, None)
    for table in ("documents", "points", "words1", "words0"):
        db.execute(f"DELETE FROM {table}")
    db.execute("UPDATE meta SET value = ? WHERE name = 'purged'", (now,))
    first = 1 + (one(db, "SELECT seq FROM sqlite_sequence WHERE name = 'documents'") or 0)
    ordered = sorted(documents, key=lambda each: (_place(each), each.at, each.id, each.piece))
    for place, group in groupby(enumerate(ordered, first), key=lambda each: _place(each[1])):
        rows, members = zip(*group, strict=True)
        befores, afters = ([0, *rows[:-1]], [*rows[1:], 0]) if place[0] else ([0] * len(rows),) * 2
        own = {row: _own(each.title, each.text, each.at) for row, each in zip(rows, members, strict=True)}
        near = (" ".join(own[each] for each in pair if each) for pair in zip(befores, afters, strict=True))
        db.executemany(_DOCUMENT, map(_values, rows, members))
        db.executemany(_POINT, zip(rows, befores, afters, repeat(place[3]), repeat(now),
                                   (vectors.get(_meaning(each)) for each in members)))  # fmt: skip
        db.executemany(_WORDS.format(side=int(place[3])),
                       ((row, f"{own[row]} {EVERY}", lent) for row, lent in zip(rows, near, strict=True)))  # fmt: skip


def _meaning(each: Document) -> tuple[str, int, str, str]:
    """What a vector is known by."""
    return each.id, each.piece, each.title, each.text


def change(db: sqlite3.Connection) -> int:
    """The number of this transaction. Now and then the points of what is gone are taken out; whoever has not seen that
    reads all."""
    now = 1 + int(one(db, "SELECT value FROM meta WHERE name = 'changed'"))
    db.execute("UPDATE meta SET value = ? WHERE name = 'changed'", (now,))
    if now % _PURGE == 0:
        db.execute("DELETE FROM points WHERE vouched < 0")
        db.execute("UPDATE meta SET value = ? WHERE name = 'purged'", (now - 1,))
    return now


def _insert(db: sqlite3.Connection, each: Document, vector: bytes | None, now: int) -> set[int]:
    """Put it between its neighbours; gives the rows whose words are others now."""
    place = (*_place(each), each.at, each.id, each.piece)
    before, after = (one(db, sql, *place) or 0 for sql in _BESIDE) if each.thread else (0, 0)
    row = db.execute(_DOCUMENT, _values(None, each)).lastrowid or 0
    db.execute(_POINT, (row, before, after, each.trust >= ranking.VOUCHED, now, vector))
    db.execute("UPDATE points SET after = ?, changed = ? WHERE row = ?", (row, now, before))
    db.execute("UPDATE points SET before = ?, changed = ? WHERE row = ?", (row, now, after))
    return {row, before, after}


def _delete(db: sqlite3.Connection, ids: Collection[str], now: int) -> set[int]:
    """Gives the rows whose words are others now."""
    stirred = set()
    for row, side in db.execute(
        f"SELECT row, vouched FROM documents WHERE id IN {_ROWS}", (json.dumps([*ids]),)
    ).fetchall():
        before, after = db.execute("SELECT before, after FROM points WHERE row = ?", (row,)).fetchone()
        db.execute("UPDATE points SET after = ?, changed = ? WHERE row = ?", (after, now, before))
        db.execute("UPDATE points SET before = ?, changed = ? WHERE row = ?", (before, now, after))
        db.execute(
            "UPDATE points SET before = 0, after = 0, vouched = -1, vector = NULL, changed = ? WHERE row = ?",
            (now, row),
        )
        db.execute("DELETE FROM documents WHERE row = ?", (row,))
        db.execute(f"DELETE FROM words{side} WHERE rowid = ?", (row,))
        stirred |= {before, after}
    return stirred


def _index(db: sqlite3.Connection, rows: Iterable[int]) -> None:
    """Give FTS5 the words of these rows and of their neighbours as they are now."""
    for row in sorted(rows):
        if (found := db.execute(_OWN, (row,)).fetchone()) is None:
            continue
        vouched, before, after, *own = found
        near = [_own(*db.execute(_TEXT, (each,)).fetchone()) for each in (before, after) if each]
        db.execute(_WORDS.format(side=vouched),
                   (row, f"{_own(*own)} {EVERY}", " ".join(near)))  # fmt: skip


def _vectors(db: sqlite3.Connection, ids: Collection[str] | None) -> dict[tuple[str, int, str, str], bytes]:
    """Those that are there, by the text that they are of; of these ids, or all."""
    sql = "SELECT id, piece, title, text, vector FROM documents JOIN points USING (row) WHERE vector IS NOT NULL"
    found = db.execute(sql) if ids is None else db.execute(f"{sql} AND id IN {_ROWS}", (json.dumps([*ids]),))
    return {(id, piece, title, text): vector for id, piece, title, text, vector in found}
