"""The tools that engines share. Those of the sandbox are here; every other name is a tool of the daemon.

A tool gives text and never raises for what the agent did: what went wrong is a sentence in that text. After a
crash a command is not run again, because nobody knows how far it came; a note and the daemon's tools know
their own repeats."""

from __future__ import annotations

import os
import re
import select
import time

from agent import protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agent.turn import Turn

TIMEOUT = 120.0
NOTES = "notes.md"
INTERRUPTED = "[interrupted: the sandbox ended while this ran. It was not run again.]"
# The kernel's out-of-memory killer is to take the command, not the runner.
_SHELL = '{ echo 500 >/proc/self/oom_score_adj; } 2>/dev/null; exec /bin/sh -c "$1"'
_TOKEN = re.compile(protocol.TOKEN.pattern.encode())
# What may become one when more bytes come.
_BEGUN = re.compile(rb"c(?:l(?:a(?:w(?:-[A-Za-z0-9_-]{0,42})?)?)?)?\Z")
_LONGEST_BEGUN = 47
_PIPE = 1 << 20  # at most this is read from a pipe that something else still holds open

_SAID = (
    ("annot fork", "No more processes could be started: this group may run only so many at once."),
    (
        "Resource temporarily unavailable",
        "No more processes could be started: this group may run only so many at once.",
    ),
    ("No space left on device", "There is no space left for this group's files."),
    ("Disk quota exceeded", "There is no space left for this group's files."),
    ("File too large", "A file became larger than this group may write."),
    ("Cannot allocate memory", "There was not enough memory for this command."),
)
_SIGNALS = {
    9: "The command was killed (probably used more memory than this group may).",
    25: "A file became larger than this group may write.",
}


def run(turn: Turn, name: str, arguments: dict[str, Any], nth: int, resumed: bool) -> str:
    """The result of one tool call. `resumed`: an earlier attempt may have begun it. Raises Stopped and
    LeaseLost."""
    if name == "bash":
        return INTERRUPTED if resumed else bash(turn, str(arguments.get("command", "")))
    if name == "sleep":
        return INTERRUPTED if resumed else sleep(turn, arguments.get("seconds", 0))
    if name == "note":
        return note(turn, str(arguments.get("line", "")), resumed)
    return turn.host_tool(name, arguments, nth)


def bash(turn: Turn, command: str, timeout: float = TIMEOUT) -> str:
    """Run a shell command in `work/`: its output, and a sentence when it did not end well."""
    if "\0" in command:
        return "[a command cannot hold a NUL byte]"
    try:
        process = turn.start(["/bin/sh", "-c", _SHELL, "sh", command])
    except OSError as error:
        return unable("The command could not be started", error)
    output = Output()
    late = not _collect(process, output, timeout)
    if late:
        turn.processes.kill(turn.id)
    code = turn.processes.finished(process)
    process.stdout.close()
    text = output.text()
    remark = f"The command was ended after {timeout:g} s." if late else explain(code, text)
    return f"{text.rstrip()}\n[{remark}]".lstrip() if remark else text.rstrip()


def sleep(turn: Turn, seconds: Any) -> str:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < 1e6:
        return "[seconds must be a number from 0 on]"
    turn.pause(min(float(seconds), TIMEOUT))
    return f"[The wait was ended after {TIMEOUT:g} s.]" if seconds > TIMEOUT else f"slept {seconds:g} s"


def note(turn: Turn, line: str, resumed: bool) -> str:
    """Append one line to the notes; after a crash only if it is not there yet."""
    path = os.path.join(turn.place.work, NOTES)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            have = file.read()
            if resumed and line.encode() in have.split(b"\n"):
                return f"kept in {NOTES}"
            file.write((b"" if have[-1:] in (b"", b"\n") else b"\n") + line.encode() + b"\n")
            os.fsync(file.fileno())
    except OSError as error:
        return unable(f"{NOTES} cannot be written", error)
    return f"kept in {NOTES}"


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


class Output:
    """Bytes of which only the head and the tail are kept, and no token."""

    def __init__(self, limit: int = protocol.OUTPUT_BYTES) -> None:
        self.total = 0
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._begun = b""  # of a token, perhaps: it is not in `total` yet

    def read(self, descriptor: int) -> bool:
        """Take what a non-blocking descriptor has. False when that is nothing, now or ever."""
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return False
        self.add(data)
        return bool(data)

    def add(self, data: bytes) -> None:
        data = _TOKEN.sub(protocol.HIDDEN.encode(), self._begun + data)
        begun = _BEGUN.search(data, max(0, len(data) - _LONGEST_BEGUN))
        at = begun.start() if begun else len(data)
        self._begun = data[at:]
        self._keep(data[:at])

    def _keep(self, data: bytes) -> None:
        self.total += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        del self._tail[: -self._half]

    def text(self) -> str:
        """Whole, or head and tail around a marker. NUL and what is not UTF-8 show as `\\x00`."""
        self._keep(self._begun)
        self._begun = b""
        head, tail = bytes(self._head), bytes(self._tail)
        left_out = self.total - len(head) - len(tail)
        if not left_out:
            return visible(head + tail)
        while tail and tail[0] & 0xC0 == 0x80:  # the rest of a character whose beginning is gone
            tail, left_out = tail[1:], left_out + 1
        for back in (1, 2, 3):  # a character that is cut at the end of the head
            if head[-back] >= 0xC0:
                if back < (2 if head[-back] < 0xE0 else 3 if head[-back] < 0xF0 else 4):
                    head, left_out = head[:-back], left_out + back
                break
        return f"{visible(head)}\n[… {left_out} bytes left out …]\n{visible(tail)}"


def visible(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace").replace("\0", "\\x00")


def unable(what: str, error: OSError) -> str:
    return f"[{explain(None, str(error.strerror)) or f'{what}: {error.strerror}.'}]"


def explain(code: int | None, output: str) -> str | None:
    """A sentence about how a command ended, None when there is nothing to say.

    A code above 128 is the shell's word for a signal; None means that the command never started.
    """
    number = -code if code and code < 0 else code - 128 if code and code > 128 else 0
    if number in _SIGNALS:
        return _SIGNALS[number]
    for words, sentence in _SAID:
        # A fork that failed in the background leaves a good exit code behind.
        if words in output[-2000:] and (code != 0 or "fork" in words):
            return f"{sentence} (exit code {code})" if code else sentence
    if code and code < 0:
        return f"The command was ended by signal {number}."
    return f"exit code {code}" if code else None
