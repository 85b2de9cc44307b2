"""The run's socket: the turn protocol for the runner, host tools (also as MCP) for whoever in the sandbox shows the
run's token, and for the same the way to the gateway, which decides about services and the proxy.

Identity is the socket: each run has its own, the kernel says which process is at the other end, and no body
says who it is. The turn protocol is taken from the one process that said the first `hello`. Everything that
arrives is hostile: it is bounded before it is read, checked before it is used, and answered with a sentence, never
with a traceback.

Importing this module imports aiohttp: a daemon does so with its first run.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, cast

from aiohttp import web

from clawd.clock import Clock, SystemClock
from clawd.errors import ClawdError
from clawd.host import bodies, mcp
from clawd.host.bodies import Problem
from clawd.host.calls import Leases, ToolCalls, problem_of, read
from clawd.host.connection import Connection, TooSlow, problem, reply, server
from clawd.host.peer import Peer
from clawd.host.tools import ToolContext, ToolTable
from clawd.model import Usage
from clawd.turns.desk import Control, Desk, Final, Lease

if TYPE_CHECKING:
    from clawd.gateway.caller import Caller
    from clawd.gateway.gateway import Gateway, Handler, Inner

log = logging.getLogger(__name__)

_KEEP_ALIVE = 3600.0  # a sandbox may be paused for long; its connections stay


class HostServer:
    """One run's socket at `path`. Use as a context manager, or `start` and `stop`.

    `owns` tells whether a process belongs to the run's sandbox, None while that is not known yet; `uid` is
    the group's own user, None for the daemon's. `runner` and `live` leases are known already when a run is
    adopted. `on_second_hello` is called when a second process says `hello`: the run is to be ended. `caller` is
    the run as the gateway sees it, `gateway` gives that."""

    def __init__(
        self,
        run: str,
        path: Path,
        *,
        owns: Callable[[int], bool | None],
        uid: int | None,
        desk: Desk,
        tools: ToolTable,
        context: Callable[[Lease], ToolContext],
        token_ok: Callable[[str, str], bool],
        on_second_hello: Callable[[], None],
        caller: Caller,
        gateway: Callable[[], Awaitable[Gateway]],
        runner: Peer | None = None,
        live: Iterable[Lease] = (),
        clock: Clock | None = None,
    ) -> None:
        self.run = run
        self.path = path
        self.runner = runner
        self._owns = owns
        self._uid = uid
        self._desk = desk
        self._on_second_hello = on_second_hello
        self._caller = caller
        self._gateway = gateway
        self._leases = leases = Leases(live)
        clock = clock or SystemClock()
        self._calls = ToolCalls(
            run, desk=desk, tools=tools, context=context, token_ok=token_ok, caller=caller, leases=leases, clock=clock
        )
        self._heard = False  # the runner has its token: it took part in the turn protocol
        self._noting: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._http: web.Server | None = None

    # ---- the socket

    async def __aenter__(self) -> HostServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen. A runner that knew an earlier socket of this path finds this one in its place."""
        directory = self.path.parent
        directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.mkdir(mode=0o711, exist_ok=True)
        directory.chmod(0o711)  # the sandbox's user passes through; the parent is the daemon's alone
        new = self.path.with_name(f"{self.path.name}.new")
        new.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.fchmod(listener.fileno(), 0o600)  # before the name exists: no link can be put in between
            listener.bind(str(new))
            if self._uid is not None:
                os.chown(new, self._uid, -1, follow_symlinks=False)
            self._http = http = server(self._handle)
            loop = asyncio.get_running_loop()

            def connect() -> Connection:
                return Connection(
                    http,
                    self._admit,
                    lasting=lambda peer: peer is not None and peer == self.runner,
                    unread=self._unread,
                    loop=loop,
                    keepalive_timeout=_KEEP_ALIVE,
                    tcp_keepalive=False,
                    access_log=None,
                    auto_decompress=False,
                )

            self._server = await loop.create_unix_server(connect, sock=listener, backlog=bodies.CONNECTIONS)
        except BaseException:
            listener.close()
            raise
        new.rename(self.path)

    async def stop(self) -> None:
        """Close every connection. Long-polls end at once; a call that is being done may end first."""
        if self._server is None or self._http is None:
            return
        self._server.close()
        for connection in self._http.connections:
            cast(Connection, connection).end_poll()
        self._http.pre_shutdown()
        await self._http.shutdown(2.0)
        self._server = self._http = None

    def _admit(self, peer: Peer | None) -> Problem | None:
        """Whether a process may speak here at all."""
        uid = os.geteuid() if self._uid is None else self._uid
        owned = peer is not None and peer.uid == uid and self._owns(peer.pid)
        if owned is None:
            return Problem(503, "starting", "the sandbox is being made; ask again", close=True)
        if not owned:
            log.warning("run %s: a process outside its sandbox was refused", self.run)
            return Problem(403, "not_this_sandbox", "this socket belongs to another sandbox", close=True)
        # The runner's are counted apart: what an agent keeps open does not keep the runner out.
        held = self._http.connections if self._http is not None else []
        alike = [each for each in held if (cast(Connection, each).peer == self.runner) == (peer == self.runner)]
        if len(alike) >= bodies.CONNECTIONS:
            return Problem(503, "too_many_connections", "too many connections; close some", close=True)
        return None

    def _unread(self, status: int, rule: str) -> None:
        """What was refused before anybody could tell what it asks for has its line in the audit too."""

        async def note() -> None:
            (await self._gateway()).unread(self._caller, status, rule)

        task = asyncio.get_running_loop().create_task(note())
        self._noting.add(task)
        task.add_done_callback(self._noting.discard)

    # ---- requests

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = cast(Connection, request.protocol)
        return await self._answer(request, connection, lambda: self._route(request, connection))

    async def _answer(
        self,
        request: web.BaseRequest,
        connection: Connection,
        doing: Callable[[], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        try:
            if connection.refusal is not None:
                raise connection.refusal
            return await doing()
        except Problem as error:
            return problem(error)
        except ClawdError as error:
            return problem(problem_of(error))
        except TooSlow as error:
            return problem(Problem(408, "too_slow", str(error), close=True))
        except (web.RequestPayloadError, ConnectionError):
            return problem(Problem(400, "malformed", "the body was cut off", close=True))
        except Exception:
            log.exception("run %s: %s failed", self.run, request.method)
            return problem(Problem(500, "internal", "the daemon failed at this; its log says more", close=True))

    async def _route(self, request: web.BaseRequest, connection: Connection) -> web.StreamResponse:
        target = request.raw_path
        path, _, query = target.partition("?")
        # `//host/…` could be read as an address elsewhere: the gateway refuses it, and writes that down.
        if request.method == "CONNECT" or not target.startswith("/") or path.startswith(("/svc/", "//")):
            gateway = await self._gateway()
            # Who goes away, and this server's end, end what was asked for too.
            own = connection.peer == self.runner and request.method == "POST"
            return await connection.wait(lambda: gateway.serve(request, self._caller, self._inner(connection), own))
        if path == bodies.MCP:
            return await mcp.serve(request, self._calls)
        if path.startswith(bodies.TOOLS) and request.method == "POST":
            return await self._calls.post(request, path.removeprefix(bodies.TOOLS), connection.peer == self.runner)
        if path == bodies.HELLO and request.method == "POST":
            return await self._hello(request, connection)
        if path not in (bodies.TURN, bodies.CONTROL) and not path.startswith(bodies.TURN + "/"):
            raise Problem(404, "not_found", "there is nothing here")
        if connection.peer != self.runner:
            raise Problem(403, "not_the_runner", "the turn protocol belongs to the run's runner")
        self._heard = True
        if request.method == "GET" and path == bodies.TURN:
            return await self._next_turn(connection, query)
        if request.method == "GET" and path == bodies.CONTROL:
            wait = min(bodies.query_of(query, "wait")["wait"], bodies.LONGEST_POLL)
            return controls(await connection.wait(lambda: self._desk.control(self.run, wait)))
        number, _, verb = path.removeprefix(bodies.TURN + "/").partition("/")
        if not (number.isascii() and number.isdigit() and len(number) < 17):
            raise Problem(404, "not_found", "there is nothing here")
        return await self._of_turn(request, int(number), verb, query)

    def _inner(self, outer: Connection) -> Inner:
        """What speaks HTTP in a tunnel that `outer` becomes."""

        def inner(handler: Handler) -> Connection:
            return outer.inner(
                lambda request: self._answer(request, cast(Connection, request.protocol), lambda: handler(request))
            )

        return inner

    async def _hello(self, request: web.BaseRequest, connection: Connection) -> web.StreamResponse:
        """The first one fixes the runner. It may say it again until it shows that it heard the answer, which a crash
        of the daemon can have taken."""
        bodies.decode(await read(request, bodies.EVENTS_BYTES), bodies.Hello)
        peer = self.runner = self.runner or connection.peer
        if peer is None or connection.peer != peer or self._heard:
            log.warning("run %s: a second hello; the run ends", self.run)
            self._on_second_hello()
            raise Problem(403, "second_hello", "this run has its runner; it ends now", close=True)
        return reply(await self._desk.hello(self.run, peer.pid, peer.started))

    async def _next_turn(self, connection: Connection, query: str) -> web.StreamResponse:
        asked = bodies.query_of(query, "wait", "worker")
        worker, wait = int(asked["worker"]), min(asked["wait"], bodies.LONGEST_POLL)
        offer = await connection.wait(lambda: self._desk.next_turn(self.run, worker, wait))
        # Whoever asks has nothing; what came late from its last turn may have brought that back.
        self._leases.forget(worker)
        if offer is None:
            return web.Response(status=204)
        self._leases.live[offer.turn] = Lease(self.run, offer.turn, offer.attempt, worker)
        return reply({field.name: getattr(offer, field.name) for field in fields(offer)})

    async def _of_turn(self, request: web.BaseRequest, turn: int, verb: str, query: str) -> web.StreamResponse:
        if request.method == "GET" and verb == "more":
            asked = bodies.query_of(query, "attempt", "worker")
            lease = Lease(self.run, turn, int(asked["attempt"]), int(asked["worker"]))
            return controls(await self._leases.fenced(lease, self._desk.more(lease)))
        if request.method == "POST" and verb == "step":
            step = bodies.decode(await read(request, bodies.STEP_BYTES), bodies.Step)
            message = step.message.model_dump(exclude_unset=True)
            lease = self._lease(turn, step)
            await self._leases.fenced(lease, self._desk.step(lease, step.n, message, step.shown, step.notes))
        elif request.method == "POST" and verb == "events":
            events = bodies.decode(await read(request, bodies.EVENTS_BYTES), bodies.Events)
            lease = self._lease(turn, events)
            await self._leases.fenced(
                lease, self._desk.events(lease, [event.model_dump(exclude_unset=True) for event in events.events])
            )
        elif request.method == "POST" and verb == "final":
            body = bodies.decode(await read(request, bodies.FINAL_BYTES), bodies.FinalBody)
            lease = self._lease(turn, body)
            await self._desk.final(lease, final_of(body))
            self._leases.live.pop(turn, None)
        else:
            raise Problem(404, "not_found", "there is nothing here")
        return reply({})

    def _lease(self, turn: int, body: bodies.Fenced) -> Lease:
        return Lease(self.run, turn, body.attempt, body.worker)


def controls(news: list[Control]) -> web.Response:
    return reply({"control": [asdict(item) for item in news]}) if news else web.Response(status=204)


def final_of(body: bodies.FinalBody) -> Final:
    """Raises Problem 413 for a text that is longer than an answer may be."""
    if len(body.text.encode()) > bodies.TEXT_BYTES:
        raise Problem(413, "too_large", f"the final text is longer than {bodies.TEXT_BYTES >> 10} KiB")
    fields = body.model_dump(exclude={"schema_", "attempt", "worker", "usage"})
    return Final(**fields, usage=Usage(**body.usage.model_dump()) if body.usage else None)
