"""The form of what goes out: Slack's blocks, text that pings nobody, names of emoji. Pure."""

from __future__ import annotations

from typing import Any

from clawd.model import Outgoing

AS_IT_STANDS: dict[str, Any] = {"mrkdwn": False, "unfurl_links": False, "unfurl_media": False}
# Slack takes names; those that people and models are likely to mean.
_EMOJI = {
    "👀": "eyes",
    "👍": "+1",
    "👎": "-1",
    "✅": "white_check_mark",
    "✔": "heavy_check_mark",
    "❌": "x",
    "❤": "heart",
    "🎉": "tada",
    "🙏": "pray",
    "🔥": "fire",
    "😂": "joy",
    "🙂": "slightly_smiling_face",
    "😄": "smile",
    "😢": "cry",
    "🤔": "thinking_face",
    "👏": "clap",
    "🚀": "rocket",
    "⏳": "hourglass_flowing_sand",
    "⚠": "warning",
    "💯": "100",
    "👌": "ok_hand",
    "👋": "wave",
    "💡": "bulb",
    "📌": "pushpin",
    "🤖": "robot_face",
}


def escaped(text: str) -> str:
    """Text in which Slack finds nobody to ping and nothing to link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def emoji(text: str) -> str | None:
    """The name of an emoji, which may be given by its name too."""
    name = _EMOJI.get(text.rstrip("\ufe0f")) or text.strip(":")
    return name if name.isascii() else None


def blocks(message: Outgoing) -> list[dict[str, Any]]:
    """The message's form: Markdown that Slack reads, or its text as it stands where plain `text` would not do: an edit
    cannot say that it is no markup, and buttons show blocks alone."""
    made: list[dict[str, Any]] = []
    if message.formatted is not None:
        made.append({"type": "markdown", "text": message.formatted.text})
    elif message.edits or message.buttons:
        text = {"type": "text", "text": message.text}
        made.append({"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": [text]}]})
    if message.buttons:
        buttons = [
            {
                "type": "button",
                "action_id": f"b{n}",
                "text": {"type": "plain_text", "text": each.label[:75]},
                "value": each.value,
            }
            for n, each in enumerate(message.buttons)
        ]
        made.append({"type": "actions", "elements": buttons})
    return made
