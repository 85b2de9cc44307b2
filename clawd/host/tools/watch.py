"""`watch`: the group is woken when files change. What a turn makes acts as that turn for ever, and where that is not
the owner's own it is proposed to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from anyio import to_thread
from pydantic import BaseModel, ConfigDict, Field

from clawd.approvals.watch import MOST, digest
from clawd.clock import rfc3339
from clawd.config.group import Watch
from clawd.config.home import GroupHome
from clawd.config.load import parse_group
from clawd.errors import NotFound, UsageError
from clawd.host.changes import is_own
from clawd.host.tools import Act, ToolContext
from clawd.ledger import authored, turns
from clawd.wakes.folders import named

if TYPE_CHECKING:
    from clawd.ledger.db import Transaction

NAME = "watch"
DESCRIPTION = "Be woken when files change; see tool_help."
DECLARED = ("paths",)
HELP = (
    'action "add" (the default): `paths` are folders of the group, like "work/reports" or "inbox", or of its mounts,'
    ' like "/mnt/docs"; `globs` the names that count ("*.md", "docs/**/*.txt"), `events` of added, modified, deleted'
    " (the first two); `prompt` is what you are told then, with a list of what changed. `settle` is how many seconds it"
    " must be quiet first. What you change yourself in a turn wakes nobody. Unless this turn is the owner's and nothing"
    " from outside has reached it, the owner is asked first: `waits`. It has the rights of this turn, never more.\n"
    f'actions "list"; "remove" with `id`. A group has at most {MOST} that you made.'
)
_ID = 12

_Text = Annotated[str, Field(min_length=1, max_length=300)]


class Arguments(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    action: Literal["add", "list", "remove"] = "add"
    paths: list[_Text] = Field(default=[], max_length=10)
    globs: list[_Text] = Field(default=["*"], min_length=1, max_length=10)
    events: list[Literal["added", "modified", "deleted"]] = Field(default=["added", "modified"], min_length=1)
    settle: float = Field(default=2, ge=0, le=3600, allow_inf_nan=False)
    prompt: str = Field(default="", max_length=20_000)
    id: str = Field(default="", max_length=64, description="of what there is, as list gives it")


async def prepare(context: ToolContext, arguments: Arguments) -> Act | dict[str, Any]:
    """Raises UsageError for what cannot be watched or may not be, NotFound."""
    rules = {digest(rule): rule for rule in await to_thread.run_sync(_rules, context)}
    if arguments.action == "list":
        return {"watches": [_shown(id, each) for id, each in rules.items()]}
    if arguments.action == "add":
        rule = _rule(arguments)
        if digest(rule) in rules:
            raise UsageError("there is such a watch already")
    else:
        found = [each for id, each in rules.items() if len(arguments.id) >= _ID and id.startswith(arguments.id)]
        if not found:
            raise NotFound(f"there is no watch {arguments.id!r}; list gives their ids")
        rule = found[0]
    sha256 = digest(rule)

    def act(tx: Transaction, effect_id: int) -> dict[str, Any]:
        if arguments.action == "add":
            now, name = rfc3339(context.clock.now()), ", ".join(rule.paths)
            authored.note(tx, "watch", context.group, name, sha256, context.lease.turn, now)
        says = rule.model_dump(mode="json")
        effect = {"group": context.group, "action": arguments.action, "rule": says, "sha256": sha256}
        by, turn = authored.of_agent(tx, "watch", context.group, sha256), turns.get(tx, context.lease.turn)
        own = arguments.action == "remove" and is_own(by, turn)
        return {**context.change(tx, "watch", effect, f"{arguments.action} watch", own=own), "id": sha256[:_ID]}

    return act


def _rule(arguments: Arguments) -> Watch:
    if not arguments.paths or not arguments.prompt.strip():
        raise UsageError("a watch needs paths, and a prompt that says what is to be done")
    for path in arguments.paths:
        named(path)
    return Watch(**arguments.model_dump(exclude={"action", "id"}))


def _rules(context: ToolContext) -> list[Watch]:
    try:
        text = GroupHome(context.work.parent).config_file.read_text("utf-8")
    except FileNotFoundError:
        return []
    return parse_group(text).watch


def _shown(id: str, rule: Watch) -> dict[str, Any]:
    return {"id": id[:_ID], **rule.model_dump(mode="json", exclude={"max_per_hour"})}
