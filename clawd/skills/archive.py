"""A folder or an archive, which anybody may have made, becomes a skill of a directory: whole or not at all.

It is unpacked into a temporary folder beside its place, which is renamed last. Nothing of an archive's headers is
believed: bytes are counted as they come, and a name that could lie anywhere else, or that two entries share, has all of
it refused. Links, devices and pipes are left out, and what is beneath one is refused.
"""

from __future__ import annotations

import io
import os
import re
import secrets
import stat
import time
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import IO, Protocol, cast

from clawd.errors import ClawdError, NotFound, UnsafePath, UsageError
from clawd.files import open_beneath, remove_tree, sync_directory
from clawd.ids import folded
from clawd.skills.manifest import APART, DEEPEST, KINDS, MOST_BYTES, MOST_FILES, look, mode_of
from clawd.skills.skill import ARCHIVES, FILE, Skill, called, load, name_refused
from clawd.text import unhidden

_RATIO = 100  # no text is packed so well
_SMALL = 1 << 20  # bytes that may be packed as well as they can
_NAME = 200  # bytes of one name
KEPT = ".old"  # what was taken away lies in it, beside where it was
_ADDING = ".adding-"
_STALE = 86_400  # seconds after which what an ended command left is removed
_CHUNK = 1 << 16
_ZIPS = (".zip", ".skill")
_DEVICE = "a device"


@dataclass(frozen=True, slots=True)
class Added:
    """`notes` say what was left out of it, `kept` is where the one is that it replaced."""

    skill: Skill
    notes: tuple[str, ...]
    kept: Path | None


def add(source: Path, root: Path, *, shared: bool, force: bool = False) -> Added:
    """Make a skill in `root` of a folder or an archive. Raises NotFound, UsageError where the name is taken and `force`
    is not given, ClawdError with why it cannot be one, OSError."""
    if not source.exists():
        raise NotFound(f"there is no {source}")
    with _beside(root) as staging:
        new = _Unpacked(staging / "unpacked")
        if source.is_dir():
            _copy(source.resolve(), new)
        elif source.name.lower().endswith(ARCHIVES) and source.is_file():
            _unpack(source, new)
        else:
            raise UsageError(f"{source} is no folder and no archive ({', '.join(ARCHIVES)})")
        top = _top(new.directory)
        fallback = source.resolve().name if top == new.directory else top.name
        name = called(top) or unicodedata.normalize("NFKC", re.sub(r"(\.\w{1,5}){1,2}$", "", fallback))
        if refusal := name_refused(name):
            raise ClawdError(f"{FILE} has no name that a skill may have, and the folder {refusal}")
        ready = top.rename(staging / name)
        skill = load(ready, shared=shared)
        if skill.errors:
            raise ClawdError(f"{name} would not be used: {'; '.join(skill.errors)}")
        kept = _replace(ready, root, name, force=force)
    return Added(replace(skill, path=root / name), tuple(new.notes), kept)


def set_aside(folder: Path) -> Path:
    """Take a skill away, and keep it. Gives where."""
    old = folder.parent / KEPT
    old.mkdir(mode=0o700, exist_ok=True)
    kept = folder.rename(old / f"{folder.name}.{datetime.now():%Y%m%d-%H%M%S}.{os.urandom(4).hex()}")
    sync_directory(folder.parent)
    return kept


def _replace(ready: Path, root: Path, name: str, *, force: bool) -> Path | None:
    """The whole folder gets its place; gives where what was there before is kept."""
    taken = [each for each in root.iterdir() if folded(unicodedata.normalize("NFKC", each.name)) == folded(name)]
    if taken and not force:
        raise UsageError(f"there is a skill {name} already, in {taken[0]}", hint="--force replaces it, and keeps it")
    kept = [(each, set_aside(each)) for each in taken]
    try:
        ready.rename(root / name)
    except OSError:
        for was, now in kept:
            now.rename(was)
        raise
    sync_directory(root)
    return kept[0][1] if kept else None


@contextmanager
def _beside(root: Path) -> Iterator[Path]:
    """A folder in `root` that the catalogue does not see, gone afterwards."""
    root.mkdir(mode=0o755, parents=True, exist_ok=True)
    for left in root.glob(f"{_ADDING}*"):
        if left.lstat().st_mtime < time.time() - _STALE:
            remove_tree(left)
    staging = root / f"{_ADDING}{secrets.token_hex(8)}"
    staging.mkdir(mode=0o700)
    try:
        yield staging
    finally:
        remove_tree(staging)


class _Source(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Unpacked:
    """A folder that fills, in which nothing is but what was put there."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.notes = directory, list[str]()
        self._seen = dict[str, tuple[str, bool]]()  # folded path → as it is written, and whether it is a directory
        self._entries = 0
        directory.mkdir(mode=0o755)

    def entry(self, name: str, kind: str) -> Path | None:
        """Where an entry of an archive lies. `kind` is "file", "directory", or what it is that is left out: for that,
        and for what is no part of a skill, None. Raises ClawdError."""
        self._entries += 1
        if self._entries > 2 * MOST_FILES:
            raise ClawdError(f"it is refused: it has more than {MOST_FILES:,} files")
        parts = _parts(name)
        if not parts or APART.intersection(parts):
            return None
        for n in range(1, len(parts) + 1):
            self._claim("/".join(parts[:n]), n < len(parts) or kind == "directory")
        if kind in ("file", "directory"):
            return self.directory.joinpath(*parts)
        self.notes.append(f"{'/'.join(parts)!a} is left out: it is {kind}")
        return None

    def _claim(self, path: str, directory: bool) -> None:
        known = self._seen.get(folded(path))
        if known is not None and not (directory and known == (path, True)):
            raise ClawdError(
                f"it is refused: {path!a} is there twice, or its names differ by the case of letters alone"
            )
        self._seen[folded(path)] = (path, directory)

    def write(self, path: Path, source: _Source, mode: int) -> None:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if mode & (stat.S_ISUID | stat.S_ISGID):
            self.notes.append(f"{path.name!a} would have run as its owner: it does not now")
        with path.open("xb") as file:
            while chunk := source.read(_CHUNK):
                file.write(chunk)
            file.flush()
            os.fchmod(file.fileno(), 0o755 if mode & stat.S_IXUSR else 0o644)
            os.fsync(file.fileno())


class _Bounded:
    """Reads from `source`, one after the other, until more came out of an archive than may, whatever it says."""

    def __init__(self, packed: int, source: _Source) -> None:
        """`packed` is the archive's size in bytes."""
        self.source, self._packed, self._total = source, packed, 0

    def read(self, size: int = _CHUNK, /) -> bytes:
        data = self.source.read(size)
        self._total += len(data)
        if self._total > MOST_BYTES:
            raise ClawdError(f"it is refused: it holds more than {MOST_BYTES >> 20} MB")
        if self._total > max(_SMALL, _RATIO * self._packed):
            raise ClawdError(f"it is refused: it grows more than {_RATIO} times when it is unpacked, as a bomb does")
        return data


def _parts(name: str) -> list[str]:
    """The components of an entry's name. Raises ClawdError for one that could lie elsewhere, or that hides."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or re.match(r"[A-Za-z]:", name) or "\\" in name or ".." in parts:
        raise ClawdError(f"it is refused: {name[:_NAME]!a} would lie outside of it")
    try:
        longest = max((len(part.encode()) for part in parts), default=0)
    except UnicodeEncodeError:
        raise ClawdError(f"it is refused: {name[:_NAME]!a} is no name in UTF-8") from None
    if longest > _NAME or len(parts) > DEEPEST + 2:
        raise ClawdError(f"it is refused: the name {name[:_NAME]!a} is too long")
    if unhidden(name) != name or "\n" in name or "\t" in name:
        raise ClawdError(f"it is refused: nobody could read the name {name[:_NAME]!a}")
    return parts


def _copy(source: Path, new: _Unpacked) -> None:
    """A folder of this machine. Raises ClawdError."""
    try:
        tree = look(source)
    except UnsafePath as error:
        raise ClawdError(f"{source}: {error.message}") from None
    new.notes += tree.warnings
    for path, status in tree.files:
        with os.fdopen(open_beneath(source, path), "rb") as file:
            new.write(new.directory / path, file, mode_of(status))


def _top(directory: Path) -> Path:
    """Where SKILL.md lies: many archives have all of it in one folder. Raises ClawdError."""
    while not (directory / FILE).exists():
        inside = sorted(directory.iterdir())
        if len(inside) != 1 or not inside[0].is_dir():
            several = [each.name for each in inside if (each / FILE).exists()]
            hint = f"it has skills in folders of their own: add each of {', '.join(several)}" if several else None
            raise ClawdError(f"it has no {FILE} at its top", hint=hint)
        directory = inside[0]
    return directory


def _unpack(source: Path, new: _Unpacked) -> None:
    import struct
    import tarfile
    import zipfile
    import zlib

    if source.stat().st_size > MOST_BYTES:
        raise ClawdError(f"{source} is larger than {MOST_BYTES >> 20} MB")
    damaged = (zipfile.BadZipFile, tarfile.TarError, zlib.error, struct.error)
    try:
        (_unzip if source.name.lower().endswith(_ZIPS) else _untar)(source, new)
    except (*damaged, EOFError, ValueError, RuntimeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the disk's, not that of what is read
            raise
        raise ClawdError(f"{source} cannot be unpacked: it is damaged, or something else ({error})") from None


def _unzip(source: Path, new: _Unpacked) -> None:
    import zipfile

    # Its directory is read whole when it is opened: one of a million entries would take the memory.
    packed = source.read_bytes()
    if packed.count(b"PK\x01\x02") > 2 * MOST_FILES:
        raise ClawdError(f"it is refused: it has more than {MOST_FILES:,} files")
    bounded = _Bounded(len(packed), io.BytesIO())
    kinds = {0: "file", stat.S_IFREG: "file", stat.S_IFDIR: "directory", **KINDS}
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        for info in archive.infolist():
            name, mode = info.orig_filename, info.external_attr >> 16
            kind = "directory" if name.endswith("/") else kinds.get(stat.S_IFMT(mode), _DEVICE)
            path = new.entry(name, kind)
            if info.flag_bits & 1:
                raise ClawdError(f"{source} is encrypted: unpack it yourself, and add the folder")
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ClawdError(f"{source} is packed in a way that is not read here: pack it as an ordinary zip")
            if path is not None and kind == "file":
                with archive.open(info) as bounded.source:
                    new.write(path, bounded, mode)


def _untar(source: Path, new: _Unpacked) -> None:
    import gzip
    import tarfile

    kinds = {
        tarfile.DIRTYPE: "directory",
        tarfile.SYMTYPE: "a link",
        tarfile.LNKTYPE: "a second name of another file",
        tarfile.FIFOTYPE: "a pipe",
    }
    with source.open("rb") as raw:
        unzipped = gzip.GzipFile(fileobj=raw) if source.name.lower().endswith("gz") else raw
        bounded = _Bounded(source.stat().st_size, unzipped)
        # As a stream: what its headers ask for is counted, too.
        with tarfile.open(fileobj=cast(IO[bytes], bounded), mode="r|") as archive:
            for info in archive:
                kind = "file" if info.isreg() and not info.issparse() else kinds.get(info.type, _DEVICE)
                path = new.entry(info.name, kind)
                if path is not None and kind == "file" and (member := archive.extractfile(info)) is not None:
                    new.write(path, member, info.mode)
