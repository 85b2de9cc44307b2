"""`skill_propose`: a skill that the agent wrote. The owner is always asked, and nothing is used before they say yes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from clawd.errors import UsageError
from clawd.host.tools import Act, ToolContext
from clawd.host.tools.send_file import beneath_work
from clawd.skills.proposals import skill_md

if TYPE_CHECKING:
    from clawd.ledger.db import Transaction

NAME = "skill_propose"
DESCRIPTION = "Propose a skill; see tool_help."
DECLARED = ()
HELP = (
    "Either `path`, a folder directly in work/ that is named as the skill and has a SKILL.md (at most 200 files, 5 MB),"
    " or `name`, `description` and `body` for one without other files. A copy is made now. The owner is shown it and"
    " decides; what becomes of it comes as a message. It takes the place of a skill of this group with the same name."
    " A turn has 3."
)


class Arguments(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    path: str = Field(default="", max_length=4096)
    name: str = Field(default="", max_length=64)
    description: str = Field(default="", max_length=1024)
    body: str = Field(default="", max_length=200_000)


async def prepare(context: ToolContext, arguments: Arguments) -> Act:
    """Raises UsageError for what is no skill, UnsafePath, StorageError."""
    skills, text, name = context.skills, None, arguments.name
    assert skills is not None
    texts = (name, arguments.description.strip(), arguments.body.strip())
    if bool(arguments.path) == any(texts) or not (arguments.path or all(texts)):
        raise UsageError("a proposal is a path, or a name, a description and a body")
    if arguments.path:
        name = beneath_work(arguments.path.removeprefix("./").rstrip("/"))
    else:
        text = skill_md(*texts)
    sha256 = await skills.propose(name, text)

    def act(tx: Transaction, effect_id: int) -> dict[str, Any]:
        effect = {"group": context.group, "name": name, "sha256": sha256}
        try:
            return context.change(tx, "skill", effect, f"the skill {name}", always=True)
        except UsageError:
            skills.withdraw(name, sha256)
            raise

    return act
