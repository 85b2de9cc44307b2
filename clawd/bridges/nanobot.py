"""Reading the home of nanobot: `~/.nanobot`, or a workspace of it.

How its files lie, older layouts among it (repository HKUDS/nanobot):
- `config.json`, its keys in camelCase or snake_case, and `workspace/` beside it (docs/concepts.md,
  nanobot/config/paths.py);
  `providers.*.apiKey`, `channels.*.{token,allowFrom,…}`, `agents.defaults.workspace` (nanobot/config/schema.py);
- of a workspace AGENTS.md, SOUL.md, USER.md, TOOLS.md, HEARTBEAT.md and `skills/<name>/SKILL.md`
  (nanobot/agent/context.py, nanobot/agent/skills.py); `memory/MEMORY.md`, which is free text, `memory/HISTORY.md` of
  paragraphs that begin with `[2026-04-03 10:00]`, or later `memory/history.jsonl` of {cursor, timestamp, content}
  (docs/memory.md, nanobot/agent/memory.py); daily notes of the first versions;
- jobs in `cron/jobs.json`, of the home and later of the workspace: {jobs: [{id, name, enabled, schedule: {kind: at,
  every or cron, atMs, everyMs, expr, tz}, payload: {kind, message, deliver, channel, to, sessionKey}}]}
  (nanobot/cron/types.py, nanobot/cron/service.py);
- sessions as JSON lines, a line of `_type: metadata` among them, in `sessions/` of the workspace and of the home
  (nanobot/session/manager.py); later in `sessions/<id of the workspace>/sessions.sqlite3`, tables `sessions` and
  `messages(session_key, position, record)` (nanobot/session/sqlite_store.py, nanobot/session/location.py).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from clawd.arrivals.items import Brought
from clawd.bridges import loose
from clawd.bridges.foreign import secrets, talks
from clawd.bridges.foreign.bringing import HEARTBEAT, Bringing
from clawd.bridges.foreign.jobs import Job, delivered
from clawd.bridges.foreign.place import DATA, JUNK, rows, table, text_of, within
from clawd.bridges.foreign.tables import cell, opened
from clawd.errors import UsageError
from clawd.model import Block

_INSTRUCTIONS = ("AGENTS.md", "SOUL.md", "IDENTITY.md", "TOOLS.md")
_PAGES = frozenset({*_INSTRUCTIONS, "USER.md", HEARTBEAT})
_OF_A_WORKSPACE = frozenset({*_PAGES, "memory", "skills", "sessions", "cron", "sessions.db", "sessions.sqlite3"})
_OF_THE_HOME = frozenset({"config.json", "workspace", "sessions", "cron"})
_OF_SYSTEM = ("dream", "heartbeat")  # jobs that nanobot makes itself


def read(home: Path, group: str | None, *, now: datetime | None = None) -> Brought:
    """All that it has; with `group` all for that group, else for `main`. Raises UsageError for what is no such home."""
    bringing = Bringing(home, "nanobot", group, now)
    place, main = bringing.place, bringing.group("main", main=True)
    is_home = place.kind("config.json") == "file" or place.kind("workspace") == "folder"
    if not is_home and not any(place.kind(name) for name in (*_PAGES, "memory/MEMORY.md", "memory/history.jsonl")):
        raise UsageError(
            f"nothing of nanobot lies in {home}", hint="its home is ~/.nanobot, with config.json and workspace/"
        )
    workspaces = ["workspace"] if place.kind("workspace") == "folder" else []
    if is_home:
        _config(bringing, workspaces)
    for folder in workspaces if is_home else [""]:
        _workspace(bringing, main, folder)
    if is_home:
        _jobs(bringing, main, "cron/jobs.json")
        _sessions(bringing, main, "sessions")
        known = _OF_THE_HOME | {folder.partition("/")[0] for folder in workspaces}
        known |= secrets.credentials(place, "") | JUNK
        bringing.rest("", lambda name: name in known, "it is of its program's own use")
    return bringing.done()


def _config(bringing: Bringing, workspaces: list[str]) -> None:
    place = bringing.place
    config = table(place.json("config.json"))
    if not config:
        return
    secrets.config(place, "config.json", config)
    place.leave("config.json", "settings and keys are entered anew")
    wanted = text_of(table(table(config.get("agents")).get("defaults")).get("workspace"))
    inside = place.inside(wanted, (".nanobot",)) if wanted else None
    if inside and place.kind(inside) == "folder" and inside not in workspaces:
        workspaces.insert(0, inside)
    elif wanted and not inside:
        place.elsewhere(wanted, bringing.group("main", main=True))


def _workspace(bringing: Bringing, group: str, folder: str) -> None:
    pages = bringing.pages
    for name in _INSTRUCTIONS:
        pages.instructions(group, within(folder, name))
    pages.profile(group, within(folder, "USER.md"))
    bringing.heartbeat(group, within(folder, HEARTBEAT))
    memory = within(folder, "memory")
    bringing.memories(group, memory, but=lambda named: named in ("HISTORY.md", "history.jsonl"))
    pages.history(group, within(memory, "HISTORY.md"))
    _entries(bringing, group, within(memory, "history.jsonl"))
    bringing.skills.folder(group, within(folder, "skills"))
    _jobs(bringing, group, within(folder, "cron/jobs.json"))
    _sessions(bringing, group, within(folder, "sessions"))
    _database(bringing, group, within(folder, "sessions.db"))
    if folder:
        bringing.rest(folder, lambda name: name in _OF_A_WORKSPACE or name in JUNK, "nanobot reads it on demand alone")


def _entries(bringing: Bringing, group: str, path: str) -> None:
    broken = 0
    for record in _lines(bringing, path):
        at = talks.moment(record.get("timestamp")) if record is not None else None
        if record is None or at is None:
            broken += 1
            continue
        bringing.pages.entry(group, path, at.astimezone(), text_of(record.get("content")))
    if broken:
        bringing.place.leave(path, f"{broken} of its lines cannot be read")


def _jobs(bringing: Bringing, group: str, path: str) -> None:
    if not bringing.place.kind(path):
        return
    for job in rows(table(bringing.place.json(path)).get("jobs")):
        schedule, payload = table(job.get("schedule")), table(job.get("payload"))
        id, kind = text_of(job.get("id")), text_of(schedule.get("kind"))
        source = f"{path}#{id}"
        if text_of(payload.get("kind")) == "system_event" and id in _OF_SYSTEM:
            bringing.place.leave(source, "nanobot makes it by itself")
            continue
        value = {"cron": schedule.get("expr"), "every": _either(schedule, "everyMs"), "at": _either(schedule, "atMs")}
        if kind not in value:
            bringing.place.leave(source, "it does not say when it is due")
            continue
        bringing.jobs.add(
            Job(
                id,
                source,
                group,
                kind,  # type: ignore[arg-type]
                value[kind],
                text_of(payload.get("message")),
                text_of(job.get("name")),
                text_of(schedule.get("tz")),
                job.get("enabled") is not False,
                own=not _either(payload, "sessionKey"),
                said=delivered(payload) if payload.get("deliver") else (),
            )
        )


def _sessions(bringing: Bringing, group: str, folder: str) -> None:
    place = bringing.place
    for path in place.files(folder, deepest=1):
        name = path.rpartition("/")[2]
        if name.endswith(".jsonl"):
            _session(bringing, group, path)
        elif name == "sessions.sqlite3":
            _database(bringing, group, path)
        elif not name.endswith((".sqlite3-wal", ".sqlite3-shm", ".checkpoint.json")):
            place.leave(path, "it is no session")


def _session(bringing: Bringing, group: str, path: str) -> None:
    key, records, broken = "", list[dict[str, Any]](), 0
    for record in _lines(bringing, path):
        if record is None:
            broken += 1
        elif record.get("_type") == "metadata":
            key = text_of(record.get("key")) or key
        elif "_type" not in record:
            records.append(record)
    if not records and not broken:
        bringing.place.leave(path, "it has no messages")
        return
    said = [f"{broken} lines of it cannot be read"] if broken else []
    key = key or _key(path.rpartition("/")[2].removesuffix(".jsonl"))
    bringing.talks.add(group, path, key, _blocks(records, key), *said)


def _database(bringing: Bringing, group: str, path: str) -> None:
    with opened(bringing.place, path) as tables:
        if tables is None:
            return
        talks_of = dict[str, list[tuple[float, dict[str, Any]]]]()
        for row in tables.rows("messages", ("session_key", "position", "record")):
            record = _record(cell(row, "record"))
            if record is not None:
                position = row["position"] if isinstance(row.get("position"), int | float) else 0
                talks_of.setdefault(cell(row, "session_key"), []).append((position, record))
    for key, found in sorted(talks_of.items()):
        records = [record for _, record in sorted(found, key=lambda each: each[0])]
        bringing.talks.add(group, f"{path}#{key}", key, _blocks(records, key))


def _blocks(records: Iterable[dict[str, Any]], key: str) -> list[Block]:
    blocks = []
    for record in records:
        role, at = record.get("role"), record.get("timestamp")
        text = talks.words(record.get("content"))
        if role == "tool":
            blocks.append(talks.result(record.get("tool_call_id"), text, at))
        elif role == "assistant" and (calls := rows(record.get("tool_calls"))):
            made = ((call.get("id"), table(call.get("function"))) for call in calls)
            blocks.append(
                talks.called(
                    text, at, [talks.call(id, each.get("name"), each.get("arguments", "{}")) for id, each in made]
                )
            )
        elif role in ("user", "assistant"):
            blocks.append(talks.said(role, text, at, owner=key.startswith("cli")))
    return blocks


def _lines(bringing: Bringing, path: str) -> Iterable[dict[str, Any] | None]:
    """The tables of a file of JSON lines; None for each that is none."""
    if not bringing.place.kind(path) or (found := bringing.place.text(path, DATA)) is None:
        return []
    return [_record(line) for line in found.text.split("\n") if line.strip()]


def _record(line: str) -> dict[str, Any] | None:
    try:
        value = loose.read(line)
    except loose.NotJson:
        return None
    return value if isinstance(value, dict) else None


def _key(stem: str) -> str:
    """What a session is called by its file: the key in base64, or with `_` for the colon."""
    try:
        key = base64.urlsafe_b64decode(stem + "=" * (-len(stem) % 4)).decode()
        if key.isprintable() and ":" in key:
            return key
    except ValueError:
        pass
    return stem.replace("_", ":", 1)


def _either(values: dict[str, Any], camel: str) -> Any:
    """A value by its name in camelCase, or in snake_case."""
    snake = "".join(f"_{each.lower()}" if each.isupper() else each for each in camel)
    return values.get(camel, values.get(snake))
