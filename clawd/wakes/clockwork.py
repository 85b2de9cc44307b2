"""The clockwork: takes up schedules, and wakes their groups when they are due.

The files say what is due, the ledger what became of it; here is only when to look at which. What to do is decided
beside the event loop and committed in one transaction, which sees that the schedule is still what was decided upon. So
whatever is killed on the way, an instant is fired once.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import anyio
from anyio import to_thread

from clawd import faults
from clawd.channel import ChannelLimits
from clawd.clock import Clock, rfc3339
from clawd.config.home import Home, group_folders
from clawd.config.live import LiveConfig
from clawd.errors import UsageError
from clawd.ledger import authored, firings, groups
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.ledger.deliveries import Address
from clawd.ledger.firings import HEARTBEAT, SLICE, Key, Schedule, Taken, instant, utc
from clawd.model import Part
from clawd.schedules import store
from clawd.signals import News, Signals
from clawd.tasks import Tasks
from clawd.trust import Origin
from clawd.wakes import check, due, heartbeat
from clawd.wakes.alarm import Alarm
from clawd.wakes.firing import SENDER, Doing, Owner, Place, Places
from clawd.wakes.taking import Files, Look

log = logging.getLogger(__name__)

AUDIT_S = 30.0  # the machine may have slept, and its clock may be set
_STEP_BACK = timedelta(seconds=2)
_AGAIN = timedelta(seconds=60)  # after a defect


class Clockwork:
    """`base` gives the plain id of a group's conversation, `wake` has its queue looked at, `deliver` a chat's outbox;
    `limits` are those of a channel."""

    def __init__(
        self,
        home: Home,
        ledger: Ledger,
        clock: Clock,
        tasks: Tasks,
        signals: Signals,
        config: LiveConfig,
        owner: Owner,
        *,
        base: Callable[[str], Awaitable[str]],
        wake: Callable[[str], None],
        deliver: Callable[[Address], None],
        limits: Callable[[str], ChannelLimits],
        output: check.Output,
    ) -> None:
        self._home, self._ledger, self._clock, self._tasks = home, ledger, clock, tasks
        self._signals, self._owner = signals, owner
        self._wake, self._deliver = wake, deliver
        self._limits, self._output = limits, output
        self._files, self._places = Files(home, config), Places(config, base)
        self._looks: dict[Key, datetime] = {}  # when there is something to do for a schedule
        self._alone = anyio.Lock()
        self._news = anyio.Event()
        self._wrong: list[str] = []  # schedules of which something was known that the clock makes impossible
        self._failed = True  # a turn may have failed since it was looked whether a schedule paused itself
        self._seen = clock.now()
        self.audit_s = AUDIT_S
        self.alarm = Alarm(clock, self._ring)

    # ── what others ask ──

    def look(self, group: str | None = None) -> None:
        """Files of a group's schedules, or its `group.toml`, may have changed; of all groups with None. Any callback of
        the event loop may call it."""
        self._tasks.start_soon(self.renew, group)

    async def renew(self, group: str | None = None) -> None:
        """The same, done when this returns: what the files say is in force, and the next instants are known."""
        async with self._alone:
            await self._take_up(None if group is None else [group])
        await self.tick()
        self._ring()

    async def run_now(self, group: str, id: str) -> dict[str, Any]:
        """One run beside those that are due, as `clawd schedule run` asks for; gives its line of `firings.history`.
        Raises NotFound, UsageError where its last run is not over or its file says nothing."""
        async with self._alone:
            of = await self._ledger.do(lambda tx: firings.get(tx, (group, id)))
            if of.facts is None or id == HEARTBEAT:
                raise UsageError(of.error or f"{of.name} cannot be run")
            if of.open is not None:
                raise UsageError(f"the run of {due.said(of.open, of.facts['zone'])} is not over")
            now = self._clock.now()
            step = due.Step(of.since, of.last_due, of.next, self._looks.get(of.key), fire=(now,))
            await self._carry_out(of, step, now)
            return (await self._ledger.do(lambda tx: firings.history(tx, group, id, 1)))[0]

    async def resume(self, group: str, id: str) -> bool:
        """A schedule that paused itself goes on from now; gives whether it had. That its file says `enabled = false` is
        another thing. Raises NotFound."""
        async with self._alone:
            now = self._clock.now()
            lifted = await self._ledger.do(lambda tx: firings.resume(tx, (group, id), now))
            if lifted:
                self._looks[group, id] = now
        self._ring()
        return lifted

    # ── its life ──

    async def run(self) -> None:
        """Until cancelled."""
        self._tasks.start_soon(self._hear, name="schedules that fail")
        begun = False
        try:
            while True:
                self._news = anyio.Event()
                try:
                    begun = begun or await self.begin()
                    await self.tick()
                    await self.alarm.set(self.next)
                except Exception:  # a full disk, a defect: what is due stays due
                    log.exception("schedules were not looked at")
                with anyio.move_on_after(self.audit_s if self._looks or not begun else None):
                    await self._news.wait()
        finally:
            self.alarm.off()

    async def begin(self) -> bool:
        """After a start: what was known, what the files say by now, and the checks that were not over."""
        async with self._alone:
            now = self._clock.now()
            for row in await self._ledger.do(firings.known):
                ahead = row["since"] > utc(now) or (row["last_due"] or "") > utc(now + due.WRONG)
                self._looks[row["grp"], row["id"]] = instant(row["next"]) if row["next"] and not ahead else now
            await self._take_up(None)
            for firing, of, at in await self._ledger.do(firings.waiting):
                self._tasks.start_soon(self._check, firing, of, at)
            log.info("schedules were looked at", extra={"count": len(self._looks)})
        return True

    async def tick(self) -> None:
        """Do whatever there is to do now."""
        async with self._alone:
            now = self._clock.now()
            if now < self._seen - _STEP_BACK:
                log.warning("the clock was set back to %s", rfc3339(now))
                self._looks = dict.fromkeys(self._looks, now)
            self._seen = now
            while some := [key for key, at in self._looks.items() if at <= self._clock.now()][:SLICE]:
                await self._pass(some)
            if self._wrong:
                more = f" and {len(self._wrong) - 1} more" if len(self._wrong) > 1 else ""
                self._owner.tell_soon(
                    f"The clock was wrong by more than a day: what was known of the schedule {self._wrong[0]}{more} lay"
                    " ahead of it. They go on from now"
                )
                self._wrong = []
            if self._failed:
                self._failed = False
                await self._tell_paused()

    @property
    def next(self) -> datetime | None:
        """When there is something to do."""
        return min(self._looks.values(), default=None)

    def _ring(self) -> None:
        self._news.set()

    async def _hear(self) -> None:
        with self._signals.subscribe() as news:
            async for each in news:
                if each.kind == "turn" and each.data.get("state") == "failed":
                    self._failed = True
                    self._ring()

    # ── files ──

    async def _take_up(self, only: list[str] | None) -> None:
        now = utc(self._clock.now())
        if only is None:
            rows = await self._ledger.do(firings.known)
            folders = await to_thread.run_sync(group_folders, self._home)
        else:
            [group], folders = only, only
            rows = await self._ledger.do(lambda tx: firings.known(tx, group))
        there = {group.name for group in await self._ledger.do(groups.every)}  # any other folder is no group yet
        known: dict[str, list[Row]] = {}
        for row in rows:
            known.setdefault(row["grp"], []).append(row)
        names = list(dict.fromkeys([*(folder for folder in folders if folder in there), *known]))
        for at in range(0, len(names), SLICE):
            some = [(name, known.get(name, ())) for name in names[at : at + SLICE]]
            for each in await to_thread.run_sync(self._files.changes, some, now):
                await self._take(each, now)

    async def _take(self, look: Look, now: str) -> None:
        group, to = look.group, self._places.home(look.group)

        def take(tx: Transaction, some: Sequence[Taken]) -> None:
            for id in look.vanished:
                firings.vanish(tx, (group, id), now)
            for id, stamp in look.touched:
                firings.stamp(tx, (group, id), stamp)
            for each in some:
                firings.take(tx, group, each, now)

        for at in range(0, max(len(look.taken), 1), SLICE):
            await self._ledger.insist(partial(take, some=look.taken[at : at + SLICE]))
        for id in look.vanished:
            self._looks.pop((group, id), None)
        for each in look.taken:
            self._looks[group, each.id] = self._clock.now()
        if look.taken or look.vanished:
            log.info("schedules of %s: %s taken up, %s gone", group, len(look.taken), len(look.vanished))
        for sentence in look.wrong:
            await self._say(to, sentence)

    # ── what is due ──

    async def _pass(self, keys: list[Key]) -> None:
        now = self._clock.now()
        found = await self._ledger.do(lambda tx: firings.several(tx, keys))
        self._looks |= dict.fromkeys(keys, now + _AGAIN)  # if anything comes between
        steps = await to_thread.run_sync(due.decided, [of for of in found if of.id != HEARTBEAT], now)
        if quiet := [(of, step) for of, step in steps if step.is_quiet and _changes(of, step)]:
            await self._ledger.insist(partial(_advance, quiet=quiet))
        says = {of.key: of for of in found if of.facts is not None and of.id != HEARTBEAT}
        for key in (undecided := says.keys() - {of.key for of, _ in steps}):
            what = f"The schedule {says[key].name} cannot be carried out, by a defect of clawd. It is tried again"
            self._signals.emit(News("trouble", data={"what": what}))
        for key in set(keys) - undecided - {of.key for of, step in steps if not step.is_quiet or step.look is not None}:
            del self._looks[key]
        for of, step in steps:
            if step.is_quiet and step.look is not None:
                self._looks[of.key] = step.look
            elif not step.is_quiet:
                await self._whatever_comes(of, self._carry_out(of, step, now))
        for of in found:
            if of.id == HEARTBEAT:
                await self._whatever_comes(of, self._beat(of, now))

    async def _whatever_comes(self, of: Schedule, work: Coroutine[Any, Any, None]) -> None:
        """A defect in what is done for one schedule disturbs no other, and is tried again."""
        try:
            await work
        except Exception:
            log.exception("schedule %s was not carried out", of.name)
            self._looks[of.key] = self._clock.now() + _AGAIN

    async def _carry_out(self, of: Schedule, step: due.Step, now: datetime) -> None:
        assert of.facts is not None
        file, zone = store.file_of(of.facts), of.facts["zone"]
        place = await self._places.of(of.group, file.deliver_to)

        def commit(doing: Doing) -> None:
            _advance(doing.tx, [(of, step)])
            for each in step.passed:
                firings.pass_over(doing.tx, of, each.due, each.event, each.reason)
            if step.over and not step.fire and step.passed:
                first = step.passed[0]
                doing.notice(place.to, f"The schedule {of.name} was due {due.said(first.due, zone)}: {first.reason}")
            for at in step.fire:
                if (firing := firings.begin(doing.tx, of, at)) is None:
                    continue
                if place.trouble is not None:
                    doing.fail(of, firing, place.trouble, place.to)
                elif file.check is not None:
                    doing.checks.append((firing, at))
                else:
                    doing.fire(of, file, firing, at, place)

        self._looks.pop(of.key, None)
        if step.look is not None:
            self._looks[of.key] = step.look
        if await self._do(of, now, commit):
            self._wrong += [of.name] if step.wrong else []
            if step.over:
                await self._finish(of)

    async def _do(self, of: Schedule, now: datetime, what: Callable[[Doing], None]) -> bool:
        """Do what was decided of a schedule in one transaction, if it still is what it was, and all that follows."""

        def commit(tx: Transaction) -> Doing | None:
            if not firings.is_still(tx, of):
                return None
            doing = Doing(tx, now, self._limits)
            what(doing)
            return doing

        done = await self._ledger.insist(commit)
        if done is None:
            self._looks[of.key] = now
            return False
        faults.passing("due" if done.checks else "fired")
        self._follow(of, done)
        return True

    def _follow(self, of: Schedule, done: Doing) -> None:
        if done.woken:
            self._wake(of.group)
        for chat in done.chats:
            self._deliver(chat)
        for sentence in done.owner:
            self._owner.tell_soon(sentence)
        for firing, at in done.checks:
            self._tasks.start_soon(self._check, firing, of, at)
        if done.paused:
            self._failed = True
            self._ring()

    async def _finish(self, of: Schedule) -> None:
        """A schedule for once is over: its file goes to `done/`. A start does it where this was cut off."""
        try:
            await to_thread.run_sync(store.finish, self._home.group(of.group).schedules, of.id)
        except OSError as error:
            why = f"its file cannot be moved to done/: {error.strerror}"
            self._owner.tell_soon(f"The schedule {of.name} is done, and {why}")
            return
        faults.passing("moved")
        await self._ledger.insist(lambda tx: firings.vanish(tx, of.key, utc(self._clock.now())))
        self._looks.pop(of.key, None)

    # ── checks ──

    async def _check(self, firing: int, of: Schedule, at: datetime) -> None:
        """Run a schedule's check, and then its turn, or not."""
        assert of.facts is not None
        file = store.file_of(of.facts)
        acts, _ = await self._ledger.do(lambda tx: authored.voice(tx, "schedule", of.group, of.sha256))
        found = await check.run(self._output, self._clock, of.group, file, acts.role, at)
        faults.passing("checked")
        place = await self._places.of(of.group, file.deliver_to)
        why = found.failed or (place.trouble if found.wake else None)

        def commit(tx: Transaction) -> Doing:
            doing = Doing(tx, self._clock.now(), self._limits)
            if not firings.is_due(tx, firing):
                return doing
            if why is not None:
                doing.fail(of, firing, why, place.to)
            elif not found.wake:
                firings.skip(tx, firing, "its check says that there is nothing to do")
            else:
                doing.fire(of, file, firing, at, place, found.text)
            return doing

        done = await self._ledger.insist(commit)
        faults.passing("woken")
        self._follow(of, done)

    # ── the heartbeat ──

    async def _beat(self, of: Schedule, now: datetime) -> None:
        beat = await to_thread.run_sync(heartbeat.look, of, self._home.group(of.group).root, now)
        place = await self._places.of(of.group, None) if beat.text or beat.wrong else Place(None)

        def commit(doing: Doing) -> None:
            tx, last = doing.tx, beat.due or of.last_due
            if beat.wrong is not None and beat.wrong != of.error:
                doing.notice(place.to, f"The heartbeat of {of.group} is not looked at: {beat.wrong}")
            if beat.due is not None and beat.text and firings.is_busy(tx, of.group):
                firings.pass_over(tx, of, beat.due, "skip", "a turn of the group waits or is at work")
                last = of.last_due
            elif beat.due is not None and beat.text and (firing := firings.begin(tx, of, beat.due)) is not None:
                parts = [
                    Part("typed", Origin.OWNER, beat.text),
                    Part("quoted", Origin.SYSTEM, heartbeat.PROMPT, SENDER),
                ]
                if place.trouble is not None:
                    doing.fail(of, firing, place.trouble, place.to)
                else:
                    doing.put(of, firing, beat.due, place, authored.OWNER, Origin.OWNER, parts)
            firings.advance(tx, of, since=of.since, last_due=last, next=beat.next, error=beat.wrong)

        if beat.next is not None:
            self._looks[of.key] = beat.next
        await self._do(of, now, commit)

    # ── what is told ──

    async def _say(self, to: Address | None, text: str) -> None:
        log.warning("%s", text)
        if to is None:
            self._owner.tell_soon(text)
            return
        now = self._clock.now()
        await self._ledger.insist(lambda tx: Doing(tx, now, self._limits).notice(to, text))
        self._deliver(to)

    async def _tell_paused(self) -> None:
        """The owner, where the group's chat is another than theirs."""

        def untold(tx: Transaction) -> list[tuple[Key, int]]:
            at = self._owner.where(tx)[1]
            return [each for each in firings.untold(tx) if self._places.home(each[0][0]) != at]

        for key, failures in await self._ledger.insist(untold):
            self._owner.tell_soon(firings.paused_sentence(key, failures))


def _changes(of: Schedule, step: due.Step) -> bool:
    return (step.since, step.last_due, step.next) != (of.since, of.last_due, of.next)


def _advance(tx: Transaction, quiet: Sequence[tuple[Schedule, due.Step]]) -> None:
    for of, step in quiet:
        if firings.is_still(tx, of):
            firings.advance(tx, of, since=step.since, last_due=step.last_due, next=step.next, error=of.error)
