"""Pairing codes on the owner's word, and what is gone with a person who may not speak any more."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clawd.clock import TurnedClock
from clawd.commands.operations import offline
from clawd.commands.people import PeopleOperations, listed, whose_code
from clawd.commands.table import COMMANDS
from clawd.config.home import Home
from clawd.errors import ClawdError, ConfigError, NotFound, UsageError
from clawd.ledger import ends, turns
from clawd.ledger.db import Ledger
from clawd.people.pairing import Codes
from clawd.people.roster import LiveRoster, Person, Roster
from clawd.trust import Role
from tests.ledger.conftest import NOW, Desk

ADA = Person(name="Ada", role="owner", accounts=("telegram:7",))
BOB = Person(name="bob", role="member", accounts=("telegram:8",))
SECOND = Person(name="eve", role="owner")
MISNAMED = Person(name="Owner", role="member")


@pytest.mark.parametrize(
    ("people", "name", "role", "whose"),
    [
        ((), None, None, ("owner", "owner")),
        ((BOB,), None, None, ("owner", "owner")),
        ((ADA, BOB), None, None, ("Ada", "owner")),
        ((ADA, BOB), None, "owner", ("Ada", "owner")),
        ((ADA, BOB), "BOB", None, ("bob", "member")),
        ((ADA, BOB), "bob", "member", ("bob", "member")),
        ((ADA,), "carl", None, ("carl", "member")),
        ((ADA,), "carl", "admin", ("carl", "admin")),
        ((), "Ada", "owner", ("Ada", "owner")),
        ((ADA, BOB), None, "admin", "say who"),
        ((ADA, BOB), "bob", "owner", "changes nobody's role"),
        ((ADA, SECOND), None, None, "more than one owner"),
        ((MISNAMED,), None, None, "no owner is called"),
        ((ADA,), "a\nb", None, "can be seen"),
    ],
)
def test_whose_code_it_is(people: tuple[Person, ...], name: str | None, role: str | None, whose: object) -> None:
    if isinstance(whose, str):
        with pytest.raises(UsageError, match=whose):
            whose_code(Roster(people), name, role)  # type: ignore[arg-type]
    else:
        assert whose_code(Roster(people), name, role) == whose  # type: ignore[arg-type]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.create()
    return home


@pytest.fixture
def ledger(home: Home) -> Iterator[Ledger]:
    ledger = Ledger.open(home.ledger_file)
    yield ledger
    ledger.close()


@pytest.mark.anyio
async def test_codes_roles_and_their_end(home: Home, ledger: Ledger) -> None:
    clock, roster = TurnedClock(datetime(2026, 12, 1, tzinfo=UTC)), LiveRoster(home)
    codes = Codes(clock)
    operations = PeopleOperations(roster, ledger, clock, codes).table()
    made = await operations["pair"]({})
    assert (len(made["code"]), made["person"], made["role"]) == (8, "owner", "owner")
    assert datetime.fromisoformat(made["expires"]).timestamp() - clock.now().timestamp() == 600
    assert not home.people_file.exists()  # nobody was paired yet
    assert await operations["people.grant"]({"person": "bob", "role": "admin"}) == {
        "name": "bob",
        "role": "admin",
        "accounts": [],
    }
    bobs = await operations["pair"]({"person": "bob"})
    assert listed(home) == [{"name": "bob", "role": "admin", "accounts": []}]
    assert await operations["people.revoke"]({"person": "BOB"}) == {"person": "bob", "stopped": 0}
    assert listed(home) == [] and codes.take(bobs["code"], "telegram:9") is None
    with pytest.raises(NotFound):
        await operations["people.revoke"]({"person": "bob"})
    for role in (None, "boss", "stranger", 7):
        with pytest.raises(UsageError, match="no role"):
            await operations["people.grant"]({"person": "bob", "role": role})
    home.people_file.write_text("nonsense")
    change = {"person": "x", "role": "owner"}
    for name, params in (("pair", {}), ("people.grant", change), ("people.revoke", change)):
        with pytest.raises(ConfigError):
            await operations[name](params)
    with pytest.raises(ConfigError):
        listed(home)


@pytest.mark.anyio
async def test_without_a_daemon_people_change_and_codes_are_not_made(home: Home) -> None:
    operations = offline(home)
    await operations["people.grant"]({"person": "Ada", "role": "owner"})
    with pytest.raises(UsageError, match="last owner"):
        await operations["people.revoke"]({"person": "Ada"})
    with pytest.raises(ClawdError, match="lives in the daemon"):
        await operations["pair"]({})


def test_what_works_for_somebody_alone_is_stopped_with_their_rights(ledger: Ledger) -> None:
    desk = Desk(ledger)
    live = desk.accept("a", group="one", role=Role.MEMBER)
    desk.run("r1", "one")
    claim = ledger.tx(lambda tx: turns.claim(tx, "r1", "one", 0, NOW))
    waits = desk.accept("b", group="two", role=Role.MEMBER)
    untaken = desk.accept("c", role=Role.MEMBER, held="rate")
    owners = desk.accept("d", group="three")
    both = desk.accept("e", group="four", role=Role.MEMBER)
    others = desk.accept("f", group="five")
    joined = "INSERT INTO turn_wake (turn, wake) SELECT ?, id FROM wake WHERE inbound = ?"
    ledger.tx(lambda tx: tx.execute(joined, both.turn, others.seq))
    assert claim is not None
    found = ledger.tx(lambda tx: ends.stop_of(tx, ["member"], NOW))
    assert found == ([live.turn], [waits.turn])
    assert ledger.tx(lambda tx: turns.get(tx, live.turn))["stop_requested"] == 1  # type: ignore[arg-type]
    assert [desk.state("inbound", each.seq) for each in (waits, untaken, owners)] == [
        "stopped",
        "withdrawn",
        "received",
    ]
    assert ledger.tx(lambda tx: ends.stop_of(tx, [], NOW)) == ([], [])


class Context:
    async def pair(self, person: str | None) -> str:
        return f"code of {person}"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("role", "direct", "rest", "says"),
    [
        ("owner", 1, "", "code of Ada"),
        ("owner", 0, "", "in a direct message"),
        ("owner", 0, "K7QM2XTN", "does nothing here"),
        ("admin", 1, "", "Only the owner"),
        ("member", 1, "K7QM2XTN", "does nothing here"),
    ],
)
async def test_pair_in_a_chat(role: str, direct: int, rest: str, says: str) -> None:
    before = COMMANDS["pair"].before
    assert before is not None
    try:
        said = await before(Context(), {"role": role, "direct": direct, "name": "Ada"}, rest)  # type: ignore[arg-type]
    except UsageError as error:
        said = str(error)
    assert says in said


@pytest.mark.parametrize(("role", "sees"), [("owner", True), ("admin", False), ("member", False)])
def test_help_shows_what_the_sender_may_say(role: str, sees: bool) -> None:
    help = COMMANDS["help"].run(None, Context(), {"role": role}, "", "").reply  # type: ignore[arg-type]
    assert "/status" in help and ("/approve" in help) == sees and ("/model" in help) == sees
