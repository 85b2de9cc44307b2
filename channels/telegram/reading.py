"""What an update of Telegram says, as clawd has it. Pure: nothing is fetched and nobody is asked.

Who may speak is not decided here. A sender is a person by their id; whoever speaks as a chat (an anonymous admin, a
channel) bears the chat's id, which is no person's. Lengths and offsets of entities are UTF-16 units; the library cuts.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from clawd.channel import handle
from clawd.model import Attachment, Incoming, Said

if TYPE_CHECKING:
    import telegram

_SUFFIXES = {"audio": ".mp3", "voice": ".ogg", "video": ".mp4", "video_note": ".mp4", "animation": ".mp4"}


def read(update: telegram.Update, me: telegram.User) -> Incoming | None:
    """None where there is nothing for us: our own words, another bot's, a command for it, news about the chat."""
    if update.callback_query is not None:
        return _press(update.callback_query)
    edited = update.edited_message or update.edited_channel_post
    message = update.message or update.channel_post or edited
    if message is None:
        return None
    user, by, chat = message.from_user, message.sender_chat, message.chat
    if by is None and (user is None or user.is_bot):
        return None
    text, texts = message.text or message.caption or "", []
    said, addressed, reply_to = _quoted(message, me)
    if message.forward_origin is not None or message.via_bot is not None:
        whose = message.via_bot.full_name if message.via_bot is not None else _whose(message.forward_origin)
        said += [Said("forwarded", text, whose)] if text else []
    elif text:
        if (typed := _typed(message, text, me)) is None:
            return None
        texts, addressed = [typed[0]], addressed or typed[1]
    files = _files(message)
    if not files and not text:
        if edited is not None or not (shown := _shown(message)):
            return None
        said.append(Said("forwarded", shown))
    at = message.edit_date if edited is not None and message.edit_date is not None else message.date
    # two edits in a second differ by their updates
    rev = (int(at.timestamp()) << 20 | update.update_id & 0xFFFFF) if edited is not None else 0
    return Incoming(
        channel="telegram",
        chat=str(chat.id),
        platform_id=str(message.message_id),
        sender=f"telegram:chat:{by.id}" if by is not None else f"telegram:{user and user.id}",
        texts=tuple(texts),
        at=at,
        kind="message" if edited is None else "edit",
        thread=_topic(message),
        rev=rev,
        said=tuple(said),
        attachments=files,
        name=_name(message),
        title=chat.effective_name or "",
        direct=chat.type == chat.PRIVATE,
        addressed=addressed,
        reply_to=reply_to,
        album=message.media_group_id,
    )


def _press(query: telegram.CallbackQuery) -> Incoming | None:
    """A button that was pressed; Telegram tells no time of it."""
    message, user = query.message, query.from_user
    if message is None or user.is_bot or query.data is None:
        return None
    return Incoming(
        channel="telegram",
        chat=str(message.chat.id),
        platform_id=query.id,
        sender=f"telegram:{user.id}",
        texts=(),
        at=datetime.now(UTC),
        kind="button",
        thread=_topic(message),
        name=user.full_name,
        title=message.chat.effective_name or "",
        direct=message.chat.type == message.chat.PRIVATE,
        addressed=True,
        target=str(message.message_id),
        value=query.data,
    )


def _topic(message: telegram.MaybeInaccessibleMessage) -> str:
    """A reply in an ordinary supergroup has a thread id too, and General's is never named."""
    thread = getattr(message, "message_thread_id", None)
    return str(thread) if getattr(message, "is_topic_message", None) and thread != 1 else ""


def _quoted(message: telegram.Message, me: telegram.User) -> tuple[list[Said], bool, str | None]:
    """Whose words a message replies to, whether they are ours, and the id of the message that has them."""
    reply, quote = message.reply_to_message, message.quote
    if reply is not None and reply.forum_topic_created is None:  # each message of a topic replies to its beginning
        words = quote.text if quote is not None else reply.text or reply.caption
        said = [Said("quoted", words, _name(reply))] if words else []
        return said, reply.from_user is not None and reply.from_user.id == me.id, str(reply.message_id)
    if message.external_reply is not None and quote is not None:
        return [Said("quoted", quote.text, _whose(message.external_reply.origin))], False, None
    return [], False, None


def _typed(message: telegram.Message, text: str, me: telegram.User) -> tuple[str, bool] | None:
    """A text without what only addresses us at its beginning, and whether it does so anywhere. None when it is another
    bot's command."""
    entities = message.parse_entities() if message.text else message.parse_caption_entities()
    ours, addressed = f"@{me.username}".lower(), False
    for entity, words in entities.items():
        begins, means_us = entity.offset == 0, False
        if entity.type == entity.MENTION:
            means_us = words.lower() == ours
        elif entity.type == entity.TEXT_MENTION:
            means_us = entity.user is not None and entity.user.id == me.id
            if not means_us:
                text = text.replace(words, f"@{handle(words)}", 1)
        elif entity.type == entity.BOT_COMMAND and begins:
            command, at, bot = words.partition("@")
            if at and f"@{bot}".lower() != ours:
                return None
            # Telegram's own button begins every chat with it
            text, addressed = ("/help" if command == text == "/start" else command + text[len(words) :]), True
        if means_us:
            addressed = True
            text = (text[len(words) :].lstrip() or text) if begins else text
    return text, addressed


def _files(message: telegram.Message) -> tuple[Attachment, ...]:
    if message.photo:
        photo = max(message.photo, key=lambda each: each.width * each.height)
        name = f"photo-{message.message_id}.jpg"
        return (Attachment(name, {"file": photo.file_id}, photo.file_size, "image/jpeg"),)
    for kind in ("animation", "document", "audio", "voice", "video", "video_note"):  # an animation is a document too
        if (file := getattr(message, kind)) is not None:
            name = getattr(file, "file_name", None) or f"{kind}-{message.message_id}{_SUFFIXES.get(kind, '')}"
            mime = getattr(file, "mime_type", None) or ""
            return (Attachment(name, {"file": file.file_id}, file.file_size, mime, voice=kind == "voice"),)
    return ()


def _shown(message: telegram.Message) -> str:
    """What is neither text nor a file, in words; empty for news about the chat."""
    if (sticker := message.sticker) is not None:
        return f"(a sticker: {sticker.emoji or sticker.set_name or 'without a name'})"
    if (venue := message.venue) is not None:
        return f"(a place: {venue.title}, {venue.address})"
    if (place := message.location) is not None:
        return f"(a place: {place.latitude}, {place.longitude})"
    if (contact := message.contact) is not None:
        return f"(a contact: {contact.first_name} {contact.last_name or ''}, {contact.phone_number})"
    if (poll := message.poll) is not None:
        return f"(a poll: {poll.question} {' / '.join(option.text for option in poll.options)})"
    if (dice := message.dice) is not None:
        return f"({dice.emoji} {dice.value})"
    return "(something that cannot be shown here)" if message.effective_attachment else ""


def _name(message: telegram.Message) -> str:
    """How Telegram calls the sender: anybody's choice."""
    if message.sender_chat is not None:
        return message.sender_chat.effective_name or ""
    return message.from_user.full_name if message.from_user is not None else ""


def _whose(origin: Any) -> str | None:
    """How Telegram calls whom something was passed on from: a user, one who hides, or a chat."""
    user, chat = (
        getattr(origin, "sender_user", None),
        getattr(origin, "sender_chat", None) or getattr(origin, "chat", None),
    )
    if user is not None:
        return str(user.full_name)
    return getattr(origin, "sender_user_name", None) or (chat.effective_name if chat is not None else None)
