"""`glob` and `grep`: a program of its own, so that neither an endless tree nor an endless regular expression holds the
runner. It never follows a link, opens regular files only, and ends once it has said as much as may be said.

Python's regular expressions, not grep(1)'s: the same in every image, nearer to what models write (`\\d`, `(?:…)`), and
one walk and one bound for both tools.

usage: search.py glob|grep BYTES ARGUMENTS    where ARGUMENTS are JSON, the tool's own"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import sys
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO, Any

_SKIPPED = {".git"}
_LINE = 1 << 16  # a longer line is searched in pieces
_SHOWN = 400  # of a line, at least around its match
_MORE = "[… there is more: narrow the pattern or the path …]"


class Full(Exception):
    """Enough was said."""


class Said:
    """Standard output, which holds `room` bytes."""

    def __init__(self, room: int) -> None:
        self._room = room - len(_MORE.encode()) - 2
        self.lines = 0
        self.unread = 0  # files and directories that could not be opened

    def line(self, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace").replace(b"\0", b"\\x00") + b"\n"
        self._room -= len(data)
        if self._room < 0:
            raise Full
        self.lines += 1
        os.write(1, data)  # at once: what was found is kept when the rest takes too long


def named(pattern: str) -> re.Pattern[str]:
    """What a pattern of file names matches in a path: `*` and `?` within a name, `**` across, `[a-z]`, `{a,b}`. One
    without a slash is for a name at any depth."""
    out, at, depth = [] if "/" in pattern else ["(?:.*/)?"], 0, 0
    pattern = pattern.lstrip("/")
    while at < len(pattern):
        letter, at = pattern[at], at + 1
        if pattern.startswith("**/", at - 1):
            out.append("(?:.*/)?")
            at += 2
        elif pattern.startswith("**", at - 1):
            out.append(".*")
            at += 1
        elif letter in "*?":
            out.append("[^/]*" if letter == "*" else "[^/]")
        elif letter == "[" and (end := pattern.find("]", at + 1)) > 0:
            kind = pattern[at:end].replace("\\", "\\\\").replace("[", "\\[")
            out.append(f"[^{kind[1:]}]" if kind[0] in "!^" else f"[{kind}]")
            at = end + 1
        elif letter == "{" and "}" in pattern[at:]:
            out.append("(?:")
            depth += 1
        elif letter in ",}" and depth:
            out.append("|" if letter == "," else ")")
            depth -= letter == "}"
        else:
            out.append(re.escape(letter))
    try:
        return re.compile("".join(out) + ")" * depth, re.DOTALL)
    except re.error:
        raise ValueError(f"{pattern!r} is no pattern of file names") from None


def below(top: str, said: Said) -> Iterator[str]:
    """Paths of what is no directory, each sorted by name; those of links too, which are not followed."""
    if not os.path.isdir(top):
        yield top
        return

    def unread(error: OSError) -> None:
        said.unread += 1

    for directory, names, here in os.walk(top, onerror=unread):
        links = [name for name in names if os.path.islink(os.path.join(directory, name))]
        names[:] = sorted(set(names) - _SKIPPED - set(links))
        for name in sorted(here + links):
            yield os.path.normpath(os.path.join(directory, name))


def shown(path: str) -> str:
    """A path on one line."""
    return os.fsencode(path).decode("utf-8", "backslashreplace").replace("\n", "\\n")


def glob(said: Said, pattern: str, path: str = ".") -> str:
    if pattern.startswith("/"):  # what stands before the first sign that is none of a name is where to look
        path = re.match(r"/(?:[^*?\[{]*/)?", pattern).group()
        pattern = "/" + pattern[len(path) :]
    matches = named(pattern).fullmatch
    for each in below(path, said):
        if matches(os.path.relpath(each, path)):
            said.line(shown(each))
    return "" if said.lines else "[no file has such a name]"


def grep(said: Said, pattern: str, path: str = ".", glob: str = "", ignore_case: bool = False, context: int = 0) -> str:
    find = re.compile(pattern, re.IGNORECASE if ignore_case else 0).search
    matches = named(glob).fullmatch if glob else None
    searched = binary = 0
    for each in below(path, said):
        if matches and not matches(os.path.relpath(each, path) if each != path else os.path.basename(each)):
            continue
        try:
            # What was named itself may be a link.
            descriptor = os.open(each, os.O_RDONLY | os.O_NONBLOCK | (os.O_NOFOLLOW if each != path else 0))
        except OSError as error:
            said.unread += error.errno not in (errno.ELOOP, errno.ENXIO)  # a link, a socket
            continue
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                continue
            if b"\0" in file.peek(8192)[:8192]:
                binary += 1
                continue
            searched += 1
            search(said, find, file, shown(each), min(context, 1000))
    skipped = f", {binary} binary left out" if binary else ""
    return "" if said.lines else f"[nothing found in {searched} files{skipped}]"


def search(said: Said, find: Any, file: IO[bytes], name: str, context: int) -> None:
    """Say the lines of a file that match, as `name:7:text`, and those around them as `name-6-text`."""
    before: deque[tuple[int, str]] = deque(maxlen=context)
    number, last, after = 1, 0, 0
    while piece := file.readline(_LINE):
        text = piece.decode("utf-8", "backslashreplace").rstrip("\r\n")
        match = find(text)
        if match:
            if context and last and number - len(before) > last + 1:
                said.line("--")
            for at, line in before:
                said.line(f"{name}-{at}-{around(line, 0)}")
            said.line(f"{name}:{number}:{around(text, match.start())}")
            before.clear()
            last, after = number, context
        elif after:
            said.line(f"{name}-{number}-{around(text, 0)}")
            last, after = number, after - 1
        elif context:
            before.append((number, text[:_SHOWN]))
        number += piece.endswith(b"\n")


def around(line: str, at: int) -> str:
    """A line, or what of it is around a place."""
    if len(line) <= _SHOWN:
        return line
    begin = max(0, at - _SHOWN // 4)
    end = begin + _SHOWN
    return ("…" if begin else "") + line[begin:end] + ("…" if end < len(line) else "")


def main(tool: str, room: str, arguments: str) -> None:
    said, takes = Said(int(room)), json.loads(arguments)
    sys.setrecursionlimit(10_000)  # for `os.walk`: a path has up to 2,048 names
    try:
        takes["path"] = os.path.expanduser(takes.get("path") or ".")
        os.stat(takes["path"])
        remark = {"glob": glob, "grep": grep}[tool](said, **takes)
        if said.unread:
            remark += f"[{said.unread} files or directories could not be read]"
    except Full:
        remark = _MORE
    except OSError as error:
        remark = f"[{error.filename} cannot be searched: {error.strerror}]"
    except (re.error, RecursionError, OverflowError) as error:
        remark = f"[{takes['pattern']!r} is no regular expression of Python: {error}. As it stands it is found by "
        remark += f"{re.escape(takes['pattern'])!r}.]"
    except ValueError as error:
        remark = f"[{error}]"
    os.write(1, remark.encode("utf-8", "backslashreplace"))


if __name__ == "__main__":
    main(*sys.argv[1:])
