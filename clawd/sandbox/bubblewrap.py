"""The bubblewrap backend: sandboxes on Linux without any service. A sandbox dies with the daemon that started
it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel

from clawd import faults
from clawd.errors import SandboxUnavailable
from clawd.resources import shipped
from clawd.sandbox import limits, probe, recipe, running
from clawd.sandbox.directories import prepare, present, strange
from clawd.sandbox.processes import Process, boot, process, seeing
from clawd.sandbox.protocol import BackendName, Exchanged, LeftOver, RunSpec, Sandbox

START_SECONDS = 30.0
SWEEP_SECONDS = 10.0
_STARTER = ThreadPoolExecutor(1, "bwrap")  # its one thread is there from the first start on, until the process ends
_CGROUP_FILE = "cgroup"  # in the run's directory: its cgroup's directories, one a line, for whoever sweeps


class Bubblewrap:
    """See `protocol.Backend`. `install` tells this home's cgroups from another's; `agent` holds the
    runner."""

    def __init__(self, install: str, agent: Path | None = None) -> None:
        self._install, self._agent = install, agent or shipped("containers/agent")
        self._host: recipe.Host | None = None
        self._surveying = anyio.Lock()

    async def check(self, image: str = "") -> BackendName:
        await self._survey()
        return "bubblewrap"

    async def start(self, spec: RunSpec) -> Sandbox:
        host = await self._survey()
        if (spec.uid is None) == (os.geteuid() == 0):
            raise SandboxUnavailable("a daemon of root, and no other, runs each group as a user of its own")
        cgroup = None
        try:
            spec = await anyio.to_thread.run_sync(prepare, spec)
            await anyio.to_thread.run_sync(present, spec)
            faults.passing("checked")
            if host.kind == "cgroup":
                cgroup = limits.Cgroup.of(host.holder.places, f"clawd-{self._install}-{spec.run}")
                (spec.directory / _CGROUP_FILE).write_text("\n".join(map(str, cgroup.directories)))
                cgroup.create(host.holder.places, spec.limits)
            return await self._launch(spec, host, cgroup)
        except OSError as error:
            _abandon(cgroup)
            self._host = None  # what was found then may be gone: look again
            raise SandboxUnavailable(f"the sandbox of {spec.group} could not be made: {error}") from error
        except BaseException:
            _abandon(cgroup)
            self._host = None
            raise

    async def adopt(self, left: LeftOver, spec: RunSpec) -> Sandbox | None:
        """Never: a sandbox ends with the daemon that made it."""
        return None

    async def sweep(self, left: Iterable[LeftOver], ours: Collection[str] = ()) -> list[str]:
        return [one.run for one in left if await self._end(one)]

    async def _survey(self) -> recipe.Host:
        async with self._surveying:
            if self._host is None:
                self._host = await anyio.to_thread.run_sync(probe.survey, self._install, self._agent)
            return self._host

    async def _launch(self, spec: RunSpec, host: recipe.Host, cgroup: limits.Cgroup | None) -> Sandbox:
        """Start it from a thread that lives as long as we do: the kernel ends a bwrap when the *thread* that started it
        ends, and until the new process has run, the thread waits for it."""
        gate, inner_gate = socket.socketpair()
        output, printing = os.pipe()
        info = os.memfd_create("info", os.MFD_CLOEXEC)
        inherited, log, child = [info], running.Log(output), None
        try:
            line, more = running.command(spec, host, self._agent, recipe.RUNNER, {}, cgroup, info)
            inherited += more
            start: partial[subprocess.Popen[bytes]] = partial(
                subprocess.Popen,
                line,
                stdin=inner_gate.fileno(),
                stdout=printing,
                stderr=printing,
                pass_fds=inherited,
                cwd="/",
                start_new_session=True,  # a terminal's ^C is for the daemon alone
            )
            with anyio.CancelScope(shield=True):  # or nobody would know of it
                child = await asyncio.wrap_future(_STARTER.submit(start))
            assert child is not None
            inner_gate.close()
            with anyio.fail_after(START_SECONDS):
                await anyio.wait_readable(gate)
                if not gate.recv(1):
                    raise EOFError
                first = process(json.loads(os.pread(info, 4096, 0))["child-pid"])
                while first and not first.waiting():  # it ties its life first, then it only waits
                    await anyio.lowlevel.checkpoint()
                # Nothing of the agent has run yet. What is mounted may hang.
                look = partial(strange, first.pid if first else 0, spec.mounts)
                if first and (mount := await anyio.to_thread.run_sync(look, abandon_on_cancel=True)):
                    raise Exchanged(spec.group, mount)
            sandbox = running.BubblewrapSandbox(spec, host, self._agent, child, first, log, cgroup)
            with contextlib.suppress(OSError):  # it has ended already: `wait` tells
                gate.sendall(b"\n")
            return sandbox
        except BaseException as error:
            code = 0
            if child:
                child.kill()
                code = child.wait()
            log.close()
            if isinstance(error, EOFError | TimeoutError):
                why = running.reason_of(code, False, False, False, log.last_line(), spec.limits)
                raise SandboxUnavailable(f"the sandbox of {spec.group} {why}") from error
            raise
        finally:
            gate.close()
            inner_gate.close()
            running.close([printing, *inherited])

    async def _end(self, left: LeftOver) -> bool:
        """End what is left of a run; whether all of it is known dead."""
        recorded = left.directory / _CGROUP_FILE
        paths = [Path(line) for line in recorded.read_text().splitlines()] if recorded.exists() else []
        cgroup = limits.Cgroup(path for path in paths if path.name.startswith("clawd-"))
        with anyio.move_on_after(SWEEP_SECONDS):
            while True:
                inside = (process(pid) for pid in cgroup.pids())
                beside = seeing(left.directory / "socket", recipe.RUN)
                found = {*processes_of(left.handle), *inside, *beside}
                alive = {one for one in found if one and one.alive()}
                if not alive and cgroup.remove():
                    return True
                cgroup.kill()
                for one in alive:
                    one.kill()
                await anyio.sleep(0.01)
        return False


def processes_of(handle: str) -> list[Process]:
    """The processes that a sandbox's handle names, as far as they can be of this boot: [outer bwrap, first
    inside]."""
    kind, *fields = handle.split(":")
    if kind != "bwrap" or len(fields) != 5 or fields[0] != boot() or not all(field.isdigit() for field in fields[1:]):
        return []
    outer, outer_start, first, first_start = map(int, fields[1:])
    return [Process(outer, outer_start), Process(first, first_start)]


def _abandon(cgroup: limits.Cgroup | None) -> None:
    if cgroup:
        cgroup.kill()
        cgroup.remove()
