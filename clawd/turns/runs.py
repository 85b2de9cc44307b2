"""The life of runs: a sandbox, its socket and its live turns, from the first want to known dead."""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import shutil
from collections import deque
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from clawd.clock import Clock, rfc3339
from clawd.config.begin import ensure_group
from clawd.config.home import Home, make_private
from clawd.errors import SandboxUnavailable, StorageError
from clawd.ids import new_id
from clawd.ledger import groups, runs
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.groups import UID_BASE
from clawd.log import redactor
from clawd.sandbox import view
from clawd.sandbox.protocol import Backend, Exit, LeftOver, RunSpec, Sandbox, SandboxLimits
from clawd.turns.desk import Control
from clawd.turns.leases import LiveTurn

log = logging.getLogger(__name__)

HELLO_S = 20.0


@dataclass(slots=True)
class Run:
    """A run as this daemon holds it. `ready` is set by hello, `gone` when it is over and its turns are given back, if
    it is known `dead`."""

    id: str
    group: str
    token: str
    began: str
    backend: str = ""  # known when it is about to be made
    spec: RunSpec = field(init=False)  # from when the ledger knows it
    sandbox: Sandbox | None = None
    live: dict[int, LiveTurn] = field(default_factory=dict)
    asking: int = 0  # claims that are being made
    waiters: deque[anyio.Event] = field(default_factory=deque)
    maybe: bool = True  # there may be a turn to claim: nobody looks before that is so
    blocked: bool = False  # a turn of another authority waits until no turn is live
    wanted: bool = True  # nobody has looked since it was woken
    polls: dict[int, object] = field(default_factory=dict)  # each worker's newest
    control_news: anyio.Event = field(default_factory=anyio.Event)
    watch_news: anyio.Event = field(default_factory=anyio.Event)
    resting: bool = False  # its watch sleeps until it has been idle for long
    ready: anyio.Event = field(default_factory=anyio.Event)
    gone: anyio.Event = field(default_factory=anyio.Event)
    undying: anyio.Event = field(default_factory=anyio.Event)  # it was killed, and does not end
    last_worked: float = 0.0
    handed_out: int = 0
    ending: bool = False
    killed: bool = False  # its processes die just now, one by one: what they still say of each other is not true
    dead: bool = False  # known, and its socket closed
    exec_count: int = 0
    refused: tuple[str, ...] = ()  # files of the group that are not shown, and why
    work: tuple[int, int] | None = None  # which directory `work/` was when it was mounted
    shown: tuple[object, ...] | None = None  # the stamps of the files that the view was made from

    @property
    def busy(self) -> bool:
        """Whether it has a turn, or may have one in a moment."""
        return bool(self.live or self.asking)

    def nudge(self) -> None:
        """There may be a turn: wake one worker that waits."""
        self.maybe = True
        if self.waiters:
            self.waiters.popleft().set()

    def controls(self) -> list[Control]:
        """What live turns must be told: for as long as they live, so that a lost answer loses nothing."""
        return [Control(live.turn, "stop") for live in self.live.values() if live.stopping is not None]

    def ask_to_stop(self, live: LiveTurn, now: float, why: str | None) -> None:
        """A live turn is to end: for `why`, or because somebody asked for it."""
        live.stopping, live.why = now, why
        self.control_news.set()
        self.look_again()

    def look_again(self) -> None:
        """Something changed that the run's watch should not sleep through."""
        self.watch_news.set()


Serve = Callable[[Run], AbstractAsyncContextManager[object]]


def _stamp(path: Path) -> tuple[int, ...] | None:
    """What changes when a file does; None when there is none."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_mode, status.st_uid


def _place(directory: Path) -> tuple[int, int] | None:
    """Which directory this is; None when it is none."""
    try:
        status = directory.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def token_hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


class Runs:
    """Makes and ends runs. `serve` opens a run's socket (the host room gives it)."""

    def __init__(
        self,
        home: Home,
        runtime: Path,
        ledger: Ledger,
        clock: Clock,
        backend: Backend,
        serve: Serve,
        limits: Callable[[str], SandboxLimits],
        image: Callable[[str], str],
        wrong: Callable[[str], list[str]],
        zone: Callable[[str], str],
    ) -> None:
        """`image` gives what a group's container is made from, `wrong` sentences on its own config, `zone` its time
        zone."""
        self._home, self._runtime, self._ledger, self._clock = home, runtime, ledger, clock
        self.backend, self._serve, self._limits = backend, serve, limits
        self._image, self._wrong, self._zone = image, wrong, zone
        self._told: dict[str, set[str]] = {}
        self.check_room: Callable[[], None] = lambda: None
        """Raises StorageError while the disk has no room for a turn; set by whoever puts the rooms together."""

    async def check(self, image: str = "") -> str:
        """The backend that would make a run now. Raises SandboxUnavailable, or StorageError."""
        self.check_room()
        return await self.backend.check(image)

    def has_room(self) -> bool:
        """Whether the disk has room for a turn."""
        try:
            self.check_room()
        except StorageError:
            return False
        return True

    async def sweep(self, ours: Collection[str] = ()) -> list[str]:
        """End the runs that the ledger has not seen end, but for `ours` that live. Gives those not known dead then."""
        left = [row for row in await self._ledger.do(runs.alive) if row["id"] not in ours]
        dead = await self.backend.sweep(
            [LeftOver(row["id"], row["backend"], row["sandbox"], Path(row["directory"]), row["uid"]) for row in left],
            ours,
        )
        for row in left:
            if row["id"] in dead:
                shutil.rmtree(row["directory"], ignore_errors=True)
                await self._ledger.insist(lambda tx, id=row["id"]: runs.ended(tx, id))  # type: ignore[misc]
        return [row["id"] for row in left if row["id"] not in dead]

    def new(self, group: str) -> Run:
        """A run of which nobody knows yet."""
        return Run(new_id(), group, secrets.token_urlsafe(32), rfc3339(self._clock.now()))

    async def live(self, run: Run, on_ready: Callable[[Run], None]) -> Exit:
        """One life: sandbox, socket, hello, work, death. Returns when the sandbox is known dead and the socket closed.

        Raises SandboxUnavailable when it never became ready, or does not end; `run.dead` tells whether it is known
        dead.
        """
        redactor.add(run.token)
        try:
            await self._begin(run)
            self._make_room(run.spec)
            if not run.spec.work.parent.is_dir():  # somebody removed the group's folder
                ensure_group(self._home, run.spec.work.parent.name)
            self._show(run)
            run.sandbox = await self.backend.start(run.spec)
            run.work = _place(run.spec.work)
            # The socket opens when its sandbox can be told from others; the runner takes longer to come up.
            async with self._serve(run):
                handle = run.sandbox.handle
                await self._ledger.do(lambda tx: runs.started(tx, run.id, handle))
                return await self._until_dead(run, run.sandbox, on_ready)
        finally:
            with anyio.CancelScope(shield=True):
                if run.sandbox is not None:
                    await run.sandbox.kill()
                # Before the ledger forgets it: after a crash in between, the next start sweeps it away.
                await anyio.to_thread.run_sync(lambda: shutil.rmtree(self._runtime / run.id, ignore_errors=True))
                await self._ledger.insist(lambda tx: runs.ended(tx, run.id))
                run.dead = True
            redactor.forget(run.token)

    def _make_room(self, spec: RunSpec) -> None:
        """The run's directory, beneath one that others may have removed: a logout does that to `/run/user`."""
        try:
            make_private(self._runtime)
            spec.directory.mkdir(mode=0o700)
            spec.socket_directory.mkdir(mode=0o755)
        except OSError as error:
            raise SandboxUnavailable(f"{spec.directory} cannot be made: {error.strerror}") from error

    async def _begin(self, run: Run) -> None:
        """The ledger knows a run before there is anything to find of it."""
        limits, zone, image = self._limits(run.group), self._zone(run.group), self._image(run.group)
        run.backend = await self.check(image)

        def begin(tx: Transaction) -> RunSpec:
            group = groups.get(tx, run.group)
            folder = self._home.group(group.folder)
            spec = RunSpec(
                run=run.id,
                group=group.name,
                uid=UID_BASE + group.number if os.geteuid() == 0 else None,
                directory=self._runtime / run.id,
                work=folder.work,
                inbox=folder.inbox,
                group_skills=folder.skills,
                skills=self._home.skills,
                limits=limits,
                environment={"TZ": zone},
                image=image,
            )
            runs.begin(
                tx,
                run.id,
                group.name,
                backend=run.backend,
                directory=str(spec.directory),
                uid=spec.uid,
                token_hash=token_hash(run.token),
                authority=group.authority,
                now=run.began,
            )
            return spec

        run.spec = await self._ledger.do(begin)

    def render(self, run: Run) -> list[str]:
        """Renew what the agent is shown. Gives a sentence for each file of the group that is not used as it stands:
        once, until it is mended."""
        self._show(run)
        wrong = {*run.refused, *self._wrong(run.group)}
        new = sorted(wrong - self._told.get(run.group, set()))
        self._told[run.group] = wrong
        return new

    def _show(self, run: Run) -> None:
        group = self._home.group(run.group)
        sources = tuple(_stamp(path) for path in (group.claude_md, group.user_profile))
        if sources != run.shown:
            run.refused = view.render(run.spec.view, group).refused
            run.shown = sources

    def outlived(self, run: Run) -> bool:
        """Whether the group's `work/` is another one now: its sandbox writes into a directory that nobody sees."""
        return _place(run.spec.work) != run.work

    async def _until_dead(self, run: Run, sandbox: Sandbox, on_ready: Callable[[Run], None]) -> Exit:
        if run.ending:  # it was to end before there was anything to kill
            return await sandbox.kill()
        ended: list[Exit] = []
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                ended.append(await sandbox.wait())
                tasks.cancel_scope.cancel()

            async def give_up() -> None:
                await run.undying.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            tasks.start_soon(give_up)
            with anyio.move_on_after(HELLO_S):
                await run.ready.wait()
            if run.ready.is_set():
                on_ready(run)
            else:
                tasks.cancel_scope.cancel()
        if ended:
            return ended[0]
        trouble = "does not end" if run.undying.is_set() else f"did not start within {HELLO_S:g} s"
        raise SandboxUnavailable(f"the sandbox of group {run.group} {trouble}")
