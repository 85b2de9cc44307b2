"""What follows each turn: what is counted, pinned and decided, and the files that are written of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clawd import faults
from clawd.clock import rfc3339
from clawd.errors import UnsafePath
from clawd.faults import InjectedFault
from clawd.ledger import contexts, groups, money
from clawd.ledger.db import Row, Transaction
from clawd.lifecycle.deciding import Decision, Facts, Thresholds
from clawd.model import Final, Lease, Offer, Usage
from clawd.trust import Role
from clawd.turns.lifecycle import Lifecycle
from clawd.turns.projecting import Projector
from clawd.turns.ruling import Rules
from tests.turns.conftest import NOW, Ground, opened, scans

MAIN = "terminal:main"
RULES = Rules(Thresholds("test", 100, 200))


class Begins:
    """What compactions, handovers and questions come to here: a list."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, str]] = []
        self.declines = False

    def begin(self, tx: Transaction, row: Row, what: Any, *more: Any) -> Any:
        if isinstance(what, Decision):
            self.begun.append((row["session"], what.trigger))
            contexts.update(tx, row["session"], NOW, status="handoff", sealed_at=NOW)
        else:
            self.begun.append((row["session"], what))
        return None

    async def act(self, session: str) -> None:
        pass


class Asks:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer: Any = None

    def ask(self, tx: Transaction, row: Row, decision: Decision, now: str) -> Any:
        self.asked.append(decision.trigger)
        return self.answer

    def withdraw(self, tx: Transaction, number: int) -> None:
        pass

    def look_again(self) -> None:
        pass


class Stage:
    def __init__(self, ground: Ground, final: Final) -> None:
        self.ground, self.final, self.begins, self.rules = ground, final, Begins(), RULES
        self.price: Callable[[str, int, int, int], int | None] = lambda model, input, output, cached: None
        self.asks = Asks()
        self.lifecycle = Lifecycle(
            ground.ledger,
            ground.clock,
            ground.tasks,
            self.begins,
            self.begins,
            Projector(ground.home, ground.ledger, ground.clock, lambda row: self.rules),
            rules=lambda row: self.rules,
            price=lambda *said: self.price(*said),
            confirming=self.asks,
        )
        ground.recorder.settle, ground.recorder.settled = self.lifecycle.settle, lambda session: None

    async def turn(self, **final: Any) -> int:
        """A turn with this answer, until it is recorded."""
        text = final.pop("said", "hi")
        self.final = Final("a reply", **final)
        seq = await self.ground.accept(text=text)
        await self.ground.recorded(seq)
        return int((await self.ground.turn(seq))["id"])

    async def row(self, session: str = MAIN) -> Row:
        row = await self.ground.ledger.do(lambda tx: contexts.find(tx, session))
        assert row is not None
        return row

    async def pinned(self, session: str = MAIN) -> list[tuple[str, str, float]]:
        rows = await self.ground.ledger.do(lambda tx: contexts.pinned(tx, session))
        return [(row["class"], row["text"], row["trust"]) for row in rows]

    async def do(self, work: Callable[[Transaction], Any]) -> Any:
        return await self.ground.ledger.do(work)

    def file(self, name: str) -> Path:
        return self.ground.home.group("main").sessions / f"terminal_main.{name}"

    def lines(self, kind: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file(f"{kind}.jsonl").read_text().splitlines()]


@asynccontextmanager
async def staged(path: Path) -> AsyncIterator[Stage]:
    stages: list[Stage] = []

    async def play(ground: Ground, lease: Lease, offer: Offer) -> None:
        final = stages[0].final
        if final.error:  # a turn with a step that brings notes
            message = {"role": "assistant", "content": "", "at": NOW}
            await ground.counter.step(lease, 0, message, [], {"verified": ["a step"], "goal": 7})
            final = replace(final, error=None)
        await ground.counter.final(lease, final)

    async with opened(path, play=play) as ground:
        stages.append(Stage(ground, Final("")))
        yield stages[0]


@pytest.mark.anyio
async def test_what_a_runner_says_of_its_last_call_is_the_window(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        turn = await stage.turn(usage=Usage(90, 30, 5, window=40))
        row = await stage.row()
        assert (row["window"], row["cumulative"], row["estimated"], row["step_index"]) == (40, 120, 0, 1)
        kept = await stage.do(lambda tx: tx.one("SELECT * FROM turn WHERE id = ?", turn))
        assert (kept["window_tokens"], kept["cumulative_tokens"]) == (40, 120)
        await stage.turn(usage=Usage(10, 2, window=12))
        assert ((await stage.row())["window"], (await stage.row())["cumulative"]) == (12, 132)


@pytest.mark.anyio
async def test_what_the_gateway_settled_last_goes_before_that(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        when = {"day": "2026-12-01", "month": "2026-12", "now": NOW, "nanos": 5, "model": "m", "group": "main"}

        async def play(ground: Ground, lease: Lease, offer: Offer) -> None:
            def call(tx: Transaction) -> None:
                for input, output, service in ((500, 20, "s"), (50, 7, "s"), (9, 9, "s")):
                    id = money.reserve(tx, service=service, turn=lease.turn, input=input, output=output, **when)
                    if input != 9:  # which was released
                        money.settle(tx, id, input=input, output=output, cached=3, nanos=10, estimated=False)
                    else:
                        money.release(tx, id)

            await ground.ledger.do(call)
            await ground.counter.final(lease, Final("ok", usage=Usage(1, 1, window=2)))

        stage.ground.play = play
        stage.price = lambda model, input, output, cached: 4 + output
        await stage.ground.recorded(await stage.ground.accept())
        row = await stage.row()
        assert (row["window"], row["cumulative"], row["nanos"]) == (57, 577, 20)
        await stage.lifecycle.act(MAIN)
        (line,) = stage.lines("metrics")
        assert [line[name] for name in ("prompt_tokens", "completion_tokens", "cached_tokens")] == [550, 27, 6]
        assert (line["output_cost_usd"], line["total_cost_usd"]) == (17e-9, 20e-9)
        assert line["latency_ms"] >= 0


@pytest.mark.anyio
async def test_where_nobody_counted_the_characters_are_taken(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await stage.turn(said="hi" * 10)
        row = await stage.row()
        assert (row["window"], row["estimated"], row["nanos"]) == (-(-27 // 3), 1, None)
        await stage.turn()
        assert (await stage.row())["window"] == 9 + 3
        await stage.lifecycle.act(MAIN)
        assert [line["total_cost_usd"] for line in stage.lines("metrics")] == [None, None]


@pytest.mark.anyio
async def test_notes_of_steps_and_of_the_answer_are_pinned_and_reach_neither_file_nor_model(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await stage.turn(said="Build it. Never use root.", error="x", notes={"goal": "G", "next_safe_action": "N"})
        assert sorted(await stage.pinned()) == [
            ("constraints", "Never use root.", 1.0), ("goal", "G", 0.7), ("next_safe_action", "N", 0.7),
            ("verified", "a step", 0.7),
        ]  # fmt: skip
        assert "a step" not in stage.file("md").read_text()
        assert await stage.do(lambda tx: tx.all("SELECT * FROM noted")) == []


@pytest.mark.anyio
async def test_what_looks_like_a_key_is_not_held_on_to(tmp_path: Path) -> None:
    key = "sk-ant-canary0123456789abcdef"
    async with staged(tmp_path) as stage:
        await stage.turn(said=f"Never use {key} twice.", notes={"verified": [f"the key is {key}"], "goal": f"a {key}"})
        assert sorted(text for _, text, _ in await stage.pinned()) == [
            *("Never use [secret] twice.", "a [secret]", "the key is [secret]")
        ]
        await stage.lifecycle.act(MAIN)
        for kind in ("state.json", "decisions.jsonl", "metrics.jsonl"):
            assert key not in stage.file(kind).read_text()


@pytest.mark.anyio
async def test_a_tainted_turn_taints_its_session_until_the_owner_vouches(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.final = Final("ok", notes={"decisions": ["d"]})
        await stage.ground.recorded(await stage.ground.accept(text="I must pay.", role=Role.MEMBER))
        assert ((await stage.row())["taint"], await stage.pinned()) == (0.4, [("decisions", "d", 0.4)])
        await stage.do(lambda tx: groups.lift(tx, "main", sessions=True, now=NOW))
        assert (await stage.row())["taint"] == 1.0


@pytest.mark.anyio
async def test_a_folder_that_was_taken_away_is_not_made_for_what_stands_beside_a_session(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await stage.turn(usage=Usage(50, window=50))
        folder = stage.ground.home.group("main").root
        folder.rename(tmp_path / "away")
        await stage.lifecycle.act(MAIN)
        assert not folder.exists()
        (tmp_path / "away").rename(folder)
        await stage.lifecycle.act(MAIN)
        assert [line["total_tokens"] for line in stage.lines("decisions")] == [50]


@pytest.mark.anyio
async def test_where_no_model_reads_no_limit_asks_for_anything(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.rules = replace(RULES, bound=False)
        await stage.turn(usage=Usage(500, window=500))
        assert (stage.begins.begun, (await stage.row())["window"]) == ([], 500)
        stage.rules = RULES
        await stage.turn(usage=Usage(500, window=500))
        assert stage.begins.begun == [(MAIN, "hard_handoff")]


@pytest.mark.anyio
async def test_a_defect_in_what_is_decided_costs_the_decision_alone(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await stage.turn(usage=Usage(50, window=50))
        rules, stage.rules = stage.rules, None  # type: ignore[assignment]
        with stage.ground.signals.subscribe() as news:
            await stage.turn(usage=Usage(500, window=500))  # it is recorded all the same
            told = [each for each in news.arrived() if each.kind == "trouble"][-1]
        assert "nothing was decided about the context of session terminal:main" in told.data["what"]
        assert ((await stage.row())["window"], stage.begins.begun) == (50, [])
        stage.rules = rules
        await stage.turn(usage=Usage(500, window=500))
        assert stage.begins.begun == [(MAIN, "hard_handoff")]


@pytest.mark.anyio
async def test_each_turn_is_decided_about_once(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        for window in (50, 120, 250, 10):
            turn = await stage.turn(usage=Usage(window, window=window))
            row = await stage.do(lambda tx, turn=turn: tx.one("SELECT * FROM turn WHERE id = ?", turn))
            await stage.do(lambda tx, row=row: stage.lifecycle.settle(tx, row, []))  # it was recorded already
        assert stage.begins.begun == [(MAIN, "soft_compact"), (MAIN, "hard_handoff")]
        await stage.lifecycle.act(MAIN)
        found = [
            (line["seq"], line["step_index"], line["action"], line["trigger"]) for line in stage.lines("decisions")
        ]
        assert found == [
            (1, 1, "continue", "none"), (2, 2, "compact", "soft_compact"), (3, 3, "handoff", "hard_handoff"),
        ]  # fmt: skip
        assert [line["event"] for line in stage.lines("metrics")] == ["turn", "turn", "turn", "handoff", "turn"]
        assert (await stage.row())["status"] == "handoff"  # and is decided about no more


@pytest.mark.anyio
async def test_a_compaction_under_way_is_not_begun_again(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await stage.turn()
        values = {"session": MAIN, "state": "asked", "cause": "soft_compact", "before": 1, "made": NOW}
        await stage.do(lambda tx: tx.insert("compaction", **values))
        await stage.turn(usage=Usage(150, window=150))
        assert stage.begins.begun == []


@pytest.mark.anyio
@pytest.mark.parametrize("declined", [False, True])
async def test_what_asks_first_is_asked_and_not_done(tmp_path: Path, declined: bool) -> None:
    async with staged(tmp_path) as stage:
        stage.rules = replace(RULES, confirm=["compact"])
        stage.asks.answer = None if declined else type("Asked", (), {"fresh": True})()
        await stage.turn(usage=Usage(150, window=150))
        assert (stage.asks.asked, stage.begins.begun) == (["soft_compact"], [])
        decision = Decision("compact", "soft_compact", "why")
        await stage.do(lambda tx: stage.lifecycle.carry_out(tx, MAIN, decision, confirmed_by="ann"))
        assert stage.begins.begun == [(MAIN, "soft_compact")]
        await stage.lifecycle.act(MAIN)
        asked, done = stage.lines("decisions")
        assert asked["action"] == ("continue" if declined else "compact")
        assert asked.get("confirm") == (None if declined else {"required": True, "granted": None, "by": None})
        assert done["confirm"] == {"required": True, "granted": True, "by": "ann"}


@pytest.mark.anyio
async def test_what_is_asked_for_by_hand_waits_for_the_live_turn(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        outcomes: list[str] = []

        async def play(ground: Ground, lease: Lease, offer: Offer) -> None:
            def want(tx: Transaction) -> None:
                decision = stage.lifecycle.decide(tx, MAIN, "handoff")
                outcomes.append(stage.lifecycle.carry_out(tx, MAIN, decision, confirmed_by="ann"))

            await ground.ledger.do(want)
            assert stage.begins.begun == []
            await ground.counter.final(lease, Final("ok"))

        stage.ground.play = play
        await stage.ground.recorded(await stage.ground.accept())
        assert (outcomes, stage.begins.begun) == (["later"], [(MAIN, "manual")])
        assert (await stage.row())["wanted"] is None


@pytest.mark.anyio
async def test_a_phase_that_is_done_is_one_handover(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await stage.turn()
        await stage.do(lambda tx: contexts.update(tx, MAIN, NOW, status="phase_boundary"))
        await stage.turn()
        await stage.turn()
        assert stage.begins.begun == [(MAIN, "phase_boundary")]


@pytest.mark.anyio
async def test_a_paused_session_is_not_decided_about(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:

        async def play(ground: Ground, lease: Lease, offer: Offer) -> None:
            def pause(tx: Transaction) -> None:
                contexts.of(tx, MAIN, NOW)
                contexts.update(tx, MAIN, NOW, status="stopped", gate="paused")

            await ground.ledger.do(pause)
            await ground.counter.final(lease, Final("ok", usage=Usage(900, window=900)))

        stage.ground.play = play
        await stage.ground.recorded(await stage.ground.accept())
        row = await stage.row()
        assert (row["window"], row["status"], row["seq"], stage.begins.begun) == (900, "stopped", 0, [])


@pytest.mark.anyio
async def test_a_policy_sees_what_is_known(tmp_path: Path) -> None:
    seen: list[Facts] = []

    class Policy:
        name = "mine"

        def decide(self, facts: Facts) -> Any:
            seen.append(facts)
            return "handoff" if facts.blockers else None

    async with staged(tmp_path) as stage:
        stage.rules = replace(RULES, policies=[Policy()], usd=2.0)
        await stage.turn(notes={"goal": "g"})
        await stage.turn(notes={"blockers": ["b"]})
        assert stage.begins.begun == [(MAIN, "policy:mine")]
    assert (seen[-1].pinned["goal"], seen[-1].blockers, seen[-1].usd_limit, seen[-1].step_index) == (
        ["g"],
        ["b"],
        2.0,
        2,
    )


@pytest.mark.anyio
async def test_when_it_is_full_the_owner_is_told_once(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        for n in range(4):
            notes = {"constraints": [f"{n} {i} {'x' * 480}" for i in range(100)]}
            await stage.turn(notes=notes)
        assert sum("more constraints" in text for text in await stage.ground.notices()) == 1
        assert sum(len(text) for _, text, _ in await stage.pinned()) <= 32 << 10
        await stage.turn(said="You must never push.")
        assert "You must never push." in [text for _, text, _ in await stage.pinned()]
        assert not any("48 KiB" in text for text in await stage.ground.notices())
        for n in range(2):
            await stage.turn(said="\n\n".join(f"Never {n} {i} {'x' * 290}." for i in range(90)))
        assert sum("48 KiB" in text for text in await stage.ground.notices()) == 1
        assert sum(len(text) for _, text, _ in await stage.pinned()) <= 48 << 10


@pytest.mark.anyio
@pytest.mark.parametrize("point", ["settled", "decisions_written", "metrics_written", "projected"])
async def test_the_files_are_whole_whatever_broke(tmp_path: Path, point: str) -> None:
    async with staged(tmp_path) as stage:
        await stage.turn(notes={"goal": "g"})
        faults.load(f"raise@{point}")
        try:
            with pytest.raises(InjectedFault):
                await stage.lifecycle.act(MAIN)
        finally:
            faults.load(None)
        assert await stage.do(contexts.unfinished) == [MAIN]
        await stage.turn()
        await stage.lifecycle.act(MAIN)
        assert [line["seq"] for line in stage.lines("decisions")] == [1, 2]
        assert [line["seq"] for line in stage.lines("metrics")] == [1, 2]
        assert await stage.do(contexts.unfinished) == []
        state = json.loads(stage.file("state.json").read_text())
        assert (state["step_index"], state["ledger"]["goal"], state["last_decision_seq"]) == (2, "g", 2)
        assert state["offset"] == stage.file("md").stat().st_size


@pytest.mark.anyio
async def test_no_link_is_followed_and_a_strangers_lines_stay(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        victim = tmp_path / "victim"
        victim.write_text("mine")
        await stage.turn()
        stage.file("decisions.jsonl").symlink_to(victim)
        await stage.lifecycle._until_done(MAIN)
        assert victim.read_text() == "mine"
        stage.file("decisions.jsonl").unlink()
        stage.file("decisions.jsonl").write_text("a note of mine")
        stage.file("state.json").symlink_to(victim)
        await stage.lifecycle._until_done(MAIN)
        assert victim.read_text() == "mine"
        stage.file("state.json").unlink()
        await stage.lifecycle.act(MAIN)
        assert stage.file("decisions.jsonl").read_text().startswith("a note of mine\n{")


@pytest.mark.anyio
async def test_a_session_that_cannot_begin_is_told_once_and_begins_when_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawd.turns.lifecycle.AGAIN_S", 0.0)
    link = UnsafePath("'manifests' is a link")
    wrong: list[Exception] = [link, link, OSError(28, "No space")]
    told: list[str] = []

    async def act(session: str) -> None:
        if wrong:
            raise wrong.pop(0)

    async with staged(tmp_path) as stage:
        await stage.turn()
        await stage.do(lambda tx: groups.next_segment(tx, MAIN, NOW) and contexts.of(tx, f"{MAIN}.2", NOW) and None)
        await stage.do(lambda tx: contexts.update(tx, f"{MAIN}.2", NOW, seed="{}", gate="seed"))
        await stage.do(lambda tx: contexts.update(tx, MAIN, NOW, status="handoff", successor=f"{MAIN}.2"))
        stage.lifecycle._tell = told.append
        monkeypatch.setattr(stage.begins, "act", act)
        await stage.lifecycle._until_done(MAIN)
    assert not wrong and len(told) == 2
    assert all(f"{MAIN}.2 cannot begin" in each for each in told)
    assert "is a link" in told[0] and "No space" in told[1]


@pytest.mark.anyio
async def test_a_state_of_a_newer_program_is_left_and_a_broken_one_made_anew(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await stage.turn()
        stage.file("state.json").write_text('{"schema": 99}')
        await stage.lifecycle._until_done(MAIN)
        assert stage.file("state.json").read_text() == '{"schema": 99}'
        stage.file("state.json").write_text('{"sch')
        await stage.lifecycle.act(MAIN)
        assert json.loads(stage.file("state.json").read_text())["id"] == MAIN


@pytest.mark.anyio
async def test_what_a_call_read_counts_no_more_once_its_session_was_compacted(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await stage.turn(usage=Usage(150, window=150))

        async def play(ground: Ground, lease: Lease, offer: Offer) -> None:

            def written(tx: Transaction) -> None:
                done = {"before": 150, "after": 20, "made": NOW, "ended": rfc3339(ground.clock.now())}
                tx.insert("compaction", session=MAIN, state="written", cause="soft_compact", **done)
                contexts.update(tx, MAIN, NOW, window=20)

            await ground.ledger.do(written)
            await ground.counter.final(lease, Final("a reply", usage=Usage(160, 3, window=163)))

        stage.ground.play = play
        await stage.ground.recorded(await stage.ground.accept(text="hi"))
        row = await stage.row()
        assert (row["window"], row["estimated"], row["cumulative"]) == (20 + 3, 1, 150 + 163)
        assert stage.begins.begun == [(MAIN, "soft_compact")]  # and not once more


@pytest.mark.anyio
async def test_a_yes_counts_whatever_asks_for_the_same_when_the_turn_is_over(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.rules = replace(RULES, confirm=["handoff"])

        async def play(ground: Ground, lease: Lease, offer: Offer) -> None:
            agreed = Decision("handoff", "phase_boundary", "the phase is done")
            await ground.ledger.do(lambda tx: stage.lifecycle.carry_out(tx, MAIN, agreed, confirmed_by="ann"))
            await ground.counter.final(lease, Final("ok", usage=Usage(250, window=250)))

        stage.ground.play = play
        await stage.ground.recorded(await stage.ground.accept())
        assert (stage.asks.asked, stage.begins.begun) == ([], [(MAIN, "hard_handoff")])


@pytest.mark.anyio
async def test_no_table_is_read_from_end_to_end_after_a_turn(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await stage.turn()
        said: set[str] = set()
        await stage.do(lambda tx: tx._connection.set_trace_callback(said.add))
        await stage.turn(usage=Usage(150, window=150))
        await stage.lifecycle.act(MAIN)
        await stage.do(contexts.unfinished)
        await stage.do(lambda tx: tx._connection.set_trace_callback(None))
        assert scans(stage.ground.ledger, said) == set()
