"""What can be seen of a home, whether a daemon runs or not: functions over the ledger and the files that give
JSON-ready data under the contract's names. Nothing here writes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from clawd import __version__
from clawd.clock import rfc3339
from clawd.commands import channels, schedules
from clawd.commands.limits import problems
from clawd.config.home import Home, group_folders
from clawd.config.load import check_file, check_home, load_config, load_group, machine_zone, merged
from clawd.config.models import command_of
from clawd.config.presets import services
from clawd.errors import ConfigError, NotFound
from clawd.ledger import approvals as approval_rows
from clawd.ledger import groups as group_rows
from clawd.ledger import queries
from clawd.ledger.db import Transaction, peek
from clawd.ledger.groups import GroupRow
from clawd.model import Authority, Block
from clawd.sessions import reading
from clawd.sessions.names import rebuild
from clawd.trust import Role
from clawd.usage import reports
from clawd.usage.books import Rules
from clawd.usage.budgets import period

T = TypeVar("T")
Shown = dict[str, Any]


def _read(home: Home, work: Callable[[Transaction], T]) -> T | None:
    """What `work` reads, None for a home that has no ledger yet."""
    return peek(home.ledger_file, work)


def _groups(home: Home) -> list[GroupRow]:
    """Every group of the ledger, then the folders that the daemon has not met yet."""
    rows = _read(home, group_rows.every) or []
    known = {row.folder for row in rows}
    return rows + [GroupRow(name, name, 0, Authority(Role.OWNER)) for name in group_folders(home) if name not in known]


def check_group(home: Home, name: str | None) -> None:
    """Raises NotFound for the name of no group; None is every group."""
    if name is not None and name not in [row.name for row in _groups(home)]:
        raise NotFound(f"there is no group {name!r}", hint=f"clawd groups add {name}")


def status(home: Home) -> Shown:
    """The same shape as the daemon's own word, for a home without one."""
    return {
        "version": __version__,
        "pid": None,
        "home": str(home.root),
        "uptime_s": 0,
        "ready": False,
        "groups": len(_groups(home)),
        "turns": _read(home, queries.turn_counts) or {"queued": 0, "running": 0, "held": 0},
        "sandboxes": 0,
        "channels": [{"channel": each["channel"], "state": each["state"]} for each in channels.closed(home)],
        "webhooks": None,
    }


def groups(home: Home) -> list[Shown]:
    """Every group. One whose own config is broken has no engine here; the doctor says what is wrong with it."""
    config = load_config(home, dict(os.environ))
    sessions = _read(home, group_rows.session_counts) or {}
    shown = []
    for row in _groups(home):
        settings = None
        with suppress(ConfigError):
            settings = merged(config, load_group(home, row.folder))
        shown.append(
            {
                "group": row.name,
                "folder": str(home.group(row.folder).root),
                "sessions": sessions.get(row.name, 0),
                "bindings": list(settings.group.bindings) if settings else [],
                "engine": settings.model.engine if settings else None,
                "backend": settings.sandbox.backend if settings else None,
                "authority": row.authority.role,
                "taint": row.authority.taint,
            }
        )
    return shown


def group(home: Home, name: str) -> Shown:
    """One group, with what is in its folder. Raises NotFound."""
    for found in groups(home):
        if found["group"] == name:
            folder = home.group(name)
            names = [path.name for path in folder.root.iterdir()] if folder.root.is_dir() else []
            return {**found, "files": sorted(names)}
    raise NotFound(f"there is no group {name!r}", hint=f"clawd groups add {name}")


def budgets(home: Home) -> list[Shown]:
    """A row for each limit of every group, then of every service, in the shape of `usage.reports.budget`."""
    config, now = load_config(home, dict(os.environ)), datetime.now(UTC)
    asked = []
    for row in _groups(home):
        with suppress(ConfigError):  # the doctor says what is wrong with it
            settings = merged(config, load_group(home, row.folder))
            asked.append((Rules(row.name, settings.budget, None, None), period(now, settings.timezone)))
    today = period(now, config.claw.timezone or machine_zone())
    asked += [(Rules(None, None, name, service.limits), today) for name, service in services(config).items()]

    def rows(tx: Transaction | None) -> list[Shown]:
        return [row for rules, when in asked for row in reports.budget(tx, rules, when, now)]

    return rows(None) if (found := _read(home, rows)) is None else found


def usage(home: Home, by: str) -> list[Shown]:
    """What was used, in the shape of `usage.reports.usage`."""
    return _read(home, lambda tx: reports.usage(tx, by)) or []


def messages(home: Home, group: str | None, state: str | None, limit: int) -> list[Shown]:
    check_group(home, group)
    return _read(home, lambda tx: queries.messages(tx, group, state, limit)) or []


def message(home: Home, id: int) -> Shown:
    found = _read(home, lambda tx: queries.message(tx, id))
    if found is None:
        raise NotFound(f"there is no message {id}")
    return found


def deliveries(home: Home) -> list[Shown]:
    return _read(home, queries.deliveries) or []


def approvals(home: Home) -> list[Shown]:
    """What the owner was asked, what is open first."""
    return [approval_rows.shown_as(row) for row in _read(home, approval_rows.listed) or []]


def approval(home: Home, id: int) -> Shown:
    """One, with all that the person was shown and what will be done. Raises NotFound."""
    row = _read(home, lambda tx: approval_rows.numbered(tx, id))
    if row is None:
        raise NotFound(f"there is no approval {id}", hint="clawd approvals list")
    return {**approval_rows.shown_as(row), "words": row["words"], "effect": json.loads(row["effect"])}


def sessions(home: Home, group: str | None, session: str | None = None) -> list[Shown]:
    """Every session, or the segments of one conversation; its file may not exist before its first turn is recorded, and
    one that a person put there is in no ledger before something is said in it. Raises NotFound."""
    check_group(home, group)
    rows = (
        _read(
            home,
            lambda tx: tx.all(
                "SELECT s.id, s.grp, s.stem, g.folder, s.made FROM session s JOIN grp g ON g.name = s.grp"
                " WHERE s.stem <> '' AND (?1 IS NULL OR s.grp = ?1) AND (?2 IS NULL OR ?2 IN (s.id, s.base))"
                " ORDER BY s.grp, s.base, s.segment",
                group,
                session,
            ),
        )
        or []
    )
    named = [each for each in _dropped(home) if group in (None, each["group"]) and session in (None, each["id"])]
    every: list[Any] = [
        *rows,
        *({**each, "grp": each["group"], "folder": each["group"], "made": None} for each in named),
    ]
    shown = []
    for row in every:
        file = home.group(row["folder"]).sessions / f"{row['stem']}.md"
        exists = file.is_file()
        updated = rfc3339(datetime.fromtimestamp(file.stat().st_mtime, UTC)) if exists else row["made"]
        shown.append(
            {
                "session": row["id"],
                "group": row["grp"],
                "file": str(file),
                "messages": reading.count(file) if exists else 0,
                "bytes": file.stat().st_size if exists else 0,
                "updated": updated,
            }
        )
    return shown


def config_check(home: Home, file: Path | None) -> Shown:
    """Whether a config.toml or group.toml is valid, or without one all of a home's and its schedules, and every finding
    if not."""
    if file is not None:
        return check_file(file)
    found = check_home(home)
    for group in group_folders(home) if found["ok"] else ():
        try:
            config = load_config(home, dict(os.environ))
            command_of(config, merged(config, load_group(home, group)).model)
        except ConfigError as error:
            found["errors"].append({"where": f"group {group} [model]", "what": error.message, "hint": error.hint or ""})
    for group, what, hint in problems(home) if found["ok"] else ():
        found["errors"].append({"where": f"group {group} [context]", "what": what, "hint": hint or ""})
    for row in schedules.listed(home, None) if found["ok"] else ():
        if (row["error"] or "").startswith("groups/"):  # of a file, and not that it paused itself
            where, _, what = row["error"].partition(": ")
            found["errors"].append({"where": where, "what": what, "hint": ""})
    return {**found, "ok": not found["errors"]}


def session_file(home: Home, id: str) -> Path:
    """The file of a session: the newest segment of a plain id, the first of `<id>.1`. Raises NotFound."""
    if (place := session_place(home, id)) is None:
        raise NotFound(f"there is no session {id!r}", hint="clawd session list")
    group, stem = place
    return home.group(group).sessions / f"{stem}.md"


def session_place(home: Home, id: str) -> tuple[str, str] | None:
    """(group, stem) of a session that is in the ledger, or whose file a person put there."""

    def read(tx: Transaction) -> tuple[str, str] | None:
        row = group_rows.meant(tx, id)
        return (group_rows.get(tx, row.group).folder, row.stem) if row else None

    dropped = ((each["group"], each["stem"]) for each in _dropped(home) if each["id"] == id)
    return _read(home, read) or next(dropped, None)


def _dropped(home: Home) -> Iterator[dict[str, Any]]:
    """{id, group, stem} of session files that a person put there, and the ledger does not know yet."""
    known, ids = _read(home, lambda tx: (group_rows.stems(tx), group_rows.session_ids(tx))) or ({}, set())
    for folder in group_folders(home):
        for id, stem in rebuild(home.group(folder).sessions, known.get(folder, ())).items():
            if id not in ids:
                ids.add(id)
                yield {"id": id, "group": folder, "stem": stem}


def session_blocks(home: Home, id: str) -> list[Shown]:
    """The session's messages: {role, ts, content, tool_calls?, tool_call_id?, turn?}."""
    path = session_file(home, id)
    if not path.exists():
        return []
    return rows_of(reading.load(path).blocks)


def rows_of(blocks: Iterable[Block]) -> list[Shown]:
    """Messages in the shape of `session_blocks`."""
    shown = []
    for block in blocks:
        entry: Shown = {"role": block.role, "ts": rfc3339(block.at) if block.at else None, "content": block.content}
        if block.tool_calls:
            entry["tool_calls"] = list(block.tool_calls)
        if block.tool_call_id:
            entry["tool_call_id"] = block.tool_call_id
        if isinstance(block.meta.get("turn"), int):
            entry["turn"] = block.meta["turn"]
        if reading.is_external(block):
            entry["from"] = block.meta["from"]
        shown.append(entry)
    return shown


def session_check(home: Home, id: str) -> Shown:
    path = session_file(home, id)
    if not path.exists():
        return {"ok": True, "file": str(path), "messages": 0, "repaired": 0, "errors": []}
    return reading.check(path)
