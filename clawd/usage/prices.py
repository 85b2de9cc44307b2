"""Prices: what tokens cost. The table is `prices.toml`, `[prices]` of config.toml goes before it; a model that neither
knows has no price, which is not the same as none to pay.

Money is whole nano-dollars, rounded up once a call. Pure but for the reading of the table.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

from clawd.config.schema import Price as Override
from clawd.ledger.money import NANO

_PICO_A_NANO = 1000
_TABLE = Path(__file__).with_name("prices.toml")
_DATE = re.compile(r"[-@](\d{8}|\d{4}-\d\d-\d\d)$")


@dataclass(frozen=True, slots=True)
class Tokens:
    """Of one call. `input` is all that went in; `cached` of it was read from a prompt cache, `written` and
    `written_hour` written to one for some minutes and for an hour."""

    input: int = 0
    output: int = 0
    cached: int = 0
    written: int = 0
    written_hour: int = 0


@dataclass(frozen=True, slots=True)
class Rates:
    """Pico-dollars a token (a dollar a million tokens is a million of them)."""

    input: int
    output: int
    cached: int
    written: int
    written_hour: int

    def cost(self, tokens: Tokens) -> int:
        """Nano-dollars."""
        plain = tokens.input - tokens.cached - tokens.written - tokens.written_hour
        pico = plain * self.input + tokens.output * self.output + tokens.cached * self.cached
        pico += tokens.written * self.written + tokens.written_hour * self.written_hour
        return -(-pico // _PICO_A_NANO)


@dataclass(frozen=True, slots=True)
class Price:
    """Of one model. `long` holds for the whole of a call with more than `above` tokens of input; `max_output` is the
    most tokens that it answers with, where that is known, and `window` those that it can read."""

    rates: Rates
    long: Rates | None = None
    above: int = 0
    max_output: int | None = None
    window: int | None = None

    def cost(self, tokens: Tokens) -> int:
        """Nano-dollars."""
        return self._of(tokens.input).cost(tokens)

    def most(self, input: int, output: int, *, hour: bool = True) -> int:
        """Nano-dollars that a call of at most so many tokens can cost, all of its input written to a cache (without
        `hour`: for minutes)."""
        rates = self._of(input)
        dearest = max(rates.input, rates.cached, rates.written, rates.written_hour if hour else 0)
        return -(-(input * dearest + output * rates.output) // _PICO_A_NANO)

    def _of(self, input: int) -> Rates:
        return self.long if self.long is not None and input > self.above else self.rates


def price_of(model: str, overrides: Mapping[str, Override]) -> Price | None:
    """What a model costs, None when that is not known."""
    for name in _names(model):
        if (override := overrides.get(name)) is not None:
            own = _table().get(name)
            written = override.model_dump(include={"input", "output", "cached"}, exclude_none=True)
            known = (own.max_output, own.window) if own else (None, None)
            return Price(_rates(name, written), None, 0, *known)
        if (price := _table().get(name)) is not None:
            return price
    return None


def window_of(model: str | None) -> int | None:
    """Tokens that a model can read, None when that is not known, or there is none."""
    price = price_of(model, {}) if model else None
    return price.window if price else None


def _names(model: str) -> Iterator[str]:
    """A model's name as it is, without its date, and both without the provider before it."""
    for name in dict.fromkeys((model, model.rpartition("/")[2])):
        undated = _DATE.sub("", name)
        yield name
        yield undated
        if undated.startswith("claude-"):  # OpenRouter writes claude-sonnet-4.5
            yield undated.replace(".", "-")


@lru_cache(maxsize=1)
def _read() -> dict[str, Any]:
    return tomllib.loads(_TABLE.read_text("utf-8"))


def dated() -> str:
    """The day as of which the table was made."""
    return str(_read()["date"])


@lru_cache(maxsize=1)
def _table() -> dict[str, Price]:
    found = {}
    for name, entry in _read()["models"].items():
        long = entry.get("long")
        found[name] = Price(
            _rates(name, entry),
            _rates(name, long) if long else None,
            long["above"] if long else 0,
            entry.get("max_output"),
            entry.get("window"),
        )
    return found


def _rates(name: str, entry: Mapping[str, Any]) -> Rates:
    caches = name.startswith("claude-")
    input = pico(entry["input"])
    return Rates(
        input,
        pico(entry["output"]),
        pico(entry["cached"]) if "cached" in entry else input,
        pico(entry["written"]) if "written" in entry else input * 5 // 4 if caches else input,
        input * 2 if caches else pico(entry["written"]) if "written" in entry else input,
    )


def pico(usd: float) -> int:
    """Dollars a million tokens in pico-dollars a token, rounded up."""
    return int((Decimal(str(usd)) * 10**6).to_integral_value(ROUND_CEILING))


def nanos(usd: float) -> int:
    """Nano-dollars of a limit, rounded down."""
    return int((Decimal(str(usd)) * NANO).to_integral_value(ROUND_FLOOR))


def dollars(nanos: int | None) -> float | None:
    """As the contract shows money."""
    return None if nanos is None else nanos / NANO
