"""The file: atomic, durable, committed together, and plain about what is wrong with it."""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from clawd.errors import LedgerCorrupt, LedgerNewer, StorageError
from clawd.ledger import db, forget
from clawd.ledger.db import Ledger, Transaction, schema_version


def groups_of(ledger: Ledger) -> list[str]:
    return [row["name"] for row in ledger.tx(lambda tx: tx.all("SELECT name FROM grp ORDER BY number"))]


def add(tx: Transaction, number: int) -> None:
    tx.insert("grp", name=f"g{number}", folder=f"g{number}", number=number, made="now")


@pytest.mark.anyio
async def test_many_at_once_are_all_carried_out_and_a_bad_one_alone_is_undone(ledger: Ledger) -> None:
    outcomes: dict[int, object] = {}

    async def one(number: int) -> None:
        def work(tx: Transaction) -> None:
            add(tx, number)
            if number % 10 == 0:
                raise RuntimeError(number)
            if number % 10 == 5:
                add(tx, number)  # breaks a unique constraint

        try:
            await ledger.do(work)
        except (RuntimeError, sqlite3.IntegrityError) as error:
            outcomes[number] = type(error)

    async with anyio.create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(one, number)
    assert len(groups_of(ledger)) == 80
    assert set(outcomes.values()) == {RuntimeError, sqlite3.IntegrityError} and len(outcomes) == 20


@pytest.mark.anyio
async def test_what_was_answered_is_on_the_disk(ledger: Ledger, tmp_path: Path) -> None:
    await ledger.do(lambda tx: add(tx, 1))
    reader = Ledger.read_only(tmp_path / "ledger.db")
    assert groups_of(reader) == ["g1"]
    reader.close()


def test_a_reader_cannot_write(ledger: Ledger, tmp_path: Path) -> None:
    reader = Ledger.read_only(tmp_path / "ledger.db")
    with pytest.raises(StorageError):
        reader.tx(lambda tx: add(tx, 1))
    reader.close()


@pytest.mark.parametrize("damage", ["header", "page", "empty", "truncated"])
def test_a_damaged_file_is_kept_and_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "ledger.db"
    ledger = Ledger.open(path)
    for number in range(200):
        ledger.tx(lambda tx, number=number: add(tx, number))  # type: ignore[misc]
    ledger.close()
    content = path.read_bytes()
    damaged = {
        "header": b"this is no database" * 300,
        "page": content[:4096] + b"\xff" * 8192 + content[12288:],
        "empty": b"",
        "truncated": content[: len(content) // 2],
    }[damage]
    path.write_bytes(damaged)
    with pytest.raises(LedgerCorrupt, match="doctor --recover"):
        Ledger.open(path)
    assert path.read_bytes() == damaged


def test_what_would_be_written_to_a_file_that_was_taken_away_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    ledger.tx(lambda tx: add(tx, 1))
    (tmp_path / "ledger.db").rename(tmp_path / "elsewhere.db")
    with pytest.raises(StorageError, match="taken away"):
        ledger.tx(lambda tx: add(tx, 2))
    (tmp_path / "elsewhere.db").rename(tmp_path / "ledger.db")
    ledger.tx(lambda tx: add(tx, 3))
    assert groups_of(ledger) == ["g1", "g3"]


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger.open(path).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {schema_version() + 1}")
    connection.close()
    for opening in (Ledger.open, Ledger.read_only):
        with pytest.raises(LedgerNewer, match="newer clawd"):
            opening(path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_says_so_loses_nothing_and_recovers(small_disk: Path) -> None:
    ledger = Ledger.open(small_disk / "ledger.db")
    ledger.tx(lambda tx: add(tx, 1))
    hog = small_disk / "hog"
    with hog.open("wb", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(bytes(1 << 16))
    written = 0
    with pytest.raises(StorageError, match="full"):
        for number in range(2, 100_000):  # the ballast lets some through
            ledger.tx(
                lambda tx, number=number: tx.insert(
                    "grp", name=f"g{number}", folder="x" * 4000 + str(number), number=number, made=""
                )
            )  # type: ignore[misc]
            written = number
    assert written >= 2 and not (small_disk / "ballast").exists()
    with pytest.raises(StorageError, match="is full"):
        ledger.check_room()
    hog.unlink()
    ledger.check_room()
    assert (small_disk / "ballast").exists()
    ledger.tx(lambda tx: add(tx, 200_000))
    assert groups_of(ledger)[0] == "g1" and groups_of(ledger)[-1] == "g200000"
    assert len(groups_of(ledger)) == written + 1
    ledger.close()


def test_a_full_disk_says_so_also_when_the_ledger_is_opened(small_disk: Path) -> None:
    Ledger.open(small_disk / "ledger.db").close()
    with (small_disk / "hog").open("wb", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(bytes(1 << 12))
    with pytest.raises(StorageError, match="is full"):
        Ledger.open(small_disk / "ledger.db")
    (small_disk / "hog").unlink()
    Ledger.open(small_disk / "ledger.db").close()


def test_a_backup_is_made_before_a_migration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    migrations = tmp_path / "migrations"
    shutil.copytree(db._MIGRATIONS, migrations)
    path = tmp_path / "ledger.db"
    ledger = Ledger.open(path)
    ledger.tx(lambda tx: add(tx, 1))
    ledger.close()
    version = schema_version()
    for old in range(1, 6):  # of earlier migrations
        (tmp_path / f"ledger-0{old}.db").write_text("")
        os.utime(tmp_path / f"ledger-0{old}.db", (old, old))
    (tmp_path / "damaged-1").mkdir()
    (migrations / "9999.sql").write_text("ALTER TABLE grp ADD COLUMN colour TEXT;")
    monkeypatch.setattr(db, "_MIGRATIONS", migrations)
    ledger = Ledger.open(path, tmp_path)
    assert groups_of(ledger) == ["g1"]
    assert ledger.tx(lambda tx: tx.one("SELECT colour FROM grp")) is not None
    ledger.close()
    backup = sqlite3.connect(tmp_path / f"ledger-{version}.db")
    assert backup.execute("SELECT name FROM grp").fetchall() == [("g1",)]
    backup.close()
    assert sorted(each.name for each in tmp_path.glob("*-*")) == [
        "damaged-1",
        "ledger-04.db",
        "ledger-05.db",
        f"ledger-{version}.db",
    ]


def test_the_journal_is_cut_once_nobody_reads(ledger: Ledger, tmp_path: Path) -> None:
    journal = tmp_path / "ledger.db-wal"
    ledger.tx(lambda tx: add(tx, 1))
    reader = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM grp").fetchall()
    for number in range(2, 2000):
        ledger.tx(lambda tx, number=number: add(tx, number))  # type: ignore[misc]
    assert not ledger.checkpoint() and journal.stat().st_size > db._JOURNAL_BYTES
    reader.close()
    ledger.tx(lambda tx: add(tx, 2000))
    ledger.tx(lambda tx: add(tx, 2001))  # the first one that begins the journal anew
    assert journal.stat().st_size <= db._JOURNAL_BYTES
    assert ledger.checkpoint() and journal.stat().st_size == 0
    ledger.tx(lambda tx: add(tx, 2002))
    assert len(groups_of(ledger)) == 2002


def test_free_pages_go_back_to_the_disk_in_slices(ledger: Ledger, tmp_path: Path) -> None:
    for number in range(2000):
        ledger.tx(lambda tx, number=number: tx.insert("grp", name=f"g{number}", folder="x" * 4000 + str(number),
                                                      number=number, made=""))  # type: ignore[misc]  # fmt: skip
    ledger.checkpoint()
    full = (tmp_path / "ledger.db").stat().st_size
    ledger.tx(lambda tx: tx.execute("DELETE FROM grp WHERE number > 10"))
    slices = 1
    while ledger.tx(forget.shrink):
        slices += 1
    ledger.checkpoint()
    assert (tmp_path / "ledger.db").stat().st_size < full / 4 and slices > 5
    assert len(groups_of(ledger)) == 11


def test_a_file_that_gives_no_pages_back_holds_nobody_up_and_is_made_anew_at_the_next_start(tmp_path: Path) -> None:
    """As a migration leaves it that was cut off, or a person who restored it."""
    path = tmp_path / "ledger.db"
    ledger = Ledger.open(path)
    ledger._connection.execute("PRAGMA auto_vacuum = NONE")
    ledger._connection.execute("VACUUM")
    for number in range(2000):
        ledger.tx(lambda tx, number=number: tx.insert("grp", name=f"g{number}", folder="x" * 4000 + str(number),
                                                      number=number, made=""))  # type: ignore[misc]  # fmt: skip
    ledger.tx(lambda tx: tx.execute("DELETE FROM grp WHERE number > 10"))
    assert not ledger.tx(forget.shrink)
    ledger.close()
    ledger = Ledger.open(path)
    assert ledger._connection.execute("PRAGMA auto_vacuum").fetchone()[0] == 2
    assert len(groups_of(ledger)) == 11
    ledger.close()


@pytest.mark.anyio
async def test_what_must_be_written_waits_for_a_program_that_keeps_the_file_locked(
    ledger: Ledger, tmp_path: Path
) -> None:
    ledger._connection.execute("PRAGMA busy_timeout = 0")
    other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError, match="locked"):
        await ledger.do(lambda tx: add(tx, 1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ledger.insist, lambda tx: add(tx, 1))
        await anyio.sleep(0.15)
        other.execute("ROLLBACK")
    other.close()
    assert groups_of(ledger) == ["g1"]
