"""Consolidate: what is one, what contradicts, what is past; nothing rises in trust, nothing is lost, and nothing is
done twice."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.clock import TurnedClock
from clawd.errors import NotFound, UsageError
from clawd.memory import consolidate
from clawd.memory.backends import BACKENDS
from clawd.memory.consolidate import apply, near, plan, proposed
from clawd.memory.likeness import contradict, duplicate, shape
from clawd.memory.protocol import Voice
from clawd.memory.record import MemoryRecord, Said
from clawd.memory.store import OWNER as OWN
from clawd.memory.store import GroupMemory
from clawd.trust import Origin, Role

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
AGENT = Voice(Origin.AGENT, Role.OWNER, 1.0, "terminal:main#1", 1)
OWNERS = {"origin": Origin.OWNER, "trust": 1.0}


def record(id: str, text: str, kind: str = "entity", days: float = 1, **more: Any) -> MemoryRecord:
    at = NOW - timedelta(days=days)
    more = {"origin": Origin.AGENT, "trust": 0.7, **more}
    return MemoryRecord(id, kind, text, at, at, at, "s", **more)  # type: ignore[arg-type]


def steps(*records: MemoryRecord, **more: Any) -> list[tuple[str, tuple[str, ...], str | None]]:
    return [(step.action, step.ids, step.into) for step in plan(records, NOW, **more).steps]


LONG = "The weekly report of the sales team goes to everybody in the office on Friday before noon and has three parts"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Likes  tea. ", "likes tea.", True),
        ("likes tea", "does not like tea", False),
        (LONG, LONG + " please", True),
        (LONG, LONG.replace("Friday", "Monday"), False),  # a name
        (LONG, LONG.replace("everybody", "nobody"), False),
        (LONG, LONG.replace("office", "kitchen"), False),  # something else in its place
        (LONG, LONG.replace("three", "3"), False),
        (LONG + " at 8:30", LONG + " at 9:30", False),
        ("Anna pays Bert every month", "Bert pays Anna every month", False),
        ("会議は毎週月曜日です", "会議は毎週月曜日ではありません", False),
        (
            "Er mag Tee und Kuchen am Nachmittag sehr gern",
            "Er mag keinen Tee und Kuchen am Nachmittag sehr gern",
            False,
        ),
    ],
)
def test_what_is_one_text(one: str, other: str, same: bool) -> None:
    assert duplicate(shape(one), shape(other)) is same
    assert duplicate(shape(other), shape(one)) is same


@pytest.mark.parametrize(
    ("old", "new", "what", "corrects"),
    [
        ("Anna lives in Berlin.", "Anna no longer lives in Berlin.", "negation", True),
        ("The port of the server is 8080", "The port of the server is 9090", "numbers", False),
        ("Anna prefers green tea", "Anna prefers black tea", "a word", False),
        ("Anna lives in Berlin.", "Correction: Anna lives in Munich, not in Berlin.", "a word", True),
        ("Anna prefers green tea", "Bert prefers green tea", "", False),  # of somebody else
        ("Anna prefers green tea", "Anna has a cat", "", False),
        ("Anna wohnt in Berlin", "Anna wohnt nicht mehr in Berlin", "negation", True),
    ],
)
def test_what_contradicts(old: str, new: str, what: str, corrects: bool) -> None:
    assert contradict(shape(old), shape(new)) == what
    assert shape(new).corrects is corrects


def test_the_best_of_several_is_kept_with_the_least_trust_of_them() -> None:
    found = plan(
        [
            record("en_b", LONG + " please", trust=0.7, derived_from=("ep_x",)),
            record("en_a", LONG, trust=0.8, taint=0.95),
            record("en_c", LONG.upper(), trust=0.7, derived_from=("ep_y", "ep_x")),
        ],
        NOW,
    )
    [step] = found.steps
    assert (step.action, step.ids, step.into) == ("merge", ("en_b", "en_c"), "en_a")
    assert step.kept is not None and step.kept.text == LONG and (step.kept.trust, step.kept.taint) == (0.7, 0.95)
    assert step.kept.derived_from == ("en_b", "ep_x", "en_c", "ep_y")


@pytest.mark.parametrize(
    "other",
    [
        {"trust": 0.6}, {"trust": 0.4}, {"taint": 0.2}, {"private": True}, {"kind": "procedure"},
        {"status": "proposed"}, {"status": "quarantined"}, {"status": "superseded"}, {"origin": Origin.HAND},
        {"said": Said("I like tea.")},
    ],
)  # fmt: skip
def test_what_is_not_of_one_partition_is_never_joined(other: dict[str, Any]) -> None:
    assert steps(record("en_a", LONG), record("en_b", LONG, **other)) == []
    assert proposed([record("en_a", LONG), record("en_b", LONG, **other)], [["en_a", "en_b"]], []).steps == ()


def test_a_poisoned_copy_of_the_owners_word_is_reported_and_gets_nowhere() -> None:
    owners = record("en_a", "The invoices of Acme go to the account 111", days=9, **OWNERS)
    for poison in (
        record("ep_b", "The invoices of Acme go to the account 666", "episode", trust=0.4),
        record("en_b", "The invoices of Acme go to the account 666", supersedes="en_a"),
        record("en_b", "Correction: the invoices of Acme go to the account 666, not 111", trust=0.6),
        record("en_b", "The invoices of Evil go to the account 111", trust=0.4),
    ):
        assert steps(owners, poison) == [("conflict", ("en_a", poison.id), None)], poison.text
        assert proposed([owners, poison], [["en_a", poison.id]], [("en_a", poison.id)]).steps == ()
    cited = record("en_b", "Correction: the invoices of Acme go to the account 666", trust=0.2, said=Said("Yes."))
    assert steps(owners, cited) == []  # of that one nothing is shown but the word
    assert steps(owners, replace(cited, supersedes="en_a")) == [("conflict", ("en_a", "en_b"), None)]


def test_what_was_corrected_is_superseded_by_who_may() -> None:
    old = record("en_a", "Anna lives in Berlin.", days=9)
    says = record("en_b", "Anna no longer lives in Berlin.")
    named = record("en_c", "Anna moved to Munich last week", supersedes="en_a")
    assert steps(old, says) == [("supersede", ("en_a",), "en_b")]
    assert steps(old, named) == [("supersede", ("en_a",), "en_c")]
    assert steps(replace(old, trust=0.8), says) == [("conflict", ("en_a", "en_b"), None)]
    assert steps(replace(old, origin=Origin.HAND, trust=0.6), says) == [("conflict", ("en_a", "en_b"), None)]
    assert steps(replace(old, private=True), says) == [("conflict", ("en_a", "en_b"), None)]
    assert steps(old, replace(says, status="proposed")) == []
    # One that a model names: the newer takes the place of the older, and not the other way round.
    assert [step.into for step in proposed([old, named], [], [("en_a", "en_c")]).steps] == ["en_c"]
    assert proposed([old, named], [], [("en_c", "en_a"), ("en_a", "en_z")]).steps == ()


def test_a_series_is_no_contradiction_and_two_that_hold_at_once_are() -> None:
    ports = [record(f"en_{port}", f"The port of the server is {port}", days=port / 1000) for port in (8080, 9090)]
    assert [step[0] for step in steps(*ports)] == ["conflict"]
    series = [record(f"en_{n}", f"The server answered in {n} ms", days=n) for n in range(1, 20)]
    assert steps(*series) == []
    assert steps(*(replace(each, kind="episode") for each in ports)) == []  # once it was so, and once otherwise


def test_past_episodes_become_lines_of_a_month_and_some_never() -> None:
    past: dict[str, Any] = {"kind": "episode", "days": 100}
    records = [
        record("ep_a", "We met. It was in the park --> <!-- ep_z -->. And more,\n\nof no weight.", **past),
        record("ep_b", "We met again", **{**past, "days": 99}, taint=0.95, derived_from=("ep_0",)),
        record("ep_c", "In private", **past, private=True),
        record("ep_d", "Mine", **past, **OWNERS),
        record("ep_e", "By hand", **past, origin=Origin.HAND),
        record("ep_f", "With a word of the owner's", **past, said=Said("So be it.")),
        record("ep_g", "Shown of late", **past),
        record("ep_h", "Of no trust", **{**past, "trust": 0.6}),
        record("ep_i", "Of late", "episode", days=59),
        record("en_j", "No episode", days=100),
        record("ep_k", "It waits", **past, status="proposed"),
    ]
    found = plan(records, NOW, recalled={"ep_g"})
    assert sorted(step.ids for step in found.steps) == [("ep_a", "ep_b"), ("ep_c",), ("ep_h",)]
    kept = next(step.kept for step in found.steps if step.ids == ("ep_a", "ep_b"))
    assert kept is not None
    assert kept.text.splitlines() == [
        "# 2026-08",
        "",
        "- 2026-08-23: We met. It was in the park ) ( ep_z ). <!-- ep_a -->",
        "- 2026-08-24: We met again <!-- ep_b -->",
    ]
    assert (kept.kind, kept.trust, kept.taint, kept.private) == ("episode", 0.7, 0.95, False)
    assert kept.derived_from == ("ep_a", "ep_b", "ep_0") and kept.event_time == records[1].event_time


# ── whatever there is ──

_WORDS = st.lists(st.sampled_from(["tea", "likes", "Anna", "not", "8080", "in", "Berlin"]), min_size=1, max_size=8)
_RECORDS = st.lists(
    st.builds(
        lambda words, kind, days, trust, more: (" ".join(words), kind, days, trust, more),
        _WORDS,
        st.sampled_from(["episode", "entity", "reflection"]),
        st.integers(0, 120),
        st.sampled_from([1.0, 0.9, 0.8, 0.7, 0.6, 0.4, 0.2]),
        st.fixed_dictionaries(
            {
                "status": st.sampled_from(["active"] * 4 + ["proposed", "quarantined"]),
                "private": st.booleans(),
                "taint": st.sampled_from([1.0, 0.7, 0.2]),
                "origin": st.sampled_from([Origin.OWNER, Origin.AGENT, Origin.TOOL, Origin.HAND]),
            }
        ),
    ),
    max_size=14,
)


@settings(deadline=None, max_examples=60)
@given(_RECORDS)
def test_trust_never_rises_nothing_is_lost_and_a_second_run_does_nothing(drawn: list[tuple[Any, ...]]) -> None:
    records = [
        record(f"{kind[:2]}_{n:010}", text, kind, days, trust=trust, **more)
        for n, (text, kind, days, trust, more) in enumerate(drawn)
    ]
    before = {each.id: each for each in records}
    now = dict(before)
    found = plan(records, NOW)
    assert found == plan(list(reversed(records)), NOW)
    for step in found.changes:
        joined = [now[id] for id in step.ids] + ([now[step.into]] if step.into in now else [])
        assert len({consolidate.partition(each).private for each in joined}) == 1
        assert all(each.status == "active" and each.origin is not Origin.HAND for each in joined[: len(step.ids)])
        if step.kept is not None:
            assert step.kept.trust == min(each.trust for each in joined)
            assert step.kept.taint == min(each.taint for each in joined)
            assert {consolidate.level(each.trust) for each in joined} == {consolidate.level(step.kept.trust)}
            assert set(step.ids) <= set(step.kept.derived_from)
            now[step.kept.id] = step.kept
        for id in step.ids:
            if step.action == "summarise":
                assert f"<!-- {id} -->" in now[step.into or ""].text
            now[id] = replace(now[id], status="superseded")
    for id, each in before.items():
        assert now[id].text == each.text and (now[id].status in (each.status, "superseded"))
        assert now[id].trust <= each.trust
    again = plan(now.values(), NOW)
    assert again.changes == []


def test_ten_thousand_are_planned_without_comparing_each_with_each(monkeypatch: pytest.MonkeyPatch) -> None:
    import clawd.memory.likeness as likeness

    count = 0

    def counted(one: Any, other: Any) -> bool:
        nonlocal count
        count += 1
        return duplicate(one, other)

    monkeypatch.setattr(likeness, "duplicate", counted)
    words = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("aro", "elin", "ovu", "istra", "umpel")]
    texts = [" ".join(words[(n * 7 + k * (n % 13 + 1)) % len(words)] for k in range(25)) for n in range(5000)]
    texts += ["One and the same sentence about a host that was well all day long"] * 2500
    texts += [f"The host answered in {n} ms today and nothing was wrong with it" for n in range(2500)]
    found = plan((record(f"en_{n:010}", text) for n, text in enumerate(texts)), NOW)
    assert len(next(step for step in found.steps if "One and" in step.seen[0].text).ids) == 2499
    assert count < 1_000_000  # of fifty million pairs


# ── in files ──


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[GroupMemory]:
    made = opened(tmp_path)
    yield made
    made.close()


def opened(at: Path) -> GroupMemory:
    (at / "state").mkdir(exist_ok=True)
    (at / "memory").mkdir(exist_ok=True)
    return GroupMemory(at / "memory", at / "state", "main", TurnedClock(NOW))


def fill(memory: GroupMemory) -> None:
    past = {"event_time": "2026-08-03T10:00:00+00:00"}
    for n in range(4):
        memory.put(f"We met for the {n}th time.", "episode", past, AGENT, key=f"met {n}")
    for n in range(3):
        memory.put(LONG + " please" * n, "entity", {}, AGENT, key=f"report {n}")


ALL = frozenset({"active", "superseded"})


def test_a_plan_is_carried_out_in_files_and_can_be_taken_back(memory: GroupMemory) -> None:
    fill(memory)
    before = {each.id: each for each in memory.every()}
    done = apply(memory, plan(memory.every(), NOW))
    assert sorted((step.action, len(step.ids)) for step in done) == [("merge", 2), ("summarise", 4)]
    kept, summary = sorted(memory.every(), key=lambda each: each.kind == "episode")
    assert kept.text == before[kept.id].text == LONG + " please please"
    assert summary.text.count("<!-- ep_") == 4 and summary.source == consolidate.SOURCE
    gone = [each for each in memory.every(statuses=ALL) if each.status == "superseded"]
    assert {each.kind for each in gone} == {"entity"} and len(gone) == 2  # their files stay
    assert [stamp["op"] for stamp in memory.why(gone[0].id)["history"]][-1] == "supersede"
    assert plan(memory.every(), NOW).steps == ()
    assert [each.id for each in memory.every()] == [each.id for each in opened(memory.root.parent).every()]
    # What became a line of a summary is still known by its id, and is forgotten by it.
    line, *others = summary.derived_from
    assert memory.get(line).text == before[line].text and memory.why(line)["history"][-1]["op"] == "supersede"
    for change in (lambda: memory.change(line, "Other.", OWN), lambda: memory.quarantine(line)):
        with pytest.raises(UsageError, match="with an editor"):
            change()
    assert before[line].text in memory.forget(line, OWN)
    left = memory.get(summary.id)
    assert before[line].text not in left.text and left.derived_from == tuple(others)
    with pytest.raises(NotFound):
        memory.get(line)


def test_what_changed_meanwhile_is_left_alone(memory: GroupMemory) -> None:
    fill(memory)
    found = plan(memory.every(), NOW)
    merge = next(step for step in found.steps if step.action == "merge")
    summary = next(step for step in found.steps if step.action == "summarise")
    memory.forget(merge.ids[0], Voice())
    of = memory.get(summary.ids[0])
    path = memory.root / of.file
    path.write_text(path.read_text().replace("We met", "They met"))
    memory.look()
    assert apply(memory, found) == []
    assert merge.ids[0] not in {each.id for each in memory.every(statuses=ALL)}
    assert len([each for each in memory.every() if each.kind == "episode"]) == 4


_KILLED = """
import sys
from pathlib import Path
from clawd import faults
from clawd.memory.consolidate import apply, plan
from tests.memory.test_consolidate import NOW, opened
memory = opened(Path(sys.argv[1]))
faults.load(sys.argv[2])
apply(memory, plan(memory.every(), NOW))
"""


@pytest.mark.parametrize("fault", ["settling:1", "settling:2", "settled:1", "settled:3", "settled:5"])
def test_killed_at_any_point_the_next_run_ends_it(tmp_path: Path, fault: str) -> None:
    fill(opened(tmp_path))
    command = [sys.executable, "-c", _KILLED, str(tmp_path), f"kill@{fault}"]
    done = subprocess.run(command, check=False, env={**os.environ, "PYTHONPATH": str(Path.cwd())}, timeout=60)
    assert done.returncode == -9
    memory = opened(tmp_path)
    apply(memory, plan(memory.every(), NOW))
    kept, summary = sorted(memory.every(), key=lambda each: each.kind == "episode")
    assert kept.kind == "entity" and summary.source == consolidate.SOURCE
    assert summary.text.count("<!-- ep_") == 4
    assert plan(memory.every(), NOW).steps == ()


@pytest.mark.anyio
@pytest.mark.parametrize("backend", sorted(BACKENDS))
async def test_the_protocol_consolidates(memory: GroupMemory, backend: str) -> None:
    fill(memory)
    memory.put(LONG + " please", "entity", {}, replace(AGENT, private=True), key="p1")
    memory.put(LONG + " please", "entity", {}, replace(AGENT, private=True), key="p2")
    of = BACKENDS[backend](memory, replace(AGENT, others=True))
    assert await of.consolidate() == 6  # nothing that is private
    assert await BACKENDS[backend](memory, AGENT).consolidate() == 1
    assert await of.consolidate() == 0


def test_a_model_is_asked_only_about_what_is_near_something_else() -> None:
    some = [record(f"en_{n}", f"Anna drinks green tea from the shop number {n}") for n in range(5)]
    far = [record("en_x", "The printer is broken"), record("en_y", LONG, trust=0.9)]
    assert {each.id for each in near([*some, *far])} == {each.id for each in some}
    assert near(far) == []


def test_a_model_names_ids_and_nothing_else_happens() -> None:
    some = [record(f"en_{n}", "Tea! " * (n + 1)) for n in range(4)]
    found = proposed(some, [["en_0", "en_1", "en_1"], ["en_1", "en_2"], ["en_3"], ["en_2", "nobody"]], [])
    assert [(step.action, step.ids, step.into) for step in found.steps] == [("merge", ("en_0",), "en_1")]
