"""Appending to a session's file: one write a turn, durable; after a crash, exactly what is missing.

The file is a person's and other programs' too. So it is opened by name each time (an editor may have replaced
it), held with `flock` during an append, and nothing that we did not write is ever cut: a stranger's half
block is closed with a rule, or kept in `<file>.quarantine` when it is not text. The cost of an append does
not depend on the file's size.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from clawd.clock import moment_of, rfc3339
from clawd.errors import Refused, StorageError
from clawd.files import open_beneath, sync_directory, write_atomic
from clawd.model import Block
from clawd.sessions.format import header, named, parse, shown_id, write_block

LOCK_SECONDS = 5.0  # how long another program may hold the file before an append gives up
_HEAD = 8192  # holds any header: an id has at most 1,024 characters
_HEAD_OF_ANY = 1 << 20  # holds a first block's META
_WINDOW = 256 << 10  # what a redo reads at first; it doubles until the turn's first block is in it
_RULE = re.compile(rb"\n[ \t]*---[ \t\r]*(?:\n|\Z)")
_BLOCK_START = re.compile(rb"^<!-- msg:(.*) -->", re.MULTILINE)


class _Mark(NamedTuple):
    """What tells one of our blocks from all others. `note` sets apart what is appended to a turn later; the
    moment, what an earlier ledger counted as the same turn. What came from outside has no turn but a `key`."""

    turn: object
    n: object
    note: object
    key: object
    at: float | None


class SessionFile:
    """One session's file. Calls block for about as long as a disk's flush."""

    def __init__(self, path: Path, session_id: str) -> None:
        self.path = path
        self.session_id = session_id

    def append(self, blocks: Sequence[Block], turn: int | str | None, redo: bool = False) -> None:
        """Append all blocks of a turn in one durable write. With `redo` (after a crash), only those that are
        missing. What is of no turn has a text of its own in its place.

        A block is known by META `turn`, `n` and, for what is added to a turn later (a failed delivery),
        `note`, which the caller puts into `Block.meta`. Without a turn the caller marks all of them itself, by
        `key` and `n`. Raises StorageError when the disk refuses: nothing of it is left then; UnsafePath when the
        path is a link or no regular file; Refused when the file names another session.
        """
        ours = [
            block if turn is None else replace(block, meta=block.meta | {"turn": turn, "n": f"{n}/{len(blocks)}"})
            for n, block in enumerate(blocks, 1)
        ]
        try:
            with self._held() as descriptor:
                size = self._check_header(descriptor)
                if redo:
                    ours, size = self._missing(descriptor, ours, size)
                if ours:
                    self._write(descriptor, ours, size)
        except OSError as error:
            raise StorageError(
                f"the session file {self.path.name} could not be written: {error.strerror or error}",
                hint="free some space or mend the file's rights; nothing was lost, it is recorded after that",
            ) from error

    def extend(self, choose: Callable[[BinaryIO, int], Sequence[Block]]) -> None:
        """Append blocks that are of no turn, in one durable write: what `choose` gives, who is handed the file to read
        and how many of its bytes are whole blocks, while nobody else can write to it.

        A torn piece at the end that is the beginning of these blocks is completed. Raises as `append`."""
        try:
            with self._held() as descriptor:
                size = self._check_header(descriptor)
                whole = self._whole_bytes(descriptor, size)
                with open(descriptor, "rb", closefd=False) as file:
                    blocks = list(choose(file, whole))
                if not blocks:
                    if whole == size and os.pread(descriptor, 1, size - 1) != b"\n":
                        self._put(descriptor, b"\n", size)  # all that was torn off
                    return
                if self._disguised and not parse(os.pread(descriptor, min(whole, _HEAD_OF_ANY), 0)).blocks:
                    blocks = named(self.session_id, blocks)
                data = b"".join(b"\n" + write_block(block) for block in blocks)
                torn = os.pread(descriptor, size - whole, whole)
                if torn and data.startswith(torn):
                    self._put(descriptor, data[len(torn) :], size)
                else:
                    closing, size = self._close_tail(descriptor, size)
                    self._put(descriptor, closing + data, size)
        except OSError as error:
            raise StorageError(
                f"the session file {self.path.name} could not be written: {error.strerror or error}",
                hint="free some space or mend the file's rights, and say it again: what is there is not doubled",
            ) from error

    def rewrite(self, change: Callable[[bytes], bytes]) -> bool:
        """Put what `change` makes of the file's bytes in its place, whole or not at all; gives whether that is
        something else. Raises StorageError, UnsafePath."""
        try:
            with self._held() as descriptor:
                status = os.fstat(descriptor)
                with open(descriptor, "rb", closefd=False) as file:
                    file.seek(0)
                    data = file.read()
                if (new := change(data)) != data:
                    write_atomic(self.path, new, stat.S_IMODE(status.st_mode))
                return new != data
        except OSError as error:
            raise StorageError(
                f"the session file {self.path.name} could not be written: {error.strerror or error}",
                hint="free some space or mend the file's rights, and try again",
            ) from error

    @contextmanager
    def _held(self) -> Iterator[int]:
        """The file, made with its header when it is not there, open for appending and locked against other
        writers."""
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                descriptor = open_beneath(self.path.parent, self.path.name, os.O_RDWR | os.O_APPEND)
            except FileNotFoundError:
                self._create()
                continue
            try:
                while True:
                    try:
                        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    except BlockingIOError:
                        if time.monotonic() > deadline:
                            raise StorageError(f"another program keeps {self.path} locked") from None
                        time.sleep(0.01)
                if self._still_named(descriptor):
                    yield descriptor
                    return
            finally:
                os.close(descriptor)

    def _still_named(self, descriptor: int) -> bool:
        """Whether the name still leads to this file: an editor may have put another in its place."""
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.lstat())
        except FileNotFoundError:
            return False

    def _create(self) -> None:
        """The header under the name, whole or not at all, and never over a file that someone made
        meanwhile."""
        self.path.parent.mkdir(mode=0o700, exist_ok=True)
        temporary = self.path.with_name(f".{secrets.token_hex(8)}.tmp")
        try:
            with open(temporary, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write(header(self.session_id))
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(temporary, self.path, follow_symlinks=False)
        finally:
            temporary.unlink(missing_ok=True)
        sync_directory(self.path.parent)

    def _check_header(self, descriptor: int) -> int:
        """The file's size. A torn header is made whole; a file that names another session is refused."""
        size = os.fstat(descriptor).st_size
        expected = header(self.session_id)
        head = os.pread(descriptor, len(expected), 0)
        if head == expected and not self._disguised:
            return size
        if size < len(expected) and expected.startswith(head):
            self._put(descriptor, expected[size:], size)
            return len(expected)
        named_there = parse(os.pread(descriptor, _HEAD_OF_ANY if self._disguised else _HEAD, 0)).session
        if named_there not in (None, self.session_id, shown_id(self.session_id)):
            raise Refused(
                f"{self.path} belongs to the session {named_there!r}, not to {self.session_id!r}",
                hint="give its first line the right id again, or move the file away",
            )
        return size

    @property
    def _disguised(self) -> bool:
        """Whether the header cannot show the id, so that the first block must name it."""
        return shown_id(self.session_id) != self.session_id

    def _write(self, descriptor: int, blocks: list[Block], size: int) -> None:
        closing, size = self._close_tail(descriptor, size)
        if self._disguised and not parse(os.pread(descriptor, _HEAD_OF_ANY, 0)).blocks:
            blocks = named(self.session_id, blocks)
        self._put(descriptor, closing + b"".join(b"\n" + write_block(block) for block in blocks), size)

    def _put(self, descriptor: int, data: bytes, size: int) -> None:
        """One write and a flush. On a fault what was written is taken back, unless someone wrote behind
        it."""
        written = 0
        try:
            written = os.write(descriptor, data)
            if written < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fdatasync(descriptor)
        except OSError:
            if written and os.fstat(descriptor).st_size == size + written:
                os.ftruncate(descriptor, size)
            raise

    def _whole_bytes(self, descriptor: int, size: int) -> int:
        """Where a torn block at the end of the file begins; its size when there is none."""
        if size == len(header(self.session_id)) or os.pread(descriptor, 5, max(size - 5, 0)) == b"\n---\n":
            return size
        start, tail = size, b""
        while start > 0 and not _last_rule(tail):
            start = max(0, start - max(len(tail), _HEAD))
            tail = os.pread(descriptor, size - start, start)
        rule = _last_rule(tail)
        return start + rule if rule else min(size, self._header_end(descriptor))

    def _close_tail(self, descriptor: int, size: int) -> tuple[bytes, int]:
        """What must precede the next block so that it stands alone, and the size after mending."""
        if size == len(header(self.session_id)) or os.pread(descriptor, 5, max(size - 5, 0)) == b"\n---\n":
            return b"", size
        end = self._whole_bytes(descriptor, size)
        loose = os.pread(descriptor, size - end, end)
        if not loose.strip():
            return (b"" if os.pread(descriptor, 1, size - 1) == b"\n" else b"\n"), size
        try:
            loose.decode()
        except UnicodeDecodeError:
            self._quarantine(loose)
            os.ftruncate(descriptor, end)
            return b"", end
        return (b"\n---\n" if loose.endswith(b"\n") else b"\n\n---\n"), size

    def _header_end(self, descriptor: int) -> int:
        """How many first bytes are a header's; 0 in a file that has none."""
        match = re.match(rb"# Session: [^\n]*\n(?:\r?\n)?", os.pread(descriptor, _HEAD, 0))
        return match.end() if match else 0

    def _quarantine(self, loose: bytes) -> None:
        name = f"{self.path.name}.quarantine"
        kept = open_beneath(self.path.parent, name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        with os.fdopen(kept, "wb") as file:
            file.write(loose + b"\n")
            file.flush()
            os.fsync(file.fileno())
        sync_directory(self.path.parent)

    # -- redo --

    def _missing(self, descriptor: int, ours: list[Block], size: int) -> tuple[list[Block], int]:
        """Which blocks of the turn are not in the file, and its size once our own torn piece is out of it.

        A turn is written front to back. So what comes after the last whole block is missing, and a whole
        block that a person has taken out since stays out.
        """

        def forms(n: int) -> set[bytes]:
            """The bytes of block n; of the first one also as a file's first block."""
            return {write_block(ours[n - 1]), write_block(named(self.session_id, ours)[n - 1])}

        window = _WINDOW
        while True:
            start = max(0, size - window)
            data = os.pread(descriptor, size - start, start)
            found = _find(data, {_mark(block): n for n, block in enumerate(ours, 1)})
            if start == 0 or 1 in found or ("note" in ours[0].meta and _has_turn(data, ours[0].meta["turn"])):
                break
            window *= 2
        present = max((n for n, (at, end) in found.items() if _whole(data[at:end], forms(n))), default=0)
        if present == len(ours):
            return [], size
        header_end = self._header_end(descriptor) - start
        for at, length in _torn(data, forms(present + 1), found.get(present + 1), header_end):
            if at + length == len(data):
                size = start + at
                os.ftruncate(descriptor, size)
            else:
                self._blank(start + at, length)
        return ours[present:], size

    def _blank(self, at: int, length: int) -> None:
        """Empty a torn piece of ours that others have written behind: same length, so that nothing of theirs
        moves."""
        # A descriptor of its own: with O_APPEND, Linux's pwrite ignores the offset.
        descriptor = open_beneath(self.path.parent, self.path.name, os.O_WRONLY)
        try:
            os.pwrite(descriptor, b"\n" * length, at)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)


def _mark(block: Block) -> _Mark:
    return _mark_of(block.meta, None if block.at is None else rfc3339(block.at))


def _mark_of(meta: dict[str, Any], at: str | None) -> _Mark:
    moment = moment_of(at) if at else None
    of = meta.get
    return _Mark(of("turn"), of("n"), of("note"), of("key"), moment.timestamp() if moment else None)


def _find(data: bytes, marks: dict[_Mark, int]) -> dict[int, tuple[int, int]]:
    """Where our blocks lie in `data`: n → (start, start of the next block or the end)."""
    found: dict[int, tuple[int, int]] = {}
    starts = list(_BLOCK_START.finditer(data))
    for index, match in enumerate(starts):
        end = starts[index + 1].start() if index + 1 < len(starts) else len(data)
        try:
            meta = json.loads(match[1])
            n = marks.get(_mark_of(meta, meta.get("at")))
        except (ValueError, AttributeError, RecursionError, TypeError):
            continue  # not one of ours
        if n is not None:
            found[n] = (match.start(), end)
    return found


def _has_turn(data: bytes, turn: object) -> bool:
    """Whether the turn itself is in `data`: what is added to it later lies behind it."""
    for match in _BLOCK_START.finditer(data):
        try:
            meta = json.loads(match[1])
        except (ValueError, RecursionError):
            continue
        if isinstance(meta, dict) and meta.get("turn") == turn and "note" not in meta:
            return True
    return False


def _last_rule(data: bytes) -> int:
    """The end of the last closing rule in `data`, 0 when there is none."""
    at = len(data)
    while (at := data.rfind(b"---", 0, at)) >= 0:
        newline = data.rfind(b"\n", 0, at)
        if newline >= 0 and (match := _RULE.match(data, newline)):
            return match.end()
    return 0


def _whole(region: bytes, forms: set[bytes]) -> bool:
    """Whether a block of ours is all there, as written or as a person edited it since."""
    bare = region.rstrip()
    if any(form.startswith(bare) and len(bare) < len(form.rstrip()) for form in forms):
        return False  # torn, also where the tear made a line look like a rule
    return _last_rule(region) > 0


def _torn(data: bytes, forms: set[bytes], marked: tuple[int, int] | None, header_end: int) -> list[tuple[int, int]]:
    """Beginnings in `data` of the block that was being written: (start, length), the last first."""
    pieces: list[tuple[int, int]] = []
    if marked:
        region = data[slice(*marked)]
        pieces.append((marked[0], max(_common(form, region) for form in forms)))
    else:
        # Not even its marker is whole: then it lies outside of a block, before the end or another marker.
        for match in re.finditer(rb"^<[^\n]*(?=\n*(?:\Z|<!-- msg:))", data, re.MULTILINE):
            before = data[: match.start()].rstrip()
            outside = before.endswith(b"\n---") or len(before) <= header_end
            if outside and any(form.startswith(match[0]) for form in forms):
                pieces.append((match.start(), len(match[0])))
    with_newline = []
    for at, length in reversed(pieces):  # the newline before a block is ours too
        lead = int(at > header_end and data[max(at - 2, 0) : at] == b"\n\n")
        with_newline.append((at - lead, length + lead))
    return with_newline


def _common(one: bytes, other: bytes) -> int:
    """The length of the common beginning."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
