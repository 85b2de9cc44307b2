"""Runs outlive their daemon: what lives goes on with its turns, what is dead gives them back, and what nobody knows of
is neither started twice nor lost. Each daemon here is one `Ground` over the same ledger and the same boxes."""

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from clawd.errors import SandboxUnavailable, StorageError
from clawd.ledger import runs
from clawd.ledger.db import Row, Transaction
from clawd.model import Final, Lease, Offer
from clawd.sandbox.protocol import LeftOver, RunSpec
from clawd.turns import leases, reconcile
from tests.turns.conftest import Box, BoxBackend, Ground, answer, opened

pytestmark = pytest.mark.anyio


@pytest.fixture
def backend() -> BoxBackend:
    return BoxBackend(pausable=True)


async def hang(ground: Ground, lease: Lease, offer: Offer) -> None:
    """It works on, whatever daemon there is."""
    await ground.counter.events(lease, [])
    await anyio.sleep_forever()


async def rows(ground: Ground) -> list[Row]:
    return await ground.ledger.do(lambda tx: tx.all("SELECT * FROM run ORDER BY since"))


async def crashed_in_mid_turn(path: Path, backend: BoxBackend, play: Callable = hang) -> int:  # type: ignore[type-arg]
    """A first daemon that died while a turn was worked on; gives its message."""
    async with opened(path, backend=backend, play=play, workers=2) as ground:
        message = await ground.accept()
        run = await ground.run()
        await ground.until(lambda: any(live.confirmed for live in run.live.values()))
    return message


# ---- adopted


async def test_a_turn_goes_on_in_the_same_sandbox_with_the_same_attempt(tmp_path: Path, backend: BoxBackend) -> None:
    message = await crashed_in_mid_turn(tmp_path, backend)
    async with opened(tmp_path, backend=backend, workers=2) as ground:
        await ground.dispatcher.recover()
        [run] = ground.dispatcher.active.values()
        assert run.runner == (1, 1)
        await ground.recorded(message)
        row = await ground.turn(message)
        assert (row["run"], row["attempt"], row["faults"]) == (run.id, 1, 0)
        shown = await ground.message(message)
        assert (shown["reply"], len(backend.boxes)) == ("a reply", 1)
        await ground.recorded(await ground.accept())  # and it serves on
        assert len(await rows(ground)) == 1
        assert ground.dispatcher.sandboxes()[0]["run"] == run.id
        assert await ground.executor.execute("main", ["true"], {}, (0, 1, 2)) == 0


async def test_its_token_is_known_by_its_hash_alone(tmp_path: Path, backend: BoxBackend) -> None:
    async with opened(tmp_path, backend=backend, workers=0) as ground:
        await ground.accept()
        run = await ground.until(lambda: (run := ground.dispatcher.active.get("main")) and run.sandbox and run)
        assert not ground.counter.knows(run.id, "")
        token = (await ground.counter.hello(run.id, 7, 70))["token"]
        assert ground.counter.knows(run.id, token) and token not in repr(run)
    async with opened(tmp_path, backend=backend, workers=0) as ground:
        await ground.dispatcher.recover()
        assert ground.dispatcher.active["main"].runner == (7, 70)
        assert ground.counter.knows(run.id, token)
        assert not ground.counter.knows(run.id, token + "x") and not ground.counter.knows("another", token)
        again = (await ground.counter.hello(run.id, 7, 70))["token"]  # the first answer was lost
        assert ground.counter.knows(run.id, again) and not ground.counter.knows(run.id, token)


async def test_a_runner_that_does_not_return_loses_its_turn(tmp_path: Path, backend: BoxBackend) -> None:
    message = await crashed_in_mid_turn(tmp_path, backend)
    async with opened(tmp_path, backend=backend, workers=0) as ground:
        await ground.dispatcher.recover()
        run = ground.dispatcher.active["main"]
        await ground.until(lambda: run.resting or run.live)
        ground.pass_time(leases.RETURN_S - 1)
        await anyio.sleep(0.05)
        assert not run.gone.is_set()
        ground.pass_time(2)
        await ground.until(run.gone.is_set)
        assert (await ground.turn(message))["error"] == "its runner did not answer"


async def test_an_idle_run_whose_runner_does_not_return_ends(tmp_path: Path, backend: BoxBackend) -> None:
    async with opened(tmp_path, backend=backend) as ground:
        await ground.recorded(await ground.accept())
    async with opened(tmp_path, backend=backend, workers=0) as ground:
        await ground.dispatcher.recover()
        run = ground.dispatcher.active["main"]
        await anyio.wait_all_tasks_blocked()
        ground.pass_time(leases.RETURN_S + 1)
        await ground.until(run.gone.is_set)


async def test_a_stop_that_was_committed_is_said_to_an_adopted_turn(tmp_path: Path, backend: BoxBackend) -> None:
    async with opened(tmp_path, backend=backend, play=hang, workers=2) as ground:
        message = await ground.accept()
        run = await ground.run()
        await ground.until(lambda: any(live.confirmed for live in run.live.values()))
        assert await ground.stop("terminal:main")

    async def play(ground: Ground, lease: Lease, offer: Offer) -> None:
        assert [each.action for each in await ground.counter.more(lease)] == ["stop"]
        await ground.counter.final(lease, Final("", stop_reason="stopped"))

    async with opened(tmp_path, backend=backend, play=play, workers=2) as ground:
        await ground.dispatcher.recover()
        await ground.until_state(message, "stopped")


async def test_one_whose_work_was_replaced_meanwhile_is_not_adopted(tmp_path: Path, backend: BoxBackend) -> None:
    message = await crashed_in_mid_turn(tmp_path, backend)
    async with opened(tmp_path, backend=backend) as ground:
        work = ground.home.group("main").work
        work.rename(work.with_name("work.old"))
        work.mkdir()
        await ground.dispatcher.recover()
        await ground.recorded(message)
        assert len(backend.boxes) == 2 and backend.alive() == ["main"]


async def test_a_frozen_one_is_adopted_and_frozen_again(
    tmp_path: Path, backend: BoxBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "PAUSE_AFTER_S", 0.02)
    for _ in range(2):
        async with opened(tmp_path, backend=backend) as ground:
            await ground.dispatcher.recover()
            await ground.recorded(await ground.accept())
            await ground.until(
                lambda: backend.boxes[0].frozen and ground.dispatcher.sandboxes()[0]["state"] == "paused"
            )
    assert len(backend.boxes) == 1


async def test_what_cannot_be_adopted_gives_its_turn_back_without_a_fault(tmp_path: Path) -> None:
    backend = BoxBackend()
    message = await crashed_in_mid_turn(tmp_path, backend)
    async with opened(tmp_path, backend=backend) as ground:
        await ground.dispatcher.recover()
        await ground.recorded(message)
        row = await ground.turn(message)
        assert (row["attempt"], row["faults"]) == (1, 0)
        assert len(backend.boxes) == 2 and backend.alive() == ["main"]


# ---- a crash at every moment of a run's begin


@pytest.mark.parametrize("moment", ["begun", "made", "started", "greeted", "claimed"])
async def test_a_crash_between_any_two_commits_gives_one_answer(
    tmp_path: Path, backend: BoxBackend, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stuck(*_: object) -> None:
        await anyio.sleep_forever()

    @asynccontextmanager
    async def never(run: object) -> AsyncIterator[None]:
        await anyio.sleep_forever()
        yield

    async with opened(tmp_path, backend=backend, workers=0) as ground:
        if moment == "begun":
            monkeypatch.setattr(backend, "start", stuck)
        if moment == "made":
            monkeypatch.setattr(ground.dispatcher.runs, "_serve", never)
        message = await ground.accept()
        await ground.until(lambda: backend.boxes or moment == "begun")
        while not (row := (await rows(ground) or [None])[0]):
            await anyio.sleep(0.005)
        if moment not in ("begun", "made"):
            while not (await rows(ground))[0]["sandbox"]:
                await anyio.sleep(0.005)
        if moment in ("greeted", "claimed"):
            await ground.counter.hello(row["id"], 1, 1)
        if moment == "claimed":
            await ground.counter.next_turn(row["id"], 0, 5.0)  # its answer is not heard
            backend.boxes[0].greeted = True
    monkeypatch.undo()
    goes_on = moment in ("started", "greeted", "claimed")
    for _ in range(2):  # and one more daemon that dies in the middle of its own start
        async with opened(tmp_path, backend=backend, workers=0) as ground:
            await ground.dispatcher.reconciler.begin(lambda: None)
    async with opened(tmp_path, backend=backend, workers=2) as ground:
        await ground.dispatcher.recover()
        await ground.recorded(message)
        turn = await ground.turn(message)
        assert (turn["attempt"], turn["faults"]) == (1, 0)
        assert (turn["run"] == row["id"]) is goes_on
        assert len((await ground.message(message))["deliveries"]) == 1
        assert backend.alive() == ["main"]


async def test_a_copy_of_a_home_leaves_the_sandboxes_of_the_first_alone(tmp_path: Path, backend: BoxBackend) -> None:
    async with opened(tmp_path / "first", backend=backend, play=hang, workers=2) as ground:
        message = await ground.accept()
        run = await ground.run()
        await ground.until(lambda: any(live.confirmed for live in run.live.values()))
        shutil.copytree(tmp_path / "first", tmp_path / "copy", ignore=shutil.ignore_patterns("*.sock"))
        async with opened(tmp_path / "copy", workers=2) as copy:
            await copy.dispatcher.recover()
            await copy.recorded(message)
            assert not any(run.id in left for left, _ in copy.backend.sweeps)
            assert run.spec.directory.is_dir()


# ---- unknown


async def test_while_nobody_knows_its_group_is_held_and_told_once_then_it_goes_on(
    tmp_path: Path, backend: BoxBackend
) -> None:
    message = await crashed_in_mid_turn(tmp_path, backend)
    backend.away = "the Engine does not answer"
    async with opened(tmp_path, backend=backend, workers=2) as ground:
        await ground.dispatcher.recover()
        other = await ground.accept(session="other")
        await ground.until_state(other, "held")
        assert (await ground.turn(message))["state"] == "claimed"
        with pytest.raises(SandboxUnavailable, match="does not answer"):
            await ground.dispatcher.ensure("main")
        with pytest.raises(SandboxUnavailable, match="does not answer"):
            async with ground.dispatcher.without_run("main"):
                pass
        assert ground.dispatcher.active == {}
        backend.away = None
        await ground.recorded(message, other)
        told = await ground.notices()
        assert len(told) == 2 and all("does not answer" in each for each in told)
        row = await ground.turn(message)
        assert (row["attempt"], row["faults"], len(backend.boxes)) == (1, 0, 1)


async def test_one_that_died_while_nobody_knew_gives_its_turn_back(tmp_path: Path, backend: BoxBackend) -> None:
    message = await crashed_in_mid_turn(tmp_path, backend)
    backend.away = "the Engine does not answer"
    async with opened(tmp_path, backend=backend) as ground:
        await ground.dispatcher.recover()
        await ground.until(lambda: "main" in ground.dispatcher.holds.reasons)
        backend.boxes[0].end("the machine was off")
        backend.away = None
        await ground.recorded(message)
        row = await ground.turn(message)
        assert (row["attempt"], row["faults"], len(backend.boxes)) == (1, 0, 2)


async def test_a_doubtful_sandbox_of_one_group_is_swept_by_nobody(tmp_path: Path, backend: BoxBackend) -> None:
    message = await crashed_in_mid_turn(tmp_path, backend)
    adopt = backend.adopt

    async def doubtful(left: object, spec: object) -> object:
        raise SandboxUnavailable("this one cannot be looked at")

    backend.adopt = doubtful  # type: ignore[method-assign,assignment]
    async with opened(tmp_path, backend=backend) as ground:
        await ground.dispatcher.recover()
        await ground.recorded(await ground.accept("other"))
        assert backend.boxes[0].alive
        backend.adopt = adopt  # type: ignore[method-assign]
        await ground.recorded(message)
        assert (await ground.turn(message))["run"] == backend.boxes[0].run


async def test_an_engine_that_goes_away_in_mid_turn_costs_no_attempt(tmp_path: Path, backend: BoxBackend) -> None:
    async with opened(tmp_path, backend=backend, play=hang) as ground:
        message = await ground.accept()
        run = await ground.run()
        await ground.until(lambda: [live for live in run.live.values() if live.confirmed])
        backend.away = "the Engine does not answer"
        ground.pass_time(61)  # nothing is heard of the runner, and it cannot be killed
        await ground.until(run.gone.is_set)
        await ground.until(lambda: "main" in ground.dispatcher.holds.reasons)
        other = await ground.accept(session="other")
        await ground.until_state(other, "held")
        assert ((await ground.turn(message))["state"], len(backend.boxes)) == ("claimed", 1)
        ground.play, backend.away = answer, None
        await ground.recorded(message, other)
        row = await ground.turn(message)
        assert (row["attempt"], row["faults"]) == (1, 0)
        assert not backend.boxes[0].alive and len(await ground.notices()) == 2


@pytest.mark.parametrize("how", ["said so", "does not answer"])
async def test_a_sandbox_that_its_engine_took_along_costs_no_attempt(
    tmp_path: Path, backend: BoxBackend, how: str
) -> None:
    async with opened(tmp_path, backend=backend, play=hang) as ground:
        message = await ground.accept()
        for more in (3, 2, 1, 0) if how == "said so" else (0,):
            run = await ground.run()
            await ground.until(lambda run=run: any(live.confirmed for live in run.live.values()))
            ground.play = hang if more else answer
            if how == "does not answer":
                backend.away = "the Engine does not answer"
            ground.box(run).end("was ended with its Engine", outside=how == "said so")
            await ground.until(run.gone.is_set)
        if backend.away:
            await ground.until_state(message, "held")
            backend.away = None
        await ground.recorded(message)
        row = await ground.turn(message)
        assert (row["attempt"], row["faults"]) == (1, 0)
        assert len(await ground.notices()) == (1 if how == "does not answer" else 0)


async def test_a_lost_lease_of_what_its_engine_took_along_is_no_fault(tmp_path: Path, backend: BoxBackend) -> None:
    async with opened(tmp_path, backend=backend, play=hang) as ground:
        message = await ground.accept()
        run = await ground.run()
        await ground.until(lambda: run.live)
        for live in run.live.values():
            live.why = "its runner did not answer"
        ground.play = answer
        ground.box(run).end("was ended with its Engine", outside=True)
        await ground.recorded(message)
        assert (await ground.turn(message))["faults"] == 0


# ---- reconciled


async def test_what_no_run_claims_is_ended_by_and_by_and_with_nothing_alive_nothing_looks(
    tmp_path: Path, backend: BoxBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "RECONCILE_S", 0.02)
    async with opened(tmp_path, backend=backend) as ground:
        await ground.recorded(await ground.accept())
        stray = await backend.start(ground.dispatcher.active["main"].spec)
        stray.run = "of nobody"
        await ground.until(lambda: not stray.alive)
        assert backend.boxes[0].alive
        await ground.dispatcher.end_run("main")
        await ground.until(lambda: not ground.dispatcher.reconciler._watching)
        looks = len(backend.sweeps)
        await anyio.sleep(0.1)
        assert len(backend.sweeps) == looks


async def test_a_run_that_is_just_being_made_is_nobodys_stray(tmp_path: Path, backend: BoxBackend) -> None:
    """A backend may look at what is ours after it listed what there is."""
    async with opened(tmp_path, backend=backend) as ground:
        ours: list[object] = []
        sweep = backend.sweep

        async def keep(left: object, claimed: object = ()) -> list[str]:
            ours.append(claimed)
            return await sweep(left, claimed)  # type: ignore[arg-type]

        backend.sweep = keep  # type: ignore[method-assign,assignment]
        await ground.dispatcher.recover()
        await ground.accept()
        run = await ground.run()
        assert run.id in ours[0]  # type: ignore[operator]


# ---- the end of a daemon


async def test_an_end_leaves_living_sandboxes_unfrozen_to_the_next_daemon(
    tmp_path: Path, backend: BoxBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "PAUSE_AFTER_S", 0.02)
    async with opened(tmp_path, backend=backend, workers=2) as ground:
        await ground.recorded(await ground.accept("idle"))
        await ground.until(lambda: backend.boxes[0].frozen)
        ground.play = hang
        message = await ground.accept()
        run = await ground.run()
        await ground.until(lambda: any(live.confirmed for live in run.live.values()))
        await ground.dispatcher.close(0.05, keep=True)
        assert sorted(backend.alive()) == ["idle", "main"] and not backend.boxes[0].frozen
        assert (await ground.turn(message))["state"] == "claimed"
    async with opened(tmp_path, backend=backend, workers=2) as ground:
        await ground.dispatcher.recover()
        await ground.recorded(message, await ground.accept("idle"))
        assert len(backend.boxes) == 2 and (await ground.turn(message))["attempt"] == 1


@pytest.mark.parametrize("pausable", [True, False])
async def test_an_end_that_keeps_nothing_ends_them_all(tmp_path: Path, pausable: bool) -> None:
    backend = BoxBackend(pausable)
    async with opened(tmp_path, backend=backend, play=hang) as ground:
        message = await ground.accept()
        await ground.until_state(message, "claimed")
        await ground.dispatcher.close(0.05, keep=not pausable)
        assert backend.alive() == [] and (await ground.turn(message))["state"] == "queued"


async def test_an_end_does_not_wait_for_an_engine_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clawd.turns.dispatch.END_S", 0.2)
    backend = BoxBackend(pausable=True)
    async with opened(tmp_path, backend=backend) as ground:
        await ground.recorded(await ground.accept())
        run = await ground.run()
        run.paused, backend.slowly = True, anyio.Event()
        with anyio.fail_after(5):
            await ground.dispatcher.close(0.05, keep=True)
        assert run.left
        backend.slowly.set()


async def test_an_end_kills_a_frozen_one_though_its_engine_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawd.turns.dispatch.THAW_S", 0.05)
    backend = BoxBackend(pausable=True)
    async with opened(tmp_path, backend=backend) as ground:
        await ground.recorded(await ground.accept())
        run = await ground.run()
        run.paused, backend.slowly = True, anyio.Event()
        await ground.dispatcher.close(0.05)
        assert backend.alive() == []
        backend.slowly.set()


async def test_what_is_found_alive_during_an_end_is_the_next_daemon_s(
    tmp_path: Path, backend: BoxBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "START_S", 0.05)
    message = await crashed_in_mid_turn(tmp_path, backend)
    adopt, answered = backend.adopt, anyio.Event()

    async def late(left: LeftOver, spec: RunSpec) -> Box | None:
        await answered.wait()
        return await adopt(left, spec)

    backend.adopt = late  # type: ignore[method-assign]
    async with opened(tmp_path, backend=backend, workers=0) as ground:
        await ground.dispatcher.recover()
        await ground.dispatcher.close(0.05, keep=True)
        answered.set()
        await anyio.wait_all_tasks_blocked()
        assert not ground.dispatcher.active
    assert backend.alive() == ["main"]
    async with opened(tmp_path, backend=backend, workers=2) as ground:
        await ground.dispatcher.recover()
        await ground.recorded(message)
        assert len(backend.boxes) == 1


async def test_what_is_not_dead_while_its_backend_does_not_answer_is_unknown(
    tmp_path: Path, backend: BoxBackend
) -> None:
    """A sweep may know without its Engine; what it does not know dead then is not one that does not die."""
    async with opened(tmp_path, backend=backend, workers=0) as ground:
        message = await ground.accept()
        run = await ground.run()
        await ground.offer(run)
    sweep = backend.sweep

    async def knows_nothing(left: object, ours: object = ()) -> list[str]:
        return []

    async def nothing(left: object, spec: object) -> None:
        return None

    backend.sweep, backend.away = knows_nothing, "the Engine does not answer"  # type: ignore[method-assign,assignment]
    backend.adopt = nothing  # type: ignore[method-assign]
    async with opened(tmp_path, backend=backend) as ground:
        await ground.dispatcher.recover()
        other = await ground.accept(session="other")
        await ground.until_state(other, "held")
        assert len(backend.boxes) == 1
        backend.boxes[0].end("it was over by then")
        backend.sweep, backend.away = sweep, None  # type: ignore[method-assign]
        await ground.recorded(message, other)


async def test_one_that_ended_in_doubt_while_others_were_looked_at_stays_unknown(
    tmp_path: Path, backend: BoxBackend
) -> None:
    async with opened(tmp_path, backend=backend, play=hang) as ground:
        await ground.accept()
        await ground.run()

        async def sweep(left: object, ours: object = ()) -> list[str]:
            backend.immortal = True
            with pytest.raises(SandboxUnavailable):
                await ground.dispatcher.end_run("main")
            await ground.until(lambda: ground.dispatcher.reconciler.unknown)
            return []

        backend.sweep = sweep  # type: ignore[method-assign,assignment]
        await ground.dispatcher.reconciler.look()
        assert ground.dispatcher.reconciler.unknown.keys() == {"main"}


async def test_an_adopted_one_that_was_to_end_and_did_not_is_swept_and_not_adopted_again(
    tmp_path: Path, backend: BoxBackend
) -> None:
    await crashed_in_mid_turn(tmp_path, backend)
    async with opened(tmp_path, backend=backend, play=hang, workers=2) as ground:
        await ground.dispatcher.recover()
        backend.immortal = True
        with pytest.raises(SandboxUnavailable):
            await ground.dispatcher.end_run("main")
        backend.immortal = False
        await ground.dispatcher.reconciler.look()
        assert backend.boxes[0].exit.reason == "was swept away"


async def test_a_full_disk_ends_no_sandbox_that_could_be_adopted(
    tmp_path: Path, backend: BoxBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = await crashed_in_mid_turn(tmp_path, backend)

    def full(tx: Transaction, run: str) -> None:
        raise StorageError("the disk is full")

    async with opened(tmp_path, backend=backend, workers=2) as ground:
        with monkeypatch.context() as patch:
            patch.setattr(runs, "unpaused", full)
            await ground.dispatcher.recover()
            assert ground.dispatcher.reconciler.unknown == {"main": "the disk is full"}
        await ground.recorded(message)
        assert len(backend.boxes) == 1


async def test_on_a_full_disk_only_the_group_of_what_does_not_end_is_unknown(
    tmp_path: Path, backend: BoxBackend
) -> None:
    await crashed_in_mid_turn(tmp_path, backend)
    backend.boxes[0].pausable, backend.immortal = False, True  # it cannot be adopted

    def full() -> None:
        raise StorageError("the disk is nearly full")

    async with opened(tmp_path, backend=backend) as ground:
        ground.dispatcher.runs.check_room = full
        await ground.dispatcher.recover()
        assert ground.dispatcher.reconciler.unknown == {"main": "the disk is nearly full"}


async def test_the_directory_of_an_adopted_one_goes_wherever_it_lies(tmp_path: Path, backend: BoxBackend) -> None:
    """The next daemon may have another runtime directory: a service has, and a login."""
    async with opened(tmp_path, backend=backend) as ground:
        await ground.recorded(await ground.accept())
        directory = (await ground.run()).spec.directory
    async with opened(tmp_path, backend=backend) as ground:
        ground.dispatcher.runs._runtime = tmp_path / "another"
        await ground.dispatcher.recover()
        assert directory.is_dir()
        assert await ground.dispatcher.end_run("main")
        assert not directory.exists()
