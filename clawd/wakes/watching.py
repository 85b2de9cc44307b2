"""One `[[watch]]` rule at work: its folders are looked at where something may have changed, what differs is read once
it stands still, and told by one wake.

What differs is a row from the first look on, so whatever comes between (a crash, the cool-down, the end of the hour) is
told once afterwards. What the group's own turns changed is no news to it.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread

from clawd import faults
from clawd.approvals.watch import digest
from clawd.clock import moment_of, rfc3339
from clawd.config.group import Watch
from clawd.errors import ClawdError, UnsafePath
from clawd.ledger import authored, groups, seen, wakes
from clawd.ledger.db import Transaction
from clawd.ledger.groups import UID_BASE
from clawd.ledger.seen import Known, Stat
from clawd.model import Authority
from clawd.trust import Origin
from clawd.wakes import tree
from clawd.wakes.folders import Root, roots
from clawd.wakes.settling import AFTER_TURN_S, COARSE_S, HOUR_S, LISTED, STILL_S, Own, due, parts, wait
from clawd.wakes.tree import Look, Piece

if TYPE_CHECKING:
    from clawd.wakes.files import Files

log = logging.getLogger(__name__)

CHECK_S = 30.0  # how often a folder is looked for that is not there, or not shown
MOST_DIRTY = 2000  # paths of a folder; beyond that all of it is looked at
_READ_AT_ONCE = 64 << 20  # bytes; an end waits for that
_ROWS = 200


class Watching:
    """`watch` may be another one with the same paths and globs at any time; `nudge` tells of that."""

    def __init__(self, room: Files, group: str, id: str, watch: Watch) -> None:
        self.group, self.watch, self.rule = group, watch, (group, id)
        self._room, self._ledger, self._clock = room, room.ledger, room.clock
        self._dirty: dict[str, set[str]] = {}
        self._roots: dict[str, Root] = {}
        self._watched: dict[str, str] = {}  # paths by root
        # By root: the `device` that all of it was looked at on, whether it is `gone` now, and what was `told` of it.
        self._state: dict[str, dict[str, Any]] = {}
        self._met = set[str]()  # roots that were looked at in this life
        self._down = self._ending = False
        self._first: float | None = None
        self._last = 0.0
        self._news, self.ended = anyio.Event(), anyio.Event()

    # ── its life ──

    def nudge(self) -> None:
        """What it says, or what it may see, may have changed."""
        for key in self._roots:
            self._hit(key, frozenset({""}))
        self._news.set()

    def stop(self) -> None:
        self._ending = True
        self._news.set()

    async def attend(self) -> None:
        """Until it is stopped."""
        try:
            row = await self._ledger.insist(lambda tx: seen.begin(tx, self.rule))
            self._state = json.loads(row["roots"])
            self._changed()  # what waited to be told when an earlier life ended
            while not self._ending:
                self._news = anyio.Event()
                try:
                    pause = await self._pass()
                except Exception as error:
                    about = None if isinstance(error, ClawdError | OSError) else error  # a defect
                    log.error("what %s watches cannot be looked at: %s", self.group, error, exc_info=about)
                    self._dirty, pause = {key: {""} for key in self._roots}, CHECK_S
                    self._changed()
                with anyio.move_on_after(pause):
                    await self._news.wait()
        finally:
            for key in list(self._watched):
                self._unwatch(key)
            self.ended.set()

    async def _pass(self) -> float:
        """Look and tell what is due. Gives seconds until there is more to do."""
        if self._dirty or not self._roots:
            await self._find()
            dirty, self._dirty = self._dirty, {}
            for key, paths in dirty.items():
                if (root := self._roots.get(key)) is not None and not self._ending:
                    async with self._room.looks:
                        await self._look(root, paths)
        pause = await self._tell()
        if missing := [key for key in self._roots if self._state.get(key, {}).get("gone")]:
            if pause >= CHECK_S:
                for key in missing:
                    self._dirty[key] = {""}
            pause = min(pause, CHECK_S)
        return pause

    # ── its folders ──

    async def _find(self) -> None:
        """Its folders, as they are allowed now. Each is watched from then on, which has all of it looked at."""
        room, group = self._room, self.group
        found = await to_thread.run_sync(
            lambda: roots(group, room.home.group(group), self.watch.paths, partial(room.mounts, group), room.judge)
        )
        self._roots = {root.key: root for root in found}
        for key, path in list(self._watched.items()):
            if key not in self._roots or self._roots[key].problem or str(self._roots[key].path) != path:
                self._unwatch(key)
        for key, root in self._roots.items():
            if root.problem:
                self._dirty.setdefault(key, {""})
            elif key not in self._watched:
                self._watched[key] = str(root.path)
                hit = partial(self._hit, key)
                room.watcher.watch(self._name(key), root.path, hit, deep=True, skip=tree.is_left_out)

    def _name(self, key: str) -> str:
        return f"watch:{self.group}:{self.rule[1]}:{key}"

    def _unwatch(self, key: str) -> None:
        del self._watched[key]
        self._room.watcher.unwatch(self._name(key))

    def _hit(self, key: str, paths: frozenset[str]) -> None:
        known = self._dirty.setdefault(key, set())
        known |= paths
        if "" in known or len(known) > MOST_DIRTY:
            self._dirty[key] = {""}
        self._news.set()

    def _changed(self) -> None:
        self._last = self._clock.monotonic()
        self._first = self._last if self._first is None else self._first

    async def _is(self, key: str, told: str = "", **state: Any) -> None:
        """How a folder is now, durably. What is wrong with it is told once."""
        before = self._state.get(key, {})
        self._state[key] = {**before, "gone": False, "told": told, **state}
        if self._state[key] == before:
            return
        base, news = await self._room.base(self.group), told and told != before.get("told")

        def tell(tx: Transaction) -> None:
            seen.keep_roots(tx, self.rule, self._state)
            if news:
                self._room.say(tx, self.group, base, told)

        await self._ledger.do(tell)
        if news:
            self._room.said(self.group)

    # ── looking ──

    async def _look(self, root: Root, paths: set[str]) -> None:
        key, state = root.key, self._state.get(root.key, {})
        if root.problem:
            await self._is(key, f"{key} is not watched: {root.problem}.", gone=True)
            return
        if state.get("gone"):
            paths = {""}
        try:
            top = await to_thread.run_sync(root.open)
        except (OSError, UnsafePath) as error:
            self._met.add(key)
            if isinstance(error, FileNotFoundError):  # whatever comes there later is new
                told = f"The watched folder {key} is not there."
                await self._is(key, f"{told} {_BACK}", gone=True, device=state.get("device"))
            else:
                why = getattr(error, "strerror", None) or error
                await self._is(key, f"The watched folder {key} is not looked at: {why}. {_BACK}", gone=True)
            return
        try:
            device = os.fstat(top).st_dev
            if state.get("device", device) not in (device, None) and await self._is_emptied(top, root):
                await self._is(key, f"The watched folder {key} is not there, for its disk is not. {_BACK}", gone=True)
                return
            look = Look(top, os.fsencode(key), self.watch.globs)
            if await self._compare(look, root, paths) or state.get("gone"):
                self._changed()
            if "" in paths:
                self._met.add(key)
                await self._is(key, _beyond(key, look.beyond), device=device)
            elif look.beyond:
                await self._is(key, _beyond(key, look.beyond))
        finally:
            os.close(top)

    async def _is_emptied(self, top: int, root: Root) -> bool:
        """Whether there is nothing, where something was."""
        key = os.fsencode(root.key)
        pieces = Look(top, key, self.watch.globs, most=1).at("")
        if await to_thread.run_sync(lambda: any(piece.found for piece in pieces)):
            return False
        return bool(await self._ledger.do(lambda tx: seen.between(tx, self.rule, key + b"/", key + b"0", 1)))

    async def _compare(self, look: Look, root: Root, paths: set[str]) -> bool:
        """Whether anything differs that did not when it was looked at last. The first look at all is no news."""
        own = await self._ledger.do(partial(self._own, root=root))
        differs, first, met = 0, "device" not in self._state.get(root.key, {}), root.key in self._met
        with closing(look.pieces(sorted(paths))) as pieces:
            while (piece := await to_thread.run_sync(next, pieces, None)) is not None:
                read = await self._digests(look, piece) if first else None
                low: bytes | None = piece.low
                while low is not None:
                    low, n, news = await self._ledger.do(partial(self._note, piece=piece, low=low, own=own, read=read))
                    differs += n
                    self._down |= news and not met
        return differs > 0

    async def _digests(self, look: Look, piece: Piece) -> dict[bytes, bytes | None]:
        left, read = [*piece.found.items()], dict[bytes, bytes | None]()
        while left and not self._ending:
            some = await to_thread.run_sync(look.read, left, _READ_AT_ONCE)
            read, left = read | some, left[len(some) :]
        return read

    def _own(self, tx: Transaction, root: Root) -> Own:
        number = groups.get(tx, self.group).number
        spans = []
        for begin, end in [*seen.turns(tx, self.group), *self._room.commands(self.group)]:
            began, ended = moment_of(begin), moment_of(end) if end else None
            if began is not None:
                until = ended.timestamp() + AFTER_TURN_S if ended else math.inf
                spans.append((began.timestamp() - COARSE_S, until))
        uid = UID_BASE + number if os.geteuid() == 0 else None
        return Own(root.writable, uid, spans, self._clock.now().timestamp() - AFTER_TURN_S)

    def _note(
        self, tx: Transaction, piece: Piece, low: bytes, own: Own, read: Mapping[bytes, bytes | None] | None
    ) -> tuple[bytes | None, int, bool]:
        """Rows for what differs in a part of a piece; with what was `read` of it, it is seen. Gives where the next part
        begins, how many differ, and whether any of that is news."""
        known = seen.between(tx, self.rule, low, piece.high, tree.PIECE + 1)
        rest = known[tree.PIECE].path if len(known) > tree.PIECE else None
        high, now = rest or piece.high, self._clock.monotonic()
        found = {path: each for path, each in piece.found.items() if low <= path < high}
        differs = list(tree.compare(Piece(low, high, found), known[: tree.PIECE], own))
        for each in differs:
            if read is not None:
                seen.keep(tx, self.rule, each.path, each.now, read.get(each.path))
            elif each.like_seen:
                seen.same(tx, self.rule, each.path)
            else:
                seen.differs(tx, self.rule, each.path, each.now, now, each.own)
        news = [each for each in differs if not (each.own or each.like_seen or read is not None)]
        return rest, 0 if read is not None else len(differs), bool(news)

    # ── telling ──

    async def _tell(self) -> float:
        """What is due. Gives seconds until something is."""
        unmet = any(key not in self._met and not root.problem for key, root in self._roots.items())
        if self._first is None or unmet:
            return math.inf
        left = due(self._first, self._last, self.watch.settle) - self._clock.monotonic()
        if left > 0:
            return left
        moving = await self._read()
        now = self._clock.monotonic()
        if self._dirty and due(self._first, now, self.watch.settle) > now:
            return 0.0  # more came meanwhile: a storm is told of late, and is one wake
        pause = await self._wake()
        if moving:
            self._first = self._last = self._clock.monotonic()
            return STILL_S
        if pause is None:
            self._first, self._down = None, False
        return math.inf if pause is None else min(pause, HOUR_S)

    async def _read(self) -> bool:
        """See what came of whatever stands still. Whether anything does not."""
        after, moving = b"", False
        while True:
            rows = await self._ledger.do(lambda tx, after=after: seen.unread(tx, self.rule, after, _ROWS))  # type: ignore[misc]
            if not rows or self._ending:
                return moving
            read = await to_thread.run_sync(self._read_some, rows)
            after = rows[len(read) - 1].path
            moving |= any(state == "moves" for state, _, _ in read)
            await self._ledger.do(partial(self._keep, read=list(zip(rows, read, strict=False))))

    def _read_some(self, rows: Sequence[Known]) -> list[tuple[str, Stat | None, bytes | None]]:
        """(state, stat, sha256) of the first of them: it `moves`, is `still`, or its folder is `closed`."""
        results, size = list[tuple[str, Stat | None, bytes | None]](), 0
        now, tops = self._clock.monotonic(), dict[str, int | None]()
        try:
            for row in rows:
                root = next((each for each in self._roots.values() if row.path.startswith(each.inner)), None)
                top = self._opened(root, tops) if root is not None else None
                if root is None or top is None:
                    results.append(("closed", None, None))
                elif row.at > now - STILL_S:
                    results.append(("moves", row.now, None))
                else:
                    stat, sha256 = tree.read(top, os.fsdecode(row.path.removeprefix(root.inner)), row.now)
                    size += stat.size if stat and sha256 else 0
                    results.append(("still" if stat == row.now else "moves", stat, sha256))
                if size > _READ_AT_ONCE:
                    break
            return results
        finally:
            for top in tops.values():
                if top is not None:
                    os.close(top)

    def _opened(self, root: Root, tops: dict[str, int | None]) -> int | None:
        """Its folder, opened once; None for one that is not there: its next look tells that."""
        if root.key not in tops:
            tops[root.key] = None
            if not (root.problem or self._state.get(root.key, {}).get("gone")):
                with suppress(OSError, UnsafePath):
                    tops[root.key] = root.open()
        return tops[root.key]

    def _keep(self, tx: Transaction, read: Sequence[tuple[Known, tuple[str, Stat | None, bytes | None]]]) -> None:
        now = self._clock.monotonic()
        for row, (state, stat, sha256) in read:
            if state == "moves" and stat != row.now:
                seen.differs(tx, self.rule, row.path, stat, now, row.own)
            if state == "still":
                event = tree.event_of(row, sha256)
                if event is None or row.own or event not in self.watch.events:
                    seen.keep(tx, self.rule, row.path, stat, sha256)
                else:
                    seen.read(tx, self.rule, row.path, event, sha256)

    async def _wake(self) -> float | None:
        """Tell what waits, if that may be now: else seconds until it may. None when nothing waits any more."""
        base = await self._room.base(self.group)
        left, woken, said = await self._ledger.do(partial(self._tell_in, base=base))
        if woken is not None:
            faults.passing("watch-told")
            log.info("changed files wake %s", self.group, extra={"wake": woken.wake, "turn": woken.turn})
            self._room.wake(self.group)
        if said:
            self._room.said(self.group)
        return left

    def _tell_in(self, tx: Transaction, base: str) -> tuple[float | None, wakes.Woken | None, bool]:
        changes = seen.waiting(tx, self.rule, LISTED)
        if not changes.counts:
            return None, None, False
        now, name, watch = self._clock.now(), f"watch:{self.rule[1]}", self.watch
        at = now.timestamp()
        # Two hours more, for these times are compared as they are written, in whatever zone.
        since = now.fromtimestamp(max(0.0, at - max(watch.cooldown, HOUR_S) - 2 * HOUR_S), now.tzinfo)
        made = [moment_of(each) for each in wakes.made_lately(tx, self.group, name, rfc3339(since))]
        left, rests = wait([each.timestamp() for each in made if each], at, watch.cooldown, watch.max_per_hour)
        if left > 0:
            told = rests and seen.rests(tx, self.rule, rfc3339(now))
            if told:
                self._room.say(tx, self.group, base, _RESTS.format(", ".join(watch.paths), watch.max_per_hour))
            return left, None, told
        acts, origin = self._acts(tx)
        woken = wakes.put(
            tx, "file", f"watch:{self.group}:{self.rule[1]}:{seen.told(tx, self.rule)}", group=self.group, base=base,
            to=self._room.address(self.group), rule=name, acts=acts, origin=origin,
            parts=parts(watch, origin, changes, down=self._down), now=rfc3339(now),
        )  # fmt: skip
        return None, woken, False

    def _acts(self, tx: Transaction) -> tuple[Authority, Origin]:
        """For whom it wakes, at the trust of the folders that changed, and whose words its prompt is."""
        acts, origin = authored.voice(tx, "watch", self.group, digest(self.watch))
        trust = acts.taint
        for root in self._roots.values():
            if seen.is_waiting(tx, self.rule, root.inner, os.fsencode(root.key) + b"0"):
                own = groups.get(tx, self.group).authority.taint
                trust = min(trust, own if root.trust is None else root.trust)
        return Authority(acts.role, trust), origin


_BACK = "It is looked for, and compared when it is back."
_RESTS = (
    "The watch on {} has woken this group {} times within an hour, which is its limit: it rests until the hour is over."
    " What changes meanwhile is told once then."
)


def _beyond(key: str, more: str) -> str:
    return f"The watched folder {key} has more than {more}: what is beyond is not watched." if more else ""
