"""Changes on a real file system are told, and nothing is lost, whatever becomes of a root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawd.wakes import roots
from clawd.wakes import watcher as watcher_module
from clawd.wakes.roots import far_devices, lies_in, outermost
from clawd.wakes.watcher import Watcher, together

pytestmark = pytest.mark.anyio

SECOND = 5.0  # what a person may rely on is tested with five times its time


class Heard:
    """What a root was told since it was last asked for."""

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

    def clear(self) -> None:
        self.paths.clear()


@asynccontextmanager
async def watching(watcher: Watcher) -> AsyncIterator[Watcher]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watcher.run)
        yield watcher
        began = anyio.current_time()
        tasks.cancel_scope.cancel()
    assert anyio.current_time() - began < 5 * 0.5


def tasks_of_this_process() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


async def test_what_changes_is_told_whatever_it_is_called(tmp_path: Path) -> None:
    heard, flat = Heard(), Heard()
    root = tmp_path / "root"
    (root / "old" / "deep").mkdir(parents=True)
    (root / "left out").mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "loop").symlink_to(root)
    (root / "link").symlink_to(outside)
    names = ["plain", "a b", "line\nend", 'quo"te\\', "ü" * 127, "x" * 255, "-rf"]
    async with watching(Watcher(print)) as watcher:
        watcher.watch("deep", root, heard, deep=True, skip=lambda path: path.startswith("left out"))
        watcher.watch("flat", root, flat, deep=False)
        await heard.until("")
        await flat.until("")
        flat.clear()
        (outside / "not told").write_text("x")
        (root / "left out" / "not told").write_text("x")
        for name in names:
            (root / name).write_text("x")
            (root / "old" / "deep" / name).write_text("x")
        os.mkfifo(root / "pipe")
        await heard.until(*names, *(f"old/deep/{name}" for name in names), "pipe")
        await flat.until(*names, "pipe")
        assert flat.paths == {*names, "pipe"}
        heard.clear()
        (root / "plain").replace(root / "a b")
        (root / "-rf").unlink()
        (root / "old" / "deep" / "plain").chmod(0o600)
        await heard.until("plain", "a b", "-rf", "old/deep/plain")
        assert not any("told" in path or "link/" in path or "loop/" in path for path in heard.paths)


async def test_directories_that_come_and_go_are_told_and_nothing_in_them_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with so many that they are not all named anew for each that comes."""
    monkeypatch.setattr(watcher_module, "SMALL", 20)
    heard, root, elsewhere = Heard(), tmp_path / "root", tmp_path / "elsewhere"
    for n in range(60):
        (root / f"{n}").mkdir(parents=True)
    (elsewhere / "a" / "b").mkdir(parents=True)
    (elsewhere / "a" / "b" / "before").write_text("x")
    async with watching(Watcher(print)) as watcher:
        watcher.watch("r", root, heard, deep=True)
        await heard.until("")
        heard.clear()
        elsewhere.rename(root / "moved")
        grown = root / "grown"
        for n in range(12):
            grown = grown / f"{n}"
            grown.mkdir(parents=True)
            (grown / "file").write_text("x")
            await anyio.sleep(0.02)
        shutil.rmtree(root / "7")
        await heard.until("moved", "grown", "7")
        while True:  # until it is quiet, all are known
            seen = len(heard.batches)
            await anyio.sleep(1)
            if seen == len(heard.batches):
                break
        heard.clear()
        (grown / "file").write_text("more")
        (root / "moved" / "a" / "b" / "after").write_text("x")
        (root / "7").mkdir()
        (root / "8" / "in an old one").write_text("x")
        below = os.path.relpath(grown / "file", root)
        await heard.until(below, "moved/a/b/after", "7", "8/in an old one")
        heard.clear()
        (root / "moved").rename(tmp_path / "away")
        (tmp_path / "away" / "a" / "b" / "x").write_text("none of ours")
        await heard.until("moved")
        with anyio.fail_after(SECOND):  # one that came back is watched again
            while "7/x" not in heard.paths:
                (root / "7" / "x").write_text("x")
                await anyio.sleep(0.1)


async def test_a_root_is_found_again_whatever_became_of_it(tmp_path: Path) -> None:
    places = ["gone", "replaced", "late", "in a root"]
    heard = {place: Heard() for place in places}
    top = Heard()
    (tmp_path / "top" / "in a root").mkdir(parents=True)
    for place in ("gone", "replaced"):
        (tmp_path / place).mkdir()
    at = {place: tmp_path / ("top" if place == "in a root" else ".") / place for place in places}
    async with watching(Watcher(print, check_s=0.2)) as watcher:
        watcher.watch("top", tmp_path / "top", top, deep=False)
        for place in places:
            watcher.watch(place, at[place], heard[place], deep=True)
        for each in heard.values():
            await each.until("")
            each.clear()
        shutil.rmtree(at["gone"])
        shutil.rmtree(at["in a root"])
        at["replaced"].rename(tmp_path / "old")
        at["replaced"].mkdir()
        at["late"].mkdir()
        for each in heard.values():
            await each.until("")
            each.clear()
        at["gone"].mkdir()
        at["in a root"].mkdir()
        await heard["gone"].until("")
        await heard["in a root"].until("")
        await anyio.sleep(1)  # who was told that it is there may still be told of how it came
        for place in places:
            heard[place].clear()
            (at[place] / "x").write_text("x")
        for place in places:
            await heard[place].until("x")


async def test_a_storm_is_one_look_and_one_more_when_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher_module, "STORM", 200)  # a slow machine makes several batches of it
    heard, other = Heard(), Heard()
    (tmp_path / "storm").mkdir()
    (tmp_path / "calm").mkdir()
    async with watching(Watcher(print, quiet_s=0.5)) as watcher:
        watcher.watch("storm", tmp_path / "storm", heard, deep=True)
        watcher.watch("calm", tmp_path / "calm", other, deep=True)
        await heard.until("")
        await other.until("")
        before = len(heard.batches)
        heard.clear()
        other.clear()
        for n in range(2500):
            (tmp_path / "storm" / f"{n}").touch()
        await heard.until("")
        await other.until("")  # the system may have forgotten what was another's
        assert sum(len(batch) for batch in heard.batches[before:]) < 500


async def test_a_name_that_is_not_utf8_costs_its_directory_alone(tmp_path: Path) -> None:
    heard = Heard()
    (tmp_path / "bad").mkdir()
    (tmp_path / "good").mkdir()
    (tmp_path / "there" / os.fsdecode(b"before\xff")).mkdir(parents=True)
    async with watching(Watcher(print, poll_s=0.3)) as watcher:
        watcher.watch("r", tmp_path, heard, deep=True)
        await heard.until("")
        (tmp_path / "bad" / os.fsdecode(b'\xfe\n"')).write_text("x")
        await heard.until("bad")
        with anyio.fail_after(SECOND):
            while not {"bad", "there"} <= heard.paths or "" in heard.paths:  # by the clock alone
                heard.clear()
                await anyio.sleep(0.7)
        (tmp_path / "good" / "x").write_text("x")
        await heard.until("good/x")


async def test_who_cannot_be_watched_is_looked_at_by_the_clock_and_that_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limits of a user are for the whole machine, so what the library raises at them is raised here."""
    from watchfiles import _rust_notify

    class Limited:
        most = 5

        def __new__(cls, paths: Sequence[str], *more: Any) -> Any:
            if len(paths) > cls.most:
                raise OSError(
                    'OS file watch limit reached. (Error { kind: MaxFilesWatch, paths: ["/x"] }) about ["/x"]'
                )
            return real(paths, *more)

    real = _rust_notify.RustNotify
    monkeypatch.setattr(_rust_notify, "RustNotify", Limited)
    large, small, said = Heard(), Heard(), list[str]()
    for n in range(8):
        (tmp_path / "large" / f"{n}").mkdir(parents=True)
    (tmp_path / "small").mkdir()
    async with watching(Watcher(said.append, poll_s=0.3)) as watcher:
        watcher.watch("large", tmp_path / "large", large, deep=True)
        watcher.watch("small", tmp_path / "small", small, deep=True)
        for _ in range(3):
            large.clear()
            await large.until("")
        (tmp_path / "small" / "d").mkdir()
        await small.until("d")
        (tmp_path / "small" / "x").write_text("x")
        await small.until("x")
        assert len(said) == 1
        assert f"{tmp_path}/large are found only every 0.3 seconds" in said[0]
        assert "OS file watch limit reached" in said[0]
        Limited.most = 100
        (tmp_path / "small" / "e").mkdir()  # any renewal tries again
        with anyio.fail_after(SECOND):
            while "3/x" not in large.paths:
                (tmp_path / "large" / "3" / "x").write_text("x")
                await anyio.sleep(0.1)
        large.clear()
        await anyio.sleep(0.7)
        assert "" not in large.paths


WITHOUT_DESCRIPTORS = """
import os, resource, sys, anyio
from pathlib import Path
from watchfiles import _rust_notify  # to import it takes some
from clawd.wakes.watcher import Watcher

async def main(at):
    heard, taken = [], []
    watcher = Watcher(print, poll_s=0.2)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watcher.run)
        await anyio.to_thread.run_sync(lambda: None)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            for _ in range(2):  # to walk takes two, to watch one more
                os.close(taken.pop())
        watcher.watch("r", Path(at), heard.append, deep=True)
        with anyio.fail_after(20):
            while len(heard) < 4:
                await anyio.sleep(0.05)
        tasks.cancel_scope.cancel()

anyio.run(main, sys.argv[1])
"""


def test_without_a_free_descriptor_it_is_looked_at_by_the_clock(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_DESCRIPTORS, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (said,) = done.stdout.splitlines()
    assert "Too many open files" in said


async def test_a_file_system_that_others_write_to_is_looked_at_by_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path.stat().st_dev
    monkeypatch.setattr(watcher_module, "far_devices", lambda mounts: {device: "nfs4"})
    heard, before = Heard(), tasks_of_this_process()
    async with watching(Watcher(print, poll_s=0.2)) as watcher:
        watcher.watch("r", tmp_path, heard, deep=True)
        for _ in range(3):
            await heard.until("")
            heard.clear()
        assert tasks_of_this_process() <= before + 2


def test_kinds_of_file_systems() -> None:
    lines = [
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw",
        "36 22 0:51 / /mnt/a\\040b rw shared:2 master:1 - nfs4 server:/x rw,vers=4.2",
        "37 22 0:52 / /mnt/s rw - fuse.sshfs me@x: rw",
        "38 22 0:53 / /mnt/c rw - cifs //x/y rw",
        "39 22 0:54 / /tmp rw - tmpfs tmpfs rw",
    ]
    assert far_devices("\n".join(lines)) == {
        os.makedev(0, 51): "nfs4",
        os.makedev(0, 52): "fuse.sshfs",
        os.makedev(0, 53): "cifs",
    }


async def test_nothing_watched_has_no_thread(tmp_path: Path) -> None:
    heard = Heard()
    async with watching(Watcher(print)) as watcher:
        await anyio.sleep(0.1)
        before = tasks_of_this_process()
        assert not watcher._sights
        watcher.watch("r", tmp_path, heard, deep=True)
        await heard.until("")
        watcher.unwatch("r")
        watcher.unwatch("r")
        (tmp_path / "x").write_text("x")
        with anyio.fail_after(SECOND * 2):
            while watcher._sights or tasks_of_this_process() > before + 2:  # idle workers of anyio's
                await anyio.sleep(0.05)
        assert "x" not in heard.paths


IN_A_NAMESPACE = """
import sys, subprocess, anyio
from pathlib import Path
from clawd.wakes.watcher import Watcher

async def main(at):
    heard = []
    async def until(path):
        with anyio.fail_after(20):
            while not any(path in each for each in heard):
                await anyio.sleep(0.02)
        heard.clear()
    watcher = Watcher(print, check_s=0.2)
    subprocess.run(["mount", "-t", "tmpfs", "none", at], check=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watcher.run)
        watcher.watch("r", Path(at), heard.append, deep=True)
        await until("")
        subprocess.run(["umount", at], check=True)
        await until("")
        subprocess.run(["mount", "-t", "tmpfs", "none", at], check=True)
        await until("")
        await anyio.sleep(0.5)
        Path(at, "x").write_text("x")
        await until("x")
        tasks.cancel_scope.cancel()
    print("told")

anyio.run(main, sys.argv[1])
"""


def test_a_root_that_is_unmounted_and_mounted_again(tmp_path: Path) -> None:
    command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-c", IN_A_NAMESPACE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "told\n", done.stderr


@pytest.mark.parametrize(
    ("base", "young", "new", "all_at_once"),
    [(0, 0, 90_000, True), (100, 0, 5, True), (400, 90, 20, False), (20_000, 0, 1, False), (20_000, 4_999, 2, True)],
)
def test_what_is_named_anew(base: int, young: int, new: int, all_at_once: bool) -> None:
    assert together(base, young, new) is all_at_once


def test_places_within_others_are_left_out() -> None:
    a: Any = roots.Root("a", "/a", print, True, lambda path: False)
    b: Any = roots.Root("b", "/b", print, True, lambda path: False)
    assert outermost({(a, "x"), (a, "x/y/z"), (a, "xy"), (b, "x/y")}) == {(a, "x"), (a, "xy"), (b, "x/y")}
    assert outermost({(a, ""), (a, "x"), (b, "x")}) == {(a, ""), (b, "x")}
    assert lies_in("/a/b/c", {"/a/b"})
    assert not lies_in("/a/bc", {"/a/b"})
