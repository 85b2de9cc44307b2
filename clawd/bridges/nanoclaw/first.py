"""The database of NanoClaw's first generation, `store/messages.db`.

Its tables, of which older versions lack columns (qwibitai/nanoclaw src/db.ts, for Telegram gavrielc/nanoclaw
src/db.ts):
- `registered_groups(jid, name, folder, trigger_pattern, container_config, is_main)`, before that
  `data/registered_groups.json`, a table of {name, folder, trigger} by chat;
- `messages(id, chat_jid, sender_name, content, timestamp, is_from_me, is_bot_message)`; once without the last, when
  what the agent said began with its name; for Telegram `chat_id` and `is_from_bot`;
- `scheduled_tasks(id, group_folder, prompt, schedule_type, schedule_value, context_mode, status, script)`, of which
  `schedule_type` is `cron`, `interval` in milliseconds, or `once`, a local time (docs/SPEC.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clawd.bridges import loose
from clawd.bridges.foreign import talks
from clawd.bridges.foreign.bringing import Bringing
from clawd.bridges.foreign.jobs import Job
from clawd.bridges.foreign.place import Place, rows, shown, table, text_of
from clawd.bridges.foreign.tables import Tables, cell, flag
from clawd.model import Block

DATABASE = "store/messages.db"
_REGISTERED = "data/registered_groups.json"
_FOLDER = re.compile(r"[^/\0]{1,128}")
_KINDS = {"cron": "cron", "interval": "every", "once": "at"}


@dataclass(frozen=True, slots=True)
class Chat:
    """A chat that belongs to a group's folder; `assistant` is what the agent is called in it."""

    id: str
    name: str
    folder: str
    assistant: str
    main: bool
    mounts: tuple[str, ...] = ()


def is_folder(name: str) -> bool:
    """Whether a database may name a group's folder so."""
    return _FOLDER.fullmatch(name) is not None and name not in (".", "..", "global")


def chats(place: Place, tables: Tables | None) -> list[Chat]:
    columns = ("jid", "name", "folder", "trigger_pattern", "container_config", "is_main")
    kept = tables.rows("registered_groups", columns) if tables is not None else []
    found = [
        _chat(cell(row, "jid"), row, cell(row, "trigger_pattern"), _json(cell(row, "container_config"))) for row in kept
    ]
    if not found and place.kind(_REGISTERED):
        listed = table(place.json(_REGISTERED))
        found = [
            _chat(id, each, text_of(each.get("trigger")), each.get("containerConfig"))
            for id, each in listed.items()
            if isinstance(each, dict)
        ]
    return [chat for chat in found if is_folder(chat.folder)]


def _chat(id: str, row: dict[str, Any], trigger: str, config: Any) -> Chat:
    word = re.fullmatch(r"@?([\w .-]{1,64})", trigger.strip("^$ ").removesuffix(r"\b"))
    mounts = tuple(shown(text_of(each.get("hostPath"))) for each in rows(table(config).get("additionalMounts")))
    main = flag(row, "is_main") or row.get("isMain") is True
    return Chat(id, cell(row, "name"), cell(row, "folder"), word[1] if word else "", main, mounts)


def bring(bringing: Bringing, tables: Tables | None, chats: Sequence[Chat], groups: Mapping[str, str]) -> None:
    brought = bringing.place.brought
    for chat in chats:
        group = groups[chat.folder]
        name = f" ({shown(chat.name)})" if chat.name else ""
        brought.chats.append(f"{shown(chat.id)}{name} belonged to groups/{shown(chat.folder)}, the group {group}")
        brought.allowed += [f"the group {group} had {path} mounted" for path in chat.mounts]
    if tables is not None:
        _tasks(bringing, tables, groups)
        _messages(bringing, tables, {chat.id: chat for chat in chats}, groups)


def _tasks(bringing: Bringing, tables: Tables, groups: Mapping[str, str]) -> None:
    columns = ("id", "group_folder", "prompt", "schedule_type", "schedule_value", "context_mode", "status", "script")
    for row in tables.rows("scheduled_tasks", columns):
        source, folder = f"{DATABASE}#{cell(row, 'id')}", cell(row, "group_folder")
        kind, status = _KINDS.get(cell(row, "schedule_type")), cell(row, "status")
        if status not in ("", "active", "paused"):
            bringing.place.leave(source, f"it is {shown(status)}")
        elif kind is None:
            bringing.place.leave(source, "it does not say when it is due")
        elif folder not in groups:
            bringing.place.leave(source, f"there is no group {shown(folder)}")
        else:
            bringing.jobs.add(
                Job(
                    cell(row, "id"),
                    source,
                    groups[folder],
                    kind,  # type: ignore[arg-type]
                    cell(row, "schedule_value"),
                    cell(row, "prompt"),
                    enabled=status != "paused",
                    own=cell(row, "context_mode") == "isolated",
                    scripted=bool(cell(row, "script").strip()),
                )
            )


def _messages(bringing: Bringing, tables: Tables, chats: Mapping[str, Chat], groups: Mapping[str, str]) -> None:
    columns = ("timestamp", "id", "chat_jid", "chat_id", "sender_name", "content", "is_from_me", "is_bot_message")
    talks_of = dict[str, list[Block]]()
    for row in tables.rows("messages", (*columns, "is_from_bot"), newest="timestamp"):
        id = cell(row, "chat_jid") or cell(row, "chat_id")
        talks_of.setdefault(id, []).append(_block(row, chats.get(id)))
    for id, blocks in sorted(talks_of.items()):
        source = f"{DATABASE}#{id}"
        if (chat := chats.get(id)) is None:
            bringing.place.leave(source, "this chat belongs to no group")
        else:
            bringing.talks.add(groups[chat.folder], source, id, blocks)


def _block(row: dict[str, Any], chat: Chat | None) -> Block:
    text, mine = cell(row, "content"), flag(row, "is_from_me")
    ours = flag(row, "is_bot_message") or flag(row, "is_from_bot")
    if chat is not None and chat.assistant and mine and text.startswith(f"{chat.assistant}:"):
        ours = True
    at = cell(row, "timestamp")
    if ours:
        return talks.said("assistant", text, at)
    return talks.said("user", text, at, name=cell(row, "sender_name"), owner=mine or (chat is not None and chat.main))


def _json(text: str) -> Any:
    try:
        return loose.read(text)
    except loose.NotJson:
        return None
