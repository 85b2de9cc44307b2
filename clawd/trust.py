"""Who is speaking and how far it is trusted: pure rules over origin, trust and authority.

Only the daemon sets these, from what it knows itself; no field of a chat, a model or a sandbox changes them.
Authority and taint only fall: `lowest` and `min` are the only ways to combine them.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Role(StrEnum):
    """What a person is to this claw. `NONE` is the authority of a wake that acts for nobody."""

    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"
    STRANGER = "stranger"
    NONE = "none"


class Origin(StrEnum):
    """Where a piece of text came from."""

    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"
    AGENT = "agent"
    TOOL = "tool"
    DOCUMENT = "document"
    EXTERNAL = "external"
    HAND = "hand"
    SYSTEM = "system"


_RANK = {Role.OWNER: 3, Role.ADMIN: 2, Role.MEMBER: 1, Role.STRANGER: 0, Role.NONE: 0}

# Base trust of a record by its origin, 0…1.
TRUST = {
    Origin.OWNER: 1.0,
    Origin.ADMIN: 0.9,
    Origin.AGENT: 0.7,
    Origin.HAND: 0.6,
    Origin.TOOL: 0.6,
    Origin.MEMBER: 0.4,
    Origin.DOCUMENT: 0.2,
    Origin.EXTERNAL: 0.2,
    Origin.SYSTEM: 1.0,
}


def at_least(role: Role, needed: Role) -> bool:
    """Whether `role` may do what needs `needed`."""
    return _RANK[role] >= _RANK[needed]


def lowest(roles: Iterable[Role]) -> Role:
    """The authority of what acts for all of `roles`: the lowest; `NONE` for nobody."""
    return min(roles, key=lambda role: _RANK[role], default=Role.NONE)


def origin_of(role: Role) -> Origin:
    """The origin of what a person of `role` typed."""
    return {Role.OWNER: Origin.OWNER, Role.ADMIN: Origin.ADMIN, Role.MEMBER: Origin.MEMBER}.get(role, Origin.EXTERNAL)
