"""A desk in memory that keeps the rules of the real one: fenced, idempotent, one hand-out to one worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio

from clawd.errors import LeaseLost
from clawd.turns.desk import Control, Effect, Final, Lease, Offer, ToolCall

TOKEN = "the-token"


@dataclass
class HeldTurn:
    """A turn on the desk. `steps` are the durable messages; `lease` is None until somebody claims it."""

    id: int
    wakes: list[dict[str, Any]]
    context: dict[str, Any]
    attempt: int = 1
    lease: Lease | None = None
    steps: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    confirmed: bool = False
    stopping: bool = False
    final: Final | None = None
    finals: int = 0


class MemoryDesk:
    def __init__(self, parallel: int = 4) -> None:
        self.parallel = parallel
        self.turns: dict[int, HeldTurn] = {}
        self.effects: dict[tuple[Any, ...], Effect] = {}
        self.given: set[int] = set()  # effects of which somebody surely knows
        self.slowly: anyio.Event | None = None  # what an effect that is done waits for before it is told of
        self.hellos: list[tuple[int, int]] = []
        self.polls = 0
        self.calls: list[str] = []
        self.notes: list[dict[str, Any]] = []  # of steps
        self._news = anyio.Event()

    # ---- what a test does

    def submit(self, *texts: str, origin: str = "owner", **context: Any) -> HeldTurn:
        """A new turn with one wake a text."""
        number = len(self.turns) + 1
        wakes = [
            {
                "id": number * 100 + nth,
                "kind": "message",
                "parts": [{"kind": "typed", "origin": origin, "text": text}],
            }
            for nth, text in enumerate(texts)
        ]
        turn = self.turns[number] = HeldTurn(number, wakes, {"authority": "owner", "ordinal": 0, **context})
        self.changed()
        return turn

    def script(self, *steps: dict[str, Any], text: str = "hi", **context: Any) -> HeldTurn:
        return self.submit(text, engine="scripted", script={"steps": list(steps)}, **context)

    def requeue(self, turn: HeldTurn) -> None:
        """The sandbox that held the turn is known dead."""
        turn.attempt, turn.lease, turn.confirmed = turn.attempt + 1, None, False
        self.changed()

    def stop(self, turn: HeldTurn) -> None:
        turn.stopping = True
        self.changed()

    async def until(self, condition: Callable[[], Any], seconds: float = 20) -> None:
        """Wait for something to become true of the desk; a test fails when it does not."""
        with anyio.fail_after(seconds):
            while not condition():
                await self._news.wait()

    async def done(self, turn: HeldTurn, seconds: float = 20) -> Final:
        await self.until(lambda: turn.final, seconds)
        assert turn.final is not None
        return turn.final

    def changed(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    # ---- the desk

    async def hello(self, run: str, pid: int, start: int) -> dict[str, Any]:
        self.hellos.append((pid, start))
        self.changed()
        return {
            "token": TOKEN,
            "limits": {"parallel": self.parallel},
            "clock": "2026-11-29T14:00:00.000+02:00",
        }

    async def next_turn(self, run: str, worker: int, wait: float) -> Offer | None:
        self.polls += 1
        self.changed()
        with anyio.move_on_after(wait):
            while True:
                for turn in self.turns.values():
                    mine = turn.lease is not None and (turn.lease.run, turn.lease.worker) == (run, worker)
                    if turn.final is None and (turn.lease is None or mine):
                        turn.lease = Lease(run, turn.id, turn.attempt, worker)
                        self.changed()
                        return Offer(turn.id, turn.attempt, list(turn.steps), turn.wakes, turn.context, {})
                await self._news.wait()
        return None

    async def control(self, run: str, wait: float) -> list[Control]:
        with anyio.move_on_after(wait):
            while True:
                stopping = [turn for turn in self.turns.values() if turn.stopping and turn.final is None]
                if stopping:
                    return [Control(turn.id, "stop") for turn in stopping]
                await self._news.wait()
        return []

    async def more(self, lease: Lease) -> list[Control]:
        turn = self._held(lease)
        return [Control(turn.id, "stop")] if turn.stopping else []

    async def step(
        self, lease: Lease, n: int, message: dict[str, Any], shown: list[int], notes: dict[str, Any] | None = None
    ) -> None:
        turn = self._held(lease)
        if n == len(turn.steps):
            turn.steps.append(message)
            self.notes += [notes] if notes else []
        self.calls.append("step")
        self.changed()

    async def events(self, lease: Lease, events: list[dict[str, Any]]) -> None:
        turn = self._held(lease)
        turn.confirmed = True
        turn.events += events
        self.calls.append("events")
        self.changed()

    async def effect_result(self, call: ToolCall) -> Effect | None:
        self._held(call.lease)
        return self.effects.get(self._key(call))

    async def effect(self, call: ToolCall, act: Callable[[Any, int], dict[str, Any]]) -> Effect:
        self._held(call.lease)
        key = self._key(call)
        if key not in self.effects:
            number = len(self.effects) + 1
            self.effects[key] = Effect(act(None, number), number)
        self.changed()
        if self.slowly is not None:
            await self.slowly.wait()
        return self.effects[key]

    async def acknowledge(self, lease: Lease, effect: int) -> None:
        self.given.add(effect)
        self.changed()

    def _key(self, call: ToolCall) -> tuple[Any, ...]:
        content = call.lease.turn, call.tool, str(sorted(call.arguments.items()))
        equal = [each for key, each in self.effects.items() if key[:3] == content and each.id in self.given]
        return *content, len(equal) if call.nth is None else call.nth

    async def final(self, lease: Lease, final: Final) -> None:
        turn = self.turns.get(lease.turn)
        self.calls.append("final")
        if turn is not None and turn.final is not None and turn.lease == lease:
            turn.finals += 1
            return
        turn = self._held(lease)
        turn.final = final
        turn.finals = 1
        self.changed()

    def _held(self, lease: Lease) -> HeldTurn:
        turn = self.turns.get(lease.turn)
        if turn is None or turn.lease != lease or turn.final is not None:
            raise LeaseLost("this attempt no longer holds its turn")
        return turn
