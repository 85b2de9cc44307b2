"""Jobs: asked once, answered without tools, taken by their room with the end of the turn, or told as failed."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel, ConfigDict

from clawd.errors import ClawdError, NotFound
from clawd.ledger import ends, turns
from clawd.ledger.db import Transaction
from clawd.model import Final, Lease, Offer
from clawd.trust import Role
from clawd.turns.jobs import Job, Kind, json_of
from clawd.turns.run import Run
from tests.turns.conftest import NOW, PATIENCE, BoxBackend, Ground, opened

pytestmark = pytest.mark.anyio


class Facts(BaseModel):
    model_config = ConfigDict(extra="forbid")

    facts: list[str]


class Room:
    """Keeps what it is given in the ledger, as a room would."""

    def __init__(self, ground: Ground) -> None:
        self.refuses: Exception | None = None
        self.failures: list[str] = []
        ground.jobs.register("facts", Kind(Facts, self.done, self.failed))
        ground.ledger.tx(lambda tx: tx.execute("CREATE TABLE IF NOT EXISTS fact (job INTEGER, text TEXT)"))
        config = 'schema = 1\n[claw]\nname = "t"\n[model]\nengine = "scripted"\nscript = "s.json"\n'
        ground.home.config_file.write_text(config)
        (ground.home.root / "s.json").write_text('{"steps": [{"text": "x"}]}')

    def done(self, tx: Transaction, job: Job, answer: Facts) -> None:
        for text in answer.facts:
            tx.execute("INSERT INTO fact VALUES (?, ?)", job.id, f"{text} {job.key} {job.authority.taint}")
        if self.refuses:
            raise self.refuses

    def failed(self, tx: Transaction, job: Job, why: str) -> None:
        self.failures.append(why)
        tx.execute("INSERT INTO fact VALUES (?, 'failed')", job.id)


async def facts(ground: Ground) -> list[str]:
    return [row["text"] for row in await ground.ledger.do(lambda tx: tx.all("SELECT text FROM fact ORDER BY rowid"))]


async def ask(ground: Ground, key: str = "k", **more: Any) -> int:
    asked = {"kind": "facts", "group": "main", "prompt": "What is so?", "authority": Role.OWNER, "taint": 0.4, **more}
    return await ground.jobs.ask(key=key, **asked)


def told(offer: Offer) -> str:
    return str(offer.wakes[0]["parts"][0]["text"])


async def recorded(ground: Ground, lease: Lease) -> None:
    with anyio.fail_after(PATIENCE):
        while not (await ground.ledger.do(lambda tx: turns.get(tx, lease.turn)))["recorded_at"]:
            await anyio.sleep(0.005)


async def warm(ground: Ground) -> Run:
    """A run whose first turn is over."""
    await ground.accept()
    run = await ground.run()
    lease, _ = await ground.offer(run)
    await ground.counter.final(lease, Final("a reply"))
    return run


async def test_a_jobs_answer_is_its_rooms_with_the_end_of_its_turn(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        Room(ground)
        await ground.accept(session="a")
        run = await ground.run()
        person, _ = await ground.offer(run)
        assert await ask(ground) == await ask(ground) == 1
        road = ground.caller(run).road()
        assert road is not None and not road.jobs
        lease, offer = await ground.offer(run, 1)
        prompt = told(offer)
        assert prompt.startswith("What is so?") and '"facts"' in prompt and offer.context["session"] == "job:1"
        await ground.counter.final(person, Final("a reply"))
        road = ground.caller(run).road()
        assert road is not None and road.jobs  # the model's own service alone, from now on
        await ground.counter.notice(lease.turn, "a request was refused")  # which has no chat to go to
        await ground.counter.final(lease, Final('Here:\n```json\n{"facts": ["a", "b"]}\n```', files=["f"]))
        await ground.counter.final(lease, Final('{"facts": ["c"]}'))  # a replay
        assert await facts(ground) == ["a k 0.4", "b k 0.4"]
        row = await ground.ledger.do(lambda tx: tx.one("SELECT j.answer, t.* FROM job j JOIN turn t ON t.id = j.turn"))
        assert row is not None and (row["state"], row["answer"]) == ("answered", '{"facts":["a","b"]}')
        await recorded(ground, lease)
        files = ground.home.group("main").sessions
        assert [path.name for path in files.iterdir() if "job" in path.name] == []
        assert {each.channel for each in ground.delivered} == {"terminal"}
        with pytest.raises(NotFound):
            await ask(ground, "other", kind="unknown")
        with pytest.raises(NotFound):
            await ask(ground, "other", group="nowhere")


async def test_an_answer_that_does_not_fit_is_told_to_the_next_attempt_and_the_third_to_its_room(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, workers=0) as ground:
        room = Room(ground)
        run = await warm(ground)
        await ask(ground)
        for text, why in (
            ("no JSON", "Invalid JSON"),
            ('{"facts": [1], "secret": 2}', "facts.0"),
            ('{"facts": ["x"]}', "none of my facts"),
        ):
            lease, offer = await ground.offer(run)
            room.refuses = ClawdError("none of my facts") if "x" in text else None
            before = told(offer)
            assert ("You were asked before" in before) == (offer.attempt > 1)
            await ground.counter.final(lease, Final(text))
            assert (
                why in (await ground.ledger.do(lambda tx: tx.one("SELECT error FROM turn ORDER BY id DESC")))["error"]
            )  # type: ignore[index]
        await ground.until(lambda: room.failures)
        assert len(room.failures) == 1 and "none of my facts" in room.failures[0]
        assert await facts(ground) == ["failed"]  # what the room had written before it refused is gone
        await ground.until(lambda: any("the job 'facts' came to nothing" in each for each in ground.trouble()))
        assert await ground.notices() == []
        assert await ask(ground) == 1  # the same key is the same job, whatever became of it
        assert await ground.counter.next_turn(run.id, 0, 0.05) is None


async def test_a_defect_of_a_room_is_an_answer_that_was_not_taken(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        room = Room(ground)
        run = await warm(ground)
        await ask(ground)
        room.refuses = KeyError("x")
        for _ in range(3):
            lease, _ = await ground.offer(run)
            await ground.counter.final(lease, Final('{"facts": ["x"]}'))
        await ground.until(lambda: room.failures)
        assert "a defect of clawd" in room.failures[0] and await facts(ground) == ["failed"]


async def test_where_no_model_is_a_job_fails_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        room = Room(ground)
        run = await warm(ground)
        await ask(ground)
        ground.home.config_file.write_text('schema = 1\n[claw]\nname = "t"\n')  # somebody chose another engine
        with pytest.raises(ClawdError, match="its engine is offline"):
            await ask(ground, "other")
        assert await ground.counter.next_turn(run.id, 0, 0.1) is None
        await ground.until(lambda: room.failures)
        assert "its engine is offline" in room.failures[0]


async def test_jobs_survive_a_crash_and_are_taken_once(tmp_path: Path) -> None:
    """The daemon dies while a job waits, while it is answered, and before its room has heard of a failure."""
    backend = BoxBackend()
    async with opened(tmp_path, workers=0, backend=backend) as ground:
        Room(ground)
        run = await warm(ground)
        for key in ("waits", "live", "fails"):
            await ask(ground, key)
        await ground.offer(run)
        row = await ground.ledger.do(lambda tx: tx.one("SELECT turn FROM job WHERE key = 'fails'"))
        assert row is not None
        await ground.ledger.do(lambda tx: ends.stopped(tx, row["turn"], NOW))
        ground.crash()
    async with opened(tmp_path, workers=0, backend=backend) as ground:
        room = Room(ground)
        await ground.dispatcher.recover()
        await ground.until(lambda: room.failures)
        run = await ground.run()
        for worker in (0, 1):
            lease, _ = await ground.offer(run, worker)
            await ground.counter.final(lease, Final('{"facts": ["once"]}'))
        assert sorted(await facts(ground)) == ["failed", "once live 0.4", "once waits 0.4"]


@pytest.mark.parametrize(
    ("text", "json"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ('  \n{"a": 1}\n', '{"a": 1}'),
        ('```json\n{"a": 1}\n```', '{"a": 1}'),
        ("So:\n```\n[1]\n```\nand\n```\n[2]\n```", "[1]"),
        ('```json\n{"a": "x```y"}\n```', '{"a": "x```y"}'),
        ("```json\n{", "```json\n{"),
    ],
)
async def test_the_json_of_an_answer(text: str, json: str) -> None:
    assert json_of(text) == json
