"""The doctor: what is wrong here, and the command that mends it. It looks at the same things as the daemon does, and
writes nothing, but for `recover`, which makes a new ledger out of a damaged one and keeps the old file."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from clawd.clock import SystemClock, rfc3339
from clawd.config.home import Home
from clawd.config.load import check_file, load_config, load_group
from clawd.config.schema import not_built
from clawd.errors import ClawdError
from clawd.ledger import groups, queries
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.salvage import salvage
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
    yield finding("python", "ok", f"Python {version}")
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
            yield finding(
                "config", "error", f"{error['where']}: {error['what']} ({error['hint']})", f"clawd config check {file}"
            )
    if not sound:
        return
    config = load_config(home, dict(os.environ))
    yield finding("config", "ok", "config.toml and every group.toml are understood")
    for name in not_built(config):
        yield finding("config", "warn", f"[{name}] is accepted, but what it configures is not built yet")
    for group in sorted(home.groups.glob("*/group.toml")):
        for name in not_built(load_group(home, group.parent.name)):
            yield finding("config", "warn", f"[{name}] in {group} is accepted, but not built yet")


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
    except ClawdError as busy:
        yield finding("daemon", "ok", busy.message)
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
    kept = home.backups / f"damaged-{now:%Y%m%d-%H%M%S}"
    kept.mkdir(mode=0o700)
    for suffix in ("", "-wal", "-shm"):
        part = home.ledger_file.with_name(home.ledger_file.name + suffix)
        if part.exists():
            shutil.copy2(part, kept / part.name)
    new = home.state / "ledger.new.db"
    new.unlink(missing_ok=True)
    # Groups and sessions come first: what a damaged table lost of them is in the folders.
    found = salvage(kept / home.ledger_file.name, new, _finished(home), rfc3339(now))
    _rebuild_sessions(home, new)
    for suffix in ("", "-wal", "-shm"):
        home.ledger_file.with_name(home.ledger_file.name + suffix).unlink(missing_ok=True)
    new.rename(home.ledger_file)
    yield finding("ledger", "warn", f"{trouble}; the damaged file is kept in {kept}")
    for table in found.damaged:
        yield finding(
            "ledger", "warn", f"not every row of {table} could be read; {found.rows.get(table, 0)} were saved"
        )
    saved = ", ".join(f"{count} of {table}" for table, count in found.rows.items() if count)
    yield finding("ledger", "ok", f"a new ledger holds what was saved: {saved or 'nothing'}")
    if found.finished:
        yield finding("ledger", "ok", f"{len(found.finished)} turns are finished, as their session files show")


def _trouble(home: Home) -> str | None:
    if not home.ledger_file.exists():
        return None
    try:
        ledger = Ledger.open(home.ledger_file)
    except ClawdError as error:
        return error.message
    try:
        verdict = ledger.tx(lambda tx: tx.one("PRAGMA integrity_check(1)"))
        return None if verdict is not None and verdict[0] == "ok" else "the ledger is damaged"
    except ClawdError as error:
        return error.message
    finally:
        ledger.close()


def _session_files(home: Home) -> Iterator[tuple[str, str, str]]:
    """(group folder, session id, stem) of every session file."""
    for group in sorted(home.groups.iterdir()) if home.groups.is_dir() else ():
        for id, stem in rebuild(home.group(group.name).sessions).items():
            yield group.name, id, stem


def _finished(home: Home) -> dict[int, str]:
    """Turns whose blocks are whole in a session file."""
    finished: dict[int, str] = {}
    for folder, id, stem in _session_files(home):
        for block in reading.load(home.group(folder).sessions / f"{stem}.md").blocks:
            n, _, of = str(block.meta.get("n", "")).partition("/")
            if isinstance(block.meta.get("turn"), int) and n and n == of:
                finished[block.meta["turn"]] = id
    return finished


def _rebuild_sessions(home: Home, path: Any) -> None:
    """Every folder is a group and every session file a session, whatever the ledger lost."""
    now = rfc3339(SystemClock().now())
    ledger = Ledger.open(path)

    def work(tx: Transaction) -> None:
        for folder, id, stem in _session_files(home):
            groups.add(tx, folder, now)
            if tx.one("SELECT 1 FROM session WHERE id = ?", id) is None:
                base, _, number = id.rpartition(".")
                segment = int(number) if base and number.isdigit() else 1
                if segment == 1 or tx.one("SELECT 1 FROM session WHERE base = ?", base) is None:
                    base, segment = id, 1
                tx.insert("session", id=id, base=base, segment=segment, grp=folder, stem=stem, made=now)

    try:
        ledger.tx(work)
    finally:
        ledger.close()
