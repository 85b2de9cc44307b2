"""Slack: its `markdown` block takes Markdown as it stands; what would call somebody is made text."""

from __future__ import annotations

import re

from clawd.model import Formatted

CALLS = re.compile(r"<(?=[@#]|![A-Za-z]+[>|^])([^<>\n]{1,200})>|<(?=[@#]|![A-Za-z]+[>|^])")
LONGER = 6  # units that one of them grows by, at most


def slack(text: str) -> Formatted:
    """`<!channel>`, `<@U123>`, `<#C123>` and what begins like them can only be read."""
    return Formatted(CALLS.sub(lambda found: f"&lt;{found[1]}&gt;" if found[1] else "&lt;", text))
