"""What every backend of the protocol does. They differ in how they search, and in nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clawd.errors import NotFound, Refused, UsageError
from clawd.memory.backends import BACKENDS, StoredMemory
from clawd.memory.protocol import Memory, Voice
from clawd.memory.store import OWNER, GroupMemory
from tests.memory.conftest import AGENT, MEMBER, OTHERS, PRIVATE, TAINTED, heard

pytestmark = pytest.mark.anyio


@pytest.fixture(params=sorted(BACKENDS))
def of(request: pytest.FixtureRequest, make: Callable[..., GroupMemory]) -> Callable[..., Memory]:
    """A memory with this backend, of a group and for a voice."""
    known: dict[str, GroupMemory] = {}

    def open(voice: Voice = AGENT, group: str = "main") -> Memory:
        known.setdefault(group, make(group, backend=request.param, mem0="in-memory"))
        return StoredMemory(known[group], voice)

    return open


async def ids(memory: Memory, query: str, **filters: Any) -> list[str]:
    return [hit.record.id for hit in await memory.search(query, filters=filters)]


async def test_what_is_written_is_read_and_found(of: Callable[..., Memory]) -> None:
    memory = of()
    written = {
        kind: await memory.write(f"The {kind} of zebras and grass.", kind=kind, metadata={"tags": ["zoo"]})
        for kind in ("episode", "entity", "reflection")
    }
    written["fact"] = await memory.write("Zebras eat grass.", kind="fact", metadata={"key": "zebra food"})
    assert written["fact"] == "fact:zebra food"
    record = await memory.read(written["entity"])
    assert (record.text, record.kind, record.trust, record.tags, record.source) == (
        "The entity of zebras and grass.", "entity", 0.7, ("zoo",), AGENT.source)  # fmt: skip
    found = await memory.search("what do zebras eat", k=10)
    assert {hit.record.id for hit in found} == {*written.values()} and found == sorted(
        found, key=lambda hit: -hit.score
    )
    assert memory.lanes and all("not installed" not in lane for lane in memory.lanes)
    assert len(await memory.search("zebras", k=2)) == 2
    assert await ids(memory, "zebras", kind="entity") == [written["entity"]]
    with pytest.raises(UsageError):
        await memory.search("zebras", filters={"source": "owner"})


async def test_what_waits_is_not_found(of: Callable[..., Memory]) -> None:
    profile = await of().write("Zebras are my friends.", kind="profile")
    procedure = await of().write("To feed zebras: give grass.", kind="procedure")
    low = await of(TAINTED).write("Zebras are poison.", kind="episode")
    fact = await of(TAINTED).write("poison", kind="fact", metadata={"key": "zebras"})
    assert await ids(of(), "zebras") == []
    assert set(await ids(of(), "zebras", include_untrusted=True)) == {profile, procedure, low, fact}


async def test_time_is_the_event_s(of: Callable[..., Memory]) -> None:
    start = datetime(2026, 3, 1, 9, tzinfo=UTC)
    march, may = [
        await of().write(f"The dentist saw me, {n}.", kind="episode", metadata={"event_time": at.isoformat()})
        for n, at in enumerate((start, start + timedelta(days=70)))
    ]
    assert await ids(of(), "dentist", since="2026-04-01T00:00:00Z") == [may]
    assert await ids(of(), "dentist", until="2026-04-01T00:00:00Z") == [march]
    with pytest.raises(UsageError):
        await of().search("dentist", filters={"since": "spring"})


async def test_a_change_takes_the_place_of_the_text(of: Callable[..., Memory]) -> None:
    memory = of()
    id = await memory.write("The gate is green.", kind="entity")
    await memory.update(id, "The door is red.")
    assert (await memory.read(id)).text == "The door is red."
    assert await ids(memory, "red door") == [id] and "The gate is green." not in [
        hit.text for hit in await memory.search("green gate")
    ]
    await of(OWNER).update(id, "The door is blue.")
    await memory.update(id, "The door is black.")  # less trust: it waits, beside it
    assert (await memory.read(id)).text == "The door is blue."
    with pytest.raises(NotFound):
        await memory.update("ep_0000000000", "x")


async def test_what_is_deleted_is_gone(of: Callable[..., Memory]) -> None:
    memory = of()
    id = await memory.write("Zebras eat grass all day long.", kind="episode")
    await memory.write("grass", kind="fact", metadata={"key": "zebras"})
    with pytest.raises(Refused):
        await of(TAINTED).delete(id)
    await memory.delete(id)
    await memory.delete("fact:zebras")
    for lost in (id, "fact:zebras"):
        with pytest.raises(NotFound):
            await memory.read(lost)
        with pytest.raises(NotFound):
            await memory.delete(lost)
    assert await ids(memory, "zebras", include_untrusted=True) == []


async def test_a_group_is_a_wall(of: Callable[..., Memory]) -> None:
    mine = await of().write("Zebras eat grass.", kind="episode")
    other = await of(group="other").write("Zebras eat hay.", kind="episode")
    assert (await ids(of(), "zebras eat"), await ids(of(group="other"), "zebras eat")) == ([mine], [other])
    for id in (other, f"../../other/memory/episodes/{other}", "file:../../other/memory/MEMORY.md"):
        for call in (of().read(id), of().update(id, "x"), of().delete(id),
                     of().write("x", kind="episode", metadata={"derived_from": [id]})):  # fmt: skip
            with pytest.raises(NotFound):
                await call


async def test_beside_others_nothing_private_is_there(of: Callable[..., Memory]) -> None:
    private = await of(PRIVATE).write("My zebra has a secret.", kind="episode")
    fact = await of(PRIVATE).write("secret", kind="fact", metadata={"key": "zebra"})
    open = await of(OTHERS).write("The zebra is striped.", kind="episode")
    assert set(await ids(of(), "zebra")) == {private, fact, open}
    for voice in (OTHERS, MEMBER):
        assert await ids(of(voice), "zebra secret", include_untrusted=True) == [open]
        for id in (private, fact, "day:2026-12-01"):
            answers = []
            for lost in (id, "ep_0000000000"):
                for call in (of(voice).read(lost), of(voice).update(lost, "x"), of(voice).delete(lost),
                             of(voice).write("x", kind="entity", metadata={"derived_from": [lost]})):  # fmt: skip
                    with pytest.raises(NotFound) as refusal:
                        await call
                    answers.append(str(refusal.value).replace(lost, ""))
            assert answers[:4] == answers[4:]
    await of(OTHERS).write("striped", kind="fact", metadata={"key": "zebra"})
    assert (await of().read(fact)).text == "secret"


async def test_the_owner_s_sentence_is_shown_alone_in_a_lesser_turn(of: Callable[..., Memory]) -> None:
    memory = of(heard("Zebras eat grass. I saw it."))
    id = await memory.write("Zebras eat whatever.", kind="entity",
                            metadata={"said": {"quote": "Zebras eat grass."}, "tags": ["obey"]})  # fmt: skip
    fact = await memory.write("hay", kind="fact", metadata={"key": "obey me", "said": {"quote": "I saw it."}})
    [hit, *_] = await of().search("zebras grass")
    assert (hit.record.id, hit.text, hit.trust, hit.record.tags) == (id, "Zebras eat grass.", 1.0, ())
    [hit, *_] = await of().search("saw it")
    assert (hit.record.id, hit.text, hit.trust, hit.record.key) == (fact, "I saw it.", 1.0, "")
    with pytest.raises(UsageError):
        await memory.write("x", kind="entity", metadata={"said": {"quote": "eat grass."}})


async def test_nothing_that_is_passed_raises_trust(of: Callable[..., Memory]) -> None:
    for forged in ({"source": "owner"}, {"trust": 1}, {"status": "active"}, {"origin": "owner"}, {"taint": 1}):
        with pytest.raises(UsageError):
            await of(TAINTED).write("Zebras bite.", kind="episode", metadata=forged)
    for _ in range(20):
        await of(TAINTED).write("Zebras bite and kick everybody.", kind="episode")
    again = await of(replace(AGENT, turn=9)).write("Zebras bite and kick everybody.", kind="episode")
    assert (await of().read(again)).trust == 0.2 and await ids(of(), "zebras") == []
