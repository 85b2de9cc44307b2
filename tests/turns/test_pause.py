"""A sandbox at rest is frozen, and goes on before anything is asked of it."""

from pathlib import Path

import anyio
import pytest

from clawd.errors import SandboxUnavailable
from clawd.ledger import runs as run_rows
from clawd.model import Lease, Offer
from clawd.turns import dispatch, leases
from clawd.turns.run import Run
from tests.turns.conftest import Box, BoxBackend, Ground, answer, opened

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "PAUSE_AFTER_S", 0.02)


async def frozen(ground: Ground, group: str = "main") -> tuple[Run, Box]:
    """A sandbox that did a turn and is at rest."""
    await ground.recorded(await ground.accept(group))
    run = await ground.run(group)
    box = ground.box(run)
    await ground.until(lambda: box.frozen and not run.gate.locked())
    return run, box


async def state(ground: Ground, run: Run) -> str:
    [row] = [row for row in await ground.ledger.do(run_rows.alive) if row["id"] == run.id]
    return str(row["state"])


async def test_a_sandbox_at_rest_is_frozen_and_a_message_has_it_go_on(tmp_path: Path) -> None:
    async with opened(tmp_path, backend=BoxBackend(pausable=True)) as ground:
        run, box = await frozen(ground)
        assert ground.dispatcher.sandboxes()[0]["state"] == "paused" and await state(ground, run) == "paused"
        await ground.recorded(await ground.accept())
        await ground.until(lambda: box.calls == ["pause", "unpause", "pause"])
        assert len(ground.backend.boxes) == 1


async def test_one_that_cannot_be_paused_never_is(tmp_path: Path) -> None:
    async with opened(tmp_path) as ground:
        await ground.recorded(await ground.accept())
        run = await ground.run()
        await ground.until(lambda: len(run.waiters) == 4)
        await anyio.sleep(0.1)
        assert ground.box(run).calls == [] and not run.paused


async def test_a_sandbox_with_a_turn_is_never_frozen(tmp_path: Path) -> None:
    may_end = anyio.Event()

    async def play(ground: Ground, lease: Lease, offer: Offer) -> None:
        await may_end.wait()
        await answer(ground, lease, offer)

    async with opened(tmp_path, backend=BoxBackend(pausable=True), play=play) as ground:
        message = await ground.accept()
        run = await ground.run()
        await ground.until(lambda: run.live and len(run.waiters) == 3)
        run.look_again()
        await anyio.sleep(0.1)
        assert ground.box(run).calls == []
        may_end.set()
        await ground.recorded(message)
        await ground.until(lambda: ground.box(run).frozen)


async def test_no_poll_of_a_frozen_sandbox_ends_by_time(tmp_path: Path) -> None:
    async with opened(tmp_path, backend=BoxBackend(pausable=True), workers=0) as ground:
        await ground.accept()
        run = await ground.run()
        run.parallel = 1
        lease, offer = await ground.offer(run)
        await answer(ground, lease, offer)
        heard: list[object] = []

        async def poll() -> None:
            heard.append(await ground.counter.next_turn(run.id, 0, 0.3))

        async def control() -> None:
            heard.append(await ground.counter.control(run.id, 0.3))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(poll)
            tasks.start_soon(control)
            await ground.until(lambda: ground.box(run).frozen)
            await anyio.sleep(0.5)
            assert heard == []
            second = await ground.accept()
            await ground.until(lambda: heard)
            assert heard[0].turn == (await ground.turn(second))["id"]  # type: ignore[attr-defined]
            tasks.cancel_scope.cancel()


async def test_what_comes_while_it_is_being_frozen_waits_for_that_and_goes_on(tmp_path: Path) -> None:
    async with opened(tmp_path, backend=BoxBackend(pausable=True)) as ground:
        ground.backend.slowly = anyio.Event()
        await ground.recorded(await ground.accept())
        run = await ground.run()
        await ground.until(lambda: ground.box(run).calls == ["pause"])
        message = await ground.accept()
        await ground.until(lambda: run.asking)
        assert (await ground.turn(message))["state"] == "queued"
        ground.backend.slowly.set()
        await ground.recorded(message)


async def test_a_command_has_it_go_on_and_holds_it_so(tmp_path: Path) -> None:
    async with opened(tmp_path, backend=BoxBackend(pausable=True)) as ground:
        run, box = await frozen(ground)
        ground.backend.slowly = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ground.executor.execute, "main", ["true"], {}, (0, 1, 2))
            await ground.until(lambda: box.calls[-1] == "unpause")
            run.look_again()
            ground.backend.slowly.set()
            ground.backend.slowly = anyio.Event()  # now it is the command that takes long
            await ground.until(lambda: not run.paused)
            run.look_again()
            await anyio.sleep(0.1)
            assert not box.frozen
            ground.backend.slowly.set()
        await ground.until(lambda: box.frozen)


@pytest.mark.parametrize("when", ["frozen", "freezing"])
async def test_an_end_has_it_go_on_first(tmp_path: Path, when: str) -> None:
    async with opened(tmp_path, backend=BoxBackend(pausable=True)) as ground:
        if when == "freezing":
            ground.backend.slowly = anyio.Event()
            await ground.recorded(await ground.accept())
            run = await ground.run()
            await ground.until(lambda: ground.box(run).calls == ["pause"])
        else:
            run, _ = await frozen(ground)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ground.dispatcher.end_run, "main")
            if ground.backend.slowly is not None:
                await ground.until(lambda: run.killed)
                ground.backend.slowly.set()
        assert ground.box(run).calls[:3] == ["pause", "unpause", "kill"]
        await ground.recorded(await ground.accept())


async def test_its_warm_time_ends_a_frozen_one_too(tmp_path: Path) -> None:
    async with opened(tmp_path, backend=BoxBackend(pausable=True)) as ground:
        run, _ = await frozen(ground)
        ground.pass_time(599)
        await anyio.sleep(0.05)
        assert not run.gone.is_set()
        ground.pass_time(2)
        await ground.until(run.gone.is_set)


async def test_one_that_does_not_go_on_holds_its_group_tells_it_once_and_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "GONE_S", 0.05)
    async with opened(tmp_path, backend=BoxBackend(pausable=True)) as ground:
        run, box = await frozen(ground)
        ground.backend.stiff = "the freezer is stuck"
        messages = [await ground.accept()]
        await ground.until_state(messages[0], "held")
        messages.append(await ground.accept(session="other"))
        await ground.until_state(messages[1], "held")
        with pytest.raises(SandboxUnavailable, match="freezer"):
            await ground.executor.execute("main", ["true"], {}, (0, 1, 2))
        await ground.until(lambda: box.calls.count("unpause") > 4)  # tried again, and again
        assert box.frozen and not run.live
        ground.backend.stiff = None
        await ground.recorded(*messages)
        told = await ground.notices()
        assert len(told) == 2 and all("freezer is stuck" in each for each in told)
        assert [each["attempt"] for each in [await ground.turn(seq) for seq in messages]] == [1, 1]
        assert len(ground.backend.boxes) == 1


async def test_one_that_was_removed_by_hand_while_frozen_is_replaced_without_a_word(tmp_path: Path) -> None:
    async with opened(tmp_path, backend=BoxBackend(pausable=True)) as ground:
        _, box = await frozen(ground)
        ground.backend.slowly, ground.backend.stiff = anyio.Event(), "there is no such container"
        message = await ground.accept()
        await ground.until(lambda: box.calls[-1] == "unpause")
        ground.backend.slowly.set()
        box.end("was removed by hand")
        ground.backend.stiff = None
        await ground.recorded(message)
        assert await ground.notices() == []


async def test_a_pause_that_fails_leaves_it_as_it_is_until_it_is_used(tmp_path: Path) -> None:
    async with opened(tmp_path, backend=BoxBackend(pausable=True)) as ground:
        ground.backend.slowly = anyio.Event()
        await ground.recorded(await ground.accept())
        box = ground.box(await ground.run())
        await ground.until(lambda: box.calls == ["pause"])
        ground.backend.away = "the Engine is away"
        ground.backend.slowly.set()
        await anyio.sleep(0.1)
        assert box.calls == ["pause"]
        ground.backend.away = None
        await ground.recorded(await ground.accept())
        assert box.calls[:2] == ["pause", "unpause"]
