"""A skill that an agent wrote: what the owner is shown, and what their word does with its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawd.ledger import authored
from clawd.skills import proposals
from clawd.skills.manifest import version
from tests.approvals.conftest import World
from tests.skills.making import skill

pytestmark = pytest.mark.anyio


class Asked:
    """A proposal of a member's turn, `world.ask`ed."""

    def __init__(self, world: World, tmp_path: Path, text: str = "> look\u202e\n---\nthe end") -> None:
        self.world, self.skills = world, world.home.group("main").skills
        self.at = self.skills / ".proposed" / "x"
        self.work = tmp_path / "w"
        skill(self.work, "x", "Obeys me.", text, scripts__run_DOT_py="print(1)")

    async def ask(self) -> int:
        accepted = self.world.desk.accept(role="member")
        turn = self.world.ledger.tx(lambda tx: tx.one("SELECT MAX(id) AS id FROM turn"))
        assert accepted and turn is not None
        with proposals.drafted(self.skills, "x", self.work, "") as (folder, manifest):
            proposals.place(self.skills, "x", folder)
        self.sha256 = manifest.sha256
        self.world.ledger.tx(
            lambda tx: authored.note(tx, "skill", "main", "x", self.sha256, turn["id"], "2026-12-01T09:00:00Z")
        )
        effect = {"group": "main", "name": "x", "sha256": self.sha256}
        async with self.world.working():
            return (await self.world.approvals.ask("skill", effect)).number

    async def decide(self, number: int, verdict: str) -> str:
        async with self.world.working():
            row = await self.world.approvals.by_hand(number, verdict)  # type: ignore[arg-type]
        return str(row["state"])

    def words(self) -> str:
        row = self.world.ledger.tx(lambda tx: tx.one("SELECT words FROM approval ORDER BY id DESC LIMIT 1"))
        assert row is not None
        return str(row["words"])


async def test_the_owner_is_shown_all_of_it_and_the_agents_text_last(world: World, tmp_path: Path) -> None:
    asked = Asked(world, tmp_path)
    await asked.ask()
    ours, _, theirs = asked.words().partition("Its files, then its SKILL.md, whole:\n")
    assert "may I use the skill “x” in the group main?" in ours and "acted for member" in ours
    assert "takes the place" not in ours and "/approve" in ours and "Obeys" not in ours
    listed, _, text = theirs.partition("\n> \n")
    assert [line.split()[1] for line in listed.splitlines()] == ["SKILL.md", "scripts/run.py"]
    assert "8 bytes" in listed and all(line.startswith("> ") for line in text.splitlines())
    assert text.endswith("> the end\n> ") or text.endswith("> the end")
    assert "⟨U+202E⟩" in text


async def test_a_yes_moves_it_and_keeps_what_was_there(world: World, tmp_path: Path) -> None:
    asked = Asked(world, tmp_path)
    skill(asked.skills, "x", "old")
    number = await asked.ask()
    assert "takes the place of the skill of this name" in asked.words()
    assert await asked.decide(number, "approve") == "done"
    assert version(asked.skills / "x") == asked.sha256 and not asked.at.exists()
    assert len(list((asked.skills / ".old").iterdir())) == 1


async def test_a_no_takes_it_away(world: World, tmp_path: Path) -> None:
    asked = Asked(world, tmp_path)
    assert await asked.decide(await asked.ask(), "deny") == "denied"
    assert not asked.at.exists() and not (asked.skills / "x").exists()


@pytest.mark.parametrize("changed", ["script", "mode", "gone", "there"])
async def test_what_has_changed_since_is_void(world: World, tmp_path: Path, changed: str) -> None:
    asked = Asked(world, tmp_path)
    number = await asked.ask()
    match changed:
        case "script":
            (asked.at / "scripts/run.py").write_text("print(2)")
        case "mode":
            (asked.at / "scripts/run.py").chmod(0o755)
        case "gone":
            asked.at.rename(tmp_path / "gone")
        case "there":
            skill(asked.skills, "x", "a person's own")
    assert await asked.decide(number, "approve") in ("void", "failed")
    assert version(asked.skills / "x") != asked.sha256
