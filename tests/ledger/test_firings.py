"""Firings in the ledger: each instant once, whatever is forgotten or saved of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from clawd.channel import NOTICE
from clawd.ledger import deliveries, ends, firings, groups, turns, wakes
from clawd.ledger.authored import OWNER
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.firings import Taken, instant, utc
from clawd.ledger.salvage import FoundGroup, Salvaged, salvage
from clawd.model import Final, Lease, Part
from clawd.trust import Origin
from tests.ledger.conftest import NOW, Desk
from tests.ledger.test_forget import pass_days

KEY = ("main", "a")
DUE = datetime(2026, 12, 1, 9, tzinfo=UTC)
FACTS = {"file": {"cron": "0 9 * * *", "prompt": "p"}, "zone": "UTC", "said": "0 9 * * *"}
TO = deliveries.Address("terminal", "", "main", "")


def take(tx: Transaction, id: str = "a", sha256: str = "x", **more: Any) -> None:
    groups.add(tx, "main", NOW)
    firings.take(tx, "main", Taken(id, "stamp", sha256, FACTS, None, more.pop("since", None), **more), utc(DUE))


def fire(tx: Transaction, due: datetime = DUE, id: str = "a") -> int | None:
    """As the clockwork does it: the firing, its wake and the new last instant."""
    of = firings.get(tx, ("main", id))
    firings.advance(tx, of, since=of.since, last_due=due, next=None)
    if (firing := firings.begin(tx, of, due)) is None:
        return None
    woken = wakes.put(
        tx, "schedule", f"schedule:{of.name}:{of.generation}@{utc(due)}", group="main", base="terminal:main", to=TO,
        rule=f"schedule:{id}", acts=OWNER, origin=Origin.OWNER, parts=[Part("typed", Origin.OWNER, "p")], now=NOW,
    )  # fmt: skip
    assert woken is not None
    firings.fire(tx, firing, woken.wake, woken.turn, due, None)
    return firing


def outcomes(ledger: Ledger) -> list[tuple[str, str, str | None]]:
    rows = ledger.tx(lambda tx: firings.history(tx))[::-1]
    return [(row["due"][:16], row["outcome"], row["reason"]) for row in rows]


def end(desk: Desk, run: str = "r") -> None:
    claim = desk.ledger.tx(lambda tx: turns.claim(tx, run, "main", 0, NOW))
    assert claim is not None
    lease = Lease(run, claim.turn["id"], claim.attempt, 0)
    desk.ledger.tx(lambda tx: ends.answer(tx, lease, Final("done"), [], NOW, limits=NOTICE))
    desk.ledger.tx(lambda tx: ends.recorded(tx, lease.turn, NOW))


def test_an_instant_is_fired_once_and_its_turn_decides_what_became_of_it(desk: Desk) -> None:
    desk.run("r")
    desk.ledger.tx(take)
    assert desk.ledger.tx(fire) == 1
    of = desk.ledger.tx(lambda tx: firings.get(tx, KEY))
    assert (of.last_due, of.open) == (DUE, DUE)
    assert desk.ledger.tx(fire) is None
    desk.ledger.tx(lambda tx: firings.pass_over(tx, of, DUE, "miss", "again"))
    end(desk)
    assert outcomes(desk.ledger) == [("2026-12-01T09:00", "ran", None)]
    desk.ledger.tx(lambda tx: fire(tx, DUE + timedelta(days=1)))
    desk.ledger.tx(lambda tx: tx.execute("UPDATE firing SET reason = 'late' WHERE id = 2"))
    end(desk)
    assert outcomes(desk.ledger)[1] == ("2026-12-02T09:00", "late", "late")
    assert not desk.ledger.tx(lambda tx: firings.is_still(tx, of))


def test_what_is_forgotten_takes_nothing_that_is_needed(desk: Desk) -> None:
    desk.run("r")
    desk.ledger.tx(take)
    desk.ledger.tx(lambda tx: take(tx, "gone"))
    desk.ledger.tx(fire)
    end(desk)
    desk.ledger.tx(lambda tx: tx.execute("UPDATE delivery SET state = 'sent', seen = 1"))
    desk.ledger.tx(lambda tx: fire(tx, DUE, "gone"))
    desk.ledger.tx(lambda tx: firings.vanish(tx, ("main", "gone"), utc(DUE)))
    hook: dict[str, Any] = {"grp": "main", "name": "h", "key": "k", "at": NOW, "file": "f", "wake": 1}
    desk.ledger.tx(lambda tx: tx.insert("hook", **hook))
    pass_days(desk.ledger, 8)
    assert len(outcomes(desk.ledger)) == 2
    pass_days(desk.ledger, 31)
    # what waits stays, with its schedule; what is over goes, and the schedule that is in force stays
    assert [(row[1]) for row in outcomes(desk.ledger)] == ["fired"]
    left = desk.ledger.tx(lambda tx: [row["id"] for row in tx.all("SELECT id FROM schedule ORDER BY id")])
    assert left == ["a", "gone"] and not desk.ledger.tx(lambda tx: tx.all("SELECT 1 FROM hook"))
    assert desk.ledger.tx(lambda tx: tx.all("SELECT 1 FROM wake WHERE id = 1")) == []
    end(desk)
    pass_days(desk.ledger, 31)
    pass_days(desk.ledger, 31)
    assert desk.ledger.tx(lambda tx: [row["id"] for row in tx.all("SELECT id FROM schedule")]) == ["a"]
    assert desk.ledger.tx(lambda tx: tx.all("PRAGMA foreign_key_check")) == []


def recovered(desk: Desk, tmp_path: Path, spoil: str | None) -> tuple[Salvaged, Ledger]:
    desk.ledger.close()
    path = tmp_path / "ledger.db"
    if spoil is not None:
        reading = Ledger.read_only(path)
        [page] = reading.tx(lambda tx: tx.all("SELECT rootpage FROM sqlite_master WHERE name = ?", spoil))
        reading.close()
        with path.open("r+b") as file:
            file.seek((page["rootpage"] - 1) * 4096)
            file.write(b"\xa5" * 4096)
    found = salvage(path, tmp_path / "new.db", [FoundGroup("main", 1)], [], NOW)
    return found, Ledger.open(tmp_path / "new.db")


@pytest.mark.parametrize("spoil", [None, "schedule", "firing"])
def test_a_salvage_fires_nothing_twice(desk: Desk, tmp_path: Path, spoil: str | None) -> None:
    desk.run("r")
    desk.ledger.tx(take)
    desk.ledger.tx(fire)
    end(desk)
    desk.ledger.tx(lambda tx: fire(tx, DUE + timedelta(minutes=1)))  # its turn waits
    wrote = "INSERT INTO authored VALUES ('schedule', 'main', 'y', 'b', 1, 'member', .4, '')"
    desk.ledger.tx(lambda tx: tx.execute(wrote))
    found, ledger = recovered(desk, tmp_path, spoil)
    assert found.damaged == ([spoil] if spoil else [])
    assert len(ledger.tx(lambda tx: tx.all("SELECT 1 FROM authored"))) == 1
    ledger.tx(lambda tx: take(tx, "once", since=utc(DUE)))
    of = ledger.tx(lambda tx: firings.get(tx, ("main", "once")))
    if spoil is None:
        assert [each[1] for each in outcomes(ledger)] == ["ran", "fired"]
        assert of.last_due is None
        assert ledger.tx(lambda tx: firings.get(tx, KEY)).last_due == DUE + timedelta(minutes=1)
    else:
        assert of.last_due == instant(NOW)  # what was due for once until then may have been done
        known = ledger.tx(lambda tx: firings.find(tx, KEY))
        assert known is None if spoil == "schedule" else known is not None and known.last_due is not None
        assert known is None or known.last_due >= instant(NOW)  # type: ignore[operator]
    assert ledger.tx(lambda tx: tx.all("PRAGMA foreign_key_check")) == []
    ledger.close()


def test_a_run_whose_turn_was_lost_has_failed(desk: Desk, tmp_path: Path) -> None:
    desk.ledger.tx(take)
    desk.ledger.tx(fire)
    found, ledger = recovered(desk, tmp_path, "wake")
    assert "wake" in found.damaged
    assert outcomes(ledger) == [("2026-12-01T09:00", "failed", "the ledger was damaged before it was over")]
    ledger.close()
