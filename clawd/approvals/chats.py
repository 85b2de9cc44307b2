"""Who is let in, and what a chat may hear: a stranger as a member, a chat as a group of its own, a shared chat of a
group that has private sessions.

The yes to a chat stands for as long as its row, which is never forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from clawd.approvals.kind import Kind, Words
from clawd.approvals.words import named
from clawd.channel import ChannelLimits
from clawd.config.begin import ensure_group
from clawd.config.home import Home
from clawd.config.load import load_group
from clawd.files import walk_beneath
from clawd.ledger import approvals, deliveries, groups
from clawd.ledger.db import Transaction
from clawd.ledger.deliveries import Address, address_of
from clawd.people.bindings import Bindings
from clawd.people.roster import LiveRoster, paired
from clawd.trust import Role


class _OfChat(Kind):
    """`binding` of an effect is a chat, which is told of the yes: whoever spoke there waits for it."""

    edits = True
    told: ClassVar[str] = "My owner said yes: I work in this chat now."

    def __init__(
        self,
        home: Home,
        bindings: Bindings,
        limits: Callable[[str], ChannelLimits | None],
        deliver: Callable[[Address], None],
    ) -> None:
        """`limits` are those of a channel that is there."""
        self._home, self._bindings, self._limits, self._deliver = home, bindings, limits, deliver

    def execute(self, tx: Transaction, effect: Any, now: str) -> str:
        at = address_of(effect.binding)
        if (limits := self._limits(at.channel)) is not None:
            deliveries.enqueue(tx, at, session=effect.binding, kind="notice", text=self.told, now=now, limits=limits)
        return f"I work in {effect.binding} as the group {effect.group} now"

    def after(self, effect: Any) -> None:
        self._deliver(address_of(effect.binding))


class _NewGroup(_OfChat):
    """A chat becomes a group of its own; `group` of an effect is a name that is free."""

    def rests_on(self, tx: Transaction, effect: Any) -> Any:
        return {"bound": self._bindings.read().of(effect.binding), "group": self._is_there(tx, effect.group)}

    def refuse(self, tx: Transaction, effect: Any) -> str | None:
        if bound := self._bindings.read().of(effect.binding):
            return f"{effect.binding} belongs to the group {bound[0]} already"
        return f"there is a group {effect.group} already" if self._is_there(tx, effect.group) else None

    def edit(self, effect: Any) -> None:
        self._bindings.make(effect.group, effect.binding, getattr(effect, "shared", False))
        ensure_group(self._home, effect.group)

    def execute(self, tx: Transaction, effect: Any, now: str) -> str:
        super().execute(tx, effect, now)
        groups.add(tx, effect.group, now)
        return f"{effect.binding} is the group {effect.group} now"

    def _is_there(self, tx: Transaction, group: str) -> bool:
        return groups.find(tx, group) is not None or self._home.group(group).root.exists()


@dataclass(frozen=True, slots=True)
class LetIn:
    """`name` is the person's in people.toml, `called` what they call themselves."""

    account: str
    name: str
    role: str
    binding: str
    group: str
    called: str


class Person(_NewGroup):
    """A stranger is let in as a member; their direct chat becomes a group of its own."""

    name, Effect, told = "person", LetIn, "My owner said yes: you may speak with me now."

    def __init__(
        self,
        home: Home,
        bindings: Bindings,
        limits: Callable[[str], ChannelLimits | None],
        deliver: Callable[[Address], None],
        roster: LiveRoster,
    ) -> None:
        super().__init__(home, bindings, limits, deliver)
        self._roster = roster

    def subject(self, effect: LetIn) -> str:
        return effect.account

    def words(self, tx: Transaction, effect: LetIn) -> Words:
        return Words(
            f"let {named(effect.called)} speak with me, as a member",
            [
                f"Their account is {effect.account}; what they call themselves is anybody's choice.",
                f"Here they will be {named(effect.name)}, in a group of their own,"
                f" {effect.group}; it sees nothing of others.",
            ],
        )

    def rests_on(self, tx: Transaction, effect: LetIn) -> Any:
        person = self._roster.read().by_account(effect.account)
        return {**super().rests_on(tx, effect), "person": person and person.name}

    def refuse(self, tx: Transaction, effect: LetIn) -> str | None:
        roster = self._roster.read()
        if roster.problem is not None:
            return f"nobody can be let in: {roster.problem}"
        if (known := roster.by_account(effect.account)) is not None:
            return f"{effect.account} is {known.name} already"
        if roster.named(effect.name) is not None:
            return f"there is a person {effect.name} already"
        if effect.role != Role.MEMBER:
            return "a stranger can be let in as a member alone"
        return super().refuse(tx, effect)

    def edit(self, effect: LetIn) -> None:
        super().edit(effect)
        self._roster.write(lambda people: paired(people, effect.name, "member", effect.account))

    def execute(self, tx: Transaction, effect: LetIn, now: str) -> str:
        super().execute(tx, effect, now)
        return f"{effect.name} ({effect.account}) may speak with me, in the group {effect.group}"


@dataclass(frozen=True, slots=True)
class NewGroup:
    """`title` is what its platform calls the chat, `person` who spoke there, by people.toml."""

    binding: str
    group: str
    shared: bool
    title: str
    person: str


class Group(_NewGroup):
    """A chat that is not bound becomes a group of its own."""

    name, Effect = "group", NewGroup

    def subject(self, effect: NewGroup) -> str:
        return effect.binding

    def words(self, tx: Transaction, effect: NewGroup) -> Words:
        person = named(effect.person)
        where = f"the shared chat {named(effect.title)}" if effect.shared else f"a chat with {person} alone"
        lines = [
            f"{person} spoke to me there.",
            f"It becomes a group of its own, {effect.group}; it sees nothing of others.",
        ]
        if effect.shared:
            lines.append("Whoever is there reads what I say; I answer the people that I know, when they mention me.")
        return Words(f"work in {where} ({effect.binding})", lines)


@dataclass(frozen=True, slots=True)
class Shared:
    """A chat that is in a group's bindings, or is to be."""

    group: str
    binding: str
    title: str


class Bind(_OfChat):
    """A shared chat is heard in a group that has private sessions."""

    name, Effect = "bind", Shared

    def subject(self, effect: Shared) -> str:
        return f"{effect.group} {effect.binding}"

    def words(self, tx: Transaction, effect: Shared) -> Words:
        seen = self.rests_on(tx, effect)
        lines = [*(f"session {each}" for each in seen["sessions"]), *(f"memory/{each}" for each in seen["memory"])]
        return Words(
            f"work in the shared chat {named(effect.title)} ({effect.binding}) as the group {effect.group}",
            [
                "Whoever is there can come to know what was private in that group so far.",
                f"user_profile.md is {'sent there, too' if seen['profile'] else 'not sent there'}.",
            ],
            "What becomes visible:",
            "\n".join(lines),
        )

    def rests_on(self, tx: Transaction, effect: Shared) -> Any:
        """What becomes visible."""
        memory = sorted(name for name, _ in walk_beneath(self._home.group(effect.group).memory))
        profile = load_group(self._home, effect.group).share_profile
        sessions = list(private_sessions(tx, effect.group, effect.binding))
        return {"sessions": sessions, "memory": memory, "profile": profile}

    def refuse(self, tx: Transaction, effect: Shared) -> str | None:
        others = [group for group in self._bindings.read().of(effect.binding) if group != effect.group]
        if others:
            return f"{effect.binding} belongs to the group {others[0]}"
        return None if groups.find(tx, effect.group) else f"there is no group {effect.group}"

    def edit(self, effect: Shared) -> None:
        self._bindings.bind(effect.group, effect.binding)


def private_sessions(tx: Transaction, group: str, binding: str) -> Iterator[str]:
    """Conversations of a group that are not known to be of a shared chat, nor of this one. The threads of a chat, of
    which there may be thousands, are passed over in one step."""
    after = ""
    while row := tx.one(_NEXT, group, after):
        base = after = row["base"]
        plain = base.removesuffix(f"@{group}")
        chat = binding if plain == binding or plain.startswith(f"{binding}:") else _shared_chat(tx, plain)
        if chat is None:
            yield base
        elif base.startswith(f"{chat}:") and (chat == binding or not _knows_below(tx, chat)):
            after = f"{chat}:{_LAST}"


_LAST = "\U0010ffff"  # what no id begins with, and comes behind all
_NEXT = "SELECT base FROM session WHERE grp = ? AND base > ? AND stem <> '' AND turns > 0 ORDER BY base LIMIT 1"


def _shared_chat(tx: Transaction, base: str) -> str | None:
    """The shared chat that a conversation is of, or of a thread of."""
    chat = base
    while ":" in chat and not chat.startswith("terminal:"):
        if (shared := _known_as_shared(tx, chat)) is not None:
            return chat if shared else None
        chat = chat.rpartition(":")[0]
    return None


def _knows_below(tx: Transaction, binding: str) -> bool:
    """Whether there is a chat whose id looks like one of this one's threads."""
    at = address_of(f"{binding}:")
    beneath = "SELECT 1 FROM chat WHERE channel = ? AND account = ? AND chat > ? AND chat < ?"
    return tx.one(beneath, at.channel, at.account, at.chat, at.chat + _LAST) is not None


def must_ask(tx: Transaction, group: str, binding: str) -> bool:
    """Whether a shared chat that is bound to a group may not be worked in before the owner says yes, because of what
    was private there. They said so before where the group was made for this chat, or by a `bind`."""
    made = (
        "SELECT 1 FROM approval WHERE kind = 'group' AND subject = ? AND state = 'done'"
        " AND json_extract(effect, '$.group') = ?"
    )
    if tx.one(made, binding, group) is not None or approvals.said_yes(tx, "bind", f"{group} {binding}"):
        return False
    return next(private_sessions(tx, group, binding), None) is not None


def is_barred(tx: Transaction, group: str, binding: str) -> bool:
    """The same, for a chat that is known to be shared."""
    return bool(_known_as_shared(tx, binding)) and must_ask(tx, group, binding)


def _known_as_shared(tx: Transaction, binding: str) -> bool | None:
    """None for a chat that is not known."""
    at = address_of(binding)
    row = tx.one(
        "SELECT direct FROM chat WHERE channel = ? AND account = ? AND chat = ?", at.channel, at.account, at.chat
    )
    return not row["direct"] if row else None
