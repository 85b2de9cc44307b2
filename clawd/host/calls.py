"""Calls of host tools on a run's socket, by whoever in the sandbox shows the run's token: one code path, whether they
come to `/host/v1/tools` or as MCP.

No turn, no tool: a call belongs to a live turn of the run. What it does is done once; that an answer was surely written
is noted after it was, so that one that got lost is given again and never done again.
"""

from __future__ import annotations

import base64
import binascii
import functools
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from aiohttp import web
from pydantic import ValidationError

from clawd.clock import Clock
from clawd.errors import ClawdError, LeaseLost, StorageError, findings
from clawd.host import bodies
from clawd.host.bodies import Problem
from clawd.host.connection import reply
from clawd.host.tools import ToolContext, ToolTable
from clawd.turns.desk import Desk, Effect, Lease, ToolCall

if TYPE_CHECKING:
    from clawd.gateway.caller import Caller

log = logging.getLogger(__name__)


class Leases:
    """The leases that are live in a run, as far as its socket knows."""

    def __init__(self, live: Iterable[Lease]) -> None:
        self.live: dict[int, Lease] = {lease.turn: lease for lease in live}

    def forget(self, worker: int) -> None:
        """This worker holds nothing."""
        self.live = {turn: lease for turn, lease in self.live.items() if lease.worker != worker}

    async def fenced(self, lease: Lease, doing: Awaitable[Any]) -> Any:
        """What the desk takes from a lease shows that it is live (also after a restart), what it refuses that it is
        not."""
        try:
            result = await doing
        except LeaseLost:
            if self.live.get(lease.turn) == lease:
                del self.live[lease.turn]
            raise
        self.live[lease.turn] = lease
        return result


class ToolCalls:
    """The host tools of one run. `context` is what a tool may use for a turn, `caller` the run as its gateway
    knows it."""

    def __init__(
        self,
        run: str,
        *,
        desk: Desk,
        tools: ToolTable,
        context: Callable[[Lease], ToolContext],
        token_ok: Callable[[str, str], bool],
        caller: Caller,
        leases: Leases,
        clock: Clock,
    ) -> None:
        self.tools = tools
        self._run, self._desk, self._context, self._token_ok = run, desk, context, token_ok
        self._caller, self._leases = caller, leases
        self._rate = Rate(bodies.CALLS_PER_SECOND, clock)

    def admit(self, request: web.BaseRequest) -> None:
        """Raises Problem 403 without the run's token."""
        token = token_of(request.headers.get("Authorization", ""))
        if not token or not self._token_ok(self._run, token):
            raise Problem(403, "no_token", "host tools need the run's token (CLAWD_TOKEN)")

    async def post(self, request: web.BaseRequest, name: str, is_runner: bool) -> web.StreamResponse:
        """A call as the run's own protocol has it."""
        self.admit(request)
        self._ration()
        body = bodies.decode(await read(request, bodies.TOOL_BYTES), bodies.ToolBody)
        if is_runner and body.turn is not None and body.attempt is not None and body.worker is not None:
            lease = Lease(self._run, body.turn, body.attempt, body.worker)  # the desk knows whether it holds
        else:
            lease = self._lease(request, body.turn)
            if body.attempt not in (None, lease.attempt):
                raise LeaseLost("this attempt no longer holds its turn")
        effect = await self._do(lease, name, body.arguments, body.nth)
        return await self.answer(request, reply({"result": effect.result}), [(lease, effect)])

    async def call(self, request: web.BaseRequest, name: str, arguments: dict[str, Any]) -> tuple[Lease, Effect]:
        """A call of a process that knows neither turn nor number. Raises Problem and ClawdError with a sentence for the
        agent."""
        self._ration()
        lease = self._lease(request, None)
        return lease, await self._do(lease, name, arguments, None)

    async def answer(
        self, request: web.BaseRequest, response: web.Response, given: list[tuple[Lease, Effect]]
    ) -> web.StreamResponse:
        """Write an answer, and keep which effects it surely told of."""
        known = [(lease, effect.id) for lease, effect in given if effect.id is not None]
        if known and await written(request, response):
            try:
                for lease, id in known:
                    await self._desk.acknowledge(lease, id)
            except ClawdError as error:  # then an equal call without a number gets this result once more
                log.warning("run %s: %s", self._run, error)
        return response

    def _ration(self) -> None:
        if not self._rate.take():
            raise Problem(429, "too_fast", f"more than {bodies.CALLS_PER_SECOND} tool calls in a second")

    async def _do(self, lease: Lease, name: str, arguments: dict[str, Any], nth: int | None) -> Effect:
        tool = self.tools.get(name)
        if tool is None:
            raise Problem(404, "no_tool", f"there is no tool of this name; there are {', '.join(sorted(self.tools))}")
        try:
            checked = tool.Arguments.model_validate(arguments)
        except ValidationError as error:
            sentence = f"{findings(error, 'the arguments')}; tool_help {name} shows what it takes"
            raise Problem(400, "arguments", sentence) from None
        call = ToolCall(lease, name, checked.model_dump(), nth)
        known: Effect | None = await self._leases.fenced(lease, self._desk.effect_result(call))
        if known is not None:
            return known
        context = self._context(lease)
        act = await tool.prepare(context, checked)
        if isinstance(act, dict):
            return Effect(act)
        effect: Effect = await self._leases.fenced(lease, self._desk.effect(call, act))
        context.done()
        return effect

    def _lease(self, request: web.BaseRequest, turn: int | None) -> Lease:
        """The live turn that a call belongs to: the one that is named, by its number or its session's name, or else
        the only one."""
        live = self._leases.live
        session = request.headers.get(bodies.SESSION)
        if turn is None and session is not None:
            turn = self._caller.turn_of(session)
        elif turn is None and len(live) == 1:
            [turn] = live
        lease = live.get(turn) if turn is not None else None
        if lease is None:
            named = f"name it (CLAWD_TURN), or its session ({bodies.SESSION})"
            raise Problem(403, "no_turn", f"host tools work only while a turn is live; {named}")
        return lease


class Rate:
    """At most `limit` calls in any second."""

    def __init__(self, limit: int, clock: Clock) -> None:
        self._limit = limit
        self._clock = clock
        self._times: list[float] = []

    def take(self) -> bool:
        now = self._clock.monotonic()
        self._times = [time for time in self._times if now - time < 1]
        if len(self._times) >= self._limit:
            return False
        self._times.append(now)
        return True


async def written(request: web.BaseRequest, response: web.StreamResponse) -> bool:
    """Write an answer whole. Gives whether every byte of it is with a peer that was still there."""
    try:
        await response.prepare(request)
        await response.write_eof()
    except ConnectionError:
        return False
    transport = request.transport
    return transport is not None and not transport.is_closing() and not transport.get_write_buffer_size()


def problem_of(error: ClawdError) -> Problem:
    """An error that somebody has a sentence for, as it is answered."""
    if isinstance(error, LeaseLost):
        return Problem(409, "lease_lost", error.message)
    if isinstance(error, StorageError):
        return Problem(503, "storage", str(error))
    return Problem(422, "refused", str(error))


def token_of(header: str) -> str:
    """The token of `Bearer TOKEN`, or of user information in a URL (`Basic`), as its password or its user."""
    scheme, _, value = header.partition(" ")
    if scheme.casefold() == "bearer":
        return value.strip()
    if scheme.casefold() != "basic":
        return ""
    try:
        user, _, password = base64.b64decode(value.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return ""
    return password or user


async def read(request: web.BaseRequest, limit: int) -> bytes:
    """The whole body. Raises Problem 413 before more than `limit` bytes are held."""
    too_large = functools.partial(Problem, 413, "too_large", f"the body is larger than {limit >> 10} KiB", close=True)
    if (request.content_length or 0) > limit:
        raise too_large()
    data = bytearray()
    async for chunk in request.content.iter_any():
        data += chunk
        if len(data) > limit:
            raise too_large()
    return bytes(data)
