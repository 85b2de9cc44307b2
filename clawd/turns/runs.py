"""The life of runs: a sandbox, its socket and its live turns, from the first want, or from an earlier daemon, to known
dead."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import anyio

from clawd import faults
from clawd.clock import Clock, rfc3339
from clawd.config.begin import ensure_group
from clawd.config.home import Home, make_private
from clawd.errors import ClawdError, SandboxUnavailable, StorageError
from clawd.files import write_atomic
from clawd.gateway import environment
from clawd.ids import new_id
from clawd.ledger import groups, runs, turns
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.ledger.groups import UID_BASE, GroupRow
from clawd.sandbox import view
from clawd.sandbox.mounts import Mounts
from clawd.sandbox.protocol import Backend, Exchanged, Exit, LeftOver, Mount, RunSpec, Sandbox, SandboxLimits
from clawd.trust import Role, lowest
from clawd.turns import leases
from clawd.turns.leases import LiveTurn
from clawd.turns.run import Run
from clawd.turns.skills import Skills

log = logging.getLogger(__name__)

HELLO_S = 20.0
# In the run's socket directory, which is /run/clawd in the sandbox.
BUNDLE = "ca.pem"
WGETRC = "wgetrc"


Serve = Callable[[Run], AbstractAsyncContextManager[object]]


def _stamp(path: Path) -> tuple[int, ...] | None:
    """What changes when a file does; None when there is none."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_mode, status.st_uid


def _place(directory: Path) -> str | None:
    """Which directory this is, device and inode; None when it is none."""
    try:
        status = directory.lstat()
    except OSError:
        return None
    return f"{status.st_dev}:{status.st_ino}"


def _place_bundle(directory: Path, bundle: bytes) -> None:
    """The certificates, and what has wget read them."""
    write_atomic(directory / BUNDLE, bundle, 0o644)
    write_atomic(directory / WGETRC, environment.WGETRC.encode(), 0o644)


def _asked(spec: RunSpec) -> dict[str, Any]:
    return {"limits": spec.limits, "environment": spec.environment, "image": spec.image}


def _without(mounts: tuple[Mount, ...], lost: Iterable[Exchanged]) -> tuple[Mount, ...]:
    """The same mounts but for these, each with all that is laid over it."""
    gone = {PurePosixPath(error.mount.target).parts[:3] for error in lost}
    return tuple(each for each in mounts if PurePosixPath(each.target).parts[:3] not in gone)


def left_over(row: Row) -> LeftOver:
    return LeftOver(row["id"], row["backend"], row["sandbox"], Path(row["directory"]), row["uid"])


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
        bundle: Callable[[str], Awaitable[bytes | None]],
        skills: Skills,
        mounts: Mounts | None = None,
    ) -> None:
        """`image` gives what a group's container is made from, `wrong` sentences on its own config, `zone` its time
        zone, `bundle` the certificates that its clients trust, once a service is granted to it, `mounts` what it is
        shown of the host's directories."""
        self._home, self._runtime, self._ledger, self._clock = home, runtime, ledger, clock
        self.backend, self._serve, self._limits = backend, serve, limits
        self._image, self._wrong, self._zone, self._bundle = image, wrong, zone, bundle
        self._mounts, self.skills = mounts, skills
        self._told: dict[str, set[str]] = {}
        self.check_room: Callable[[], None] = lambda: None
        """Raises StorageError while the disk has no room for a turn; set by whoever puts the rooms together."""

    def has_room(self) -> bool:
        """Whether the disk has room for a turn."""
        try:
            self.check_room()
        except StorageError:
            return False
        return True

    async def check(self, group: str) -> str:
        """What makes the group's next sandbox. Raises SandboxUnavailable when there can be none, StorageError when its
        turns would have no room."""
        self.check_room()
        return await self.backend.check(self._image(group))

    def new(self, group: str) -> Run:
        """A run of which nobody knows yet."""
        return Run(new_id(), group, rfc3339(self._clock.now()))

    async def adopt(self, row: Row) -> Run | None:
        """Go on with a run of an earlier daemon: its turns stay where they are, and its runner has a while to return.
        None when there is nothing to go on with. Raises SandboxUnavailable or StorageError when that cannot be known or
        kept just now."""
        id = row["id"]
        group, held = await self._ledger.do(lambda tx: (groups.get(tx, row["grp"]), turns.claimed_by(tx, id)))
        run = Run(id, row["grp"], row["since"], row["token_hash"], row["backend"], work=row["work"])
        run.spec = self._spec(id, group, Path(row["directory"]))
        spec = run.spec = replace(run.spec, mounts=await self._given(run))
        if self.outlived(run) or row["uid"] != spec.uid or not spec.socket_directory.is_dir():
            return None
        await self._ledger.do(lambda tx: runs.unpaused(tx, id))  # before: where that fails, nothing is taken over
        if (sandbox := await self.backend.adopt(left_over(row), spec)) is None:
            return None
        self._lent(run)
        now = self._clock.monotonic()
        run.sandbox, run.parallel, run.due_back = sandbox, row["parallel"] or 0, now + leases.RETURN_S
        if row["runner_pid"] is not None:
            run.runner = row["runner_pid"], row["runner_start"]
            run.ready.set()
        for turn in held:
            run.live[turn["id"]] = LiveTurn.returning(turn, now)
        self.skills.adopted(run)
        return run

    async def disown(self) -> None:
        """A home that was copied has in its ledger what lives of the other one: nothing of that is ours to end."""
        here = _place(self._home.state)
        if others := await self._ledger.insist(lambda tx: runs.disown(tx, here)):
            log.warning("runs of the home that this one was copied from are left alone: %s", ", ".join(others))

    async def buried(self, row: Row) -> None:
        """A run of an earlier time is known dead: what it had is taken away, and the ledger forgets it last."""
        await anyio.to_thread.run_sync(lambda: shutil.rmtree(row["directory"], ignore_errors=True))
        await self.skills.ended(row["id"], row["grp"])
        await self._ledger.insist(lambda tx: runs.ended(tx, row["id"]))
        self._returned(row["id"])

    async def freeze(self, run: Run) -> None:
        """Pause a sandbox that nobody uses. One that cannot be paused is left as it is, until it is used again."""
        async with run.gate:
            if not run.parked or run.sandbox is None:
                return
            run.paused = True
            try:
                await run.sandbox.pause()
                await self._ledger.do(lambda tx: runs.paused(tx, run.id))
            except ClawdError as error:
                log.warning("group %s is not paused: %s", run.group, error)

    async def thaw(self, run: Run) -> None:
        """Have it go on, before anything is asked of it. Raises SandboxUnavailable when it does not."""
        async with run.gate:
            if run.paused and run.sandbox is not None:
                await run.sandbox.unpause()
                await self._ledger.do(lambda tx: runs.unpaused(tx, run.id))
                run.paused = False

    async def live(self, run: Run, on_ready: Callable[[Run], None]) -> Exit:
        """One life, or the rest of an adopted one: sandbox, socket, hello, work, death. Returns when the sandbox is
        known dead and the socket closed, or when it is `left`.

        Raises SandboxUnavailable when it never became ready, or does not end; `run.dead` tells whether it is known
        dead.
        """
        try:
            if (sandbox := run.sandbox) is None:
                sandbox = await self._make(run)
            else:
                await anyio.to_thread.run_sync(self._show, run)
                await self.trust(run)
            # The socket opens when its sandbox can be told from others; the runner takes longer to come up.
            async with self._serve(run):
                work = run.work or ""
                await self._ledger.do(lambda tx: runs.started(tx, run.id, sandbox.handle, work))
                return await self._until_dead(run, sandbox, on_ready)
        finally:
            if not run.left:
                with anyio.CancelScope(shield=True):
                    await self._end(run)

    async def _end(self, run: Run) -> None:
        if run.sandbox is not None:
            await run.sandbox.kill()
        if hasattr(run, "spec"):  # else nothing was made of it
            # Before the ledger forgets it: after a crash in between, the next start sweeps it away.
            await anyio.to_thread.run_sync(lambda: shutil.rmtree(run.spec.directory, ignore_errors=True))
        await self.skills.ended(run.id, run.group)
        await self._ledger.insist(lambda tx: runs.ended(tx, run.id))
        run.dead = True
        self._returned(run.id)

    async def _make(self, run: Run) -> Sandbox:
        await self._begin(run)
        faults.passing("begun")
        await anyio.to_thread.run_sync(self._make_room, run)
        await self.trust(run)
        run.sandbox = await self._start(run)
        faults.passing("made")
        run.work = _place(run.spec.work)
        return run.sandbox

    async def _start(self, run: Run) -> Sandbox:
        """Its sandbox. A directory of the host that was exchanged or taken away meanwhile is left out of it."""
        while True:
            self._lent(run)
            try:
                return await self.backend.start(run.spec)
            except Exchanged as error:
                log.warning("%s", error)
                run.lost = (*run.lost, error)
                run.spec = replace(run.spec, mounts=_without(run.spec.mounts, [error]))
            except SandboxUnavailable:
                now = await self._given(run) if run.spec.mounts else ()
                if not set(now) < set(run.spec.mounts):
                    raise
                run.spec = replace(run.spec, mounts=now)

    async def _given(self, run: Run) -> tuple[Mount, ...]:
        """What the group is shown of the host's directories in its next turn, or in those that it has."""
        mounts, group = self._mounts, run.group
        if mounts is None or not mounts.asked(group):
            run.left_out = ()
            return ()

        def role(tx: Transaction) -> Role:
            live = [Role(row["authority"]) for row in turns.claimed_by(tx, run.id)]
            return lowest([groups.get(tx, group).authority.role, *live]) if live else turns.next_role(tx, group)

        acts = await self._ledger.do(role)
        given = await anyio.to_thread.run_sync(lambda: mounts.given(group, acts, run.spec.uid))
        if given.problem is not None:
            mounts.tell(f"{given.problem}; no group has a mount meanwhile")
        # What was exchanged is tried again after a turn, which has told of it.
        lost = () if run.handed_out else run.lost
        run.left_out = (*given.told, *(f"{error.message}; the turn goes on without it" for error in lost))
        return _without(given.mounts, lost)

    async def fits(self, run: Run) -> bool:
        """Whether a living sandbox shows of the host's directories what the group's next turn is to be shown."""
        return await self._given(run) == run.spec.mounts

    def _lent(self, run: Run) -> None:
        if self._mounts:
            self._mounts.living[run.id] = run.group, run.spec.mounts

    def _returned(self, run: str) -> None:
        if self._mounts:
            self._mounts.living.pop(run, None)

    def _make_room(self, run: Run) -> None:
        """The run's directory and what is shown in it, beneath one that others may have removed: a logout does that to
        `/run/user`."""
        spec = run.spec
        try:
            make_private(self._runtime)
            spec.directory.mkdir(mode=0o700)
            spec.socket_directory.mkdir(mode=0o755)
            self.skills.shelf.make(run.id)
        except OSError as error:
            raise SandboxUnavailable(f"{error.filename or spec.directory} cannot be made: {error.strerror}") from error
        if not spec.work.parent.is_dir():  # somebody removed the group's folder
            ensure_group(self._home, spec.work.parent.name)
        self._show(run)

    def _spec(self, run: str, group: GroupRow, directory: Path) -> RunSpec:
        folder = self._home.group(group.folder)
        skills, group_skills = self.skills.shelf.directories(run)
        return RunSpec(
            run=run,
            group=group.name,
            uid=UID_BASE + group.number if os.geteuid() == 0 else None,
            directory=directory,
            work=folder.work,
            inbox=folder.inbox,
            group_skills=group_skills,
            skills=skills,
            **self._asked(group.name),
        )

    async def _begin(self, run: Run) -> None:
        """The ledger knows a run before there is anything to find of it."""
        group = await self._ledger.do(lambda tx: groups.get(tx, run.group))
        spec = run.spec = self._spec(run.id, group, self._runtime / run.id)
        spec = run.spec = replace(spec, mounts=await self._given(run))
        self.check_room()
        run.backend = await self.backend.check(spec.image)

        def begin(tx: Transaction) -> None:
            runs.begin(
                tx,
                run.id,
                run.group,
                backend=run.backend,
                directory=str(spec.directory),
                uid=spec.uid,
                authority=groups.get(tx, run.group).authority,
                now=run.began,
                home=_place(self._home.state),
            )

        await self._ledger.do(begin)

    async def trust(self, run: Run) -> None:
        """Give the run the certificates that its clients trust, once its group has a use for them. One that cannot be
        given leaves it without, which `render` tells."""
        if run.trusts:
            return
        try:
            if (bundle := await self._bundle(run.group)) is not None:
                await anyio.to_thread.run_sync(_place_bundle, run.spec.socket_directory, bundle)
                run.trusts, run.untrusted = True, ()
        except (StorageError, OSError) as error:
            log.error("the certificates for group %s cannot be given to its sandbox: %s", run.group, error)
            run.untrusted = (f"Services cannot be reached over TLS, for the certificates cannot be written: {error}",)

    def render(self, run: Run) -> list[str]:
        """Renew what the agent is shown. Gives a sentence for each file of the group that is not used as it stands, and
        each directory that it does not have: once, until it is mended."""
        self._show(run)
        wrong = {*run.refused, *run.untrusted, *run.left_out, *self._wrong(run.group)}
        new = sorted(wrong - self._told.get(run.group, set()))
        self._told[run.group] = wrong
        return new

    def is_news(self, group: str, sentence: str) -> bool:
        """Whether the people of a group were not told this yet, as they are now: `render` does not say it again."""
        told = self._told.setdefault(group, set())
        new = sentence not in told
        told.add(sentence)
        return new

    def _show(self, run: Run) -> None:
        group = self._home.group(run.group)
        sources = tuple(_stamp(path) for path in (group.claude_md, group.user_profile))
        if sources != run.shown:
            run.refused = view.render(run.spec.view, group).refused
            run.shown = sources

    def outlived(self, run: Run) -> bool:
        """Whether the group's `work/` is another one now, so that its sandbox writes into a directory that nobody sees,
        or its config asks for another sandbox."""
        return _place(run.spec.work) != run.work or self._asked(run.group) != _asked(run.spec)

    def _asked(self, group: str) -> dict[str, Any]:
        """What the config says of the group's sandbox now, by the names of a spec."""
        environment = {"TZ": self._zone(group)}
        return {"limits": self._limits(group), "environment": environment, "image": self._image(group)}

    async def _until_dead(self, run: Run, sandbox: Sandbox, on_ready: Callable[[Run], None]) -> Exit:
        if run.ending:  # it was to end before there was anything to kill
            return await sandbox.kill()
        ended: list[Exit] = []
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                ended.append(await sandbox.wait())
                tasks.cancel_scope.cancel()

            async def give_up() -> None:
                await run.given_up.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            tasks.start_soon(give_up)
            with anyio.move_on_after(HELLO_S):
                await run.ready.wait()
            if run.ready.is_set():
                on_ready(run)
            else:
                tasks.cancel_scope.cancel()
        if ended or run.left:
            return ended[0] if ended else Exit(None, "goes on without this daemon")
        trouble = "does not end" if run.given_up.is_set() else f"did not start within {HELLO_S:g} s"
        raise SandboxUnavailable(f"the sandbox of group {run.group} {trouble}")
