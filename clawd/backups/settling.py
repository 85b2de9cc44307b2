"""Makes what came out of an archive fit for this home, while it still lies aside: the ledger, and the lines that the
trust ledger is to be told. Nothing of the home is changed here."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections import deque
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from clawd.backups.index import Index
from clawd.backups.making import KNOWN, LEDGER, ROWS, TRUST
from clawd.backups.merging import merged
from clawd.clock import Clock, rfc3339
from clawd.config.home import Home
from clawd.errors import ClawdError, LedgerCorrupt, LedgerNewer, Refused
from clawd.ids import is_group_name
from clawd.ledger import moved, restored
from clawd.ledger.db import Ledger, Row, Transaction, schema_version
from clawd.ledger.moved import Known, Rows
from clawd.ledger.restored import Settled
from clawd.memory.provenance import Stamp, TrustLedger, fields_of, stamp_of
from clawd.sessions.format import MARKER_LINE, parse

log = logging.getLogger(__name__)
MOST_KNOWN = 256 << 20


def known(new: Path) -> Known:
    """What the archive knows of trust. Raises Refused."""
    try:
        with (new / KNOWN).open("rb") as file:
            return moved.known_of(file.read(MOST_KNOWN))
    except FileNotFoundError:
        return moved.known_of(b"{}")


def home_ledger(home: Home, new: Path, clock: Clock) -> tuple[Settled, bool]:
    """Bring the archive's ledger to this program's schema, and end what was open in it. Gives what that was, and
    whether the present ledger could be asked. Raises Refused."""
    file = new / LEDGER
    file.parent.mkdir(mode=0o700, exist_ok=True)
    ledger = opened(file)
    present = _present(home)
    try:
        said, now = known(new), rfc3339(clock.now())

        def work(tx: Transaction) -> tuple[Settled, bool]:
            _are_groups(tx, new)
            found = restored.settle(tx, said, lambda turn: _is_in_file(tx, new, turn), now)
            tx.execute("SAVEPOINT present")
            try:
                if present is not None:
                    restored.carry_over(tx, present, found)
                    return found, True
            except sqlite3.DatabaseError as error:
                log.warning("the present ledger cannot be read: %s", error)
                tx.execute("ROLLBACK TO present")
            finally:
                tx.execute("RELEASE present")
            restored.without_present(tx)
            return found, not home.ledger_file.exists()

        done = ledger.tx(work)
    finally:
        ledger.close()
        if present is not None:
            present.close()
    (new / "state" / "ballast").unlink(missing_ok=True)
    return done


def opened(file: Path) -> Ledger:
    """The archive's ledger, migrated. Raises Refused."""
    _check_schema(file)
    try:
        ledger = Ledger.open(file)
    except LedgerNewer as error:
        raise Refused(f"the archive's ledger is a newer clawd's ({error.message})", hint=error.hint) from None
    except LedgerCorrupt:
        raise Refused("the archive's ledger is damaged") from None
    verdict = ledger.tx(lambda tx: tx.one("PRAGMA integrity_check(1)"))
    if verdict is None or verdict[0] != "ok":
        ledger.close()
        raise Refused("the archive's ledger is damaged")
    return ledger


def _check_schema(file: Path) -> None:
    """A ledger does nothing by itself: what comes from outside could have its tables act on what we write."""
    if not file.exists():
        return
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        try:
            acts = connection.execute("SELECT 1 FROM sqlite_master WHERE type NOT IN ('table', 'index')").fetchone()
        except sqlite3.Error:
            raise Refused("the archive's ledger is damaged") from None
    if acts is not None:
        raise Refused("the archive's ledger is not one of clawd's")


def _present(home: Home) -> sqlite3.Connection | None:
    """The ledger that is to be replaced, at this program's schema; None where there is none that can be read."""
    if not home.ledger_file.exists():
        return None
    try:
        Ledger.open(home.ledger_file, home.backups).close()
    except ClawdError as error:
        log.warning("the present ledger cannot be read: %s", error)
        return None
    connection = sqlite3.connect(f"{home.ledger_file.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    connection.row_factory = sqlite3.Row
    return connection


def _are_groups(tx: Transaction, new: Path) -> None:
    """A ledger speaks of no group whose name could lead out of `groups/`."""
    for row in tx.all("SELECT name, folder FROM grp"):
        if row["name"] != row["folder"] or not is_group_name(row["folder"]):
            raise Refused("the archive's ledger has a group with a name that none has")
    for row in tx.all("SELECT stem FROM session WHERE stem <> ''"):
        if "/" in row["stem"] or "\0" in row["stem"] or row["stem"].startswith("."):
            raise Refused("the archive's ledger has a session with a file that none has")


def _is_in_file(tx: Transaction, new: Path, turn: Row) -> bool:
    row = tx.one("SELECT grp, stem FROM session WHERE id = ? AND stem <> ''", turn["session"])
    return row is not None and turn["id"] in turns_in(new / "groups" / row["grp"] / "sessions" / f"{row['stem']}.md")


def turns_in(file: Path) -> set[int]:
    """The turns whose last block a session's file has, read line by line."""
    found = set()
    with suppress(OSError), file.open("rb") as lines:
        for line in lines:
            if (match := MARKER_LINE.match(line)) is None or b'"turn"' not in line:
                continue
            for block in parse(match[0] + b"\n", whole=False).blocks:
                n, _, of = str(block.meta.get("n", "")).partition("/")
                if type(block.meta.get("turn")) is int and n and n == of and "note" not in block.meta:
                    found.add(block.meta["turn"])
    return found


def group_rows(index: Index, new: Path, group: str) -> Rows:
    """A group's rows, out of its own archive or a home's. Raises Refused."""
    if index.head.kind == "home":
        if not (new / LEDGER).exists():
            return {table: [] for table in moved.TABLES}
        ledger = opened(new / LEDGER)
        try:
            return ledger.tx(lambda tx: moved.of_ledger(tx, group))
        finally:
            ledger.close()
    if index.head.ledger > schema_version():
        raise Refused(
            f"the archive's rows have schema {index.head.ledger}, this clawd knows up to {schema_version()}",
            hint="use the newer clawd",
        )
    try:
        with (new / ROWS).open("rb") as file:
            return moved.read(file, group)
    except FileNotFoundError:
        return {table: [] for table in moved.TABLES}


def trust_lines(home: Home, new: Path, group: str | None, to: Path) -> int:
    """Write what the trust ledger is to be told, a line each. Gives how many. Raises Refused, OSError."""
    count = 0
    with to.open("x", encoding="utf-8", errors="surrogatepass") as out:
        for stamp in merged(_of(TrustLedger(home.state / "trust.jsonl").read(), group), _backup(new / TRUST, group)):
            out.write(json.dumps(fields_of(stamp), ensure_ascii=True) + "\n")
            count += 1
    return count


def _of(stamps: Iterator[Stamp], group: str | None) -> Iterator[Stamp]:
    return (stamp for stamp in stamps if group in (None, stamp.group))


def _backup(file: Path, group: str | None) -> Iterator[Stamp]:
    with suppress(FileNotFoundError), file.open("rb") as lines:
        yield from _of((stamp for line in lines if (stamp := stamp_of(line)) is not None), group)


def tell_trust(home: Home, lines: Path) -> None:
    """Append those of the lines that are not there yet. Raises OSError, StorageError."""
    ledger = TrustLedger(home.state / "trust.jsonl")
    with lines.open("rb") as file:
        wanted = [stamp for line in file if (stamp := stamp_of(line)) is not None]
    if wanted and list(deque(ledger.read(), len(wanted))) != wanted:
        ledger.append(*wanted)
