"""Files of ours in a directory of a person's: written, renewed and removed by a manifest that lies there, and nothing
else is touched.

What a person changed or made is left, with why. All of it happens beneath the directory, and no link is followed. The
manifest names what is about to be written before it is, so that a crash leaves nothing that is not known again; doing
it twice changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from clawd.errors import Refused, StorageError, UnsafePath, UsageError
from clawd.files import directory_beneath, open_beneath, parts_of, put_beneath, sweep_beneath

_MANIFEST = 16 << 20  # bytes
_LARGEST = 64 << 20  # bytes of a file that is compared; ours are smaller
_CHUNK = 1 << 20
_TORN = re.compile(r"\.clawd-[0-9a-f]{16}\.tmp")
_CHANGED = "it was changed here"
_THEIRS = "it is here already, and not from clawd"
_LINK = "a link, or what is no plain file, lies there"

What = Literal["write", "same", "remove", "gone", "changed", "theirs"]


@dataclass(frozen=True, slots=True)
class Piece:
    """A file that is to lie there. `read` gives its bytes; where they have become others, it waits for the next time.
    What is the owner's alone has mode 0o600."""

    sha256: str
    read: Callable[[], bytes]
    mode: int = 0o600


@dataclass(slots=True)
class Laid:
    """What was done, or would be, by paths beneath the directory."""

    written: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    left: list[dict[str, str]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


def piece(content: bytes, mode: int = 0o600) -> Piece:
    return Piece(hashlib.sha256(content).hexdigest(), lambda: content, mode)


def decided(lies: str | None, known: Collection[str], wanted: str | None) -> What:
    """What becomes of a file: `lies` and `wanted` are the sha256 of what is there and of what should be, None where
    there is nothing; `known` are those that we wrote there. Pure."""
    if wanted is None:
        return "gone" if lies is None else "remove" if lies in known else "changed"
    if lies == wanted:
        return "same"
    if lies is None or lies in known:
        return "write"
    return "changed" if known else "theirs"


def lay(
    root: Path,
    manifest: str,
    group: str,
    wanted: Mapping[str, Piece],
    *,
    may: Callable[[str], bool],
    wholes: Collection[str] = (),
    dry_run: bool = False,
) -> Laid:
    """Have `root` hold what is `wanted`, by its path. `manifest` is the path of the manifest; what that names is
    believed only where it `may` be ours. `wholes` are folders that are one thing each: where one lies that has nothing
    of ours, all of it is left. Raises UsageError where another group's export lies there, Refused, StorageError."""
    laid = Laid()
    try:
        with _opened(root, make=not dry_run) as at:
            before = _known(at, manifest, group, may)
            theirs = {whole: why for whole in wholes if (why := _occupied(at, whole, before))}
            laid.left += [{"path": whole, "why": why} for whole, why in sorted(theirs.items())]
            todo = {path: each for path, each in wanted.items() if not _within(path, theirs)}
            plan = {path: _decided(at, path, before.get(path, ()), todo.get(path)) for path in sorted({*todo, *before})}
            for path, (what, why) in plan.items():
                if why:
                    laid.left.append({"path": path, "why": why})
                elif what in ("same", "write", "remove"):
                    {"same": laid.same, "write": laid.written, "remove": laid.removed}[what].append(path)
            if not dry_run and at is not None:
                _done(at, manifest, group, before, todo, laid)
    except OSError as error:
        raise StorageError(f"{root} cannot be written ({error.strerror})", hint="what was written is known") from error
    laid.left.sort(key=lambda each: each["path"])
    return laid


def _decided(at: int | None, path: str, known: Collection[str], wanted: Piece | None) -> tuple[What, str]:
    """With why it is left, if it is."""
    try:
        lies = _digest(at, path)
    except UnsafePath:
        return "theirs", _LINK
    except OSError as error:
        return "theirs", f"it cannot be read ({error.strerror})"
    what = decided(lies, known, wanted.sha256 if wanted else None)
    whose = f"{_CHANGED}, and is gone from clawd" if wanted is None else _CHANGED
    return what, {"changed": whose, "theirs": _THEIRS}.get(what, "")


def _done(
    at: int, manifest: str, group: str, before: Mapping[str, tuple[str, ...]], wanted: Mapping[str, Piece], laid: Laid
) -> None:
    """Write and remove. Raises OSError."""
    left = {each["path"] for each in laid.left}
    after = {path: known for path, known in before.items() if path in left}
    after |= {path: (wanted[path].sha256,) for path in laid.same if path in before}
    coming = {path: (*before.get(path, ()), wanted[path].sha256) for path in laid.written}
    for folder in {path.rpartition("/")[0] for path in (*before, manifest)}:  # what a killed run had not renamed yet
        sweep_beneath(at, folder, _TORN)
    if laid.written:
        _keep(at, manifest, group, {**before, **coming})
    for path in tuple(laid.written):
        if not (why := _put(at, path, wanted[path])):
            after[path] = (wanted[path].sha256,)
            continue
        laid.written.remove(path)
        laid.left.append({"path": path, "why": why})
        after |= {path: before[path]} if path in before else {}
    for path in laid.removed:
        _remove(at, path)
    if laid.written or after != before:
        _keep(at, manifest, group, after)


def _put(at: int, path: str, wanted: Piece) -> str:
    """Write a file; gives why it is not written. Raises OSError."""
    try:
        content = wanted.read()
    except (UnsafePath, OSError):
        content = b""
    if hashlib.sha256(content).hexdigest() != wanted.sha256:
        return "it is being changed just now: export once more"
    try:
        put_beneath(at, path, content, wanted.mode)
    except UnsafePath:
        return _LINK
    return ""


# ── the manifest ──


def _known(at: int | None, manifest: str, group: str, may: Callable[[str], bool]) -> dict[str, tuple[str, ...]]:
    """What we wrote there, by its path: its sha256, two where one was about to be written. Raises UsageError, Refused,
    OSError."""
    try:
        said: Any = json.loads(_read(at, manifest))
        files = said["files"]
        whose = said["group"]
        known = {path: (each,) if isinstance(each, str) else tuple(each) for path, each in files.items()}
    except FileNotFoundError:
        return {}
    except UnsafePath as error:
        raise Refused(f"{manifest} is a link or lies beneath one, or it is no plain file") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Refused(
            f"{manifest} is not as clawd wrote it", hint="move it away: then all that lies here is yours"
        ) from None
    if whose != group:
        named = whose[:64] if isinstance(whose, str) else ""
        raise UsageError(
            f"what lies here is of the group {named!a}", hint=f"another directory; or move {manifest} away"
        )
    return {path: each for path, each in known.items() if _plain(path) and may(path)}


def _plain(path: str) -> bool:
    with suppress(UnsafePath, UnicodeEncodeError):
        return "/".join(parts_of(path)).encode() == path.encode()
    return False


def _keep(at: int, manifest: str, group: str, files: Mapping[str, tuple[str, ...]]) -> None:
    said = {path: known[0] if len(known) == 1 else list(known) for path, known in sorted(files.items())}
    text = json.dumps({"schema": 1, "by": "clawd", "group": group, "files": said}, indent=1, ensure_ascii=True)
    put_beneath(at, manifest, f"{text}\n".encode())


# ── beneath the directory ──


@contextmanager
def _opened(root: Path, *, make: bool) -> Iterator[int | None]:
    """A descriptor of the directory, None where there is none and none is made. Raises OSError."""
    if make:
        root.mkdir(parents=True, exist_ok=True)
    elif not root.exists():
        yield None
        return
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield at
    finally:
        os.close(at)


def _read(at: int | None, path: str) -> bytes:
    """Raises FileNotFoundError, UnsafePath, OSError."""
    if at is None:
        raise FileNotFoundError(path)
    with os.fdopen(open_beneath(at, path), "rb") as file:
        return file.read(_MANIFEST)


def _digest(at: int | None, path: str) -> str | None:
    """The sha256 of what lies there; something else for what is too large to be ours. Raises UnsafePath, OSError."""
    if at is None:
        return None
    try:
        descriptor = open_beneath(at, path)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if os.fstat(descriptor).st_size > _LARGEST:
            return ""
        return hashlib.file_digest(file, "sha256").hexdigest()


def _occupied(at: int | None, whole: str, before: Collection[str]) -> str:
    """Why a folder is somebody else's; empty where it is not."""
    if at is None or any(path.startswith(f"{whole}/") for path in before):
        return ""
    try:
        below = directory_beneath(at, whole)
    except FileNotFoundError:
        return ""
    except UnsafePath:
        return _LINK
    try:
        with os.scandir(below) as entries:
            return _THEIRS if next(entries, None) else ""
    finally:
        os.close(below)


def _within(path: str, wholes: Collection[str]) -> bool:
    return any(path.startswith(f"{whole}/") for whole in wholes)


def _remove(root: int, path: str) -> None:
    """Take a file away, and the directories that are empty then, but for the first two. Raises UnsafePath, OSError."""
    *parents, name = parts_of(path)
    at = directory_beneath(root, "/".join(parents))
    try:
        os.unlink(name, dir_fd=at)
    finally:
        os.close(at)
    while len(parents) > 2:
        *parents, name = parents
        at = directory_beneath(root, "/".join(parents))
        try:
            os.rmdir(name, dir_fd=at)
        except OSError:
            return
        finally:
            os.close(at)
