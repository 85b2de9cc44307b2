"""The bubblewrap backend: sandboxes on Linux without any service. A sandbox dies with the daemon that started
it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import anyio

from clawd.errors import SandboxUnavailable
from clawd.resources import shipped
from clawd.sandbox import limits, probe, recipe, running
from clawd.sandbox.directories import prepare
from clawd.sandbox.processes import Process, boot, process, seeing
from clawd.sandbox.protocol import LeftOver, RunSpec, Sandbox

SWEEP_SECONDS = 10.0
_CGROUP_FILE = "cgroup"  # in the run's directory: its cgroup's directories, one a line, for whoever sweeps


class Bubblewrap:
    """See `protocol.Backend`. `install` tells this home's cgroups from another's; `agent` holds the
    runner."""

    name: Literal["bubblewrap"] = "bubblewrap"

    def __init__(self, install: str, agent: Path | None = None) -> None:
        self._install, self._agent = install, agent or shipped("containers/agent")
        self._host: recipe.Host | None = None
        self._surveying = anyio.Lock()

    async def check(self) -> None:
        await self._survey()

    async def start(self, spec: RunSpec) -> Sandbox:
        host = await self._survey()
        if (spec.uid is None) == (os.geteuid() == 0):
            raise SandboxUnavailable("a daemon of root, and no other, runs each group as a user of its own")
        cgroup = None
        try:
            spec = prepare(spec)
            if host.kind == "cgroup":
                cgroup = limits.Cgroup.create(host.holder.places, f"clawd-{self._install}-{spec.run}", spec.limits)
                (spec.directory / _CGROUP_FILE).write_text("\n".join(map(str, cgroup.directories)))
            return await self._launch(spec, host, cgroup)
        except OSError as error:
            _abandon(cgroup)
            raise SandboxUnavailable(f"the sandbox of {spec.group} could not be made: {error}") from error
        except BaseException:
            _abandon(cgroup)
            raise

    async def sweep(self, left: Iterable[LeftOver]) -> list[str]:
        return [one.run for one in left if await self._end(one)]

    async def _survey(self) -> recipe.Host:
        async with self._surveying:
            if self._host is None:
                self._host = await anyio.to_thread.run_sync(probe.survey, self._install, self._agent)
            return self._host

    async def _launch(self, spec: RunSpec, host: recipe.Host, cgroup: limits.Cgroup | None) -> Sandbox:
        """Start it from this very thread: the kernel ends a bwrap when the *thread* that started it ends."""
        told, telling = os.pipe()
        output, printing = os.pipe()
        more: list[int] = []
        try:
            line, more = running.command(spec, host, self._agent, recipe.RUNNER, {}, cgroup, info=telling)
            child = subprocess.Popen(  # noqa: ASYNC220 (not in a worker thread: see above)
                line,
                stdin=subprocess.DEVNULL,
                stdout=printing,
                stderr=printing,
                pass_fds=[telling, *more],
                cwd="/",
                start_new_session=True,  # a terminal's ^C is for the daemon alone
            )
        except BaseException:
            running.close([told, output])
            raise
        finally:
            running.close([telling, printing, *more])
        log = running.Log(output)
        try:
            init = await _first_process(told)
            return running.BubblewrapSandbox(spec, host, self._agent, child, init, log, cgroup)
        except BaseException as error:
            child.kill()
            code = child.wait()
            log.close()
            if isinstance(error, SandboxUnavailable | ValueError | OSError):
                why = running.reason_of(code, False, False, False, log.last_line(), spec.limits)
                raise SandboxUnavailable(f"the sandbox of {spec.group} {why}") from error
            raise

    async def _end(self, left: LeftOver) -> bool:
        """End what is left of a run; whether all of it is known dead."""
        recorded = left.directory / _CGROUP_FILE
        paths = [Path(line) for line in recorded.read_text().splitlines()] if recorded.exists() else []
        cgroup = limits.Cgroup(path for path in paths if path.name.startswith("clawd-"))
        with anyio.move_on_after(SWEEP_SECONDS):
            while True:
                inside = (process(pid) for pid in cgroup.pids())
                beside = seeing(left.directory / "socket", recipe.RUN)
                found = {*processes_of(left.sandbox_id), *inside, *beside}
                alive = {one for one in found if one and one.alive()}
                if not alive and cgroup.remove():
                    return True
                cgroup.kill()
                for one in alive:
                    one.kill()
                await anyio.sleep(0.01)
        return False


def processes_of(sandbox_id: str) -> list[Process]:
    """The processes that a sandbox's id names, as far as they can be of this boot: [outer bwrap, first
    inside]."""
    kind, *fields = sandbox_id.split(":")
    if kind != "bwrap" or len(fields) != 5 or fields[0] != boot() or not all(field.isdigit() for field in fields[1:]):
        return []
    outer, outer_start, first, first_start = map(int, fields[1:])
    return [Process(outer, outer_start), Process(first, first_start)]


async def _first_process(told: int) -> int:
    """The host's pid of the first process inside, as bwrap tells it. Raises ValueError when it ended without
    a word."""
    data = b""
    try:
        while True:
            await anyio.wait_readable(told)
            chunk = os.read(told, 4096)
            data += chunk
            if not chunk:
                return int(json.loads(data)["child-pid"])
    finally:
        os.close(told)


def _abandon(cgroup: limits.Cgroup | None) -> None:
    if cgroup:
        cgroup.kill()
        cgroup.remove()
