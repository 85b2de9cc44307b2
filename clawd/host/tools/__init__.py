"""Host tools: what an agent may ask of the daemon. One small module each, with `NAME`, `DESCRIPTION` and `DECLARED` for
every prompt, `HELP` for whoever asks, `Arguments`, and `prepare`, which does what is slow and gives the act that runs
inside the ledger's transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel

from clawd.channel import ChannelLimits
from clawd.clock import Clock
from clawd.config.home import Home
from clawd.files import Blobs
from clawd.model import Button, DeliveryKind
from clawd.turns.desk import Lease

if TYPE_CHECKING:
    from clawd.ledger.db import Transaction
    from clawd.turns.memory import TurnMemory
    from clawd.turns.skills import TurnSkills

Act = Callable[["Transaction", int], dict[str, Any]]


class Enqueue(Protocol):
    """Put a row into the outbox, in the transaction of the effect that asks for it: of the turn's own chat, or with
    `to` of another binding of its group. Where the channel has no buttons they are left out. Gives what the agent is
    told where the owner is asked first, and nothing is sent yet. Raises UsageError where the turn may not, or the
    channel cannot."""

    def __call__(
        self,
        tx: Transaction,
        effect_id: int,
        /,
        *,
        kind: DeliveryKind,
        text: str,
        blob: str | None = None,
        name: str | None = None,
        to: str = "",
        target: str | None = None,
        whole: str | None = None,
        buttons: Sequence[Button] = (),
    ) -> dict[str, Any] | None: ...


class Change(Protocol):
    """Have something done that outlives the turn, a kind of approval with its effect, in the transaction of the effect
    that asks for it: at once where the turn acts for the owner and nothing from outside has reached it (with `always`
    not even then), or with `own`, for what takes nothing away but what the turn could have made; else once the owner
    said yes. Gives {done} or {waits}, what the agent is told. Raises UsageError where it cannot be, or the owner said
    no."""

    def __call__(
        self,
        tx: Transaction,
        kind: str,
        effect: Mapping[str, Any],
        what: str,
        *,
        always: bool = False,
        own: bool = False,
    ) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may use for a turn. `work` is the group's, on the host; `done` is told when an effect is durable;
    `max_file_bytes` bounds a file that is sent; `zone` is the group's. For whom the turn acts and what it has fallen to
    is the ledger's to know, in the transaction."""

    lease: Lease
    work: Path
    blobs: Blobs
    enqueue: Enqueue
    change: Change
    group: str
    clock: Clock
    done: Callable[[], None]
    max_file_bytes: int = 50 << 20
    home: Home = Home(Path())  # noqa: RUF009  (it is frozen)
    zone: str = "UTC"
    skills: TurnSkills | None = None
    memory: TurnMemory | None = None


class Tool(Protocol):
    """A tool module. `DECLARED` are the arguments that every prompt names; () declares a tool that takes anything."""

    NAME: str
    DESCRIPTION: str
    DECLARED: tuple[str, ...]
    HELP: str
    Arguments: type[BaseModel]

    async def prepare(self, context: ToolContext, arguments: Any) -> Act | dict[str, Any]:
        """Check, and do what a transaction must not wait for; gives the act, or an answer that needs none. Raises
        ClawdError with a sentence for the agent."""
        ...


def told(result: dict[str, Any]) -> Act:
    """The act of what is done already."""
    return lambda tx, effect_id: result


ToolTable = Mapping[str, Tool]
UNDECLARED = frozenset({"memory"})  # in no prompt: another face of what is declared


def built_in() -> ToolTable:
    """Every tool that ships."""
    from clawd.host.tools import (
        ask,
        memory,
        memory_delete,
        memory_propose,
        memory_read,
        memory_search,
        memory_update,
        memory_write,
        note,
        react,
        schedule,
        send_file,
        send_message,
        skill_propose,
        skill_read,
        tool_help,
        watch,
    )

    # mypy cannot see a type attribute in a module
    table: list[Any] = [send_message, send_file, ask, react, schedule, watch, skill_read, skill_propose]
    table += [memory_write, memory_search, memory_read, memory_update, memory_delete, memory_propose, note, tool_help]
    table.append(memory)
    return {tool.NAME: tool for tool in table}


def schema(tool: Tool) -> dict[str, Any]:
    """The whole JSON schema of a tool's arguments."""
    return dict(_untitled(tool.Arguments.model_json_schema()))


@lru_cache(maxsize=8)
def declarations(limits: ChannelLimits) -> list[dict[str, Any]]:
    """The tools as every prompt declares them, for a turn whose chat is on a channel with these limits."""
    return [
        {"name": name, "description": tool.DESCRIPTION, "parameters": _declared(tool), "where": "host"}
        for name, tool in built_in().items()
        if name not in UNDECLARED and (name != "react" or limits.reactions)
    ]


def _declared(tool: Tool) -> dict[str, Any]:
    """The part of its schema that every prompt pays for."""
    whole = schema(tool)
    said = {name: _bare(whole["properties"][name]) for name in tool.DECLARED}
    required = [name for name in whole.get("required", ()) if name in said]
    return {"type": "object", **({"properties": said, "required": required} if said else {})}


def _bare(value: dict[str, Any]) -> dict[str, Any]:
    items = {"items": _bare(value["items"])} if "items" in value else {}
    return {"type": value["type"], **items}


def _untitled(value: Any) -> Any:
    """A schema of pydantic's without the titles that it makes up."""
    if isinstance(value, dict):
        return {key: _untitled(item) for key, item in value.items() if key != "title" or not isinstance(item, str)}
    return [_untitled(item) for item in value] if isinstance(value, list) else value
