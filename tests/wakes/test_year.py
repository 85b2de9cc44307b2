"""A year of schedules in three zones, with restarts, sleep and clocks that are set: each instant has one row, and what
ran has one wake. And a day in which nothing is due, in which nothing happens."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from clawd.clock import TurnedClock
from clawd.ledger import groups
from clawd.ledger.db import Ledger
from clawd.ledger.firings import utc
from clawd.schedules.file import parse_schedule
from clawd.schedules.times import dues, rule_of
from tests.wakes.clockworks import START, Works, home_at, life, works

pytestmark = pytest.mark.anyio

END = START + timedelta(days=365)
FILES = {
    "mornings": 'cron = "0 9 * * mon,thu"\ntz = "Europe/Berlin"',
    "gap": 'cron = "30 2 * * sat,sun"\ntz = "Europe/Berlin"\ncatch_up = "all"',
    "fold": 'cron = "30 1 * * sun"\ntz = "America/New_York"\njitter = "20m"',
    "fridays": 'cron = "0 18 * * fri"\ntz = "Asia/Kolkata"\ncatch_up = "skip"',
    "monthly": 'cron = "0 9 L * *"\ntz = "America/New_York"',
    "every": 'every = "100h"\ncatch_up = "all"',
    "until": 'cron = "15 12 * * tue"\ntz = "Asia/Kolkata"\nuntil = 2027-04-01T00:00:00',
    "once": "at = 2027-02-03T04:05:00",
}


def answer(made: Works) -> None:
    """Every turn that waits."""
    while made.rows("SELECT 1 FROM turn WHERE recorded_at IS NULL"):
        made.end()


async def test_a_year_with_restarts_sleep_and_clocks_that_are_set(tmp_path: Path) -> None:
    chance = random.Random(7)
    home = home_at(tmp_path)
    for id, text in FILES.items():
        (home.group("main").schedules / f"{id}.toml").write_text(f'schema = 1\nprompt = "p"\n{text}\n')
    ledger = Ledger.open(home.ledger_file)
    ledger._connection.execute("PRAGMA synchronous = OFF")
    clock = TurnedClock(START)
    ledger.tx(lambda tx: groups.add(tx, "main", utc(START)))
    try:
        while clock.now() < END:
            async with life(home, ledger, clock) as made:
                answer(made)
                until = min(END, clock.now() + timedelta(days=chance.uniform(5, 25)))
                while (due := made.clockwork.next) is not None and due < until:
                    if chance.random() < 0.03:  # asleep, for less than ten instants of any
                        due += timedelta(hours=chance.uniform(0, 20))
                    await made.at(max(due, clock.now()))
                    answer(made)
                    if chance.random() < 0.03:
                        await made.later(hours=-chance.uniform(0, 3))
                    await made.clockwork.tick()
                clock.advance(max(0.0, (until - clock.now()).total_seconds()))
            clock.advance(chance.choice([0, 0, 7200, 36000]))  # it is down
        async with life(home, ledger, clock) as made:
            answer(made)
            ran = 0
            for id, text in FILES.items():
                rule = rule_of(parse_schedule(f'prompt = "p"\n{text}', id), "UTC")
                start = START if rule.at is None else START - timedelta(days=1)
                wanted = [utc(due) for due in dues(rule, start, clock.now(), since=START, newest=1000)[0]]
                rows = made.rows("SELECT due, state, wake FROM firing WHERE schedule = ? ORDER BY due", id)
                pending = [due for due in wanted if due > (rows[-1]["due"] if rows else "")]
                assert [row["due"] for row in rows] + pending == wanted and len(pending) <= 1, id
                outcomes = {row["state"] for row in rows}
                assert outcomes <= {"ran", "late", "missed"} and (id != "every" or "missed" not in outcomes)
                assert all((row["wake"] is not None) == (row["state"] != "missed") for row in rows)
                ran += sum(row["wake"] is not None for row in rows)
            assert made.wakes() == len(made.rows("SELECT DISTINCT wake FROM turn_wake")) == ran > 380
            assert made.firings("once") in ([("04:05", "ran")], [("04:05", "late")])
            assert (home.group("main").schedules / "done" / "once.toml").exists()
    finally:
        ledger.close()


async def test_a_day_in_which_nothing_is_due_does_nothing(tmp_path: Path) -> None:
    async with works(tmp_path) as made:
        for n in range(1000):
            made.write(f"s{n}", f'cron = "{n % 60} {n % 24} 1 1 *"\nprompt = "p"')
        await made.clockwork.renew("main")
        before = made.ledger.tx(lambda tx: tx.one("SELECT total_changes() AS n"))
        for _ in range(288):
            await made.later(minutes=5)
        after = made.ledger.tx(lambda tx: tx.one("SELECT total_changes() AS n"))
        assert before is not None and after is not None and after["n"] == before["n"]
        assert made.wakes() == 0 and made.woken == [] and not made.rows("SELECT id FROM firing")
        assert made.clockwork.next == datetime(2027, 1, 1, tzinfo=UTC)
