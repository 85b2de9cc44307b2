"""`skill_read`: what a skill says, or a file of it. What an agent made in a lesser turn lowers this one first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from pydantic import BaseModel, ConfigDict, Field

from clawd.errors import UnsafePath, UsageError
from clawd.files import read_beneath

if TYPE_CHECKING:
    from clawd.host.tools import ToolContext

NAME = "skill_read"
DESCRIPTION = "Read a skill."
DECLARED = ("name",)
HELP = (
    "Gives its instructions, where it lies in the sandbox (`at`) and its files; with `file`, that file's text. Without"
    " a name, or with an unknown one, all skills. Where a skill names the tools that it needs (`allowed`), tools of the"
    " daemon that it does not name are refused from then on in this turn."
)
MOST_FILES = 100  # that are named
MOST_BYTES = 100 << 10  # of a file's text


class Arguments(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    name: str = Field(max_length=200)
    file: str = Field(default="", max_length=4096, description="a file of the skill, like references/x.md")


async def prepare(context: ToolContext, arguments: Arguments) -> dict[str, Any]:
    """Raises NotFound, and UsageError for what cannot be read here."""
    assert context.skills is not None
    if not arguments.name.strip():
        return {"skills": context.skills.names()}
    opened = await context.skills.open(arguments.name.strip())
    skill, at = opened.version.skill, opened.version.at
    note = {"note": opened.note} if opened.note else {}
    if arguments.file:
        file = arguments.file.removeprefix(f"{at}/")
        return {"name": skill.name, "file": file, **note, "text": await to_thread.run_sync(_text, opened.copy, file)}
    allowed = {} if skill.allowed_tools is None else {"allowed": " ".join(skill.allowed_tools) or "none"}
    needs = {"compatibility": skill.compatibility} if skill.compatibility else {}
    files = await to_thread.run_sync(_files, opened.copy)
    return {"name": skill.name, "at": at, **allowed, **needs, **note, "files": files, "body": skill.body}


def _files(copy: Path) -> list[str]:
    names = sorted(str(each.relative_to(copy)) for each in copy.rglob("*") if each.is_file())
    more = [f"… and {len(names) - MOST_FILES} more"] if len(names) > MOST_FILES else []
    return [*names[:MOST_FILES], *more]


def _text(copy: Path, file: str) -> str:
    try:
        data = read_beneath(copy, file, MOST_BYTES + 1)
    except (UnsafePath, OSError):
        raise UsageError(f"the skill has no file {file!r}") from None
    try:
        text = data[:MOST_BYTES].decode("utf-8", "strict" if len(data) <= MOST_BYTES else "ignore")
    except UnicodeDecodeError:
        raise UsageError(f"{file!r} is no text; a program in the sandbox may know what it is") from None
    return text if len(data) <= MOST_BYTES else f"{text}\n[… cut: {MOST_BYTES >> 10} KB are shown; read on with read]"
