"""The daemon's rooms, put together: each is handed what it needs, and none knows where that comes from."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import anyio
from anyio import to_thread

from clawd import stores
from clawd.adapters import Adapters
from clawd.approvals.approvals import Approvals
from clawd.approvals.budget import raise_of
from clawd.approvals.context import Confirming, Context
from clawd.approvals.kinds import kinds
from clawd.approvals.wall import Wall
from clawd.arrivals.rooms import Rooms as Arrivals
from clawd.channel import ChannelLimits
from clawd.clock import SystemClock
from clawd.commands.arrivals import ArrivalOperations
from clawd.commands.contexts import ContextOperations
from clawd.commands.external import ExternalOperations
from clawd.commands.memory import MemoryOperations
from clawd.commands.memory_chat import MemoryTalk
from clawd.commands.operations import Operation, Operations
from clawd.commands.people import PeopleOperations
from clawd.commands.reach import Reach
from clawd.commands.running import RunOperations
from clawd.commands.schedules import ScheduleOperations
from clawd.commands.table import COMMANDS
from clawd.config.group import Effective
from clawd.config.home import Home, group_folders, runtime_directory
from clawd.config.live import LiveConfig
from clawd.config.models import THINKING, model_services
from clawd.config.presets import services
from clawd.config.store import group_folder_store
from clawd.context.compose import Composer
from clawd.control.server import ControlServer
from clawd.conversations import Conversations
from clawd.delivery.live import Live
from clawd.delivery.outbox import Outbox
from clawd.files import Blobs
from clawd.host.gate import Gate
from clawd.host.sockets import Sockets
from clawd.intake import Done, Intake, Rules
from clawd.intake.attachments import Attachments
from clawd.intake.speech import Speech
from clawd.ledger import questions, scripts
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.ledger.deadlines import Deadlines
from clawd.ledger.store import LedgerStore
from clawd.lifecycle.store import manifest_store
from clawd.memory.kept import MemoryStore
from clawd.owner import Owner
from clawd.people.bindings import Bindings
from clawd.people.door import Door
from clawd.people.pairing import Codes
from clawd.people.roster import LiveRoster
from clawd.reloads import Reloads
from clawd.sandbox.choose import choose_backend
from clawd.sandbox.image import image_for
from clawd.sandbox.limits import limits_of
from clawd.sandbox.mounts import Mounts
from clawd.sessions.store import session_store
from clawd.signals import News, Signals
from clawd.skills.catalogue import Catalogue
from clawd.skills.shelf import Shelf
from clawd.tasks import Tasks
from clawd.turns.compacting import Compactor
from clawd.turns.counter import Counter
from clawd.turns.digest import Digest
from clawd.turns.dispatch import Dispatcher
from clawd.turns.execute import Executor
from clawd.turns.following import Following
from clawd.turns.handing_over import HandingOver
from clawd.turns.injecting import Injector
from clawd.turns.jobs import Jobs
from clawd.turns.lifecycle import Lifecycle
from clawd.turns.memory import Memories
from clawd.turns.projecting import Projector
from clawd.turns.record import Recorder
from clawd.turns.redaction import Redaction
from clawd.turns.road import RunCaller
from clawd.turns.ruling import Ruling
from clawd.turns.run import Run
from clawd.turns.runs import Runs
from clawd.turns.skills import Skills
from clawd.turns.spaces import Spaces
from clawd.turns.tending import Tending
from clawd.upkeep import Upkeep
from clawd.usage import prices
from clawd.usage.books import Books
from clawd.usage.budgets import BudgetSpent
from clawd.wakes.clockwork import Clockwork
from clawd.wakes.edits import Edits
from clawd.wakes.files import Files
from clawd.wakes.watcher import Watcher
from clawd.wakes.webhooks import Webhooks

logger = logging.getLogger(__name__)

COPYING_S = 2.0  # whoever copies a folder is let finish before it is judged
SECOND_HELLO = "a process of its sandbox played the runner"


class Rooms:
    """All rooms over an open ledger, built once, in `build`."""

    def __init__(self, home: Home, config: LiveConfig, ledger: Ledger) -> None:
        self.home, self.config, self.ledger = home, config, ledger
        self.clock = SystemClock()
        self.signals = Signals()

    def build(self, tasks: Tasks, asked: Mapping[str, Operation]) -> None:
        """`asked` are operations of the control socket beside those of the rooms."""
        self.tasks = tasks
        home, ledger, clock, signals = self.home, self.ledger, self.clock, self.signals
        trouble = partial(_trouble, signals)
        self.channels = Adapters(
            lambda: self.config.current.channels,
            clock,
            tasks,
            lambda sentence, but_not: self.owner.tell_soon(sentence, but_not),
            lambda channel: self.outbox.back(channel),
        )
        self.outbox = Outbox(
            ledger,
            signals,
            clock,
            self.channels,
            home.blobs,
            tasks,
            failed=lambda: self.recorder.failed(),
            tell_owner=lambda sentence, but_not: self.owner.tell(sentence, but_not),
            sent=self.channels.sent,
            is_open=self.channels.is_open,
            is_live=self.channels.is_live,
        )
        self.live = Live(ledger, signals, clock, self.channels, self.outbox, tasks, self.config.wall_seconds)
        self.roster = LiveRoster(home, lambda sentence: self.owner.tell_soon(sentence))
        self.bindings = Bindings(home, self.config, ledger, lambda sentence: self.owner.tell_soon(sentence))
        self.owner = Owner(
            ledger, clock, tasks, self.outbox.wake, self.roster, self.channels.is_live, self.channels.limits_of
        )
        self.reloads = Reloads(self.config, self.owner.tell_soon, self._config_changed)
        self.books = Books(ledger, clock, lambda: self.config.current, self._settings)
        self.gate = Gate(home, self.config, clock, self.reloads.renew, self._chosen, self.books)
        self.skills = Skills(home, ledger, clock, Shelf(home, Catalogue(home)))
        self.memories = Memories(
            home,
            ledger,
            clock,
            lambda group: self.config.for_group(group).memory,
            forgotten=lambda group, texts: self.redaction.redact(group, texts),
            following=Following(tasks, lambda: self.watcher, self.owner.tell_soon),
            spaces=Spaces(
                self.config.group, lambda group: self.config.problem_of(group) is None, lambda: group_folders(home)
            ),
        )
        self.ruling = Ruling(
            lambda: self.config.current, self.config.for_group, window=prices.window_of, root=home.root
        )
        self.composer = Composer(
            home,
            clock,
            self.config.for_group,
            self.gate.environment,
            config=lambda: self.config.current,
            host_tools=self._host_tools,
            skills=self.skills.of,
            recall=self.memories.recall,
            given=self.memories.shown,
            script=lambda session: ledger.do(lambda tx: scripts.of(tx, session)),
            hard=lambda group, standing: self.ruling.limits(group, standing).hard,
        )
        self.jobs = Jobs(ledger, clock, self.composer.engine, lambda group: self.dispatcher.wake(group))
        self.recorder = Recorder(
            home, ledger, clock, signals, tasks, self.jobs, lambda group: self.dispatcher.wake(group)
        )
        compactor = Compactor(home, ledger, clock, self.jobs, self.composer, self.recorder.alone, self.ruling.limits)
        self.handing = HandingOver(
            home,
            ledger,
            clock,
            alone=self.recorder.alone,
            limits=self.channels.limits_of,
            deliver=self.outbox.wake,
            wake=lambda group: self.dispatcher.wake(group),
            tell=lambda sentence: self.owner.tell_soon(sentence),
        )
        self.lifecycle = Lifecycle(
            ledger,
            clock,
            tasks,
            compactor,
            self.handing,
            Projector(home, ledger, clock, self.ruling),
            rules=self.ruling,
            price=self.books.cost,
            limits=self.channels.limits_of,
            deliver=lambda to: self.outbox.wake(to),
            tell=lambda sentence: self.owner.tell_soon(sentence),
        )
        compactor.reconsider, compactor.soon = self.lifecycle.reconsider, self.lifecycle.soon
        compactor.measure = self.lifecycle.measure
        self.recorder.settle, self.recorder.settled = self.lifecycle.settle, self.lifecycle.soon
        self.injector = Injector(home, ledger, clock, self.recorder.alone, tasks, signals.emit)
        self.handing.seeded = self.injector.write
        self.redaction = Redaction(home, ledger, clock, self.recorder.alone)
        self.recorder.recorded, self.memories.forgotten = self.redaction.recorded, self.redaction.redact
        self.dispatcher = Dispatcher(
            ledger=ledger,
            clock=clock,
            signals=signals,
            recorder=self.recorder,
            tasks=tasks,
            deliver=self.outbox.wake,
            limits=self.channels.limits_of,
            max_live=lambda: self.config.current.sandbox.max_live,
            warm_seconds=lambda group: self.config.for_group(group).sandbox.warm_minutes * 60,
            books=self.books,
            wall_seconds=self.config.wall_seconds,
        )
        self.mounts = Mounts(
            home,
            os.environ,
            runtime_directory(dict(os.environ)),
            self.config.mounts,
            lambda: group_folders(home),
            self.config.current.sandbox.docker_host,
            trouble,
        )
        ledger_store, memory_store = LedgerStore(home.ledger_file, home.blobs), MemoryStore(home, clock)
        for store in (session_store(home), manifest_store(home), memory_store, group_folder_store(home), ledger_store):
            stores.register(store)
        self.dispatcher.reconciler.runs = Runs(
            home,
            runtime_directory(dict(os.environ)),
            ledger,
            clock,
            choose_backend(
                self.config.current.sandbox.backend,
                home.root,
                self.config.current.sandbox.docker_host,
                trouble,
            ),
            self._open,
            lambda group: limits_of(self.config.for_group(group).sandbox),
            lambda group: image_for(self.config.for_group(group).sandbox, group),
            self.config.warnings,
            lambda group: self.config.for_group(group).timezone,
            self.gate.bundle,
            self.skills,
            self.mounts,
        )
        self.upkeep = Upkeep(
            home, ledger, clock, lambda: self.config.current.retention, self.owner.tell_soon, self.skills.shelf
        )
        self.dispatcher.runs.check_room = self.upkeep.check_room
        self.counter = Counter(
            dispatcher=self.dispatcher,
            ledger=ledger,
            clock=clock,
            signals=signals,
            composer=self.composer,
            blobs=Blobs(home.blobs),
            limits=self.channels.limits_of,
            jobs=self.jobs,
            followups=self.config.followups,
            parallel=lambda: self.config.current.sandbox.parallel,
        )
        self.counter.overflowed, self.counter.handed = self.lifecycle.overflowed, self.lifecycle.soon
        self.questions = Deadlines(ledger, clock, questions.expire, self.dispatcher.wake)
        self.approvals = Approvals(
            ledger,
            clock,
            tasks.start_soon,
            kinds(
                home,
                clock,
                self.bindings,
                self.roster,
                limits=self.channels.limits,
                deliver=self.outbox.wake,
                raised=self.dispatcher.spending.look,
                scheduled=lambda group: self.clockwork.look(group),
                watched=lambda group: self.files.renew(group),
                context=Context(
                    lambda tx, session, decision, by: self.lifecycle.carry_out(tx, session, decision, by),
                    lambda tx, session, decision, by: self.lifecycle.journal(tx, session, decision, confirm=by),
                    soon=self.lifecycle.soon,
                    wake=self.dispatcher.wake,
                    limits=self.channels.limits_of,
                ),
            ),
            self.owner,
            limits=self.channels.limits_of,
            deliver=self.outbox.wake,
            wake=self.dispatcher.wake,
            blobs=home.blobs,
        )
        self.lifecycle.confirming = Confirming(self.approvals, self.channels.limits_of)
        self.dispatcher.spending.ask = self._ask_for_more
        self.sockets = Sockets(
            self.counter,
            clock,
            home,
            self.channels.limits,
            self.config.bindings,
            lambda group: self.config.for_group(group).timezone,
            self.approvals,
            self._asked,
            self._second_hello,
            lambda run: RunCaller(run, self.dispatcher.active, ledger, signals, tasks, self.counter.notice),
            self.gate.gateway,
            self.skills,
            self.memories,
        )
        self.executor = Executor(self.dispatcher, ledger, clock, self.gate.environment)
        self.clockwork = Clockwork(
            home,
            ledger,
            clock,
            tasks,
            signals,
            self.config,
            self.owner,
            base=self.bindings.base,
            wake=self.dispatcher.wake,
            deliver=self.outbox.wake,
            limits=self.channels.limits_of,
            output=self.executor.output,
        )
        self.operations = Operations(home, ledger, clock, self.dispatcher, self.approvals)
        self.operations.settled = self.lifecycle.soon
        self.conversations = Conversations(
            home, ledger, signals, self.operations, self.channels["terminal"], self.bindings.base
        )
        codes = Codes(clock)
        self.speakers = PeopleOperations(
            self.roster, ledger, clock, codes, lambda live, waiting: self.reach.stopped(live, waiting)
        )
        self.schedules = ScheduleOperations(home, ledger, clock, self.operations.group, self.clockwork)
        self.digest = Digest(
            ledger,
            clock,
            self.memories,
            home.state / "trust.jsonl",
            where=self.owner.where,
            limits=self.channels.limits_of,
            deliver=self.outbox.wake,
            busy=lambda group: bool((run := self.dispatcher.active.get(group)) and run.live),
        )
        self.memories.waits = self.digest.waits
        self.tending = Tending(
            home,
            ledger,
            clock,
            self.memories,
            zone=lambda group: self.config.for_group(group).timezone,
            engine=self.composer.engine,
            tell=partial(self.owner.tell, level=logging.INFO),
            jobs=self.jobs,
        )
        self.memory = MemoryOperations(self.memories, self.tending, self.operations.group)
        self.contexts = ContextOperations(ledger, clock, self.lifecycle, self.operations)
        arrivals = Arrivals(
            home, ledger, clock, self.memories, self.operations.settings, self.recorder.alone, self.clockwork.renew
        )
        self.arrivals = ArrivalOperations(arrivals, self.operations.group)
        self.reach = Reach(
            home,
            self.config,
            ledger,
            self.dispatcher,
            self.recorder,
            self.books,
            self.speakers,
            self.approvals,
            self.schedules,
            self.contexts,
            MemoryTalk(home, self.memories, self.owner.name_of, self.channels.limits_of),
        )
        self.speech = Speech(lambda: self.config.current)
        self.watcher = Watcher(self.owner.tell_soon)
        self.edits = Edits(
            home,
            self.config,
            ledger,
            clock,
            tell=self.owner.tell,
            renew=self.reloads.renew,
            people=self.roster.now,
            adopt=self.operations.make_group,
            is_news=lambda group, sentence: self.dispatcher.runs.is_news(group, sentence),
            config_of=self._config_of,
            schedules=self.clockwork.look,
            skills=lambda group: tasks.start_soon(self._tell_of_skills, group or "main"),
        )
        self.files = Files(
            home,
            self.config,
            ledger,
            clock,
            tasks,
            self.watcher,
            judge=self.mounts.check,
            commands=self.executor.commands,
            base=self.bindings.base,
            wake=self.dispatcher.wake,
            deliver=self.outbox.wake,
            limits=self.channels.limits_of,
        )
        self.door = Door(
            home,
            ledger,
            clock,
            roster=self.roster,
            bindings=self.bindings,
            codes=codes,
            asks=self.approvals,
            terminal=self.conversations.place,
            adopt=self.operations.group,
            told=self.owner.tell_soon,
        )
        self.intake = Intake(
            ledger=ledger,
            clock=clock,
            signals=signals,
            tasks=tasks,
            door=Wall(self.door, ledger, self.approvals),
            commands=COMMANDS,
            context=self.reach,
            wake=self.dispatcher.wake,
            deliver=self.outbox.wake,
            limits=self.channels.limits_of,
            rules=self._rules,
            attachments=Attachments(
                ledger,
                self.channels.get,
                lambda group: home.group(group).inbox,
                lambda group: self.config.for_group(group).sandbox.inbox,
                self.speech,
            ),
            stale_hours=lambda channel: self.config.current.channels.stale_hours(channel),
            noted=self.recorder.failed,
            presses={"approve": self._pressed, "deny": self._pressed},
        )
        self.webhooks = Webhooks(
            home,
            self.config,
            ledger,
            clock,
            base=self.bindings.base,
            adopt=self.operations.group,
            wake=self.dispatcher.wake,
            told=self.owner.tell_soon,
            trouble=trouble,
        )
        table = {
            **self.operations.table(),
            **self.speakers.table(),
            **self.schedules.table(),
            **self.memory.table(),
            **ExternalOperations(
                home, ledger, self.operations, self.injector, self.memories, self.config.external
            ).table(),
            **self.arrivals.table(),
            **self.contexts.table(),
            **RunOperations(
                home,
                ledger,
                clock,
                signals,
                lambda: self.config.current,
                self._settings,
                self.operations,
                self.lifecycle.soon,
            ).table(),
            "channels.list": self.channels.list,
            **asked,
        }
        self.control = ControlServer(home.state, table, self.conversations, self.execute)

    # ── what the rooms ask of each other ──

    def _open(self, run: Run) -> AbstractAsyncContextManager[None]:
        """A run begins: its socket, and meanwhile the memory that its turns will be given of."""
        if self.composer.engine(run.group) in THINKING:
            self.tasks.start_soon(self.memories.ready, run.group, name="memory")
        return self.sockets.open(run)

    def _host_tools(self, channel: str) -> list[dict[str, Any]]:
        from clawd.host.tools import declarations

        return declarations(self.channels.limits(channel) or ChannelLimits())

    def _config_changed(self, changes: Sequence[str]) -> None:
        self.channels.renew(changes)
        self.webhooks.look()
        self.clockwork.look()

    def _settings(self, group: str) -> Effective:
        """What holds for a group now, also by an edit that nobody told us of."""
        self.reloads.renew()
        return self.config.for_group(group)

    def _config_of(self, group: str) -> None:
        """A group's file may say something else now."""
        self.files.renew(group)
        self.clockwork.look(group)
        self.webhooks.look()

    async def _tell_of_skills(self, group: str) -> None:
        """What is wrong with skills is said when they are dropped in, not at the next turn alone."""
        await anyio.sleep(COPYING_S)
        _, wrong = await to_thread.run_sync(self.skills.shelf.look, group)
        for sentence in self.composer.news(group, wrong):
            await self.owner.tell(sentence)

    def _rules(self, group: str) -> Rules:
        """What holds in the shared chats of a group."""
        settings, trigger = self.config.shared(group)
        return Rules(settings.answer, trigger, settings.listen, self.config.followups(group))

    def _asked(self) -> None:
        """A tool did something, which may be to ask."""
        self.questions.look_again()
        self.approvals.look_again()

    def _pressed(self, tx: Transaction, row: Row, now: str) -> Done | None:
        pressed = self.approvals.pressed(tx, row)
        return Done(*pressed) if pressed is not None else None

    def _ask_for_more(self, group: str, spent: BudgetSpent) -> None:
        if (effect := raise_of(spent, self.config.for_group(group), self.clock.now())) is not None:
            self.approvals.ask_soon("budget", effect)

    def _second_hello(self, run: Run) -> None:
        self.tasks.start_soon(self.dispatcher.end_run, run.group, SECOND_HELLO)

    async def execute(self, params: dict[str, Any], descriptors: Any) -> int:
        """`sandbox exec`: a command beside the group's runner, on the caller's own streams."""
        group = str(params.get("group") or "main")
        await self.operations.group(group)
        return await self.executor.execute(
            group, list(params["argv"]), dict(params.get("environment") or {}), descriptors
        )

    def _chosen(self, group: str) -> frozenset[str]:
        """Services that live turns of the group reach a model of their own choice through."""
        run, known = self.dispatcher.active.get(group), services(self.config.current)
        choices = {live.choice for live in run.live.values() if live.choice} if run else set()
        tables = [self.composer.chosen(group, choice).model for choice in choices]
        return frozenset().union(*(model_services(table, known) for table in tables))


def _trouble(signals: Signals, what: str) -> None:
    signals.emit(News("trouble", data={"what": what}))
