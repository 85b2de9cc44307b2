"""The doctor: what is wrong here, and the command that mends it. It looks at the same things as the daemon does, and
writes nothing, but for `recover`, which makes a new ledger out of a damaged one and keeps the old file."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from clawd import __version__
from clawd.clock import rfc3339
from clawd.config.group import not_built
from clawd.config.home import Home
from clawd.config.load import check_file, load_config, load_group
from clawd.errors import ClawdError, HomeBusy, LedgerCorrupt
from clawd.files import sync_directory
from clawd.ids import folder_name, new_id
from clawd.ledger import groups, queries
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.groups import UID_BASE
from clawd.ledger.salvage import FoundGroup, FoundSession, salvage
from clawd.locks import HomeLock
from clawd.resources import shipped
from clawd.sandbox import probe
from clawd.sandbox.choose import install_id
from clawd.sessions import reading
from clawd.sessions.names import rebuild

Finding = dict[str, Any]

FREE_BYTES = 500 << 20


def finding(check: str, level: str, message: str, command: str | None = None) -> Finding:
    return {"check": check, "level": level, "message": message, "command": command}


def doctor(home: Home) -> list[Finding]:
    """Every check, each on its own: one that fails is a finding, not the end."""
    findings = []
    for check in (_home, _config, _sandbox, _disk, _daemon, _ledger):
        try:
            findings += list(check(home))
        except (ClawdError, OSError) as error:
            hint = error.hint if isinstance(error, ClawdError) else None
            message = error.message if isinstance(error, ClawdError) else str(error)
            findings.append(finding(check.__name__.strip("_"), "error", message, hint))
    return findings


def _home(home: Home) -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield finding("clawd", "ok", f"clawd {__version__} on Python {version}")
    if not home.root.is_dir():
        yield finding("home", "error", f"there is no home at {home.root}", f"clawd init {home.root}")
        return
    yield finding("home", "ok", str(home.root))
    for directory in (home.state, home.groups):
        if not directory.exists():
            continue
        status = directory.stat()
        if status.st_uid != os.geteuid():
            yield finding("rights", "error", f"{directory} belongs to another user", f"chown -R $USER {directory}")
        elif stat.S_IMODE(status.st_mode) & 0o077:
            yield finding("rights", "error", f"others can look into {directory}", f"chmod 700 {directory}")


def _config(home: Home) -> Iterator[Finding]:
    files = [home.config_file, *sorted(home.groups.glob("*/group.toml"))]
    sound = True
    for file in files:
        if not file.exists():
            continue
        for error in check_file(file)["errors"]:
            sound = False
            where = file.parent.relative_to(home.root) / error["where"]
            message = f"{where}: {error['what']} ({error['hint']})"
            yield finding("config", "error", message, f"clawd config check {file}")
    if not sound:
        return
    config = load_config(home, dict(os.environ))
    yield finding("config", "ok", "config.toml and every group.toml are understood")
    for name in not_built(config):
        yield finding("config", "warn", f"{name} is accepted, but what it configures is not built yet")
    for group in sorted(home.groups.glob("*/group.toml")):
        for name in not_built(load_group(home, group.parent.name)):
            yield finding("config", "warn", f"{name} in {group} is accepted, but not built yet")


def _sandbox(home: Home) -> Iterator[Finding]:
    for each in probe.doctor(install_id(home.root), shipped("containers/agent")):
        yield finding(each.check, each.level, each.message, each.command)


def _disk(home: Home) -> Iterator[Finding]:
    free = shutil.disk_usage(home.root).free
    level = "ok" if free > FREE_BYTES else "error"
    yield finding(
        "disk", level, f"{free >> 20} MB free", None if level == "ok" else f"free some space below {home.root}"
    )
    if home.state.exists() and not os.access(home.state, os.W_OK):
        yield finding("disk", "error", f"{home.state} cannot be written", f"chmod u+w {home.state}")


def _daemon(home: Home) -> Iterator[Finding]:
    lock = HomeLock(home.lock_file)
    if not home.state.is_dir():
        return
    try:
        lock.acquire()
    except HomeBusy as busy:
        yield finding("daemon", "ok", busy.message.removeprefix("another "))
    else:
        lock.release()
        yield finding("daemon", "ok", "no daemon runs now; clawd chat starts one for the time of a conversation")


def _ledger(home: Home) -> Iterator[Finding]:
    if not home.ledger_file.exists():
        yield finding("ledger", "ok", "none yet: it is made with the first message")
        return
    ledger = Ledger.read_only(home.ledger_file)
    try:
        yield from ledger.tx(_read_ledger)
        for row in ledger.tx(groups.every):
            if not home.group(row.folder).root.is_dir():
                message = f"groups/{row.folder} is gone; it is made again with the group's next message"
                yield finding("groups", "warn", message)
    finally:
        ledger.close()


def _read_ledger(tx: Transaction) -> list[Finding]:
    verdict = tx.one("PRAGMA integrity_check(1)")
    if verdict is None or verdict[0] != "ok":
        return [
            finding("ledger", "error", f"the ledger is damaged: {verdict and verdict[0]}", "clawd doctor --recover")
        ]
    counts = queries.turn_counts(tx)
    found = [finding("ledger", "ok", f"sound; {counts['queued']} turns wait, {counts['running']} run")]
    if counts["held"]:
        reasons = {row["held"] for row in tx.all("SELECT held FROM turn WHERE state = 'held'")}
        found.append(finding("turns", "warn", f"{counts['held']} turns are held: {'; '.join(sorted(reasons))}"))
    failed = tx.all("SELECT seq FROM inbound WHERE state = 'failed' ORDER BY seq DESC LIMIT 3")
    found += [
        finding("messages", "warn", f"message {row['seq']} failed", f"clawd messages retry {row['seq']}")
        for row in failed
    ]
    lost = tx.all("SELECT id, channel, chat, error FROM delivery WHERE state = 'failed' ORDER BY id DESC LIMIT 3")
    for row in lost:
        where = f"delivery {row['id']} to {row['channel']}:{row['chat']}"
        found.append(finding("deliveries", "warn", f"{where} failed: {row['error']}", "clawd deliveries list"))
    return found


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
    found = salvage(kept / home.ledger_file.name, new, list(_folders(home)), list(_sessions(home)), rfc3339(now))
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


def _sessions(home: Home) -> Iterator[FoundSession]:
    """Every session file, with the turns whose blocks are whole in it."""
    for group in _folders(home):
        directory = home.group(group.name).sessions
        for id, stem in rebuild(directory).items():
            finished = set()
            for block in reading.load(directory / f"{stem}.md").blocks:
                n, _, of = str(block.meta.get("n", "")).partition("/")
                if type(block.meta.get("turn")) is int and n and n == of and "note" not in block.meta:
                    finished.add(block.meta["turn"])
            yield FoundSession(id, group.name, stem, frozenset(finished))
