"""Tasks that fail alone: a defect in one of them is logged and told, and the others go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from anyio.abc import TaskGroup

from clawd.errors import LeaseLost

T = TypeVar("T")
log = logging.getLogger(__name__)


class Tasks:
    """A task group that no task can end. `failed` hears of each failure, with the task's name."""

    def __init__(self, group: TaskGroup, failed: Callable[[str, Exception], None] = lambda name, error: None) -> None:
        self._group, self._failed = group, failed

    def start_soon(self, work: Callable[..., Awaitable[Any]], *arguments: Any, name: str | None = None) -> None:
        self._group.start_soon(self._alone, work, arguments, name or work.__qualname__, name=name)

    async def _alone(self, work: Callable[..., Awaitable[Any]], arguments: tuple[Any, ...], name: str) -> None:
        try:
            await work(*arguments)
        except Exception as error:
            log.exception("%s failed", name)
            self._failed(name, error)


class Whole:
    """Carries what was begun to its end even if whoever asked for it goes away meanwhile: what was committed must be
    known to this process too."""

    def __init__(self) -> None:
        self._doing: set[asyncio.Task[Any]] = set()

    async def __call__(self, doing: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(doing)
        self._doing.add(task)
        task.add_done_callback(self._doing.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_unheard)
            raise


def _unheard(task: asyncio.Task[Any]) -> None:
    """What nobody waits for any more has ended: its failure is logged here, or nowhere. A run that is over is none."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, LeaseLost):
        log.error("what was asked over a connection that dropped failed", exc_info=error)
