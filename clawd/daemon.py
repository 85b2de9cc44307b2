"""The daemon: opens its rooms in order, watches them, and ends them in order.

Start: lock, config, ledger, what an earlier life left (sandboxes, records, sends in doubt), channels and the control
socket last. End: nothing more is taken in, live turns get a while, sandboxes end or are left to the next daemon,
deliveries are flushed.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import anyio

from clawd import __version__, ending, faults, log, watchdog
from clawd.adapters import ChannelInbox
from clawd.commands import handed
from clawd.commands.table import COMMANDS
from clawd.config.home import Home
from clawd.config.live import LiveConfig
from clawd.control import wire
from clawd.errors import ClawdError, HomeBusy, Refused, told
from clawd.ledger import groups, queries
from clawd.ledger.db import Ledger
from clawd.locks import HomeLock
from clawd.rooms import Rooms
from clawd.signals import News
from clawd.tasks import Tasks

logger = logging.getLogger(__name__)

_M_ARENA_MAX = -8  # malloc.h
Received = AsyncIterator[signal.Signals]

# All of a clean end takes less than 10 s, also where a turn is at work and a platform hangs: that turn is gone on with.
TURN_GRACE_S = 5.0
FLUSH_GRACE_S = 2.0
COMMAND_S = 3.0  # how long commands beside it, one after another, may keep a daemon from beginning


def run(home: Home, until_closed: int | None = None) -> int:
    """Be the daemon of `home` until a signal, or until the pipe `until_closed` closes. Gives the exit code.

    Raises ClawdError when it cannot start: HomeBusy, ConfigError, LedgerCorrupt, StorageError.
    """
    faults.load(os.environ.get("CLAWD_FAULT"))
    _one_heap()
    home.create()
    lock = HomeLock(home.lock_file)
    _acquire(lock, home)
    try:
        if (home.state / "restoring.json").exists():
            from clawd.backups import restoring

            restoring.finish(home)
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


def _acquire(lock: HomeLock, home: Home) -> None:
    """The home's lock: a command lets it go in a moment, a daemon does not. Raises HomeBusy, StorageError."""
    deadline = time.monotonic() + COMMAND_S
    while True:
        try:
            lock.acquire()
            return
        except HomeBusy:
            with suppress(OSError):
                wire.connect(home.state).close()
                raise
            if time.monotonic() > deadline:
                raise
        time.sleep(0.005)


def _one_heap() -> None:
    """glibc gives each thread a heap of its own, and none of them ever shrinks. Under the interpreter's lock one is as
    fast, and it keeps 4 MB less."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


class Daemon(Rooms):
    """One life of the daemon over an open ledger and a held lock."""

    def __init__(self, home: Home, config: LiveConfig, ledger: Ledger) -> None:
        super().__init__(home, config, ledger)
        self.began = self.clock.monotonic()
        self.ready = False
        self.passing = False

    async def serve(self, until_closed: int | None) -> int:
        """Everything, from the first room to the last."""
        self.passing = until_closed is not None
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
            self.build(Tasks(tasks, self._failed), {"status": self.status, "passing": self.passes})
            await self.operations.adopt_folders()
            await self.operations.adopt_sessions()
            handed.clear(self.home)
            self.tasks.start_soon(self.owner.troubles, self.signals, name="troubles")
            self.tasks.start_soon(self.live.run, name="live turns")
            await self.intake.carry_out_open()
            await self.books.open()
            await self.dispatcher.runs.skills.recover()
            await self.dispatcher.recover()
            await self.lifecycle.recover()
            await self.intake.recover()
            await self.outbox.start()
            self.tasks.start_soon(self.recorder.add_notes)
            self.tasks.start_soon(self.injector.run, name="injecting")
            self.tasks.start_soon(self._look_at_sandboxes, name="sandbox survey")
            self.tasks.start_soon(self.questions.run, name="questions")
            self.tasks.start_soon(self.approvals.run, name="approvals")
            await self.approvals.recover()
            if self.config.current.channels.enabled():  # or the first message would wait for every group.toml
                self.tasks.start_soon(self.bindings.now, name="bindings")
            self.channels.open(
                lambda adapter, part: ChannelInbox(adapter, part, self.intake, self.ledger, self.clock, self.tasks),
                {word: command.help or "not built yet" for word, command in COMMANDS.items()},
            )
            await tasks.start(self.control.serve, name="control")
            gc.freeze()  # what is here stays: to look through all of it again and again would stop the event loop
            self.ready = True
            logger.info("ready", extra={"pid": os.getpid()})
            await watchdog.tell("READY=1", "STATUS=at work")
            self.tasks.start_soon(watchdog.watch, self.ledger, self.owner.tell_soon, name="watchdog")
            self.tasks.start_soon(self.upkeep.run, name="upkeep")
            self.tasks.start_soon(self.clockwork.run, name="schedules")
            self.tasks.start_soon(self.digest.run, name="digest of memories")
            self.tasks.start_soon(self.tending.run, self.signals, name="tending memories")
            self.tasks.start_soon(self.reloads.at, hangups, name="reloads")
            self.edits.open(self.watcher)
            self.tasks.start_soon(self.watcher.run, name="watcher")
            self.tasks.start_soon(self.edits.run, name="edits")
            self.tasks.start_soon(self.webhooks.run, name="webhooks")
            self.tasks.start_soon(self.files.start, name="watches")
            await ending.until_ended(self.ledger, until_closed, endings, self.dispatcher.spending.tick)
            await self._end(keep=until_closed is None and self.config.current.sandbox.keep)
            tasks.cancel_scope.cancel()

    async def passes(self, params: dict[str, Any]) -> bool:
        """Whether it ends with the command that has it for itself."""
        return self.passing

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
            "channels": [{"channel": part.name, "state": part.state} for part in self.channels.parts.values()],
            "webhooks": self.webhooks.status(),
        }

    # ── life ──

    def _failed(self, name: str, error: Exception) -> None:
        what = f"A defect of clawd: its part {name!r} failed ({type(error).__name__}). What that does may not be done"
        what += f" until clawd is started again; {self.home.log_file} has more"
        self.signals.emit(News("trouble", data={"what": what}))

    async def _look_at_sandboxes(self) -> None:
        """Know before the first message whether sandboxes can be made; the first one starts the sooner for it."""
        try:
            await self.dispatcher.runs.backend.check(self.config.current.sandbox.image)
        except ClawdError as error:
            logger.error("no sandbox can be made: %s", error)

    async def _end(self, keep: bool) -> None:
        """With `keep` the next daemon goes on with the sandboxes that can be gone on with; else all of them end."""
        ending.bound()
        self.ready = False
        self.intake.closed = True
        self.ledger.patient = False
        logger.info("ending")
        await watchdog.tell("STOPPING=1", "STATUS=finishing what runs")
        await self.webhooks.close()
        await self.dispatcher.close(TURN_GRACE_S, keep=keep)
        await self.gate.close()
        await self.memories.close()
        await self.speech.close()
        await self.outbox.close(FLUSH_GRACE_S)
