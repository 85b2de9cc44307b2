"""A month of calls, prices, raises, refunds and crashes: the books add up, and no limit is ever passed."""

from __future__ import annotations

import asyncio
import random
import tomllib
from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from clawd.clock import TurnedClock, rfc3339
from clawd.config.group import Effective, GroupConfig
from clawd.config.load import merged
from clawd.config.schema import Config
from clawd.ledger import money
from clawd.ledger.db import Ledger
from clawd.usage import prices, reports
from clawd.usage.books import Books, Reservation, Rules
from clawd.usage.budgets import BudgetSpent, Call, PriceUnknown
from clawd.usage.prices import Tokens

pytestmark = pytest.mark.anyio

CONFIG = """
[budget]
usd_per_day = 2.5
usd_per_month = 60.5
tokens_per_day = 4_000_000
[services.anthropic.limits]
usd_per_day = 6
[prices.local]
input = 0
output = 0
[prices.odd]
input = 0.0333
output = 0.77777
cached = 0.0001
"""
ZONES = {"berlin": "Europe/Berlin", "york": "America/New_York"}
MODELS = ("claude-opus-4-5-20251101", "claude-sonnet-4-5", "claude-haiku-5-5", "odd", "local")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Row:
    """One call as the test itself accounts for it, in dollars."""

    group: str
    service: str
    day: str
    tokens: int
    usd: Decimal
    open: bool = True


@dataclass
class World:
    path: Path
    config: Config
    clock: TurnedClock = field(default_factory=lambda: TurnedClock(datetime(2026, 10, 20, 3, tzinfo=UTC)))
    rows: dict[int, Row] = field(default_factory=dict)
    raises: dict[tuple[str, str], Decimal] = field(default_factory=lambda: defaultdict(Decimal))
    calls: dict[int, Reservation] = field(default_factory=dict)

    def open(self) -> None:
        self.ledger = Ledger.open(self.path)
        self.ledger._connection.execute("PRAGMA synchronous = OFF")  # nobody pulls the plug here
        self.books = Books(self.ledger, self.clock, lambda: self.config, self.settings)

    def settings(self, group: str) -> Effective:
        return replace(merged(self.config, GroupConfig()), timezone=ZONES[group])

    def today(self, group: str) -> str:
        return self.clock.now().astimezone(ZoneInfo(ZONES[group])).date().isoformat()

    def limits(self, group: str, service: str) -> list[tuple[Decimal, list[Row], str]]:
        """(most, rows that count, what of them) of every limit that a call of today meets."""
        day = self.today(group)
        mine = [row for row in self.rows.values() if row.group == group]
        today, month = ([row for row in mine if row.day.startswith(span)] for span in (day, day[:7]))
        budget = self.config.budget
        assert budget.usd_per_day is not None and budget.usd_per_month is not None and budget.tokens_per_day
        found = [
            (Decimal(str(budget.usd_per_day)) + self.raises[group, day], today, "usd"),
            (Decimal(str(budget.usd_per_month)) + self.raises[group, day[:7]], month, "usd"),
            (Decimal(budget.tokens_per_day), today, "tokens"),
        ]
        if service == "anthropic":
            every = [row for row in self.rows.values() if row.service == service and row.day == day]
            found.append((Decimal(6), every, "usd"))
        return found


def cost(model: str, input: int, output: int, cached: int, written: int) -> Decimal:
    """Dollars, by the price lists' own figures."""
    rates = {
        "claude-opus-4-5-20251101": ("5", "25", "0.5", "6.25"),
        "claude-sonnet-4-5": ("6", "22.5", "0.6", "7.5") if input > 200_000 else ("3", "15", "0.3", "3.75"),
        "claude-haiku-5-5": ("0.5", "2.5", "0.05", "0.625") if input > 100_000 else ("0.1", "0.5", "0.01", "0.125"),
        "odd": ("0.0333", "0.77777", "0.0001", "0.0333"),
        "local": ("0", "0", "0", "0"),
    }[model]
    a, b, c, d = map(Decimal, rates)
    exact = (input - cached - written) * a + output * b + cached * c + written * d
    return (exact * 1000).to_integral_value(ROUND_CEILING) / 10**9


@pytest.mark.parametrize("seed", range(2))
async def test_a_month_adds_up_and_no_limit_is_passed(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    world = World(tmp_path / "ledger.db", Config.model_validate(tomllib.loads(CONFIG)))
    world.open()
    refused = crashes = 0
    while world.clock.now() < datetime(2026, 11, 22, tzinfo=UTC):
        what = dice.choices(("wait", "call", "end", "crash", "raise"), (4, 10, 9, 0.2, 0.2))[0]
        group = dice.choice(list(ZONES))
        if what == "wait":
            world.clock.advance(dice.expovariate(1 / 12_000))
        elif what == "call":
            refused += not await _call(world, dice, group)
        elif what == "end" and world.calls:
            await _end(world, dice, dice.choice(list(world.calls)))
        elif what == "raise":
            await _raise(world, dice, group)
        elif what == "crash":
            crashes += 1
            world.ledger.close()
            world.open()
            await world.books.open()
            for id in world.calls:
                world.rows[id].open = False
            world.calls.clear()
        if what == "call":
            _nothing_is_passed(world, group)
    assert refused > 10 and crashes > 0 and len(world.rows) > 150
    world.ledger.close()
    world.open()
    _the_books_say_the_same(world)
    world.ledger.close()


async def _call(world: World, dice: random.Random, group: str) -> bool:
    model = dice.choice(MODELS)
    service = "ollama" if model in ("odd", "local") else "anthropic"
    input, output = int(dice.lognormvariate(10.5, 1)), dice.choice((500, 8192, 32_000))
    call = Call(group, service, model, input, output, hour=False)
    bound = cost(model, input, output, 0, input)
    allowed = all(
        sum((row.usd if unit == "usd" else row.tokens for row in rows), Decimal(0))
        + (bound if unit == "usd" else input + output)
        <= most
        for most, rows, unit in world.limits(group, service)
    )
    try:
        reservation = await world.books.reserve(call)
    except BudgetSpent as spent:
        assert not allowed, spent
        assert spent.opens > world.clock.now()
        return False
    assert allowed
    world.calls[reservation.id] = reservation
    world.rows[reservation.id] = Row(group, service, world.today(group), input + output, bound)
    return True


async def _end(world: World, dice: random.Random, id: int) -> None:
    reservation, row = world.calls.pop(id), world.rows[id]
    call = reservation.call
    row.open = False
    fate = dice.choices(("settle", "release", "assume"), (8, 1, 1))[0]
    if fate == "release":
        row.tokens, row.usd = 0, Decimal(0)
        await world.books.release(reservation)
    elif fate == "assume":
        await world.books.assume(reservation)
    else:
        input, output = dice.randint(0, call.input), dice.randint(0, call.output)
        cached = dice.randint(0, input)
        written = dice.randint(0, input - cached)
        row.tokens, row.usd = input + output, cost(call.model, input, output, cached, written)
        await world.books.settle(reservation, Tokens(input, output, cached, written), estimated=False)


async def _raise(world: World, dice: random.Random, group: str) -> None:
    span, usd = dice.choice(("day", "month")), dice.choice((0.01, 1.5, 3))
    rules, when = Rules(group, world.config.budget, None, None), world.books.period(group)
    now = rfc3339(world.clock.now())
    done = await world.ledger.do(lambda tx: reports.raised(tx, rules, when, span, usd, None, now))
    world.raises[group, done["for"]] += Decimal(str(usd))


def _nothing_is_passed(world: World, group: str) -> None:
    for most, rows, unit in world.limits(group, "anthropic"):
        assert sum((row.usd if unit == "usd" else row.tokens for row in rows), Decimal(0)) <= most


def _the_books_say_the_same(world: World) -> None:
    ours: dict[str, Decimal] = defaultdict(Decimal)
    for row in world.rows.values():
        if not row.open:
            for key in (row.group, row.service, row.day):
                ours[key] += row.usd
    for by in ("group", "service", "day"):
        for line in world.ledger.tx(partial(reports.usage, by=by)):
            assert line["usd"] is not None and round(line["usd"] * 10**9) == ours[line["key"]] * 10**9, line
    for group in ZONES:
        now, when, rules = world.clock.now(), world.books.period(group), world.books.rules(group)
        shown = world.ledger.tx(partial(reports.budget, rules=rules, when=when, now=now))
        open = sum(row.usd for row in world.rows.values() if row.open and row.group == group and row.day == when.day)
        assert round(shown[0]["reserved"] * 10**9) == open * 10**9 and shown[0]["spent"] <= shown[0]["limit"]


async def test_fifty_at_once_never_pass_a_limit(tmp_path: Path) -> None:
    world = World(tmp_path / "ledger.db", Config.model_validate(tomllib.loads("[budget]\ntokens_per_day = 9_999")))
    world.open()
    call = Call("york", "anthropic", "claude-x", 900, 100)
    done = await asyncio.gather(*(world.books.reserve(call) for _ in range(50)), return_exceptions=True)
    let = [each for each in done if isinstance(each, Reservation)]
    assert len(let) == 9 and sum(isinstance(each, BudgetSpent) for each in done) == 41
    used = await world.ledger.do(lambda tx: money.used(tx, group="york", month="2026-10"))
    assert (used.tokens, used.reserved_tokens) == (0, 9000)
    freed: list[int] = []
    world.books.freed = lambda: freed.append(1)
    await world.books.settle(let[0], Tokens(1, 1), estimated=False)
    await world.books.reserve(call)  # what was not used is there again
    assert freed == [1] and await world.books.refusal(call) is not None
    world.ledger.close()


async def test_what_can_pay_is_not_stopped(tmp_path: Path) -> None:
    """A group is held as a whole only while none of its models can be called."""
    text = """
        [model]
        engine = "messages"
        model = "claude-opus-4-5"
        fallbacks = ["claude-haiku-4-5", "ollama/llama3"]
        max_output = 1000
        [budget]
        usd_per_day = 0.02
    """
    world = World(tmp_path / "ledger.db", Config.model_validate(tomllib.loads(text)))
    world.open()
    assert await world.books.stops("york") is None  # the cheaper one is within the limit
    with pytest.raises(PriceUnknown):
        await world.books.reserve(Call("york", "ollama", "llama3", 1, 1))
    await world.books.settle(
        await world.books.reserve(Call("york", "anthropic", "claude-haiku-4-5", 10_000, 1000)),
        Tokens(10_000, 1000),
        estimated=False,
    )
    world.config = Config.model_validate(tomllib.loads(text.replace(', "ollama/llama3"', "")))
    spent = await world.books.stops("york")
    assert spent is not None and spent.opens.isoformat() == "2026-10-20T00:00:00-04:00"
    priced = text + "[prices.llama3]\ninput = 0\noutput = 0\n"
    world.config = Config.model_validate(tomllib.loads(priced))
    assert await world.books.stops("york") is None  # what costs nothing goes on
    world.config = Config.model_validate(tomllib.loads(text.replace('"messages"', '"offline"')))
    assert await world.books.stops("york") is None
    assert prices.price_of("llama3", {}) is None
    world.ledger.close()
