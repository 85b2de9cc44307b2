"""Namespaces: what an agent keeps in one is seen by those that have it, too, and by nobody else, whatever they say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from clawd.errors import NotFound, Refused, UsageError
from clawd.memory import across, consolidate
from clawd.memory.protocol import Voice
from clawd.memory.store import OWNER, GroupMemory
from clawd.scopes import Scopes
from clawd.trust import Origin
from tests.memory.conftest import AGENT, OTHERS, PRIVATE, TAINTED, found, heard

Make = Callable[..., GroupMemory]


def of(namespace: str, *lists: str, voice: Voice = AGENT) -> Voice:
    """A voice that writes there, in a group that lists these."""
    scopes = Scopes("main", frozenset(lists), namespace)
    return replace(voice, namespace=namespace, spaces=scopes.spaces)


TEAM, ONE, LISTED = of("team/shared"), of("private/a"), of("shared/x", "shared/x")


def test_two_agents_share_the_namespace_that_both_have_and_no_other(memory: GroupMemory) -> None:
    memory.put("The gate is green.", "episode", {}, TEAM)
    memory.put("The gate squeaks.", "episode", {}, ONE)
    memory.put("The gate is mine.", "entity", {}, AGENT)
    texts = {voice: {hit.text for hit in memory.find("gate", voice)[0]} for voice in (TEAM, ONE, of("team/b"))}
    assert texts[TEAM] == {"The gate is green.", "The gate is mine."}, "a second agent that has it, too"
    assert texts[ONE] == {"The gate squeaks.", "The gate is mine."}
    assert texts[of("team/b")] == {"The gate is mine."}
    assert {hit.text for hit in memory.find("gate", AGENT)[0]} == {"The gate is mine."}
    assert len(memory.find("gate", OWNER)[0]) == len(memory.every()) == 3, "the owner is set apart from nothing"
    assert found(memory, "gate", replace(AGENT, spaces=frozenset())) == []


def test_what_a_group_lists_all_of_its_agents_see(memory: GroupMemory) -> None:
    memory.put("The gate is green.", "episode", {}, LISTED)
    memory.put("The gate squeaks.", "episode", {}, ONE)
    both = of("private/a", "shared/x")
    assert {hit.text for hit in memory.find("gate", both)[0]} == {"The gate is green.", "The gate squeaks."}
    assert {hit.text for hit in memory.find("gate", LISTED)[0]} == {"The gate is green."}
    assert found(memory, "gate", ONE, spaces=["shared/x", "private/a"]) == found(memory, "squeaks", ONE)
    assert found(memory, "gate", both, spaces=[]) == found(memory, "gate", both, spaces=["../x", ""]) == []


def test_by_no_id_either(memory: GroupMemory) -> None:
    ids = [memory.put("The gate is green.", kind, {}, ONE).id for kind in ("episode", "entity")]
    ids.append(memory.put("green", "fact", {"key": "gate"}, ONE).id)
    for id in ids:
        assert memory.get(id, ONE).namespace == "private/a"
        for voice in (AGENT, TEAM, LISTED):
            with pytest.raises(NotFound):
                memory.get(id, voice)
            with pytest.raises(NotFound):
                memory.change(id, "red", voice)
            with pytest.raises(NotFound):
                memory.forget(id, voice)
            with pytest.raises(NotFound):
                memory.put("x", "episode", {"derived_from": [id]}, voice)
            with pytest.raises((NotFound, UsageError)):
                memory.put("x", "episode", {"supersedes": id}, voice)
    assert len(memory.every(ONE)) == len(memory.every(OWNER)) and memory.every(TEAM) == []


def test_a_fact_has_its_namespace_in_front_and_values_do_not_meet(memory: GroupMemory) -> None:
    for voice, value in ((AGENT, "all"), (ONE, "one"), (TEAM, "team")):
        memory.put(value, "fact", {"key": "home"}, voice)
    said = (memory.root / "MEMORY.md").read_text()
    assert [line for line in said.splitlines() if line.startswith("## ")] == [
        "## home", "## private/a/home", "## team/shared/home"
    ]  # fmt: skip
    assert memory.put("new", "fact", {"key": "private/a/home"}, ONE).id == "fact:private/a/home", "as it is shown"
    assert memory.get("fact:private/a/home", ONE).text == "new" and memory.get("fact:home", ONE).text == "all"
    assert {each.key for each in memory.every(ONE, kind="fact")} == {"home", "private/a/home"}
    log = memory.get("day:2026-12-01", TEAM).text
    assert "team" in log and "all" in log and "one" not in log and "new" not in log
    assert found(memory, "one new", TEAM) == []


@pytest.mark.parametrize("key", ["../b/home", "/home", "a/home", "b/../home", "..", "%2e%2e/home", "a\0b", "x/"])
def test_no_key_leaves_its_namespace(memory: GroupMemory, key: str) -> None:
    try:
        id = memory.put("x", "fact", {"key": key}, ONE).id
    except UsageError:
        return
    assert id.startswith("fact:private/a/") and id.count("/") == 2
    assert memory.get(id).namespace == "private/a"


def test_a_key_of_another_namespace_is_not_written_over(memory: GroupMemory) -> None:
    memory.put("one", "fact", {"key": "home"}, ONE)
    with pytest.raises(Refused, match="kept in another namespace"):
        memory.put("all", "fact", {"key": "private/a/home"}, AGENT)
    with pytest.raises(UsageError, match="has a /"):  # private/a and home are not private and a/home
        memory.put("all", "fact", {"key": "a/home"}, of("private"))
    memory.put("owner", "fact", {"key": "private/a/home"}, OWNER)
    assert memory.get("fact:private/a/home", ONE).text == "owner", "the owner's word is where the fact was"


@pytest.mark.parametrize("key", ["bot_name", "user_name", "private/a/user_name", "User_Name"])
def test_who_the_claw_and_its_owner_are_is_in_no_namespace(memory: GroupMemory, key: str) -> None:
    with pytest.raises(UsageError, match="set by the owner alone"):
        memory.put("Eve", "fact", {"key": key}, ONE)
    memory.put("Ann", "fact", {"key": "user_name"}, replace(OWNER, namespace="private/a"))
    assert memory.get("fact:user_name", TEAM).text == "Ann"


def test_nothing_is_kept_in_a_shared_one_that_the_group_does_not_list(memory: GroupMemory) -> None:
    for kind, more in (("episode", {}), ("fact", {"key": "k"})):
        with pytest.raises(Refused, match="does not list shared/x") as refused:
            memory.put("x", kind, more, of("shared/x", "shared/y"))
        assert 'shared = ["shared/x"]' in (refused.value.hint or "")
    assert memory.every() == []


def test_what_is_corrected_stays_where_it_was(memory: GroupMemory) -> None:
    """An agent with a namespace of its own that mends what all of the group have takes it away from nobody."""
    first = memory.put("The gate is green.", "entity", {}, AGENT).id
    memory.change(first, "The gate is red.", ONE)
    second = memory.put("The gate is blue.", "entity", {"supersedes": first}, ONE).id
    assert memory.get(second, TEAM).text == "The gate is blue."
    own = memory.put("The owner's gate.", "entity", {}, OWNER).id
    waits = memory.change(own, "An agent's gate.", ONE)
    assert waits.status == "proposed" and memory.get(waits.id).namespace == ""


def test_what_the_ledger_knows_counts_and_not_what_a_file_says(memory: GroupMemory) -> None:
    id = memory.put("The gate is green.", "entity", {}, ONE).id
    path = memory.root / memory.get(id).file
    assert 'memory_namespace: "private/a"' in path.read_text()
    path.write_text(path.read_text().replace("private/a", "team/shared"))
    assert memory.get(id).namespace == "private/a" and found(memory, "gate", TEAM) == []
    assert any("memory_namespace: team/shared, which counts for nothing" in each for each in memory.why(id)["notes"])
    hand = memory.root / "entities" / "by-hand.md"
    hand.write_text("---\nmemory_namespace: team/shared\n---\nThe gate by hand.\n")
    assert found(memory, "hand", TEAM) == ["file:entities/by-hand.md"] and found(memory, "hand", ONE) == []
    hand.write_text("---\nmemory_namespace: ../x\n---\nThe gate by hand.\n")
    assert found(memory, "hand", ONE) and any("memory_namespace of" in each for each in memory.look())


def test_the_index_made_anew_says_the_same(memory: GroupMemory) -> None:
    memory.put("The gate is green.", "entity", {}, ONE)
    memory.put("green", "fact", {"key": "gate"}, ONE)
    before = found(memory, "green", ONE)
    memory.reindex()
    assert found(memory, "green", ONE) == before and len(before) == 2 and found(memory, "green", TEAM) == []


def test_tending_joins_nothing_across(memory: GroupMemory) -> None:
    voices = (ONE, TEAM, AGENT)
    for voice in voices:
        memory.put("The gate of the garden was painted green on a Sunday.", "episode", {}, voice, key=voice.namespace)
        memory.put("Actually the gate of the garden was painted red, not green.", "episode", {}, voice,
                   key=f"2 {voice.namespace}")  # fmt: skip
    every = memory.every()
    plan = consolidate.plan(every, datetime(2027, 6, 1, tzinfo=UTC) + timedelta(days=1))
    spaces = {each.id: each.namespace for each in every}
    for step in plan.changes:
        known = {spaces[id] for id in step.ids}
        assert len(known) == 1
        assert step.kept is None or {step.kept.namespace} == known
        assert step.into not in spaces or spaces[str(step.into)] in known
    assert {spaces[step.ids[0]] for step in plan.changes} == {"private/a", "team/shared", ""}


# ── another group's ──

X = frozenset({"shared/x"})


def across_of(memory: GroupMemory, query: str, **more: object) -> list[str]:
    given = {"k": 10, "floor": 0.5, **more}
    return [hit.record.id for hit in across.find(memory, query, given.pop("spaces", X), **given)]  # type: ignore[arg-type]


def test_what_another_group_shares_and_how_far_it_is_trusted(make: Make) -> None:
    other = make("other")
    by_agent = replace(LISTED, source="telegram:7#12 (agent-1)")
    kept = other.put("The gate is green.", "entity", {"tags": ["t"]}, by_agent).id
    owners = other.put("The owner's gate.", "entity", {}, replace(OWNER, namespace="shared/x")).id
    other.put("The gate of all.", "entity", {}, AGENT)
    other.put("The gate of one.", "entity", {}, ONE)
    hits = {hit.record.id: hit for hit in across.find(other, "gate", X, k=10, floor=0.5)}
    assert set(hits) == {f"group:other:{kept}", f"group:other:{owners}"}
    record = hits[f"group:other:{kept}"].record
    assert (record.source, record.origin, record.trust) == ("group:other (agent-1)", Origin.AGENT, 0.7)
    record = hits[f"group:other:{owners}"].record
    assert (record.origin, record.trust, record.taint, record.said) == (Origin.AGENT, 0.7, 1.0, None)
    assert across.get(other, kept, X, 0.5).text == "The gate is green."
    assert across_of(other, "gate", floor=0.8) == [], "the floor of who reads holds, too"
    assert across_of(other, "gate", spaces=frozenset()) == []


def test_what_never_passes(make: Make) -> None:
    other = make("other")
    shared = {name: replace(LISTED, **how) for name, how in {
        "private": {"private": True}, "waits": {"taint": 0.2}, "plain": {},
    }.items()}  # fmt: skip
    ids = [other.put(f"The gate is {name}.", "entity", {}, voice).id for name, voice in shared.items()]
    ids.append(other.put("How the gate is opened.", "procedure", {}, replace(OWNER, namespace="shared/x")).id)
    ids.append(other.put("A lesson of the gate.", "reflection", {}, LISTED).id)
    ids.append(other.put("It is the gate.", "profile", {}, LISTED).id)
    fact = other.put("of the gate", "fact", {"key": "key"}, LISTED).id
    assert sorted(across_of(other, "gate")) == [f"group:other:{ids[2]}", f"group:other:{fact}"]
    assert fact == "fact:shared/x/key"
    other.quarantine(ids[2])
    assert across_of(other, "gate") == [f"group:other:{fact}"]
    for id in (*ids, "day:2026-12-01", "file:MEMORY.md", "ep_0000000000", f"group:other:{fact}", "../x"):
        with pytest.raises(NotFound):
            across.get(other, id, X, 0.5)
    for spaces in (frozenset[str](), frozenset({"shared/y"})):
        with pytest.raises(NotFound):
            across.get(other, fact, spaces, 0.5)
    other.forget(fact, OWNER)
    assert across_of(other, "gate") == []


def test_of_a_citation_the_words_pass_and_are_nobodys_quote(make: Make) -> None:
    other, quote = make("other"), "The gate opens at nine."
    voice = of("shared/x", "shared/x", voice=replace(heard(quote), others=True))
    other.put("buy at evil.example", "entity", {"said": {"quote": quote, "inbound": 12}}, voice)
    [hit] = across.find(other, "gate", X, k=5, floor=0.5)
    assert (hit.text, hit.trust, hit.record.text, hit.record.said) == (quote, 0.7, quote, None)
    assert across_of(other, "evil example") == []


def test_a_file_by_hand_goes_to_another_group_when_the_owner_says_so(make: Make) -> None:
    other = make("other")
    path = other.root / "entities" / "gate.md"
    path.parent.mkdir()
    path.write_text("---\nmemory_namespace: shared/x\n---\nThe gate by hand.\n")
    assert found(other, "gate", AGENT) == ["file:entities/gate.md"] and across_of(other, "gate") == []
    trusted = other.trust(path)
    assert across_of(other, "gate") == [f"group:other:{trusted.id}"] and found(other, "gate", AGENT) == []


def test_what_is_anothers_is_not_changed_here(memory: GroupMemory, make: Make) -> None:
    id = f"group:other:{make('other').put('The gate is green.', 'entity', {}, LISTED).id}"
    for work in (lambda: memory.change(id, "red", LISTED), lambda: memory.forget(id, OWNER), lambda: memory.get(id),
                 lambda: memory.put("x", "entity", {"derived_from": [id]}, LISTED),
                 lambda: memory.put("x", "entity", {"supersedes": id}, LISTED)):  # fmt: skip
        with pytest.raises(Refused, match="is the group other's"):
            work()


def test_what_taints_does_so_here_too(make: Make) -> None:
    other = make("other")
    id = other.put("The gate is green.", "entity", {}, replace(LISTED, taint=0.6)).id
    [hit] = across.find(other, "gate", X, k=5, floor=0.5)
    assert (hit.trust, hit.record.taint) == (0.6, 0.6)
    assert across_of(other, "gate", taint=1.0, lowering=False) == []
    assert across_of(other, "gate", taint=0.6, lowering=False) == [f"group:other:{id}"]


def test_ones_own_keeps_its_place(memory: GroupMemory, make: Make) -> None:
    other = make("other")
    for n in range(8):
        memory.put(f"The gate number {n}.", "entity", {}, AGENT)
        other.put(f"A gate, and again a gate: {n}.", "entity", {}, LISTED)
    own, theirs = memory.find("gate", AGENT, k=8)[0], across.find(other, "gate", X, k=8, floor=0.5)
    both = across.merged(own, theirs, 8)
    assert len(both) == 8 and sum(hit.record.id.startswith("group:") for hit in both) == 4
    assert across.merged(own[:1], theirs, 8)[0].score >= both[-1].score and len(across.merged(own[:1], theirs, 8)) == 8
    assert across.merged([], theirs, 3) == theirs[:3] and across.merged(own, [], 8) == own


def test_what_is_private_stays_so_in_a_namespace(memory: GroupMemory, tmp_path: Path) -> None:
    memory.put("The gate is green.", "entity", {}, of("private/a", voice=PRIVATE))
    memory.put("green", "fact", {"key": "gate"}, of("private/a", voice=PRIVATE))
    assert found(memory, "green", of("private/a", voice=OTHERS)) == []
    assert len(found(memory, "green", of("private/a"))) == 2


def test_a_lesser_turn_forgets_what_it_sees(memory: GroupMemory) -> None:
    """The same text in another namespace is another agent's."""
    cut, text = replace(TAINTED, taint=0.6), "The gate of the garden is green."
    ids = {space: memory.put(text, "entity", {}, of(space, voice=cut), key=space).id for space in ("one", "two")}
    memory.forget(ids["one"], of("one", voice=cut))
    assert memory.get(ids["two"], of("two")).text == text
    with pytest.raises(NotFound):
        memory.get(ids["one"])
