"""What a model wrote, Markdown, as a platform takes it: cut into pieces and put into the platform's own form.

Pure. `pieces` reads lines alone: it is linear, and fit for the ledger's thread. `formatted` parses one piece and may
take some 50 ms: call it in a thread. The parser is loaded when a channel first needs it.
"""

from __future__ import annotations

from clawd.channel import ChannelLimits
from clawd.markdown.cuts import cut
from clawd.markdown.discord import discord
from clawd.markdown.slack import slack
from clawd.markdown.spans import spans
from clawd.model import Formatted
from clawd.text import split, units, visible


def pieces(text: str, limits: ChannelLimits) -> list[str]:
    """Markdown of its own each, which takes at most `limits.text` units both as it stands and in the channel's own
    form; at least one, and none that shows nothing beside others. `limits.text` is at least 64."""
    if limits.markup == "plain":
        whole = split(text, limits.text)
    else:
        whole = [each.whole for each in cut(text, limits) if visible(each.text)]
    return whole or [text[: limits.text // 2]]


def formatted(text: str, limits: ChannelLimits) -> Formatted | None:
    """One piece in the channel's own form; None where that is the text as it stands, as it is for what is too deep or
    too tangled to be worth reading."""
    if limits.markup == "plain":
        return None
    if not visible(text):
        return Formatted("(nothing that can be shown)")
    made = _render(text, limits.markup)
    return made if made is not None and visible(made.text) and units(made.text) <= limits.text else None


def _render(text: str, markup: str) -> Formatted | None:
    if markup == "slack":
        return slack(text)
    if markup == "discord":
        return discord(text)
    return spans(text)
