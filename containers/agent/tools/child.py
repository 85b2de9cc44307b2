"""Commands of a tool, as processes of the turn: whatever can hang, grow or be stopped runs in one, never in the runner.

A command is ended alone when it is late: others of its turn run beside it."""

from __future__ import annotations

import os
import select
import sys
import threading
import time

from agent.processes import kill_group
from agent.tools.output import Output, bound, cut, explain, unable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Any

    from agent.turn import Turn

# The kernel's out-of-memory killer is to take the command, not the runner.
_PREFERRED = '{ echo 500 >/proc/self/oom_score_adj; } 2>/dev/null; exec "$@"'
# The job says itself how it ended, behind what it said.
_JOB = 'exec >"$0" 2>&1; /bin/sh -c "$1"; echo "[exit code $?]"'
_JOBS = "/tmp"  # not work/: what a job says is nobody's to keep
_PIPE = 1 << 20  # at most this is read from a pipe that something else still holds open


def bash(turn: Turn, command: str, timeout: float | None = None, background: bool = False) -> str:
    """Run a shell command in `work/`: its output, and a sentence when it did not end well."""
    if background:
        return job(turn, command, timeout)
    return run(turn, ["/bin/sh", "-c", command], timeout)


def program(turn: Turn, name: str, *arguments: str) -> str:
    """Run a program of this directory with our own Python."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    return run(turn, [sys.executable, "-I", "-S", "-B", "-W", "ignore", path, *arguments])


def run(turn: Turn, argv: list[str], timeout: float | None = None) -> str:
    """What a command says until it ends or is ended; `timeout` may only shorten the turn's own."""
    longest = float(turn.limits["tool_s"])
    timeout = longest if timeout is None else min(timeout, longest)
    try:
        process = turn.start(["/bin/sh", "-c", _PREFERRED, "sh", *argv])
    except OSError as error:
        return unable("The command could not be started", error)
    output = Output(bound(turn))
    late = not _collect(process, output, timeout)
    if late:
        kill_group(process.pid)
    code = turn.processes.finished(process)
    process.stdout.close()
    text = output.text().rstrip()
    remark = f"The command was ended after {timeout:g} s." if late else explain(code, text)
    return f"{text}\n[{remark}]".lstrip() if remark else text


def job(turn: Turn, command: str, timeout: float | None) -> str:
    """A command that goes on beside the turn: a file has what it says. It needs no tools of its own: `read` looks at
    it, `kill` ends it, and the turn's end does."""
    log = f"{_JOBS}/job-{turn.id}-{time.monotonic_ns()}.log"
    try:
        process = turn.start(["/bin/sh", "-c", _PREFERRED, "sh", "/bin/sh", "-c", _JOB, log, command])
    except OSError as error:
        return unable("The command could not be started", error)
    said = process.stdout.read()  # until it has its file instead
    process.stdout.close()
    threading.Thread(target=_wait, args=(turn, process, timeout), daemon=True).start()
    if said:
        return f"[The command could not be started: {cut(said.decode(errors='replace').strip(), bound(turn))}]"
    return f"job {process.pid} runs until your turn ends. Output: {log}. To end it: kill -9 -{process.pid}"


def _wait(turn: Turn, process: subprocess.Popen[bytes], timeout: float | None) -> None:
    """Reap a job, whoever ended it."""
    import subprocess

    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        kill_group(process.pid)
    turn.processes.finished(process)


def _collect(process: Any, output: Output, timeout: float) -> bool:
    """Read what a command says until it ends, even if something it left behind holds its pipe. False: it is
    late."""
    pipe = process.stdout.fileno()
    os.set_blocking(pipe, False)
    poller = select.poll()
    poller.register(pipe, select.POLLIN)
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        handle = -1  # a kernel without it: look twenty times a second
    else:
        poller.register(handle, select.POLLIN)
    deadline = time.monotonic() + timeout
    try:
        while (left := deadline - time.monotonic()) > 0:
            ready = {descriptor for descriptor, _ in poller.poll((left if handle >= 0 else min(left, 0.05)) * 1000)}
            if pipe in ready and not output.read(pipe):
                poller.unregister(pipe)
            if handle in ready or (handle < 0 and has_ended(process.pid)):
                end = output.total + _PIPE
                while output.total < end and output.read(pipe):
                    pass
                return True
        return False
    finally:
        if handle >= 0:
            os.close(handle)


def has_ended(pid: int) -> bool:
    """Whether a child has ended, without reaping it."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
