"""Skills of live runs: they are there from the turn on that begins with them until that turn ends, and an agent's own
lowers whoever reads it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawd.errors import LeaseLost, NotFound, UsageError
from clawd.ledger import approvals, authored, effects, turns
from clawd.ledger.db import Transaction
from clawd.ledger.deliveries import TERMINAL
from clawd.model import Final, Lease
from clawd.skills.manifest import manifest
from clawd.skills.proposals import skill_md
from clawd.trust import Role
from clawd.turns.run import Run
from clawd.turns.skills import named
from tests.skills.making import skill
from tests.turns.conftest import NOW, BoxBackend, Ground, answer, opened
from tests.turns.test_mounts import Lent

pytestmark = pytest.mark.anyio
TOOLS = frozenset({"send_message", "send_file", "ask", "skill_read"})


@asynccontextmanager
async def stage(path: Path, **how: Any) -> AsyncIterator[Ground]:
    async with opened(path, workers=0, **how) as ground:
        ground.home.group("main").skills.mkdir(parents=True)
        yield ground


async def turn(ground: Ground, role: Role = Role.OWNER, worker: int = 0) -> Lease:
    """A live turn in a session of its own."""
    await ground.accept(session=f"s{worker}", role=role)
    return (await ground.offer(await ground.run(), worker))[0]


async def end(ground: Ground, *leases: Lease) -> None:
    for lease in leases:
        await ground.counter.final(lease, Final("done"))


async def wrote(ground: Ground, name: str, role: Role, taint: float, **how: Any) -> None:
    """A skill that the agent wrote in such a turn, and that the owner approved."""
    folder = skill(ground.home.group("main").skills, name, **how)

    def note(tx: Transaction) -> None:
        row = tx.one("SELECT MAX(id) AS id FROM turn")
        assert row is not None
        tx.execute("UPDATE turn SET authority = ?, taint = ? WHERE id = ?", role, taint, row["id"])
        authored.note(tx, "skill", "main", name, manifest(folder).sha256, row["id"], NOW)

    await ground.ledger.do(note)


def seen(ground: Ground, run: Run) -> list[str]:
    """What the sandbox sees, shared ones first."""
    spec = ground.box(run).spec
    return [each.name for root in (spec.skills, spec.group_skills) for each in sorted(root.iterdir())]


def seen_own(ground: Ground, run: Run) -> list[str]:
    return sorted(each.name for each in ground.box(run).spec.group_skills.iterdir())


def told(ground: Ground) -> list[str]:
    return [each.skill.name for each in ground.skills.of("main").told]


async def test_a_skill_is_there_until_the_turns_end_that_began_with_it(tmp_path: Path) -> None:
    async with stage(tmp_path) as ground:
        skills = ground.home.skills
        skill(skills, "a", body="one")
        one = await turn(ground)
        run = await ground.run()
        assert seen(ground, run) == told(ground) == ["a"]
        (skills / "a").rename(tmp_path / "a")
        skill(skills, "b", body="one")
        assert seen(ground, run) == ["a"]
        two = await turn(ground, worker=1)
        assert seen(ground, run) == ["a", "b"] and told(ground) == ["b"]
        assert (await ground.skills.open(run, one, "a", TOOLS)).version.skill.body == "one"
        await end(ground, one)
        skill(skills, "b", body="two")
        three = await turn(ground)
        assert seen(ground, run) == ["a", "b"], "the second turn began with them"
        assert (await ground.skills.open(run, three, "b", TOOLS)).version.skill.body == "one"
        await end(ground, two, three)
        four = await turn(ground)
        assert seen(ground, run) == ["b"]
        opened = await ground.skills.open(run, four, "b", TOOLS)
        assert opened.version.skill.body == "two" and (opened.copy / "SKILL.md").read_text().endswith("two\n")
        with pytest.raises(NotFound, match="there are b"):
            await ground.skills.open(run, four, "a", TOOLS)
        at = ground.box(run).spec.skills.parent
        await ground.dispatcher.end_run("main")
        assert not at.exists()


async def test_an_agent_s_own_is_not_there_for_a_turn_above_until_it_reads_it(tmp_path: Path) -> None:
    async with stage(tmp_path) as ground:
        await ground.accept(session="before")
        await ground.offer(run := await ground.run())
        await ground.dispatcher.end_run("main")
        await wrote(ground, "mine", Role.MEMBER, 0.4)
        await wrote(ground, "clean", Role.OWNER, 1.0)
        await ground.ledger.do(lambda tx: tx.execute("UPDATE turn SET state = 'stopped', recorded_at = 'x'"))
        await ground.ledger.do(lambda tx: tx.execute("UPDATE grp SET authority = 'owner', taint = 1.0"))
        lease = await turn(ground)
        run = await ground.run()
        assert seen(ground, run) == told(ground) == ["clean"]
        assert [each["name"] for each in ground.skills.names(run)] == ["clean", "mine"]
        assert "obey" not in str(ground.skills.names(run)[1].get("description", ""))
        assert not (await ground.skills.open(run, lease, "clean", TOOLS)).note
        live = run.live[lease.turn]
        assert (live.role, live.taint) == (Role.OWNER, 1.0)

        opened = await ground.skills.open(run, lease, "mine", TOOLS)
        assert "acted for member" in opened.note and (live.role, live.taint) == (Role.MEMBER, 0.4)
        row = await ground.ledger.do(lambda tx: turns.get(tx, lease.turn))
        assert (row["authority"], row["taint"]) == ("member", 0.4)
        road = ground.caller(run).road()
        assert road is not None and road.role == Role.MEMBER
        assert seen(ground, run) == ["clean", "mine"]
        await end(ground, lease)
        groups = await ground.ledger.do(lambda tx: tx.one("SELECT authority, taint FROM grp WHERE name = 'main'"))
        assert groups is not None and tuple(groups) == ("member", 0.4)

        lower = await turn(ground)
        assert seen(ground, run) == told(ground) == ["clean", "mine"], "at or below it, it is as any other"
        await end(ground, lower)
        # a person's hand makes it the owner's
        skill(ground.home.group("main").skills, "mine", body="mended")
        await ground.ledger.do(lambda tx: tx.execute("UPDATE grp SET authority = 'owner', taint = 1.0"))
        await turn(ground)
        assert told(ground) == ["clean", "mine"]


async def test_a_lower_skill_is_taken_away_from_a_turn_above(tmp_path: Path) -> None:
    async with stage(tmp_path) as ground:
        lease = await turn(ground, Role.MEMBER)
        run = await ground.run()
        await wrote(ground, "low", Role.MEMBER, 0.4)
        await ground.ledger.do(lambda tx: tx.execute("UPDATE turn SET taint = 0.4"))
        await end(ground, lease)
        lease = await turn(ground, Role.MEMBER)
        assert seen(ground, run) == ["low"]
        await end(ground, lease)
        await ground.ledger.do(lambda tx: tx.execute("UPDATE grp SET authority = 'owner', taint = 1.0"))
        # What it may not see cannot be taken away: it is not begun.
        (shared := ground.box(run).spec.skills).rename(tmp_path / "shared")
        shared.touch()
        seq = await ground.accept(session="refused")
        assert await ground.counter.next_turn(run.id, 0, 0.0) is None and seen_own(ground, run) == ["low"]
        assert "cannot be shown" in ((await ground.turn(seq))["error"])
        shared.unlink()
        await turn(ground)
        assert seen(ground, run) == [] and [each.skill.name for each in ground.skills.of("main").lowering] == ["low"]


async def test_nobody_takes_over_the_words_of_another_or_asks_without_end(tmp_path: Path) -> None:
    async with stage(tmp_path) as ground:
        lease = await turn(ground, Role.MEMBER)
        run = await ground.run()
        for folder in (skill(ground.home.skills, "a", scripts__x="1"), skill(run.spec.work, "b", scripts__x="1")):
            (folder / "SKILL.md").write_text("---\nname: a\ndescription: d\n---\nb\n")
        with pytest.raises(UsageError, match="a skill already that is the same as b"):
            await ground.skills.propose(run, lease, "b", None)
        await ground.ledger.do(lambda tx: tx.execute("DELETE FROM authored"))

        def wait(tx: Transaction) -> None:
            for n in range(5):
                effect = {"group": "main", "name": f"n{n}", "sha256": "0"}
                approvals.add(
                    tx, "skill", effect, "0", subject=str(n), person="", at=TERMINAL, group="main", turn=lease.turn,
                    now=ground.clock.now(), expires=ground.clock.now(),
                )  # fmt: skip

        await ground.ledger.do(wait)
        with pytest.raises(UsageError, match="5 skills wait"):
            await ground.skills.propose(run, lease, "c", skill_md("c", "d", "b"))
        assert await ground.ledger.do(lambda tx: authored.every(tx, "skill", "main")) == {}
        await ground.ledger.do(lambda tx: authored.note(tx, "skill", "main", "c", "0", lease.turn, NOW))
        left = ground.home.group("main").skills / ".proposed/.left"
        left.mkdir()
        await ground.skills.recover()
        assert not left.exists()


async def test_who_has_the_owner_s_directories_reads_nothing_of_a_member_s(tmp_path: Path) -> None:
    async with stage(tmp_path) as ground:
        Lent(ground, tmp_path)
        lease = await turn(ground)
        run = await ground.run()
        await end(ground, lease)
        await wrote(ground, "low", Role.MEMBER, 0.4)
        await ground.ledger.do(lambda tx: tx.execute("UPDATE grp SET authority = 'owner', taint = 1.0"))
        lease = await turn(ground)
        with pytest.raises(UsageError, match="only turns of the owner may write to"):
            await ground.skills.open(run, lease, "low", TOOLS)
        assert run.live[lease.turn].role == Role.OWNER and seen(ground, run) == []
        stale = Lease(run.id, lease.turn, lease.attempt + 1, 0)
        with pytest.raises(LeaseLost):
            await ground.skills.open(run, stale, "low", TOOLS)


async def test_allowed_tools_only_narrow(tmp_path: Path) -> None:
    async with stage(tmp_path) as ground:
        a = skill(ground.home.skills, "a")
        text = (a / "SKILL.md").read_text()
        (a / "SKILL.md").write_text(text.replace("---\n", "---\nallowed-tools: Bash(*) send_message Unheard ask\n", 1))
        b = skill(ground.home.skills, "b")
        (b / "SKILL.md").write_text(text.replace("---\n", "---\nallowed-tools: mcp__clawd__ask send_file\n", 1))
        lease = await turn(ground)
        run = await ground.run()

        async def refused() -> list[str]:
            known = [
                (tool, await ground.ledger.do(lambda tx, tool=tool: effects.known(tx, lease, tool, {}, None)))  # type: ignore[misc]
                for tool in sorted({*TOOLS, "tool_help"})
            ]
            return [tool for tool, effect in known if effect is not None and "allows" in effect.result["error"]]

        assert await refused() == []
        await ground.skills.open(run, lease, "a", TOOLS)
        assert await refused() == ["send_file"]
        await ground.skills.open(run, lease, "b", TOOLS)
        assert await refused() == ["send_file", "send_message"]
        await ground.skills.open(run, lease, "a", TOOLS)
        assert await refused() == ["send_file", "send_message"]
    assert [named(each) for each in ("Bash(git:*)", "mcp__clawd__ask", "ask")] == ["Bash", "ask", "ask"]


async def test_an_adopted_run_goes_on_with_what_it_sees(tmp_path: Path) -> None:
    backend = BoxBackend(pausable=True)
    async with opened(tmp_path, workers=0, backend=backend) as ground:
        skill(ground.home.skills, "a", body="one")
        skill(ground.home.skills, "b", body="one")
        lease = await turn(ground)
        run = await ground.run()
        ground.crash()
    async with opened(tmp_path, workers=0, backend=backend) as ground:
        await ground.dispatcher.recover()
        again = await ground.until(lambda: ground.dispatcher.active.get("main"))
        assert again.id == run.id
        skill(ground.home.skills, "a", body="two")
        (ground.home.skills / "b").rename(tmp_path / "b")
        other = await turn(ground, worker=1)
        spec = ground.box(again).spec
        assert "one" in (spec.skills / "a/SKILL.md").read_text() and (spec.skills / "b").is_dir()
        await end(ground, lease, other)
        await turn(ground)
        assert seen(ground, again) == ["a"] and "two" in (spec.skills / "a/SKILL.md").read_text()


async def test_a_command_beside_the_runner_sees_them(tmp_path: Path) -> None:
    async with opened(tmp_path, play=answer) as ground:
        skill(ground.home.skills, "a")
        ground.home.group("main").skills.mkdir(parents=True, exist_ok=True)
        seq = await ground.accept()
        await ground.recorded(seq)
        run = await ground.run()
        skill(ground.home.skills, "b")
        ground.backend.slowly = anyio.Event()
        ground.backend.slowly.set()
        await ground.executor.execute("main", ["true"], {}, (0, 1, 2))
        assert seen(ground, run) == ["a", "b"]
