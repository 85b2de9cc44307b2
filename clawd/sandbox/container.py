"""One living sandbox under Docker: its container, its end, its pauses, and the commands beside its runner.

Its end is known from a handle of its first process, whose pid namespace dies with it: no Engine is asked while it
lives, and one that is away hides no death.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from clawd.errors import SandboxUnavailable
from clawd.sandbox import attach, hardening, recipe, running
from clawd.sandbox.engine import Engine, NotThere
from clawd.sandbox.processes import Process, boot, descends, process, processes
from clawd.sandbox.protocol import BackendName, Exit, LimitsKind, RunSpec, SandboxLimits

if TYPE_CHECKING:
    import docker

log = logging.getLogger(__name__)

TAG = "CLAWD_COMMAND"  # in the environment of a command beside the runner, and of what it starts
KILL_SECONDS = 10.0
FREEZE_SECONDS = 10.0
SIGNAL_SECONDS = 0.2  # until the Engine is asked to help
TIDY_SECONDS = 5.0  # for each call after its death
_POLL = 0.01
_ENDED = (137, 143)  # by SIGKILL and SIGTERM


class DockerSandbox:
    """See `protocol.Sandbox`. `log` is the last that it printed, known when it has ended: hostile text, never to be
    shown raw."""

    backend: BackendName = "docker"
    pausable = True

    def __init__(
        self, spec: RunSpec, engine: Engine, id: str, first: Process, limits: LimitsKind, user: str, zone: str
    ) -> None:
        """`first` is the container's first process. Raises ProcessLookupError when it is gone."""
        self.run, self.id, self.limits, self.log = spec.run, id, limits, ""
        self._spec, self._engine, self._first, self._user, self._zone = spec, engine, first, user, zone
        self._ended, self._dead = False, anyio.Event()
        self._commands: set[str] = set()  # tags of those that run beside the runner
        self.handle = handle_of(id, first)
        self._handle = os.pidfd_open(first.pid)
        self._life = asyncio.create_task(self._live(), name=f"sandbox {spec.run}")

    def ended(self, then: Callable[[], None]) -> None:
        """Call `then` when it is over."""
        self._life.add_done_callback(lambda _: then())

    def let_go(self) -> None:
        """Watch it no longer; it goes on."""
        self._life.cancel()

    async def wait(self) -> Exit:
        return await asyncio.shield(self._life)

    async def kill(self) -> Exit:
        """By signal, for that needs no Engine; and by the Engine, which thaws a frozen one."""
        if not self._dead.is_set():
            self._ended = True
            self._first.kill()
            with anyio.move_on_after(KILL_SECONDS):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._kill_by_engine)
                    await self._dead.wait()
                    tasks.cancel_scope.cancel()
        if not self._dead.is_set():
            raise SandboxUnavailable(
                f"the sandbox of {self._spec.group} does not end", hint=f"docker rm -f {self.id[:12]}"
            )
        return await self.wait()

    async def pause(self) -> None:
        await self._freeze(True)

    async def unpause(self) -> None:
        await self._freeze(False)

    def owns(self, pid: int) -> bool:
        return not self._dead.is_set() and hardening.within(pid, self.id)

    async def execute(self, argv: list[str], environment: Mapping[str, str], streams: Sequence[int]) -> int:
        if self._dead.is_set():
            raise SandboxUnavailable(f"the sandbox of {self._spec.group} has ended")
        command = [*hardening.entry(recipe.FORWARDER), *argv]
        tag = secrets.token_hex(8)
        told = hardening.environment(self._spec, self._zone, {**environment, TAG: tag})

        def create(client: docker.DockerClient) -> str:
            made = client.api.exec_create(
                self.id, command, stdin=True, user=self._user, environment=told, workdir=recipe.WORK
            )
            return str(made["Id"])

        execution, ended = await self._engine.call(create), False
        self._commands.add(tag)
        try:
            code = await self._carry(execution, streams)
            if code == 0:
                code = await self._code(execution)
                ended = True
            return code
        finally:
            self._commands.discard(tag)
            with anyio.CancelScope(shield=True):
                if not ended:  # cancelled, or nobody reads its output any more
                    with contextlib.suppress(SandboxUnavailable):
                        await self._end(execution)
                await self.tidy()

    async def tidy(self, everything: bool = False) -> None:
        """End what commands left behind, so that it does not see what a later turn has; with `everything` the commands
        too. What does not end takes the sandbox with it."""
        with anyio.move_on_after(TIDY_SECONDS):
            while not self._dead.is_set():
                roots = self._inside if everything else None
                left = await anyio.to_thread.run_sync(left_behind, self._first, frozenset(self._commands), roots)
                if not left:
                    return
                for one in left:
                    one.kill()
                await anyio.sleep(_POLL)
        if not self._dead.is_set():
            log.error("what a command left behind in the sandbox of %s does not end; that ends", self._spec.group)
            self._first.kill()

    def _inside(self, pid: int) -> bool:
        return hardening.within(pid, self.id)

    async def _carry(self, execution: str, streams: Sequence[int]) -> int:
        """Start the command, and copy until its output has ended. Gives 0, or what ended it before."""
        try:
            connection = await anyio.to_thread.run_sync(
                attach.hijack, str(self._engine.socket), execution, TIDY_SECONDS * 2
            )
        except OSError as error:
            raise SandboxUnavailable(f"the command could not be started: {error}") from error
        with connection:
            copying = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", attach.__file__, str(connection.fileno())),
                stdin=streams[0],
                stdout=streams[1],
                stderr=streams[2],
                pass_fds=[connection.fileno()],
            )
        try:
            return await copying.wait()
        finally:
            if copying.returncode is None:
                copying.kill()
                with anyio.CancelScope(shield=True):
                    await copying.wait()

    async def _code(self, execution: str) -> int:
        """The exit code of a command whose output has ended; it may run on for long."""
        pause = _POLL
        while True:
            try:
                found = await self._engine.call(lambda client: client.api.exec_inspect(execution))
            except SandboxUnavailable:
                if self._dead.is_set():
                    return _ENDED[0]
                raise
            if not found["Running"]:
                return int(found["ExitCode"] if found["ExitCode"] is not None else _ENDED[0])
            await anyio.sleep(pause)
            pause = min(pause * 2, 1.0)

    async def _end(self, execution: str) -> None:
        """End a command, and what it started, if it still runs."""
        if self._dead.is_set():
            return
        found = await self._engine.call(lambda client: client.api.exec_inspect(execution), TIDY_SECONDS)
        root = process(int(found["Pid"] or 0)) if found["Running"] else None
        if root is None or not hardening.within(root.pid, self.id):
            return
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        below = [process(pid) for pid in pids if self.owns(pid) and descends(pid, [root])]
        for one in [root, *below]:
            if one:
                one.kill()

    async def _kill_by_engine(self) -> None:
        await anyio.sleep(SIGNAL_SECONDS)
        try:
            await self._engine.call(lambda client: client.api.kill(self.id), KILL_SECONDS)
        except SandboxUnavailable as error:  # it may have ended by the signal
            log.info("the Engine did not end the sandbox of %s: %s", self._spec.group, error)

    async def _freeze(self, frozen: bool) -> None:
        def work(client: docker.DockerClient) -> None:
            import docker.errors

            try:
                (client.api.pause if frozen else client.api.unpause)(self.id)
            except docker.errors.APIError:
                if client.api.inspect_container(self.id)["State"]["Paused"] is not frozen:
                    raise

        if frozen or not self._dead.is_set():
            await self._engine.call(work, FREEZE_SECONDS)

    async def _live(self) -> Exit:
        try:
            await anyio.wait_readable(self._handle)
        finally:
            os.close(self._handle)
        self._dead.set()
        code, memory, away = None, False, True
        with anyio.move_on_after(TIDY_SECONDS):  # what the Engine does not do now is the sweep's
            try:
                code, memory, self.log = await self._engine.call(last_words(self.id), TIDY_SECONDS)
                away = False
            except SandboxUnavailable as error:
                away = isinstance(error, NotThere)
            with contextlib.suppress(SandboxUnavailable):
                await self._engine.call(removed(self.id), TIDY_SECONDS)
        return Exit(code, reason_of(code, self._ended, memory, self.log, self._spec.limits), outside=away)


def left_behind(first: Process, commands: frozenset[str], inside: Callable[[int], bool] | None = None) -> list[Process]:
    """What is alive in a container (whose first process is `first`) and belongs neither to the runner nor to one of the
    running `commands`, by the tag in its environment. With `inside`, all that is not the runner's.

    An orphan in there becomes the child of the first process, as the runner is from the beginning, and the runner
    adopts its own. A command itself has its parent outside.
    """
    table = processes()
    children: dict[int, list[int]] = {}
    for pid, (_, parent, _) in table.items():
        children.setdefault(parent, []).append(pid)

    def below(pid: int) -> list[int]:
        found = [pid]
        for each in found:
            found.extend(children.get(each, ()))
        return found

    mine = sorted(children.get(first.pid, ()), key=lambda pid: table[pid][2])
    if first.pid not in table or table[first.pid][2] != first.start or not mine:
        return []
    runner = set(below(mine[0]))
    if inside is None:
        tops = [pid for pid in mine[1:] if tag_of(pid) not in commands]
        strays = {each for top in tops for each in below(top)}
    else:
        strays = {pid for pid in table if pid != first.pid and pid not in runner and inside(pid)}
    return [Process(pid, table[pid][2]) for pid in strays if table[pid][0] not in "ZX"]


def tag_of(pid: int) -> str | None:
    """The command that a process was started for, as its environment says; None when that does not, or cannot be
    read."""
    mark = f"{TAG}=".encode()
    try:
        lines = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return next((line[len(mark) :].decode("ascii", "replace") for line in lines if line.startswith(mark)), None)


def reason_of(code: int | None, ended: bool, memory: bool, log: str, bounds: SandboxLimits) -> str:
    """Why a container ended, in a person's words. `code` is None where the Engine does not know."""
    if not ended and not memory and (code is None or code in _ENDED):
        return "was ended from outside"
    return running.reason_of(code or 0, ended, memory, False, running.last_line(log), bounds)


def last_words(id: str) -> Callable[[docker.DockerClient], tuple[int, bool, str]]:
    """How a container ended: its exit code, whether for want of memory, the last that it printed."""

    def work(client: docker.DockerClient) -> tuple[int, bool, str]:
        import docker.errors

        code, told = int(client.api.wait(id, timeout=TIDY_SECONDS)["StatusCode"]), b""
        state: dict[str, Any] = client.api.inspect_container(id)["State"]
        with contextlib.suppress(docker.errors.APIError):  # it is being removed already
            told = client.api.logs(id, tail=100)[-running.LOG_BYTES :]
        return code, bool(state["OOMKilled"]), told.decode("utf-8", "replace")

    return work


def removed(id: str) -> Callable[[docker.DockerClient], None]:
    """Remove a container, alive or not, with its anonymous volumes; one that is gone or going is as good."""

    def work(client: docker.DockerClient) -> None:
        import docker.errors

        try:
            client.api.remove_container(id, v=True, force=True)
        except docker.errors.APIError as error:
            if error.status_code not in (304, 404, 409):
                raise

    return work


def handle_of(id: str, first: Process) -> str:
    return f"docker:{boot()}:{first.pid}:{first.start}:{id}"


def first_of(handle: str) -> Process | None:
    """The first process of the container that a handle names, None when it was of another boot. Raises ValueError when
    this is no such handle."""
    kind, booted, pid, start, _ = handle.split(":")
    if kind != "docker":
        raise ValueError(handle)
    return Process(int(pid), int(start)) if booted == boot() else None
