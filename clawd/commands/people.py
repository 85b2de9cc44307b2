"""Who may speak, on the owner's word: pairing codes, roles, and taking them away. The same behind the control socket
and, but for codes, which live in a daemon's memory, under the home's lock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, get_args

from clawd.clock import Clock, rfc3339
from clawd.config.home import Home
from clawd.config.values import RoleName
from clawd.errors import ClawdError, ConfigError, NotFound, UsageError
from clawd.ledger import ends
from clawd.ledger.db import Ledger
from clawd.people.pairing import Codes
from clawd.people.roster import OWNER, LiveRoster, Roster, granted, load, revoked
from clawd.trust import Role

Params = dict[str, Any]
Stopped = Callable[[list[int], list[int]], None]


def listed(home: Home) -> list[Params]:
    """Everybody who may speak: {name, role, accounts[]}. Raises ConfigError for a list that cannot be used."""
    roster = load(home)
    if isinstance(roster.problem, ConfigError):
        raise roster.problem
    return [person.model_dump(mode="json") for person in roster.people]


def whose_code(roster: Roster, name: str | None, role: RoleName | None) -> tuple[str, RoleName]:
    """Whose account a new code is for, and their role; without a name it is the owner's. Raises UsageError where that
    is not one person."""
    if isinstance(roster.problem, ConfigError):
        raise roster.problem
    if name is None:
        owners = roster.owners()
        if role not in (None, Role.OWNER.value):
            raise UsageError(f"say who is to be {role}: clawd pair --person NAME --role {role}")
        if len(owners) > 1:
            named = ", ".join(each.name for each in owners)
            raise UsageError(f"there is more than one owner ({named}): say which", hint="clawd pair --person NAME")
        if not owners and roster.named(OWNER) is not None:
            raise UsageError(f"somebody who is no owner is called {OWNER}: say what you are called, with --person")
        return (owners[0].name if owners else OWNER), "owner"
    if person := roster.named(name):
        if role not in (None, person.role):
            hint = f"clawd people grant {person.name} {role}"
            raise UsageError(f"{person.name} is {person.role}, and a code changes nobody's role", hint=hint)
        return person.name, person.role
    role = role or "member"
    return granted(roster.people, name, role)[-1].name, role  # as it would be written


class PeopleOperations:
    """In the daemon with its `codes`, and `stopped`, which ends live turns and notes those that waited."""

    def __init__(
        self,
        roster: LiveRoster,
        ledger: Ledger,
        clock: Clock,
        codes: Codes | None = None,
        stopped: Stopped | None = None,
    ) -> None:
        self._roster, self._ledger, self._clock, self._codes, self._stopped = roster, ledger, clock, codes, stopped

    def table(self) -> dict[str, Callable[[Params], Awaitable[Any]]]:
        return {name: partial(operation, self) for name, operation in OPERATIONS.items()}

    async def pair(self, params: Params) -> Params:
        """{code, expires, person, role}."""
        if self._codes is None:
            raise ClawdError("a code lives in the daemon, and none runs", hint="clawd run")
        name, role = params.get("person"), params.get("role")
        person, role = whose_code(await self._roster.now(), name, None if role is None else _role(role))
        code, expires = self._codes.make(person, role)
        return {"code": code.text, "expires": rfc3339(expires), "person": person, "role": role}

    async def grant(self, params: Params) -> Params:
        name, role = str(params.get("person") or ""), _role(params.get("role"))
        roster = await self._roster.edit(lambda people: granted(people, name, role))
        person = roster.named(name)
        assert person is not None
        return person.model_dump(mode="json")

    async def revoke(self, params: Params) -> Params:
        """From now on nothing more is taken from them; what acts for them alone is stopped, at work or not."""
        name = str(params.get("person") or "")
        person = (await self._roster.now()).named(name)
        await self._roster.edit(lambda people: revoked(people, name))
        if person is None:
            raise NotFound(f"there is no person {name!r}", hint="clawd people list")
        if self._codes is not None:
            self._codes.drop(person.name)
        now = rfc3339(self._clock.now())
        live, waiting = await self._ledger.insist(lambda tx: ends.stop_of(tx, person.accounts, now))
        if self._stopped is not None:
            self._stopped(live, waiting)
        return {"person": person.name, "stopped": len(live) + len(waiting)}


def _role(role: object) -> RoleName:
    if role not in get_args(RoleName):
        raise UsageError(f"{role!r} is no role of a person", hint=f"one of {', '.join(get_args(RoleName))}")
    return role  # type: ignore[return-value]


OPERATIONS: dict[str, Callable[[PeopleOperations, Params], Awaitable[Any]]] = {
    "pair": PeopleOperations.pair,
    "people.grant": PeopleOperations.grant,
    "people.revoke": PeopleOperations.revoke,
}
