"""Where the folders are that a `[[watch]]` rule names: of its group's own, or of what the mount allowlist lets it have.
A verdict is of this moment, and nothing is seen through a watch that a mount would not show."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from clawd.config.group import Mount
from clawd.config.home import THEIRS, GroupHome
from clawd.errors import ClawdError, UnsafePath, UsageError
from clawd.files import directory_beneath
from clawd.sandbox.mounts import AT, Verdict
from clawd.trust import TRUST, Origin

OURS = ("sessions", "state", "logs", "schedules", "skills", "import")
_LOOSE = TRUST[Origin.DOCUMENT]
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Judge = Callable[[str, bool, str], Verdict]


@dataclass(frozen=True, slots=True)
class Root:
    """A watched folder: `key` is how it is called (`work/notes`, `/mnt/docs`), `base` the directory that it lies in,
    without links, by its `identity` where that was checked. `trust` is that of what stands in it, None for the work
    tree's own; `writable`: the group's sandbox can write there. `problem` is why it is not looked at."""

    key: str
    base: Path
    beneath: str = ""
    identity: tuple[int, int] | None = None
    trust: float | None = 1.0
    writable: bool = False
    problem: str = ""

    @property
    def path(self) -> Path:
        return self.base / self.beneath

    @property
    def inner(self) -> bytes:
        """What the paths of its files begin with."""
        return os.fsencode(self.key) + b"/"

    def open(self) -> int:
        """A descriptor; the caller closes it. Raises UnsafePath, OSError."""
        base = os.open(self.base, _DIRECTORY)
        try:
            status = os.fstat(base)
            if self.identity not in (None, (status.st_dev, status.st_ino)):
                raise UnsafePath("it was exchanged while it was looked at")
            return directory_beneath(base, self.beneath)
        finally:
            os.close(base)


def named(path: str) -> tuple[str, str]:
    """What a rule's path means: ("own", "work/notes"), ("mount", "docs/sub") or ("host", "/srv/docs"). Raises
    UsageError for what cannot be watched."""
    plain = PurePosixPath(path)
    if ".." in plain.parts or not path.isprintable():
        raise UsageError("a watched path has no .. and nothing that does not show in it")
    if plain.is_relative_to(AT):
        if plain == PurePosixPath(AT):
            raise UsageError(f"name one of the mounts: {AT}/NAME")
        return "mount", str(plain.relative_to(AT))
    if plain.is_absolute() or path.startswith("~/"):
        return "host", str(plain)
    if not plain.parts:
        raise UsageError("name a folder of the group, like work")
    if (top := plain.parts[0]).casefold() in OURS or top.startswith("."):
        raise UsageError(f"{top} is clawd's own: a watch there would see what clawd itself writes")
    return "own", str(plain)


def roots(
    group: str, folder: GroupHome, paths: Sequence[str], mounts: Callable[[], Sequence[Mount]], judge: Judge
) -> list[Root]:
    """Each once, without those that lie in another. `judge` decides about a mount of the group's, raises ClawdError."""
    found: dict[str, Root] = {}
    for path in dict.fromkeys(paths):
        root = _root(group, folder, path, mounts, judge)
        found.setdefault(root.key, root)
    good = [PurePosixPath(key) for key, root in found.items() if not root.problem]
    return [
        root
        for key, root in found.items()
        if root.problem or not any(key != str(other) and PurePosixPath(key).is_relative_to(other) for other in good)
    ]


def _root(group: str, folder: GroupHome, path: str, mounts: Callable[[], Sequence[Mount]], judge: Judge) -> Root:
    try:
        kind, where = named(path)
        if kind != "own":
            return next(_lent(group, kind, where, mounts(), judge))
    except StopIteration:
        why = "it is no mount of the group: add it to [[mounts]] in its group.toml, and to the mount allowlist"
        return Root(path, folder.root, problem=why)
    except ClawdError as error:
        return Root(path, folder.root, problem=str(error))
    top = where.partition("/")[0]
    loose = top.casefold() in THEIRS or top.startswith(f"{folder.work.name}.")
    own = top == folder.work.name
    return Root(where, folder.root, where, None, None if own else _LOOSE if loose else 1.0, own)


def _lent(group: str, kind: str, where: str, mounts: Sequence[Mount], judge: Judge) -> Iterator[Root]:
    """The mount that a path lies in. Raises ClawdError."""
    for mount in mounts:
        if kind == "mount" and PurePosixPath(where).parts[0] != mount.name:
            continue
        verdict = judge(mount.path, mount.mode == "rw", group)
        if kind == "mount":
            inner = PurePosixPath(*PurePosixPath(where).parts[1:])
        else:
            tops = [top for top in (mount.path, verdict.real) if PurePosixPath(where).is_relative_to(top)]
            if not tops:
                continue
            inner = PurePosixPath(where).relative_to(tops[0])
        key = str(PurePosixPath(AT, mount.name, inner))
        if not verdict.allow or verdict.found is None:
            raise UsageError(f"the mount {mount.name} is not shown: {verdict.reason}", hint=verdict.hint)
        beneath = "" if str(inner) == "." else str(inner)
        yield Root(key, verdict.found.real, beneath, verdict.found.own, verdict.trust, verdict.writable)
