"""Compactions: what a session's window loses, and the proof that nothing was lost that it holds on to.

    begun ─▶ asked ─▶ ready ─▶ written            a summary by a job
      └─────────────────▲                         tool output left out, or a summary that needs no model
    any of them ─▶ failed                         the window stays as it was

Each step is durable before the next one begins, and may be repeated: the block is known by its number, and appended
once. Only `written` has it stand for anything; until then the old window holds. A session that ended meanwhile is not
compacted any more. The file is never cut.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anyio import to_thread

from clawd import faults
from clawd.clock import Clock, moment_of, rfc3339
from clawd.config.home import Home
from clawd.config.models import THINKING
from clawd.context.compose import Composer, Seen
from clawd.context.fence import fenced
from clawd.errors import ClawdError
from clawd.ledger import contexts, groups, recalled
from clawd.ledger import turns as turn_rows
from clawd.ledger.contexts import Standing
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.lifecycle import compaction, pinned, summary
from clawd.lifecycle.compaction import Cut, Mark, turn_of
from clawd.lifecycle.deciding import Thresholds
from clawd.lifecycle.pinned import Pinned
from clawd.model import Block
from clawd.sessions.file import SessionFile
from clawd.sessions.format import MARKER_LINE, parse
from clawd.sessions.reading import markers, read_from
from clawd.trust import Role
from clawd.turns.jobs import Job, Jobs, Kind

log = logging.getLogger(__name__)

MOST_FAILURES = 3  # summaries in a row that came to nothing; then none is asked for any more
_ROOM = 3  # characters a token that a summariser is shown of the hard limit
_BACK = 1 << 20  # bytes before the end of a file in which a block that was appended is looked for
OVER = "the session ended first"


@dataclass(frozen=True, slots=True)
class _Open:
    """A compaction that is open, and all that it depends on in the ledger."""

    row: Row
    context: Row
    seen: Seen
    taint: float
    pinned: Pinned
    authority: Role
    answered: str | None  # what the summariser said
    asked: str | None  # with what it was asked

    @property
    def id(self) -> int:
        return int(self.row["id"])

    @property
    def key(self) -> str:
        return f"compact:{self.id}"


@dataclass(frozen=True, slots=True)
class _Studied:
    """What a file holds behind its front: the blocks, where each begins, and what would be done with them."""

    blocks: Sequence[Block]
    places: Sequence[int]
    earlier: str | None
    cut: Cut

    @property
    def replaced(self) -> Sequence[Block]:
        return self.blocks[: self.cut.at]

    @property
    def behind(self) -> int | None:
        return next((turn for block in reversed(self.blocks) if (turn := turn_of(block)) is not None), None)

    @property
    def kept(self) -> int | None:
        return self.places[self.cut.at] if self.cut.upto is not None else None


class Compactor:
    """`alone` holds a session against whoever records its turns; `thresholds` gives those of a group's session.
    `reconsider` has a session decided about anew, in a transaction, and `soon` has what is open of it done,
    `measure` has its figures noted: whoever builds this sets them."""

    def __init__(
        self,
        home: Home,
        ledger: Ledger,
        clock: Clock,
        jobs: Jobs,
        composer: Composer,
        alone: Callable[[str], AbstractAsyncContextManager[None]],
        thresholds: Callable[[str, Standing], Thresholds],
    ) -> None:
        self._home, self._ledger, self._clock, self._jobs = home, ledger, clock, jobs
        self._composer, self._alone, self._thresholds = composer, alone, thresholds
        self.reconsider: Callable[[Transaction, str], None] = lambda tx, session: None
        self.soon: Callable[[str], None] = lambda session: None
        self.measure: Callable[..., None] = lambda tx, session, event, now, **more: None
        self._anew: set[str] = set()  # sessions that were decided about, since that was last looked at
        self._sessions: dict[int, str] = {}  # of compactions that a job is asked for
        jobs.register("compact", Kind(summary.Summary, self._answered, self._unanswered, self._over))

    # ── in transactions ──

    def begin(self, tx: Transaction, row: Row, cause: str, turn: Row | int | None, now: str) -> int:
        """Have the session of this context row compacted; gives the compaction's id, also of one that is open already.
        What is pinned now is what its summary will be held to."""
        session = row["session"]
        if open_one := contexts.open_compaction(tx, session):
            return int(open_one["id"])
        return tx.insert(
            "compaction",
            session=session,
            state="begun",
            cause=cause,
            ledger=pinned.packed(contexts.pinned(tx, session)),
            before=row["window"],
            made=now,
        )

    def _answered(self, tx: Transaction, job: Job, answer: summary.Summary) -> None:
        """What a summariser said is kept; it is judged beside the ledger's thread."""
        tx.execute(
            "UPDATE compaction SET text = ? WHERE id = ? AND state IN ('begun', 'asked')", answer.summary, _id(job)
        )

    def _unanswered(self, tx: Transaction, job: Job, why: str) -> None:
        row = tx.one("SELECT * FROM compaction WHERE id = ? AND state IN ('begun', 'asked')", _id(job))
        if row is not None:
            self._fail(tx, row, f"no summary: {why}", summariser=True)

    def _over(self, job: Job) -> None:
        if (session := self._sessions.pop(_id(job), None)) is not None:
            self.soon(session)

    def _fail(self, tx: Transaction, row: Row, why: str, *, summariser: bool = False, lost: bool = False) -> None:
        """The window stays. `summariser`: nothing came of asking; `lost`: what came leaves something out, or has what
        nobody said."""
        now, session = rfc3339(self._clock.now()), row["session"]
        tx.execute(
            "UPDATE compaction SET state = 'failed', text = NULL, error = ?, ended = ?, recall = ? WHERE id = ?",
            *(why[:1000], now, row["recall"], row["id"]),
        )
        context = contexts.of(tx, session, now)
        if summariser:
            contexts.update(tx, session, now, failures=context["failures"] + 1)
        if lost:
            contexts.update(tx, session, now, verify_failed=1, last_recall=row["recall"])
        if lost or (summariser and context["failures"] + 1 >= MOST_FAILURES):
            self._reconsider(tx, session)

    def _reconsider(self, tx: Transaction, session: str) -> None:
        self.reconsider(tx, session)
        self._anew.add(session)

    # ── what is done ──

    async def act(self, session: str) -> None:
        """Go on with the session's open compaction, as far as it goes now. Safe to repeat. Raises StorageError,
        UnsafePath, OSError."""
        try:
            await self._go_on(session)
        finally:
            if session in self._anew:  # it may be handed over now
                self._anew.discard(session)
                self.soon(session)

    async def _go_on(self, session: str) -> None:
        while (found := await self._ledger.do(lambda tx: self._look(tx, session))) is not None:
            state = found.row["state"]
            if state == "ready":
                await self._write(found)
            elif found.answered is not None:
                await self._judge(found)
            elif state == "begun":
                faults.passing("compaction-begun")
                await self._make(found)
            else:
                self._sessions[found.id] = session
                return  # its job is at work, or waits

    def _look(self, tx: Transaction, session: str) -> _Open | None:
        """The open compaction; one of a session that ended is dropped."""
        row = contexts.open_compaction(tx, session)
        if row is None:
            return None
        context = contexts.of(tx, session, rfc3339(self._clock.now()))
        if context["status"] in contexts.ENDED or context["sealed_at"] is not None:
            self._fail(tx, row, OVER)
            return None
        place = tx.one(
            "SELECT s.stem, s.taint, t.channel, t.authority FROM session s LEFT JOIN turn t ON t.id ="
            " (SELECT MAX(id) FROM turn WHERE session = s.id AND claimed_at IS NOT NULL) WHERE s.id = ?",
            session,
        )
        assert place is not None
        _, others = turn_rows.known(tx, context["grp"], session)
        job = tx.one("SELECT prompt FROM job WHERE key = ?", f"compact:{row['id']}")
        seen = Seen(
            *(context["grp"], place["stem"], place["channel"] or "terminal", contexts.standing(tx, session)),
            *(recalled.forgot(tx, context["grp"]), others),
        )
        return _Open(
            *(row, context, seen, min(context["taint"], place["taint"]), pinned.unpacked(row["ledger"])),
            *(Role(place["authority"] or Role.OWNER), None if row["state"] == "ready" else row["text"]),
            job["prompt"] if job else None,
        )

    def _path(self, found: _Open) -> Path:
        return self._home.group(found.seen.group).sessions / f"{found.seen.stem}.md"

    async def _make(self, found: _Open) -> None:
        """Leave out tool output; where that is not enough, have a summary made."""
        limits = self._thresholds(found.seen.group, found.seen.standing)
        studied = await to_thread.run_sync(self._study, found, limits.soft)
        if studied.behind is None:
            await self._ledger.do(lambda tx: self._fail(tx, found.row, compaction.EMPTY))
            return
        if studied.cut.upto is None or await self._after(found, studied.cut.masked) <= compaction.ENOUGH * limits.soft:
            text = summary.masks_text(studied.cut.masked, _expand(found))
            await self._ready(found, studied, "mask", text, None)
        elif self._composer.engine(found.seen.group) in THINKING and summary.fits(found.pinned):
            await self._ask(found, studied, limits.hard * _ROOM)
        else:
            from clawd.lifecycle.recall import recall  # imported with the first summary

            said = await to_thread.run_sync(summary.extract, studied.replaced, studied.earlier, found.pinned)
            known = await to_thread.run_sync(recall, said, found.pinned, found.context["goal"])
            await self._ready(
                found, studied, "extract", summary.block_text(found.pinned, said, _expand(found)), known.score
            )

    def _study(self, found: _Open, soft: int) -> _Studied:
        """What is shown of the file now, at most; a file is read no further back than a model is shown it."""
        path = self._path(found)
        histories = self._composer.histories
        front = histories.front(path, found.seen.standing)
        most = histories.reach(self._composer.limit(found.seen.group, found.seen.standing))
        size = path.stat().st_size if path.exists() else 0
        start = max(front.start, size - most)
        data = read_from(path, start)
        data = data[1:] if start else data
        places = [match.start() for match in MARKER_LINE.finditer(data)]
        blocks = parse(data[places[0] :], whole=False).blocks if places else []
        cut = compaction.cut(blocks, int(compaction.KEPT * soft * 3))
        return _Studied(
            blocks, [start + at for at in places], None if front.block is None else front.block.content, cut
        )

    async def _after(
        self, found: _Open, masked: int | None, kept: int | None = None, block: Block | None = None
    ) -> int:
        """How many tokens the window comes to with tool output left out, and behind this block. Both sides are measured
        in one way, so that what a provider counted before holds for what it will count."""
        path, before = self._path(found), int(found.row["before"])
        now = await to_thread.run_sync(self._composer.histories.front, path, found.seen.standing)
        front = replace(now, known=now.known | {found.id})
        if masked is not None:
            front = replace(front, masked=masked, by=found.id)
        if block is not None and kept is not None:
            front = replace(front, block=block, start=kept)
        was, will = await self._composer.window(found.seen, now), await self._composer.window(found.seen, front)
        return min(will, -(-before * will // max(was, 1)))

    async def _ask(self, found: _Open, studied: _Studied, most: int) -> None:
        made = await to_thread.run_sync(summary.given, studied.replaced, studied.earlier, found.pinned, most)
        prompt = f"{summary.PROMPT}\n\n{fenced(f'data-{secrets.token_hex(8)}', made.lines())}"
        if found.asked is None:  # else an earlier life asked, with what it had found
            await self._set(found, "begun", **_of(studied), method="summary")
        self._sessions[found.id] = found.row["session"]
        trust = min(found.taint, found.pinned.taint)
        try:
            job = await self._jobs.ask("compact", found.seen.group, found.key, prompt, found.authority, trust)
        except ClawdError as error:
            why = error.message
            await self._ledger.do(lambda tx: self._fail(tx, found.row, f"no summary: {why}", summariser=True))
            return
        await self._set(found, "asked", job=job)
        faults.passing("compaction-asked")

    async def _judge(self, found: _Open) -> None:
        """Hold a summary to what was pinned before it, and to what its summariser was given."""
        from clawd.lifecycle.judging import judge  # imported with the first summary

        said, goal = found.answered or "", found.context["goal"]
        score, wrong = await to_thread.run_sync(judge, said, found.pinned, goal, found.asked or "")
        if wrong is not None:
            log.warning("the summary of session %s is not used: %s", found.row["session"], wrong)
            row: Any = {**dict(found.row), "recall": score}
            await self._ledger.do(lambda tx: self._fail(tx, row, wrong, lost=True))
            return
        text = summary.block_text(found.pinned, said, _expand(found))
        await self._set(found, "ready", text=text, recall=score, trust=min(found.taint, found.pinned.taint))
        faults.passing("compaction-ready")

    async def _ready(self, found: _Open, studied: _Studied, method: str, text: str, score: float | None) -> None:
        values = _of(studied)
        if method == "mask":
            values |= {"upto": None, "kept": None}
        trust = 1.0 if method == "mask" else min(found.taint, found.pinned.taint)
        await self._set(found, "ready", **values, method=method, text=text, recall=score, trust=trust)
        faults.passing("compaction-ready")

    async def _set(self, found: _Open, state: str, **values: Any) -> None:
        sets = ", ".join(f"{name} = ?" for name in ("state", *values))
        await self._ledger.do(
            lambda tx: tx.execute(
                f"UPDATE compaction SET {sets} WHERE id = ? AND state NOT IN ('written', 'failed')",
                *(state, *values.values(), found.id),
            )
        )

    async def _write(self, found: _Open) -> None:
        """Append the block, once, and have it stand."""
        row, path, session = found.row, self._path(found), found.row["session"]
        mark = Mark(found.id, row["method"], row["upto"], row["masked"], row["trust"], row["recall"])
        block = compaction.block_of(mark, row["text"], moment_of(row["made"]))
        stands = block if row["upto"] is not None else None
        after = await self._after(found, row["masked"], row["kept"], stands)
        if self._early(found) and after >= row["before"]:
            await self._ledger.do(lambda tx: self._fail(tx, row, compaction.EARLY))
            return
        async with self._alone(session):
            if await self._ledger.do(lambda tx: self._look(tx, session)) is None:
                return
            starts = await to_thread.run_sync(_append, path, session, block, row["behind"])
            faults.passing("compaction-appended")
            await self._ledger.do(lambda tx: self._written(tx, found, after, starts))
        faults.passing("compaction-written")

    def _early(self, found: _Open) -> bool:
        """Whether a person asked for it before it was due: that it frees little says nothing then."""
        soft = self._thresholds(found.seen.group, found.seen.standing).soft
        return bool(found.row["cause"] == "manual" and found.row["before"] < soft)

    def _written(self, tx: Transaction, found: _Open, after: int, starts: int | None) -> None:
        row, now, session = found.row, rfc3339(self._clock.now()), found.row["session"]
        done = tx.one(
            "UPDATE compaction SET state = 'written', text = NULL, after = ?, starts = ?, ended = ?"
            " WHERE id = ? AND state = 'ready' RETURNING id",
            *(after, starts, now, row["id"]),
        )
        if done is None:
            return
        context = contexts.of(tx, session, now)
        fruitless = context["fruitless"] + 1 if compaction.fruitless(row["before"], after) else 0
        if fruitless and self._early(found):
            fruitless = context["fruitless"]
        values: dict[str, Any] = {
            "window": after, "estimated": 1, "compact_count": context["compact_count"] + 1, "fruitless": fruitless,
        }  # fmt: skip
        if row["upto"] is not None:
            values |= {"last_recall": row["recall"], "failures": 0}
            groups.distrust(tx, session, row["trust"])
        contexts.update(tx, session, now, **values)
        self.measure(tx, session, "compact", now, method=row["method"], recall=row["recall"])
        if fruitless > 1:
            self._reconsider(tx, session)


def _id(job: Job) -> int:
    return int(job.key.rpartition(":")[2])


def _expand(found: _Open) -> str:
    return f"clawd context expand --session {found.row['session']} --compaction {found.id}"


def _of(studied: _Studied) -> dict[str, Any]:
    cut = studied.cut
    return {"upto": cut.upto, "masked": cut.masked, "kept": studied.kept, "behind": studied.behind}


def _append(path: Path, session: str, block: Block, behind: int) -> int | None:
    """Append a compaction's block unless it is there; gives where it begins. It belongs to a turn, as what is added to
    one later does."""
    back = max(0, (path.stat().st_size if path.exists() else 0) - _BACK)
    SessionFile(path, session).append([block], behind, True)
    for start in (back, 0) if back else (0,):
        places = [at for at, each in markers(path, start) if each.meta.get("note") == block.meta["note"]]
        if places:
            return places[-1]
    return None
