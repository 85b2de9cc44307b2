"""The record: a turn's blocks in its session file, built from the ledger, safe to repeat."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from clawd import faults
from clawd.clock import Clock, moment_of, rfc3339
from clawd.config.home import Home
from clawd.context.fence import voices
from clawd.ids import is_job
from clawd.ledger import changes, deliveries, ends, jobs, steering, turns
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.locks import KeyedLocks
from clawd.model import Block
from clawd.sessions.file import SessionFile
from clawd.signals import News, Signals
from clawd.tasks import Tasks
from clawd.trust import Origin
from clawd.turns.jobs import Jobs

log = logging.getLogger(__name__)

LONGEST_WAIT_S = 60.0
LONGEST_NAME = 200  # characters of what an engine's notes name


def blocks_of(turn: Row, wakes: list[dict[str, Any]], steps: list[dict[str, Any]]) -> list[Block]:
    """The blocks of an ended turn: what was said to it, its steps, with what joined it between them, its answer or how
    else it ended.

    A turn that tries a failed one again brings only what is new: the failed one's record has the rest.
    """
    blocks = []
    said = deque(wake for wake in wakes if not wake["recorded"])
    for n, step in enumerate(steps[turn["base_steps"] :], turn["base_steps"]):
        while said and said[0]["joined"] <= n:
            blocks += _said(said.popleft())
        calls = tuple(step.get("tool_calls") or ())
        at = _moment(step.get("at"))
        blocks.append(Block(step["role"], step.get("content") or "", at, calls, step.get("tool_call_id")))
    ended = _moment(turn["ended_at"])
    blocks += [Block("tool", "[no result: the turn ended first]", ended, (), id) for id in _unanswered(steps)]
    blocks += [block for wake in said for block in _said(wake)]
    if turn["state"] == "answered":
        final = json.loads(turn["final"])
        named = [f"[file: {name}]" for name in final["files"]]
        text = "\n\n".join(filter(None, [_last(final["text"], steps), *named]))
        if text:
            blocks.append(Block("assistant", text, ended, meta=_answered_by(turn["model"], final["notes"])))
    elif turn["state"] == "stopped":
        newer = turn["stop_requested"] == steering.NEWER
        why = steering.STOPPED[steering.NEWER] if newer else "stopped by the person"
        blocks.append(Block("system", f"[{why}]", ended))
    else:
        blocks.append(Block("system", f"[the turn failed: {turn['error']}]", ended))
    return blocks


def _said(wake: dict[str, Any]) -> list[Block]:
    """A wake as it is kept, a block a voice. One that is not the owner's own message says what and whose it is."""
    blocks = []
    for kind, origin, name, text in voices(wake):
        meta = {"from": origin, "name": name, "kind": kind}
        usual = {"from": Origin.OWNER, "name": None, "kind": "message"}
        meta = {key: value for key, value in meta.items() if value != usual[key]}
        blocks.append(Block("user", text, _moment(wake["at"]), meta=meta))
    return blocks


def _last(text: str, steps: list[dict[str, Any]]) -> str:
    """An answer without those that it begins with: what was answered before something joined is a step already."""
    for step in steps:
        said = "" if step["role"] != "assistant" or step.get("tool_calls") else step.get("content")
        if said and (text == said or text.startswith(f"{said}\n\n")):
            text = text[len(said) + 2 :]
    return text


def _answered_by(model: str | None, notes: dict[str, Any] | None) -> dict[str, Any]:
    """Which model answered, and what it stood in for."""
    meta = {"model": model} if model else {}
    if isinstance(fallbacks := (notes or {}).get("fallback"), list):
        told = (f"{each.get('from')} {each.get('why')}" for each in fallbacks if isinstance(each, dict))
        meta["fallback"] = "; ".join(told)[:LONGEST_NAME]
    return meta


def _unanswered(steps: list[dict[str, Any]]) -> list[str]:
    """Calls of the last assistant step that have no result: a turn that was stopped or failed leaves some."""
    calls: list[str] = []
    for step in steps:
        if step["role"] == "assistant":
            calls = [call["id"] for call in step.get("tool_calls") or ()]
        elif step.get("tool_call_id") in calls:
            calls.remove(step["tool_call_id"])
    return calls


def _moment(text: str | None) -> datetime | None:
    return moment_of(text) if text else None


class Recorder:
    """Writes ended turns. One at a time a session, in the order in which they ended."""

    def __init__(
        self,
        home: Home,
        ledger: Ledger,
        clock: Clock,
        signals: Signals,
        tasks: Tasks,
        jobs: Jobs,
        then: Callable[[str], None],
    ) -> None:
        self._home, self._ledger, self._clock, self._signals = home, ledger, clock, signals
        self._tasks, self._jobs, self._then = tasks, jobs, then
        self._locks = KeyedLocks()
        self._notes = True  # since before the start, perhaps
        self.settle: Callable[[Transaction, Row, Sequence[Block]], None] = lambda tx, turn, blocks: None
        """Decides about a session's context, in the transaction that says that a turn of it is in its file."""
        self.settled: Callable[[str], None] = lambda session: None
        """Hears that this was decided."""
        self.recorded: Callable[[str, int], Awaitable[None]] = _nothing
        """Hears of a group's turn that is in its file, before the session goes on."""

    def alone(self, session: str) -> AbstractAsyncContextManager[None]:
        """Nothing is recorded of the session while this is held."""
        return self._locks.hold(session)

    def soon(self, turn: int, redo: bool = False) -> None:
        """Record a turn beside everything else; `then` is told its group when that is done."""
        self._tasks.start_soon(self._until_recorded, turn, redo, name=f"record {turn}")

    async def _until_recorded(self, turn: int, redo: bool) -> None:
        """Until it works, the session's next turn waits and the log says why."""
        pause = 1.0
        while True:
            try:
                row, more = await self.record(turn, redo=redo)
                await self.recorded(row["grp"], turn)
                faults.passing("recorded")
                break
            except Exception as error:  # whatever it is: this session waits, and that is said
                log.exception("turn %s cannot be recorded", turn)
                if redo:  # not for the first time
                    self._signals.emit(News("trouble", data={"what": f"turn {turn} cannot be recorded: {error}"}))
            await anyio.sleep(pause)
            pause, redo = min(pause * 2, LONGEST_WAIT_S), True
        self._signals.emit(News("turn", row["grp"], row["session"], {"turn": turn, "state": "recorded"}))
        if more:
            self._then(row["grp"])
        if self._notes:
            await self.add_notes()

    async def record(self, turn: int, *, redo: bool) -> tuple[Row, bool]:
        """Append the turn's blocks durably, then say so in the ledger; gives the turn, and whether its group has
        another that may be claimed now. Raises StorageError or OSError; then try again with `redo`. A job has no
        file: its room hears how it ended."""

        def read(tx: Transaction) -> tuple[Row, Path | None, list[Block]]:
            row = turns.get(tx, turn)
            if is_job(row["session"]):
                return row, None, []
            blocks = blocks_of(row, turns.wakes(tx, turn), turns.steps(tx, turn))
            later = tx.one("SELECT base FROM session WHERE id = ? AND segment > 1", row["session"])
            if blocks and later is not None:  # which the ledger alone would know, and may lose
                blocks[-1] = replace(blocks[-1], meta=blocks[-1].meta | {"base": later["base"]})
            return row, self._file(tx, row["session"]), blocks

        def settled(tx: Transaction) -> tuple[str | None, bool]:
            return self._settle(tx, turns.get(tx, turn), blocks), ends.recorded(tx, turn, rfc3339(self._clock.now()))

        row, path, blocks = await self._ledger.do(read)
        if path is None:
            return row, await self._end_job(row)
        async with self._locks.hold(row["session"]):
            file = SessionFile(path, row["session"])
            await anyio.to_thread.run_sync(lambda: file.append(blocks, turn, redo))
            faults.passing("appended")
            trouble, more = await self._ledger.do(settled)
        if trouble is not None:
            self._signals.emit(News("trouble", group=row["grp"], data={"what": trouble}))
        self.settled(row["session"])
        return row, more

    def _settle(self, tx: Transaction, turn: Row, blocks: list[Block]) -> str | None:
        """A defect in what is decided about a context costs that decision, and not the conversation. Gives the sentence
        for the owner then."""
        why = None
        tx.execute("SAVEPOINT context")
        try:
            self.settle(tx, turn, blocks)
        except sqlite3.Error:
            raise
        except Exception as error:
            log.exception("nothing was decided about the context of session %s", turn["session"])
            tx.execute("ROLLBACK TO context")
            why = f"nothing was decided about the context of session {turn['session']} ({type(error).__name__})"
        tx.execute("RELEASE context")
        return why

    async def _end_job(self, row: Row) -> bool:
        def end(tx: Transaction) -> tuple[str | None, bool, Row]:
            told = self._jobs.ended(tx, row["id"]) if row["recorded_at"] is None else None
            return told, ends.recorded(tx, row["id"], rfc3339(self._clock.now())), jobs.of(tx, row["id"])

        told, more, job = await self._ledger.do(end)
        self._jobs.over(job)
        if told is not None:
            self._signals.emit(News("trouble", group=row["grp"], data={"what": told}))
        return more

    def _file(self, tx: Transaction, session: str) -> Path:
        place = tx.one("SELECT s.stem, g.folder FROM session s JOIN grp g ON g.name = s.grp WHERE s.id = ?", session)
        assert place is not None
        return self._home.group(place["folder"]).sessions / f"{place['stem']}.md"

    def failed(self) -> None:
        """A delivery failed for good, or a message was changed when its turn was over: its conversation is to have a
        note of it."""
        self._notes = True  # its turn may still have to be recorded first
        self._tasks.start_soon(self.add_notes)

    async def add_notes(self) -> None:
        """Append a block for every delivery that failed, and every edit and deletion that came too late, once; those of
        turns that are not recorded yet wait."""

        def read(tx: Transaction) -> list[_Note]:
            failures = [_failure(row, turns.get(tx, row["turn"])) for row in deliveries.failures_to_note(tx)]
            late = [_change(row, said, turns.get(tx, said["turn"])) for row, said in changes.to_note(tx)]
            return [replace(note, path=self._file(tx, note.turn["session"])) for note in failures + late]

        self._notes = False
        for note in await self._ledger.do(read):
            try:
                async with self._locks.hold(note.turn["session"]):
                    file = SessionFile(note.path, note.turn["session"])
                    await anyio.to_thread.run_sync(file.append, [note.block], note.turn["id"], True)
                    await self._ledger.do(note.noted)
            except Exception:  # this conversation's note waits for the next occasion
                log.exception("%s cannot be noted", note.block.meta["note"])
                self._notes = True


async def _nothing(group: str, turn: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class _Note:
    """A block that is added to a turn later; `noted` says in the ledger that it was."""

    turn: Row
    block: Block
    noted: Callable[[Transaction], None]
    path: Path = Path()


def _failure(row: Row, turn: Row) -> _Note:
    text = f"[this could not be delivered to {row['channel']}:{row['chat']}: {row['error']}]"
    block = Block("system", text, _moment(turn["ended_at"]), meta={"note": f"delivery {row['id']}"})
    return _Note(turn, block, partial(deliveries.noted, delivery=row["id"]))


def _change(row: Row, said: Row, turn: Row) -> _Note:
    """What somebody wrote anew is theirs, and no word of ours."""
    note, noted, at = {"note": f"{row['kind']} {row['seq']}"}, partial(changes.settled, seq=row["seq"]), row["at"]
    if row["kind"] == "delete":
        text = f"[a message of {said['at']} was deleted by whoever sent it]"
        return _Note(turn, Block("system", text, _moment(at), meta=note), noted)
    wake = {"kind": "edit", "sender": row["name"] or row["sender"], "role": row["role"], "at": at}
    blocks = _said({**wake, "parts": json.loads(row["parts"])})
    head = f"[instead of a message of {said['at']}]\n"
    return _Note(turn, replace(blocks[0], content=head + blocks[0].content, meta=blocks[0].meta | note), noted)
