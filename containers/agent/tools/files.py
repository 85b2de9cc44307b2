"""Files of the sandbox: `read`, `write`, `edit` and `note`. Paths are relative to `work/`.

The runner does these itself, and may more than its children: it never opens a file to change it in place (what is
written is a new file that takes the old one's name), and never reads what the kernel says of its own process. Nothing
that is no regular file is opened to wait for it."""

from __future__ import annotations

import errno
import os
import stat

from agent import protocol
from agent.tools.output import bound, cut, unable, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO

    from agent.turn import Turn

NOTES = "notes.md"
EDITED = 16 << 20
_BLOCK = 1 << 16
_TOKEN = 64  # bytes, more than a token has: none is cut in two before it is hidden
_LISTED = 2000
_PLACES = 5
_IMAGES = ((b"\x89PNG", "PNG"), (b"\xff\xd8\xff", "JPEG"), (b"GIF8", "GIF"), (b"BM", "BMP"), (b"II*\0", "TIFF"))


def read(turn: Turn, path: str, offset: int = 1, limit: int | None = None) -> str:
    """Lines of a text file as they are, from line `offset` on, as many as may be said; a directory's names."""
    place = _place(turn, path)
    try:
        if os.path.isdir(place):
            return cut(_listed(place), bound(turn))
        descriptor = _opened(place)
    except OSError as error:
        return _refused(path, error)
    with os.fdopen(descriptor, "rb") as file:
        try:
            first = file.read(8192)
            if what := _not_text(first):
                size = os.fstat(descriptor).st_size
                return f"[{path} is {what} of {size} bytes: it cannot be shown as text.]"
            file.seek(0)
            return _lines(turn, file, offset, limit)
        except OSError as error:
            return _refused(path, error)


def write(turn: Turn, path: str, content: str) -> str:
    """Put a file in its place at once, with the directories that it needs. After a crash it may be done again: the
    content is the same."""
    place = os.path.realpath(_place(turn, path))
    data = content.encode()
    try:
        os.makedirs(os.path.dirname(place), exist_ok=True)
        mode = _mode(place)
        _replace(place, data, mode)
    except OSError as error:
        return _unwritten(path, error)
    return f"{'wrote' if mode is None else 'replaced'} {path}: {len(data)} bytes"


def edit(turn: Turn, path: str, old: str, new: str, all: bool = False) -> str:
    """Replace text of a file, exactly. In a file whose lines all end in CRLF both texts are meant with it."""
    place = os.path.realpath(_place(turn, path))
    if not old or old == new:
        return f"[edit: {'old is empty' if not old else 'old and new are the same'}. To make a file, use write.]"
    try:
        with os.fdopen(_opened(place), "rb") as file:
            data = file.read(EDITED + 1)
        if len(data) > EDITED:
            return f"[{path} is larger than {EDITED >> 20} MB: edit it with bash.]"
        before, after = old.encode(), new.encode()
        if data.count(b"\n") == data.count(b"\r\n") > 0:
            before, after = (text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n") for text in (before, after))
        places = _places(data, before)
        if not places:
            return f"[{path} does not hold that text{_near(data, before)}. Read the file and copy old from it exactly.]"
        if len(places) > 1 and not all:
            lines = ", ".join(str(_line(data, at)) for at in places)
            return f"[{path} holds that text at lines {lines}. Give more of what is around it, or all: true.]"
        count = data.count(before)
        if len(data) + count * (len(after) - len(before)) > EDITED:
            return f"[{path} would become larger than {EDITED >> 20} MB.]"
        _replace(place, data.replace(before, after), _mode(place))
    except OSError as error:
        return _unwritten(path, error)
    return f"edited {path}: line {_line(data, places[0])}" if count == 1 else f"edited {path}: {count} places"


def note(turn: Turn, line: str, resumed: bool) -> str:
    """Append one line to the notes; after a crash only if it is not there yet."""
    path, data = os.path.join(turn.place.work, NOTES), line.encode("utf-8", "backslashreplace")
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(path, flags, 0o644), "r+b", buffering=0) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "it is no ordinary file")
            if resumed and data in file.read().split(b"\n"):
                return f"kept in {NOTES}"
            ended = not status.st_size or os.pread(file.fileno(), 1, status.st_size - 1) == b"\n"
            file.write((b"" if ended else b"\n") + data + b"\n")
            os.fsync(file.fileno())
    except OSError as error:
        return unable(f"{NOTES} cannot be written", error)
    return f"kept in {NOTES}"


def _place(turn: Turn, path: str) -> str:
    return os.path.join(turn.place.work, os.path.expanduser(path))


# ---- reading


def _opened(place: str) -> int:
    """A regular file, open to be read. Raises OSError: also for a pipe, a device, and what /proc says of the runner."""
    descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_dev != os.stat("/proc").st_dev:
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.EINVAL, "it is no ordinary file; bash may read it")


def _not_text(first: bytes) -> str | None:
    for begins, kind in _IMAGES:
        if first.startswith(begins):
            return f"an image ({kind})"
    if first[:4] == b"RIFF" and first[8:12] == b"WEBP":
        return "an image (WebP)"
    return "a binary file" if b"\0" in first else None


def _lines(turn: Turn, file: IO[bytes], offset: int, limit: int | None) -> str:
    """Whole lines while they fit. Of one that does not fit by itself the beginning is said."""
    most, number = bound(turn), 1
    while number < offset:
        turn.check()
        piece = file.readline(_BLOCK)
        if not piece:
            return f"[the file has no line {offset}]"
        number += piece.endswith(b"\n")
    kept, size, last = "", 0, number + limit if limit else 0
    while number != last:
        line = file.readline(most + _TOKEN)
        if not line:
            return kept or ("[the file is empty]" if offset == 1 else f"[the file has no line {offset}]")
        shown = protocol.hidden(visible(line))
        size += len(shown.encode())
        if size > most or (len(line) > most and not line.endswith(b"\n")):
            if kept:
                break
            begin = shown.encode()[:most].decode("utf-8", "ignore")
            return f"{begin}\n[line {number} is longer than can be shown; offset: {number + 1} shows the next]"
        kept += shown
        number += 1
    else:
        if not file.read(1):
            return kept
    return f"{kept}[there is more: offset: {number}]"


def _listed(place: str) -> str:
    with os.scandir(place) as entries:
        names = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    lines = [visible(os.fsencode(name)).replace("\n", "\\n") + "/" * is_dir for name, is_dir in names]
    more = [f"[… {len(lines) - _LISTED} more …]"] if len(lines) > _LISTED else []
    return "\n".join([*lines[:_LISTED], *more]) or "[the directory is empty]"


# ---- writing


def _mode(place: str) -> int | None:
    """The mode of the file that is there, None when there is none. Raises OSError for what is no regular file."""
    try:
        mode = os.lstat(place).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is no ordinary file")
    return stat.S_IMODE(mode)


def _replace(place: str, data: bytes, mode: int | None) -> None:
    temporary = os.path.join(os.path.dirname(place), f".clawd-{os.urandom(8).hex()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, mode)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, place)
    except BaseException:
        os.unlink(temporary)
        raise


def _places(data: bytes, text: bytes) -> list[int]:
    """Where a text begins, overlapping ones too; not more of them than a person would look at."""
    found, at = [], data.find(text)
    while at >= 0 and len(found) < _PLACES:
        found.append(at)
        at = data.find(text, at + 1)
    return found


def _line(data: bytes, at: int) -> int:
    return data.count(b"\n", 0, at) + 1


def _near(data: bytes, text: bytes) -> str:
    """Where a text may be meant that differs in its white space alone."""
    wanted = text.strip().partition(b"\n")[0].split()
    for number, line in enumerate(data.split(b"\n"), 1):
        if wanted and line.split() == wanted:
            return f" (line {number} is like its first, with other white space)"
    return ""


def _refused(path: str, error: OSError) -> str:
    return unable(f"{path[:200]!r} cannot be read", error)


def _unwritten(path: str, error: OSError) -> str:
    return unable(f"{path[:200]!r} cannot be written", error)
