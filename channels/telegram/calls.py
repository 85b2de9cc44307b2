"""Whom a text would call: Telegram pings each username that it finds in a chat's message, and cannot be told not to."""

from __future__ import annotations

import re

from clawd.model import Formatted

_CALL = re.compile(r"https?://[\w-]+\.[\w./?#%&=+~:@-]+|(?<!\w)@(?=[a-z])", re.IGNORECASE | re.ASCII)
_AT = "\uff20"  # looks like the other one, and is as long


def calling_nobody(form: Formatted) -> str:
    """Its text with another sign before usernames. In code and in addresses Telegram looks for none."""
    code = [range(each.offset, each.offset + each.length) for each in form.spans if each.kind in ("code", "pre")]

    def one(found: re.Match[str]) -> str:
        at = len(form.text[: found.start()].encode("utf-16-le", "surrogatepass")) // 2
        return found[0] if found[0] != "@" or any(at in each for each in code) else _AT

    return _CALL.sub(one, form.text)
