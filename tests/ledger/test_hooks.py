"""What came to webhooks: one wake each, whatever of its names comes again, alone or with others."""

from __future__ import annotations

import json

from clawd.ledger import groups, hooks
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.deliveries import Address
from clawd.ledger.wakes import Woken
from clawd.model import Part
from clawd.trust import Origin
from tests.ledger.conftest import NOW

TO = Address("terminal", "", "main", "")
PARTS = [Part("typed", Origin.OWNER, "look"), Part("attachment", Origin.EXTERNAL, "{}", name="f.json")]


def take(tx: Transaction, *keys: str, name: str = "ci", file: str = "f.json") -> Woken | None:
    groups.add(tx, "main", NOW)
    return hooks.take(tx, "main", name, keys, file=file, base="terminal:main", to=TO, parts=PARTS, now=NOW)


def test_a_request_wakes_its_group_at_the_owners_word_and_no_trust(ledger: Ledger) -> None:
    woken = ledger.tx(lambda tx: take(tx, "body:1", "id:1"))
    assert woken is not None and woken.session == "terminal:main"
    [wake] = ledger.tx(lambda tx: tx.all("SELECT * FROM wake"))
    told = (wake["kind"], wake["rule"], wake["authority"], wake["trust"], wake["origin"], wake["state"])
    assert told == ("webhook", "webhook:ci", "owner", 0.2, "external", "pending")
    assert [part["origin"] for part in json.loads(wake["text"])] == ["owner", "external"]
    [turn] = ledger.tx(lambda tx: tx.all("SELECT * FROM turn"))
    assert (turn["id"], turn["authority"], turn["taint"]) == (woken.turn, "owner", 0.2)
    rows = ledger.tx(lambda tx: tx.all("SELECT key, file, wake FROM hook ORDER BY id"))
    assert [tuple(row) for row in rows] == [("body:1", "f.json", woken.wake), ("id:1", "f.json", woken.wake)]


def test_any_of_its_names_is_enough_to_know_it_again(ledger: Ledger) -> None:
    assert ledger.tx(lambda tx: take(tx, "body:1", "id:1")) is not None
    for keys in (("body:1", "id:2"), ("body:2", "id:1"), ("id:1",)):
        assert ledger.tx(lambda tx, keys=keys: hooks.is_known(tx, "main", "ci", keys))
        assert ledger.tx(lambda tx, keys=keys: take(tx, *keys)) is None
    # and what was refused as known has no names of its own: it could otherwise keep another out
    assert ledger.tx(lambda tx: take(tx, "body:2", "id:2")) is not None
    assert ledger.tx(lambda tx: take(tx, "body:1", "id:1", name="other")) is not None
    assert len(ledger.tx(lambda tx: tx.all("SELECT * FROM wake"))) == 3


def test_a_file_without_its_rows_is_known_as_such(ledger: Ledger) -> None:
    assert ledger.tx(hooks.groups) == set()
    ledger.tx(lambda tx: take(tx, "id:1"))
    assert ledger.tx(hooks.groups) == {"main"}
    assert ledger.tx(lambda tx: hooks.has_file(tx, "main", "f.json"))
    assert not ledger.tx(lambda tx: hooks.has_file(tx, "main", "g.json"))
    assert not ledger.tx(lambda tx: hooks.has_file(tx, "other", "f.json"))
