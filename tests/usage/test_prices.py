"""What tokens cost: names as providers and routers write them, money to the nano-dollar."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.config.schema import Price as Override
from clawd.usage import prices
from clawd.usage.prices import NANO, Tokens, price_of

COUNT = st.integers(0, 2_000_000)


@pytest.mark.parametrize(
    ("model", "like"),
    [
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("anthropic/claude-sonnet-4-5", "claude-sonnet-4-5"),
        ("anthropic/claude-sonnet-4.5", "claude-sonnet-4-5"),
        ("claude-opus-4-1@20250805", "claude-opus-4-1"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("openai/gpt-5.4-mini", "gpt-5.4-mini"),
        ("openrouter/openai/gpt-4.1-2025-04-14", "gpt-4.1"),
    ],
)
def test_a_model_is_known_under_its_names(model: str, like: str) -> None:
    assert price_of(model, {}) == price_of(like, {}) is not None


@pytest.mark.parametrize(
    "model",
    ["", "claude", "claude-sonnet", "gpt-5-turbo", "claude-opus-4-5-preview", "llama3", "x/gpt-4o:free", "20250929"],
)
def test_what_nobody_knows_has_no_price_and_not_none_to_pay(model: str) -> None:
    assert price_of(model, {}) is None


def test_a_price_of_ones_own_goes_before_the_table_also_for_dated_names() -> None:
    own = {"claude-sonnet-4-5": Override(input=1, output=2), "llama3": Override(input=0, output=0)}
    price = price_of("anthropic/claude-sonnet-4-5-20250929", own)
    assert price is not None and price.cost(Tokens(1_000_000, 1_000_000)) == 3 * NANO and price.long is None
    assert price.max_output == 64_000  # what is known of the model besides
    free = price_of("llama3", own)
    assert free is not None and free.cost(Tokens(5, 5)) == 0


@pytest.mark.parametrize(
    ("tokens", "usd"),
    [
        (Tokens(1_000_000), "3"),
        (Tokens(0, 1_000_000), "15"),
        (Tokens(1_000_000, cached=1_000_000), "0.3"),
        (Tokens(1_000_000, written=1_000_000), "3.75"),
        (Tokens(1_000_000, written_hour=1_000_000), "6"),
        (Tokens(1000, 500, cached=400, written=100, written_hour=100), "0.009795"),
        (Tokens(1), "0.000003"),
        (Tokens(), "0"),
    ],
)
def test_what_a_call_costs(tokens: Tokens, usd: str) -> None:
    price = price_of("claude-sonnet-4-6", {})
    assert price is not None and price.cost(tokens) == Decimal(usd) * NANO


def test_a_long_prompt_has_its_price_for_the_whole_call_and_fractions_are_rounded_up() -> None:
    price = price_of("claude-haiku-5-5", {})
    assert price is not None
    assert price.cost(Tokens(100_000, 1000)) == 100_000 * 100 + 1000 * 500
    assert price.cost(Tokens(100_001, 1000)) == 100_001 * 500 + 1000 * 2500
    tiny = price_of("t", {"t": Override(input=0.0001, output=0)})  # a tenth of a nano-dollar
    assert tiny is not None and [tiny.cost(Tokens(count)) for count in (1, 10, 11)] == [1, 1, 2]


def test_every_price_of_the_table_is_sane() -> None:
    assert prices.dated() > "2026"
    table = prices._table()
    assert len(table) > 40
    for name, price in table.items():
        for rates in filter(None, (price.rates, price.long)):
            assert 0 < rates.cached <= rates.input <= rates.written <= rates.written_hour <= 2 * rates.input, name
            assert rates.output == 0 or rates.output > rates.input, name
        assert price.long is None or (price.long.input > price.rates.input and price.above > 0), name


@given(st.sampled_from(sorted(prices._table())), COUNT, COUNT, st.tuples(COUNT, COUNT, COUNT))
def test_no_call_costs_more_than_its_bound(name: str, input: int, output: int, parts: tuple[int, int, int]) -> None:
    price = prices._table()[name]
    cached, written, hour = (part % (input // 3 + 1) for part in parts)
    used = Tokens(input, output, cached, written, hour)
    assert price.cost(used) <= price.most(input, output)
    short = Tokens(input, output, cached, written)
    assert price.cost(short) <= price.most(input, output, hour=False) <= price.most(input + 7, output + 1)
