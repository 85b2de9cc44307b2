"""Host tools: what an agent may ask of the daemon. One small module each, with `NAME`, `DESCRIPTION`,
`Arguments` and `prepare`, which does what is slow and gives the act that runs inside the ledger's
transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel

from clawd.files import Blobs
from clawd.model import DeliveryKind
from clawd.turns.desk import Lease

if TYPE_CHECKING:
    from clawd.ledger.db import Transaction

Act = Callable[["Transaction", int], dict[str, Any]]


class Enqueue(Protocol):
    """Put a row into the outbox of the turn's own chat, in the transaction of the effect that asks for it."""

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
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may use. `work` is the group's, on the host; `max_file_bytes` bounds a file that is
    sent."""

    lease: Lease
    work: Path
    blobs: Blobs
    enqueue: Enqueue
    max_file_bytes: int = 50 << 20


class Tool(Protocol):
    """A tool module."""

    NAME: str
    DESCRIPTION: str
    Arguments: type[BaseModel]

    async def prepare(self, context: ToolContext, arguments: Any) -> Act:
        """Check, and do what a transaction must not wait for. Raises ClawdError with a sentence for the
        agent."""
        ...


ToolTable = Mapping[str, Tool]


def declarations() -> list[dict[str, Any]]:
    """What a model is told of them: {name, description, parameters}."""
    return [
        {"name": name, "description": tool.DESCRIPTION, "parameters": tool.Arguments.model_json_schema()}
        for name, tool in built_in().items()
    ]


def built_in() -> ToolTable:
    """Every tool that ships."""
    from clawd.host.tools import send_file, send_message

    table: list[Any] = [send_message, send_file]  # modules: mypy cannot see a type attribute in one
    return {tool.NAME: tool for tool in table}
