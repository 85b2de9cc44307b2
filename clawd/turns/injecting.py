"""Injecting: what other programs put into sessions, accepted in the ledger first, then written into the session's file.

The file is a projection of the ledger. It is made again after a crash, where exactly what is missing is written; it is
made later when the disk refuses it now. It is written by one writer a session, never within the blocks of a turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio

from clawd import faults
from clawd.clock import Clock, moment_of, rfc3339
from clawd.config.home import Home
from clawd.errors import ClawdError
from clawd.ledger import injected
from clawd.ledger.db import Ledger
from clawd.ledger.injected import Accepted, Said, Unwritten
from clawd.locks import KeyedLocks
from clawd.model import Block
from clawd.sessions.file import SessionFile
from clawd.signals import News
from clawd.tasks import Tasks, Whole
from clawd.trust import Origin
from clawd.turns.record import LONGEST_WAIT_S

log = logging.getLogger(__name__)

LOOK_S = 3600.0
OPEN_DAYS = 7.0  # after which nobody brings the results of a call any more


@dataclass(frozen=True, slots=True)
class Injected:
    """What became of a piece. `late`: why it is not in the session's file yet; it will be, for it is kept."""

    accepted: Accepted
    late: str | None = None


def block_of(said: Said, session: str) -> Block:
    """A message as the file has it, marked as not ours, and by its key and place in its piece."""
    calls = tuple(
        {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
        for call in said.get("tool_calls", ())
    )
    meta = {"from": str(Origin.EXTERNAL), "name": session, "key": said["key"], "n": said["n"]}
    return Block(said["role"], said["content"], moment_of(said["at"]), calls, said.get("tool_call_id"), meta)


class Injector:
    """`alone` holds a session against whoever records its turns. With `tasks` (in the daemon) what could not be written
    is tried again; a command that holds the home's lock leaves it to the next daemon."""

    def __init__(
        self,
        home: Home,
        ledger: Ledger,
        clock: Clock,
        alone: Callable[[str], AbstractAsyncContextManager[None]] | None = None,
        tasks: Tasks | None = None,
        news: Callable[[News], None] = lambda news: None,
    ) -> None:
        self._home, self._ledger, self._clock = home, ledger, clock
        self._alone = alone or KeyedLocks().hold
        self._tasks, self._news = tasks, news
        self._whole = Whole()
        # Sessions whose file may have some of what it is to have; None: not known.
        self._doubtful: set[str] | None = None
        self._trying: set[str] = set()

    async def inject(self, session: str, group: str, blocks: Sequence[Said], key: str | None) -> Injected:
        """Accept a piece and write what is whole. Raises UsageError, StorageError: then nothing was accepted."""
        (done,) = await self.inject_many(session, group, [(blocks, key)])
        return done

    async def inject_many(
        self, session: str, group: str, pieces: Sequence[tuple[Sequence[Said], str | None]]
    ) -> list[Injected]:
        """The same of several, which are accepted together or not at all, and written together."""
        return await self._whole(self._inject(session, group, pieces))

    async def _inject(
        self, session: str, group: str, pieces: Sequence[tuple[Sequence[Said], str | None]]
    ) -> list[Injected]:
        await self._look_back()
        now = rfc3339(self._clock.now())
        accepted = await self._ledger.do(
            lambda tx: [injected.accept(tx, session, group, blocks, key, now) for blocks, key in pieces]
        )
        faults.passing("injected")
        late = {each: await self._write_or_later(each) for each in dict.fromkeys(said.session for said in accepted)}
        return [Injected(each, late[each.session]) for each in accepted]

    async def _write_or_later(self, session: str) -> str | None:
        """None once everything is written, else why not yet."""
        try:
            await self.write(session)
        except Exception as error:  # whatever it is: what was accepted is kept, and that is said
            foreseen = isinstance(error, ClawdError | OSError)
            why = str(error) if foreseen else f"a defect of clawd: {error!r}"
            if self._tasks is not None or not foreseen:  # whoever gave it to a command is told by that
                log.exception("what was injected into %s cannot be written", session)
            if self._tasks is not None and session not in self._trying:
                self._trying.add(session)
                self._news(News("trouble", data={"what": f"what was injected cannot be written: {why}"}))
                self._tasks.start_soon(self._try_again, session, name="injecting")
            return why
        return None

    async def _try_again(self, session: str) -> None:
        pause = 1.0
        try:
            while True:
                await anyio.sleep(pause)
                try:
                    await self.write(session)
                    return
                except Exception as error:
                    log.error("what was injected into %s cannot be written yet: %s", session, error)
                pause = min(pause * 2, LONGEST_WAIT_S)
        finally:
            self._trying.discard(session)

    async def write(self, session: str) -> None:
        """Bring everything that is whole into the session's file. Raises StorageError, Refused, UnsafePath, OSError;
        it may be repeated."""
        doubtful = await self._look_back()
        async with self._alone(session):
            more = True
            while more:
                # Read while nobody else writes: what was taken out of the ledger meanwhile is not written.
                due = await self._ledger.do(lambda tx: injected.unwritten(tx, session))
                if due is None:
                    break
                redo = session in doubtful
                doubtful.add(session)
                await anyio.to_thread.run_sync(self._append, session, due, redo)
                faults.passing("injection-appended")
                await self._ledger.do(lambda tx, due=due: injected.recorded(tx, due.pieces))  # type: ignore[misc]
                faults.passing("injection-recorded")
                doubtful.discard(session)
                more = due.more

    async def _look_back(self) -> set[str]:
        """Before anything is accepted: of what is whole now an earlier life may have written some."""
        if self._doubtful is None:
            found = set(await self._ledger.do(injected.sessions))
            if self._doubtful is None:  # whoever else asked was no faster
                self._doubtful = found
        return self._doubtful

    def _append(self, session: str, due: Unwritten, redo: bool) -> None:
        path: Path = self._home.group(due.folder).sessions / f"{due.stem}.md"
        SessionFile(path, session).append([block_of(said, session) for said in due.blocks], None, redo)

    async def recover(self) -> None:
        """Write what an earlier life accepted."""
        for session in await self._ledger.insist(injected.sessions):
            await self._write_or_later(session)

    async def run(self) -> None:
        """For ever: what an earlier life accepted, then calls whose results nobody brings."""
        while True:
            await self.recover()
            before = rfc3339(self._clock.now() - timedelta(days=OPEN_DAYS))
            for session in await self._ledger.insist(lambda tx, before=before: injected.close(tx, before)):  # type: ignore[misc]
                await self._write_or_later(session)
            await anyio.sleep(LOOK_S)

    def result(self, done: Injected, group: str) -> dict[str, Any]:
        """What whoever injected is told."""
        accepted = done.accepted
        state = "known" if accepted.known else "waits" if accepted.waits else "later" if done.late else "recorded"
        told: dict[str, Any] = {"session": accepted.session, "group": group, "key": accepted.key, "state": state}
        return told | {"waits": accepted.waits} | ({"why": done.late} if done.late else {})
