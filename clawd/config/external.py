"""Which sessions a group takes from other programs: `external` of its `group.toml`. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def allows(patterns: Iterable[str], session: str) -> bool:
    """Whether one of the patterns is all of the id; `*` stands for any text, and every other letter for itself."""
    return any(_matches(pattern, session) for pattern in patterns)


def _matches(pattern: str, session: str) -> bool:
    first, *rest = pattern.split("*")
    if not rest:
        return session == pattern
    if not session.startswith(first):
        return False
    at, last = len(first), rest.pop()
    for part in rest:
        found = session.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return len(session) - at >= len(last) and session.endswith(last)
