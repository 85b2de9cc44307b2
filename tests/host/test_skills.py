"""skill_read and skill_propose: what they give, and what they refuse."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from clawd.channel import ChannelLimits
from clawd.errors import NotFound, UnsafePath, UsageError
from clawd.host.tools import ToolContext, declarations, skill_propose, skill_read
from clawd.skills.shelf import Version
from clawd.skills.skill import load
from clawd.turns.skills import Opened
from tests.host.test_tools import context, sent
from tests.skills.making import skill

pytestmark = pytest.mark.anyio
__all__ = ["context", "sent"]


@dataclass
class Shelf:
    """One skill, `x`."""

    opened: Opened
    proposed: list[Any]

    def names(self) -> list[dict[str, str]]:
        return [{"name": "x", "description": "d"}]

    async def open(self, name: str) -> Opened:
        if name != "x":
            raise NotFound(f"there is no skill {name!r}; there are x")
        return self.opened

    async def propose(self, name: str, text: str | None) -> str:
        self.proposed.append((name, text))
        return "sha"

    def withdraw(self, name: str, sha256: str) -> None:
        self.proposed.append(("withdrawn", name))


@pytest.fixture
def with_skill(context: ToolContext, tmp_path: Path) -> ToolContext:
    folder = skill(tmp_path, "x", body="Do it.", references__long_DOT_md="ä" * 70_000, references__a_DOT_md="text")
    (folder / "data").write_bytes(b"\xff\x00")
    text = (folder / "SKILL.md").read_text()
    (folder / "SKILL.md").write_text(text.replace("---\n", "---\nallowed-tools: Bash(git:*) Read\n", 1))
    version = Version(load(folder, shared=True), "0" * 64)
    return replace(context, skills=Shelf(Opened(version, folder, "a note"), []))  # type: ignore[arg-type]


async def read(context: ToolContext, **arguments: Any) -> dict[str, Any]:
    return await skill_read.prepare(context, skill_read.Arguments(**arguments))


async def test_a_skill_is_read_with_what_lies_beside_it(with_skill: ToolContext) -> None:
    assert await read(with_skill, name="x") == {
        "name": "x",
        "at": "/skills/x",
        "allowed": "Bash(git:*) Read",
        "note": "a note",
        "files": ["SKILL.md", "data", "references/a.md", "references/long.md"],
        "body": "Do it.",
    }
    for file in ("references/a.md", "/skills/x/references/a.md"):
        assert (await read(with_skill, name="x", file=file))["text"] == "text"
    long = (await read(with_skill, name="x", file="references/long.md"))["text"]
    assert len(long.encode()) < skill_read.MOST_BYTES + 100 and "100 KB" in long
    assert await read(with_skill, name=" ") == {"skills": [{"name": "x", "description": "d"}]}
    with pytest.raises(NotFound, match="there are x"):
        await read(with_skill, name="y")


@pytest.mark.parametrize("file", ["../secret", "/etc/passwd", "missing", "references", "link", "data"])
async def test_no_file_but_a_text_of_its_own(with_skill: ToolContext, tmp_path: Path, file: str) -> None:
    (tmp_path / "secret").write_text("s")
    (tmp_path / "x/link").symlink_to(tmp_path / "secret")
    with pytest.raises(UsageError):
        await read(with_skill, name="x", file=file)


async def propose(context: ToolContext, refuses: bool = False, **arguments: Any) -> Any:
    asked: list[Any] = []

    def change(tx: object, kind: str, effect: Any, what: str, *, always: bool) -> dict[str, Any]:
        asked.append((kind, effect, what, always))
        if refuses:
            raise UsageError("the owner said no to it")
        return {"waits": "asked"}

    act = await skill_propose.prepare(
        replace(context, change=change),  # type: ignore[arg-type]
        skill_propose.Arguments(**arguments),
    )
    assert act(None, 1) == {"waits": "asked"}  # type: ignore[arg-type]
    return asked


async def test_a_proposal_is_always_asked_for(with_skill: ToolContext) -> None:
    asked = [("skill", {"group": "main", "name": "y", "sha256": "sha"}, "the skill y", True)]
    for path in ("y", "./y", "y/", "/group/work/y"):
        assert await propose(with_skill, path=path) == asked
    assert await propose(with_skill, name="y", description="does: it", body="how") == asked
    proposed = with_skill.skills.proposed  # type: ignore[union-attr]
    assert proposed == [*[("y", None)] * 4, ("y", '---\nname: y\ndescription: "does: it"\n---\nhow\n')]
    with pytest.raises(UsageError, match="said no"):
        await propose(with_skill, refuses=True, path="y")
    assert proposed[-1] == ("withdrawn", "y")


@pytest.mark.parametrize("wrong", [{}, {"path": "a", "name": "a"}, {"name": "a", "description": "d"}, {"body": "b"}])
async def test_it_is_a_folder_or_three_texts(with_skill: ToolContext, wrong: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        await propose(with_skill, **wrong)
    with pytest.raises(UnsafePath):
        await propose(with_skill, path="/etc")


def test_both_together_are_declared_in_300_bytes() -> None:
    ours = [each for each in declarations(ChannelLimits()) if each["name"].startswith("skill_")]
    assert len(ours) == 2 and len(json.dumps(ours, separators=(",", ":"))) <= 300
