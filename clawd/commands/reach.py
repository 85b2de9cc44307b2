"""What the chat commands reach of the daemon that carries them out."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from clawd.approvals.approvals import After, Approvals
from clawd.clock import moment_of
from clawd.commands import schedules
from clawd.commands.contexts import ContextOperations
from clawd.commands.memory_chat import MemoryTalk
from clawd.commands.people import PeopleOperations
from clawd.commands.schedules import ScheduleOperations
from clawd.config.home import Home
from clawd.config.live import LiveConfig
from clawd.ledger.approvals import Verdict
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.ledger.deliveries import Address, binding_of
from clawd.turns.dispatch import Dispatcher
from clawd.turns.record import Recorder
from clawd.usage.books import Books


class Reach:
    """Implements `intake.CommandContext`."""

    def __init__(
        self,
        home: Home,
        config: LiveConfig,
        ledger: Ledger,
        dispatcher: Dispatcher,
        recorder: Recorder,
        books: Books,
        people: PeopleOperations,
        approvals: Approvals,
        schedules: ScheduleOperations,
        contexts: ContextOperations,
        memory: MemoryTalk,
    ) -> None:
        self.context, self.compact = contexts.said, contexts.typed
        self.memory, self.remember, self.decide_memory = memory.memory, memory.remember, memory.decide
        self._schedules = schedules
        self._home, self._config, self._ledger, self._books = home, config, ledger, books
        self._dispatcher, self._recorder, self._people, self._approvals = dispatcher, recorder, people, approvals

    def stopped(self, live: list[int], waiting: list[int], told: Collection[Address] = ()) -> None:
        for turn in live:
            self._dispatcher.stop_live(turn)
        for turn in waiting:
            self._recorder.soon(turn)
        for address in told:
            self._dispatcher.deliver(address)

    def freed(self, group: str) -> None:
        self._dispatcher.wake(group)

    def state_of(self, group: str) -> str:
        settings = self._config.for_group(group)
        run = self._dispatcher.active.get(group)
        sandbox = f"{run.backend} sandbox, {len(run.live)} at work" if run else "no sandbox now"
        return f"group {group}: engine {settings.model.engine}, {sandbox}"

    def decide(self, tx: Transaction, row: Row, verdict: Verdict, which: str) -> tuple[str, After | None]:
        return self._approvals.typed(tx, row, verdict, which)

    async def usage(self, group: str, session: str) -> str:
        from clawd.usage import reports

        rules, when = self._books.rules(group), self._books.period(group)
        return await self._ledger.do(lambda tx: reports.said(tx, rules, session, when))

    async def model(self, group: str, words: str) -> str:
        settings, config = self._config.for_group(group), self._config.current

        def say() -> str:
            from clawd.commands import model

            return model.say(self._home.group(group).config_file, config, settings, group, words)

        return await asyncio.to_thread(say)

    async def schedule(self, row: Row, words: str) -> str:
        group = row["grp"]
        if not words:
            return schedules.lines(await asyncio.to_thread(schedules.listed, self._home, group))
        here = binding_of(Address.of(row))
        to = here if here in self._config.bindings(group)[1:] else None  # to the first it goes by itself
        made = await self._schedules.made(group, words, {"deliver_to": to}, now=moment_of(row["received"]))
        return schedules.understood(made)

    async def skills(self, group: str) -> str:
        def say() -> str:
            from clawd.commands import skills

            return skills.said(self._home, group)

        return await asyncio.to_thread(say)

    async def pair(self, person: str | None) -> str:
        made = await self._people.pair({"person": person})
        return f"Send {made['code']} to me in a direct message from your other account, within ten minutes."
