"""Where runners are served: claims, leases, hand-overs, finals; a connection may drop at any moment."""

import asyncio
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawd.channel import ChannelLimits
from clawd.errors import LeaseLost
from clawd.ledger import ends, turns
from clawd.ledger.db import Transaction
from clawd.model import GIVEN_UP, Final, Lease, Offer
from clawd.turns.desk import ToolCall
from tests.turns.conftest import opened

pytestmark = pytest.mark.anyio


async def test_workers_of_a_run_claim_side_by_side_one_turn_a_session(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        for session in ("a", "a", "b", "c"):
            await ground.accept(session=session)
        run = await ground.run()
        offers: list[Offer | None] = []

        async def ask(worker: int) -> None:
            offers.append(await ground.counter.next_turn(run.id, worker, 0.5))

        async with anyio.create_task_group() as tasks:
            for worker in range(4):
                tasks.start_soon(ask, worker)
        assert sorted(offer.context["session"] for offer in offers if offer) == ["a", "b", "c"]
        assert offers.count(None) == 1


async def test_the_same_worker_asking_again_gets_the_same_turn(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        await ground.accept()
        run = await ground.run()
        first, again = await ground.offer(run), await ground.offer(run)
        assert again == first
        assert await ground.counter.next_turn(run.id, 1, 0.05) is None


async def test_a_claim_whose_connection_drops_is_kept_for_its_worker(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        await ground.accept()
        run = await ground.run()
        poll = asyncio.create_task(ground.counter.next_turn(run.id, 0, 10.0))
        while not run.asking:
            await asyncio.sleep(0)
        poll.cancel()
        await ground.until(lambda: run.live)
        lease, _ = await ground.offer(run)
        await ground.counter.final(lease, Final("a reply"))


async def test_a_wake_for_a_worker_that_is_gone_reaches_another(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        await ground.accept(session="a")
        run = await ground.run()
        lease, _ = await ground.offer(run, 2)
        first, second = (asyncio.create_task(ground.counter.next_turn(run.id, n, 10.0)) for n in (0, 1))
        await ground.until(lambda: len(run.waiters) == 2)
        await ground.ledger.do(lambda tx: None)
        run.nudge()
        first.cancel()
        message = await ground.accept(session="b")
        with anyio.fail_after(5):
            offer = await second
        assert offer is not None and offer.turn == (await ground.turn(message))["id"] != lease.turn


async def test_polls_leave_nothing_behind(tmp_path: Path) -> None:
    """A worker's number comes from the sandbox."""
    async with opened(tmp_path, workers=0) as ground:
        await ground.accept()
        run = await ground.run()
        await ground.offer(run)
        for number in range(100, 200):
            assert await ground.counter.next_turn(run.id, number, 0.001) is None
        assert (len(run.polls), len(run.waiters)) == (0, 0)


# ---- confirmation


async def test_a_turn_that_went_unheard_goes_to_one_other_worker_with_the_same_attempt(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        await ground.accept()
        run = await ground.run()
        old, _ = await ground.offer(run)
        ground.clock.ahead += 11
        offers: list[tuple[int, Offer | None]] = []

        async def ask(worker: int) -> None:
            offers.append((worker, await ground.counter.next_turn(run.id, worker, 0.5)))

        async with anyio.create_task_group() as tasks:
            for worker in (1, 2, 3):
                tasks.start_soon(ask, worker)
        [(worker, offer)] = [(worker, offer) for worker, offer in offers if offer]
        assert (offer.turn, offer.attempt) == (old.turn, old.attempt)
        for call in (
            lambda: ground.counter.events(old, []),
            lambda: ground.counter.step(old, 0, {"role": "assistant"}, []),
            lambda: ground.counter.final(old, Final("too late")),
        ):
            with pytest.raises(LeaseLost):
                await call()
        await ground.counter.final(Lease(run.id, old.turn, old.attempt, worker), Final("a reply"))


async def test_a_turn_that_ended_while_it_was_handed_over_is_nobody_elses(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        message = await ground.accept()
        run = await ground.run()
        old, _ = await ground.offer(run)
        ground.clock.ahead += 11
        final = asyncio.create_task(ground.counter.final(old, Final("just in time")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert await ground.counter.next_turn(run.id, 1, 0.5) is None
        await final
        assert (await ground.message(message))["reply"] == "just in time"


async def test_a_turn_that_was_heard_of_stays_where_it_is(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        await ground.accept()
        run = await ground.run()
        lease, _ = await ground.offer(run)
        await ground.counter.events(lease, [])
        ground.clock.ahead += 11
        assert await ground.counter.next_turn(run.id, 1, 0.05) is None


# ---- finals


async def test_a_replayed_final_is_one_answer(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        message = await ground.accept()
        run = await ground.run()
        lease, _ = await ground.offer(run)
        async with anyio.create_task_group() as tasks:
            for text in ("one", "two", "three"):
                tasks.start_soon(ground.counter.final, lease, Final(text))
        await ground.counter.final(lease, Final("four"))
        shown = await ground.message(message)
        assert (shown["reply"], len(shown["deliveries"])) == ("one", 1)
        assert len(ground.delivered) == 1


async def test_a_final_whose_connection_drops_is_carried_through(tmp_path: Path) -> None:
    """Committed is answered: it is delivered and recorded, although nobody waits for the response any more."""
    async with opened(tmp_path, workers=0) as ground:
        message = await ground.accept()
        run = await ground.run()
        lease, _ = await ground.offer(run)
        final = asyncio.create_task(ground.counter.final(lease, Final("a reply")))
        for _ in range(3):
            await asyncio.sleep(0)
        final.cancel()
        await ground.recorded(message)
        assert len(ground.delivered) == 1


async def test_silence_is_a_fault_also_after_a_notice_that_the_turn_waited(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        message = await ground.accept()
        run = await ground.run()
        await ground.ledger.do(lambda tx: ends.hold(tx, "main", "no sandbox", "now", limits=ChannelLimits()))
        await ground.ledger.do(lambda tx: ends.release(tx, "main"))
        for _ in range(3):
            lease, _ = await ground.offer(run)
            await ground.counter.final(lease, Final(" "))
        await ground.until_state(message, "failed")
        assert "without an answer" in (await ground.notices())[1]


async def test_what_only_a_person_can_mend_is_told_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        message = await ground.accept()
        lease, _ = await ground.offer(await ground.run())
        await ground.counter.final(lease, Final("", stop_reason=GIVEN_UP, error="There is no key."))
        await ground.until_state(message, "failed")
        assert (await ground.notices())[0].startswith("That did not work: There is no key. To try again")


async def test_an_effect_is_answer_enough(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        message = await ground.accept()
        run = await ground.run()
        lease, _ = await ground.offer(run)

        def act(tx: Transaction, effect: int) -> dict[str, Any]:
            return {"queued": "message"}

        for _ in range(2):
            effect = await ground.counter.effect(ToolCall(lease, "send_message", {"text": "x"}, 0), act)
            assert effect.result == {"queued": "message"}
        await ground.counter.final(lease, Final(""))
        await ground.until_state(message, "answered")


async def test_a_final_wins_over_a_lease_that_was_just_given_up(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        message = await ground.accept()
        run = await ground.run()
        lease, _ = await ground.offer(run)
        run.live[lease.turn].why = "its runner did not answer"
        await ground.counter.final(lease, Final("here I am"))
        assert (await ground.message(message))["reply"] == "here I am"


async def test_a_committed_stop_wins_over_the_final_and_nothing_is_said(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        message = await ground.accept()
        run = await ground.run()
        lease, _ = await ground.offer(run)
        assert await ground.stop("terminal:main") == [lease.turn]
        assert [(each.turn, each.action) for each in await ground.counter.control(run.id, 5.0)] == [
            (lease.turn, "stop")
        ]
        await ground.counter.final(lease, Final("too late"))
        row = await ground.until_state(message, "stopped")
        assert row["final"] is None and (await ground.message(message))["reply"] is None
        await ground.recorded(message)


async def test_a_final_before_the_stop_stands(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        message = await ground.accept()
        run = await ground.run()
        lease, _ = await ground.offer(run)
        await ground.counter.final(lease, Final("done"))
        assert await ground.stop("terminal:main") == []
        assert (await ground.turn(message))["state"] == "answered"


async def test_what_a_run_says_after_its_end_is_lost(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        message = await ground.accept()
        run = await ground.run()
        lease, _ = await ground.offer(run)
        await ground.dispatcher.end_run("main")
        with pytest.raises(LeaseLost):
            await ground.counter.final(lease, Final("from the grave"))
        assert (await ground.turn(message))["state"] == "queued"


async def test_a_turn_that_cannot_be_put_together_fails_and_the_next_goes_on(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        config = ground.home.group("main").config_file
        first, second = await ground.accept(session="a"), await ground.accept(session="b")
        config.write_text('schema = 1\n[model]\nengine = "scripted"\nscript = "nowhere.json"\n')
        run = await ground.run()
        assert await ground.counter.next_turn(run.id, 0, 0.3) is None
        await ground.until_state(first, "failed")
        assert "nowhere.json" in (await ground.notices())[0]
        await ground.until_state(second, "failed")


async def test_a_record_that_fails_to_note_a_failure_still_lets_the_next_turn_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as ground:

        async def fail() -> None:
            raise OSError("the session file is a directory")

        monkeypatch.setattr(ground.recorder, "add_notes", fail)
        ground.recorder._failures = True
        await ground.recorded(await ground.accept(), await ground.accept())
        ground.failures.clear()


async def test_a_sandbox_that_is_being_killed_has_no_say_any_more(tmp_path: Path) -> None:
    """Its processes die one by one: a runner that outlives its command would call that the command's own end."""
    async with opened(tmp_path, workers=0) as ground:
        await ground.accept()
        run = await ground.run()
        lease, _ = await ground.offer(run)
        box, refused = ground.box(run), []
        end = box.kill

        async def dying() -> Any:
            step = ground.counter.step(lease, 0, {"role": "tool", "content": "[The command was killed.]"}, [])
            for word in (step, ground.counter.final(lease, Final("[The command was killed.]"))):
                with pytest.raises(LeaseLost):
                    await word
                refused.append(word)
            return await end()

        box.kill = dying  # type: ignore[method-assign]
        await ground.dispatcher.end_run("main")
        assert len(refused) >= 2


async def test_the_files_of_an_answer_are_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clawd.turns.counter.MAX_FILES_BYTES", 10)
    async with opened(tmp_path, workers=0) as ground:
        await ground.accept()
        run = await ground.run()
        lease, _ = await ground.offer(run)
        (run.spec.work / "f").write_bytes(b"123456")
        await ground.counter.final(lease, Final("here", files=("f", "f")))
        turn = await ground.ledger.do(lambda tx: turns.get(tx, lease.turn))
        assert "'f' is larger than 4 bytes" in turn["error"]
