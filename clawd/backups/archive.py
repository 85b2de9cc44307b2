"""The archive itself: a gzipped tar of regular files, written and read in bounded memory.

Its first member, the index, is known last. So its place is kept at the beginning: a gzip member of its own whose
blocks are stored, so that its length is known before its text is; the other members follow in a second one. Any `tar`
reads it.

Reading believes nothing: a header is one block, what belongs to a member's name is bounded, and only regular files are
members. Nothing is ever read that somebody's length says, but in pieces.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import struct
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, cast

from clawd.backups.index import MOST_BYTES, NAME, Index, Unsound, parse

CHUNK = 1 << 20
SMALL = 1 << 20  # bytes of a file that is read before its header is written
_BLOCK = tarfile.BLOCKSIZE
_STORED = 0xFFFF  # bytes of a stored block
_GZIP = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_MOST_PAX = 64 << 10
_MOST_ZEROS = 2 * tarfile.RECORDSIZE  # that some programs end an archive with
_PAX = frozenset(("path", "size", "mtime"))
_ENCODING = ("utf-8", "surrogateescape")
_BROKEN = (EOFError, zlib.error, gzip.BadGzipFile)
_CUT = "it ends before its end: a part of it is missing"


class Shrunk(Exception):
    """A file had less than it said when it was opened; nothing of it is in the archive."""


class Writer:
    """Writes into an open file that is empty. `room` is called between pieces, and raises when there is none left."""

    def __init__(self, file: BinaryIO, index_bytes: int, room: Callable[[int], None]) -> None:
        self._file, self._room = file, room
        self._index_bytes = index_bytes
        self._begin = _stored_size(_padded(len(_header(NAME, index_bytes, 0o600, 0)) + index_bytes))
        file.seek(self._begin)
        self._gzip = zlib.compressobj(6, zlib.DEFLATED, 31)

    def add(self, name: str, source: IO[bytes], size: int, mode: int, mtime_ns: int) -> tuple[str, int]:
        """A member with the first `size` bytes of a stream, or of a small one all that it has up to there. Gives their
        sha256 and how many there are. Raises Shrunk where a large one has fewer, OSError, and what `room` raises."""
        digest = hashlib.sha256()
        if size <= SMALL:
            data = _filled(source, size)
            digest.update(data)
            self._put(_header(name, len(data), mode, mtime_ns) + data + bytes(-len(data) % _BLOCK))
            return digest.hexdigest(), len(data)
        before, place = self._gzip.copy(), self._file.tell()
        left = size
        self._put(_header(name, size, mode, mtime_ns))
        while left:
            chunk = source.read(min(left, CHUNK))
            if not chunk:
                self._gzip = before
                self._file.seek(place)
                self._file.truncate()
                raise Shrunk(name)
            left -= len(chunk)
            digest.update(chunk)
            self._put(chunk)
        self._put(bytes(-size % _BLOCK))
        return digest.hexdigest(), size

    def finish(self, index: bytes, mtime_ns: int) -> None:
        """Write the end, and the index at the beginning; all of it is on the disk then."""
        assert len(index) <= self._index_bytes, "the index is longer than what was kept for it"
        self._put(bytes(2 * _BLOCK))
        self._file.write(self._gzip.flush())
        self._file.truncate()
        member = _header(NAME, self._index_bytes, 0o600, mtime_ns) + index.ljust(self._index_bytes)
        first = _stored(member + bytes(-len(member) % _BLOCK))
        assert len(first) == self._begin
        self._file.seek(0)
        self._file.write(first)
        self._file.flush()
        os.fsync(self._file.fileno())

    def _put(self, data: bytes) -> None:
        packed = self._gzip.compress(data)
        if packed:
            self._room(len(packed))
            self._file.write(packed)


def _filled(source: IO[bytes], size: int) -> bytes:
    data = bytearray()
    while len(data) < size and (piece := source.read(size - len(data))):
        data += piece
    return bytes(data)


def _header(name: str, size: int, mode: int, mtime_ns: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size, mode & 0o777, max(0, mtime_ns // 1_000_000_000)
    return info.tobuf(tarfile.PAX_FORMAT, *_ENCODING)


def _padded(size: int) -> int:
    return size + -size % _BLOCK


def _stored_size(size: int) -> int:
    return len(_GZIP) + size + 5 * max(1, -(-size // _STORED)) + 8


def _stored(data: bytes) -> bytes:
    pieces = [_GZIP]
    for at in range(0, max(len(data), 1), _STORED):
        block = data[at : at + _STORED]
        pieces += [struct.pack("<BHH", at + _STORED >= len(data), len(block), len(block) ^ 0xFFFF), block]
    return b"".join([*pieces, struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)])


# ── reading ──


@dataclass(frozen=True, slots=True)
class Member:
    """A regular file of an archive. What is not read of `data` is passed over with the next one."""

    name: str
    size: int
    data: io.RawIOBase


class _Piece(io.RawIOBase):
    """So many bytes of a stream. Raises Unsound when it ends before."""

    def __init__(self, source: IO[bytes], size: int) -> None:
        self.source, self.left = source, size

    def readable(self) -> bool:
        return True

    def readinto(self, into: memoryview) -> int:  # type: ignore[override]
        want = min(len(into), self.left)
        if not want:
            return 0
        try:
            data = self.source.read(want)
        except _BROKEN as error:
            raise Unsound(_broken(error)) from None
        if not data:
            raise Unsound(_CUT)
        into[: len(data)] = data
        self.left -= len(data)
        return len(data)


class Reader:
    """An open archive: its index, then its members, once. Raises Unsound for what is none, Refused for one of a newer
    clawd, FileNotFoundError, OSError. For use in a `with`."""

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for ever
        raw = os.fdopen(descriptor, "rb")
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Unsound("it is no plain file")
            self._raw = raw
            self._file = cast(IO[bytes], gzip.GzipFile(fileobj=raw, mode="rb"))
            first = next(self._members(), None)
            if first is None or first.name != NAME or first.size > MOST_BYTES:
                raise Unsound("it does not begin with an index: no backup of clawd's")
            self.index: Index = parse(io.BufferedReader(first.data, CHUNK), first.size)
            self._rest = _padded(first.size) - first.size
        except BaseException:
            raw.close()
            raise

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()

    def members(self) -> Iterator[Member]:
        """What is behind the index. Raises Unsound."""
        self._skip(self._rest)
        yield from self._members()
        try:
            if len(rest := _filled(self._file, _MOST_ZEROS + 1)) > _MOST_ZEROS or rest.strip(b"\0"):
                raise Unsound("it goes on behind its end")
        except _BROKEN as error:
            raise Unsound(_broken(error)) from None

    def _members(self) -> Iterator[Member]:
        named: dict[str, str] = {}
        while True:
            block = self._exactly(_BLOCK)
            if not block.strip(b"\0"):
                if self._exactly(_BLOCK).strip(b"\0"):
                    raise Unsound("it has something behind its end")
                return
            try:
                info = tarfile.TarInfo.frombuf(block, *_ENCODING)
            except tarfile.HeaderError:
                raise Unsound("a header in it is damaged") from None
            if info.type == tarfile.XHDTYPE and not named:
                if not 0 <= info.size <= _MOST_PAX:
                    raise Unsound("a name in it is too long")
                named = _pax(self._exactly(_padded(info.size))[: info.size])
                continue
            name = named.get("path", info.name)
            if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or info.name.endswith("/"):
                raise Unsound(f"it has {name[:200]!a}, which is {_WORDS.get(info.type, 'no plain file')}")
            size = _size(named, info.size)
            named = {}
            piece = _Piece(self._file, size)
            yield Member(name, size, piece)
            self._skip(piece.left + -size % _BLOCK)

    def _exactly(self, size: int) -> bytes:
        try:
            data = _filled(self._file, size)
        except _BROKEN as error:
            raise Unsound(_broken(error)) from None
        if len(data) < size:
            raise Unsound(_CUT)
        return data

    def _skip(self, size: int) -> None:
        while size:
            size -= len(self._exactly(min(size, CHUNK)))


_WORDS = {
    tarfile.SYMTYPE: "a link",
    tarfile.LNKTYPE: "a link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.DIRTYPE: "a directory",
}


def _broken(error: Exception) -> str:
    if isinstance(error, EOFError):
        return _CUT
    return "it is damaged, or no gzipped archive"


def _size(named: dict[str, str], size: int) -> int:
    said = named.get("size", str(size))
    if not said.isascii() or not said.isdecimal() or len(said) > 16:
        raise Unsound("a length in it is none")
    return int(said)


def _pax(data: bytes) -> dict[str, str]:
    """The records of an extended header: `LENGTH key=value\\n` each."""
    found: dict[str, str] = {}
    while data:
        length, space, _ = data.partition(b" ")
        if not space or not length.isdigit() or len(length) > 6 or not len(length) + 2 < int(length) <= len(data):
            raise Unsound("a header in it is damaged")
        record, data = data[len(length) + 1 : int(length) - 1], data[int(length) :]
        key, equals, value = record.partition(b"=")
        name = key.decode("ascii", "replace")
        if name == "hdrcharset":
            continue
        if not equals or name not in _PAX or name in found:
            raise Unsound(f"a header in it says something of {name[:40]!a}, which no backup's does")
        found[name] = value.decode(*_ENCODING)
    return found
