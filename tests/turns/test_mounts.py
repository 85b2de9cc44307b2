"""What a group is shown of the host's directories changes between its turns, never in one."""

from __future__ import annotations

import threading
from itertools import count
from pathlib import Path

import anyio
import pytest

from clawd.config.group import Mount as Asked
from clawd.errors import SandboxUnavailable
from clawd.model import Authority, Final
from clawd.sandbox.mounts import Mounts
from clawd.sandbox.protocol import Exchanged, RunSpec
from clawd.trust import Role
from tests.turns.conftest import Box, BoxBackend, Ground, opened

pytestmark = pytest.mark.anyio


class Lent:
    """`ground`'s group `main` asks for the directory `code`, writable, which the allowlist has."""

    def __init__(self, ground: Ground, root: Path) -> None:
        self.code = root / "code"
        self.code.mkdir()
        self.code.chmod(0o777)
        lists = root / "lists"
        lists.mkdir(mode=0o700)
        file = lists / "mounts.toml"
        file.write_text(f'schema = 1\n[[roots]]\npath = "{self.code}"\nmode = "rw"\nwhy = "a test"\n')
        file.chmod(0o600)
        self.told: list[str] = []
        self.asked = [Asked(path=str(self.code), name="code", mode="rw")]
        self.mounts = Mounts(
            ground.home,
            {"CLAWD_MOUNTS": str(file), "HOME": str(root / "me")},
            root / "run",
            lambda group: self.asked if group == "main" else [],
            lambda: ["main"],
            tell=self.told.append,
        )
        ground.dispatcher.runs._mounts = self.mounts


def modes(box: Box) -> list[bool]:
    return [mount.writable for mount in box.spec.mounts]


async def test_a_sandbox_is_kept_while_nothing_changes_and_replaced_when_it_does(tmp_path: Path) -> None:
    async with opened(tmp_path) as ground:
        lent = Lent(ground, tmp_path)
        for _ in range(2):
            await ground.recorded(await ground.accept())
        assert [modes(box) for box in ground.backend.boxes] == [[True]]
        lent.asked = []
        await ground.recorded(await ground.accept())
        assert [modes(box) for box in ground.backend.boxes] == [[True], []]
        assert list(lent.mounts.living.values()) == [("main", ())]


async def test_a_turn_that_is_not_the_owner_s_has_a_sandbox_that_cannot_write(tmp_path: Path) -> None:
    async with opened(tmp_path) as ground:
        Lent(ground, tmp_path)
        messages = [await ground.accept(session=f"s{n}", role=role) for n, role in enumerate((Role.OWNER, Role.MEMBER))]
        await ground.recorded(*messages)
        runs = {box.run: box for box in ground.backend.boxes}
        held = [modes(runs[(await ground.turn(each))["run"]]) for each in messages]
        assert held == [[True], [False]]
        assert [(await ground.turn(each))["taint"] for each in messages] == [0.2, 0.2]


async def test_what_was_exchanged_while_it_was_made_is_told_and_the_turn_goes_on(tmp_path: Path) -> None:
    class Wary(BoxBackend):
        """Finds something else at a mount, `times` times."""

        times = 1

        async def start(self, spec: RunSpec) -> Box:
            if self.times and spec.mounts:
                self.times -= 1
                raise Exchanged(spec.group, spec.mounts[0])
            return await super().start(spec)

    async with opened(tmp_path, backend=Wary()) as ground:
        Lent(ground, tmp_path)
        await ground.recorded(await ground.accept())
        assert [modes(box) for box in ground.backend.boxes] == [[]]
        [told] = await ground.notices()
        assert "was exchanged" in told and "/mnt/code" in told
        await ground.recorded(await ground.accept())
        assert [modes(box) for box in ground.backend.boxes] == [[], [True]], "it is tried again"


async def test_what_vanished_while_it_was_made_is_left_out(tmp_path: Path) -> None:
    class Late(BoxBackend):
        async def start(self, spec: RunSpec) -> Box:
            if spec.mounts:
                spec.mounts[0].source.rmdir()
                raise SandboxUnavailable("bind source path does not exist")
            return await super().start(spec)

    async with opened(tmp_path, backend=Late()) as ground:
        Lent(ground, tmp_path)
        await ground.recorded(await ground.accept())
        [told] = await ground.notices()
        assert "does not exist" in told and [modes(box) for box in ground.backend.boxes] == [[]]


async def test_an_allowlist_that_counts_for_nothing_is_told_to_the_owner_too(tmp_path: Path) -> None:
    async with opened(tmp_path) as ground:
        lent = Lent(ground, tmp_path)
        (tmp_path / "lists" / "mounts.toml").unlink()
        await ground.recorded(await ground.accept())
        assert "no group has a mount" in lent.told[0]
        assert "no mount allowlist" in (await ground.notices())[0]


async def test_a_sandbox_that_writes_is_lent_to_no_lower_role(tmp_path: Path) -> None:
    """Even if its next turn is another one by the time that it is claimed."""
    async with opened(tmp_path, workers=0) as ground:
        lent = Lent(ground, tmp_path)
        await ground.accept()
        run = await ground.run()
        given = lent.mounts.given("main", Role.OWNER, run.spec.uid)
        assert run.spec.mounts == given.mounts and run.spec.within == Authority(Role.OWNER, 0.2)
        await ground.offer(run)
        assert await ground.dispatcher.runs.fits(run)


async def test_a_turn_that_comes_while_mounts_are_looked_at_is_not_missed(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        lent = Lent(ground, tmp_path)
        await ground.accept()
        run = await ground.run()
        lease, _ = await ground.offer(run)
        await ground.counter.final(lease, Final("a reply"))
        looks, looking, seen = count(1), threading.Event(), threading.Event()

        def groups() -> list[str]:
            if next(looks) == 2:  # nothing was there to be claimed
                looking.set()
                seen.wait(60)
            return ["main"]

        lent.mounts.groups = groups
        run.nudge()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ground.offer, run)
            await ground.until(looking.is_set)
            await ground.accept()
            seen.set()
