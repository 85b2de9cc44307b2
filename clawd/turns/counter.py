"""The counter: where runners are served. It is the Desk of the run's socket.

A turn is claimed in the ledger before it is handed out, and every later word about it must come under its lease. What
is in memory here can be lost at any moment; the ledger holds who claimed what.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import anyio

from clawd import faults
from clawd.channel import ChannelLimits
from clawd.clock import Clock, rfc3339
from clawd.config.models import THINKING
from clawd.context.compose import Composer
from clawd.errors import ClawdError, LeaseLost, UnsafePath
from clawd.files import Blobs
from clawd.ids import is_job
from clawd.ledger import deliveries, effects, ends, steering, turns
from clawd.ledger import runs as run_rows
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.ledger.deliveries import Address
from clawd.lifecycle.pinned import kept_notes
from clawd.model import GIVEN_UP, OVERFLOW, Authority, Control, Effect, Final, Lease, Offer
from clawd.signals import News, Signals
from clawd.tasks import Whole
from clawd.trust import lowest
from clawd.turns import leases
from clawd.turns.desk import ToolCall
from clawd.turns.dispatch import Dispatcher
from clawd.turns.jobs import Jobs
from clawd.turns.leases import LiveTurn
from clawd.turns.road import new_token, token_hash
from clawd.turns.run import Run

log = logging.getLogger(__name__)

_TOLD = {"delta": ("text",), "tool": ("name", "phase")}  # of events, by their kind
MAX_FILES_BYTES = 100 << 20  # of one answer, all together


class Counter:
    """Implements `turns.desk.Desk` over the dispatcher's runs. `followups` is what messages of a group do while
    its turn is at work."""

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        ledger: Ledger,
        clock: Clock,
        signals: Signals,
        composer: Composer,
        blobs: Blobs,
        limits: Callable[[str], ChannelLimits],
        parallel: Callable[[], int],
        jobs: Jobs,
        followups: Callable[[str], str],
    ) -> None:
        self._dispatcher, self._ledger, self._clock, self._signals = dispatcher, ledger, clock, signals
        self._composer, self._blobs = composer, blobs
        self._limits, self._parallel = limits, parallel
        self._jobs, self._followups = jobs, followups
        self._whole = Whole()
        self.overflowed: Callable[[Transaction, str], object] | None = None
        """Hands over a session that is longer than the model can read, in the transaction that queues its turn again;
        without it such a turn fails."""
        self.handed: Callable[[str], None] = lambda session: None
        """Hears of that."""

    def _now(self) -> str:
        return rfc3339(self._clock.now())

    def _run(self, run: str) -> Run:
        found = self._dispatcher.run_of(run)
        if found is None or found.killed:
            raise LeaseLost(f"run {run} is over")
        found.due_back = None
        return found

    def _live(self, lease: Lease) -> tuple[Run, LiveTurn]:
        run = self._run(lease.run)
        live = run.live.get(lease.turn)
        if live is None or (live.attempt, live.worker) != (lease.attempt, lease.worker):
            raise LeaseLost(f"turn {lease.turn} is not held by attempt {lease.attempt} of this run")
        live.heard, live.confirmed = self._clock.monotonic(), True
        return run, live

    async def hello(self, run: str, pid: int, start: int) -> dict[str, Any]:
        found, token, parallel = self._run(run), new_token(), self._parallel()
        known = token_hash(token)
        await self._ledger.do(
            lambda tx: run_rows.ready(tx, run, token_hash=known, pid=pid, start=start, parallel=parallel)
        )
        found.token_hash, found.parallel = known, parallel
        faults.passing("hello")
        found.ready.set()
        return {"token": token, "limits": {"parallel": parallel}, "clock": self._now()}

    def knows(self, run: str, token: str) -> bool:
        """Whether a token is that of this run's runner: those of commands beside it are good for no host tool."""
        found = self._dispatcher.run_of(run)
        return found is not None and not found.killed and token_hash(token) == found.token_hash

    async def next_turn(self, run: str, worker: int, wait: float) -> Offer | None:
        found = self._run(run)
        poll = found.polls[worker] = object()
        try:
            return await self._poll(found, worker, poll, self._clock.monotonic() + wait)
        finally:
            if found.polls.get(worker) is poll:
                del found.polls[worker]

    async def _poll(self, run: Run, worker: int, poll: object, until: float) -> Offer | None:
        while not run.gone.is_set():
            left = max(0.0, until - self._clock.monotonic())
            if run.ending or self._dispatcher.closing:
                with anyio.move_on_after(left):
                    await run.gone.wait()
                return None
            if run.polls.get(worker) is not poll:  # the worker asked again: this answer would go nowhere
                run.nudge()
                return None
            if (offer := await self._whole(self._offer(run, worker))) is not None:
                return offer
            if run.maybe:
                continue
            if not left and not run.paused:
                return None
            if not run.busy:
                run.wanted = False
                self._dispatcher.reconsider()
            event = anyio.Event()
            run.waiters.append(event)
            if run.parked:
                run.parked_at = self._clock.monotonic()
                run.look_again()
            try:  # a frozen sandbox hears no answer: its poll ends with a turn
                with anyio.move_on_after(None if run.paused else left):
                    await event.wait()
            except BaseException:
                if event.is_set():  # another worker is to hear of it
                    run.nudge()
                raise
            finally:
                if not event.is_set():
                    run.waiters.remove(event)
        return None

    async def _offer(self, run: Run, worker: int) -> Offer | None:
        run.asking += 1
        try:
            claim = await self._claim(run, worker)
            return None if claim is None else await self._handed(run, claim, worker)
        finally:
            run.asking -= 1
            if run.ending and not run.busy:
                run.look_again()

    async def _claim(self, run: Run, worker: int) -> turns.Claim | None:
        """A turn for a worker: the one that it has, one that was handed out and went unheard, or a new one."""
        now = self._clock.monotonic()
        for live in run.live.values():
            if live.worker == worker or leases.verdict(live, now) == "unconfirmed":
                return await self._claim_again(run, live, worker)
        if not run.maybe or self._dispatcher.must_rest(run):
            return None
        run.maybe, woken = False, run.woken  # what comes while the ledger is asked sets it again
        try:
            if not await self._dispatcher.awake(run):
                return None
            await self._dispatcher.spending.stops(run.group)
            engine, within = self._composer.engine(run.group), run.spec.within
            claim = await self._ledger.do(
                lambda tx: turns.claim(tx, run.id, run.group, worker, self._now(), engine, within)
            )
        except BaseException:
            run.maybe = True
            raise
        if claim is None:
            run.blocked = bool(run.live)
            if not run.blocked and not await self._dispatcher.runs.fits(run):
                run.maybe = True  # only now: a turn that came while that was seen has said so too
            return None
        faults.passing("claimed")
        if claim.more:
            run.nudge()
        run.handed_out += 1
        row = claim.turn
        live = LiveTurn(row["id"], row["session"], claim.attempt, worker, now, now, now)
        live.role, live.taint, live.choice = claim.authority, claim.taint, row["choice"]
        live.alone = None if claim.followed else woken
        run.live[row["id"]] = live
        if run.resting:
            run.look_again()
        self._dispatcher.tell(run.group, row["session"], row["id"], "claimed")
        return claim

    async def _claim_again(self, run: Run, live: LiveTurn, worker: int) -> turns.Claim | None:
        old, before = Lease(run.id, live.turn, live.attempt, live.worker), (live.worker, live.heard, live.handed)
        # At once: no other worker is to take it too.
        now = self._clock.monotonic()
        live.worker, live.handed, live.confirmed = worker, now, False
        if worker == old.worker:  # it asks again, so it lives; another one may have asked long ago
            live.heard = now
        try:
            return await self._ledger.do(lambda tx: turns.hand_over(tx, old, worker))
        except LeaseLost:  # it ended meanwhile
            live.worker, live.heard, live.handed = before
            return None
        except BaseException:
            live.worker, live.heard, live.handed = before
            raise

    async def _handed(self, run: Run, claim: turns.Claim, worker: int) -> Offer | None:
        """The claim as the runner gets it. One that cannot be put together (a script is missing, say) is its turn's
        end, told in its chat."""
        try:
            await self._dispatcher.runs.trust(run)
            for sentence in self._dispatcher.runs.render(run):
                await self._say(claim.turn, sentence)
            if is_job(claim.turn["session"]):
                claim = await self._jobs.described(claim)
            else:
                acts = Authority(claim.authority, claim.taint)
                await self._dispatcher.runs.skills.renew(run, acts, claim.turn["id"])
            offer, refused = await self._composer.offer(claim)
            if not is_job(claim.turn["session"]):
                await self._fallen(run, claim.turn)
            for sentence in refused:
                await self._say(claim.turn, sentence)
            return offer
        except ClawdError as error:
            why = error.message
        except Exception as error:
            log.exception("turn %s cannot be put together", claim.turn["id"])
            why = f"it could not be put together ({type(error).__name__}); this is a defect of clawd"
        await self._fail(run, Lease(run.id, claim.turn["id"], claim.attempt, worker), why)
        return None

    async def _fallen(self, run: Run, row: Row) -> None:
        """What was put into its session after it was claimed may be in the history that it is given: it, and those
        beside it, are trusted no more than that."""

        def fall(tx: Transaction) -> list[Row]:
            trust = turns.trust_of_session(tx, row["session"])
            if trust >= turns.get(tx, row["id"])["taint"]:
                return []
            turns.fall(tx, run.id, trust)
            return turns.claimed_by(tx, run.id)

        for each in await self._ledger.do(fall):
            if (live := run.live.get(each["id"])) is not None:
                live.taint = min(live.taint, each["taint"])

    async def _say(self, row: Row, sentence: str) -> None:
        """A notice to a turn's chat, beside its answer; of a job's, to the owner."""
        if is_job(row["session"]):
            self._signals.emit(News("trouble", group=row["grp"], data={"what": sentence}))
            return
        to, limits = Address.of(row), self._limits(row["channel"])
        what: dict[str, Any] = {"session": row["session"], "kind": "notice", "text": sentence, "now": self._now()}
        await self._ledger.insist(lambda tx: deliveries.enqueue(tx, to, limits=limits, **what))
        self._dispatcher.deliver(to)

    async def notice(self, turn: int, sentence: str) -> None:
        """A notice to the chat of a turn by its number."""
        await self._say(await self._ledger.do(lambda tx: turns.get(tx, turn)), sentence)

    async def _fail(self, run: Run, lease: Lease, why: str) -> None:
        def end(tx: Transaction) -> tuple[Row, ends.Ended]:
            row = turns.check_lease(tx, lease)
            limits = self._limits(row["channel"])
            return row, ends.fault(tx, lease.turn, why, self._now(), limits=limits, final=True)

        with suppress(LeaseLost):  # its run ended meanwhile
            row, ended = await self._ledger.insist(end)
            self._forget(run, lease.turn)
            self._dispatcher.ended(ended, Address.of(row), run.group)

    async def control(self, run: str, wait: float) -> list[Control]:
        found = self._run(run)
        until = self._clock.monotonic() + wait
        while not found.controls():
            left = max(0.0, until - self._clock.monotonic())
            if not left and not found.paused:
                break
            found.control_news = anyio.Event()
            with anyio.move_on_after(None if found.paused else left):
                await found.control_news.wait()
        return found.controls()

    async def more(self, lease: Lease) -> list[Control]:
        run, live = self._live(lease)
        if live.stopping is not None:
            return [Control(live.turn, "stop")]
        woken = run.woken
        if self._followups(run.group) != "steer" or live.alone == woken:
            return []
        wakes = await self._ledger.do(lambda tx: steering.followups(tx, turns.check_lease(tx, lease)))
        live.alone = None if wakes else woken
        shown = self._composer.shown({"id": live.turn, "grp": run.group}, wakes)
        return [Control(live.turn, "steer", shown)] if wakes else []

    async def step(
        self, lease: Lease, n: int, message: dict[str, Any], shown: list[int], notes: dict[str, Any] | None = None
    ) -> None:
        run, _ = self._live(lease)
        kept = kept_notes(notes)

        def add(tx: Transaction) -> list[Row]:
            turns.add_step(tx, lease, n, message, shown, kept)
            if message.get("role") != "assistant":  # nothing is said between a call and its result
                return []
            joined = steering.join(tx, lease.turn, n, shown, self._now())
            return [turns.get(tx, turn) for turn in (*joined, *run.live)] if joined else []

        rows = await self._ledger.do(add)
        faults.passing("step")
        self._joined(run, rows)

    def _joined(self, run: Run, rows: list[Row]) -> None:
        """Turns have gone up in a live one: it, and those beside it, may have fallen to what they brought."""
        for row in rows:
            if (live := run.live.get(row["id"])) is not None:
                live.taint = min(live.taint, row["taint"])
            else:
                self._dispatcher.tell(run.group, row["session"], row["id"], "joined")

    async def events(self, lease: Lease, events: list[dict[str, Any]]) -> None:
        run, live = self._live(lease)
        for event in events:
            kind = str(event.get("type"))
            if (told := _TOLD.get(kind)) is not None:
                data = {"turn": live.turn, **{name: str(event.get(name, "")) for name in told}}
                self._signals.emit(News(kind, run.group, live.session, data))

    async def effect_result(self, call: ToolCall) -> Effect | None:
        self._live(call.lease)
        return await self._ledger.do(lambda tx: effects.known(tx, *call))

    async def effect(self, call: ToolCall, act: effects.Act) -> Effect:
        self._live(call.lease)
        return await self._whole(self._effect(call, act))

    async def _effect(self, call: ToolCall, act: effects.Act) -> Effect:
        def do(tx: Transaction) -> tuple[Effect, list[Address]]:
            effect = effects.do(tx, *call, act)
            return effect, effects.addresses(tx, effect)

        effect, addresses = await self._ledger.do(do)
        faults.passing("effect")
        for address in addresses:
            self._dispatcher.deliver(address)
        return effect

    async def acknowledge(self, lease: Lease, effect: int) -> None:
        await self._ledger.do(lambda tx: effects.given(tx, lease, effect))

    async def final(self, lease: Lease, final: Final) -> None:
        await self._whole(self._final(lease, final))

    async def _final(self, lease: Lease, final: Final) -> None:
        run = self._run(lease.run)
        live = run.live.get(lease.turn)
        if live is not None and is_job(live.session):
            final = replace(final, files=[])
        files, error = await self._keep_files(run, final) if live is not None else ([], None)
        ours = live.why if live is not None and live.stopping is not None else None  # we asked it to stop, for a limit
        last = ours is not None or (final.error is not None and final.stop_reason in (GIVEN_UP, OVERFLOW))
        spent, now = live.spent if live is not None and ours is None else None, self._now()
        books, usage = self._dispatcher.spending.books, final.usage
        report = books.report(run.group, final.model, usage) if usage is not None else None
        whole = None
        if len(final.text) >= deliveries.LONG and live is not None and not is_job(live.session):
            with suppress(OSError):  # then it goes in many messages
                whole = await anyio.to_thread.run_sync(self._blobs.add, final.text.encode())

        def end(tx: Transaction) -> tuple[Row, ends.Ended]:
            row = turns.get(tx, lease.turn)
            limits = self._limits(row["channel"])
            if row["state"] == "claimed" and report is not None:
                turns.check_lease(tx, lease)
                report(tx, row)
                turns.counted(tx, lease.turn, usage.window if usage is not None else None)
            if row["state"] == "claimed" and not row["stop_requested"]:
                turns.check_lease(tx, lease)
                said = final.text.strip() or files or effects.done(tx, lease.turn)
                why = ours or error or (None if said else "the agent ended without an answer")
                if why is None and is_job(row["session"]):
                    why = self._jobs.take(tx, lease.turn, final.text)
                if why is not None and spent is not None and row["engine"] in THINKING:
                    return row, ends.hold_live(tx, lease.turn, str(spent), now, limits=limits)
                if why is not None and ours is None and final.stop_reason == OVERFLOW and self._may_overflow(row):
                    return row, self._overflow(tx, row, why, now)
                if why is not None:
                    return row, ends.fault(tx, lease.turn, why, now, limits=limits, final=last)
            return row, ends.answer(tx, lease, final, files, now, limits=limits, whole=whole)

        row, ended = await self._ledger.do(end)
        if lease.turn not in run.live:  # a replay
            return
        if ended.state == "answered":
            faults.passing("answered")
        self._forget(run, lease.turn)
        self._dispatcher.ended(ended, Address.of(row), run.group)
        if ended.state == "queued" and final.stop_reason == OVERFLOW:
            self.handed(row["session"])
        if spent is not None and ended.state == "held":
            self._dispatcher.spending.hold(run.group, spent)
        elif spent is not None and not is_job(ended.session):  # it went on without
            await self._say(row, f"A model was not asked: {spent}")

    def _may_overflow(self, row: Row) -> bool:
        """Once a turn: where it is too long in a fresh session as well, it fails."""
        return self.overflowed is not None and row["faults"] == 0 and not is_job(row["session"])

    def _overflow(self, tx: Transaction, row: Row, why: str, now: str) -> ends.Ended:
        """The turn is queued again, with its steps and what it did, and goes along into a fresh session."""
        assert self.overflowed is not None
        ended = ends.fault(tx, row["id"], why, now, limits=self._limits(row["channel"]))
        if ended.state == "queued":
            self.overflowed(tx, row["session"])
        return ended

    async def _keep_files(self, run: Run, final: Final) -> tuple[list[tuple[str, str]], str | None]:
        kept, room = [], MAX_FILES_BYTES
        for name in final.files:
            relative = name.removeprefix("/group/work/")
            try:
                blob, size = await anyio.to_thread.run_sync(self._blobs.keep, run.spec.work, relative, room)
            except (UnsafePath, OSError) as error:
                return [], f"the file {name!r} cannot be sent ({error})"
            room -= size
            kept.append((relative.rsplit("/", 1)[-1], blob))
        return kept, final.error

    def _forget(self, run: Run, turn: int) -> None:
        if (ended := run.live.pop(turn, None)) is not None:
            for command in run.commands.values():  # it works in what the turn leaves behind
                command.role = lowest([command.role, ended.role])
        run.last_worked = self._clock.monotonic()
        if run.blocked and not run.live:
            run.blocked = False
            self._dispatcher.wake(run.group)
        if run.ending and not run.busy:
            run.look_again()
