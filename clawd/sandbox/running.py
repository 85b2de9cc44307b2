"""One living bubblewrap sandbox: its processes, its log, its end.

Its end is known from two handles: that of the outer bwrap, and that of the first process of the sandbox's pid
namespace, which the kernel lets go only after every other process in it. What `execute` started beside
it is ended with it, through the cgroup and by what is counted as its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import anyio

from clawd.errors import SandboxUnavailable
from clawd.sandbox import limits, recipe, seccomp
from clawd.sandbox.directories import strange
from clawd.sandbox.processes import Process, boot, descends, process, seeing
from clawd.sandbox.protocol import (
    BackendName,
    Exchanged,
    Exit,
    Mount,
    RunSpec,
    SandboxLimits,
    unchanged,
)

LOG_BYTES = 16 << 10
KILL_SECONDS = 10.0
_READ_PAUSE = 0.01  # seconds between reads of the log: an agent that prints for ever costs us no more than this
_POLL = 0.005
_STATUS_KILLED = (137, -9)


class Log:
    """The last `LOG_BYTES` of what a sandbox printed, read as long as it lives, without a task of its own."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._loop, self._closed = descriptor, asyncio.get_running_loop(), False
        self._bytes = bytearray()
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._readable)

    def text(self) -> str:
        return self._bytes.decode("utf-8", "replace")

    def last_line(self) -> str:
        return last_line(self.text())

    def close(self) -> None:
        """Take what is left and let go of the pipe."""
        if not self._closed:
            self._loop.remove_reader(self._descriptor)
            for _ in range(16):  # a pipe holds 64 KiB, unless it was made larger
                if not self._take():
                    break
            self._closed = True
            os.close(self._descriptor)

    def _readable(self) -> None:
        self._loop.remove_reader(self._descriptor)
        if self._take() != 0:
            self._loop.call_later(_READ_PAUSE, self._resume)

    def _resume(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._descriptor, self._readable)

    def _take(self) -> int | None:
        """How many bytes came: 0 at the end, None when there are none now."""
        try:
            data = os.read(self._descriptor, 64 << 10)
        except BlockingIOError:
            return None
        self._bytes += data
        del self._bytes[:-LOG_BYTES]
        return len(data)


class BubblewrapSandbox:
    """See `protocol.Sandbox`. `log` is for diagnosis: hostile text, never to be shown raw."""

    backend: BackendName = "bubblewrap"
    pausable = False

    def __init__(
        self,
        spec: RunSpec,
        host: recipe.Host,
        agent: Path,
        child: subprocess.Popen[bytes],
        init: Process | None,
        log: Log,
        cgroup: limits.Cgroup | None,
    ) -> None:
        """`init` is the first process inside. Raises EOFError when it is gone already."""
        self.run, self.limits, self.log = spec.run, host.kind, log
        self._spec, self._host, self._agent, self._child, self._cgroup = spec, host, agent, child, cgroup
        self._ended = False
        outer = process(child.pid)
        if outer is None or init is None:
            raise EOFError
        self._outer, self._init, self._beside = outer, init, set[Process]()
        self._handles = os.pidfd_open(outer.pid), os.pidfd_open(init.pid)
        self.id = self.handle = f"bwrap:{boot()}:{outer.pid}:{outer.start}:{init.pid}:{init.start}"
        status = spec.socket_directory.lstat()
        self._socket = Mount(spec.socket_directory, recipe.RUN, False, status.st_dev, status.st_ino)
        self._life = asyncio.create_task(self._live(), name=f"sandbox {spec.run}")

    async def wait(self) -> Exit:
        return await asyncio.shield(self._life)

    async def kill(self) -> Exit:
        if not self._life.done():
            self._ended = True
            self._kill()
        with anyio.move_on_after(KILL_SECONDS):
            return await self.wait()
        raise SandboxUnavailable(
            f"the sandbox of {self._spec.group} does not end",
            hint=f"look at process {self._init.pid}: ps -l {self._init.pid}",
        )

    async def pause(self) -> None:
        """An idle one costs nothing as it is."""

    async def unpause(self) -> None:
        """It never was paused."""

    def owns(self, pid: int) -> bool:
        return descends(pid, {self._outer, *self._beside})

    async def execute(self, argv: list[str], environment: Mapping[str, str], streams: Sequence[int]) -> int:
        if self._life.done():
            raise SandboxUnavailable(f"the sandbox of {self._spec.group} has ended")
        entry = (*recipe.FORWARDER, *argv)
        waits, go = list[int](), list[int]()
        if self._spec.mounts:
            block, *go = os.pipe()
            waits = [os.memfd_create("info", os.MFD_CLOEXEC), block]
        passed = [*waits]
        try:
            line, more = command(self._spec, self._host, self._agent, entry, environment, self._cgroup, *waits)
            passed += more
            child = await asyncio.create_subprocess_exec(
                *line, stdin=streams[0], stdout=streams[1], stderr=streams[2], pass_fds=passed
            )
            if waits:
                await self._check(child, waits[0])
                os.write(go[0], b"1")
        finally:
            close([*passed, *go])
        self._beside = {one for one in self._beside if one.alive()}
        if one := process(child.pid):
            self._beside.add(one)
        try:
            code = await child.wait()
        finally:
            if child.returncode is None:
                child.kill()
                with anyio.CancelScope(shield=True):
                    await child.wait()
        return code if code >= 0 else 128 - code

    async def _check(self, child: asyncio.subprocess.Process, info: int) -> None:
        """See that what a second bwrap mounted is what was checked, while it waits. Raises SandboxUnavailable, after it
        was ended."""
        shown = (*self._spec.mounts, self._socket)
        try:
            with anyio.move_on_after(KILL_SECONDS):
                while child.returncode is None:
                    if (told := os.pread(info, 4096, 0)).strip().endswith(b"}"):
                        first = json.loads(told)["child-pid"]
                        with contextlib.suppress(OSError):  # not all is mounted yet
                            if unchanged(self._socket, f"/proc/{first}/root{recipe.RUN}"):
                                look = partial(strange, first, shown)
                                if mount := await anyio.to_thread.run_sync(look, abandon_on_cancel=True):
                                    raise Exchanged(self._spec.group, mount)
                                return
                    await anyio.sleep(_POLL)
                return  # it ended by itself, and says why
            raise SandboxUnavailable(f"a command beside the sandbox of {self._spec.group} did not start")
        except BaseException:
            child.kill()
            with anyio.CancelScope(shield=True):
                await child.wait()
            raise

    def _members(self) -> set[Process]:
        """What is alive of it and of the sandboxes beside it."""
        if self._cgroup:
            inside = {one for one in map(process, self._cgroup.pids()) if one}
        else:
            inside = seeing(self._spec.socket_directory, recipe.RUN)
        return {one for one in self._beside | inside if one.alive()}

    def _kill(self) -> None:
        if self._cgroup:
            self._cgroup.kill()
        for one in (self._init, self._outer, *self._members()):
            one.kill()

    async def _live(self) -> Exit:
        outer, init = self._handles
        try:
            await anyio.wait_readable(outer)
            code = self._child.wait()
            self._init.kill()
            await anyio.wait_readable(init)
        finally:
            os.close(outer)
            os.close(init)
        while self._members():
            self._kill()
            await anyio.sleep(_POLL)
        self.log.close()
        memory = self._cgroup is not None and self._cgroup.out_of_memory()
        processes = self._cgroup is not None and self._cgroup.out_of_processes()
        for _ in range(200):  # the last of them may not be reaped yet; what stays after all is the sweep's
            if self._cgroup is None or self._cgroup.remove():
                break
            await anyio.sleep(_POLL)
        reason = reason_of(code, self._ended, memory, processes, self.log.last_line(), self._spec.limits)
        return Exit(code, reason)


def last_line(text: str) -> str:
    """The last line that is not empty, without anything that could move a cursor, at most 200 characters."""
    lines = ["".join(filter(str.isprintable, line)).strip() for line in text.splitlines()]
    return next((line[:200] for line in reversed(lines) if line), "")


def reason_of(code: int, ended: bool, memory: bool, processes: bool, line: str, bounds: SandboxLimits) -> str:
    """Why a sandbox ended, in a person's words. `line` is the last that it printed."""
    if ended:
        return "was ended"
    if memory and code in _STATUS_KILLED:
        return f"ran out of memory (it may use {bounds.memory_bytes >> 20} MB)"
    if code == 0:
        return "ended"
    if line.startswith("bwrap: "):
        return f"could not be set up: {line.removeprefix('bwrap: ')}"
    told = "was killed" if code in _STATUS_KILLED else f"failed with code {code}"
    told += f" at its limit of {bounds.pids} processes" if processes else ""
    return f"{told}: {line}" if line else told


def command(
    spec: RunSpec,
    host: recipe.Host,
    agent: Path,
    entry: tuple[str, ...],
    environment: Mapping[str, str],
    cgroup: limits.Cgroup | None,
    info: int | None = None,
    block: int | None = None,
) -> tuple[list[str], list[int]]:
    """A host command line that runs `entry` in a sandbox of this run, and the descriptors that it must
    inherit."""
    filter_ = seccomp.descriptor(platform.machine())
    try:
        args = seccomp.sealed(recipe.packed(recipe.arguments(spec, host, agent, environment)), "bwrap")
    except BaseException:
        os.close(filter_)
        raise
    line = recipe.launched(cgroup.join if cgroup else [], recipe.command(spec, host, entry, args, filter_, info, block))
    if host.kind == "scope":
        line = [*limits.scope_command(spec.limits, spec.uid is not None), *line]
    return line, [args, filter_]


def close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)
