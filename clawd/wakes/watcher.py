"""Tells rooms which paths beneath their roots to look at again, and never what became of them: a notice is a hint.

One watch for all roots. Directories are found by our own walker, which follows no link. A new directory is taken up
soon after it is seen, and then told once more, so that nothing is lost in between; after a storm all is told. Where the
system cannot tell (network file systems, its limits, names that are not UTF-8) a place is told every 10 s. Once every
30 s each root is compared with what is watched. With no root there is neither thread nor timer.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio import CapacityLimiter, to_thread
from anyio.abc import TaskGroup

from clawd.wakes.roots import (
    Hit,
    Place,
    Root,
    Unseen,
    by_root,
    far_devices,
    identity,
    is_directory,
    lies_in,
    outermost,
)
from clawd.wakes.sight import LONGEST_MS, STEP_MS, Changes, End, Lost, Sight, Unwatchable

log = logging.getLogger(__name__)

CHECK_S, POLL_S = 30.0, 10.0
RENEW_S, RENEW_SHARE = 0.4, 20  # a renewal waits so long, and so many times what the last one took
QUIET_S = 2.0  # after a storm
STORM = 2000  # changes at once; the system forgets some beyond 16,384, and says nothing
SMALL = 500  # directories that are cheap to name anew
ROUNDS = 3  # of a renewal, in a tree that grows meanwhile
MOST_UNDECODABLE = 8  # directories of a root with names that are not UTF-8
_DELETED, _ADDED = 3, 1  # watchfiles.Change


@dataclass(slots=True)
class _News:
    """What one batch of changes says."""

    hits: dict[Root, set[str]] = field(default_factory=lambda: defaultdict(set))
    renew: set[Place] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)  # directories that are not watched any more
    storm: bool = False


@dataclass(slots=True)
class _Renewal:
    sights: list[Sight]
    sentences: list[str] = field(default_factory=list)
    again: set[Place] = field(default_factory=set)

    def knows(self, directory: str) -> bool:
        return any(directory in sight.directories for sight in self.sights)


class Watcher:
    """`told` is given a sentence for the owner."""

    def __init__(
        self, told: Callable[[str], None], *, check_s: float = CHECK_S, poll_s: float = POLL_S, quiet_s: float = QUIET_S
    ) -> None:
        self._told, self._check_s, self._poll_s, self._quiet_s = told, check_s, poll_s, quiet_s
        self._roots: dict[str, Root] = {}
        self._at: dict[str, tuple[Root, ...]] = {}  # roots by path; replaced, never changed: threads read it
        self._sights: list[Sight] = []  # at most two: all directories, and those that came later
        self._stale: set[Place] = set()
        self._woken = anyio.Event()
        self._threads = CapacityLimiter(8)
        self._gone: set[str] = set()
        self._limits: set[str] = set()  # names of roots that are polled for a limit, which was said
        self._renew_at = self._check_at = self._poll_at = self._whole_at = math.inf
        self._rest_until = -math.inf  # no renewal before

    def watch(
        self, name: str, root: Path, hit: Hit, *, deep: bool, skip: Callable[[str], bool] = lambda relative: False
    ) -> None:
        """Have `hit` called in the event loop with paths, relative to `root`, that may have changed. A path may be a
        directory, which stands for all that is in it, and so does "" for everything: that comes once `root` is
        watched (or is known to be missing), after a storm, and whenever `root` came, went, or is another directory.
        Of a root that is not `deep` only what lies in itself is told. `skip` is asked, in any thread, for each path
        that is met; what is in a skipped directory is not looked for. Again with the same name replaces it.
        """
        self._drop(name)
        self._roots[name] = known = Root(name, str(root.absolute()), hit, deep, skip)
        self._index()
        self._renew_soon({(known, "")})

    def unwatch(self, name: str) -> None:
        """No `hit` any more. One that is not watched is no error."""
        self._drop(name)
        self._index()
        self._renew_soon(set())

    def _drop(self, name: str) -> None:
        root = self._roots.pop(name, None)
        self._stale = {place for place in self._stale if place[0] is not root}

    def _index(self) -> None:
        at: dict[str, tuple[Root, ...]] = {}
        for root in self._roots.values():
            at[root.path] = (*at.get(root.path, ()), root)
        self._at = at

    # ── its life ──

    async def run(self) -> None:
        """Watch until cancelled; the threads end within half a second."""
        async with anyio.create_task_group() as tasks:
            try:
                self._check_at, self._poll_at = anyio.current_time() + self._check_s, 0.0
                while True:
                    await self._wait()
                    try:
                        await self._do(tasks)
                    except Exception:  # a defect, or no thread is to be had: all of it again, later
                        log.exception("what is watched was not looked at")
                        self._rest_until = anyio.current_time() + self._check_s
                        self._renew_soon({(root, "") for root in self._roots.values()})
            finally:
                for sight in self._sights:
                    sight.stop()

    async def _wait(self) -> None:
        self._woken = anyio.Event()
        due = min(
            self._renew_at,
            self._whole_at,
            self._check_at if self._roots else math.inf,
            self._poll_at if any(root.polled for root in self._roots.values()) else math.inf,
        )
        with anyio.CancelScope(deadline=due):
            await self._woken.wait()

    async def _do(self, tasks: TaskGroup) -> None:
        now = anyio.current_time()
        if now >= self._renew_at:
            await self._renew(tasks)
        if now >= self._whole_at:
            self._whole_at = math.inf
            self._hit({root: {""} for root in self._roots.values()})
        if now >= self._poll_at:
            self._poll_at = now + self._poll_s
            self._hit({root: root.polled for root in self._roots.values()})
        if now >= self._check_at:
            self._check_at = now + self._check_s
            roots = list(self._roots.values())
            found = await to_thread.run_sync(lambda: [identity(root.path) for root in roots], limiter=self._threads)
            self._renew_soon({(root, "") for root, now_is in zip(roots, found, strict=True) if now_is != root.identity})

    def _renew_soon(self, places: set[Place]) -> None:
        self._stale |= {place for place in places if self._roots.get(place[0].name) is place[0]}
        if self._stale or (self._sights and not self._roots):
            due = max(anyio.current_time() + RENEW_S if self._sights else 0.0, self._rest_until)
            self._renew_at = min(self._renew_at, due)
            self._woken.set()

    def _hit(self, hits: Mapping[Root, Set[str]]) -> None:
        for root, paths in hits.items():
            if paths and self._roots.get(root.name) is root:
                try:
                    root.hit(frozenset({""}) if "" in paths else frozenset(paths))
                except Exception:
                    log.exception("what changed in %s was not heard", root.name)

    # ── what a sight tells ──

    async def _follow(self, sight: Sight) -> None:
        try:
            while True:
                try:
                    news = await to_thread.run_sync(self._read, sight, limiter=self._threads)
                except Exception as error:
                    self._lose(sight, error if isinstance(error, Lost) else Lost(repr(error)))
                    return
                if news is None:
                    return
                self._gone |= news.gone
                self._hit(news.hits)
                self._renew_soon(news.renew)
                if news.storm:
                    self._whole_at = anyio.current_time() + self._quiet_s
                    self._woken.set()
        finally:
            sight.close()

    def _read(self, sight: Sight) -> _News | None:
        changes = sight.read()
        return None if isinstance(changes, End) else self._sorted(changes)

    def _sorted(self, changes: Changes) -> _News:
        """In any thread. Of a storm only whose it is."""
        news, storm = _News(), len(changes) > STORM
        for change, path in changes:
            watched = any(path in sight.directories for sight in self._sights)
            if watched and change in (_ADDED, _DELETED):
                news.gone.add(path)
            directory = path in news.gone or (not storm and not watched and is_directory(path))
            for root, relative in self._places(path):
                news.hits[root].add("" if storm else relative)
                if storm or directory:
                    news.renew.add((root, "" if storm else relative))
        news.renew = {(root, at) for root, at in news.renew if root.deep or not at}
        news.storm = storm
        return news

    def _places(self, path: str) -> Iterator[Place]:
        """All roots that want to hear of it."""
        at = len(path)
        while at > 0:
            for root in self._at.get(path[:at], ()):
                if root.wants(relative := path[at + 1 :]):
                    yield root, relative
            at = path.rfind("/", 0, at)

    def _lose(self, sight: Sight, error: Lost) -> None:
        log.warning("the watch is made anew: %s", error)
        sight.lost = True
        for root, relative in self._places(error.undecodable):
            root.undecodable.add(relative if len(root.undecodable) < MOST_UNDECODABLE else "")
        self._sights = [each for each in self._sights if not each.lost]
        self._renew_soon({(root, "") for root in self._roots.values()})

    # ── renewals ──

    async def _renew(self, tasks: TaskGroup) -> None:
        self._renew_at = math.inf
        if not self._roots:
            self._take([], tasks)
            return
        places, gone = self._stale, self._gone
        self._stale, self._gone = set(), set()
        named, wanted = sum(len(each.directories) for each in self._sights), sum(r.size for r in self._roots.values())
        if anew := named > 2 * wanted + SMALL:  # most of it is nobody's any more
            places = {(root, "") for root in self._roots.values()}
        places = outermost(places | {(root, "") for root in self._roots.values() if root.limited})
        began = anyio.current_time()
        done = await to_thread.run_sync(self._renewed, places, gone, anew, limiter=self._threads)
        now = anyio.current_time()
        if self._sights:  # the first one is not to keep others waiting
            self._rest_until = now + RENEW_SHARE * (now - began)
        self._take(done.sights, tasks)
        for sentence in done.sentences:
            self._told(sentence)
        self._hit(by_root(places))
        self._renew_soon(done.again)

    def _take(self, sights: list[Sight], tasks: TaskGroup) -> None:
        """Follow these from now on. What went before tells what it has to tell."""
        before, self._sights = self._sights, [sight for sight in sights if not sight.lost]
        for sight in self._sights:
            if sight not in before:
                tasks.start_soon(self._follow, sight)
        for sight in before:
            if sight not in sights:
                tasks.start_soon(_retire, sight)

    def _renewed(self, places: Set[Place], gone: Set[str], anew: bool) -> _Renewal:
        """In a thread. Walked is until all that is found is named already: what came meanwhile is found, too."""
        done = _Renewal([] if anew else list(self._sights))
        gone = {*gone, *(root.path for root, at in places if not at and root.identity != identity(root.path))}
        for sight in done.sights if gone else ():
            sight.directories = {each for each in sight.directories if not lies_in(each, gone)}
        far: Mapping[int, str] = {}
        with suppress(OSError):
            far = far_devices(Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape"))
        for again in range(ROUNDS):
            found: dict[Root, set[str]] = defaultdict(set)
            for root, relative in places:
                if not (again and root.limited):
                    try:
                        found[root] |= root.directories(relative, far, done.knows)
                    except Unseen as error:
                        self._give_up(root, str(error), done)
            if not self._named(found, done):
                break
        else:
            done.again |= places
        for root in found:
            if not root.limited and root.name in self._limits:
                self._limits.discard(root.name)
                log.info("%s is watched again", root.path)
        return done

    def _named(self, found: Mapping[Root, Set[str]], done: _Renewal) -> bool:
        """Have the sights show what was found; gives whether that is anything. Where the system gives no more watches,
        the largest root goes without."""
        while new := set[str]().union(*(each for root, each in found.items() if not root.limited)):
            base, young = ([sight.directories for sight in done.sights] + [set(), set()])[:2]
            try:
                if together(len(base), len(young), len(new)):
                    done.sights = [Sight(new | base | young)]
                else:
                    done.sights = [done.sights[0], Sight(new | young)]
                return True
            except Unwatchable as error:
                largest = max((root for root in found if not root.limited), key=lambda root: len(found[root]))
                self._give_up(largest, str(error), done)
        return False

    def _give_up(self, root: Root, why: str, done: _Renewal) -> None:
        root.limited, root.size, root.polled = True, 0, {""}
        if root.name not in self._limits:
            self._limits.add(root.name)
            done.sentences.append(
                f"Changes in {root.path} are found only every {self._poll_s:g} seconds, for it cannot be watched:"
                f" {why}. (How much can be is set by: sysctl fs.inotify)"
            )


async def _retire(sight: Sight) -> None:
    """End it once it has told what it saw before another took over."""
    try:
        await anyio.sleep((LONGEST_MS + 2 * STEP_MS) / 1000)
    finally:
        sight.stop()


def together(base: int, young: int, new: int) -> bool:
    """Whether so many directories are all named anew, in one sight. The library takes them at its making alone, so
    those that come are in a second, small one, until it is no longer small."""
    return base + young + new <= SMALL or young + new > max(SMALL, base // 4) or not base
