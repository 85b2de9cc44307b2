"""The books: what a model call may take is reserved before it is sent, and settled when it is over.

The look at the limits and the row that is reserved are one transaction, so that no number of calls at once passes a
limit. What a crash leaves open counts as it was reserved.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from clawd.clock import Clock, rfc3339
from clawd.config.group import Effective
from clawd.config.models import THINKING, candidates
from clawd.config.presets import services
from clawd.config.schema import Budget, Config, ServiceLimits
from clawd.errors import ClawdError
from clawd.ledger import money
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.model import Usage
from clawd.usage import prices
from clawd.usage.budgets import BudgetSpent, Call, Limit, Period, Span, decide, period, within
from clawd.usage.prices import Price, Tokens

log = logging.getLogger(__name__)

OVERHEAD = 1024  # tokens that a provider may add to a request of its own


@dataclass(frozen=True, slots=True)
class Reservation:
    id: int
    call: Call
    price: Price | None
    most: int | None

    def nanos(self, tokens: Tokens) -> int | None:
        """What so many tokens cost, never more than was reserved; None when that is not known."""
        return None if self.price is None or self.most is None else min(self.price.cost(tokens), self.most)


@dataclass(frozen=True, slots=True)
class Rules:
    """What the config limits: of a group, of a service over all groups."""

    group: str | None
    budget: Budget | None
    service: str | None
    limits: ServiceLimits | None

    @property
    def any(self) -> bool:
        """Whether there is a limit of tokens or dollars."""
        return self.in_dollars or self._says("tokens_per_day") or self._says("tokens_per_month")

    @property
    def in_dollars(self) -> bool:
        """Whether there is one of dollars."""
        return self._says("usd_per_day") or self._says("usd_per_month")

    def _says(self, name: str) -> bool:
        return any(getattr(table, name, None) is not None for table in (self.budget, self.limits))


class Books:
    """`settings` gives what holds for a group now, also by an edit that nobody told us of; it may raise ConfigError.
    `freed` is told when a call took less than was reserved."""

    def __init__(
        self, ledger: Ledger, clock: Clock, config: Callable[[], Config], settings: Callable[[str], Effective]
    ) -> None:
        self._ledger, self._clock, self._config, self.settings = ledger, clock, config, settings
        self.freed: Callable[[], None] = lambda: None

    async def open(self) -> None:
        """At the start: what a crash left open counts as it was reserved."""
        if count := await self._ledger.insist(money.assume_open):
            log.warning("%s model calls were under way when clawd ended: what was reserved for them counts", count)

    # ── a call ──

    async def reserve(self, call: Call) -> Reservation:
        """Raises BudgetSpent, AllowanceSpent and PriceUnknown; then there is no row."""
        price = self.price(call)
        nanos, now = _most(call, price), rfc3339(self._clock.now())
        rules, when = self.rules(call.group, call.service), self.period(call.group)

        def reserve(tx: Transaction) -> int:
            if (refused := decide(limits(tx, rules, when), call, nanos)) is not None:
                raise refused
            if call.turn is not None and (passed := self._passes(tx, call.turn, call, nanos)) is not None:
                raise passed
            return money.reserve(
                tx, group=call.group, service=call.service, turn=call.turn, model=call.model, day=when.day,
                month=when.month, input=call.input, output=call.output, nanos=nanos, now=now,
            )  # fmt: skip

        return Reservation(await self._ledger.do(reserve), call, price, nanos)

    def _passes(self, tx: Transaction, turn: int, call: Call, nanos: int | None) -> ClawdError | None:
        allowed = money.allowance(tx, turn)
        return within(allowed, money.used(tx, turn=turn), call, nanos) if allowed else None

    async def settle(self, reservation: Reservation, tokens: Tokens, *, estimated: bool) -> None:
        nanos = reservation.nanos(tokens)
        used = {"input": tokens.input, "output": tokens.output, "cached": tokens.cached}
        await self._ledger.insist(lambda tx: money.settle(tx, reservation.id, **used, nanos=nanos, estimated=estimated))
        self.freed()

    async def release(self, reservation: Reservation) -> None:
        """It surely was not billed."""
        await self._ledger.insist(lambda tx: money.release(tx, reservation.id))
        self.freed()

    async def assume(self, reservation: Reservation) -> None:
        """It was sent, and nobody knows what became of it."""
        await self._ledger.insist(lambda tx: money.assume(tx, reservation.id))

    def report(self, group: str, model: str | None, usage: Usage) -> Callable[[Transaction, Row], None]:
        """What enters what an engine says itself that its turn used."""
        price = None if model is None else prices.price_of(model, self._config().prices)
        tokens = Tokens(usage.input, usage.output, min(usage.cached, usage.input))
        nanos = prices.nanos(usage.usd) if usage.usd is not None else price.cost(tokens) if price else None
        when, now = self.period(group), rfc3339(self._clock.now())
        used = (tokens.input, tokens.output, tokens.cached)
        return lambda tx, turn: money.report(
            tx, turn, model or "", used, nanos, day=when.day, month=when.month, now=now
        )

    # ── what holds ──

    def period(self, group: str) -> Period:
        return period(self._clock.now(), self.settings(group).timezone)

    def price(self, call: Call) -> Price | None:
        return prices.price_of(call.model, self._config().prices) if call.listed else None

    def cost(self, model: str, input: int, output: int, cached: int) -> int | None:
        """Nano-dollars of a call; None where the price is not known."""
        price = prices.price_of(model, self._config().prices) if model else None
        return None if price is None else price.cost(Tokens(input, output, min(cached, input)))

    def most_output(self, model: str) -> int | None:
        """Tokens that a model answers with at most, where that is known."""
        price = prices.price_of(model, self._config().prices)
        return price.max_output if price is not None else None

    def requests_per_minute(self, group: str) -> int | None:
        return self.settings(group).budget.requests_per_minute

    def rules(self, group: str | None, service: str | None = None) -> Rules:
        """What the config limits for a group and a service."""
        budget = None if group is None else self.settings(group).budget
        table = services(self._config()).get(service) if service else None
        return Rules(group, budget, service, table.limits if table is not None else None)

    # ── who may go on ──

    async def refusal(self, call: Call) -> BudgetSpent | None:
        """Why a call that was refused would still be, None when it would be let through now."""
        nanos, when = _most(call, self.price(call)), self.period(call.group)
        rules = self.rules(call.group, call.service)
        refused = await self._ledger.do(lambda tx: decide(limits(tx, rules, when), call, nanos))
        return refused if isinstance(refused, BudgetSpent) else None

    async def stops(self, group: str) -> BudgetSpent | None:
        """Why no model of the group can be called at all now, not even shortly; None when one can, or when its engine
        needs none."""
        settings, when = self.settings(group), self.period(group)
        if settings.model.engine not in THINKING:
            return None
        calls = [
            Call(group, service or "", model or "", OVERHEAD, settings.model.max_output)
            for service, model in candidates(settings.model, services(self._config()))
        ]
        # What an engine takes of its own costs something, whatever it is.
        costs = [_most(call, self.price(call)) if call.model else 1 for call in calls]
        asked = [(self.rules(group, call.service), call, nanos) for call, nanos in zip(calls, costs, strict=True)]

        def first(tx: Transaction) -> BudgetSpent | None:
            found: list[BudgetSpent] = []
            for rules, call, nanos in asked:
                refused = decide(limits(tx, rules, when), call, nanos)
                if not isinstance(refused, BudgetSpent):
                    return None  # an unknown price, too: the turn itself tells of that
                found.append(refused)
            return min(found, key=lambda each: each.opens)

        return await self._ledger.do(first)


def _most(call: Call, price: Price | None) -> int | None:
    return None if price is None else price.most(call.input, call.output, hour=call.hour)


def limits(tx: Transaction | None, rules: Rules, when: Period) -> list[Limit]:
    """Every limit of the rules as it stands: with what counts on it, and what it was raised by. Without a ledger yet
    that is nothing."""
    found: list[Limit] = []
    if rules.group is not None and rules.budget is not None:
        budget, month = rules.budget, partial(money.used, group=rules.group, month=when.month)
        found += _limits(tx, rules.group, None, "day", when, budget.usd_per_day, budget.tokens_per_day, month)
        found += _limits(tx, rules.group, None, "month", when, budget.usd_per_month, budget.tokens_per_month, month)
    if rules.service is not None and (limited := rules.limits) is not None:
        used = partial(money.used, service=rules.service)
        found += _limits(tx, None, rules.service, "day", when, limited.usd_per_day, limited.tokens_per_day, used)
    return found


def _limits(
    tx: Transaction | None,
    group: str | None,
    service: str | None,
    span: Span,
    when: Period,
    usd: float | None,
    tokens: int | None,
    used: Callable[..., money.Used],
) -> list[Limit]:
    if usd is None and tokens is None:
        return []
    day, opens = (when.day, when.next_day) if span == "day" else (None, when.next_month)
    uses, more_tokens, more_nanos = money.Used(0, 0, 0, 0), 0, 0
    if tx is not None:
        uses = used(tx, day)
    if tx is not None and group is not None:
        more_tokens, more_nanos = money.raised(tx, group, day or when.month)
    found: list[Limit] = []
    if usd is not None:
        most = prices.nanos(usd) + more_nanos
        found.append(Limit(group, service, "usd", span, most, uses.nanos, uses.reserved_nanos, opens))
    if tokens is not None:
        most = tokens + more_tokens
        found.append(Limit(group, service, "tokens", span, most, uses.tokens, uses.reserved_tokens, opens))
    return found
