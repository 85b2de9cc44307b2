"""The road out of a run, from the run's side: whose token it is, for whom the road is open, and what comes in by it.

Nothing here believes a request. There is a road while a turn or a command of the owner is live, at the lowest role of
all of them; what an answer brings in is in the ledger before a byte of it is passed on.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping

from clawd import faults
from clawd.gateway.caller import TOKEN, Road
from clawd.ids import is_job
from clawd.ledger import turns
from clawd.ledger.db import Ledger
from clawd.log import redactor
from clawd.signals import News, Signals
from clawd.tasks import Tasks
from clawd.trust import lowest
from clawd.turns.run import Run
from clawd.usage.budgets import BudgetSpent

MOST_ALARMS = 5
LONGEST_SENTENCE = 500  # characters of what a person is told of a request
# Control and format characters (those that turn text among them), line ends, lone surrogates.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\xa0\xad\u061c\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ud800-\udfff]+")


def new_token() -> str:
    """A run's, or that of a command beside it; its form is `caller.TOKEN`."""
    return f"claw-{secrets.token_urlsafe(32)}"


def token_hash(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def plain(sentence: str) -> str:
    """A sentence with parts of a request in it, fit for a chat: one line, bounded, no control characters, no secret."""
    text = TOKEN.sub("[token]", redactor.clean(sentence))
    text = " ".join(_UNSEEN.sub(" ", text).split())
    return text if len(text) <= LONGEST_SENTENCE else f"{text[:LONGEST_SENTENCE]} …"


class RunCaller:
    """Implements `gateway.caller.Caller` for one run. `active` are all runs of this daemon, `notice` tells the chat of
    a turn."""

    def __init__(
        self,
        run: Run,
        active: Mapping[str, Run],
        ledger: Ledger,
        signals: Signals,
        tasks: Tasks,
        notice: Callable[[int, str], Awaitable[None]],
    ) -> None:
        self.run, self.group = run.id, run.group
        self._run, self._active, self._ledger = run, active, ledger
        self._signals, self._tasks, self._notice = signals, tasks, notice

    def road(self) -> Road | None:
        run = self._run
        roles = [each.role for each in run.acting]
        if not roles or run.killed or run.gone.is_set():
            return None
        jobs = not run.commands and all(is_job(live.session) for live in run.live.values())
        return Road(lowest(roles), next(iter(run.live)) if len(roles) == 1 and run.live else None, jobs)

    def turn_of(self, session: str) -> int | None:
        return next((live.turn for live in self._run.live.values() if live.session == session), None)

    def spent(self, turn: int | None, reason: BudgetSpent) -> None:
        for live in self._run.live.values():
            if turn in (None, live.turn):
                live.spent = reason

    def paid(self, turn: int | None) -> None:
        for live in self._run.live.values():
            if turn in (None, live.turn):
                live.spent = None

    def owner_of(self, token: str) -> str | None:
        hashed = token_hash(token)
        return next((run.id for run in self._active.values() if run.knows(hashed)), None)

    async def taint(self, trust: float) -> None:
        """Raises StorageError where that cannot be kept: then nothing may come in."""
        run = self._run
        async with run.tainting:  # whoever comes meanwhile waits for the same commit
            commands = list(run.commands.values())
            if run.live and not commands and all(each.taint <= trust for each in run.live.values()):
                return
            # What a command brings in, or what comes when its turn has just ended, lies in the work tree; each time,
            # for the owner may have lifted that since.
            tree = bool(commands or not run.live)
            await self._ledger.do(lambda tx: turns.fall(tx, self.run, trust, tree=tree))
            faults.passing("tainted")
            for live in run.live.values():
                live.taint = min(live.taint, trust)
            for command in commands:
                command.taint = min(command.taint, trust)

    def told(self, sentence: str) -> None:
        for live in self._run.live.values():
            if not live.told:
                live.told = True
                text = f"{plain(sentence)} Every request: clawd gateway audit --group {self.group}"
                self._tasks.start_soon(self._notice, live.turn, text)

    def alarm(self, sentence: str) -> None:
        """A few a turn or command, however many names it thinks of: what it did besides is in the audit."""
        live = self._run.acting
        if all(each.alarms >= MOST_ALARMS for each in live):
            return
        for each in live:
            each.alarms += 1
        self._signals.emit(News("trouble", group=self.group, data={"what": plain(sentence)}))
