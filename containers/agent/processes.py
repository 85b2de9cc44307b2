"""The processes of a run: started for a turn, and gone when it ends, however they tried to stay.

The runner is a subreaper, so whatever a command leaves behind (double fork, setsid, closed descriptors)
becomes the runner's own child: its descendants are everything that ever was started. A turn's are told from
another's by the command that the runner started, or for an orphan by the tag in its environment; an orphan
without one belongs to nobody and goes at once. Nothing outside the runner's descendants is ever touched.

A kept process (an engine that stays between turns) outlives a sweep, and nothing below it does: what it started
belongs to the turn that it serves now, also what carries the tag of the turn that it was started in."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

TAG = "CLAWD_TURN"
SWEEP_SECONDS = 5.0


class Process:
    """One line of the process table."""

    __slots__ = ("group", "parent", "pid", "state")

    def __init__(self, pid: int, parent: int, group: int, state: str) -> None:
        self.pid = pid
        self.parent = parent
        self.group = group
        self.state = state


def scan() -> dict[int, Process]:
    """Every process that can be seen now, zombies included."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue  # it ended while we looked
            table[int(name)] = Process(int(name), int(fields[1]), int(fields[2]), fields[0].decode())
    return table


def tag_of(pid: int) -> int | None:
    """The turn that a process was started for, as its environment says; None when it does not, or cannot be
    read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            for line in file.read().split(b"\0"):
                name, _, value = line.partition(b"=")
                if name == TAG.encode() and value.isdigit():
                    return int(value)
    except OSError:
        pass
    return None


def doomed(
    table: dict[int, Process],
    runner: int,
    forwarder: int,
    started: dict[int, int],
    tag: Callable[[int], int | None],
    turn: int,
    others: AbstractSet[int],
    kept: AbstractSet[int] = frozenset(),
) -> set[int]:
    """The processes that must end with `turn` while `others` are live: every descendant of the runner that
    belongs to no other live turn, but for those in `kept`. `started` gives the turn of each command that the runner
    itself started."""
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)

    def below(pid: int) -> list[int]:
        found, at = [pid], 0
        while at < len(found):
            found.extend(children.get(found[at], ()))
            at += 1
        return found

    ending: set[int] = set()
    for child in children.get(runner, ()):
        family = below(child)
        if child == forwarder or (child in kept and started.get(child) not in others):
            ending.update(family[1:])
        elif not others or (started.get(child) or tag(child)) not in others:
            ending.update(family)
        else:
            ending.update(pid for pid in family if pid not in started and tag(pid) == turn)
    return ending


class Processes:
    """What the runner has started. Starting and sweeping exclude each other: a sweep never sees half a
    start."""

    def __init__(self, forwarder: int) -> None:
        self._runner = os.getpid()
        self._forwarder = forwarder
        self._started: dict[int, int] = {}
        self._kept: dict[int, int] = {}  # pid → the turn that it was started in, which its children are tagged with
        self._lock = threading.Lock()

    def start(
        self, turn: int, argv: list[str], directory: str, environment: dict[str, str], *, talks: bool = False
    ) -> subprocess.Popen[bytes]:
        """A command in a session of its own, tagged, its output on one pipe; one that `talks` is written to, and has
        its errors apart. Raises OSError."""
        import subprocess

        with self._lock:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if talks else subprocess.STDOUT,
                cwd=directory,
                env={**environment, TAG: str(turn)},
                start_new_session=True,
            )
            self._started[process.pid] = turn
        return process

    def finished(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for a command that is ending, and forget it. Gives its exit code, negative for a signal."""
        code = process.wait()
        with self._lock:
            self._started.pop(process.pid, None)
            self._kept.pop(process.pid, None)
        return code

    def keep(self, pid: int) -> None:
        """Spare a started process when its turn ends. It is ended by whoever started it."""
        with self._lock:
            self._kept[pid] = self._started[pid]

    def lend(self, pid: int, turn: int) -> None:
        """A kept process serves `turn` from now on."""
        with self._lock:
            self._started[pid] = turn

    def _owner(self, pid: int) -> int | None:
        """The turn that a process belongs to by its tag."""
        tag = tag_of(pid)
        return next((self._started[kept] for kept, born in self._kept.items() if born == tag), tag)

    def kill(self, turn: int) -> None:
        """End the process groups of the commands that a turn runs just now."""
        with self._lock:
            for pid, owner in self._started.items():
                if owner == turn:
                    kill_group(pid)

    def await_forwarder(self) -> None:
        """Return when the forwarder is dead."""
        with suppress(ChildProcessError):  # it was reaped meanwhile
            os.waitid(os.P_PID, self._forwarder, os.WEXITED | os.WNOWAIT)

    def forwarder_lives(self) -> bool:
        try:
            return os.waitpid(self._forwarder, os.WNOHANG) == (0, 0)
        except ChildProcessError:
            return False

    def sweep(self, turn: int, others: Callable[[], AbstractSet[int]]) -> bool:
        """End everything that `turn` started and wait until it is gone. False when something will not go."""
        deadline = time.monotonic() + SWEEP_SECONDS
        while self._sweep_once(turn, others()):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.003)
        return True

    def _sweep_once(self, turn: int, others: AbstractSet[int]) -> bool:
        """Kill and reap; whether anything was still alive."""
        with self._lock:
            table = scan()
            ending = doomed(
                table, self._runner, self._forwarder, self._started, self._owner, turn, others, self._kept.keys()
            )
            living = False
            ours = table[self._runner].group
            for pid in ending:
                process = table[pid]
                if process.state in "ZX":
                    if process.parent == self._runner and pid not in self._started:
                        os.waitpid(pid, os.WNOHANG)
                    continue
                living = True
                # A whole group dies at once, however fast it forks; a group never spans two sessions.
                if process.group != ours and process.group not in self._kept:
                    kill_group(process.group)
                kill(pid)
        return living


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kill_group(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
