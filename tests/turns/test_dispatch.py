"""Places, lives and limits of runs: who gets a sandbox, what happens to turns when it ends, and who is told."""

import shutil
import stat
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from clawd.errors import SandboxUnavailable
from clawd.ledger import runs as run_rows
from clawd.model import Final, Lease, Offer
from clawd.sandbox.protocol import Exit
from clawd.trust import Role
from clawd.turns import dispatch, reconcile, watch
from clawd.turns.slots import TURNS_A_TERM
from clawd.turns.watch import Watch
from tests.turns.conftest import Ground, answer, opened

pytestmark = pytest.mark.anyio


async def hang(ground: Ground, lease: Lease, offer: Offer) -> None:
    """A runner that hears nothing and says nothing."""
    await anyio.sleep_forever()


async def beat(ground: Ground, lease: Lease, offer: Offer) -> None:
    """A runner that works and never ends, until it is asked to stop."""
    await ground.counter.events(lease, [])
    while not await ground.counter.more(lease):
        await anyio.sleep(0.005)
    await ground.counter.final(lease, Final("", stop_reason="stopped"))


# ---- places


async def test_every_group_is_served_though_there_are_few_places(tmp_path: Path) -> None:
    async with opened(tmp_path, max_live=2) as ground:
        await ground.recorded(*[await ground.accept(f"g{n % 6}", session=f"g{n % 6}:{n}") for n in range(36)])
        assert len(ground.backend.alive()) <= 2


async def test_a_place_is_no_more_than_needed_for_each_group(tmp_path: Path) -> None:
    """A run that is about to claim is not idle: it is never ended before it has served its group."""
    async with opened(tmp_path, max_live=1) as ground:
        await ground.recorded(*[await ground.accept(group) for group in "abcdef"])
        assert len(ground.backend.boxes) == 6


async def test_what_comes_while_its_sandbox_is_made_does_not_keep_the_place(tmp_path: Path) -> None:
    async with opened(tmp_path, max_live=1) as ground:
        first = [await ground.accept("a"), await ground.accept("a")]
        await ground.recorded(*first)
        await ground.recorded(await ground.accept("b"))
        assert ground.backend.alive() == ["b"]


async def test_a_backlog_gives_way_after_its_term(tmp_path: Path) -> None:
    served: list[str] = []

    async def play(ground: Ground, lease: Lease, offer: Offer) -> None:
        served.append(offer.context["group"])
        await answer(ground, lease, offer)

    async with opened(tmp_path, max_live=1, play=play, workers=1) as ground:
        backlog = [await ground.accept("a") for _ in range(3 * TURNS_A_TERM)]
        other = await ground.accept("b")
        await ground.recorded(*backlog, other)
    assert served.index("b") <= TURNS_A_TERM


async def test_an_idle_sandbox_ends_when_its_warm_time_is_over(tmp_path: Path) -> None:
    async with opened(tmp_path) as ground:
        await ground.recorded(await ground.accept())
        run = await ground.run()
        ground.pass_time(599)
        await anyio.sleep(0.05)
        assert ground.backend.alive() == ["main"]
        ground.pass_time(2)
        await ground.until(run.gone.is_set)
        assert ground.dispatcher.active == {}
        await ground.recorded(await ground.accept())


async def test_whoever_asks_for_a_sandbox_while_one_ends_gets_the_next(tmp_path: Path) -> None:
    async with opened(tmp_path) as ground:
        await ground.recorded(await ground.accept())
        old = await ground.run()
        kill, may_die = ground.box(old).kill, anyio.Event()

        async def slowly() -> Exit:
            await may_die.wait()
            return await kill()

        ground.box(old).kill = slowly  # type: ignore[method-assign]
        old.ending = True
        async with anyio.create_task_group() as tasks:
            found = []

            async def ensure() -> None:
                found.append(await ground.dispatcher.ensure("main"))

            tasks.start_soon(ensure)
            await anyio.wait_all_tasks_blocked()
            may_die.set()
            old.look_again()
        assert found[0] is not old and found[0].sandbox is not None


# ---- the end of a run


async def test_a_sandbox_that_dies_gives_its_turn_back_with_the_blame(tmp_path: Path) -> None:
    async with opened(tmp_path, play=beat) as ground:
        message = await ground.accept()
        for attempt in (1, 2, 3):
            row = await ground.until_turn(
                message, lambda row, n=attempt: row["state"] == "claimed" and row["attempt"] == n
            )
            run = await ground.run()
            assert run.id == row["run"]
            ground.box(run).end("ran out of memory")
            await ground.until(run.gone.is_set)
        await ground.until_state(message, "failed")
        [told] = await ground.notices()
        assert "ran out of memory" in told and "messages retry" in told


async def test_a_sandbox_that_we_end_is_no_fault_of_its_turn(tmp_path: Path) -> None:
    async with opened(tmp_path, play=beat) as ground:
        message = await ground.accept()
        for _ in range(4):
            run = await ground.run()
            await ground.until(lambda run=run: run.live)
            assert await ground.dispatcher.end_run("main")
        row = await ground.until_state(message, "claimed")
        assert (row["attempt"], row["faults"]) == (1, 0)


async def test_a_process_that_plays_the_runner_costs_its_turn_an_attempt(tmp_path: Path) -> None:
    """What an agent can bring about for ever must be counted."""
    async with opened(tmp_path, play=beat) as ground:
        message = await ground.accept()
        run = await ground.run()
        await ground.until(lambda: run.live)
        await ground.dispatcher.end_run("main", "a process of its sandbox played the runner")
        await ground.until_turn(message, lambda row: row["attempt"] == 2)


async def test_a_run_that_never_answers_loses_its_turns(tmp_path: Path) -> None:
    """Also one that never confirmed the turn, and whose workers do not ask again."""
    async with opened(tmp_path, play=hang, workers=1) as ground:
        message = await ground.accept()
        run = await ground.run()
        await ground.until(lambda: run.live)
        ground.pass_time(59)
        await anyio.sleep(0.05)
        assert not run.gone.is_set()
        ground.pass_time(2)
        await ground.until(run.gone.is_set)
        row = await ground.until_turn(message, lambda row: row["attempt"] == 2)
        assert row["error"] == "its runner did not answer"


async def test_a_turn_that_is_handed_from_one_silent_worker_to_the_next_gets_no_longer_lease(tmp_path: Path) -> None:
    async with opened(tmp_path, play=hang, workers=4) as ground:
        await ground.accept()
        run = await ground.run()
        await ground.until(lambda: run.live)
        [live] = run.live.values()
        workers = {live.worker}
        for _ in range(3):
            ground.pass_time(11)
            await ground.until(lambda: live.worker not in workers)
            workers.add(live.worker)
        ground.pass_time(28)
        await ground.until(run.gone.is_set)


async def test_what_a_runner_said_while_the_daemon_did_not_run_is_heard_before_it_is_lost(tmp_path: Path) -> None:
    async with opened(tmp_path, play=hang) as ground:
        await ground.accept()
        run = await ground.run()
        await ground.until(lambda: run.live)
        [live] = run.live.values()
        ground.pass_time(70)
        await anyio.wait_all_tasks_blocked()
        await ground.counter.events(Lease(run.id, live.turn, live.attempt, live.worker), [])
        await anyio.sleep(2 * watch.LAST_WORD_S)
        assert not run.gone.is_set()


async def test_one_turn_that_is_lost_is_not_the_fault_of_those_beside_it(tmp_path: Path) -> None:
    async def play(ground: Ground, lease: Lease, offer: Offer) -> None:
        await (hang if offer.context["session"] == "lost" else beat)(ground, lease, offer)

    async with opened(tmp_path, play=play) as ground:
        lost, well = await ground.accept(session="lost"), await ground.accept(session="well")
        run = await ground.run()
        await ground.until(lambda: len(run.live) == 2 and any(live.confirmed for live in run.live.values()))
        ground.clock.ahead += 61
        for live in run.live.values():
            if live.session == "well":
                live.heard = ground.clock.monotonic()
        run.look_again()
        await ground.until(run.gone.is_set)
        assert [(await ground.turn(each))["faults"] for each in (lost, well)] == [1, 0]


async def test_a_turn_that_takes_too_long_is_stopped_and_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path, play=beat) as ground:
        message = await ground.accept()
        run = await ground.run()
        await ground.until(lambda: any(live.confirmed for live in run.live.values()))
        ground.clock.ahead += 901
        for live in run.live.values():
            live.heard = ground.clock.monotonic()
        run.look_again()
        await ground.until_state(message, "failed")
        assert "longer than a turn may" in (await ground.notices())[0]


async def test_a_stop_that_is_not_heard_ends_the_sandbox(tmp_path: Path) -> None:
    async with opened(tmp_path, play=hang) as ground:
        message, after = await ground.accept(), await ground.accept()
        run = await ground.run()
        await ground.until(lambda: run.live)
        assert await ground.stop("terminal:main")
        ground.play = answer
        ground.pass_time(6)
        await ground.until_state(message, "stopped")
        await ground.recorded(after)


async def test_a_look_that_fails_leaves_the_leases_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path, play=hang) as ground:
        await ground.accept()
        run = await ground.run()

        async def fail(run: object) -> None:
            raise RuntimeError("a defect")

        monkeypatch.setattr(Watch, "look_at_work", fail)
        await ground.until(lambda: run.live)
        ground.pass_time(1)
        await anyio.sleep(0.05)
        ground.pass_time(61)
        await ground.until(run.gone.is_set)


# ---- known dead


async def test_turns_of_a_sandbox_that_does_not_end_wait_until_it_is_known_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "RECONCILE_S", 0.02)
    async with opened(tmp_path, play=beat) as ground:
        message = await ground.accept()
        run = await ground.run()
        await ground.until(lambda: run.live)
        ground.backend.immortal = True
        with pytest.raises(SandboxUnavailable, match="does not end"):
            await ground.dispatcher.end_run("main")
        assert (await ground.turn(message))["state"] == "claimed"
        ground.play = answer
        other = await ground.accept(session="other")
        await ground.until(lambda: ground.trouble())
        await ground.recorded(other)  # what it had waits; the group's other conversations go on
        assert (await ground.turn(message))["run"] == run.id
        ground.backend.immortal = False
        await ground.recorded(message)
        row = await ground.turn(message)
        assert (row["state"], row["faults"]) == ("answered", 0)


async def test_a_daemon_that_ends_does_not_wait_for_a_sandbox_that_does_not(tmp_path: Path) -> None:
    async with opened(tmp_path, play=beat) as ground:
        for group in "abc":
            await ground.accept(group)
            run = await ground.run(group)
            await ground.until(lambda run=run: run.live)
        ground.backend.immortal = True
        with anyio.fail_after(5):
            await ground.dispatcher.close(0.05)
        assert ground.dispatcher.active == {}
        ground.backend.immortal = False


async def test_a_turn_that_nobody_gave_back_is_given_back_by_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect at the end of a run leaves neither its group nor its turn stuck."""
    monkeypatch.setattr(reconcile, "RECONCILE_S", 0.02)
    async with opened(tmp_path, play=beat) as ground:
        message = await ground.accept()
        run = await ground.run()
        await ground.until(lambda: run.live)

        async def fail(*_: object) -> None:
            raise RuntimeError("a defect")

        monkeypatch.setattr(ground.dispatcher, "_give_back", fail)
        ground.play = answer
        await ground.dispatcher.end_run("main")
        await ground.recorded(message)


async def test_a_start_gives_back_what_an_earlier_daemon_had_claimed(tmp_path: Path) -> None:
    async with opened(tmp_path, play=beat) as before:
        message = await before.accept()
        run = await before.run()
        await before.until(lambda: run.live)
        row = await before.turn(message)
    async with opened(tmp_path) as after:
        # A crash leaves the ledger as it was in mid-turn; the end of a test's life is tidier.
        def crashed(tx: object) -> None:
            tx.execute("UPDATE run SET state = 'busy' WHERE id = ?", row["run"])  # type: ignore[attr-defined]
            tx.execute("UPDATE turn SET state = 'claimed', run = ? WHERE id = ?", row["run"], row["id"])  # type: ignore[attr-defined]
            tx.execute("UPDATE wake SET state = 'taken'")  # type: ignore[attr-defined]
            tx.execute("UPDATE inbound SET state = 'claimed'")  # type: ignore[attr-defined]

        await after.ledger.do(crashed)
        await after.dispatcher.recover()
        await after.recorded(message)
        assert await after.ledger.do(run_rows.alive) != []


# ---- held


async def test_where_no_sandbox_can_be_made_each_message_is_told_once_and_answered_later(tmp_path: Path) -> None:
    async with opened(tmp_path) as ground:
        ground.backend.trouble = "there is no bwrap here"
        messages = [await ground.accept(session="a")]
        await ground.until_state(messages[0], "held")
        messages.append(await ground.accept(session="b"))
        await ground.until_state(messages[1], "held")
        ground.backend.check = _passing  # type: ignore[method-assign]
        await ground.until(lambda: ground.dispatcher._barren["main"] > 1)
        for message in messages:
            await ground.until_state(message, "held")
        told = await ground.notices()
        assert len(told) == 2 and all("there is no bwrap here" in each for each in told)
        with pytest.raises(SandboxUnavailable, match="no bwrap"):
            await ground.dispatcher.ensure("main")
        ground.backend.trouble = None
        await ground.recorded(*messages)
        assert len(await ground.notices()) == 2


async def test_a_held_group_whose_sandbox_ends_before_it_is_ready_gets_another(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        ground.backend.trouble = "no Engine is here"
        message = await ground.accept()
        await ground.until_state(message, "held")
        ground.backend.trouble = None
        run = await ground.until(lambda: (run := ground.dispatcher.active.get("main")) and run.sandbox and run)
        ground.workers = 1
        ground.box(run).end("was ended from outside", outside=True)
        await ground.recorded(message)


async def _passing(image: str = "") -> str:
    """As where the trouble is only met at the start."""
    return "bubblewrap"


async def test_a_sandbox_that_ends_at_once_holds_its_group_and_no_other(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        message = await ground.accept()
        for _ in range(dispatch.BARREN_LIVES):
            run = await ground.run()
            ground.box(run).end("failed with code 1")
            await ground.until(run.gone.is_set)
        await ground.until_state(message, "held")
        assert "again and again" in (await ground.notices())[0]
        ground.workers = 1
        await ground.recorded(await ground.accept("other"))
        assert ground.dispatcher.holds.reasons.keys() == {"main"}


async def test_a_check_that_fails_otherwise_holds_a_group_no_longer_than_it_fails(tmp_path: Path) -> None:
    async with opened(tmp_path) as ground:
        failing = [RuntimeError("a defect")]

        async def check(image: str = "") -> str:
            if failing:
                raise failing.pop()
            ground.backend.trouble = None
            return "bubblewrap"

        ground.backend.trouble = "no"
        ground.backend.check, start = check, ground.backend.start  # type: ignore[method-assign]

        async def starting(spec: object) -> object:
            if ground.backend.trouble:
                raise SandboxUnavailable("no")
            return await start(spec)  # type: ignore[arg-type]

        ground.backend.start = starting  # type: ignore[method-assign,assignment]
        await ground.recorded(await ground.accept())


# ---- work/


async def test_a_group_has_no_sandbox_while_its_work_is_put_aside(tmp_path: Path) -> None:
    """Its turn waits meanwhile: one that began in the old work/ would hold the authority of the new one."""
    async with opened(tmp_path, play=beat) as ground:
        message = await ground.accept()
        run = await ground.run()
        await ground.until(lambda: run.live)
        ground.play = answer
        async with ground.dispatcher.without_run("main"):
            await ground.until_state(message, "queued")
            ground.dispatcher.wake("main")
            await anyio.sleep(0.05)
            assert ground.backend.alive() == []
        await ground.recorded(message)


async def test_a_turn_of_another_authority_goes_on_when_the_run_is_empty_whatever_the_record_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, play=beat) as ground:
        first = await ground.accept(session="a")
        run = await ground.run()
        await ground.until(lambda: run.live)
        member = await ground.accept(session="b", role=Role.MEMBER)
        await anyio.sleep(0.05)
        assert (await ground.turn(member))["state"] == "queued"
        monkeypatch.setattr(
            ground.recorder, "soon", lambda turn, redo=False: None
        )  # a session file that cannot be written
        await ground.stop("a")
        await ground.until_state(first, "stopped")
        await ground.until_state(member, "claimed")


async def test_closing_lets_turns_end_and_hands_out_nothing_more(tmp_path: Path) -> None:
    may_end = anyio.Event()

    async def play(ground: Ground, lease: Lease, offer: Offer) -> None:
        await ground.counter.events(lease, [])
        await may_end.wait()
        await answer(ground, lease, offer)

    async with opened(tmp_path, play=play, workers=1) as ground:
        first, second = await ground.accept(session="a"), await ground.accept(session="b")
        run = await ground.run()
        await ground.until(lambda: run.live)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ground.dispatcher.close, 10.0)
            await ground.until(lambda: ground.dispatcher.closing)
            may_end.set()
        await ground.recorded(first)
        assert (await ground.turn(second))["state"] == "queued"
        assert ground.backend.alive() == []
        with pytest.raises(SandboxUnavailable, match="ending"):
            await ground.dispatcher.ensure("main")


async def test_a_removed_runtime_directory_is_made_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as ground:
        await ground.recorded(await ground.accept())
        shutil.rmtree(tmp_path / "run")
        await ground.dispatcher.end_run("main")
        await ground.recorded(await ground.accept())
        assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
        await ground.dispatcher.end_run("main")
        shutil.rmtree(tmp_path / "run")
        (tmp_path / "run").write_text("in the way")
        seq = await ground.accept()
        await ground.until_state(seq, "held")
        [notice] = await ground.notices()
        assert "cannot be made" in notice


async def test_an_edit_of_the_limits_holds_at_the_next_turn(tmp_path: Path) -> None:
    async with opened(tmp_path) as ground:
        await ground.recorded(await ground.accept())
        await ground.recorded(await ground.accept())
        [box] = ground.backend.boxes
        ground.limits = replace(ground.limits, pids=99)
        await ground.recorded(await ground.accept())
        assert not box.alive and ground.backend.boxes[1].spec.limits.pids == 99
