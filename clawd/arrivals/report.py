"""`REPORT.md`, what a person reads of what was brought in. Pure; the same account gives the same bytes.

Names and sentences come from a home that anybody may have made: each is one line, shows all that it has, and is no
Markdown.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from clawd.arrivals.account import Account, Entry
from clawd.text import unhidden

_MOST = 500  # things of one list; the account has all
_LINE = 400
_MARKUP = re.compile(r"([\\`<\[\]])")
KINDS = {
    "session": "conversations",
    "facts": "facts",
    "index": "index",
    "day": "daily logs",
    "note": "notes",
    "skill": "skills",
    "schedule": "schedules",
    "instructions": "instructions",
    "profile": "profile",
}
_STATES = {"waits": "waits for your word", "accepted": "in use", "left": "left"}


def report(group: str, account: Account) -> str:
    """Of one group."""
    return "\n".join(_lines(group, account)) + "\n"


def _lines(group: str, account: Account) -> Iterator[str]:
    yield f"# What came from {account.source} into group {group}"
    yield ""
    waits = any(each.state == "waits" for each in account.items)
    used = " What waits is not used before you say so." if waits else ""
    yield f"From {_code(account.home)}, last on {account.brought[:10]}.{used}"
    yield ""
    yield "| what | waits for your word | in use | left |"
    yield "|---|---|---|---|"
    for kind, name in KINDS.items():
        states = Counter(each.state for each in account.items if each.kind == kind)
        if states:
            yield f"| {name} | {states['waits']} | {states['accepted']} | {states['left']} |"
    yield ""
    if waits:
        yield "Look at it here, change what you like or take it away, then:"
        yield ""
        yield f"    clawd bridge accept {account.source} --group {group}"
        yield ""
    yield from _list("## What came", [_came(each) for each in account.items])
    yield from _list("## What was left, and why", [f"{_code(each.source)}: {_said(each.why)}" for each in account.left])
    yield from _list("## Chats there", map(_said, account.chats))
    yield from _list("## Who was allowed what there (nothing of this was taken over)", map(_said, account.allowed))
    yield from _list(
        "## Keys that were found there, by name (none was copied)",
        map(_code, account.keys),
        "Enter those that you want to use anew, in a file of your own that config.toml names as a secret"
        " (`clawd gateway services` shows which services want one; docs/services.md says how).",
    )


def _came(entry: Entry) -> str:
    said = f"{_code(entry.source)} → {_code(entry.to)}: {_STATES[entry.state]}"
    if entry.state == "left" and entry.why:
        said += f": {_said(entry.why)}"
    return "; ".join([said, *map(_said, entry.changed)])


def _list(head: str, each: Iterable[str], foot: str = "") -> Iterator[str]:
    found = list(dict.fromkeys(each))
    if not found:
        return
    yield head
    yield ""
    yield from (f"- {line}" for line in found[:_MOST])
    if len(found) > _MOST:
        yield f"- … and {len(found) - _MOST:,} more, in import.json"
    yield ""
    if foot:
        yield foot
        yield ""


def _said(text: str) -> str:
    return _MARKUP.sub(r"\\\1", _line(text))


def _code(text: str) -> str:
    return f"`{_line(text).replace('`', chr(39))}`"


def _line(text: str) -> str:
    line = " ".join(unhidden(text).split())
    return line if len(line) <= _LINE else f"{line[:_LINE]}…"
