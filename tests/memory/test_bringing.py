"""What was kept elsewhere is taken in once, as a hand's, and never instead of what is there."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawd import faults
from clawd.faults import InjectedFault
from clawd.memory import daily, keyed
from clawd.memory.bringing import Taken
from clawd.memory.keyed import Fact, with_fact, with_facts
from clawd.memory.protocol import Voice
from clawd.memory.reading import OWNER
from clawd.memory.store import GroupMemory
from clawd.trust import Origin, Role

HAND = Voice(Origin.HAND, Role.OWNER, 1.0, "pythonclaw:context/memory/MEMORY.md")


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    yield
    faults.load(None)


THEN = datetime(2026, 3, 7, 10, tzinfo=UTC)
LOG = "2026-03-07.md"


def fact(memory: GroupMemory, key: str, value: str, before: str = "", at: datetime | None = THEN) -> Taken:
    with memory.bringing(HAND) as bringing:
        [taken] = bringing.facts([Fact(key, value, at)], {key: before}).values()
        return taken


def day(memory: GroupMemory, data: bytes) -> Taken:
    with memory.bringing(HAND) as bringing:
        return bringing.day(LOG, data)


def test_a_fact_is_a_hand_s_of_its_own_time_and_no_news_of_today(memory: GroupMemory) -> None:
    taken = fact(memory, "town", "Porto")
    record = memory.get("fact:town")
    assert taken.new and (record.text, record.trust, record.taint, record.origin) == ("Porto", 0.6, 1.0, "hand")
    assert record.source == HAND.source and record.updated == THEN and not record.private
    assert [path.name for path in memory.root.iterdir()] == ["MEMORY.md"]
    assert not fact(memory, "town", "Porto").new
    assert fact(memory, "later", "x", at=datetime(2999, 1, 1, tzinfo=UTC)).new
    assert memory.get("fact:later").updated == datetime(2026, 12, 1, 9, tzinfo=UTC)  # nothing comes from the future


def test_only_its_own_value_is_renewed(memory: GroupMemory) -> None:
    first = fact(memory, "town", "Porto")
    assert fact(memory, "town", "Lisbon").why and memory.get("fact:town").text == "Porto"
    second = fact(memory, "town", "Lisbon", first.digest)
    assert second.new and memory.get("fact:town").text == "Lisbon"
    memory.put("Braga", "fact", {"key": "town"}, OWNER)
    assert fact(memory, "town", "Faro", second.digest).why and memory.get("fact:town").trust == 1.0


@pytest.mark.parametrize("key", ["", "user_name", "Bot_Name", "x\ny", "[a](http://b)", "k" * 201])
def test_what_is_no_key_is_refused(memory: GroupMemory, key: str) -> None:
    assert not fact(memory, key, "x").new and fact(memory, key, "x").why
    assert not (memory.root / keyed.FACTS).exists()


def test_text_that_was_trusted_less_before_does_not_rise(memory: GroupMemory) -> None:
    text = "The bank account for donations is 0815-4711-2222"
    memory.put(text, "episode", {}, Voice(Origin.EXTERNAL, Role.NONE, 0.2, "mail"))
    assert "trusted at 0.2" in fact(memory, "account", text).why


@pytest.mark.parametrize("point", ["remembering-stamped", "replacing-MEMORY.md", "remembering-written"])
def test_a_fact_that_was_killed_half_way_is_ended(memory: GroupMemory, point: str) -> None:
    faults.load(f"raise@{point}")
    with pytest.raises(InjectedFault):
        fact(memory, "town", "Porto")
    faults.load(None)
    fact(memory, "town", "Porto")
    assert memory.get("fact:town").trust == 0.6
    assert (memory.root / keyed.FACTS).read_bytes().count(b"## town\n") == 1


def test_an_entry_has_no_more_trust_than_a_hand_whatever_its_key_has(memory: GroupMemory) -> None:
    said = "The owner of the seventh hill is Carlota"
    memory.put("an old value of the key", "fact", {"key": "hill"}, OWNER)
    data = f"### 10:00:00 — hill\n\n{said}\n\n### 11:00:00 — fresh\n\n{said} still\n".encode()
    assert day(memory, data).new and not day(memory, data).new
    memory.put("a value that came later", "fact", {"key": "fresh"}, OWNER)
    memory.look()
    assert memory.get("day:2026-03-07").trust == 0.6
    assert memory.get("fact:hill").trust == memory.get("fact:fresh").trust == 1.0
    assert [each["trust"] for each in memory.why("fact:hill")["history"]][-1] == 1.0
    memory.forget("fact:hill", OWNER)
    assert b"seventh hill" not in (memory.root / LOG).read_bytes().partition(b"### 11")[0]


def test_a_day_that_was_killed_half_way_is_ended(memory: GroupMemory) -> None:
    data = b"### 10:00:00 - a\n\none\n\n### 10:00:01 - b\n\ntwo\n"
    for point in ("remembering-stamped", f"replacing-{LOG}"):
        faults.load(f"raise@{point}")
        with pytest.raises(InjectedFault):
            day(memory, data)
    faults.load(None)
    day(memory, data)
    assert (memory.root / LOG).read_bytes() == data


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(old=st.text("#— \n\r:019ab-[]", max_size=60), new=st.text("#— \n\r:019ab-[]", max_size=60))
def test_whatever_stands_there_stays_and_twice_is_once(memory: GroupMemory, old: str, new: str) -> None:
    (memory.root / LOG).write_bytes(old.encode())
    day(memory, new.encode())
    once = (memory.root / LOG).read_bytes()
    assert once.startswith(old.encode())
    texts = {piece.text for piece in daily.parsed(once, THEN.date())}
    there, came = (list(daily.parsed(each.encode(), THEN.date())) for each in (old, new))
    assert {piece.text for piece in [*there, *came] if piece.at is not None} <= texts  # no entry is another by it
    day(memory, new.encode())
    assert (memory.root / LOG).read_bytes() == once


def test_an_index_comes_where_there_is_none(memory: GroupMemory) -> None:
    for data, before, new in ((b"one", "", True), (b"one\n", "", False), (b"two", "", False)):
        with memory.bringing(HAND) as bringing:
            taken = bringing.index(data, before)
        assert taken.new is new and bool(taken.why) is (data == b"two")
    record = memory.get("file:INDEX.md")
    assert (record.text, record.trust, record.source) == ("one", 0.6, HAND.source)


@given(
    old=st.text("#> aU\n\\", max_size=40),
    facts=st.dictionaries(st.sampled_from(["a", "b", "c"]), st.text("#> aU\n\\", max_size=12), max_size=3),
)
def test_several_at_once_are_what_one_after_the_other_is(old: str, facts: dict[str, str]) -> None:
    one = old.encode()
    for key, value in facts.items():
        one = with_fact(one, key, value, THEN)
    both = with_facts(old.encode(), [(key, value, THEN) for key, value in facts.items()])
    assert keyed.parsed(both)[1] == keyed.parsed(one)[1]
