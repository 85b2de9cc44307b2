"""Whose a memory or a skill is, and who may read it: one rule for both. Pure.

A group writes to itself and reads itself: the scope `group:<group>`. What several groups have in common is in a
namespace `shared/<name>`, the scope `shared:<name>`: it is written to and read only where group.toml lists it, and what
another group wrote there only where that one lists it, too, now. Any other namespace (`team/a`) keeps what some of a
group's agents write apart from the rest of their group; it never leaves it.

Whoever reads has a list of what that is, and an empty one finds nothing: there is no word for "all". What a caller asks
for can only take away from it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from clawd.errors import Refused, UsageError

LONGEST = 120  # characters of a namespace
SHARED = "shared/"
_SEGMENT = re.compile(r"[a-z0-9._-]+")
_AGENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,63}")
_SCOPE = re.compile(r"(group|shared):(.+)")


def is_namespace(said: object) -> bool:
    """Whether it may be a namespace: segments of a-z, 0-9, `.`, `_` and `-` with a / between them. None of them is
    empty, or of dots alone."""
    if not isinstance(said, str) or not 0 < len(said) <= LONGEST:
        return False
    return all(_SEGMENT.fullmatch(each) and each.strip(".") for each in said.split("/")) and said != SHARED.strip("/")


def namespace(said: object) -> str:
    """The same text. Raises UsageError, with what may be written."""
    if not is_namespace(said):
        raise UsageError(
            f"{str(said)[:64]!a} is no namespace: it has a-z, 0-9, . _ and -, in parts with / between them, and at most"
            f" {LONGEST} characters",
            hint="write it like team/garden, or shared/garden for one that several groups list",
        )
    return str(said)


def is_agent(said: object) -> bool:
    """Whether it may be the name of an agent."""
    return isinstance(said, str) and _AGENT.fullmatch(said) is not None


def agent(said: object) -> str:
    """Who an agent is: the same text. Raises UsageError, with what may be written."""
    if not is_agent(said):
        raise UsageError(
            f"{str(said)[:64]!a} is no agent_id: it has letters, digits and . _ : @ -, and at most 64 characters",
            hint="write it like agent-1",
        )
    return str(said)


def is_shared(name: str) -> bool:
    """Whether a namespace is one that several groups may have in common."""
    return name.startswith(SHARED)


@dataclass(frozen=True, slots=True)
class Scopes:
    """What the turns of one group may write and read. `lists` are the namespaces `shared/…` of its group.toml, and
    `namespace` is where they write: "" is the group itself. Raises UsageError for what is no namespace."""

    group: str
    lists: frozenset[str] = frozenset()
    namespace: str = ""

    def __post_init__(self) -> None:
        for each in (*self.lists, *filter(None, [self.namespace])):
            namespace(each)
        if wrong := [each for each in self.lists if not is_shared(each)]:
            raise UsageError(f"{wrong[0]} cannot be shared: what several groups list is called {SHARED}NAME")

    def write(self) -> str:
        """The scope of what is written. Raises Refused for a shared one that the group does not list."""
        if is_shared(self.namespace) and self.namespace not in self.lists:
            raise Refused(
                f"the group {self.group} does not list {self.namespace}, so nothing is kept there",
                hint=f'write shared = ["{self.namespace}"] in its group.toml',
            )
        return scope_of(self.group, self.namespace)

    @property
    def spaces(self) -> frozenset[str]:
        """The namespaces of the group's own memory that are read."""
        own = frozenset({self.namespace}) if not is_shared(self.namespace) else frozenset[str]()
        return frozenset({""}) | own | self.lists

    def beside(self, other: Scopes) -> frozenset[str]:
        """The namespaces of another group's memory that are read."""
        return self.lists & other.lists if other.group != self.group else frozenset()

    def may_read(self, scope: str, writer: Scopes) -> bool:
        """Whether something with this scope, that lies with the group `writer`, is read. What is no scope is nobody's,
        and what lies with a group has its scope or a shared one."""
        match = _SCOPE.fullmatch(scope)
        if match is None:
            return False
        if match[1] == "group":
            return match[2] == self.group == writer.group
        return SHARED + match[2] in (self.lists & writer.lists)


def scope_of(group: str, name: str = "") -> str:
    """The scope of what a group writes in a namespace."""
    return f"shared:{name[len(SHARED) :]}" if is_shared(name) else f"group:{group}"


def narrowed(allowed: Collection[str], asked: Collection[str]) -> frozenset[str]:
    """Of what is allowed, what is asked for."""
    return frozenset(allowed) & frozenset(asked)
