"""The databases of NanoClaw's second generation: `data/v2.db`, and two of each session.

Their tables (nanocoai/nanoclaw docs/db-central.md, docs/db-session.md, docs/api-details.md, src/db/schema.ts):
- `agent_groups(id, folder)`, `messaging_groups(id, channel_type, platform_id, name, unknown_sender_policy)`, which are
  chats, `messaging_group_agents` that binds the two, `sessions(id, agent_group_id, messaging_group_id, thread_id)`,
  `user_roles(user_id, role)`, `container_configs(agent_group_id, cli_scope, additional_mounts)`;
- beneath `data/v2-sessions/<agent group>/<session>/`, `inbound.db` with `messages_in(id, seq, kind, timestamp, status,
  process_after, recurrence, series_id, content)` and `outbound.db` with `messages_out(seq, kind, timestamp, content)`,
  of which `content` is JSON: {text, sender, isFromMe}, {text, author} or {markdown};
- a task is a row of `messages_in` of the kind `task`, `recurrence` its cron line, {prompt, script} its content
  (src/modules/scheduling/db.ts, docs/scheduled-tasks.md). Times without a zone are of UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clawd.bridges import loose
from clawd.bridges.foreign import talks
from clawd.bridges.foreign.bringing import Bringing
from clawd.bridges.foreign.jobs import Job
from clawd.bridges.foreign.place import Place, rows, shown, table, text_of
from clawd.bridges.foreign.tables import Tables, cell, opened
from clawd.bridges.nanoclaw.first import is_folder
from clawd.model import Block

DATABASE = "data/v2.db"
_SESSIONS = "data/v2-sessions"
_MOST = 1_000  # sessions that are opened
_CHAT = ("id", "channel_type", "platform_id", "name", "unknown_sender_policy")
_SESSION = ("id", "agent_group_id", "messaging_group_id", "thread_id")
_OUT = ("timestamp", "seq", "kind", "content")
_IN = ("timestamp", "seq", "id", "series_id", "kind", "status", "process_after", "recurrence", "content")


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent group. `main`: its agent may manage all others."""

    id: str
    folder: str
    main: bool
    mounts: tuple[str, ...] = ()


def agents(tables: Tables | None) -> list[Agent]:
    if tables is None:
        return []
    settings = {
        cell(row, "agent_group_id"): row
        for row in tables.rows("container_configs", ("agent_group_id", "cli_scope", "additional_mounts"))
    }
    found = []
    for row in tables.rows("agent_groups", ("id", "folder")):
        its = settings.get(cell(row, "id"), {})
        mounts = [shown(text_of(each.get("hostPath"))) for each in rows(_json(cell(its, "additional_mounts")))]
        found.append(Agent(cell(row, "id"), cell(row, "folder"), cell(its, "cli_scope") == "global", tuple(mounts)))
    return [agent for agent in found if is_folder(agent.folder)]


def bring(bringing: Bringing, tables: Tables | None, agents: Sequence[Agent], groups: Mapping[str, str]) -> None:
    if tables is None:
        return
    brought = bringing.place.brought
    group_of = {agent.id: groups[agent.folder] for agent in agents}
    for agent in agents:
        brought.allowed += [f"the group {groups[agent.folder]} had {path} mounted" for path in agent.mounts]
    for row in tables.rows("user_roles", ("user_id", "role", "agent_group_id")):
        where = group_of.get(cell(row, "agent_group_id"), "")
        of = f" of the group {where}" if where else ""
        brought.allowed.append(f"{shown(cell(row, 'user_id'))} was {shown(cell(row, 'role'))}{of}")
    chats = {cell(row, "id"): row for row in tables.rows("messaging_groups", _CHAT)}
    for row in tables.rows("messaging_group_agents", ("messaging_group_id", "agent_group_id")):
        chat, group = chats.get(cell(row, "messaging_group_id")), group_of.get(cell(row, "agent_group_id"))
        if chat is None or group is None:
            continue
        name = f" ({shown(cell(chat, 'name'))})" if cell(chat, "name") else ""
        brought.chats.append(f"{shown(_id(chat))}{name} belonged to the group {group}")
        if policy := cell(chat, "unknown_sender_policy"):
            brought.allowed.append(f"in {shown(_id(chat))} strangers met the policy {shown(policy)}")
    sessions = {cell(row, "id"): row for row in tables.rows("sessions", _SESSION)}
    for n, (path, agent_id, id) in enumerate(_folders(bringing.place)):
        if n == _MOST:
            bringing.place.leave(_SESSIONS, f"more than {_MOST:,} sessions lie there: not all were looked at")
            break
        known = sessions.get(id, {})
        group = group_of.get(agent_id or cell(known, "agent_group_id"))
        if group is None:
            bringing.place.leave(f"{path}/", "it is of no group that is known")
            continue
        chat = chats.get(cell(known, "messaging_group_id"))
        name = ":".join(filter(None, (_id(chat), cell(known, "thread_id")))) if chat is not None else id
        _session(bringing, group, path, name)
    for agent in agents:
        bringing.skills.folder(groups[agent.folder], f"{_SESSIONS}/{agent.id}/.claude-shared/skills")


def _folders(place: Place) -> Iterator[tuple[str, str, str]]:
    """The folders of sessions, each with its agent group, once "", and its id."""
    for outer in place.folders(_SESSIONS):
        path = f"{_SESSIONS}/{outer}"
        if place.kind(f"{path}/inbound.db"):
            yield path, "", outer
            continue
        for inner in place.folders(path):
            if not inner.startswith("."):
                yield f"{path}/{inner}", outer, inner


def _session(bringing: Bringing, group: str, path: str, name: str) -> None:
    said = list[tuple[str, float, Block]]()
    with opened(bringing.place, f"{path}/inbound.db") as tables:
        for row in tables.rows("messages_in", _IN, newest="timestamp") if tables is not None else []:
            if cell(row, "kind") == "task":
                _task(bringing, group, f"{path}/inbound.db", row)
            elif cell(row, "kind") in ("chat", "chat-sdk") and (block := _heard(row)) is not None:
                said.append((*_order(row), block))
    with opened(bringing.place, f"{path}/outbound.db") as tables:
        for row in tables.rows("messages_out", _OUT, newest="timestamp") if tables is not None else []:
            if cell(row, "kind") in ("chat", "chat-sdk") and (block := _answered(row)) is not None:
                said.append((*_order(row), block))
    if said:
        blocks = [block for *_, block in sorted(said, key=lambda each: each[:2])]
        bringing.talks.add(group, f"{path}/", name, blocks)


def _order(row: dict[str, Any]) -> tuple[str, float]:
    at = talks.moment(_utc(cell(row, "timestamp")))
    seq = row.get("seq")
    return (f"{at.timestamp():020.6f}" if at else "", seq if isinstance(seq, int | float) else 0)


def _heard(row: dict[str, Any]) -> Block | None:
    content = table(_json(cell(row, "content")))
    author = table(content.get("author"))
    name = text_of(content.get("sender")) or text_of(author.get("fullName")) or text_of(author.get("userName"))
    mine = content.get("isFromMe") is True or author.get("isMe") is True
    text = text_of(content.get("text"))
    return talks.said("user", text, _utc(cell(row, "timestamp")), name=name, owner=mine) if text else None


def _answered(row: dict[str, Any]) -> Block | None:
    content = table(_json(cell(row, "content")))
    if content.get("operation"):  # an edit, or a reaction
        return None
    texts = (text_of(content.get(key)) for key in ("text", "markdown", "fallbackText"))
    text = next(filter(None, texts), "")
    return talks.said("assistant", text, _utc(cell(row, "timestamp"))) if text else None


def _task(bringing: Bringing, group: str, path: str, row: dict[str, Any]) -> None:
    if cell(row, "status") not in ("pending", "paused"):
        return  # an occurrence that was
    id = cell(row, "series_id") or cell(row, "id")
    content = table(_json(cell(row, "content")))
    cron = cell(row, "recurrence")
    bringing.jobs.add(
        Job(
            id,
            f"{path}#{id}",
            group,
            "cron" if cron else "at",
            cron or _utc(cell(row, "process_after")),
            text_of(content.get("prompt")),
            text_of(content.get("name")),
            enabled=cell(row, "status") == "pending",
            own=True,
            scripted=bool(text_of(content.get("script")).strip()),
        )
    )


def _id(chat: dict[str, Any]) -> str:
    """A chat's id with its channel before it."""
    channel, id = cell(chat, "channel_type"), cell(chat, "platform_id")
    return id if not channel or id.startswith(f"{channel}:") else f"{channel}:{id}"


def _utc(at: str) -> str:
    return f"{at}Z" if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+", at) else at


def _json(text: str) -> Any:
    try:
        return loose.read(text)
    except loose.NotJson:
        return None
