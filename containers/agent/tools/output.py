"""What a tool says, as text: head and tail of what is long, bytes made visible, no token, and sentences for what
went wrong."""

from __future__ import annotations

import codecs
import os
import re

from agent import protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agent.turn import Turn

_TOKEN = re.compile(protocol.TOKEN.pattern.encode())
# What may become one when more bytes come.
_BEGUN = re.compile(rb"c(?:l(?:a(?:w(?:-[A-Za-z0-9_-]{0,42})?)?)?)?\Z")
_LONGEST_BEGUN = 47

_PROCESSES = "No more processes could be started: this group may run only so many at once."
_SAID = (
    ("annot fork", _PROCESSES),
    ("Resource temporarily unavailable", _PROCESSES),
    ("No space left on device", "There is no space left for this group's files."),
    ("Disk quota exceeded", "There is no space left for this group's files."),
    ("File too large", "A file became larger than this group may write."),
    ("Cannot allocate memory", "There was not enough memory for this command."),
    ("Argument list too long", "That is too long for one call: write it to a file, and use the file."),
    ("Read-only file system", "Nothing can be written there: only /group/work and /tmp are yours."),
)
_SIGNALS = {
    9: "The command was killed (probably used more memory than this group may).",
    25: "A file became larger than this group may write.",
}


class Output:
    """Bytes of which only the head and the tail are kept, and no token. `limit` and `total` count what is shown: a NUL,
    or a byte that is not UTF-8, is four (`\\x00`)."""

    def __init__(self, limit: int = protocol.OUTPUT_BYTES) -> None:
        self.total = 0
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._begun = b""  # of a token, perhaps: it is not in `total` yet
        self._decode = codecs.getincrementaldecoder("utf-8")("backslashreplace").decode

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

    def _keep(self, data: bytes, end: bool = False) -> None:
        shown = self._decode(data, end).replace("\0", "\\x00").encode()
        self.total += len(shown)
        room = self._half - len(self._head)
        self._head += shown[:room]
        self._tail += shown[room:]
        del self._tail[: -self._half]

    def text(self) -> str:
        """Whole, or head and tail around a marker. Nothing may be added after."""
        self._keep(self._begun, end=True)
        self._begun = b""
        if self.total == len(self._head) + len(self._tail):
            return (self._head + self._tail).decode()
        # A character that is cut is left out.
        head, tail = self._head.decode("utf-8", "ignore"), self._tail.decode("utf-8", "ignore")
        left_out = self.total - len(head.encode()) - len(tail.encode())
        return f"{head}\n[… {left_out} bytes left out …]\n{tail}"


def bound(turn: Turn) -> int:
    """How many bytes a tool of this turn may say."""
    return int(turn.limits["output_bytes"])


def cut(text: str, limit: int) -> str:
    """The same as `Output` says it."""
    output = Output(limit)
    output.add(text.encode("utf-8", "backslashreplace"))
    return output.text()


def visible(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace").replace("\0", "\\x00")


def unable(what: str, error: OSError) -> str:
    """A tool's answer when the system would not do it."""
    said = str(error.strerror or error)
    return f"[{what}: {explain(None, said) or f'{said}.'}]"


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
