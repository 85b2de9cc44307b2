"""The life of a sandbox: started, limited, ended, swept, with commands beside it. Everything is real."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from conftest import beside, until

from clawd.errors import SandboxUnavailable
from clawd.sandbox import limits, recipe, running
from clawd.sandbox.bubblewrap import Bubblewrap, processes_of
from clawd.sandbox.processes import process, seeing
from clawd.sandbox.protocol import LeftOver, RunSpec, SandboxLimits

pytestmark = pytest.mark.anyio

SLEEPER = "import time; open('up', 'w').close(); time.sleep(600)"
ECHO = """
    import os, time
    while not os.path.exists("ask"):
        time.sleep(0.01)
    open("answer", "w").close()
    time.sleep(600)
"""


def alive(sandbox_id: str) -> bool:
    return any(one.alive() for one in processes_of(sandbox_id))


async def test_its_exit_code_and_last_words_are_told(ground) -> None:
    done, _ = await ground.run("import sys; print('a \\x1b[31mred\\x1b[0m word'); sys.exit(3)")
    assert (done.code, done.reason) == (3, "failed with code 3: a [31mred[0m word")
    done, _ = await ground.run("pass", ground.spec("run-2"))
    assert (done.code, done.reason) == (0, "ended")


async def test_only_the_end_of_a_long_log_is_kept_and_the_pipe_never_fills(ground) -> None:
    done, said = await ground.run("for n in range(200_000): print('line', n)")
    assert done.code == 0
    assert said.endswith("line 199999\n")
    assert len(said) <= running.LOG_BYTES


async def test_kill_ends_everything_and_may_be_repeated(ground) -> None:
    script = """
        import os, signal, time
        for _ in range(5):
            if os.fork() == 0:
                os.setsid()
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                break
        open(f"up-{os.getpid()}", "w").close()
        time.sleep(600)
    """
    spec = ground.spec()
    sandbox = await ground.start(script, spec)
    await until(lambda: len(list(spec.work.glob("up-*"))) == 6)
    done = await sandbox.kill()
    assert done.reason == "was ended"
    assert not alive(sandbox.id)
    assert await sandbox.kill() == await sandbox.wait() == done
    assert not list(Path("/sys/fs/cgroup").glob(f"*/**/clawd-test{os.getpid()}-run-1"))


async def test_what_does_not_die_is_said(ground, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = await ground.start(SLEEPER)
    with monkeypatch.context() as patch:
        patch.setattr(running, "KILL_SECONDS", 0.05)
        patch.setattr(sandbox, "_kill", lambda: None)
        with pytest.raises(SandboxUnavailable, match="the sandbox of main does not end"):
            await sandbox.kill()
    assert (await sandbox.kill()).reason == "was ended"


async def test_killed_from_outside_it_is_known(ground) -> None:
    sandbox = await ground.start(SLEEPER)
    for one in processes_of(sandbox.id)[:1]:
        one.kill()
    with anyio.fail_after(20):
        assert (await sandbox.wait()).reason == "was killed"
    assert not alive(sandbox.id)


async def test_a_fork_bomb_stops_at_the_limit_while_others_work(ground) -> None:
    bomb = """
        import os, time
        while True:
            try:
                if os.fork() == 0:
                    time.sleep(600)
            except OSError:
                open("full", "w").close()
                time.sleep(0.1)
    """
    spec, other = ground.spec(pids=32), ground.spec("run-2", "other")
    neighbour = await ground.start(ECHO, other)
    sandbox = await ground.start(bomb, spec)
    await until((spec.work / "full").exists)
    (other.work / "ask").touch()
    await until((other.work / "answer").exists)
    await sandbox.kill()
    assert not alive(sandbox.id)
    assert alive(neighbour.id)


async def test_a_memory_hog_ends_in_a_sentence_while_others_work(ground) -> None:
    other = ground.spec("run-2", "other")
    neighbour = await ground.start(ECHO, other)
    hog = "kept = []\nwhile True: kept.append(bytearray(8 << 20))"
    done, _ = await ground.run(hog, ground.spec(memory_bytes=128 << 20))
    expected = "failed with code 1: MemoryError" if neighbour.limits == "rlimit" else None
    assert done.reason == (expected or "ran out of memory (it may use 128 MB)")
    (other.work / "ask").touch()
    await until((other.work / "answer").exists)
    assert alive(neighbour.id)


async def test_where_there_is_no_cgroup_limits_hold_each_process(ground) -> None:
    await ground.backend.check()
    host = ground.backend._host
    assert host is not None
    ground.backend._host = replace(host, holder=limits.Holder("rlimit", {}))
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
    spec = ground.spec(pids=32)
    sandbox = await ground.start(script, spec)
    assert sandbox.limits == "rlimit"
    await until((spec.work / "full").exists)
    await sandbox.kill()
    assert sandbox.log.text() == "memory\nforks True\n"
    assert not alive(sandbox.id)


async def test_where_systemd_holds_it_starts_in_a_scope(ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few places where tests run have systemd: what stands in for it runs the command that it is given."""
    stand_in = ground.root / "bin" / "systemd-run"
    stand_in.parent.mkdir()
    stand_in.write_text(
        f'#!/bin/sh\necho scope >>{ground.root}/scopes\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n'
    )
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stand_in.parent}:{os.environ['PATH']}")
    await ground.backend.check()
    host = ground.backend._host
    assert host is not None
    ground.backend._host = replace(host, holder=limits.Holder("scope", {}))
    spec = ground.spec()
    sandbox = await ground.start(SLEEPER, spec)
    assert sandbox.limits == "scope"
    await until((spec.work / "up").exists)
    assert (await beside(sandbox, ["/bin/sh", "-c", "exit 5"])).code == 5
    assert (ground.root / "scopes").read_text() == "scope\n" * 2
    await sandbox.kill()
    assert not alive(sandbox.id)


async def test_owns_its_own_processes_and_no_others(ground) -> None:
    spec, other = ground.spec(), ground.spec("run-2", "other")
    fork = "import os\nos.fork() or os.setsid()\n" + SLEEPER
    sandbox, stranger = await ground.start(fork, spec), await ground.start(SLEEPER, other)
    first = int(sandbox.id.split(":")[4])
    children = Path(f"/proc/{first}/task/{first}/children")
    await until(lambda: children.read_text().split())
    inside = [first, *map(int, children.read_text().split())]
    assert all(sandbox.owns(pid) for pid in inside)
    assert not any(stranger.owns(pid) for pid in inside)
    assert not any(sandbox.owns(pid) for pid in (os.getpid(), 1, 0, -1, 1 << 22, int(stranger.id.split(":")[4])))
    await sandbox.kill()
    assert not any(sandbox.owns(pid) for pid in inside)


async def test_a_command_beside_it(ground) -> None:
    spec = ground.spec()
    sandbox = await ground.start(SLEEPER, spec)
    script = "read word; echo $word $MORE $CLAWD_RUN; pwd; echo oops >&2; touch made; exit 7"
    done = await beside(sandbox, ["/bin/sh", "-c", script], b"hello\n", MORE="-- --bind / /")
    assert (done.code, done.stdout) == (7, b"hello -- --bind / / run-1\n/group/work\n")
    assert done.stderr == b"oops\n"
    assert (spec.work / "made").stat().st_uid == (ground.uid or os.geteuid())


async def test_a_command_beside_it_is_owned_and_ends_with_it(ground) -> None:
    spec = ground.spec()
    sandbox = await ground.start(SLEEPER, spec)
    ended: list[int] = []
    async with anyio.create_task_group() as tasks:

        async def command() -> None:
            ended.append((await beside(sandbox, ["/bin/sh", "-c", "touch beside; sleep 600 & sleep 600"])).code)

        tasks.start_soon(command)
        await until((spec.work / "beside").exists)
        inside = {one.pid for one in seeing(spec.socket_directory, recipe.RUN)}
        assert len(inside) > 2
        assert all(sandbox.owns(pid) for pid in inside)
        await sandbox.kill()
    assert ended == [137]
    assert not seeing(spec.socket_directory, recipe.RUN)
    with pytest.raises(SandboxUnavailable):
        await beside(sandbox, ["true"])


async def test_a_command_ends_when_nobody_waits_for_it_any_more(ground) -> None:
    spec = ground.spec()
    sandbox = await ground.start(SLEEPER, spec)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beside, sandbox, ["/bin/sh", "-c", "touch beside; exec sleep 599"])
        await until((spec.work / "beside").exists)
        tasks.cancel_scope.cancel()
    await until(lambda: not any(b"599" in _line(one.pid) for one in seeing(spec.socket_directory, recipe.RUN)))


async def test_what_cannot_be_mounted_is_told(ground) -> None:
    spec = ground.spec()
    await ground.backend.check()
    ground.backend._agent = ground.root / "gone"
    told = ""
    try:
        told = (await (await ground.backend.start(spec)).wait()).reason
    except SandboxUnavailable as error:
        told = error.message
    assert "could not be set up: Can't find source path" in told


async def test_a_link_for_work_is_refused(ground) -> None:
    spec = ground.spec()
    spec.work.parent.mkdir(parents=True)
    spec.work.symlink_to(ground.root)
    with pytest.raises(SandboxUnavailable, match="is a link"):
        await ground.backend.start(spec)


async def test_the_uid_must_fit_the_daemon(ground) -> None:
    with pytest.raises(SandboxUnavailable, match="user of its own"):
        await ground.backend.start(replace(ground.spec(), uid=64_001 if ground.uid is None else None))


async def test_sweep_ends_what_lives_and_knows_what_is_dead(ground) -> None:
    spec, other = ground.spec(), ground.spec("run-2", "other")
    left, kept = await ground.start(SLEEPER, spec), await ground.start(SLEEPER, other)
    gone = await ground.start("pass", ground.spec("run-3", "third"))
    await gone.wait()
    after = Bubblewrap(f"test{os.getpid()}", ground.agents)
    dead = await after.sweep(
        [
            LeftOver("run-1", "bubblewrap", left.id, spec.directory, spec.uid),
            LeftOver("run-3", "bubblewrap", gone.id, ground.root / "runtime" / "run-3", spec.uid),
        ]
    )
    assert dead == ["run-1", "run-3"]
    assert not alive(left.id)
    assert alive(kept.id)


async def test_sweep_finds_a_run_whose_id_was_never_kept(ground) -> None:
    spec = ground.spec()
    left = await ground.start(SLEEPER, spec)
    await until((spec.work / "up").exists)
    (spec.directory / "cgroup").unlink(missing_ok=True)
    assert await ground.backend.sweep([LeftOver("run-1", "bubblewrap", "", spec.directory, spec.uid)]) == ["run-1"]
    assert not alive(left.id)


async def test_sweep_spares_a_recycled_pid(ground, tmp_path: Path) -> None:
    me = process(os.getpid())
    assert me is not None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    ids = [
        f"bwrap:{boot}:{me.pid}:{me.start - 1}:{me.pid}:{me.start + 1}",
        f"bwrap:00000000:{me.pid}:{me.start}:1:1",
    ]
    for number, stale in enumerate([*ids, "docker:abc", "bwrap:x", ""]):
        run = f"run-{number}"
        assert await ground.backend.sweep([LeftOver(run, "bubblewrap", stale, tmp_path / run, None)]) == [run]


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


async def daemon(ground, spec: RunSpec) -> subprocess.Popen[str]:
    """Another process that is about to start this sandbox."""
    (ground.agents / "runner.py").write_text(SLEEPER)
    script = DAEMON.format(install=f"test{os.getpid()}", agent=str(ground.agents), spec=spec)
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
    assert child.stdout is not None
    assert await anyio.to_thread.run_sync(child.stdout.readline) == "ready\n"
    return child


async def test_a_daemon_that_is_killed_takes_its_sandboxes_along(ground) -> None:
    spec = ground.spec()
    child = await daemon(ground, spec)
    assert child.stdout is not None
    sandbox_id = (await anyio.to_thread.run_sync(child.stdout.readline)).strip()
    await until((spec.work / "up").exists)
    assert alive(sandbox_id)
    child.kill()
    child.wait()
    await until(lambda: not alive(sandbox_id))
    left = LeftOver("run-1", "bubblewrap", sandbox_id, spec.directory, spec.uid)
    cgroup = [Path(line) for line in _lines(spec.directory / "cgroup")]
    assert await ground.backend.sweep([left]) == ["run-1"]
    assert not any(path.exists() for path in cgroup)


async def test_a_daemon_that_is_killed_in_a_start_leaves_no_agent_behind(ground) -> None:
    for number in range(12):
        spec = ground.spec(f"run-{number}")
        child = await daemon(ground, spec)
        await anyio.sleep(number * 0.002)  # any moment will do: none may leave an agent
        child.kill()
        child.wait()
        await until(lambda at=spec: not seeing(at.socket_directory, "/run/clawd"))
        assert await ground.backend.sweep([LeftOver(spec.run, "bubblewrap", "", spec.directory, spec.uid)]) == [
            spec.run
        ]
        assert not any(Path(line).exists() for line in _lines(spec.directory / "cgroup"))


def _line(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


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
