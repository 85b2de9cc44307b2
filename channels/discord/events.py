"""What Discord's objects say, as they come over its gateway and out of its history. Pure.

Nobody's words but a person's come through: not our own, not another bot's, not a webhook's, not Discord's notices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from clawd.channel import handle
from clawd.model import Attachment, Incoming, Said

_MENTION = re.compile(r"<@!?(\d+)>|<a?(:\w+:)\d+>")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a channel is for us: a thread belongs to its parent. `post`: a forum's, whose first message is its own."""

    chat: str
    thread: str = ""
    title: str = ""
    direct: bool = False
    post: bool = False


def read_message(data: Mapping[str, Any], place: Place, me: str, roles: frozenset[str]) -> Incoming | None:
    """A message object; None where it is nobody's word: our own, a bot's, a webhook's, a notice of Discord's, or the
    message that a thread began with and that its parent had already."""
    author = data["author"]
    if author["id"] == me or author.get("bot") or data.get("webhook_id") or data.get("type", 0) not in (0, 19):
        return None
    if data["id"] == place.thread and not place.post:
        return None
    names = {each["id"]: _called(each) for each in data.get("mentions") or ()}
    pinged = roles.intersection(data.get("mention_roles") or ())
    quoted, reference = data.get("referenced_message") or {}, data.get("message_reference") or {}
    forward = reference.get("type") == 1
    files = [*data.get("attachments", ())]
    said: list[Said] = []
    for each in (snapshot["message"] for snapshot in data.get("message_snapshots") or () if forward):
        said.append(Said("forwarded", _text(each, {})))
        files += each.get("attachments", ())
    if quoted:
        named = {each["id"]: _called(each) for each in quoted.get("mentions") or ()}
        said.append(Said("quoted", _text(quoted, named), _called(quoted["author"])))
    ours = re.compile(rf" ?(?:<@!?{me}>{''.join(f'|<@&{role}>' for role in pinged)})")
    text = _text({**data, "content": ours.sub("", data.get("content") or "").strip()}, names)
    addressed = me in names or bool(pinged) or (quoted.get("author") or {}).get("id") == me
    if not text and not said and not files:
        if not addressed:
            return None  # an embed alone, say
        text = f"@{names.get(me, 'you')}"
    voice = bool(data.get("flags", 0) & 1 << 13)
    return Incoming(
        channel="discord",
        chat=place.chat,
        thread=place.thread,
        platform_id=data["id"],
        sender=f"discord:{author['id']}",
        name=(data.get("member") or {}).get("nick") or _called(author),
        title=place.title,
        texts=(text,) if text else (),
        at=datetime.fromisoformat(data["timestamp"]),
        said=tuple(said),
        attachments=tuple(
            Attachment(
                each["filename"],
                {"channel": data["channel_id"], "message": data["id"], "id": each["id"], "url": each["url"]},
                each.get("size"),
                each.get("content_type") or "",
                voice,
            )
            for each in files
        ),
        direct=place.direct,
        addressed=addressed,
        reply_to=None if forward else reference.get("message_id"),
    )


def read_edit(data: Mapping[str, Any], place: Place, me: str, roles: frozenset[str]) -> Incoming | None:
    """A message's update; None where nobody edited it: a preview was added, say, or it was pinned."""
    if not data.get("edited_timestamp") or (found := read_message(data, place, me, roles)) is None:
        return None
    at = datetime.fromisoformat(data["edited_timestamp"])
    return replace(found, kind="edit", at=at, rev=int(at.timestamp() * 1000))


def read_interaction(data: Mapping[str, Any], place: Place) -> Incoming | None:
    """A slash command, or a button's press; None where it is in a chat that we are no part of."""
    if data.get("context") == 2 or data["type"] not in (2, 3):
        return None
    member = data.get("member") or {}
    user = member.get("user") or data["user"]
    press, inner = data["type"] == 3, data["data"]
    words = [
        "/" + inner.get("name", ""),
        *(str(each["value"]) for each in inner.get("options") or () if "value" in each),
    ]
    return Incoming(
        channel="discord",
        chat=place.chat,
        thread=place.thread,
        platform_id=data["id"],
        sender=f"discord:{user['id']}",
        name=member.get("nick") or _called(user),
        title=place.title,
        texts=() if press else (" ".join(words),),
        at=_when(data["id"]),
        kind="button" if press else "command",
        direct=place.direct,
        addressed=True,
        target=data["message"]["id"] if press else None,
        value=inner["custom_id"] if press else "",
    )


def read_deletion(id: str, place: Place, now: datetime) -> Incoming:
    return Incoming("discord", place.chat, id, "", (), now, "delete", thread=place.thread, direct=place.direct)


def _text(data: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """What is written in a message: people by their names, a sticker by its own."""
    text = _MENTION.sub(
        lambda found: found[2] or (f"@{handle(names[found[1]])}" if found[1] in names else found[0]),
        data.get("content") or "",
    )
    stickers = (f"(sticker: {each['name']})" for each in data.get("sticker_items") or ())
    return "\n".join(filter(None, (text, *stickers)))


def _called(user: Mapping[str, Any]) -> str:
    return str((user.get("member") or {}).get("nick") or user.get("global_name") or user.get("username") or user["id"])


def _when(id: str) -> datetime:
    return datetime.fromtimestamp(((int(id) >> 22) + 1_420_070_400_000) / 1000, UTC)
