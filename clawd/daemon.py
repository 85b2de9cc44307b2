"""The daemon: puts the rooms together, opens them in order, watches them, and ends them in order.

Start: lock, config, ledger, what an earlier life left (sandboxes, records, sends in doubt), channels and the control
socket last. End: nothing more is taken in, live turns get a while, sandboxes end or are left to the next daemon,
deliveries are flushed.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from importlib import metadata
from typing import Any

import anyio

from clawd import __version__, faults, log, stores, watchdog
from clawd.channel import Adapter, AdapterFactory, ChannelLimits
from clawd.clock import SystemClock, rfc3339
from clawd.commands.operations import Operations
from clawd.commands.table import COMMANDS
from clawd.config.group import Mount
from clawd.config.home import Home, group_folders, runtime_directory
from clawd.config.live import LiveConfig
from clawd.config.store import group_folder_store
from clawd.context.compose import Composer
from clawd.control.server import ControlServer
from clawd.conversations import Conversations
from clawd.delivery.outbox import Outbox
from clawd.errors import ClawdError, ConfigError, Refused, told
from clawd.files import Blobs
from clawd.host.gate import Gate
from clawd.host.sockets import Sockets
from clawd.ids import folder_name
from clawd.intake import Intake
from clawd.ledger import deliveries, groups, queries
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.deliveries import Address
from clawd.ledger.store import LedgerStore
from clawd.locks import HomeLock
from clawd.model import Incoming
from clawd.sandbox.choose import choose_backend
from clawd.sandbox.image import image_for
from clawd.sandbox.mounts import Mounts
from clawd.sandbox.protocol import SandboxLimits
from clawd.sessions.store import session_store
from clawd.signals import News, Signals
from clawd.supervise import Part, supervise
from clawd.tasks import Tasks
from clawd.trust import Role
from clawd.turns.counter import Counter
from clawd.turns.dispatch import Dispatcher
from clawd.turns.execute import Executor
from clawd.turns.holds import NOTICE_LIMIT
from clawd.turns.questions import Questions
from clawd.turns.record import Recorder
from clawd.turns.road import RunCaller
from clawd.turns.run import Run
from clawd.turns.runs import Runs
from clawd.upkeep import Upkeep

logger = logging.getLogger(__name__)

_M_ARENA_MAX = -8  # malloc.h
SECOND_HELLO = "a process of its sandbox played the runner"
Received = AsyncIterator[signal.Signals]

TURN_GRACE_S = 10.0
FLUSH_GRACE_S = 2.0
END_S = 19.0  # all of the end together, and no longer
TOLD_AGAIN_S = 86400.0  # what goes wrong in the same words is told again after so long
AT_START = ("sandbox.backend:", "sandbox.docker_host:", "logging.", "retention.log_days:")  # keys that are read once
ROOT_CHECK_S = 30.0  # how often it is looked whether `state/` is the one that was opened, and has its ballast


def run(home: Home, until_closed: int | None = None) -> int:
    """Be the daemon of `home` until a signal, or until the pipe `until_closed` closes. Gives the exit code.

    Raises ClawdError when it cannot start: HomeBusy, ConfigError, LedgerCorrupt, StorageError.
    """
    faults.load(os.environ.get("CLAWD_FAULT"))
    _one_heap()
    home.create()
    lock = HomeLock(home.lock_file)
    lock.acquire()
    try:
        config = LiveConfig(home, dict(os.environ))
        log.setup(
            home.log_file,
            config.current.logging.level,
            stderr=config.current.logging.format if sys.stderr.isatty() else None,
            days=config.current.retention.log_days,
        )
        ledger = Ledger.open(home.ledger_file, home.backups)
        try:
            return anyio.run(Daemon(home, config, ledger).serve, until_closed)
        except BaseExceptionGroup as failures:
            raise told(failures) from failures
        finally:
            ledger.close()
    finally:
        lock.release()


def _one_heap() -> None:
    """glibc gives each thread a heap of its own, and none of them ever shrinks. Under the interpreter's lock one is as
    fast, and it keeps 4 MB less."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


class Daemon:
    """One life of the daemon over an open ledger and a held lock."""

    def __init__(self, home: Home, config: LiveConfig, ledger: Ledger) -> None:
        self.home, self.config, self.ledger = home, config, ledger
        self.clock = SystemClock()
        self.signals = Signals()
        self.began = self.clock.monotonic()
        self.ready = False
        self.parts: dict[str, Part] = {}
        self.channels: dict[str, Adapter] = {}

    async def serve(self, until_closed: int | None) -> int:
        """Everything, from the first room to the last."""
        with (  # before anybody can know that we run: a signal must not end us half way
            anyio.open_signal_receiver(signal.SIGHUP) as hangups,
            anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as endings,
        ):
            await self._live(until_closed, hangups, endings)
        if self.ledger.damage is not None:
            raise self.ledger.damage
        if not self.ledger.is_there():
            raise Refused(
                f"{self.home.state} was taken away while clawd ran; it ended, so that nothing is lost in a file without"
                " a name",
                hint="put it back as it was, then start clawd again",
            )
        return 0

    async def _live(self, until_closed: int | None, hangups: Received, endings: Received) -> None:
        async with anyio.create_task_group() as tasks:
            self.tasks = Tasks(tasks)
            self._build(self.tasks)
            await self._adopt_folders()
            self.tasks.start_soon(self._troubles, name="troubles")
            await self.intake.carry_out_open()
            await self.dispatcher.recover()
            await self.intake.recover()
            await self.outbox.start()
            self.tasks.start_soon(self.recorder.note_failures)
            self.tasks.start_soon(self._look_at_sandboxes, name="sandbox survey")
            self.tasks.start_soon(self.questions.run, name="questions")
            for name, adapter in self.channels.items():
                part = self.parts[name] = Part(name)
                tasks.start_soon(
                    supervise, part, self._channel(adapter), self.clock, self._tell_soon, name=f"channel {name}"
                )
            await tasks.start(self.control.serve, name="control")
            self.ready = True
            logger.info("ready", extra={"pid": os.getpid()})
            await watchdog.tell("READY=1", "STATUS=at work")
            self.tasks.start_soon(watchdog.watch, self.ledger, self._tell_soon, name="watchdog")
            self.tasks.start_soon(self.upkeep.run, name="upkeep")
            self.tasks.start_soon(self._reloads, hangups, name="reloads")
            await self._until_ended(until_closed, endings)
            await self._end(keep=until_closed is None and self.config.current.sandbox.keep)
            tasks.cancel_scope.cancel()

    def _build(self, tasks: Tasks) -> None:
        home, ledger, clock, signals = self.home, self.ledger, self.clock, self.signals
        self.channels = {"terminal": _adapter("terminal", {})}
        self.outbox = Outbox(
            ledger, signals, clock, self.channels, home.blobs, tasks, failed=lambda: self.recorder.failed()
        )
        self.recorder = Recorder(home, ledger, clock, signals, tasks, lambda group: self.dispatcher.wake(group))
        self.gate = Gate(home, self.config, clock, self._renew)
        self.dispatcher = Dispatcher(
            ledger=ledger,
            clock=clock,
            signals=signals,
            recorder=self.recorder,
            tasks=tasks,
            deliver=self.outbox.wake,
            text_limit=self._text_limit,
            max_live=lambda: self.config.current.sandbox.max_live,
            warm_seconds=lambda group: self.config.for_group(group).sandbox.warm_minutes * 60,
        )
        for store in (session_store(home), group_folder_store(home), LedgerStore(home.ledger_file, home.blobs)):
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
                lambda what: signals.emit(News("trouble", data={"what": what})),
            ),
            lambda run: self.sockets.open(run),
            self._limits,
            lambda group: image_for(self.config.for_group(group).sandbox, group),
            self._wrong,
            lambda group: self.config.for_group(group).timezone,
            self.gate.bundle,
            Mounts(
                home,
                os.environ,
                runtime_directory(dict(os.environ)),
                self._mounts,
                lambda: group_folders(home),
                self.config.current.sandbox.docker_host,
                lambda what: signals.emit(News("trouble", data={"what": what})),
            ),
        )
        self.upkeep = Upkeep(home, ledger, clock, lambda: self.config.current.retention, self._tell_soon)
        self.dispatcher.runs.check_room = self.upkeep.check_room
        self.counter = Counter(
            dispatcher=self.dispatcher,
            ledger=ledger,
            clock=clock,
            signals=signals,
            composer=Composer(home, clock, self.config.for_group, self.gate.environment),
            blobs=Blobs(home.blobs),
            text_limit=self._text_limit,
            parallel=lambda: self.config.current.sandbox.parallel,
        )
        self.questions = Questions(ledger, clock, self.dispatcher.wake)
        self.sockets = Sockets(
            self.counter,
            clock,
            home.blobs,
            self._channel_limits,
            self._bindings,
            self.questions.look_again,
            self._second_hello,
            lambda run: RunCaller(run, self.dispatcher.active, ledger, signals, tasks, self.counter.notice),
            self.gate.gateway,
        )
        self.executor = Executor(self.dispatcher, ledger, clock, self.gate.environment)
        self.operations = Operations(home, ledger, clock, self.dispatcher)
        self.conversations = Conversations(
            home, ledger, signals, self.operations, self.channels["terminal"], self._first_binding
        )
        self.intake = Intake(
            ledger=ledger,
            clock=clock,
            signals=signals,
            tasks=tasks,
            place=self.conversations.place,
            role=_role,
            commands=COMMANDS,
            context=self,
            wake=self.dispatcher.wake,
            deliver=self.outbox.wake,
            text_limit=self._text_limit,
        )
        table = {**self.operations.table(), "status": self.status}
        self.control = ControlServer(home.state, table, self.conversations, self.execute)

    # ── what the rooms ask of each other ──

    def _text_limit(self, channel: str) -> int:
        adapter = self.channels.get(channel)
        return adapter.limits.text if adapter else 4000

    def _channel_limits(self, channel: str) -> ChannelLimits | None:
        adapter = self.channels.get(channel)
        return adapter.limits if adapter else None

    def _bindings(self, group: str) -> Sequence[str]:
        """The group's other chats: none while its file has a mistake, which may be in what it takes away."""
        return self.config.group(group).bindings if self.config.problem_of(group) is None else ()

    def _first_binding(self, group: str) -> str | None:
        bindings = self.config.group(group).bindings
        return bindings[0] if bindings else None

    def _limits(self, group: str) -> SandboxLimits:
        sandbox = self.config.for_group(group).sandbox
        return SandboxLimits(
            memory_bytes=sandbox.memory,
            cpus=sandbox.cpus,
            pids=sandbox.pids,
            file_bytes=sandbox.work,
            work_bytes=sandbox.work,
            work_files=sandbox.work_files,
            tmp_exec=sandbox.tmp_exec,
        )

    def _wrong(self, group: str) -> list[str]:
        problem = self.config.problem_of(group)
        holds = "what it said before still holds, but for grants and mounts, of which there are none meanwhile"
        return [f"groups/{group}/group.toml is not used; {holds}: {problem}"] if problem else []

    def _mounts(self, group: str) -> Sequence[Mount]:
        """What a group asks for. What an edit was to take away must not stay because of a slip of the pen."""
        asked = self.config.group(group).mounts
        return asked if self.config.problem_of(group) is None else ()

    def _second_hello(self, run: Run) -> None:
        self.tasks.start_soon(self.dispatcher.end_run, run.group, SECOND_HELLO)

    async def execute(self, params: dict[str, Any], descriptors: Any) -> int:
        """`sandbox exec`: a command beside the group's runner, on the caller's own streams."""
        group = str(params.get("group") or "main")
        await self.operations.group(group)
        return await self.executor.execute(
            group, list(params["argv"]), dict(params.get("environment") or {}), descriptors
        )

    def stopped(self, live: list[int], waiting: list[int]) -> None:
        """Implements `intake.CommandContext`."""
        for turn in live:
            self.dispatcher.stop_live(turn)
        for turn in waiting:
            self.recorder.soon(turn)

    def state_of(self, group: str) -> str:
        settings = self.config.for_group(group)
        run = self.dispatcher.active.get(group)
        sandbox = f"{run.backend} sandbox, {len(run.live)} at work" if run else "no sandbox now"
        return f"group {group}: engine {settings.model.engine}, {sandbox}"

    async def tell_owner(self, text: str) -> None:
        """A line to the owner's terminal, now or when it next opens; once while nobody has seen it."""
        logger.error("%s", text)
        to, now = Address("terminal", "", "main", ""), rfc3339(self.clock.now())

        def tell(tx: Transaction) -> None:
            if text not in [row["text"] for row in deliveries.unseen(tx, to.chat, to.thread)]:
                deliveries.enqueue(
                    tx, to, session="terminal:main", kind="notice", text=text, now=now, limit=NOTICE_LIMIT
                )

        await self.ledger.insist(tell)
        self.outbox.wake(to)

    def _tell_soon(self, text: str) -> None:
        self.tasks.start_soon(self.tell_owner, text)

    async def status(self, params: dict[str, Any]) -> dict[str, Any]:
        names = await self.ledger.do(groups.every)
        return {
            "version": __version__,
            "pid": os.getpid(),
            "home": str(self.home.root),
            "uptime_s": round(self.clock.monotonic() - self.began, 3),
            "ready": self.ready,
            "groups": len(names),
            "turns": await self.ledger.do(queries.turn_counts),
            "sandboxes": len(self.dispatcher.active),
            "channels": [{"channel": part.name, "state": part.state} for part in self.parts.values()],
        }

    # ── life ──

    async def _look_at_sandboxes(self) -> None:
        """Know before the first message whether sandboxes can be made; the first one starts the sooner for it."""
        try:
            await self.dispatcher.runs.backend.check(self.config.current.sandbox.image)
        except ClawdError as error:
            logger.error("no sandbox can be made: %s", error)

    async def _troubles(self) -> None:
        """What goes wrong beside a turn reaches the owner too, each sentence once a day."""
        told: dict[str, float] = {}
        with self.signals.subscribe() as news:
            async for each in news:
                now = self.clock.monotonic()
                told = {what: since for what, since in told.items() if now - since < TOLD_AGAIN_S}
                if each.kind == "trouble" and (what := str(each.data["what"])) not in told:
                    told[what] = now
                    await self.tell_owner(what)

    def _channel(self, adapter: Adapter) -> Callable[[], Awaitable[None]]:
        return lambda: adapter.run(self.intake)

    async def _adopt_folders(self) -> None:
        """Folders that a person made by hand under groups/ are groups."""
        known = {row.folder for row in await self.ledger.do(groups.every)}
        for entry in sorted(os.scandir(self.home.groups), key=lambda entry: entry.name):
            if entry.name in known or not entry.is_dir(follow_symlinks=False):
                continue
            try:
                folder_name(entry.name)
                await self.operations.make_group(entry.name)
            except (ClawdError, OSError) as error:
                logger.warning("groups/%s is no group: %s", entry.name, error)

    async def _reloads(self, hangups: Received) -> None:
        """SIGHUP reads the config again; a bad one keeps the old, and says so."""
        async for _ in hangups:
            await watchdog.tell(*watchdog.reloading())
            self._reload()
            await watchdog.tell("READY=1")

    def _renew(self) -> None:
        """An edit that nobody told us of, where one must hold at once: what is granted may have been taken away."""
        if self.config.changed():
            self._reload()

    def _reload(self) -> None:
        try:
            changes = self.config.reload()
            logger.info("config reloaded: %s", changes)
            if late := [each for each in changes if each.startswith(AT_START)]:
                self._tell_soon(f"The edited config is used; from the next start on: {', '.join(late)}")
        except (ClawdError, OSError) as error:
            self._tell_soon(f"The edited config was refused, the old one stays in force: {error}")

    async def _until_ended(self, until_closed: int | None, endings: Received) -> None:
        """Until SIGTERM, SIGINT, the end of the pipe, or the loss of the ledger; from then on a second signal ends the
        process at once."""
        async with anyio.create_task_group() as waiting:

            async def pipe() -> None:
                if until_closed is not None:
                    await anyio.wait_readable(until_closed)
                    waiting.cancel_scope.cancel()

            async def signals() -> None:
                async for _ in endings:
                    waiting.cancel_scope.cancel()
                    return

            async def state() -> None:
                while True:
                    alarm = anyio.Event()  # a new one each time, before the look: it may be back where it was
                    self.ledger.alarm = alarm.set
                    if not self.ledger.is_there() or self.ledger.damage is not None:
                        break
                    self.ledger.lay_ballast()
                    with anyio.move_on_after(ROOT_CHECK_S):
                        await alarm.wait()
                waiting.cancel_scope.cancel()

            waiting.start_soon(pipe)
            waiting.start_soon(signals)
            waiting.start_soon(state)

    async def _end(self, keep: bool) -> None:
        """With `keep` the next daemon goes on with the sandboxes that can be gone on with; else all of them end."""
        last = threading.Timer(END_S, _give_up)
        last.daemon = True
        last.start()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, os._exit, 1)
        self.ready = False
        self.intake.closed = True
        self.ledger.patient = False
        logger.info("ending")
        await watchdog.tell("STOPPING=1", "STATUS=finishing what runs")
        await self.dispatcher.close(TURN_GRACE_S, keep=keep)
        await self.gate.close()
        with anyio.move_on_after(FLUSH_GRACE_S):
            while not self.outbox.idle:
                await anyio.sleep(0.02)


def _give_up() -> None:
    logger.error("the end took too long and is cut off; what is left is found at the next start")
    os._exit(1)


def _adapter(name: str, settings: dict[str, Any]) -> Adapter:
    """The adapter that is registered under `name` by the entry point `clawd.channels`."""
    for entry in metadata.entry_points(group="clawd.channels"):
        if entry.name == name:
            factory: AdapterFactory = entry.load()
            return factory(settings)
    if name == "terminal":  # run from a tree that was never installed
        from channels.terminal import Terminal

        return Terminal(settings)
    raise ConfigError(f"there is no channel {name!r}")


def _role(incoming: Incoming) -> Role:
    """At the terminal the caller of the control socket is the owner, and may speak as somebody else to try it."""
    if incoming.channel == "terminal":
        return Role(incoming.sender.partition(":")[0])
    return Role.STRANGER
