"""Who is let in, and what a chat may hear: a stranger as a member, a chat as a group of its own, a shared chat of a
group that has private sessions.

The yes to a chat stands for as long as its row, which is never forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from clawd.approvals.kind import Kind, Words
from clawd.approvals.words import named
from clawd.config.begin import ensure_group
from clawd.config.edit import change
from clawd.config.home import Home, group_folders
from clawd.config.load import load_group
from clawd.errors import ConfigError
from clawd.files import walk_beneath
from clawd.ledger import approvals, groups
from clawd.ledger.db import Transaction
from clawd.ledger.deliveries import address_of


class People(Protocol):
    """`HOME/people.toml`, as it stands on the disk."""

    def person_of(self, account: str) -> str | None:
        """What the person is called whose account this is. Raises ConfigError."""
        ...

    def add(self, name: str, role: str, account: str) -> None:
        """A person with this account; who has it already stays. Raises ConfigError for a file that is broken, OSError,
        and ClawdError for a name that somebody else has."""
        ...


def bound_to(home: Home, binding: str) -> str | None:
    """The group that a chat is bound to, by the files that can be understood."""
    for folder in group_folders(home):
        with suppress(ConfigError):
            if binding in load_group(home, folder).bindings:
                return folder
    return None


def _bind(home: Home, group: str, binding: str, **first: Any) -> None:
    """Bind a chat to a group, which is made where there is none; `first` are values of a group that is new."""
    new = not home.group(group).config_file.exists()
    ensure_group(home, group)
    bindings = load_group(home, group).bindings
    if binding not in bindings:
        change(home.group(group).config_file, {"bindings": [*bindings, binding], **(first if new else {})})


class _NewGroup(Kind):
    """A chat becomes a group of its own."""

    edits = True

    def __init__(self, home: Home) -> None:
        self._home = home

    def rests_on(self, tx: Transaction, effect: Any) -> Any:
        return {"bound": bound_to(self._home, effect.chat), "group": groups.find(tx, effect.group) is not None}

    def refuse(self, tx: Transaction, effect: Any) -> str | None:
        if (group := bound_to(self._home, effect.chat)) is not None:
            return f"{effect.chat} is bound to the group {group} already"
        if groups.find(tx, effect.group) is not None or self._home.group(effect.group).root.exists():
            return f"there is a group {effect.group} already"
        return None

    def execute(self, tx: Transaction, effect: Any, now: str) -> str:
        groups.add(tx, effect.group, now)
        return f"{effect.chat} is the group {effect.group} now"


@dataclass(frozen=True, slots=True)
class LetIn:
    """`account` and `chat` (a binding) as in the files; `name` is the person's in people.toml, `shown` what they call
    themselves."""

    account: str
    name: str
    shown: str
    chat: str
    group: str


class Person(_NewGroup):
    """A stranger is let in as a member; their direct chat becomes a group of its own."""

    name, Effect = "person", LetIn

    def __init__(self, home: Home, people: People) -> None:
        super().__init__(home)
        self._people = people

    def subject(self, effect: LetIn) -> str:
        return effect.account

    def words(self, tx: Transaction, effect: LetIn) -> Words:
        return Words(
            f"let {named(effect.shown)} speak with me, as a member",
            [
                f"The account is {effect.account}; the name is their own choice. Here they will be {effect.name}.",
                f"Their chat becomes a group of its own, {effect.group}: they see nothing of the others.",
            ],
        )

    def rests_on(self, tx: Transaction, effect: LetIn) -> Any:
        return {**super().rests_on(tx, effect), "person": self._people.person_of(effect.account)}

    def refuse(self, tx: Transaction, effect: LetIn) -> str | None:
        if (known := self._people.person_of(effect.account)) is not None:
            return f"{effect.account} is {known} already"
        return super().refuse(tx, effect)

    def edit(self, effect: LetIn) -> None:
        _bind(self._home, effect.group, effect.chat)
        self._people.add(effect.name, "member", effect.account)

    def execute(self, tx: Transaction, effect: LetIn, now: str) -> str:
        super().execute(tx, effect, now)
        return f"{effect.name} ({effect.account}) may speak with me, in the group {effect.group}"


@dataclass(frozen=True, slots=True)
class NewGroup:
    """`chat` is a binding; `title` what its platform calls it; `asker` who spoke there, by people.toml."""

    chat: str
    title: str
    shared: bool
    asker: str
    group: str


class Group(_NewGroup):
    """A chat that is not bound becomes a group of its own."""

    name, Effect = "group", NewGroup

    def subject(self, effect: NewGroup) -> str:
        return effect.chat

    def words(self, tx: Transaction, effect: NewGroup) -> Words:
        if effect.shared:
            who = "Everybody there can read what I say; I answer the people that I know when they mention me."
            return Words(f"speak in the chat {named(effect.title)} ({effect.chat})", [_asked(effect), who])
        return Words(f"speak with {effect.asker} in their chat {effect.chat}", [_asked(effect)])

    def edit(self, effect: NewGroup) -> None:
        _bind(self._home, effect.group, effect.chat, **({"answer": "mention"} if effect.shared else {}))


def _asked(effect: NewGroup) -> str:
    return (
        f"{effect.asker} spoke to me there. It becomes a group of its own, {effect.group}: it sees nothing of others."
    )


@dataclass(frozen=True, slots=True)
class Binding:
    """`chat` is a binding of the group, in its file or to be."""

    group: str
    chat: str
    title: str


def standing(group: str, chat: str) -> str:
    """The subject of a yes to a chat's being heard in a group that was there before it."""
    return f"{group} {chat}"


def private_sessions(tx: Transaction, group: str, chat: str) -> list[str]:
    """Conversations of a group that are not known to be of a shared chat, nor of this one."""
    rows = tx.all("SELECT DISTINCT base FROM session WHERE grp = ? AND stem <> '' AND turns > 0 ORDER BY base", group)
    others = [row["base"] for row in rows if row["base"] != chat and not row["base"].startswith(f"{chat}:")]
    return [base for base in others if not _is_shared(tx, base)]


def _is_shared(tx: Transaction, base: str) -> bool:
    """Whether a conversation is of a shared chat, or of a thread of one."""
    chat = base
    while ":" in chat:
        at = address_of(chat)
        row = tx.one(
            "SELECT direct FROM chat WHERE channel = ? AND account = ? AND chat = ?", at.channel, at.account, at.chat
        )
        if row is not None:
            return not row["direct"]
        chat = chat.rpartition(":")[0]
    return False


def must_ask(tx: Transaction, group: str, chat: str) -> bool:
    """Whether a shared chat that is bound to a group may not be spoken in before the owner says yes: because of what
    was private there, unless they said so before."""
    if not private_sessions(tx, group, chat):
        return False
    made_for_it = tx.one(
        "SELECT 1 FROM approval WHERE kind = 'group' AND subject = ? AND state = 'done'"
        " AND json_extract(effect, '$.group') = ?",
        chat,
        group,
    )
    return made_for_it is None and not approvals.said_yes(tx, "bind", standing(group, chat))


class Bind(Kind):
    """A shared chat is heard in a group that has private sessions."""

    name, Effect, edits = "bind", Binding, True

    def __init__(self, home: Home) -> None:
        self._home = home

    def subject(self, effect: Binding) -> str:
        return standing(effect.group, effect.chat)

    def words(self, tx: Transaction, effect: Binding) -> Words:
        seen = self._seen(tx, effect)
        lines = [*(f"session {each}" for each in seen["sessions"]), *(f"memory/{each}" for each in seen["memory"])]
        shared = "is sent there, too" if seen["profile"] else "is not sent there"
        return Words(
            f"speak in the shared chat {named(effect.title)} ({effect.chat}) as the group {effect.group}",
            ["Who reads there can come to know what was private so far.", f"user_profile.md {shared}."],
            "What becomes visible:",
            "\n".join(lines),
        )

    def rests_on(self, tx: Transaction, effect: Binding) -> Any:
        return self._seen(tx, effect)

    def refuse(self, tx: Transaction, effect: Binding) -> str | None:
        group = bound_to(self._home, effect.chat)
        if group not in (None, effect.group):
            return f"{effect.chat} is bound to the group {group}"
        return None if groups.find(tx, effect.group) else f"there is no group {effect.group}"

    def edit(self, effect: Binding) -> None:
        _bind(self._home, effect.group, effect.chat)

    def execute(self, tx: Transaction, effect: Binding, now: str) -> str:
        return f"I speak in {effect.chat} as the group {effect.group} now"

    def _seen(self, tx: Transaction, effect: Binding) -> dict[str, Any]:
        """What becomes visible."""
        memory: Sequence[str] = sorted(name for name, _ in walk_beneath(self._home.group(effect.group).memory))
        profile = load_group(self._home, effect.group).share_profile
        return {"sessions": private_sessions(tx, effect.group, effect.chat), "memory": memory, "profile": profile}
