"""`sandbox exec` over the control socket: a first message that carries stdin, stdout and stderr as
descriptors.

Its line is an ordinary request; the answer's result is {"code": N}. A client that closes the connection ends
the command.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio

from clawd.control import wire
from clawd.errors import ClawdError, UsageError

OP = "sandbox.exec"
COUNT = 3

# Runs the command of {group, argv, environment} with three descriptors, which it leaves open; gives the exit
# code. When it is cancelled it ends the command.
OnExec = Callable[[dict[str, Any], Sequence[int]], Awaitable[int]]


async def receive_first(connection: socket.socket) -> tuple[bytes, list[int]]:
    """The first bytes of a connection and the descriptors that came with them, which the caller closes."""
    await anyio.wait_readable(connection)
    data, descriptors, _, _ = socket.recv_fds(connection, 1 << 16, COUNT, socket.MSG_CMSG_CLOEXEC)
    return data, descriptors


async def answer(connection: socket.socket, first: bytes, descriptors: Sequence[int], on_exec: OnExec) -> None:
    """Run the one request of such a connection and answer it. Raises ClawdError, to be answered by the
    caller."""
    loop = asyncio.get_running_loop()
    while b"\n" not in first:
        more = await loop.sock_recv(connection, 1 << 16)
        if not more:
            return
        first += more
        if len(first) > wire.LIMIT:
            raise UsageError(f"the line is longer than {wire.LIMIT} bytes")
    request = wire.decode(first)
    params = request.get("params")
    argv = params.get("argv") if isinstance(params, dict) else None
    if request.get("op") != OP or len(descriptors) != COUNT or not isinstance(params, dict) or not _is_command(argv):
        raise UsageError(f"descriptors come with {OP}, a command and its three standard streams")
    code: int | None = None
    refused: ClawdError | None = None
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            if not await loop.sock_recv(connection, 1):
                tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        try:
            code = await on_exec(params, descriptors)
        except ClawdError as error:  # raised below: a task group would wrap it
            refused = error
        tasks.cancel_scope.cancel()
    if refused is not None:
        raise refused
    if code is not None:
        message = {"id": request.get("id"), "ok": True, "result": {"code": code}}
        await loop.sock_sendall(connection, wire.encode(message))


def _is_command(argv: object) -> bool:
    return isinstance(argv, list) and bool(argv) and all(isinstance(word, str) for word in argv)


def execute(directory: Path, params: dict[str, Any], descriptors: Sequence[int] = (0, 1, 2)) -> int:
    """Have the daemon run a command on our own descriptors; gives its exit code. Blocks; an interrupt closes
    the connection, which ends the command. Raises OSError when no daemon listens, ClawdError for its
    refusals."""
    with wire.connect(directory) as connection:
        line = wire.encode({"id": 1, "op": OP, "params": params})
        if len(line) > wire.LIMIT:
            raise UsageError("the command line is too long")
        sent = socket.send_fds(connection, [line[: 1 << 15]], list(descriptors))
        connection.sendall(line[sent:])
        with connection.makefile("rb") as file:
            reply = file.readline(wire.LIMIT)
    if not reply.endswith(b"\n"):
        raise ClawdError("the daemon ended before the command did")
    result = wire.decode(reply)
    if not result.get("ok"):
        wire.raise_error(result["error"])
    return int(result["result"]["code"])


def close(descriptors: Sequence[int]) -> None:
    """Close what came with a first message."""
    for descriptor in descriptors:
        os.close(descriptor)
