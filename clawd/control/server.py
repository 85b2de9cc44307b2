"""The daemon's end of the control socket: only peers of its own uid and pid namespace, one bad line disturbs
nobody.

An operation is a function of the request's params that gives a JSON-ready value; ClawdError travels to the
client with its exit code, anything else is logged and answered with a sentence. `chat.*` needs a connection
of its own.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup

from clawd.control import descriptors, wire
from clawd.control.chat import ChatHost, Conversation
from clawd.errors import ClawdError, UsageError

log = logging.getLogger(__name__)

NAME_CHECK_S = 30.0  # how often it is looked whether the socket still has its name

Operation = Callable[[dict[str, Any]], Awaitable[Any]]


class ControlServer:
    """Serves `directory/control.sock` until `serve` is cancelled. The caller holds the home's lock."""

    def __init__(
        self,
        directory: Path,
        operations: Mapping[str, Operation],
        chat: ChatHost,
        on_exec: descriptors.OnExec | None = None,
    ) -> None:
        self._directory = directory
        self._operations = operations
        self._chat = chat
        self._on_exec = on_exec

    async def serve(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Started once the socket takes connections; made again when somebody removes it. Raises OSError when it cannot
        be made."""
        async with anyio.create_task_group() as connections:
            listener = wire.listen(self._directory)
            task_status.started()
            while True:
                await self._listen(listener, connections)
                log.warning("control socket: it was taken away; it is made again")
                listener = await self._made_again()

    async def _made_again(self) -> socket.socket:
        while True:
            try:
                return wire.listen(self._directory)
            except OSError as error:
                log.error("control socket: it cannot be made again: %s", error)
                await anyio.sleep(NAME_CHECK_S)

    async def _listen(self, listener: socket.socket, connections: TaskGroup) -> None:
        """Accept until the socket's name leads elsewhere: then nobody finds it any more."""
        name = self._directory / wire.NAME
        with listener:
            made = _place(name)
            try:
                async with anyio.create_task_group() as accepting:
                    accepting.start_soon(self._accept, listener, connections)
                    while _place(name) == made:
                        await anyio.sleep(NAME_CHECK_S)
                    accepting.cancel_scope.cancel()
            finally:
                if _place(name) == made:
                    name.unlink(missing_ok=True)

    async def _accept(self, listener: socket.socket, connections: TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError as error:  # too many open files, say: what is open may end
                log.error("control socket: nothing can be accepted just now: %s", error)
                await anyio.sleep(1)
                continue
            connections.start_soon(self._connection, connection)

    async def _connection(self, connection: socket.socket) -> None:
        with connection:
            connection.setblocking(False)
            try:
                if wire.is_own(connection):
                    await self._answer(connection)
                else:
                    log.warning("control socket: a peer of another user or namespace was refused")
            except (ConnectionError, asyncio.IncompleteReadError):
                pass  # the peer went away, which is its right
            except Exception:
                log.exception("control socket: a connection failed")

    async def _answer(self, connection: socket.socket) -> None:
        first, passed = await descriptors.receive_first(connection)
        try:
            if passed:
                await self._exec(connection, first, passed)
                return
        finally:
            descriptors.close(passed)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=wire.LIMIT)
        reader.feed_data(first)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, connection)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            await self._requests(reader, writer)
        finally:
            writer.close()
            with anyio.move_on_after(1, shield=True), suppress(ConnectionError):
                await writer.wait_closed()
            transport.abort()

    async def _exec(self, connection: socket.socket, first: bytes, passed: list[int]) -> None:
        try:
            if self._on_exec is None:
                raise UsageError(f"{descriptors.OP} is not served here")
            await descriptors.answer(connection, first, passed, self._on_exec)
        except ClawdError as error:
            reply = {"id": None, "ok": False, "error": wire.error_of(error)}
            await asyncio.get_running_loop().sock_sendall(connection, wire.encode(reply))

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def send(message: dict[str, Any]) -> None:
            line = wire.encode(message)
            if len(line) > wire.ANSWER_LIMIT and "id" in message:
                line = wire.encode({"id": message["id"], "ok": False, "error": wire.error_of(_too_long(len(line)))})
            writer.write(line)
            await writer.drain()

        async def event(kind: str, data: dict[str, Any]) -> None:
            with suppress(ConnectionError):  # the reading side notices
                await send({"event": kind, "data": data})

        async with anyio.create_task_group() as tasks:
            conversation = Conversation(self._chat, tasks, event)
            operations: dict[str, Operation] = {
                **self._operations,
                "chat.open": conversation.open,
                "chat.send": conversation.send,
                "chat.seen": conversation.seen,
            }
            while True:
                try:
                    line = await wire.read_line(reader)
                    if line is None:
                        break
                    reply = await _reply(wire.decode(line), operations)
                except UsageError as error:
                    reply = {"id": None, "ok": False, "error": wire.error_of(error)}
                except ConnectionError:  # it left, and did not read what it was told
                    break
                try:
                    await send(reply)
                except ConnectionError:
                    break
            tasks.cancel_scope.cancel()


def _too_long(size: int) -> ClawdError:
    limit = wire.ANSWER_LIMIT >> 20
    return ClawdError(f"it was done, but the answer has {size >> 20:,} MB, and no more than {limit} MB can be sent")


def _place(path: Path) -> tuple[int, int] | None:
    """Which file a path leads to; None when to none."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


async def _reply(request: dict[str, Any], operations: Mapping[str, Operation]) -> dict[str, Any]:
    """The answer to one request. It never raises."""
    number, name, params = request.get("id"), request.get("op"), request.get("params", {})
    try:
        operation = operations.get(name) if isinstance(name, str) else None
        if operation is None or not isinstance(params, dict):
            raise UsageError(f"the daemon knows no operation {name!r} with such params")
        return {"id": number, "ok": True, "result": await operation(params)}
    except ClawdError as error:
        return {"id": number, "ok": False, "error": wire.error_of(error)}
    except Exception:
        log.exception("control socket: %s failed", name)
        failure = ClawdError("the daemon failed on this request", hint="its log says more: clawd doctor")
        return {"id": number, "ok": False, "error": wire.error_of(failure)}
