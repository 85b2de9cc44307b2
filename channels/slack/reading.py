"""An envelope of Socket Mode as an `Incoming`. Pure.

The workspace is the outer envelope's, so that a person or chat has one name however it is met. A mention reaches us as
`message` and as `app_mention`: both give the same. What bots say, we included, is nothing for us.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from clawd.channel import handle
from clawd.model import Attachment, Incoming, IncomingKind, Said

_TALK = {None, "file_share", "thread_broadcast", "me_message"}  # subtypes of a message that are somebody's words
_ANGLE = re.compile(r"<([^<>\n]+)>")
_PERSON = re.compile(r"<@([A-Z0-9]+)>")


@dataclass(frozen=True, slots=True)
class Us:
    """Who we are there: the bot's user, its name, and the workspace that it is installed in."""

    user: str
    name: str
    team: str


def unescaped(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def rendered(text: str, names: Mapping[str, str], us: Us) -> str:
    """A message's text as its sender saw it, without our own mention around it."""
    ours = rf"<@{us.user}(?:\|[^<>]*)?>"
    text = re.sub(rf"^\s*(?:{ours}[\s:,]*)+|\s*{ours}\s*$", "", text)

    def one(match: re.Match[str]) -> str:
        target, _, label = match[1].partition("|")
        if target[0] in "@#":
            id = target[1:]
            return target[0] + handle(label or (us.name if id == us.user else names.get(id)) or id)
        if target[0] == "!":  # <!here>, <!subteam^S1|@team>, <!date^…|a day>
            return label or f"@{target[1:].partition('^')[0]}"
        bare = re.sub(r"^(?:https?://|mailto:|tel:)", "", target)
        return label or target if label in ("", target, bare) else f"{label} ({target})"

    return unescaped(_ANGLE.sub(one, text)).strip()


def unnamed(kind: str, payload: Mapping[str, Any]) -> list[str]:
    """The ids, of people and of a shared chat, whose names would make the message readable; the sender's first."""
    if kind != "events_api":
        return []
    event = payload.get("event") or {}
    message = event.get("message") or event
    chat = str(event.get("channel", ""))
    ids = [message.get("user"), "" if chat.startswith("D") else chat, *_PERSON.findall(message.get("text") or "")]
    return list(dict.fromkeys(id for id in ids if id))


def incoming(
    kind: str, payload: Mapping[str, Any], us: Us, names: Mapping[str, str], words: Collection[str] = ()
) -> Incoming | None:
    """What an envelope of this `kind` has for us, or None. `words`: our chat commands."""
    if kind == "slash_commands":
        return _command(payload, words)
    if kind == "interactive":
        return _press(payload) if payload.get("type") == "block_actions" else None
    event = payload.get("event") or {}
    if kind != "events_api" or event.get("type") not in ("message", "app_mention"):
        return None
    team, chat, subtype = payload.get("team_id") or us.team, event["channel"], event.get("subtype")
    if subtype in ("message_changed", "message_deleted"):
        message, before = event.get("message") or {}, event.get("previous_message") or {}
        # a message that has replies is not deleted but replaced by a stone
        if subtype == "message_deleted" or message.get("subtype") == "tombstone":
            id = event.get("deleted_ts") or message["ts"]
            if before and not _persons(before, us):
                return None
            return _message("delete", {**before, "ts": id, "text": "", "files": []}, chat, team, us, names, event["ts"])
        edited = message.get("edited")
        if not edited or edited == before.get("edited") or not _persons(message, us):
            return None  # a link was unfolded, a thread was counted
        if edited.get("user", message["user"]) != message["user"]:
            return None  # by a program of the workspace: nobody's own words
        return _message("edit", message, chat, team, us, names, edited["ts"])
    if subtype not in _TALK or not _persons(event, us):
        return None
    return _message("message", event, chat, team, us, names, event["ts"])


def _persons(message: Mapping[str, Any], us: Us) -> bool:
    """Whether a person said it: neither we nor another bot, nor Slack itself."""
    talk = message.get("subtype") in _TALK and not message.get("bot_id")
    return talk and message.get("user") not in (None, us.user, "USLACKBOT")


def _message(
    kind: IncomingKind,
    message: Mapping[str, Any],
    chat: str,
    team: str,
    us: Us,
    names: Mapping[str, str],
    at: str,
) -> Incoming:
    ts, user, text = message["ts"], message.get("user") or "", message.get("text") or ""
    direct = chat.startswith("D")
    parent = message.get("thread_ts") if message.get("thread_ts") != ts else None
    mentioned = re.search(rf"<@{us.user}[|>]", text) is not None
    ours = parent is not None and message.get("parent_user_id") == us.user
    typed = rendered(text, names, us)
    return Incoming(
        channel="slack",
        account=team,
        chat=chat,
        thread=parent or (ts if mentioned and not direct else ""),
        platform_id=ts,
        kind=kind,
        rev=int(at.replace(".", "")) if kind == "edit" else 0,
        sender=f"slack:{team}/{user}" if user else "",
        name=names.get(user, ""),
        title="" if direct else names.get(chat, ""),
        texts=(typed,) if typed else (),
        said=tuple(_said(message, names, us)) if kind != "delete" else (),
        attachments=tuple(_file(each) for each in message.get("files") or ()),
        at=_time(at),
        direct=direct,
        addressed=mentioned or ours,
        reply_to=parent if ours else None,
    )


def _said(message: Mapping[str, Any], names: Mapping[str, str], us: Us) -> list[Said]:
    """The messages that this one shares; what it links to elsewhere is nobody's words."""
    shares = (each for each in message.get("attachments") or () if each.get("is_share") or each.get("is_msg_unfurl"))
    return [
        Said("forwarded", rendered(each.get("text") or each.get("fallback") or "", names, us), each.get("author_name"))
        for each in shares
    ]


def _file(file: Mapping[str, Any]) -> Attachment:
    """`handle`: the file's id, and its address where Slack tells it (of a file of another workspace it does not)."""
    url = file.get("url_private_download") or file.get("url_private")
    return Attachment(
        name=file.get("name") or file.get("title") or file.get("id") or "file",
        handle={"id": file.get("id"), "url": url},
        size=file.get("size"),
        mime=file.get("mimetype") or "",
        voice=file.get("subtype") == "slack_audio",
    )


def _command(payload: Mapping[str, Any], words: Collection[str]) -> Incoming:
    """`/stop`, or the one command of the manifest, whatever it is called there, with ours behind it: `/clawd stop`."""
    team, user, chat = payload["team_id"], payload["user_id"], payload["channel_id"]
    word, rest = payload["command"].removeprefix("/"), (payload.get("text") or "").strip()
    if word not in words:
        word, _, rest = rest.removeprefix("/").partition(" ")
    return Incoming(
        channel="slack",
        account=team,
        chat=chat,
        platform_id=payload["trigger_id"],
        sender=f"slack:{team}/{user}",
        name=payload.get("user_name") or "",
        title="" if chat.startswith("D") else payload.get("channel_name") or "",
        texts=(f"/{word or 'help'} {unescaped(rest)}".strip(),),
        at=datetime.now(UTC),
        direct=chat.startswith("D"),
        addressed=True,
    )


def _press(payload: Mapping[str, Any]) -> Incoming | None:
    user, at, action = payload["user"], payload["container"], payload["actions"][0]
    team = (payload.get("team") or {}).get("id") or user["team_id"]
    if "message_ts" not in at or action.get("type") != "button":
        return None
    chat = at["channel_id"]
    return Incoming(
        channel="slack",
        account=team,
        chat=chat,
        thread=at.get("thread_ts") or "",
        platform_id=payload["trigger_id"],
        kind="button",
        sender=f"slack:{team}/{user['id']}",
        name=user.get("name") or user.get("username") or "",
        texts=(),
        at=_time(action["action_ts"]),
        direct=chat.startswith("D"),
        addressed=True,
        target=at["message_ts"],
        value=action.get("value") or "",
    )


def _time(ts: str) -> datetime:
    return datetime.fromtimestamp(float(ts), UTC)
