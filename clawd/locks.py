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
    """`flock` on `state/` itself, kept until the process ends, however it ends: a file in it could be removed
    under its holder. `state/lock` is held too, and names the holder's pid."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptors: list[int] = []

    def acquire(self) -> None:
        """Raises HomeBusy, naming the process that holds the home; StorageError when the file cannot be
        written."""
        try:
            self._descriptors.append(os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            self._descriptors.append(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            self.release()
            raise StorageError(
                f"{self.path} cannot be written: {error.strerror}", hint="the daemon must own its state/"
            ) from error
        named = self._descriptors[-1]
        try:
            for descriptor in self._descriptors:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(named, 32, 0).decode("ascii", "replace").strip()
            self.release()
            raise HomeBusy(
                f"another clawd daemon (pid {holder or 'unknown'}) holds {self.path.parent.parent}",
                hint="clawd status tells what it is doing; end it first, or use another --home",
            ) from None
        with suppress(OSError):  # on a full disk the lock holds without naming its holder
            os.ftruncate(named, 0)
            os.pwrite(named, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())
