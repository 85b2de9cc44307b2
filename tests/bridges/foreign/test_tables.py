from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from clawd.bridges.foreign import tables
from clawd.bridges.foreign.place import Place
from tests.bridges.homes import database, files

ROWS = [("2", "b"), ("1", "a"), ("3", "c")]


def read(
    home: Path, name: str = "t", wanted: tuple[str, ...] = ("at", "x"), newest: str = "at"
) -> tuple[list[dict[str, object]], Place]:
    place = Place(home, "nanoclaw")
    with tables.opened(place, "x.db") as found:
        return ([] if found is None else found.rows(name, wanted, newest=newest)), place


def test_rows_come_in_order_with_the_columns_that_there_are(tmp_path: Path) -> None:
    database(tmp_path / "x.db", "CREATE TABLE t (at TEXT, x TEXT)", {"t": ROWS})

    assert read(tmp_path, wanted=("at", "x", "gone"))[0] == [{"at": n, "x": x} for n, x in sorted(ROWS)]
    rows, place = read(tmp_path, name="none")
    assert (rows, place.brought.left) == ([], [])


def test_what_only_the_log_has_is_read_and_nothing_is_written_beside_it(tmp_path: Path) -> None:
    database(tmp_path / "x.db", "PRAGMA journal_mode = WAL; CREATE TABLE t (at TEXT, x TEXT)")
    live = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    live.execute("PRAGMA wal_autocheckpoint = 0")
    live.executemany("INSERT INTO t VALUES (?, ?)", ROWS)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}

    rows, _ = read(tmp_path)

    assert [row["x"] for row in rows] == ["a", "b", "c"]
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    live.close()


@pytest.mark.parametrize(
    "schema",
    [
        "CREATE VIEW t AS SELECT 1 AS at, 2 AS x",
        "CREATE VIEW t AS WITH RECURSIVE n(at) AS (SELECT 1 UNION ALL SELECT at + 1 FROM n) SELECT at, at AS x FROM n",
        "CREATE VIRTUAL TABLE t USING fts5(at, x)",
        "CREATE TABLE t (at TEXT, x TEXT AS (upper(at)))",
    ],
)
def test_what_would_be_run_is_not(tmp_path: Path, schema: str) -> None:
    rows = "INSERT INTO t (at) VALUES ('1');" if "TABLE" in schema else ""
    database(tmp_path / "x.db", f"{schema}; {rows}")

    rows, place = read(tmp_path)

    assert rows == []
    assert [(left.source, left.why) for left in place.brought.left] == [
        ("x.db#t", "it cannot be read: it is damaged, or no table of its own kind")
    ]


def test_a_trigger_is_never_fired_and_odd_cells_are_text(tmp_path: Path) -> None:
    database(
        tmp_path / "x.db",
        "CREATE TABLE t (at, x); CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT RAISE(IGNORE); END;",
        {"t": [(1, b"\xff\0\xfe"), (2.5, None), ("\udcff".encode("utf-8", "surrogatepass"), 7)]},
    )
    rows, _ = read(tmp_path)

    assert sorted(tables.cell(row, "x") for row in rows) == ["", "7", "\ufffd\ufffd\ufffd"]
    assert all(tables.cell(row, "at").encode() for row in rows)


def test_rows_and_bytes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database(tmp_path / "x.db", "CREATE TABLE t (at TEXT, x TEXT)", {"t": [(f"{n:03}", "x" * 10) for n in range(50)]})
    monkeypatch.setattr(tables, "ROWS", 5)
    rows, place = read(tmp_path)
    assert [row["at"] for row in rows] == ["045", "046", "047", "048", "049"]
    assert [left.why for left in place.brought.left] == ["only 5 rows of it are read, the newest"]

    monkeypatch.setattr(tables, "BYTES", 30)
    rows, _ = read(tmp_path)
    assert [row["at"] for row in rows] == ["048", "049"]


def test_one_that_takes_too_long_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database(tmp_path / "x.db", "CREATE TABLE t (at TEXT, x TEXT)", {"t": [(f"{n:05}", "x") for n in range(5_000)]})
    monkeypatch.setattr(tables, "_STEPS", 10)
    monkeypatch.setattr(tables, "_PATIENCE", 50)

    rows, place = read(tmp_path)

    assert rows == []
    assert [left.why for left in place.brought.left] == ["it cannot be read: it takes too long"]


def test_what_is_no_database_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files(tmp_path, {"x.db": b"SQLite format 3\0" + b"\xff" * 4000})
    assert [left.why for left in read(tmp_path)[1].brought.left] == ["it is no SQLite database, or a damaged one"]

    (tmp_path / "x.db").unlink()
    database(tmp_path.parent / "outside.db", "CREATE TABLE t (at TEXT, x TEXT)", {"t": ROWS})
    (tmp_path / "x.db").symlink_to(tmp_path.parent / "outside.db")
    rows, place = read(tmp_path)
    assert (rows, [left.why for left in place.brought.left]) == ([], ["it is a link, or cannot be read"])

    (tmp_path / "x.db").unlink()
    database(tmp_path / "x.db", "CREATE TABLE t (at TEXT, x TEXT)", {"t": ROWS})
    monkeypatch.setattr(tables, "LARGEST", 100)
    assert [left.why for left in read(tmp_path)[1].brought.left] == ["it is larger than 0 KB"]
