"""The ledger and its blobs as a store. Erasing takes the content away and keeps the keys: what was once received is
never received again, and a group keeps its number for ever."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clawd.ledger import forget, injected
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.stores import Scope

_WHERE = {"group": "grp = ?", "channel": "channel = ?", "person": "sender = ?"}


class LedgerStore:
    """Over a connection of its own: the one of a running daemon belongs to its thread."""

    name = "ledger"

    def __init__(self, file: Path, blobs: Path) -> None:
        self._file, self._blobs = file, blobs

    def locate(self, scope: Scope) -> list[Path | str]:
        """`ledger.db: message 7`, `… injected 7` for what has text left, and the blobs that were sent because of it."""
        with _opened(self._file) as ledger:
            messages, injected, blobs = ledger.tx(
                lambda tx: (_messages(tx, scope), _injected(tx, scope), _blobs(tx, scope))
            )
        rows = [f"message {row['seq']}" for row in messages] + [f"injected {id}" for id in injected]
        return [*(f"ledger.db: {row}" for row in rows), *(self._blobs / name for name in blobs)]

    def erase(self, scope: Scope) -> None:
        with _opened(self._file) as ledger:
            for name in ledger.tx(lambda tx: _forget(tx, scope)):
                (self._blobs / name).unlink(missing_ok=True)

    def back_up(self, scope: Scope, target: Path) -> None:
        """The whole ledger, because its rows refer to each other, and the scope's blobs."""
        state = target / "state"
        (state / "blobs").mkdir(mode=0o700, parents=True, exist_ok=True)
        with _opened(self._file) as ledger:
            blobs = ledger.tx(lambda tx: _blobs(tx, scope))
            ledger.copy(state / self._file.name)
        for name in blobs:
            if (self._blobs / name).is_file():
                shutil.copy2(self._blobs / name, state / "blobs" / name)


@contextmanager
def _opened(file: Path) -> Iterator[Ledger]:
    ledger = Ledger.open(file)
    try:
        yield ledger
    finally:
        ledger.close()


def _messages(tx: Transaction, scope: Scope) -> list[Row]:
    return tx.all(f"SELECT seq, turn FROM inbound WHERE {_WHERE[scope.kind]} AND parts <> '[]'", scope.name)


def _injected(tx: Transaction, scope: Scope) -> list[int]:
    """What came into the scope's sessions from outside and is not in their files yet. It is of no person."""
    where = {"group": "grp = ?1", "channel": "substr(session, 1, length(?1) + 1) = ?1 || ':'", "person": "?1 IS NULL"}
    sql = f"SELECT id FROM injected WHERE {where[scope.kind]} AND blocks <> '[]' ORDER BY id"
    return [row["id"] for row in tx.all(sql, scope.name)]


def _turns(tx: Transaction, scope: Scope) -> list[int]:
    if scope.kind == "person":
        rows = tx.all("SELECT DISTINCT turn AS id FROM inbound WHERE sender = ? AND turn IS NOT NULL", scope.name)
    else:
        rows = tx.all(f"SELECT id FROM turn WHERE {_WHERE[scope.kind]}", scope.name)
    return [row["id"] for row in rows]


def _blobs(tx: Transaction, scope: Scope) -> set[str]:
    """Blobs that only this scope's deliveries refer to."""
    turns = set(_turns(tx, scope))
    rows = tx.all("SELECT turn, blob FROM delivery WHERE blob IS NOT NULL")
    return {row["blob"] for row in rows if row["turn"] in turns} - {
        row["blob"] for row in rows if row["turn"] not in turns
    }


def _forget(tx: Transaction, scope: Scope) -> set[str]:
    blobs = _blobs(tx, scope)
    for row in _messages(tx, scope):
        forget.forget_message(tx, row["seq"])
    for turn in _turns(tx, scope):
        forget.forget_turn(tx, turn)
    injected.drop(tx, _injected(tx, scope))
    if scope.kind == "group":
        for table in ("seen", "changed", "watching", "recalled"):  # names of files, and of memories
            tx.execute(f"DELETE FROM {table} WHERE grp = ?", scope.name)
        tx.execute("UPDATE schedule SET facts = NULL, error = NULL, paused = NULL WHERE grp = ?", scope.name)
        tx.execute("UPDATE firing SET reason = NULL WHERE grp = ?", scope.name)
    return blobs
