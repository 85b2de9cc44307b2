"""What one run may use, beside its group's budget."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clawd.clock import TurnedClock
from clawd.config.group import GroupConfig
from clawd.config.load import merged
from clawd.config.schema import Config
from clawd.ledger import groups, turns
from clawd.ledger.db import Ledger
from clawd.ledger.money import NANO, Used
from clawd.trust import Role
from clawd.usage.books import Books
from clawd.usage.budgets import AllowanceSpent, Call, PriceUnknown, within
from clawd.usage.prices import Tokens

pytestmark = pytest.mark.anyio

NOW = "2026-12-01T09:00:00.000+00:00"
CALL = Call("main", "anthropic", "claude-sonnet-4-5", 1000, 500)
NOTHING = Used(0, 0, 0, 0)


@pytest.mark.parametrize(
    ("allowed", "used", "nanos", "refused"),
    [
        ({}, Used(10**9, 10**12, 0, 0), None, None),
        ({"tokens": 1500}, NOTHING, None, None),
        ({"tokens": 1499}, NOTHING, None, AllowanceSpent),
        ({"tokens": 3000}, Used(1000, 0, 501, 0), None, AllowanceSpent),
        ({"usd": 0.5}, Used(0, NANO // 4, 0, 0), NANO // 4, None),
        ({"usd": 0.5}, Used(0, NANO // 4, 0, 1), NANO // 4, AllowanceSpent),
        ({"usd": 0.0}, NOTHING, 1, AllowanceSpent),
        ({"usd": 0.5}, NOTHING, None, PriceUnknown),
        ({"usd": 0.5, "tokens": 10}, NOTHING, 1, AllowanceSpent),
    ],
)
def test_what_passes_it(
    allowed: Mapping[str, float], used: Used, nanos: int | None, refused: type[Exception] | None
) -> None:
    found = within(allowed, used, CALL, nanos)
    assert (found and type(found)) == refused


async def test_a_turn_spends_its_own_and_no_more(tmp_path: Path) -> None:
    ledger, config = Ledger.open(tmp_path / "ledger.db"), Config()
    books = Books(
        ledger,
        TurnedClock(datetime(2026, 12, 1, tzinfo=UTC)),
        lambda: config,
        lambda group: merged(config, GroupConfig()),
    )

    def queue(tx, allowance):  # type: ignore[no-untyped-def]
        groups.add(tx, "main", NOW)
        session = groups.open_session(tx, "terminal:main", "main", NOW).id
        place = {"grp": "main", "session": session, **dict.fromkeys(("channel", "account", "chat", "thread"), "")}
        return turns.queue(tx, place, Role.OWNER, 1.0, NOW, allowance=allowance)

    limited, free = (ledger.tx(lambda tx, a=a: queue(tx, a)) for a in ('{"tokens": 3200}', None))
    call = Call("main", "anthropic", "claude-sonnet-4-5", 1000, 500, limited)
    reserved = [await books.reserve(call) for _ in range(2)]
    with pytest.raises(AllowanceSpent, match="3,000 tokens of 3,200 tokens are spent"):
        await books.reserve(call)
    await books.reserve(Call("main", "anthropic", "claude-sonnet-4-5", 1000, 500, free))
    await books.settle(reserved[0], Tokens(100, 50, 0), estimated=False)
    await books.reserve(call)  # what was not used is there again
    ledger.close()
