"""Tasks that fail alone: a defect in one of them is logged and told, and the others go on."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from anyio.abc import TaskGroup

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
