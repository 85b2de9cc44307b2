"""The command line's end of the control socket. asyncio alone, so that a command starts fast."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Any

from clawd.control import wire
from clawd.errors import ClawdError, UsageError


class NoDaemon(ClawdError):
    """Nobody answers on the home's control socket."""


class ConnectionLost(ClawdError):
    """The daemon went away; what was asked may or may not have been done."""


class ControlClient:
    """One connection: `async with ControlClient(home.state) as client`. Raises NoDaemon on entry."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._number = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._events: asyncio.Queue[tuple[str, dict[str, Any]] | None] = asyncio.Queue()
        self._lost = False

    async def __aenter__(self) -> ControlClient:
        try:
            connection = wire.connect(self._directory)
        except OSError as error:
            raise NoDaemon(
                f"no clawd daemon answers in {self._directory.parent}", hint="start one: clawd run"
            ) from error
        self._reader, self._writer = await asyncio.open_unix_connection(sock=connection, limit=wire.ANSWER_LIMIT)
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reading.cancel()
        self._writer.close()

    async def call(self, op: str, **params: Any) -> Any:
        """The result of an operation. Raises what the daemon raised, or ConnectionLost."""
        self._number += 1
        line = wire.encode({"id": self._number, "op": op, "params": params})
        if len(line) > wire.LIMIT:
            raise UsageError(f"this is longer than {wire.LIMIT} bytes, the most that fits in one message")
        if self._lost:
            raise _lost()
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        try:
            self._writer.write(line)
            await self._writer.drain()
        except ConnectionError as error:
            raise _lost() from error
        return await answer

    async def events(self) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """(kind, data) of each event, in order. Raises ConnectionLost at the end."""
        while (event := await self._events.get()) is not None:
            yield event
        raise _lost()

    async def _read(self) -> None:
        try:
            while (line := await wire.read_line(self._reader)) is not None:
                message = wire.decode(line)
                if "event" in message:
                    self._events.put_nowait((message["event"], message["data"]))
                    continue
                answer = self._answers.pop(message.get("id") or 0, None)
                if answer is None or answer.done():
                    continue
                if message.get("ok"):
                    answer.set_result(message.get("result"))
                else:
                    answer.set_exception(_raised(message["error"]))
        except (ConnectionError, UsageError):
            pass  # the end of the connection, told below
        self._lost = True
        self._events.put_nowait(None)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(_lost())


def _lost() -> ConnectionLost:
    return ConnectionLost("the daemon went away", hint="clawd status tells whether it is back")


def _raised(error: dict[str, Any]) -> ClawdError:
    if error.get("ending") is True:
        return ConnectionLost(str(error.get("message")), hint=error.get("hint"))
    try:
        wire.raise_error(error)
    except ClawdError as raised:
        return raised
