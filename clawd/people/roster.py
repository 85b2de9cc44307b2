"""`people.toml`: who may speak, as what, and by which accounts. The owner's own file.

It is read anew whenever it changed. One that is missing, not valid, or not surely the owner's own (a link, another
user's, open to others) lets nobody speak, and no earlier reading of it is ever used. We write to it only what `paired`,
`granted` and `revoked` say, keep the person's comments and order, and never write over a file that we cannot read.
"""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from anyio import to_thread
from pydantic import AfterValidator, model_validator

from clawd.config.home import Home
from clawd.config.live import Stamp, stamp
from clawd.config.load import parse
from clawd.config.values import RoleName, Table, written
from clawd.errors import ConfigError, NotFound, UnsafePath, UsageError
from clawd.files import read_owned, write_atomic
from clawd.ids import folded
from clawd.trust import Role

OWNER = "owner"  # what the first owner is called who pairs without a name
MOST_NAME = 64  # characters


def check_name(name: str) -> str:
    """The same, if a person may be called so. Raises ValueError."""
    hidden = any(unicodedata.category(character)[0] in "CZ" and character != " " for character in name)
    if hidden or not 0 < len(name) <= MOST_NAME or name != name.strip():
        raise ValueError(f"a person's name is 1 to {MOST_NAME} characters that can be seen, without blanks around it")
    return name


class Person(Table):
    name: Annotated[str, AfterValidator(check_name)]
    """What they are called here, and in what the agent is told."""
    role: RoleName
    """owner, admin or member."""
    accounts: tuple[
        Annotated[str, written(r"[a-z][a-z0-9_-]*:[^\s:]\S*", 'an account is "<channel>:<id>", like "telegram:7"')], ...
    ] = ()
    """Their accounts, by the platforms' own ids."""


class PeopleFile(Table):
    """`people.toml`."""

    people: tuple[Person, ...] = ()

    @model_validator(mode="after")
    def _each_once(self) -> PeopleFile:
        names: set[str] = set()
        owner: dict[str, str] = {}
        for person in self.people:
            if folded(person.name) in names:
                raise ValueError(f"two people are called {person.name}")
            names.add(folded(person.name))
            for account in person.accounts:
                if account in owner:
                    raise ValueError(f"the account {account} is {owner[account]}'s and {person.name}'s: it is one's")
                owner[account] = person.name
        return self


People = tuple[Person, ...]


@dataclass(frozen=True, slots=True)
class Roster:
    """The people who may speak; nobody where there is a `problem`."""

    people: People = ()
    problem: ConfigError | NotFound | None = None

    def by_account(self, account: str) -> Person | None:
        """Whose account it is, exactly as written; the empty one is nobody's."""
        return next((person for person in self.people if account in person.accounts), None)

    def named(self, name: str) -> Person | None:
        return next((person for person in self.people if folded(person.name) == folded(name)), None)

    def owners(self) -> list[Person]:
        return [person for person in self.people if person.role == Role.OWNER.value]


# ── what may change: pure ──


def paired(people: People, name: str, role: RoleName, account: str) -> People:
    """`account` is one of `name`'s, who is new with `role`, or is there with exactly that one. Raises UsageError."""
    whose = Roster(people).by_account(account)
    if whose is not None and folded(whose.name) != folded(name):
        raise UsageError(f"the account {account} is {whose.name}'s, and an account belongs to one person")
    person = Roster(people).named(name)
    if person is None:
        return (*people, _person(name, role, (account,)))
    if person.role != role:
        raise UsageError(f"{person.name} is {person.role}, not {role}", hint=f"clawd people grant {name!r} {role}")
    accounts = person.accounts if whose else (*person.accounts, account)
    return _replaced(people, person, person.model_copy(update={"accounts": accounts}))


def called(name: str, role: str) -> str:
    """A person with their role, in a sentence: `Bob, member`; whose name says it already is `the owner`."""
    return f"the {role}" if name == role else f"{name}, {role}"


def granted(people: People, name: str, role: RoleName) -> People:
    """`name` has that role; who is new has no account yet. Raises UsageError where no owner would be left."""
    person = Roster(people).named(name)
    if person is None:
        return (*people, _person(name, role, ()))
    return _with_owner(people, _replaced(people, person, person.model_copy(update={"role": role})))


def revoked(people: People, name: str) -> People:
    """`name` is nobody any more. Raises NotFound, UsageError where no owner would be left."""
    person = Roster(people).named(name)
    if person is None:
        raise NotFound(f"there is no person {name!r}", hint="clawd people list")
    return _with_owner(people, tuple(each for each in people if each is not person))


def free_name(people: People, wish: str) -> str:
    """A name like `wish`, which may be anything that somebody calls themselves, that nobody has, nor any role."""
    kept = "".join(each for each in unicodedata.normalize("NFKC", wish) if each.isalnum() or each in " ._-").strip()
    base = " ".join(kept.split())[: MOST_NAME - 4].strip() or "guest"
    taken = {folded(person.name) for person in people} | {role.value for role in Role}
    names = (base if n == 1 else f"{base} {n}" for n in range(1, len(taken) + 2))
    return next(name for name in names if folded(name) not in taken)


def _person(name: str, role: RoleName, accounts: tuple[str, ...]) -> Person:
    try:
        check_name(name)
    except ValueError as error:
        raise UsageError(f"{name!a}: {error}") from None
    return Person(name=name, role=role, accounts=accounts)


def _replaced(people: People, old: Person, new: Person) -> People:
    return tuple(new if each is old else each for each in people)


def _with_owner(before: People, after: People) -> People:
    if Roster(before).owners() and not Roster(after).owners():
        raise UsageError("the last owner stays owner", hint="make somebody else an owner first: clawd people grant")
    return after


# ── the file ──


def load(home: Home) -> Roster:
    """What the file says now. It never raises: what is wrong is the roster's `problem`."""
    return _read(home)[0]


class LiveRoster:
    """The roster as it stands now. `told` hears of each new problem in a sentence."""

    def __init__(self, home: Home, told: Callable[[str], None] = lambda sentence: None) -> None:
        self._home, self._told = home, told
        self._known: tuple[Stamp, Roster] | None = None
        self._problem: str | None = None  # that was told
        self._alone = threading.Lock()

    async def now(self) -> Roster:
        """One `stat` where nothing changed; else it is read in a thread."""
        known = self._known
        same = known is not None and known[0] == stamp(self._home.people_file)
        roster = known[1] if known and same else await to_thread.run_sync(self.read)
        problem = str(roster.problem) if roster.problem else None
        if problem is not None and problem != self._problem:
            self._told(f"Nobody but you at the terminal may speak: {problem}")
        self._problem = problem
        return roster

    def read(self) -> Roster:
        """The same, in any thread."""
        with self._alone:
            seen = stamp(self._home.people_file)
            if self._known is None or self._known[0] != seen:
                self._known = seen, load(self._home)
            return self._known[1]

    async def edit(self, change: Callable[[People], People]) -> Roster:
        """Write what `change` makes of the people, and give it. A file that is not there is made. Raises what `change`
        raises, ConfigError for a file that cannot be understood, OSError: then it is as it was."""
        return await to_thread.run_sync(self.write, change)

    def write(self, change: Callable[[People], People]) -> Roster:
        """The same, in any thread."""
        with self._alone:
            roster, text = _read(self._home)
            if isinstance(roster.problem, ConfigError):
                raise roster.problem
            people = change(roster.people)
            if people != roster.people or text is None:
                fresh = _written(text or "schema = 1\n", people)
                parse(PeopleFile, fresh, self._home.people_file.name)
                write_atomic(self._home.people_file, fresh.encode())
            return Roster(people)


def _read(home: Home) -> tuple[Roster, str | None]:
    """The roster, and its text where that can be edited."""
    file = home.people_file
    try:
        text = read_owned(home.root, file.name).decode()
        return Roster(parse(PeopleFile, text, file.name).people), text
    except FileNotFoundError:
        return Roster(problem=NotFound(f"there is no {file}", hint="clawd pair makes one")), None
    except UnsafePath as error:
        problem = ConfigError(f"{file.name} is not used: {error.message}", hint=f"ls -l {file}")
    except UnicodeDecodeError:
        problem = ConfigError(f"{file.name} is not UTF-8", hint="save it as UTF-8")
    except OSError as error:
        problem = ConfigError(f"{file.name} cannot be read: {error.strerror}", hint=f"ls -l {file}")
    except ConfigError as error:
        problem = error
    return Roster(problem=problem), None


def _written(text: str, people: Iterable[Person]) -> str:
    """The text with these people in it, in which everything else stays as it is."""
    import tomlkit

    document = tomlkit.parse(text)
    wanted = {person.name: person for person in people}
    tables: Any = document.setdefault("people", tomlkit.aot())
    inline = not isinstance(tables, tomlkit.items.AoT)
    for at in reversed(range(len(tables))):
        person = wanted.pop(str(tables[at]["name"]), None)
        if person is None:
            del tables[at]
            continue
        if tables[at]["role"] != person.role:
            tables[at]["role"] = person.role
        accounts = tables[at].setdefault("accounts", tomlkit.array())
        for gone in [each for each in accounts if each not in person.accounts]:
            accounts.remove(gone)
        for new in [each for each in person.accounts if each not in accounts]:
            accounts.append(new)
    for person in wanted.values():
        table = tomlkit.inline_table() if inline else tomlkit.table()
        if not inline and not tables:
            document.add(tomlkit.nl())
        table.update({"name": person.name, "role": person.role, "accounts": list(person.accounts)})
        tables.append(table)
    return tomlkit.dumps(document)
