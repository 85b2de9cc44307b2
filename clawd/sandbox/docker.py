"""The Docker backend: a container a run, which outlives the daemon and is adopted by the next one.

Only containers with this install's label are ever touched. A run is known dead when its container's first process is
gone, for which no Engine is needed, or when the Engine knows no container of it.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from clawd import faults
from clawd.errors import SandboxUnavailable
from clawd.sandbox import hardening, running
from clawd.sandbox.container import DockerSandbox, first_of, last_words, removed
from clawd.sandbox.directories import prepare, strange
from clawd.sandbox.engine import Engine, NoImage, NotThere
from clawd.sandbox.hardening import LABEL_INSTALL, LABEL_RUN, Holds
from clawd.sandbox.image import LABEL_PROTOCOL, PROTOCOL, State, advice, remedy, shipped_runner, state_of
from clawd.sandbox.probe import zone
from clawd.sandbox.processes import Process, process
from clawd.sandbox.protocol import BackendName, Exchanged, LeftOver, Mount, RunSpec, Sandbox

if TYPE_CHECKING:
    import docker

log = logging.getLogger(__name__)

CHECK_SECONDS = 10.0
VERIFY_SECONDS = 10.0
SWEEP_SECONDS = 10.0
_POLL = 0.005


class Docker:
    """See `protocol.Backend`. `engine` finds the Engine when it is first needed; `agent` stands in for the runner that
    is in the image; `tell` hears once of an image that is old."""

    def __init__(
        self,
        install: str,
        engine: Callable[[], Engine],
        agent: Path | None = None,
        tell: Callable[[str], object] = log.warning,
    ) -> None:
        self._install, self._find, self._agent, self._tell = install, engine, agent, tell
        self._found: Engine | None = None
        self._mine: set[str] = set()  # runs that are being made here, or live
        self._old: set[str] = set()  # images of which it was told

    @property
    def engine(self) -> Engine:
        """Raises SandboxUnavailable for one of another machine."""
        self._found = self._found or self._find()
        return self._found

    async def check(self, image: str = "") -> BackendName:
        def work(client: docker.DockerClient) -> State:
            hardening.holds(client.api.info())
            return state_of(usable(client, image)["Config"]["Labels"], shipped_runner()) if image else "fits"

        if await self.engine.call(work, CHECK_SECONDS) == "old" and image not in self._old:
            self._old.add(image)
            self._tell(f"{advice('old', image)} ({remedy(image)})")
        return "docker"

    async def start(self, spec: RunSpec) -> Sandbox:
        if (spec.uid is None) == (os.geteuid() == 0):
            raise SandboxUnavailable("a daemon of root, and no other, runs each group as a user of its own")
        # Cancelled in the middle, it would leave a container that nobody knows: it goes on, and its caller ends it.
        with anyio.CancelScope(shield=True):
            self._mine.add(spec.run)
            try:
                sandbox = self._kept(await self._start(spec))
            except BaseException as error:
                self._mine.discard(spec.run)
                if isinstance(error, OSError):
                    raise SandboxUnavailable(f"the sandbox of {spec.group} could not be made: {error}") from error
                raise
        return sandbox

    async def adopt(self, left: LeftOver, spec: RunSpec) -> Sandbox | None:
        first = _first(left.handle)
        if first is None or not first.alive():
            return None
        engine, id = self.engine, left.handle.rpartition(":")[2]
        able, found = await engine.call(
            lambda client: (hardening.holds(client.api.info()), _inspect(client, id)), CHECK_SECONDS
        )
        labels = found["Config"]["Labels"] if found else {}
        wanted = {**hardening.labels(spec, self._install), LABEL_PROTOCOL: str(PROTOCOL)}
        if not found or found["State"]["Pid"] != first.pid or not wanted.items() <= labels.items():
            return None
        try:
            await self._verify(id, first, *await anyio.to_thread.run_sync(self._prepared, spec))
            sandbox = self._sandbox(spec, id, first, able)
        except (SandboxUnavailable, OSError) as error:
            log.warning("the sandbox of %s is not taken over: %s", spec.group, error)
            return None
        self._mine.add(spec.run)
        self._kept(sandbox)
        try:
            await sandbox.unpause()
            await sandbox.tidy(everything=True)  # commands whose daemon died belong to nobody
        except BaseException:  # it is looked at again, and taken over then
            sandbox.let_go()
            raise
        return sandbox

    async def sweep(self, left: Iterable[LeftOver], ours: Collection[str] = ()) -> list[str]:
        left = list(left)
        runs = {one.run for one in left}
        remaining: set[str] | None = None
        try:
            await self.engine.call(lambda client: client.ping(), CHECK_SECONDS)  # a removal may take longer
            remaining = await self.engine.call(lambda client: self._remove(client, runs, ours))
        except SandboxUnavailable as error:
            log.warning("what is left of sandboxes cannot be looked at: %s", error)
        return [one.run for one in left if await _dead(one, remaining)]

    def _remove(self, client: docker.DockerClient, runs: Collection[str], ours: Collection[str]) -> set[str]:
        """Remove the containers of `runs`, whatever install they are labelled with (the home may have been moved), and
        all others of this install but those of `ours` and those made here; gives the runs whose containers stay all the
        same. Whose one is is asked when it was seen: a run that began since the sweep did has a container by then."""
        labels, remaining = [f"{LABEL_INSTALL}={self._install}", *(f"{LABEL_RUN}={run}" for run in runs)], set()
        for found in (one for label in labels for one in client.api.containers(all=True, filters={"label": [label]})):
            run = found["Labels"].get(LABEL_RUN, "")
            if run in runs or not (run in ours or run in self._mine):
                try:
                    removed(found["Id"])(client)
                except Exception as error:  # one that stays must not save the others
                    log.warning("the container %s cannot be removed: %s", found["Id"][:12], error)
                if _inspect(client, found["Id"]):
                    remaining.add(run)
        return remaining

    def _prepared(self, spec: RunSpec) -> tuple[RunSpec, list[Mount]]:
        spec = prepare(spec)
        return spec, hardening.mounts(spec, self.engine.socket, self._agent)

    async def _start(self, spec: RunSpec) -> DockerSandbox:
        spec, shown = await anyio.to_thread.run_sync(self._prepared, spec)

        def make(client: docker.DockerClient) -> tuple[str, int, Holds]:
            able = hardening.holds(client.api.info())
            body = hardening.container(spec, self._install, usable(client, spec.image)["Id"], shown, able, zone())
            made = client.api.create_container_from_config(body, f"clawd-{self._install}-{spec.run}")
            for warning in made.get("Warnings") or []:
                log.warning("Docker: %s", warning)
            try:
                faults.passing("created")
                client.api.start(made["Id"])
                return made["Id"], int(client.api.inspect_container(made["Id"])["State"]["Pid"]), able
            except BaseException:
                with contextlib.suppress(Exception):  # else the sweep does it
                    removed(made["Id"])(client)
                raise

        id, pid, able = await self.engine.call(make)
        first = process(pid) if pid and hardening.within(pid, id) else None
        try:
            if first:
                with contextlib.suppress(ProcessLookupError):
                    await self._verify(id, first, spec, shown)
                    return self._sandbox(spec, id, first, able)
            raise await self._never_seen(id, spec)
        except BaseException:
            _kill(first)
            with contextlib.suppress(SandboxUnavailable):  # else the sweep does it
                await self.engine.call(removed(id))
            raise

    async def _never_seen(self, id: str, spec: RunSpec) -> SandboxUnavailable:
        """Why no process of a container that was started is here."""
        try:
            code, memory, told = await self.engine.call(last_words(id))
        except NotThere:  # it goes on, somewhere
            return SandboxUnavailable(
                "the Docker Engine does not run on this very machine (Docker Desktop?), so its mounts are another's",
                hint='set backend = "bubblewrap" in [sandbox] of config.toml',
            )
        why = running.reason_of(code, False, memory, False, running.last_line(told), spec.limits)
        return SandboxUnavailable(f"the sandbox of {spec.group} {why}")

    def _sandbox(self, spec: RunSpec, id: str, first: Process, able: Holds) -> DockerSandbox:
        return DockerSandbox(spec, self.engine, id, first, able.limits, hardening.user_inside(spec, able), zone())

    def _kept(self, sandbox: DockerSandbox) -> DockerSandbox:
        """Remember a living sandbox until it has ended."""
        sandbox.ended(lambda: self._mine.discard(sandbox.run))
        return sandbox

    async def _verify(self, id: str, first: Process, spec: RunSpec, shown: list[Mount]) -> None:
        """See that a container is what was asked for. A wrong mount is refused at once; what is shut while the first
        process becomes its program is awaited. Raises SandboxUnavailable."""
        problem = "it is not what it was"
        with anyio.move_on_after(VERIFY_SECONDS):
            while first.alive():
                try:
                    look = partial(strange, first.pid, shown)  # what is mounted may hang
                    if mount := await anyio.to_thread.run_sync(look, abandon_on_cancel=True):
                        raise Exchanged(spec.group, mount)
                    status = Path(f"/proc/{first.pid}/status").read_text()
                    problem = hardening.loose(status, hardening.user(spec)[0]) or ""
                except OSError as error:
                    problem = f"it cannot be looked at ({error.strerror})"
                if not problem:
                    return
                await anyio.sleep(_POLL)
            else:
                raise ProcessLookupError
        raise SandboxUnavailable(f"the container of {spec.group} is not shut as it must be: {problem}")


def usable(client: docker.DockerClient, image: str) -> dict[str, Any]:
    """What a tag means now. Raises NoImage for one that is not there, or that no sandbox can be made from."""
    import docker.errors

    try:
        found: dict[str, Any] = client.api.inspect_image(image)
    except docker.errors.ImageNotFound:
        raise NoImage(advice("missing", image), hint=remedy(image)) from None
    config = found.get("Config") or {}
    if (config.get("Labels") or {}).get(LABEL_PROTOCOL) != str(PROTOCOL):
        raise NoImage(advice("wrong", image), hint=remedy(image))
    if config.get("Volumes"):
        raise NoImage(
            f"the image {image} declares volumes, which nothing would bound", hint="build it from another base"
        )
    return found


def _inspect(client: docker.DockerClient, id: str) -> dict[str, Any] | None:
    import docker.errors

    try:
        found: dict[str, Any] = client.api.inspect_container(id)
    except docker.errors.NotFound:
        return None
    return found


def _first(handle: str) -> Process | None:
    try:
        return first_of(handle)
    except ValueError:
        return None


def _kill(first: Process | None) -> None:
    """At once, where that is ours to do: an Engine that maps users gives them other owners."""
    with contextlib.suppress(PermissionError):
        if first:
            first.kill()


async def _dead(left: LeftOver, remaining: Collection[str] | None) -> bool:
    """Whether a run is known dead after its containers were removed, but for `remaining`: None when the Engine did not
    answer."""
    try:
        first = first_of(left.handle)
    except ValueError:  # nothing was ever known of it
        return remaining is not None and left.run not in remaining
    if first is not None:
        _kill(first)
        with anyio.move_on_after(SWEEP_SECONDS):
            while first.alive():
                await anyio.sleep(_POLL)
    return first is None or not first.alive()
