"""Opens the socket of each run. The HTTP server is imported with the first one, beside the loop."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio

from clawd.channel import ChannelLimits
from clawd.clock import Clock, rfc3339
from clawd.config.home import Home
from clawd.files import Blobs
from clawd.host.peer import Peer
from clawd.model import Lease
from clawd.turns.counter import Counter
from clawd.turns.memory import Memories, TurnMemory
from clawd.turns.run import Run
from clawd.turns.skills import Skills, TurnSkills

if TYPE_CHECKING:
    from clawd.gateway.caller import Caller
    from clawd.gateway.gateway import Gateway
    from clawd.host.changes import Asks


class Sockets:
    """`open` serves a run from here on; `on_second_hello` hears of a run whose runner is played by another. `caller`
    is a run as the gateway sees it. `limits` are those of a channel that is there, `bindings` and `zone` a group's;
    `asks` has the owner asked about what a tool does; `asked` hears when an effect is durable, which may be a
    question."""

    def __init__(
        self,
        counter: Counter,
        clock: Clock,
        home: Home,
        limits: Callable[[str], ChannelLimits | None],
        bindings: Callable[[str], Sequence[str]],
        zone: Callable[[str], str],
        asks: Asks,
        asked: Callable[[], None],
        on_second_hello: Callable[[Run], None],
        caller: Callable[[Run], Caller],
        gateway: Callable[[], Awaitable[Gateway]],
        skills: Skills,
        memories: Memories,
    ) -> None:
        self._counter, self._clock, self._home = counter, clock, home
        self._limits, self._bindings, self._zone, self._asks, self._asked = limits, bindings, zone, asks, asked
        self._on_second_hello = on_second_hello
        self._caller, self._gateway, self._skills, self._memories = caller, gateway, skills, memories

    @asynccontextmanager
    async def open(self, run: Run) -> AsyncIterator[None]:
        changes, sends, server, tools = await anyio.to_thread.run_sync(_import)
        uid = os.geteuid() if run.spec.uid is None else run.spec.uid

        def context(lease: Lease) -> Any:
            now, bindings = rfc3339(self._clock.now()), self._bindings(run.group)
            enqueue = sends.Sends(lease.turn, self._limits, bindings, self._asks, now)
            change = changes.Changes(lease.turn, self._asks)
            work, blobs = run.spec.work, Blobs(self._home.blobs)
            skills = TurnSkills(self._skills, run, lease, frozenset(tools.built_in()))
            memory = TurnMemory(self._memories, run.group, lease, self._caller(run).taint)
            more = {"memory": memory, "home": self._home, "zone": self._zone(run.group), "skills": skills}
            return tools.ToolContext(lease, work, blobs, enqueue, change, run.group, self._clock, self._asked, **more)

        async with server.HostServer(
            run.id,
            run.spec.socket_directory / "s",
            owns=lambda pid: run.sandbox.owns(pid) if run.sandbox else None,
            uid=run.spec.uid,
            desk=self._counter,
            tools=tools.built_in(),
            context=context,
            token_ok=self._counter.knows,
            on_second_hello=lambda: self._on_second_hello(run),
            caller=self._caller(run),
            gateway=self._gateway,
            runner=Peer(run.runner[0], uid, run.runner[1]) if run.runner else None,
            live=[Lease(run.id, live.turn, live.attempt, live.worker) for live in run.live.values()],
        ):
            yield


def _import() -> tuple[Any, Any, Any, Any]:
    from clawd.host import changes, sends, server, tools

    return changes, sends, server, tools
