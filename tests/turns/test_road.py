"""For whom a run's road is open, whose tokens lead onto it, what comes in by it, and who is told."""

from __future__ import annotations

import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawd.errors import StorageError
from clawd.gateway.caller import TOKEN, TOKEN_LENGTH, Road
from clawd.ledger import groups
from clawd.model import Authority, Final, Lease
from clawd.trust import Role
from clawd.turns.road import LONGEST_SENTENCE, MOST_ALARMS, RunCaller, new_token, plain
from clawd.turns.run import Run
from tests.turns.conftest import BoxBackend, Ground, opened

pytestmark = pytest.mark.anyio


async def begun(ground: Ground, *roles: Role, worker: int = 0) -> tuple[Run, RunCaller, list[Lease]]:
    """A run with a live turn for each role, each in a session of its own."""
    leases = []
    for number, role in enumerate(roles, worker):
        await ground.accept(session=f"s{number}", role=role)
        leases.append((await ground.offer(await ground.run(), number))[0])
    run = await ground.run()
    return run, ground.caller(run), leases


@asynccontextmanager
async def command(ground: Ground, run: Run) -> AsyncIterator[dict[str, str]]:
    """While a command of the owner runs beside the runner; gives its environment."""
    ground.backend.slowly = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ground.executor.execute, "main", ["true"], {"TERM": "dumb"}, (0, 1, 2))
        await ground.until(lambda: run.commands)
        await ground.until(lambda: ground.box(run).environment)
        yield ground.box(run).environment
        ground.backend.slowly.set()
    ground.box(run).environment = {}


async def authority(ground: Ground) -> Authority:
    return await ground.ledger.do(lambda tx: groups.get(tx, "main").authority)


async def taints(ground: Ground) -> list[float]:
    """Of the live turns, as the ledger has them."""
    sql = "SELECT taint FROM turn WHERE state = 'claimed' ORDER BY id"
    return [row["taint"] for row in await ground.ledger.do(lambda tx: tx.all(sql))]


async def end(ground: Ground, lease: Lease) -> None:
    await ground.counter.final(lease, Final("done"))


# ---- the road


async def test_it_is_open_while_something_is_live_at_the_lowest_role(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        run, caller, [owner] = await begun(ground, Role.OWNER)
        assert caller.road() == Road(Role.OWNER, owner.turn)
        async with command(ground, run):
            assert caller.road() == Road(Role.OWNER, None)
            await end(ground, owner)
            assert caller.road() == Road(Role.OWNER, None)
            _, _, [member] = await begun(ground, Role.MEMBER, worker=1)
            assert caller.road() == Road(Role.MEMBER, None)
            await end(ground, member)
            assert caller.road() == Road(Role.MEMBER, None)  # it works in what the turn left behind
        assert caller.road() is None
        async with command(ground, run):
            assert caller.road() == Road(Role.MEMBER, None)
        assert caller.road() is None


async def test_it_closes_at_once_with_the_run(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        await ground.accept()
        run = await ground.run()
        token = (await ground.counter.hello(run.id, 1, 1))["token"]
        caller, _ = ground.caller(run), await ground.offer(run)
        run.ending = True  # it drains: what it has goes on
        assert caller.road() is not None and caller.owner_of(token) == run.id
        ground.backend.away = "the Engine hangs"
        ground.backend.slowly = anyio.Event()
        async with anyio.create_task_group() as tasks:
            run.paused = True
            tasks.start_soon(ground.dispatcher.end_run, "main")
            await ground.until(lambda: run.killed)
            assert caller.road() is None and caller.owner_of(token) is None
            assert not ground.counter.knows(run.id, token)
            ground.backend.away = None
            ground.backend.slowly.set()
        assert caller.road() is None and caller.owner_of(token) is None


async def test_tokens_are_known_by_their_run_and_end_with_what_they_are_for(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        run = (await begun(ground, Role.OWNER))[0]
        token = (await ground.counter.hello(run.id, 1, 1))["token"]
        await ground.accept("other")
        other = await ground.run("other")
        theirs = (await ground.counter.hello(other.id, 2, 2))["token"]
        assert TOKEN.fullmatch(token) and len(token) == TOKEN_LENGTH and token != theirs
        for caller in (ground.caller(run), ground.caller(other)):
            assert (caller.owner_of(token), caller.owner_of(theirs)) == (run.id, other.id)
            assert [caller.owner_of(each) for each in ("", new_token(), token[:-1], "\udc80")] == [None] * 4
        async with command(ground, run) as environment:
            own = environment["CLAWD_TOKEN"]
            assert environment == {"TERM": "dumb", "ROAD": f"http://{own}@main", "CLAWD_TOKEN": own}
            assert caller.owner_of(own) == run.id and own != token and own not in repr(run)
            assert not ground.counter.knows(run.id, own)  # no host tool for it
        assert caller.owner_of(own) is None


# ---- taint


async def test_what_comes_in_is_in_the_ledger_before_it_is_passed_on_and_costs_one_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, workers=0) as ground:
        run, caller, [lease, beside] = await begun(ground, Role.OWNER, Role.OWNER)
        commits, do = [], ground.ledger.do

        async def counted(work: Any) -> Any:
            commits.append(work)
            return await do(work)

        monkeypatch.setattr(ground.ledger, "do", counted)
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(caller.taint, 0.2)
        await caller.taint(0.2)
        await caller.taint(0.9)
        assert len(commits) == 1
        assert await taints(ground) == [0.2, 0.2]
        await end(ground, beside)
        assert await authority(ground) == Authority(Role.OWNER, 0.2)
        _, _, [late] = await begun(ground, Role.OWNER, worker=1)
        assert await taints(ground) == [0.2, 0.2] and run.live[late.turn].taint == 0.2
        await end(ground, lease)


async def test_turns_side_by_side_have_the_lowest_taint_of_all(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        _, caller, [_, _] = await begun(ground, Role.OWNER, Role.OWNER)
        await caller.taint(0.4)
        await ground.ledger.do(lambda tx: groups.lift(tx, "main"))
        await begun(ground, Role.OWNER, worker=2)
        assert await taints(ground) == [0.4, 0.4, 0.4]
        await ground.ledger.do(lambda tx: groups.fall(tx, "main", Role.OWNER, 0.1))
        await begun(ground, Role.OWNER, worker=3)
        assert await taints(ground) == [0.1] * 4
        [run] = await ground.ledger.do(lambda tx: tx.all("SELECT authority, taint FROM run"))
        assert tuple(run) == ("owner", 0.1)


async def test_what_a_command_brings_in_or_what_comes_too_late_falls_onto_the_work_tree(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        run, caller, [lease] = await begun(ground, Role.OWNER)
        await caller.taint(0.6)
        assert await authority(ground) == Authority(Role.OWNER, 1.0)
        async with command(ground, run):
            for _ in range(2):
                await caller.taint(0.6)
                assert await authority(ground) == Authority(Role.OWNER, 0.6)
                await ground.ledger.do(lambda tx: groups.lift(tx, "main"))
        await end(ground, lease)
        await caller.taint(0.2)
        assert await authority(ground) == Authority(Role.OWNER, 0.2)


async def test_nothing_comes_in_that_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path, workers=0) as ground:
        run, caller, [lease] = await begun(ground, Role.OWNER)

        async def full(work: Any) -> Any:
            raise StorageError("the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(ground.ledger, "do", full)
            with pytest.raises(StorageError):
                await caller.taint(0.2)
        assert run.live[lease.turn].taint == 1.0
        await caller.taint(0.2)
        assert await taints(ground) == [0.2]


async def test_after_a_restart_it_is_as_the_ledger_says(tmp_path: Path) -> None:
    backend = BoxBackend(pausable=True)
    async with opened(tmp_path, workers=0, backend=backend) as ground:
        run, caller, [lease] = await begun(ground, Role.MEMBER)
        await caller.taint(0.2)
    async with opened(tmp_path, workers=0, backend=backend) as ground:
        await ground.dispatcher.recover()
        run = ground.dispatcher.active["main"]
        assert ground.caller(run).road() == Road(Role.MEMBER, lease.turn)
        assert run.live[lease.turn].taint == 0.2


# ---- what its clients trust


async def test_a_run_has_the_certificates_once_its_group_has_a_use_for_them(tmp_path: Path) -> None:
    backend = BoxBackend(pausable=True)
    async with opened(tmp_path, workers=0, backend=backend) as ground:
        run, _, [lease] = await begun(ground, Role.OWNER)
        file = run.spec.socket_directory / "ca.pem"
        assert not file.exists()
        await end(ground, lease)
        ground.bundle = b"roots"
        await begun(ground, Role.OWNER)
        assert file.read_bytes() == b"roots" and file.stat().st_mode & 0o777 == 0o644
    async with opened(tmp_path, workers=0, backend=backend) as ground:
        ground.bundle = b"new roots"
        await ground.dispatcher.recover()
        await ground.until(lambda: file.read_bytes() == b"new roots")
        await ground.accept("other")
        run = await ground.run("other")
        assert (run.spec.socket_directory / "ca.pem").read_bytes() == b"new roots"
        assert {each.name for each in run.spec.socket_directory.iterdir()} == {"ca.pem", "wgetrc"}
        assert "ca_certificate = /run/clawd/ca.pem\n" in (run.spec.socket_directory / "wgetrc").read_text()


async def test_certificates_that_do_not_fit_take_no_room(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        ground.bundle = bytes(32 << 20)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 20, limits[1]))
        try:
            run, _, [_] = await begun(ground, Role.OWNER)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert list(run.spec.socket_directory.iterdir()) == []
        [notice] = await ground.notices()
        assert notice.startswith("Services cannot be reached over TLS")


# ---- who is told


async def test_the_first_refusal_of_a_turn_is_told_in_its_chat_once(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        run, caller, [lease] = await begun(ground, Role.OWNER)
        caller.told("GET evil.example was refused: not_granted.\x1b[2J\n\u202eX " + "x" * 1000)
        caller.told("GET evil.example was refused again")
        await ground.until(lambda: len(ground.delivered) == 1)
        [notice] = await ground.notices()
        assert notice.startswith("GET evil.example was refused: not_granted. [2J X xxx")
        assert notice.endswith("clawd gateway audit --group main") and len(notice) < LONGEST_SENTENCE + 100
        await end(ground, lease)
        async with command(ground, run):
            caller.told("its person sees the answer")
        _, _, [_] = await begun(ground, Role.OWNER)
        caller.told("another turn's own")
        await ground.until(lambda: len(ground.delivered) == 3)  # the reply, and this
        assert (await ground.notices())[1:] == [
            "another turn's own Every request: clawd gateway audit --group main",
        ]


async def test_what_no_honest_program_does_is_told_to_the_owner(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        run, caller, [lease] = await begun(ground, Role.OWNER)
        for host in range(MOST_ALARMS + 3):  # as many as there are names
            caller.alarm(f"a token\x07 to {host}")
        assert ground.trouble() == [f"a token to {host}" for host in range(MOST_ALARMS)]
        async with command(ground, run):
            caller.alarm(f"a command's {new_token()}")
            assert ground.trouble() == ["a command's [token]"]
        await end(ground, lease)
        caller.alarm("when it is over")
        assert ground.trouble() == []


@pytest.mark.parametrize(
    ("said", "told"),
    [("a\r\nb", "a b"), ("\x9b31m", "31m"), ("a\u2028b", "a b"), ("\ud800x", "x"), ("Grüße 你好", "Grüße 你好")],
)
def test_a_sentence_is_one_plain_line(said: str, told: str) -> None:
    assert plain(said) == told
