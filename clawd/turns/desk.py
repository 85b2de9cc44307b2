"""The desk: what the run's socket (host/) may ask of the turns, as plain values. The run is known from the socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from clawd.model import Control, Effect, Final, Lease, Offer

__all__ = ["Control", "Desk", "Effect", "Final", "Lease", "Offer", "ToolCall"]

if TYPE_CHECKING:
    from clawd.ledger.db import Transaction


class ToolCall(NamedTuple):
    """A host tool's call, as it is known again: the same turn, tool and arguments for the `nth` time. Without a number
    it is the first one whose result has not surely been given since the turn was last claimed."""

    lease: Lease
    tool: str
    arguments: dict[str, Any]
    nth: int | None


class Desk(Protocol):
    """The turn protocol, host side. Every call with a Lease raises LeaseLost when it is stale."""

    async def hello(self, run: str, pid: int, start: int) -> dict[str, Any]:
        """The run is ready, and its runner is this process (pid, start time). Gives what the runner may know: {token,
        limits, clock}. A runner that did not hear the answer asks again, and gets a new token."""
        ...

    async def next_turn(self, run: str, worker: int, wait: float) -> Offer | None:
        """Claim a turn, or wait up to `wait` seconds for one. The same worker asking again gets the same turn."""
        ...

    async def control(self, run: str, wait: float) -> list[Control]:
        """Long-poll: what live turns of this run must be told (stop, shutdown)."""
        ...

    async def more(self, lease: Lease) -> list[Control]:
        """The same for one turn at a tool boundary, without waiting."""
        ...

    async def step(
        self, lease: Lease, n: int, message: dict[str, Any], shown: list[int], notes: dict[str, Any] | None = None
    ) -> None:
        """Make message `n` (from 0, assistant and tool messages alike) durable. The same n twice is one step. `notes`
        are what its agent holds on to: they are no part of the conversation."""
        ...

    async def events(self, lease: Lease, events: list[dict[str, Any]]) -> None:
        """Confirm the hand-out, renew the lease, pass deltas on."""
        ...

    async def effect_result(self, call: ToolCall) -> Effect | None:
        """What this call gets without being done again: its first result, or a refusal."""
        ...

    async def effect(self, call: ToolCall, act: Callable[[Transaction, int], dict[str, Any]]) -> Effect:
        """Do a host tool's effect once: `act(tx, effect_id)` runs in the transaction that stores its result; the
        same call gives the stored result."""
        ...

    async def acknowledge(self, lease: Lease, effect: int) -> None:
        """Its result was surely written to whoever asked: from now on an equal call without a number is another one."""
        ...

    async def final(self, lease: Lease, final: Final) -> None:
        """End the turn. Accepted once; a replay by the same lease is answered like the first."""
        ...
