"""Makes a new ledger out of a damaged one, and keeps the old file."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from clawd.clock import rfc3339
from clawd.config.home import Home
from clawd.errors import ClawdError, LedgerCorrupt
from clawd.files import read_beneath, sync_directory
from clawd.health.findings import Finding, finding
from clawd.ids import folder_name, new_id
from clawd.ledger.db import Ledger
from clawd.ledger.groups import UID_BASE
from clawd.ledger.salvage import FoundGroup, FoundSession, salvage
from clawd.lifecycle import state
from clawd.locks import HomeLock
from clawd.sessions import reading
from clawd.sessions.names import rebuild


def recover(home: Home) -> list[Finding]:
    """Make a new ledger from what a damaged one still holds and from the session files; keep the old file."""
    lock = HomeLock(home.lock_file)
    home.create()
    lock.acquire()
    try:
        return list(_recover(home))
    finally:
        lock.release()


def _recover(home: Home) -> Iterator[Finding]:
    trouble = _trouble(home)
    if trouble is None:
        yield finding("ledger", "ok", "the ledger is sound; nothing was changed")
        return
    now = datetime.now().astimezone()
    kept = home.backups / f"damaged-{now:%Y%m%d-%H%M%S}-{new_id()[:4]}"
    kept.mkdir(mode=0o700)
    for part in _parts(home.ledger_file):
        shutil.copy2(part, kept / part.name)
    new = home.state / "ledger.new.db"
    for part in _parts(new):
        part.unlink()
    trouble_of_files: list[str] = []
    sessions = list(_sessions(home, trouble_of_files))
    found = salvage(kept / home.ledger_file.name, new, list(_folders(home)), sessions, rfc3339(now))
    for part in _parts(home.ledger_file):
        part.unlink()
    new.rename(home.ledger_file)
    sync_directory(home.state)
    yield finding("ledger", "warn", f"{trouble}; the damaged file is kept in {kept}")
    for table in found.damaged:
        yield finding(
            "ledger", "warn", f"not every row of {table} could be read; {found.rows.get(table, 0)} were saved"
        )
    saved = ", ".join(f"{count} of {table}" for table, count in found.rows.items() if count)
    yield finding("ledger", "ok", f"a new ledger holds what was saved: {saved or 'nothing'}")
    if found.finished:
        yield finding("ledger", "ok", f"{len(found.finished)} turns are finished, as their session files show")
    if found.contexts:
        yield finding("context", "ok", f"what {len(found.contexts)} sessions hold on to is from their state.json")
    for sentence in trouble_of_files:
        yield finding("context", "warn", sentence)
    if found.waiting:
        yield finding("messages", "ok", f"{found.waiting} messages wait for their answer", "clawd run")
    if found.lost:
        yield finding("messages", "warn", f"{found.lost} turns lost their message; whoever sent it must send it again")
    for group in found.groups:
        yield finding(
            "groups",
            "warn",
            f"how far {group} can be trusted was lost: its owner says so",
            f"clawd groups trust {group}",
        )


def _parts(ledger: Path) -> list[Path]:
    """The file of a ledger and those beside it that belong to it."""
    return [part for suffix in ("", "-wal", "-shm") if (part := ledger.with_name(ledger.name + suffix)).exists()]


def _trouble(home: Home) -> str | None:
    """What is damaged, None for a sound ledger or none. Raises what is no damage: a full disk, a newer schema."""
    if not home.ledger_file.exists():
        return None
    try:
        ledger = Ledger.open(home.ledger_file)
        try:
            verdict = ledger.tx(lambda tx: tx.one("PRAGMA integrity_check(1)"))
        finally:
            ledger.close()
    except LedgerCorrupt as error:
        return error.message
    return None if verdict is not None and verdict[0] == "ok" else f"the ledger is damaged ({verdict and verdict[0]})"


def _folders(home: Home) -> Iterator[FoundGroup]:
    """Every folder of a group, with the number that the owner of its work/ tells."""
    for entry in sorted(home.groups.iterdir()):
        if not entry.is_dir() or entry.is_symlink():
            continue
        with suppress(ClawdError):
            work = home.group(folder_name(entry.name)).work
            uid = work.lstat().st_uid if work.exists() else 0
            yield FoundGroup(entry.name, uid - UID_BASE if UID_BASE < uid < UID_BASE + 100_000 else None)


def _sessions(home: Home, trouble: list[str]) -> Iterator[FoundSession]:
    """Every session file, with the turns whose blocks are whole in it, and what its state.json has."""
    for group in _folders(home):
        directory = home.group(group.name).sessions
        for id, stem in rebuild(directory).items():
            finished, base, path = set(), "", directory / f"{stem}.md"
            for block in reading.load(path).blocks:
                n, _, of = str(block.meta.get("n", "")).partition("/")
                if type(block.meta.get("turn")) is int and n and n == of and "note" not in block.meta:
                    finished.add(block.meta["turn"])
                    base = base or str(block.meta.get("base", ""))
            context, pins = _context(directory, stem, trouble)
            yield FoundSession(id, group.name, stem, frozenset(finished), reading.trust(path), base, context, pins)


def _context(
    directory: Path, stem: str, trouble: list[str]
) -> tuple[Mapping[str, Any] | None, Sequence[Mapping[str, Any]]]:
    """What a session's state.json has of it; why that cannot be used is added to `trouble`."""
    name = f"{stem}.state.json"
    try:
        found = state.read(read_beneath(directory, name, state.MOST_BYTES + 1), f"{directory.parent.name}: {name}")
        return state.columns(found), state.pins(found)
    except FileNotFoundError:
        return None, ()
    except (ClawdError, OSError) as error:
        trouble.append(str(error))
        return None, ()
