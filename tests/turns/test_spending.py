"""A spent budget: its turns wait, are told once, and go on when they can be paid for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawd.approvals.budget import Budget as BudgetKind
from clawd.approvals.budget import Raise, raise_of
from clawd.clock import rfc3339
from clawd.config.begin import init_home
from clawd.config.home import Home
from clawd.config.load import load_config, load_group, merged
from clawd.errors import ConfigError, StorageError
from clawd.ledger import money
from clawd.ledger.db import Row, Transaction
from clawd.model import Final, Lease, Offer, Usage
from clawd.usage.budgets import BudgetSpent, Call, Limit
from clawd.usage.prices import Tokens
from tests.turns.conftest import BoxBackend, Ground, opened

pytestmark = pytest.mark.anyio
NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)

CONFIG = """schema = 1
[claw]
timezone = "UTC"
[model]
engine = "messages"
model = "m"
max_output = 100
"""


@dataclass
class Model:
    """What plays turns: each makes a step, and calls a model that takes `takes` tokens of at most `most`."""

    most: int = 2000
    takes: int = 10
    asked: list[int] = field(default_factory=list)
    seen: list[tuple[int, int]] = field(default_factory=list)  # attempt, and steps that were there

    async def play(self, ground: Ground, lease: Lease, offer: Offer) -> None:
        self.seen.append((offer.attempt, len(offer.steps)))
        if not offer.steps:
            step = {"role": "assistant", "content": "let me see"}
            await ground.counter.step(lease, 0, step, [])
        run = ground.dispatcher.run_of(lease.run)
        assert run is not None
        caller, books = ground.caller(run), ground.dispatcher.spending.books
        self.asked.append(lease.turn)
        try:
            paid = await books.reserve(Call(run.group, "anthropic", "m", self.most - 100, 100, lease.turn))
        except BudgetSpent as spent:
            caller.spent(lease.turn, spent)
            await ground.counter.final(lease, Final("", error="the budget is spent"))
            return
        caller.paid(lease.turn)
        await books.settle(paid, Tokens(self.takes, 0), estimated=False)
        await ground.counter.final(lease, Final("a reply"))


@asynccontextmanager
async def played(
    path: Path, model: Model, budget: str = "tokens_per_day = 2005", backend: BoxBackend | None = None
) -> AsyncIterator[Ground]:
    async with opened(path, play=model.play, backend=backend) as ground:
        ground.home.config_file.write_text(f"{CONFIG}[budget]\n{budget}\n")
        ground.home.group("main").root.mkdir(parents=True, exist_ok=True)
        ground.home.group("main").config_file.write_text('grants = ["anthropic"]\n')
        yield ground


async def spend(ground: Ground, tokens: int) -> None:
    """So many tokens of today are gone."""
    when = ground.dispatcher.spending.books.period("main")

    def enter(tx: Transaction) -> None:
        id = money.reserve(
            tx, group="main", service="anthropic", turn=None, model="m", day=when.day, month=when.month, input=tokens,
            output=0, nanos=None, now=rfc3339(ground.clock.now()),
        )  # fmt: skip
        money.settle(tx, id, input=tokens, output=0, cached=0, nanos=None, estimated=False)

    await ground.ledger.do(enter)


async def held(ground: Ground, seq: int) -> Row:
    return await ground.until_state(seq, "held")


async def test_a_turn_is_held_with_its_steps_told_once_and_answered_when_the_limit_is_raised(tmp_path: Path) -> None:
    model = Model()
    async with played(tmp_path, model) as ground:
        first = await ground.accept()
        await ground.recorded(first)
        second = await ground.accept()  # what is left is less than it may take
        row = await held(ground, second)
        assert row["attempt"] == 1 and row["faults"] == 0 and row["run"] is None
        [said] = await ground.notices()
        assert said.startswith("Your message is kept") and "10 tokens of 2,005 tokens today" in said
        assert "opens again at" in said and "clawd budget raise main --tokens N --for day" in said
        message = await ground.message(second)
        assert message["state"] == "held" and message["reason"] in said and len(message["steps"]) == 1
        # A call of its least size could still be paid: so others begin, and wait when they are refused.
        third = await ground.accept(session="other")
        await held(ground, third)
        assert len(await ground.notices()) == 2
        await ground.ledger.do(lambda tx: money.raise_(tx, "main", _day(ground), tokens=2100, nanos=None, now="now"))
        ground.dispatcher.spending.look()
        await ground.recorded(second, third)
        assert len(await ground.notices()) == 2 and (await ground.turn(second))["attempt"] == 1
        assert model.seen.count((1, 1)) == 2  # they went on behind their step
        usage = await ground.turn(second)
        assert (usage["input"], usage["output"], usage["usd"]) == (10, 0, None)


async def test_the_owner_is_asked_whether_to_raise_it_and_their_yes_is_enough_to_go_on(tmp_path: Path) -> None:
    model = Model()
    async with played(tmp_path, model) as ground:
        asked: list[dict[str, Any]] = []

        def ask(group: str, spent: BudgetSpent) -> None:
            effect = raise_of(spent, ground.dispatcher.spending.books.settings(group), ground.clock.now())
            assert effect is not None
            asked.append(effect)

        ground.dispatcher.spending.ask = ask
        await ground.recorded(await ground.accept())
        second = await ground.accept()
        await held(ground, second)
        [effect] = asked
        wanted = {"group": "main", "span": "day", "period": _day(ground), "unit": "tokens", "amount": 2005}
        assert effect == wanted
        kind = BudgetKind(ground.home, ground.clock, ground.dispatcher.spending.look)
        raised = Raise(**effect)
        await ground.ledger.do(lambda tx: kind.execute(tx, raised, "now"))
        kind.after(raised)
        await ground.recorded(second)


@pytest.mark.parametrize(
    ("limit", "asks"),
    [
        (Limit("main", None, "usd", "month", 10**9, 10**9, 0, NOON), ("2026-12", 5 * 10**9)),
        (Limit("main", None, "tokens", "day", 10, 10, 0, NOON), None),  # which has no such limit now
        (Limit(None, "anthropic", "usd", "day", 10, 10, 0, NOON), None),  # a service's is in config.toml
    ],
)
def test_what_the_owner_is_asked_for(tmp_path: Path, limit: Limit, asks: tuple[str, int] | None) -> None:
    home = Home(tmp_path)
    init_home(home, user="Ada")
    home.group("main").config_file.write_text("schema = 1\n[budget]\nusd_per_month = 5\n")
    settings = merged(load_config(home, {}), load_group(home, "main"))
    effect = raise_of(BudgetSpent("spent", Call("main", "a", "m", 1, 1), limit, hint=""), settings, NOON)
    assert (effect and (effect["period"], effect["amount"])) == asks


def _day(ground: Ground) -> str:
    return ground.dispatcher.spending.books.period("main").day


async def test_nothing_is_started_only_to_be_refused(tmp_path: Path) -> None:
    model = Model(takes=1)
    async with played(tmp_path, model) as ground:
        await spend(ground, 2000)
        first = await ground.accept()
        await held(ground, first)
        asked = len(model.asked)
        others = [await ground.accept(session=name) for name in ("a", "b", "terminal:main")]
        for seq in others:
            await held(ground, seq)
        assert len(model.asked) == asked == 1 and len(await ground.notices()) == 4
        await ground.dispatcher.end_run("main")
        last = await ground.accept(session="c")
        await held(ground, last)
        assert len(ground.backend.boxes) == 1  # nor is a sandbox made
        ground.clock.ahead += 86400  # the clock is set, or the day goes by
        ground.dispatcher.spending.tick()
        await ground.recorded(first, *others, last)
        assert len(await ground.notices()) == 5


async def test_an_edit_of_the_config_and_what_was_not_used_let_it_go_on(tmp_path: Path) -> None:
    model = Model()
    async with played(tmp_path, model) as ground:
        await spend(ground, 2000)
        seq = await ground.accept()
        await held(ground, seq)
        ground.home.group("main").config_file.write_text('grants = ["anthropic"]\n[budget]\ntokens_per_day = 9000\n')
        ground.dispatcher.spending.tick()
        await ground.recorded(seq)
        books = ground.dispatcher.spending.books
        under_way = await books.reserve(Call("main", "anthropic", "m", 6000, 0))
        waiting = await ground.accept()
        row = await held(ground, waiting)
        assert "calls under way may take 6,000 tokens" in row["held"]
        await books.release(under_way)
        await ground.recorded(waiting)


async def test_a_restart_holds_what_was_held(tmp_path: Path) -> None:
    model, backend = Model(takes=1), BoxBackend()
    async with played(tmp_path, model, backend=backend) as ground:
        await spend(ground, 2000)
        seq = await ground.accept()
        await held(ground, seq)
        await ground.dispatcher.end_run("main")
    async with played(tmp_path, model, backend=backend) as ground:
        await ground.dispatcher.recover()
        other = await ground.accept(session="other")
        await held(ground, other)
        assert len(model.asked) == 1 and len(await ground.notices()) == 2
        ground.clock.ahead += 86400
        ground.dispatcher.spending.tick()
        await ground.recorded(seq, other)


async def test_the_timer_wakes_by_itself_when_the_day_ends_or_the_clock_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(takes=1)
    async with played(tmp_path, model) as ground:
        spending = ground.dispatcher.spending
        await spend(ground, 2000)
        seq = await ground.accept()
        await held(ground, seq)
        await ground.dispatcher.end_run("main")
        books, opens = spending.books, spending._held["main"].spent.opens.day
        looks: list[int] = []
        real = books.refusal

        async def broken(group: str) -> None:
            raise ConfigError("nobody can read it")

        async def full(call: Call) -> None:
            looks.append(ground.clock.now().day)
            raise StorageError("the disk is full")

        monkeypatch.setattr(books, "stops", broken)
        other = await ground.accept(session="other")
        await held(ground, other)  # it is tried all the same
        monkeypatch.setattr(books, "refusal", full)
        left = spending._held["main"].spent.opens - ground.clock.now()
        ground.clock.ahead = left.total_seconds() - 0.5
        spending._news.set()
        with anyio.fail_after(30):
            while opens not in looks:
                await anyio.sleep(0.01)
        await anyio.sleep(0.2)
        assert looks.count(opens) == 1  # not again and again
        monkeypatch.setattr(books, "refusal", real)
        spending.tick()
        await ground.recorded(seq, other)
        monkeypatch.setattr("clawd.turns.spending._AGAIN_S", 0.05)
        for days in (1, -9):  # the clock is set: what was waited for does not come
            await spend(ground, 2000)
            seq = await ground.accept()
            await held(ground, seq)
            ground.clock.ahead += days * 86400
            await ground.recorded(seq)


async def test_an_engine_without_a_model_is_never_held(tmp_path: Path) -> None:
    async def play(ground: Ground, lease: Lease, offer: Offer) -> None:
        run = ground.dispatcher.run_of(lease.run)
        assert run is not None
        with pytest.raises(BudgetSpent) as spent:
            await ground.dispatcher.spending.books.reserve(Call("main", "anthropic", "m", 9000, 1, lease.turn))
        ground.caller(run).spent(lease.turn, spent.value)
        error = None if offer.attempt == 3 else "a tool failed"
        await ground.counter.final(lease, Final("from rules", usage=Usage(3, 4, 1), error=error))

    model = Model()
    async with played(tmp_path, model) as ground:
        ground.play = play
        ground.home.config_file.write_text(ground.home.config_file.read_text().replace('"messages"', '"offline"'))
        seq = await ground.accept()
        await ground.recorded(seq)
        row = await ground.turn(seq)
        assert (row["state"], row["attempt"]) == ("answered", 3)
        assert [text.partition(":")[0] for text in await ground.notices()] == ["A model was not asked"] * 3
        assert (row["input"], row["output"], row["cached"], row["usd"]) == (9, 12, 3, None)  # of its three attempts


async def test_a_turn_that_chose_its_own_engine_is_not_held_with_its_group(tmp_path: Path) -> None:
    model = Model()
    async with played(tmp_path, model) as ground:
        await spend(ground, 2000)
        await held(ground, await ground.accept())

        async def offline(ground: Ground, lease: Lease, offer: Offer) -> None:
            await ground.counter.final(lease, Final("from rules"))

        ground.play = offline
        chosen = await ground.accept(session="chosen", choice={"engine": "offline"})
        await ground.recorded(chosen)
        plain = await ground.accept(session="plain")
        await held(ground, plain)
