"""Locks: one at a time for each key, and one daemon a home."""

import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from clawd.errors import HomeBusy, StorageError
from clawd.locks import HomeLock, KeyedLocks


@pytest.mark.anyio
async def test_one_at_a_time_for_each_key() -> None:
    locks = KeyedLocks()
    inside: list[str] = []
    most: dict[str, int] = {}

    async def work(key: str) -> None:
        async with locks.hold(key):
            inside.append(key)
            most[key] = max(most.get(key, 0), inside.count(key))
            most["all"] = max(most.get("all", 0), len(inside))
            await anyio.lowlevel.checkpoint()
            inside.remove(key)

    async with anyio.create_task_group() as tasks:
        for key in "aabbab":
            tasks.start_soon(work, key)
    assert most == {"a": 1, "b": 1, "all": 2}
    assert not locks._locks


@pytest.mark.anyio
async def test_a_lock_is_forgotten_when_its_holder_fails_or_a_waiter_is_cancelled() -> None:
    locks = KeyedLocks()
    with pytest.raises(RuntimeError):
        async with locks.hold("a"):
            raise RuntimeError

    async def wait() -> None:
        async with locks.hold("a"):
            raise AssertionError("two hold one lock")

    async with locks.hold("a"), anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert not locks._locks


def test_a_second_process_is_told_who_holds_the_home(tmp_path: Path) -> None:
    path = tmp_path / "state" / "lock"
    path.parent.mkdir()
    program = (
        "import sys; from pathlib import Path; from clawd.locks import HomeLock\n"
        "lock = HomeLock(Path(sys.argv[1])); lock.acquire(); print('held', flush=True); sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdin is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(HomeBusy, match=rf"pid {holder.pid}\) holds {tmp_path}") as caught:
        HomeLock(path).acquire()
    assert caught.value.code == 3
    holder.kill()
    holder.wait()
    lock = HomeLock(path)  # however the holder ended
    lock.acquire()
    assert path.read_text() == f"{os.getpid()}\n"
    lock.release()
    lock.release()
    again = HomeLock(path)
    again.acquire()
    again.release()


def test_the_home_stays_held_when_the_file_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "state" / "lock"
    path.parent.mkdir()
    held = HomeLock(path)
    held.acquire()
    path.unlink()
    with pytest.raises(HomeBusy):
        HomeLock(path).acquire()
    held.release()
    HomeLock(path).acquire()


def test_a_state_directory_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be written"):
        HomeLock(tmp_path / "none" / "lock").acquire()
