"""Looking at a watched tree, and comparing what is there with what was.

Nothing is followed, and nothing but plain files counts. Files come in the order of their paths' bytes, a piece at a
time, so that a tree of any size is compared with the ledger's rows and never held. Blocking: for threads.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from clawd.errors import UnsafePath
from clawd.files import DEEPEST, directory_beneath, open_beneath
from clawd.ledger.seen import Event, Known, Stat

PIECE = 500  # files that are looked at in one go
MOST_FILES = 100_000  # of one tree
READ_BYTES = 50 << 20  # of a file; a larger one is known by its size and time alone
_CHUNK = 1 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# As watchfiles' DefaultFilter; then what vim tries a directory with, what rsync and we ourselves make before a rename
# (an end of six letters alone is a person's own name), and where another agent's program keeps its state.
_LEFT_OUT = re.compile(
    r"__pycache__|\.(git|hg|svn|tox|venv|idea|mypy_cache|pytest_cache|hypothesis|DS_Store|claude-state)|node_modules"
    r"|.*\.(py[cod]|___jb_...___|sw.)|.*~|\.#.*|flycheck_.*"
    r"|4913|\..+\.(?![a-z]{6}$)[A-Za-z0-9]{6}|\..*\.tmp",
    re.DOTALL,
)


def is_left_out(relative: str) -> bool:
    """Whether the last name of a path is one that programs make for themselves."""
    return _LEFT_OUT.fullmatch(relative.rpartition("/")[2]) is not None


def matches(relative: str, globs: Iterable[str]) -> bool:
    """Whether a path fits one of the patterns: words, `?` and `*`, and `**` for any directories. One without a slash is
    for the name alone, at any depth."""
    return any(
        _along(relative.split("/"), glob.split("/")) if "/" in glob else _fits(relative.rpartition("/")[2], glob)
        for glob in globs
    )


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern.replace("[", "[[]"))


def _along(names: Sequence[str], parts: Sequence[str]) -> bool:
    at = n = 0
    star, begun = -1, 0
    while at < len(names):
        if n < len(parts) and parts[n] == "**":
            star, begun, n = n, at, n + 1
        elif n < len(parts) and _fits(names[at], parts[n]):
            at, n = at + 1, n + 1
        elif star >= 0:
            begun += 1
            at, n = begun, star + 1
        else:
            return False
    return all(part == "**" for part in parts[n:])


@dataclass(frozen=True, slots=True)
class Found:
    """A file that is there: `when` it was last changed, in seconds since the epoch, which nobody can set; `uid` is its
    owner's."""

    stat: Stat
    uid: int
    when: float


@dataclass(frozen=True, slots=True)
class Piece:
    """All files that there are from `low` to before `high`."""

    low: bytes
    high: bytes
    found: Mapping[bytes, Found] = field(default_factory=dict)


class Look:
    """One look at the tree of the open directory `top`, whose paths begin with `key`. `count` are the files that were
    found, `full` and `deep` whether more or deeper ones are left out."""

    def __init__(self, top: int, key: bytes, globs: Sequence[str], most: int = MOST_FILES) -> None:
        self._top, self._key, self._globs, self._most = top, key, globs, most
        self._device = os.fstat(top).st_dev
        self.count = 0
        self.full = self.deep = False

    @property
    def beyond(self) -> str:
        """What there is more of than is looked at, in words."""
        full = f"{self._most:,} files" if self.full else ""
        return " and ".join(filter(None, [full, f"{DEEPEST} levels of folders" if self.deep else ""]))

    def pieces(self, paths: Iterable[str]) -> Generator[Piece, None, None]:
        """What there is at each of these paths."""
        for path in paths:
            yield from self.at(path)

    def at(self, relative: str) -> Iterator[Piece]:
        """What there is at a path and beneath it; "" is everything."""
        key = b"%s/%s" % (self._key, os.fsencode(relative)) if relative else self._key
        parent, _, name = relative.rpartition("/")
        opened = []
        try:
            if any(map(is_left_out, relative.split("/"))):
                return
            status = None
            with suppress(OSError, UnsafePath):
                opened.append(directory_beneath(self._top, parent))
                status = os.stat(name, dir_fd=opened[0], follow_symlinks=False) if name else os.fstat(self._top)
            if relative:
                plain = status is not None and stat.S_ISREG(status.st_mode) and matches(relative, self._globs)
                yield Piece(key, key + b"\0", {key: _found(status)} if plain and status else {})
            below = None
            with suppress(OSError):
                if status is not None and self._is_ours(status):
                    below = os.open(name or ".", _DIRECTORY, dir_fd=opened[0])
            # A directory that was moved here whole has files that were not changed by it.
            since = status.st_ctime if status is not None and relative else 0.0
            yield from self._beneath(key, below, f"{relative}/" if relative else "", since)
        finally:
            for each in opened:
                os.close(each)

    def read(self, found: Sequence[tuple[bytes, Found]], most: int) -> dict[bytes, bytes | None]:
        """The sha256 of the first of these files, until so many bytes were read; see `read`."""
        digests, size = dict[bytes, bytes | None](), 0
        for path, each in found:
            now, digests[path] = read(self._top, os.fsdecode(path[len(self._key) + 1 :]), each.stat)
            size += now.size if now and digests[path] else 0
            if size > most:
                break
        return digests

    def _is_ours(self, status: os.stat_result) -> bool:
        """A directory, and nothing else is mounted on it."""
        return stat.S_ISDIR(status.st_mode) and status.st_dev == self._device

    def _beneath(self, key: bytes, directory: int | None, prefix: str, since: float) -> Iterator[Piece]:
        low, end = key + b"/", key + b"0"  # the byte behind the slash
        found: dict[bytes, Found] = {}
        if directory is not None:
            with closing(self._walk(directory, prefix)) as files:
                for relative, status in files:
                    path = b"%s/%s" % (self._key, os.fsencode(relative))
                    if len(found) == PIECE:
                        last = next(reversed(found)) + b"\0"
                        yield Piece(low, last, found)
                        low, found = last, {}
                    if self.count >= self._most:
                        self.full, end = True, path
                        break
                    found[path] = _found(status, since)
                    self.count += 1
        yield Piece(low, end, found)

    def _walk(self, directory: int, prefix: str) -> Generator[tuple[str, os.stat_result], None, None]:
        """Files that count, in the order of their paths: a directory's name is one with a slash."""
        levels: list[tuple[int, str, list[bytes]]] = [(directory, prefix, [])]
        try:
            with suppress(OSError):
                levels[0][2].extend(_names(directory))
            while levels:
                at, prefix, names = levels[-1]
                if not names:
                    os.close(at)
                    levels.pop()
                    continue
                name = os.fsdecode(names.pop().removesuffix(b"/"))
                if is_left_out(name):
                    continue
                with suppress(OSError):  # it vanished
                    status = os.stat(name, dir_fd=at, follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and matches(prefix + name, self._globs):
                        yield prefix + name, status
                    elif self._is_ours(status):
                        if len(levels) >= DEEPEST:
                            self.deep = True
                            continue
                        below = os.open(name, _DIRECTORY, dir_fd=at)
                        levels.append((below, f"{prefix}{name}/", []))
                        levels[-1][2].extend(_names(below))
        finally:
            for at, _, _ in levels:
                os.close(at)


def _names(directory: int) -> list[bytes]:
    """The last first."""
    with os.scandir(directory) as entries:
        names = [os.fsencode(entry.name) + (b"/" if entry.is_dir(follow_symlinks=False) else b"") for entry in entries]
    return sorted(names, reverse=True)


def _found(status: os.stat_result, since: float = 0.0) -> Found:
    at = Stat(status.st_size, status.st_mtime_ns, status.st_ino)
    return Found(at, status.st_uid, max(status.st_ctime, since))


# ── comparing ──


@dataclass(frozen=True, slots=True)
class Difference:
    """A path that is not as the rows have it: it is `now` so. `like_seen`: as it was told last, again."""

    path: bytes
    now: Stat | None
    own: bool
    like_seen: bool = False


def compare(
    piece: Piece, known: Iterable[Known], own: Callable[[Known | None, Found | None], bool]
) -> Iterator[Difference]:
    """What differs from the rows of the same range. `own` tells of one change whether a turn of the group made it; one
    that others had a part in is theirs."""
    left = dict(piece.found)
    for row in known:
        found = left.pop(row.path, None)
        now = found.stat if found else None
        if now == (row.now if row.changed else row.seen):
            continue
        mine = own(row, found) and (row.own or not row.changed)
        yield Difference(row.path, now, mine, like_seen=now == row.seen)
    for path, found in left.items():
        yield Difference(path, found.stat, own(None, found))


def event_of(known: Known, sha256: bytes | None) -> Event | None:
    """What became of a path whose `now` has this content; None where it is what was seen. Where nobody knows what it
    was, or what it is, size and time decide."""
    if known.seen is None or known.now is None:
        return None if known.seen is known.now else "added" if known.seen is None else "deleted"
    if sha256 is None or known.sha256 is None:
        return None if known.now[:2] == known.seen[:2] else "modified"
    return None if sha256 == known.sha256 else "modified"


def read(top: int, relative: str, now: Stat | None) -> tuple[Stat | None, bytes | None]:
    """What a file is, and the sha256 of its content: that is None for one that is large, cannot be read, or is not what
    it was taken for."""
    try:
        descriptor = open_beneath(top, relative)
    except PermissionError:
        return now, None
    except (OSError, UnsafePath):
        return None, None
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        before = _found(os.fstat(descriptor)).stat
        if before != now or before.size > READ_BYTES:
            return before, None
        digest = hashlib.sha256()
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
        after = _found(os.fstat(descriptor)).stat
    return after, digest.digest() if after == before else None
