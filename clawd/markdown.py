"""What a model wrote, Markdown, as a platform takes it: cut into pieces and put into the platform's own form. Pure."""

from __future__ import annotations

from clawd.channel import ChannelLimits
from clawd.model import Formatted
from clawd.text import split


def pieces(text: str, limits: ChannelLimits) -> list[str]:
    """Markdown of its own each, which in the channel's own form takes at most `limits.text` units; at least one."""
    return split(text, limits.text) or [""]


def formatted(text: str, limits: ChannelLimits) -> Formatted | None:
    """One piece in the channel's own form; None where that is the text as it stands."""
    return None
