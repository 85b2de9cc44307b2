"""What only bubblewrap sandboxes do: they end with their daemon, and bring their own limits. Everything is real."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from conftest import beside, said, until

from clawd.errors import SandboxUnavailable
from clawd.sandbox import limits, running
from clawd.sandbox.bubblewrap import processes_of
from clawd.sandbox.processes import process, seeing
from clawd.sandbox.protocol import LeftOver, RunSpec, SandboxLimits

pytestmark = pytest.mark.anyio

SLEEPER = "import time; open('up', 'w').close(); time.sleep(600)"


def alive(sandbox_id: str) -> bool:
    return any(one.alive() for one in processes_of(sandbox_id))


async def test_what_does_not_die_is_said(bubblewrap, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = await bubblewrap.start(SLEEPER)
    with monkeypatch.context() as patch:
        patch.setattr(running, "KILL_SECONDS", 0.05)
        patch.setattr(sandbox, "_kill", lambda: None)
        with pytest.raises(SandboxUnavailable, match="the sandbox of main does not end"):
            await sandbox.kill()
    assert (await sandbox.kill()).reason == "was ended"


async def test_where_there_is_no_cgroup_limits_hold_each_process(bubblewrap) -> None:
    await bubblewrap.backend.check()
    host = bubblewrap.backend._host
    assert host is not None
    bubblewrap.backend._host = replace(host, holder=limits.Holder("rlimit", {}))
    script = """
        import os, time
        try:
            bytearray(300 << 20)
        except MemoryError:
            print("memory")
        pids = []
        try:
            while True:
                pids.append(os.fork())
                if pids[-1] == 0:
                    time.sleep(600)
        except BlockingIOError:
            print("forks", len(pids) <= 32, flush=True)
        open("full", "w").close()
        time.sleep(600)
    """
    spec = bubblewrap.spec(pids=32)
    sandbox = await bubblewrap.start(script, spec)
    assert sandbox.limits == "rlimit"
    await until((spec.work / "full").exists)
    await sandbox.kill()
    assert said(sandbox) == "memory\nforks True\n"
    assert not alive(sandbox.id)


async def test_where_systemd_holds_it_starts_in_a_scope(bubblewrap, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few places where tests run have systemd: what stands in for it runs the command that it is given."""
    stand_in = bubblewrap.root / "bin" / "systemd-run"
    stand_in.parent.mkdir()
    stand_in.write_text(
        f'#!/bin/sh\necho scope >>{bubblewrap.root}/scopes\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n'
    )
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stand_in.parent}:{os.environ['PATH']}")
    await bubblewrap.backend.check()
    host = bubblewrap.backend._host
    assert host is not None
    bubblewrap.backend._host = replace(host, holder=limits.Holder("scope", {}))
    spec = bubblewrap.spec()
    sandbox = await bubblewrap.start(SLEEPER, spec)
    assert sandbox.limits == "scope"
    await until((spec.work / "up").exists)
    assert (await beside(sandbox, ["/bin/sh", "-c", "exit 5"])).code == 5
    assert (bubblewrap.root / "scopes").read_text() == "scope\n" * 2
    await sandbox.kill()
    assert not alive(sandbox.id)


async def test_what_cannot_be_mounted_is_told(bubblewrap) -> None:
    spec = bubblewrap.spec()
    await bubblewrap.backend.check()
    bubblewrap.backend._agent = bubblewrap.root / "gone"
    told = ""
    try:
        told = (await (await bubblewrap.backend.start(spec)).wait()).reason
    except SandboxUnavailable as error:
        told = error.message
    assert "could not be set up: Can't find source path" in told


async def test_sweep_spares_a_recycled_pid(bubblewrap, tmp_path: Path) -> None:
    me = process(os.getpid())
    assert me is not None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    ids = [
        f"bwrap:{boot}:{me.pid}:{me.start - 1}:{me.pid}:{me.start + 1}",
        f"bwrap:00000000:{me.pid}:{me.start}:1:1",
    ]
    for number, stale in enumerate([*ids, "docker:abc", "bwrap:x", ""]):
        run = f"run-{number}"
        assert await bubblewrap.backend.sweep([LeftOver(run, "bubblewrap", stale, tmp_path / run, None)]) == [run]


DAEMON = """
import sys
import anyio
from pathlib import Path, PosixPath
from clawd.sandbox.bubblewrap import Bubblewrap
from clawd.sandbox.protocol import RunSpec, SandboxLimits
async def main():
    backend = Bubblewrap({install!r}, Path({agent!r}))
    await backend.check()
    print("ready", flush=True)
    sandbox = await backend.start({spec!r})
    print(sandbox.id, flush=True)
    await sandbox.wait()
anyio.run(main)
"""


async def daemon(bubblewrap, spec: RunSpec) -> subprocess.Popen[str]:
    """Another process that is about to start this sandbox."""
    bubblewrap.agent(SLEEPER, ".")
    (spec.socket_directory).mkdir(parents=True, exist_ok=True)
    (spec.socket_directory / "go").touch()
    script = DAEMON.format(install=f"test{os.getpid()}", agent=str(bubblewrap.agents), spec=spec)
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
    assert child.stdout is not None
    assert await anyio.to_thread.run_sync(child.stdout.readline) == "ready\n"
    return child


async def test_a_daemon_that_is_killed_takes_its_sandboxes_along(bubblewrap) -> None:
    spec = bubblewrap.spec()
    child = await daemon(bubblewrap, spec)
    assert child.stdout is not None
    sandbox_id = (await anyio.to_thread.run_sync(child.stdout.readline)).strip()
    await until((spec.work / "up").exists)
    assert alive(sandbox_id)
    child.kill()
    child.wait()
    await until(lambda: not alive(sandbox_id))
    left = LeftOver("run-1", "bubblewrap", sandbox_id, spec.directory, spec.uid)
    cgroup = [Path(line) for line in _lines(spec.directory / "cgroup")]
    assert await bubblewrap.backend.sweep([left]) == ["run-1"]
    assert not any(path.exists() for path in cgroup)


async def test_a_daemon_that_is_killed_in_a_start_leaves_no_agent_behind(bubblewrap) -> None:
    for number in range(12):
        spec = bubblewrap.spec(f"run-{number}")
        child = await daemon(bubblewrap, spec)
        await anyio.sleep(number * 0.002)  # any moment will do: none may leave an agent
        child.kill()
        child.wait()
        await until(lambda at=spec: not seeing(at.socket_directory, "/run/clawd"))
        assert await bubblewrap.backend.sweep([LeftOver(spec.run, "bubblewrap", "", spec.directory, spec.uid)]) == [
            spec.run
        ]
        assert not any(Path(line).exists() for line in _lines(spec.directory / "cgroup"))


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize(
    ("code", "ended", "memory", "processes", "line", "reason"),
    [
        (137, True, True, False, "x", "was ended"),
        (137, False, True, False, "x", "ran out of memory (it may use 1024 MB)"),
        (-9, False, True, False, "", "ran out of memory (it may use 1024 MB)"),
        (137, False, False, False, "", "was killed"),
        (1, False, True, False, "MemoryError", "failed with code 1: MemoryError"),
        (1, False, False, True, "", "failed with code 1 at its limit of 256 processes"),
        (0, False, True, True, "bye", "ended"),
        (1, False, False, False, "bwrap: Can't mount", "could not be set up: Can't mount"),
    ],
)
def test_why_it_ended(code: int, ended: bool, memory: bool, processes: bool, line: str, reason: str) -> None:
    assert running.reason_of(code, ended, memory, processes, line, SandboxLimits()) == reason
