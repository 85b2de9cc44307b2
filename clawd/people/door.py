"""The door: who a message is from, whether they may speak, and which conversation it belongs to. Intake asks here.

`admit` is called before anything of a message is kept, fetched or shown to anybody:

- Admitted with a `place`: take it in, with `role` and `person`.
- Without a `place`: nothing of it is kept, fetched or counted. `told`, if any, is said in its chat without a row, best
  effort (a stranger's line, what became of a pairing code, that the owner was asked privately); None is silence.
- A `delete` need not say who deletes: it has its chat's place and the role NONE, and may only take back.

A person is an account that the adapter vouches for (`Incoming.sender`), as `people.toml` has it; never a name that
somebody chose. An empty sender (an anonymous admin, a channel's post) is a stranger. Chats that moved have their first
id here already.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from anyio import to_thread

from clawd.clock import Clock, rfc3339
from clawd.config.home import Home, group_folders
from clawd.errors import ClawdError, ConfigError, StorageError, UsageError
from clawd.ledger import chats, groups
from clawd.ledger.db import Ledger
from clawd.ledger.deliveries import Address, binding_of
from clawd.model import Incoming
from clawd.people import pairing
from clawd.people.bindings import MAIN, Bindings, Place, group_name, twice
from clawd.people.pairing import Code, Codes
from clawd.people.roster import LiveRoster, Person, Roster, called, free_name, paired
from clawd.people.strangers import Daily
from clawd.trust import Role, at_least

log = logging.getLogger(__name__)

STRANGER = (
    "This is a private assistant, and its owner has not let you speak to it. If they gave you a code, send it here;"
    " /pair asks them to let you in."
)
UNREADABLE = (
    "This is a private assistant, and nobody may speak to it just now: its list of people cannot be used. Its owner can"
    " mend it."
)
WRONG = "That code does not count: it is wrong, used or older than ten minutes."
LAST = " That was your last try for ten minutes."
ALONE = pairing.Said("", True)  # /pair without a code
_SPOKEN = ("message", "command")


@dataclass(frozen=True, slots=True)
class Admitted:
    """`person` is the name in `people.toml`; None for strangers and at the terminal."""

    role: Role
    person: str | None = None
    place: Place | None = None
    told: str | None = None


class Admits(Protocol):
    """The door, or another before it."""

    async def admit(self, incoming: Incoming) -> Admitted:
        """Who a message is from, and where it belongs. Raises StorageError alone."""
        ...


class Asked(Protocol):
    """What became of a question to the owner: `open`, or what they said to it before."""

    @property
    def fresh(self) -> bool: ...
    @property
    def state(self) -> str: ...


class Asks(Protocol):
    """Asks the owner, unless the same was asked already. Raises ClawdError where it cannot be asked.

    `group`: {binding, group, shared, title, person}: the chat becomes the new group, at the word of that person.
    `person`: {account, name, role, binding, group, called}: the account becomes a person of that name and role, whose
    direct chat becomes the new group. `title` and `called` are anybody's choice.
    """

    async def ask(self, kind: str, effect: Mapping[str, Any]) -> Asked: ...


class Door:
    """`terminal` places what is said there, `adopt` makes a folder a group of the ledger, `told`
    tells the owner, elsewhere than on the channel that it is given."""

    def __init__(
        self,
        home: Home,
        ledger: Ledger,
        clock: Clock,
        *,
        roster: LiveRoster,
        bindings: Bindings,
        codes: Codes,
        asks: Asks,
        terminal: Callable[[Incoming], Awaitable[Place]],
        adopt: Callable[[str], Awaitable[Any]],
        told: Callable[[str, str | None], None],
    ) -> None:
        self._home, self._ledger, self._clock = home, ledger, clock
        self._roster, self._bindings, self._codes, self._asks = roster, bindings, codes, asks
        self._terminal, self._adopt, self._told = terminal, adopt, told
        self._turned_away, self._requests = Daily(clock), Daily(clock)

    async def admit(self, incoming: Incoming) -> Admitted:
        """Raises StorageError alone: what a message holds, or a broken file says, is at most a refusal."""
        if incoming.channel == "terminal":
            return await self._at_terminal(incoming)
        roster = await self._roster.now()
        person = roster.by_account(incoming.sender)
        code = pairing.said(incoming.texts[0]) if _is_private(incoming) else None
        if code is not None and code.code and (told := await self._tried(incoming, person, code)):
            return Admitted(Role.STRANGER, told=told)
        role, name = (Role(person.role), person.name) if person else (Role.STRANGER, None)
        try:
            if incoming.kind == "delete":
                return Admitted(Role.NONE, place=await self._bound(incoming))
            if person is None:
                return Admitted(role, told=await self._turn_away(incoming, roster, code == ALONE))
            self._turned_away.forget(incoming.sender)
            return Admitted(role, name, *await self._placed(incoming, person))
        except StorageError:
            raise
        except ClawdError as error:
            return Admitted(role, name, told=str(error) if person and _is_meant(incoming) else None)

    async def _at_terminal(self, incoming: Incoming) -> Admitted:
        """The caller of the control socket is the owner, and may speak as somebody else to try it."""
        role = Role(incoming.sender.partition(":")[0])
        if not at_least(role, Role.MEMBER):
            return Admitted(role, told=STRANGER)
        return Admitted(role, place=await self._terminal(incoming))

    async def _placed(self, incoming: Incoming, person: Person) -> tuple[Place | None, str | None]:
        """The place of somebody who may speak, or what they are told. Raises ClawdError, with the sentence for them."""
        place = await self._bound(incoming)
        if place is not None or not _is_meant(incoming):
            return place, None
        if incoming.direct and person.role == Role.OWNER.value:
            return await self._made_main(binding_of(incoming)), None
        return None, await self._ask_for_group(incoming, person, binding_of(incoming))

    async def _bound(self, incoming: Incoming) -> Place | None:
        """Where a message belongs; None for a chat that is surely no group's. Raises ClawdError."""
        found, binding = await self._bindings.now(), binding_of(incoming)
        names = found.of(binding)
        if len(names) > 1:
            raise UsageError(twice(binding, names))
        if not names and found.broken:
            folder, error = next(iter(found.broken.items()))
            raise ConfigError(f"This chat may be one of group {folder}, whose group.toml is not understood: {error}")
        if not names:
            return None
        await self._adopt(names[0])
        return await self._bindings.place(incoming, names[0])

    async def _made_main(self, binding: str) -> Place:
        await self._adopt(MAIN)
        try:
            await self._bindings.bind_main(binding)
        except OSError as error:
            raise ClawdError(f"This chat could not be bound to {MAIN}: {error.strerror}") from error
        return Place(MAIN, await self._bindings.base(MAIN))

    async def _ask_for_group(self, incoming: Incoming, person: Person, binding: str) -> str:
        title = person.name if incoming.direct else incoming.title or incoming.chat
        effect = {
            "binding": binding,
            "group": await self._free_group(title),
            "shared": not incoming.direct,
            "title": incoming.title,
            "person": person.name,
        }
        asked = await self._asks.ask("group", effect)
        if asked.state == "denied":
            return "My owner does not want me to work in this chat."
        if asked.fresh:
            return "I asked my owner privately whether I may work in this chat. Say it again once they have said yes."
        return "My owner was asked privately whether I may work in this chat, and has not answered yet."

    async def _free_group(self, title: str) -> str:
        known = [row.name for row in await self._ledger.do(groups.every)]
        return group_name(title, [*known, *await to_thread.run_sync(group_folders, self._home)])

    # ── strangers ──

    async def _turn_away(self, incoming: Incoming, roster: Roster, request: bool) -> str | None:
        """What a stranger is told, once a day; nothing where others read along."""
        if not (incoming.sender and incoming.direct and incoming.kind in _SPOKEN):
            return None
        if request and roster.problem is None:
            return await self._let_in(incoming, roster) if self._requests.first(incoming.sender) else None
        if not self._turned_away.first(incoming.sender):
            return None
        log.info("a stranger was turned away", extra={"channel": incoming.channel})
        return STRANGER if roster.problem is None else UNREADABLE

    async def _let_in(self, incoming: Incoming, roster: Roster) -> str:
        """`/pair` without a code: the owner is asked."""
        name = free_name(roster.people, incoming.name)
        effect = {
            "account": incoming.sender,
            "name": name,
            "role": Role.MEMBER.value,
            "binding": binding_of(incoming),
            "group": await self._free_group(name),
            "called": incoming.name,
        }
        try:
            await self._asks.ask("person", effect)
        except StorageError:
            raise
        except ClawdError as error:
            log.info("the owner was not asked about a stranger: %s", error)
            return "Its owner cannot be asked today."
        return "Its owner was asked whether you may speak to it."

    # ── pairing ──

    async def _tried(self, incoming: Incoming, person: Person | None, said: pairing.Said) -> str | None:
        """What a message is told that has a code in it; None for one that is to go its usual way: nobody asked for a
        code, or the sender has no try left."""
        if not (said.command or self._codes.any()) or self._codes.is_shut_out(incoming.sender):
            return None
        code = self._codes.take(said.code, incoming.sender)
        if code is not None:
            return await self._pair(incoming, person, *code)
        for worn in self._codes.worn():
            sentence = f"The pairing code for {worn.person} is void: somebody tried to guess it."
            self._told(f"{sentence} `clawd pair` makes another", None)
        if person is not None and not said.command:
            return None  # a word in the form of a code
        return WRONG + (LAST if self._codes.is_shut_out(incoming.sender) else "")

    async def _pair(self, incoming: Incoming, person: Person | None, code: Code, fresh: bool) -> str:
        """The account is its person's from now on, and the chat has a group."""
        if person is not None and person.name == code.person:
            if fresh:
                self._codes.give_back(code)
            return "This account is yours already. Send the code from the one that is to be added."
        if person is not None:
            sentence = f"{person.name} sent the pairing code that was for {code.person}: it is void, nobody was paired."
            self._told(f"{sentence} `clawd pair` makes another", None)
            return WRONG
        before = (await self._roster.now()).owners()
        try:
            await self._roster.edit(lambda people: paired(people, code.person, code.role, incoming.sender))
        except (ClawdError, OSError) as error:
            self._codes.give_back(code)
            return f"You could not be paired: {error}"
        log.info("an account was paired", extra={"channel": incoming.channel, "role": code.role})
        who = called(code.person, code.role)
        if any(owner.accounts for owner in before):  # not in the chat that was just paired
            self._told(f"{incoming.sender} was paired: it is {who}, from now on.", incoming.channel)
        now = rfc3339(self._clock.now())
        await self._ledger.do(lambda tx: chats.met(tx, incoming, code.person, now))  # where they can be told and asked
        said = f"You are paired: {who}."
        try:
            group = await self._settle(incoming, code)
        except (ClawdError, OSError) as error:
            return f"{said} This chat has no group yet: {error}"
        return f"{said} What you say here goes to the group {group}."

    async def _settle(self, incoming: Incoming, code: Code) -> str:
        """The group of a chat that was just paired: its own already, `main` for an owner, that of the person's other
        direct chats, or a new one. Raises ClawdError, OSError."""
        binding = binding_of(incoming)
        if place := await self._bound(incoming):
            return place.group
        if code.role == Role.OWNER.value:
            return (await self._made_main(binding)).group
        rows = await self._ledger.do(lambda tx: chats.direct_of(tx, code.person))
        found = await self._bindings.now()
        homes = {
            name
            for row in rows
            for name in found.of(binding_of(Address(row["channel"], row["account"], row["chat"], "")))
        }
        if len(homes) == 1:
            group = homes.pop()
            await to_thread.run_sync(self._bindings.bind, group, binding)
        else:
            group = await self._free_group(code.person)
            await to_thread.run_sync(self._bindings.make, group, binding, False)
        await self._adopt(group)
        return group


def _is_private(incoming: Incoming) -> bool:
    """Whether a message is one text that its sender typed to us alone."""
    return (
        incoming.direct
        and bool(incoming.sender)
        and incoming.kind in _SPOKEN
        and len(incoming.texts) == 1
        and not incoming.said
        and not incoming.attachments
    )


def _is_meant(incoming: Incoming) -> bool:
    """Whether a message wants something of us."""
    return incoming.kind in _SPOKEN and (incoming.direct or incoming.addressed)
