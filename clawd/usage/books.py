"""The books: what a model call may take is reserved before it is sent, and settled when it is over.

The look at the limits and the row that is reserved are one transaction, so that no number of calls at once passes a
limit. What a crash leaves open counts as it was reserved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from clawd.clock import Clock, rfc3339
from clawd.config.group import Effective
from clawd.config.models import candidates
from clawd.config.presets import services
from clawd.config.schema import Config
from clawd.ledger import money
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.model import Usage
from clawd.usage import prices
from clawd.usage.budgets import Amount, BudgetSpent, Limit, Period, Span, decide, period
from clawd.usage.prices import Price, Tokens

OVERHEAD = 1024  # tokens that a provider may add to a request of its own
_NO_MODEL = ("offline", "scripted")


@dataclass(frozen=True, slots=True)
class Call:
    """A model call before it is made: at most so many tokens go in and come out. `hour`: it may write to a cache for
    an hour. `listed`: it is billed as the price lists say; another tier has no known price."""

    group: str
    service: str
    model: str
    input: int
    output: int
    turn: int | None = None
    hour: bool = False
    listed: bool = True


@dataclass(frozen=True, slots=True)
class Reservation:
    id: int
    call: Call
    price: Price | None

    def nanos(self, tokens: Tokens) -> int | None:
        """What so many tokens cost, None when that is not known."""
        return None if self.price is None else self.price.cost(tokens)


class Books:
    """`settings` gives what holds for a group now; it may raise ConfigError. `freed` is told when a call took less than
    was reserved."""

    def __init__(
        self, ledger: Ledger, clock: Clock, config: Callable[[], Config], settings: Callable[[str], Effective]
    ) -> None:
        self._ledger, self._clock, self._config, self._settings = ledger, clock, config, settings
        self.freed: Callable[[], None] = lambda: None

    # ── a call ──

    async def reserve(self, call: Call) -> Reservation:
        """Raises BudgetSpent and PriceUnknown; then there is no row."""
        price = self.price(call)
        amount, now, when = _amount(call, price), rfc3339(self._clock.now()), self.period(call.group)

        def reserve(tx: Transaction) -> int:
            limits = self.limits(tx, call.group, call.service, when)
            if (refused := decide(limits, amount, call.model)) is not None:
                raise refused
            return money.reserve(
                tx, group=call.group, service=call.service, turn=call.turn, model=call.model, day=when.day,
                month=when.month, input=call.input, output=call.output, nanos=amount.nanos, now=now,
            )  # fmt: skip

        return Reservation(await self._ledger.do(reserve), call, price)

    async def settle(self, reservation: Reservation, tokens: Tokens, *, estimated: bool) -> None:
        nanos = reservation.nanos(tokens)
        await self._ledger.insist(
            lambda tx: money.settle(
                tx,
                reservation.id,
                input=tokens.input,
                output=tokens.output,
                cached=tokens.cached,
                nanos=nanos,
                estimated=estimated,
            )  # fmt: skip
        )
        self.freed()

    async def release(self, reservation: Reservation) -> None:
        """It surely was not billed."""
        await self._ledger.insist(lambda tx: money.release(tx, reservation.id))
        self.freed()

    async def assume(self, reservation: Reservation) -> None:
        """It was sent, and nobody knows what became of it."""
        await self._ledger.insist(lambda tx: money.assume(tx, reservation.id))

    def report(self, tx: Transaction, turn: Row, model: str | None, usage: Usage) -> None:
        """What an engine says itself that its turn used."""
        price = None if model is None else prices.price_of(model, self._config().prices)
        tokens = Tokens(usage.input, usage.output, min(usage.cached, usage.input))
        nanos = prices.nanos(usage.usd) if usage.usd is not None else price.cost(tokens) if price else None
        when = self.period(turn["grp"])
        money.report(
            tx, turn, model=model, input=tokens.input, output=tokens.output, cached=tokens.cached, nanos=nanos,
            day=when.day, month=when.month, now=rfc3339(self._clock.now()),
        )  # fmt: skip

    # ── what holds ──

    def period(self, group: str) -> Period:
        return period(self._clock.now(), self._settings(group).timezone)

    def price(self, call: Call) -> Price | None:
        return prices.price_of(call.model, self._config().prices) if call.listed else None

    def most_output(self, model: str) -> int | None:
        """Tokens that a model answers with at most, where that is known."""
        price = prices.price_of(model, self._config().prices)
        return price.max_output if price is not None else None

    def requests_per_minute(self, group: str) -> int | None:
        return self._settings(group).budget.requests_per_minute

    def limited(self, group: str, service: str) -> bool:
        """Whether tokens or dollars of the group, or of the service, have a limit."""
        budget, table = self._settings(group).budget, services(self._config()).get(service)
        asked = [budget.usd_per_day, budget.usd_per_month, budget.tokens_per_day, budget.tokens_per_month]
        asked += [table.limits.usd_per_day, table.limits.tokens_per_day] if table is not None else []
        return any(limit is not None for limit in asked)

    def limits(self, tx: Transaction, group: str | None, service: str | None, when: Period) -> list[Limit]:
        """Every limit of the group and of the service, as it stands."""
        found: list[Limit] = []
        if group is not None:
            budget = self._settings(group).budget
            found += self._of_group(tx, group, "day", when, budget.usd_per_day, budget.tokens_per_day)
            found += self._of_group(tx, group, "month", when, budget.usd_per_month, budget.tokens_per_month)
        table = services(self._config()).get(service) if service else None
        if table is not None:
            usd, tokens = table.limits.usd_per_day, table.limits.tokens_per_day
            if usd is not None or tokens is not None:
                used = money.used(tx, when.day, service=service)
                found += _limits(None, service, "day", used, usd, tokens, (0, 0), when.next_day)
        return found

    def _of_group(
        self, tx: Transaction, group: str, span: Span, when: Period, usd: float | None, tokens: int | None
    ) -> list[Limit]:
        if usd is None and tokens is None:
            return []
        day = when.day if span == "day" else None
        used = money.used(tx, day, group=group, month=when.month)
        raised = money.raised(tx, group, day or when.month)
        opens = when.next_day if span == "day" else when.next_month
        return _limits(group, None, span, used, usd, tokens, raised, opens)

    # ── who may go on ──

    async def allows(self, call: Call) -> bool:
        """Whether a call that was refused would be let through now."""
        amount, when = _amount(call, self.price(call)), self.period(call.group)
        refused = await self._ledger.do(
            lambda tx: decide(self.limits(tx, call.group, call.service, when), amount, call.model)
        )
        return not isinstance(refused, BudgetSpent)

    async def stops(self, group: str) -> BudgetSpent | None:
        """Why no model of the group can be called at all now, not even shortly; None when one can, or when its engine
        needs none."""
        settings, when = self._settings(group), self.period(group)
        if settings.model.engine in _NO_MODEL:
            return None
        calls = [
            Call(group, service or "", model or "", OVERHEAD, settings.model.max_output)
            for service, model in candidates(settings.model, services(self._config()))
        ]
        amounts = [(call, _amount(call, self.price(call))) for call in calls]

        def first(tx: Transaction) -> BudgetSpent | None:
            found: list[BudgetSpent] = []
            for call, amount in amounts:
                refused = decide(self.limits(tx, group, call.service, when), amount, call.model)
                if not isinstance(refused, BudgetSpent):
                    return None  # an unknown price, too: the turn itself tells of that
                found.append(refused)
            return min(found, key=lambda each: each.opens)

        return await self._ledger.do(first)


def _amount(call: Call, price: Price | None) -> Amount:
    nanos = None if price is None else price.most(call.input, call.output, hour=call.hour)
    return Amount(call.input + call.output, nanos)


def _limits(
    group: str | None, service: str | None, span: Span, used: money.Used, usd: float | None, tokens: int | None,
    raised: tuple[int, int], opens: datetime,
) -> list[Limit]:  # fmt: skip
    found: list[Limit] = []
    more_tokens, more_nanos = raised
    if usd is not None:
        most = prices.nanos(usd) + more_nanos
        found.append(Limit(group, service, "usd", span, most, used.nanos, used.reserved_nanos, opens))
    if tokens is not None:
        most = tokens + more_tokens
        found.append(Limit(group, service, "tokens", span, most, used.tokens, used.reserved_tokens, opens))
    return found
