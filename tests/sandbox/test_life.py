"""The life of a sandbox, whichever backend makes it: started, limited, ended, swept, with commands beside it.
Everything is real."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from conftest import beside, inside, install, until

from clawd.errors import SandboxUnavailable
from clawd.sandbox import running
from clawd.sandbox.processes import process
from clawd.sandbox.protocol import LeftOver

pytestmark = pytest.mark.anyio

SLEEPER = "import time; open('up', 'w').close(); time.sleep(600)"
ECHO = """
    import os, time
    while not os.path.exists("ask"):
        time.sleep(0.01)
    open("answer", "w").close()
    time.sleep(600)
"""
TWICE = "import sys; given = sys.stdin.buffer.read(); [it.buffer.write(given) for it in (sys.stdout, sys.stderr)]"


def command_line(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


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
    assert not inside(sandbox)
    assert await sandbox.kill() == await sandbox.wait() == done
    left = [at for at, _, _ in os.walk("/sys/fs/cgroup") if Path(at).name == f"clawd-{install()}-run-1"]
    assert not left  # others' come and go meanwhile


async def test_killed_from_outside_it_is_known(ground) -> None:
    sandbox = await ground.start(SLEEPER)
    one = process(min(inside(sandbox)))
    assert one is not None
    one.kill()
    with anyio.fail_after(30):
        assert (await sandbox.wait()).reason in ("was killed", "was ended from outside")
    assert not inside(sandbox)


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
    assert not inside(sandbox)
    assert inside(neighbour)


async def test_a_memory_hog_ends_in_a_sentence_while_others_work(ground) -> None:
    other = ground.spec("run-2", "other")
    neighbour = await ground.start(ECHO, other)
    hog = "kept = []\nwhile True: kept.append(bytearray(8 << 20))"
    done, _ = await ground.run(hog, ground.spec(memory_bytes=128 << 20))
    expected = "failed with code 1: MemoryError" if neighbour.limits == "rlimit" else None
    assert done.reason == (expected or "ran out of memory (it may use 128 MB)")
    (other.work / "ask").touch()
    await until((other.work / "answer").exists)
    assert inside(neighbour)


async def test_owns_its_own_processes_and_no_others(ground) -> None:
    spec, other = ground.spec(), ground.spec("run-2", "other")
    fork = "import os\nos.fork() or os.setsid()\n" + SLEEPER
    sandbox, stranger = await ground.start(fork, spec), await ground.start(SLEEPER, other)
    await until(lambda: len(inside(sandbox)) >= 3)  # the first, and two of the agent's
    pids = inside(sandbox)
    assert all(sandbox.owns(pid) for pid in pids)
    assert not any(stranger.owns(pid) for pid in pids)
    assert not any(sandbox.owns(pid) for pid in (os.getpid(), 1, 0, -1, 1 << 22, *inside(stranger)))
    await sandbox.kill()
    assert not any(sandbox.owns(pid) for pid in pids)


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
        await until(lambda: any(b"beside" in command_line(pid) for pid in inside(sandbox)))
        assert all(sandbox.owns(pid) for pid in inside(sandbox))
        await sandbox.kill()
    assert ended == [137]
    assert not inside(sandbox)
    with pytest.raises(SandboxUnavailable):
        await beside(sandbox, ["true"])


async def test_a_command_ends_when_nobody_waits_for_it_any_more(ground) -> None:
    spec = ground.spec()
    sandbox = await ground.start(SLEEPER, spec)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beside, sandbox, ["/bin/sh", "-c", "touch beside; sleep 599 & exec sleep 599"])
        await until((spec.work / "beside").exists)
        tasks.cancel_scope.cancel()
    await until(lambda: not any(b"599" in command_line(pid) for pid in inside(sandbox)))
    assert inside(sandbox)


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
    dead = await ground.another().sweep(
        [
            LeftOver("run-1", left.backend, left.handle, spec.directory, spec.uid),
            LeftOver("run-3", gone.backend, gone.handle, ground.root / "runtime" / "run-3", spec.uid),
        ],
        ["run-2"],
    )
    assert dead == ["run-1", "run-3"]
    assert not inside(left)
    assert inside(kept)


async def test_sweep_finds_a_run_whose_id_was_never_kept(ground) -> None:
    spec = ground.spec()
    left = await ground.start(SLEEPER, spec)
    await until((spec.work / "up").exists)
    (spec.directory / "cgroup").unlink(missing_ok=True)
    assert await ground.another().sweep([LeftOver("run-1", left.backend, "", spec.directory, spec.uid)]) == ["run-1"]
    assert not inside(left)


async def test_bytes_pass_a_command_unchanged_and_its_input_ends(ground) -> None:
    sandbox = await ground.start(SLEEPER)
    given = bytes(range(256)) * (1 << 13)  # 2 MB
    done = await beside(sandbox, ["python3", "-c", TWICE], given)
    assert done.code == 0
    assert [hashlib.sha256(it).digest() for it in (done.stdout, done.stderr)] == [hashlib.sha256(given).digest()] * 2


async def test_a_command_whose_output_nobody_reads_any_more_ends(ground) -> None:
    sandbox = await ground.start(SLEEPER)
    ours, theirs = socket.socketpair()
    ours.close()
    null = os.open("/dev/null", os.O_RDWR)
    with theirs, anyio.fail_after(60):
        code = await sandbox.execute(["yes"], {}, [null, theirs.fileno(), null])
    os.close(null)
    assert code != 0
    await until(lambda: not any(command_line(pid).startswith(b"yes") for pid in inside(sandbox)))


async def test_what_a_command_leaves_behind_ends_with_it_and_nothing_else_does(ground) -> None:
    sandbox = await ground.start(SLEEPER)

    def asleep(seconds: int) -> bool:
        return any(command_line(pid) == f"sleep\0{seconds}\0".encode() for pid in inside(sandbox))

    async with anyio.create_task_group() as tasks:
        script = "setsid sleep 1000 >/dev/null 2>&1 & exec sleep 1001"
        tasks.start_soon(beside, sandbox, ["sh", "-c", script])
        await until(lambda: asleep(1000) and asleep(1001))
        script = "setsid sleep 1002 >/dev/null 2>&1 & env -i setsid sleep 1003 >/dev/null 2>&1 &"
        wait = "until grep -qz '^100[3]' /proc/[0-9]*/cmdline; do :; done"
        assert (await beside(sandbox, ["sh", "-c", f"({script}); {wait}"])).code == 0
        await until(lambda: not asleep(1002) and not asleep(1003))
        assert asleep(1000) and asleep(1001), "another command goes on"
        tasks.cancel_scope.cancel()
    await until(lambda: not asleep(1000) and not asleep(1001))
    assert inside(sandbox), "and the runner"


async def test_a_command_that_is_not_there_is_told(ground) -> None:
    sandbox = await ground.start(SLEEPER)
    done = await beside(sandbox, ["/bin/sh", "-c", "exec nothing-such"])
    assert (done.code, done.stdout) == (127, b"")
    assert b"nothing-such" in done.stderr
