"""Locks: one per key within the daemon, and the one file lock that makes a home belong to one process."""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio

from clawd.errors import HomeBusy, StorageError


class KeyedLocks:
    """A lock for each key, forgotten when nobody holds or awaits it."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, tuple[anyio.Lock, int]] = {}

    @asynccontextmanager
    async def hold(self, key: Hashable) -> AsyncIterator[None]:
        lock, users = self._locks.get(key, (anyio.Lock(), 0))
        self._locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[key]
            if users == 1:
                del self._locks[key]
            else:
                self._locks[key] = (lock, users - 1)


class HomeLock:
    """`flock` on `state/lock`, kept until the process ends, however it ends. The file names the holder's
    pid."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Raises HomeBusy, naming the process that holds the home; StorageError when the file cannot be
        written."""
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageError(
                f"{self.path} cannot be written: {error.strerror}", hint="the daemon must own its state/"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise HomeBusy(
                f"another clawd daemon (pid {holder or 'unknown'}) holds {self.path.parent.parent}",
                hint="clawd status tells what it is doing; end it first, or use another --home",
            ) from None
        self._descriptor = descriptor
        with suppress(OSError):  # on a full disk the lock holds without naming its holder
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
