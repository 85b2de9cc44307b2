"""Tending: when a night is, a lesson after each turn that went wrong, memories merged when nobody is at work, and what
a model may add to both."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawd.clock import rfc3339
from clawd.config.begin import ensure_group
from clawd.config.schema import MemoryTable
from clawd.errors import NotFound
from clawd.ledger import groups, recalled, tending
from clawd.ledger.db import Transaction
from clawd.memory.consolidate import SOURCE
from clawd.memory.protocol import Voice
from clawd.memory.record import MemoryRecord
from clawd.model import Final, Lease, Offer
from clawd.signals import News
from clawd.trust import Origin, Role
from clawd.turns.memory import Memories
from clawd.turns.tending import Tending, due, next_night
from tests.turns.conftest import NOW, Ground, opened

pytestmark = pytest.mark.anyio
AGENT = Voice(Origin.AGENT, Role.OWNER, 1.0, "terminal:main#1", 1)
EVERY = frozenset({"active", "proposed"})


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.mark.parametrize(
    ("last", "begun", "zone", "expected"),
    [
        (None, "2026-12-01T01:00Z", "UTC", "2026-12-01T03:30Z"),
        (None, "2026-12-01T03:30Z", "UTC", "2026-12-02T03:30Z"),
        (None, "2026-12-01T01:00Z", "Europe/Berlin", "2026-12-01T02:30Z"),
        (None, "2026-12-01T01:00Z", "Asia/Tokyo", "2026-12-01T18:30Z"),
        ("2026-11-30T03:31Z", "2026-12-01T01:00Z", "UTC", "2026-12-01T03:30Z"),
        ("2026-11-29T03:31Z", "2026-12-01T01:00Z", "UTC", "2026-12-01T01:00Z"),  # it is overdue
        ("2026-12-02T03:31Z", "2026-12-01T01:00Z", "UTC", "2026-12-03T03:30Z"),
        (None, "2026-03-29T00:00Z", "Europe/Berlin", "2026-03-29T01:30Z"),  # clocks are set
        (None, "2026-10-24T22:00Z", "Europe/Berlin", "2026-10-25T02:30Z"),
    ],
)
async def test_when_a_night_is(last: str | None, begun: str, zone: str, expected: str) -> None:
    assert due(at(last) if last else None, at(begun), zone) == at(expected)
    assert next_night(at(expected), zone) > at(expected)


class Play:
    """Plays each turn as the test said; a job is answered with what `answers` has of its kind."""

    def __init__(self) -> None:
        self.turns: list[tuple[list[dict[str, Any]], Final]] = []
        self.answers: dict[str, Any] = {}
        self.prompts: list[str] = []
        self.gate: anyio.Event | None = None

    async def __call__(self, ground: Ground, lease: Lease, offer: Offer) -> None:
        if offer.context["session"].startswith("job:"):
            self.prompts.append(str(offer.wakes[0]["parts"][0]["text"]))
            kind = "consolidate" if "which was corrected" in self.prompts[-1] else "reflect"
            await ground.counter.final(lease, Final(json.dumps(self.answers[kind])))
            return
        steps, final = self.turns.pop(0) if self.turns else ([], Final("a reply"))
        for n, step in enumerate(steps):
            await ground.counter.step(lease, n, step, [])
        if self.gate is not None:
            await self.gate.wait()
        await ground.counter.final(lease, final)


class Tended:
    """A ground whose memories are tended."""

    def __init__(self, ground: Ground, play: Play, engine: str) -> None:
        self.ground, self.play = ground, play
        self.told: list[str] = []
        self.waiting: list[str] = []
        self.memories = Memories(ground.home, ground.ledger, ground.clock, lambda group: MemoryTable())
        self.memories.waits = self.waiting.append
        self.tending = self.make(engine)

    def make(self, engine: str) -> Tending:
        ground = self.ground
        return Tending(
            ground.home,
            ground.ledger,
            ground.clock,
            self.memories,
            lambda group: "UTC",
            lambda group: engine,
            self.tell,
            ground.jobs,
        )

    async def evening(self) -> None:
        """It is known that there are memories, and when the next night is."""
        await self.ground.recorded(await self.ground.accept())
        await self.ground.until(lambda: self.tending.nights)

    async def tell(self, text: str) -> None:
        self.told.append(text)

    async def all(self, kind: str | None = None) -> list[MemoryRecord]:
        return await self.memories.do("main", lambda memory: memory.every(kind=kind, statuses=EVERY))

    async def until(self, count: int, kind: str | None = None) -> list[MemoryRecord]:
        with anyio.fail_after(10):
            while len(found := await self.all(kind)) != count:
                await anyio.sleep(0.01)
        return found

    async def holds(self, what: Callable[[Transaction], Any]) -> None:
        with anyio.fail_after(10):
            while not await self.ground.ledger.do(what):
                await anyio.sleep(0.01)

    async def put(self, *texts: str, kind: str = "entity", **metadata: Any) -> list[str]:
        def put(memory: Any) -> list[str]:
            return [memory.put(text, kind, metadata, AGENT, key=text).id for text in texts]

        return await self.memories.do("main", put)


@asynccontextmanager
async def tended(path: Path, engine: str = "offline") -> AsyncIterator[Tended]:
    play = Play()
    async with opened(path, play=play, workers=1) as ground:
        await ground.ledger.do(lambda tx: groups.add(tx, "main", NOW))
        ensure_group(ground.home, "main")
        if engine != "offline":
            config = '[model]\nengine = "scripted"\nscript = "s.json"\n'  # as far as the composer goes
            ground.home.config_file.write_text(f'schema = 1\n[claw]\nname = "t"\n{config}')
            (ground.home.root / "s.json").write_text('{"steps": [{"text": "x"}]}')
        found = Tended(ground, play, engine)
        ground.tasks.start_soon(found.tending.run, ground.signals, name="tending")
        await found.holds(lambda tx: tending.of(tx, "main"))
        yield found


def used(command: str, result: str, n: int = 0) -> list[dict[str, Any]]:
    function = {"name": "bash", "arguments": json.dumps({"command": command})}
    return [
        {"role": "assistant", "content": "", "tool_calls": [{"id": f"c{n}", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": f"c{n}", "content": result},
    ]


async def test_a_turn_that_went_wrong_leaves_a_lesson_and_any_other_none(tmp_path: Path) -> None:
    async with tended(tmp_path) as world:
        ground, play = world.ground, world.play
        play.turns.append(([], Final("fine")))
        await ground.recorded(await ground.accept(text="say fine"))
        steps = used("pytest", "sh: pytest: not found\n[exit code 127]") + used("python3 -m pytest", "3 passed", 1)
        play.turns.append((steps, Final("3 tests passed")))
        await ground.recorded(await ground.accept(text="run the tests"))
        [first] = await world.until(1)
        assert (first.kind, first.status, first.trust, first.private) == ("reflection", "active", 0.7, True)
        assert "run the tests" in first.text and "python3 -m pytest" in first.text
        # The same again says nothing new.
        play.turns.append((steps, Final("3 tests passed")))
        await ground.recorded(await ground.accept(text="run the tests"))
        # What the next message corrects.
        await ground.recorded(await ground.accept(text="No, only the slow ones"))
        second = next(each for each in await world.until(2) if each.id != first.id)
        assert "run the tests" in second.text and "only the slow ones" in second.text
        await world.holds(lambda tx: (row := tending.of(tx, "main")) and row["reflected"] == 4)
        assert await world.tending.reflect("main") == []
        # Of one turn it is asked again, and it is the same memory.
        assert [each.id for each in await world.tending.reflect("main", 2)] == [first.id]
        with pytest.raises(NotFound):
            await world.tending.reflect("main", 99)


async def test_a_failed_turn_of_a_member_leaves_a_proposal_that_nobody_is_shown(tmp_path: Path) -> None:
    async with tended(tmp_path) as world:
        world.play.turns.append(([], Final("", error="Signatures must not be verified", stop_reason="given_up")))
        await world.ground.until_state(await world.ground.accept(role=Role.MEMBER, text="release it"), "failed")
        [lesson] = await world.until(1)
        assert (lesson.status, lesson.trust, lesson.taint) == ("proposed", 0.4, 0.4)
        assert await world.ground.until(lambda: world.waiting) == ["main"]
        hits, _ = await world.memories.do("main", lambda memory: memory.find("release it", AGENT))
        assert hits == []


async def test_at_night_while_nobody_is_at_work(tmp_path: Path) -> None:
    async with tended(tmp_path) as world:
        ground, play = world.ground, world.play
        await world.put("The weekly report goes to all of the team.", "The weekly  report goes to all of the team.")
        past = rfc3339(ground.clock.now() - timedelta(days=90))
        await world.put("We met once.", kind="episode", event_time=past)
        await world.evening()
        assert len(await world.all()) == 3
        play.gate = anyio.Event()
        live = await ground.accept(text="a long one", session="a")
        await ground.until_state(live, "claimed")
        ground.clock.ahead += 86400
        ground.signals.emit(News("turn", "main", "", {"state": "recorded"}))
        await anyio.wait_all_tasks_blocked()
        assert len(await world.all()) == 3
        play.gate.set()
        await ground.recorded(live)
        merged = await world.until(2)
        assert {each.source for each in merged} == {AGENT.source, SOURCE}
        assert world.told == []
        await world.put("The weekly\nreport goes to all of the team.")
        await ground.recorded(await ground.accept())
        assert len(await world.all()) == 3  # once a night


async def test_the_owner_is_told_of_a_contradiction_once(tmp_path: Path) -> None:
    async with tended(tmp_path) as world:
        ids = await world.put("The port of the server is 8080", "The port of the server is 9090")
        dry = await world.tending.consolidate("main", dry_run=True)
        assert [(step.action, set(step.ids)) for step in dry] == [("conflict", set(ids))] and world.told == []
        for _ in range(2):
            await world.tending.consolidate("main")
        [told] = world.told
        assert all(id in told for id in ids) and "8080" not in told
        assert len(await world.all()) == 2
        await world.memories.do("main", lambda memory: memory.forget(ids[0], Voice()))
        await world.tending.consolidate("main")
        assert await world.ground.ledger.do(lambda tx: tending.told(tx, "main")) == set()


async def test_a_model_says_by_ids_what_is_the_same_and_puts_a_lesson_better(tmp_path: Path) -> None:
    async with tended(tmp_path, "messages") as world:
        ground, play = world.ground, world.play
        ids = await world.put(*(f"Anna drinks green tea from shop {letter} on every day" for letter in "bcdfghjkm"))
        other = await world.put("Anna drinks green tea from shop z on every day", kind="procedure")
        await world.memories.do("main", lambda memory: memory.approve(other[0]))
        play.answers["consolidate"] = {
            "merge": [[ids[0], ids[1]], [ids[2], other[0]], [ids[3], "en_0000000000"]],
            "supersede": [{"old": ids[4], "new": ids[5]}],
        }
        play.answers["reflect"] = {"lesson": "Use python3 -m pytest.", "applies_to": "running tests"}
        await world.evening()
        ground.clock.ahead += 86400
        await ground.recorded(await ground.accept())
        kept = {each.id for each in await world.until(8)}
        assert ids[4] not in kept and ids[5] in kept and other[0] in kept and len({*ids[:2]} & kept) == 1
        assert all(id in play.prompts[0] for id in ids) and other[0] not in play.prompts[0]
        play.turns.append((used("pytest", "sh: pytest: not found\n[exit code 127]"), Final("no")))
        await ground.recorded(await ground.accept(text="run the tests"))
        with anyio.fail_after(10):
            while "python3" not in (await world.until(1, "reflection"))[0].text:
                await anyio.sleep(0.01)
        [lesson] = await world.all("reflection")
        assert lesson.text == "When asked “run the tests”: Use python3 -m pytest. For: running tests."
        assert (lesson.status, lesson.trust) == ("active", 0.7)
        await world.holds(lambda tx: not tending.untaken(tx, "main"))
        assert len(play.prompts) == 2


async def test_what_a_job_answered_before_a_crash_is_carried_out_by_the_next_daemon(tmp_path: Path) -> None:
    async with tended(tmp_path, "messages") as world:
        ids = await world.put("Tea is what Anna likes", "Anna is fond of tea")
        answer = json.dumps({"merge": [ids], "supersede": []})
        await world.ground.jobs.ask("consolidate", "main", "k", "p", Role.OWNER, 1.0)
        world.play.answers["consolidate"] = {"merge": [], "supersede": []}
        world.play.answers["reflect"] = world.play.answers["consolidate"]

        await world.holds(lambda tx: tx.one("SELECT 1 FROM job WHERE taken = 1"))
        await world.ground.ledger.do(lambda tx: tx.execute("UPDATE job SET taken = 0, answer = ?", answer))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.make("messages").run, world.ground.signals)
            [kept] = await world.until(1)
            tasks.cancel_scope.cancel()
        assert kept.text == "Tea is what Anna likes"


async def test_what_was_over_before_anybody_looked_leaves_no_lesson(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=1) as ground:
        await ground.recorded(await ground.accept(text="hello"), await ground.accept(text="no, hello"))
        await ground.ledger.do(lambda tx: tending.begin(tx, ["main"]))
        memories = Memories(ground.home, ground.ledger, ground.clock, lambda group: MemoryTable())
        tended = Tending(ground.home, ground.ledger, ground.clock, memories)
        assert await tended.reflect("main") == []
        assert [each.turn for each in await tended.reflect("main", 2)] == [1]


async def test_what_was_forgotten_since_a_model_was_asked_does_not_come_back_in_a_lesson(tmp_path: Path) -> None:
    async with tended(tmp_path, "messages") as world:
        ground, play = world.ground, world.play
        play.answers["reflect"] = {"lesson": "Say 4711 at the gate.", "applies_to": "gates"}
        await ground.ledger.do(lambda tx: recalled.set_forgot(tx, "main", "2999-01-01T00:00:00.000+00:00"))
        play.turns.append((used("open", "[exit code 2]"), Final("no")))
        await ground.recorded(await ground.accept(text="open the gate"))
        await world.holds(lambda tx: tx.one("SELECT 1 FROM job WHERE taken = 1"))
        [lesson] = await world.all("reflection")
        assert "4711" not in lesson.text and "open the gate" in lesson.text
