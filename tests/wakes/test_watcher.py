"""Changes on a real file system are told, and nothing is lost, whatever becomes of a root."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from clawd.wakes.watcher import Watcher

pytestmark = pytest.mark.anyio

SECOND = 5.0  # what a person may rely on is tested with five times its time


class Heard:
    """What a root was told, and what of it still waits to be asked for."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.batches: list[frozenset[str]] = []

    def __call__(self, paths: frozenset[str]) -> None:
        self.paths |= paths
        self.batches.append(paths)

    async def until(self, *paths: str, within: float = SECOND) -> None:
        with anyio.fail_after(within):
            while not set(paths) <= self.paths:
                await anyio.sleep(0.01)
        self.paths.clear()


@asynccontextmanager
async def watching(watcher: Watcher) -> AsyncIterator[Watcher]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watcher.run)
        yield watcher
        began = anyio.current_time()
        tasks.cancel_scope.cancel()
    assert anyio.current_time() - began < SECOND / 2


async def test_first(tmp_path: Path) -> None:
    heard = Heard()
    async with watching(Watcher(print)) as watcher:
        watcher.watch("a", tmp_path, heard, deep=True)
        await heard.until("")
        (tmp_path / "x").write_text("x")
        await heard.until("x")
        (tmp_path / "d").mkdir()
        await heard.until("d")
        (tmp_path / "d" / "y").write_text("x")
        await heard.until("d")
        (tmp_path / "d" / "z").write_text("x")
        await heard.until("d/z")
