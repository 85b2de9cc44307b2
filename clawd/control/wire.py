"""The control socket's lines: one JSON object each, bounded in length and depth, and how errors travel in
them.

request {"id": N, "op": "…", "params": {…}} · answer {"id": N, "ok": true, "result": …} or {"id": N, "ok":
false, "error": {"code": 2, "message": "…", "hint": null}} · event {"event": "…", "data": {…}}.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
from pathlib import Path
from typing import Any, NoReturn

from clawd.errors import ClawdError, Ending, HomeBusy, NotFound, Refused, UsageError

NAME = "control.sock"
LIMIT = 1 << 20  # bytes of a request's line
ANSWER_LIMIT = 16 << 20  # the client trusts the daemon further than the daemon trusts it
DEPTH = 32

_ERRORS = {kind.code: kind for kind in (UsageError, HomeBusy, Refused, NotFound)}


def encode(message: dict[str, Any]) -> bytes:
    """One line. Text that is not Unicode (a lone surrogate) becomes `?`."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """The object of a line. Raises UsageError for anything else, whatever the bytes are."""
    try:
        value = json.loads(line, parse_constant=_no_number)
        if rb"\u" in line:
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise _too_deep() from error
    except ValueError as error:  # UnicodeError and JSONDecodeError are ValueErrors
        raise UsageError("the line is not JSON in UTF-8") from error
    if not isinstance(value, dict):
        raise UsageError("the line is not a JSON object")
    if line.count(b"[") + line.count(b"{") > DEPTH and _deeper(value):
        raise _too_deep()
    return value


def _deeper(value: Any) -> bool:
    """Whether it is nested deeper than `DEPTH`. The texts in it, which may be long, are not looked at."""
    level = [value]
    for _ in range(DEPTH):
        level = [
            each
            for outer in level
            for each in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(each, dict | list)
        ]
    return bool(level)


def _too_deep() -> UsageError:
    return UsageError(f"the line is nested deeper than {DEPTH}")


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


async def read_line(reader: asyncio.StreamReader) -> bytes | None:
    """The next line, None at the end (a torn last line is none). Raises UsageError for one that is too long,
    after having skipped it, so that the next call gives the line behind it."""
    skipped = False
    while True:
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            return None
        except asyncio.LimitOverrunError as error:
            await reader.readexactly(max(error.consumed, 1))
            skipped = True
            continue
        if skipped:
            raise UsageError(f"the line is longer than {LIMIT} bytes")
        return line


def error_of(error: ClawdError) -> dict[str, Any]:
    """An error as it travels. `ending`: whoever asks the next daemon is heard."""
    ending = {"ending": True} if isinstance(error, Ending) else {}
    return {"code": error.code, "message": error.message, "hint": error.hint, **ending}


def raise_error(error: dict[str, Any]) -> NoReturn:
    """Raise what travelled, as the class of its exit code."""
    kind = _ERRORS.get(error.get("code", 1), ClawdError)
    raise kind(str(error.get("message")), hint=error.get("hint"))


def listen(directory: Path) -> socket.socket:
    """A listening socket `directory/control.sock`, 0600, in the place of a stale one. Raises OSError.

    The address goes through a descriptor of the directory, because a home's path may be longer than the 108
    bytes of `sockaddr_un`. The caller holds the home's lock, so what is replaced is nobody's.
    """
    at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    temporary = f".{NAME}.{os.getpid()}"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=at)  # a crash between bind and rename
        listener.bind(f"/proc/self/fd/{at}/{temporary}")
        os.chmod(temporary, 0o600, dir_fd=at)
        listener.listen(128)
        listener.setblocking(False)
        os.rename(temporary, NAME, src_dir_fd=at, dst_dir_fd=at)
    except OSError:
        listener.close()
        raise
    finally:
        os.close(at)
    return listener


def connect(directory: Path, timeout: float = 5.0) -> socket.socket:
    """A connected, blocking socket. Raises OSError when nobody listens there."""
    at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The kernel waits for a daemon that is slow to accept; a socket with `settimeout` would give up at once.
        connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", *divmod(int(timeout * 1e6), 10**6))
        )
        connection.connect(f"/proc/self/fd/{at}/{NAME}")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", 0, 0))
    except OSError:
        connection.close()
        raise
    finally:
        os.close(at)
    return connection


def is_own(connection: socket.socket) -> bool:
    """Whether the peer has the daemon's own uid and lives in its pid namespace: not a sandbox, not another
    user."""
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    try:
        theirs, ours = (Path(f"/proc/{who}/ns/pid").stat() for who in (pid, "self"))
    except OSError:  # gone, or in a namespace that we cannot look into
        return False
    return uid == os.geteuid() and (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino)
