"""What an agent makes of a schedule: what it is told, what the owner is asked, and whose it is for ever."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from clawd.approvals.approvals import Asked
from clawd.clock import TurnedClock
from clawd.config.home import Home
from clawd.config.load import init_home
from clawd.errors import NotFound, UsageError
from clawd.files import Blobs
from clawd.host.changes import Changes
from clawd.host.tools import ToolContext, schedule
from clawd.ledger import authored, effects, turns
from clawd.ledger.db import Ledger, Transaction
from clawd.model import Authority, Lease
from clawd.schedules import edits, store
from clawd.trust import Role
from tests.ledger.conftest import NOW, Desk

pytestmark = pytest.mark.anyio
MEMBER = Authority(Role.MEMBER, 0.4)
MINE = 'schema = 1\nevery = "1h"\nprompt = "look"\n'


class Bench:
    """A home, and live turns that call the tool. What is asked of the approvals is kept; what may be done at once is
    done to the files."""

    def __init__(self, root: Path) -> None:
        self.home, self.asked, self.done = Home(root), list[dict[str, Any]](), list[dict[str, Any]]()
        init_home(self.home)
        self.ledger = Ledger.open(self.home.ledger_file)
        self.desk, self.state = Desk(self.ledger), "open"
        self.directory = self.home.group("main").schedules
        self.home.group("main").config_file.write_text(
            'schema = 1\ntimezone = "Europe/Berlin"\nbindings = ["telegram:-1", "terminal:main", "telegram:-2"]\n'
        )

    def turn(self, acts: Authority) -> None:
        """The next calls are of a turn with these rights."""
        self.desk.accept(role=acts.role, session=f"s{self.desk.count}")
        self.desk.run(f"r{self.desk.count}")
        claimed = self.ledger.tx(lambda tx: turns.claim(tx, f"r{self.desk.count}", "main", 0, NOW))
        assert claimed is not None
        self.lease = Lease(f"r{self.desk.count}", claimed.turn["id"], claimed.attempt, 0)
        self.ledger.tx(lambda tx: turns.fall(tx, self.lease.run, acts.taint))
        clock = TurnedClock(datetime(2026, 12, 1, 9, tzinfo=UTC))
        self.context = ToolContext(
            self.lease, self.home.root, Blobs(self.home.blobs), None, Changes(self.lease.turn, self), "main", clock,  # type: ignore[arg-type]
            lambda: None, home=self.home, zone="Europe/Berlin",
        )  # fmt: skip

    def ask_in(self, tx: Transaction, kind: str, effect: Any, *, turn: int | None) -> Asked:
        assert (kind, turn) == ("schedule", self.lease.turn)
        self.asked.append(effect)
        return Asked(100_000, True, self.state)

    def do_in(self, tx: Transaction, kind: str, effect: Any, *, turn: int) -> None:
        self.done.append(effect)
        if effect["action"] == "add":
            edits.put(self.directory, effect["id"], effect["text"])

    async def call(self, **arguments: Any) -> dict[str, Any]:
        found = await schedule.prepare(self.context, schedule.Arguments(**arguments))
        if isinstance(found, dict):
            return found
        act = found
        return self.ledger.tx(lambda tx: effects.do(tx, self.lease, "schedule", arguments, None, act)).result

    def acts(self, text: str) -> Authority | None:
        return self.ledger.tx(lambda tx: authored.of_agent(tx, "schedule", "main", edits.digest(text)))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.ledger.close()


async def test_the_owners_turn_makes_it_and_says_what_was_understood(bench: Bench) -> None:
    bench.turn(Authority(Role.OWNER, 1.0))
    told = await bench.call(when="every weekday at 9: say good morning")
    assert told == {
        "done": "schedule say-good-morning",
        "id": "say-good-morning",
        "understood": "every weekday at 09:00 (Europe/Berlin)",
        "next": ["Wed 2026-12-02 09:00", "Thu 2026-12-03 09:00", "Fri 2026-12-04 09:00"],
        "until": "Sun 2027-05-30 11:00",
    }
    [effect] = bench.done
    head, _, rest = effect["text"].partition("\n")
    assert head == "# Made by the agent in turn 1, which acts for owner."
    assert 'deliver_to = "terminal:main"' in rest  # the chat in which it was asked for, which is not the first
    assert effect["sha256"] == edits.digest(effect["text"]) and not bench.asked
    assert bench.acts(effect["text"]) == Authority(Role.OWNER, 1.0)
    again = await bench.call(when="in 10 minutes", prompt="say good morning", deliver_to="telegram:-1")
    assert again["id"] == "say-good-morning-2" and "until" not in again
    assert 'deliver_to = "telegram:-1"' in bench.done[1]["text"]
    listed = (await bench.call(action="list"))["schedules"]
    assert [row["id"] for row in listed] == ["say-good-morning", "say-good-morning-2"]
    assert listed[0]["when"] == "0 9 * * mon-fri" and listed[0]["next"].startswith("2026-12-02T")


@pytest.mark.parametrize("acts", [MEMBER, Authority(Role.OWNER, 0.2)])
async def test_any_other_turn_proposes_it_and_it_acts_as_that_turn(bench: Bench, acts: Authority) -> None:
    bench.turn(acts)
    told = await bench.call(when="every 20m", prompt="look", id="mine", until="2027-01-01T00:00")
    assert told["waits"].startswith("schedule mine: not done yet: ") and "the owner is asked" in told["waits"]
    assert told["id"] == "mine" and len(told["next"]) == 3 and "until" not in told
    [effect] = bench.asked
    assert bench.acts(effect["text"]) == acts and not bench.done and list(store.stamps(bench.directory)) == []
    assert f"which acts for {acts.role}, and is trusted at {acts.taint:g}." in effect["text"]
    bench.state = "denied"
    with pytest.raises(UsageError, match="the owner said no to it"):
        await bench.call(when="every 30m", prompt="look")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "say when"),
        ({"when": "every 5m", "prompt": "x"}, "too often"),
        ({"when": "every 20m"}, "say what"),
        ({"when": "every 20m", "prompt": "x", "id": "../x"}, "cannot be a schedule's id"),
        ({"when": "every 20m", "prompt": "x", "deliver_to": "there"}, "a binding is"),
        ({"action": "remove", "id": "nothing"}, "there is no schedule nothing"),
        ({"action": "pause", "id": "other/mine"}, "cannot be a schedule's id"),
    ],
)
async def test_what_is_refused_says_why(bench: Bench, arguments: dict[str, Any], why: str) -> None:
    bench.turn(Authority(Role.OWNER, 1.0))
    with pytest.raises((UsageError, NotFound), match=why):
        await bench.call(**arguments)
    assert not bench.done and not bench.asked


@pytest.mark.parametrize(
    ("made_by", "asks", "action", "by_itself"),
    [
        (MEMBER, MEMBER, "remove", True),
        (MEMBER, Authority(Role.OWNER, 0.4), "pause", True),
        (Authority(Role.OWNER, 1.0), Authority(Role.OWNER, 1.0), "remove", True),
        (Authority(Role.OWNER, 1.0), Authority(Role.OWNER, 0.7), "remove", False),  # that may do less
        (MEMBER, Authority(Role.MEMBER, 0.2), "remove", False),
        (Authority(Role.ADMIN, 0.4), MEMBER, "pause", False),
        (MEMBER, MEMBER, "resume", False),  # that would be to make it
        (None, MEMBER, "remove", False),
        (None, Authority(Role.OWNER, 0.2), "pause", False),
        (None, Authority(Role.OWNER, 1.0), "pause", True),
        (MEMBER, Authority(Role.OWNER, 1.0), "resume", True),
    ],
)
async def test_what_an_agent_made_it_takes_away_and_what_a_person_made_it_proposes_to(
    bench: Bench, made_by: Authority | None, asks: Authority, action: str, by_itself: bool
) -> None:
    text = MINE if action != "resume" else MINE + "enabled = false\n"
    edits.put(bench.directory, "mine", text)
    if made_by is not None:
        bench.turn(made_by)
        note = ("schedule", "main", "mine", edits.digest(text), bench.lease.turn, NOW)
        bench.ledger.tx(lambda tx: authored.note(tx, *note))  # type: ignore[arg-type]
    bench.turn(asks)
    told = await bench.call(action=action, id="main/mine")
    assert set(told) == ({"done"} if by_itself else {"waits"})
    effect = (bench.done if by_itself else bench.asked)[0]
    assert effect == {"group": "main", "id": "mine", "action": action, "text": text, "sha256": edits.digest(text)}
    if action != "remove":  # what becomes of the file stays whose it was
        assert bench.acts(edits.switched(text, action == "resume")) == made_by


async def test_a_turn_changes_five(bench: Bench) -> None:
    bench.turn(Authority(Role.OWNER, 1.0))
    for n in range(5):
        assert "done" in await bench.call(when="every 20m", prompt=f"look {n}")
    assert "which is the limit" in (await bench.call(when="every 20m", prompt="look once more"))["error"]
    assert len(bench.done) == 5


async def test_a_chat_of_the_group_that_is_no_binding_is_not_named(bench: Bench) -> None:
    bench.home.group("main").config_file.write_text("schema = 1\n")
    bench.turn(Authority(Role.OWNER, 1.0))
    await bench.call(when="every 20m", prompt="look")
    assert "deliver_to" not in bench.done[0]["text"]
