"""How a memory is written: the line in the trust ledger, then the file, then the index. Killed between them, it leaves
whole files, and a line that says nothing of a text that never came to be.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from clawd import faults
from clawd.clock import Clock, rfc3339
from clawd.errors import DiskFull, Refused, StorageError, UnsafePath
from clawd.files import directory_beneath, read_owned, sync_directory, write_atomic
from clawd.memory import daily, keyed, text, tree
from clawd.memory.admission import FLOOR
from clawd.memory.catalogue import Catalogue
from clawd.memory.looks import signature
from clawd.memory.provenance import Op, Stamp, TrustLedger
from clawd.memory.record import QUARANTINE, MemoryRecord, settled, written
from clawd.memory.standing import LOG
from clawd.trust import Origin

PROFILE = "user_profile.md"
_MARKS = 2000  # parts of a text that are known again, the first


class Changed(Exception):
    """A file is another one than was read: whoever decided by it looks again."""


class Pen:
    """Calls block. Raises StorageError, Refused."""

    def __init__(self, root: Path, group: str, clock: Clock, ledger: TrustLedger, catalogue: Catalogue) -> None:
        self._root, self._group, self._clock = root, group, clock
        self._ledger, self._catalogue = ledger, catalogue
        self._facts = keyed.KeyedMemory(root)

    def stamp(self, record: MemoryRecord, op: Op, turn: int | None = None, *, known: bool = False) -> None:
        """`known`: its text is to be known again wherever it lies, part by part, or to be known no more. What is not
        believed is known as a whole."""
        self._append([self._stamped(record, op, turn, known)])

    def _append(self, stamps: Sequence[Stamp]) -> None:
        with told(self._root):
            self._ledger.append(*stamps)
        faults.passing("remembering-stamped")

    def _stamped(self, record: MemoryRecord, op: Op, turn: int | None = None, known: bool = False,
                 silent: bool = False) -> Stamp:  # fmt: skip
        """With `silent` its text is not to be known elsewhere."""
        doubted = op in ("reject", "quarantine") or (
            record.trust < FLOOR and (op, record.status) != ("delete", "active")
        )
        marks = 0 if silent else _MARKS if known else 1 if record.trust < FLOOR else 0
        return Stamp(
            rfc3339(self._clock.now()), self._group, record.id, op, text.digest(record.text), record.origin,
            record.trust, record.taint, record.status, record.private, record.source, turn,
            text.digest(record.said.quote) if record.said else None, text.lines(record.text)[:marks] if marks else (),
            self._catalogue.better(record) if doubted and not silent else (), record.namespace,
        )  # fmt: skip

    def keep(self, record: MemoryRecord, op: Op, turn: int | None = None, *, seen: str | None = None,
             known: bool = False) -> MemoryRecord:  # fmt: skip
        """Write a memory with a file of its own; one that is quarantined, or no more, changes its directory. `seen` is
        the stat of the file that was read: raises Changed where it is another one by now."""
        old, path = record.file, _place(record)
        record = replace(record, file=path)
        if seen is not None and signature(self._root, old) != seen:
            raise Changed
        with told(self._root), self._catalogue.writing(*{old or path, path}):
            self._directory(path)
            self.stamp(record, op, turn, known=known)
            if seen is not None and signature(self._root, old) != seen:
                raise Changed
            if old and old != path:
                (self._root / old).rename(self._root / path)
                faults.passing("remembering-moved")
            if record.whole or op == "update":  # else a copy of what the ledger says is not worth the rest of a file
                write_atomic(self._root / path, _page(record))
            faults.passing("remembering-written")
        return record

    def note(self, record: MemoryRecord, op: Op, turn: int | None = None, *, known: bool = False) -> None:
        """Only what is known of it changes."""
        with self._catalogue.writing():
            self.stamp(record, op, turn, known=known)

    def carry(self, records: Sequence[MemoryRecord], last: Sequence[Stamp]) -> None:
        """What is known of texts that were kept elsewhere; `last` are the last lines of their ids, and stay that."""
        if records:
            self._append([*(self._stamped(each, "carry") for each in records), *last])

    def set_fact(self, record: MemoryRecord, op: Op, turn: int | None = None, *, known: bool = False) -> None:
        """Into MEMORY.md, and the day's log."""
        now = self._clock.now()
        with told(self._root), self._catalogue.writing(keyed.FACTS, f"{now.astimezone():%Y-%m-%d}.md"):
            self.stamp(record, op, turn, known=known)
            self._facts.set(record.key, record.text, now)
            faults.passing("remembering-written")
            daily.append(self._root, record.key, record.text, now)
            faults.passing("remembering-logged")

    def set_facts(self, records: Sequence[MemoryRecord]) -> None:
        """Such as were kept elsewhere, each of its own time: they are no news of this day."""
        with told(self._root), self._catalogue.writing(keyed.FACTS):
            self._append([self._stamped(each, "write") for each in records])
            self._facts.set_all([(each.key, each.text, each.event_time) for each in records])
            faults.passing("remembering-written")

    def log(self, lines: Sequence[MemoryRecord], keys: Collection[str], silent: Collection[str]) -> None:
        """Lines of the days' logs, all at once. `keys` are from now on such lines', whatever becomes of their texts.
        `silent` are the ids of lines whose texts are known as what they are."""
        ours = {each.key: replace(each, id=f"{LOG}{each.key}", text="") for each in lines if each.key in keys}
        stamps = [self._stamped(each, "write", silent=True) for each in ours.values()]
        stamps += [self._stamped(each, "write", silent=each.id in silent) for each in lines]
        with told(self._root), self._catalogue.writing(*{each.file for each in lines}):
            self._append(stamps)
            daily.append_all(self._root, [(each.key, each.text, each.event_time) for each in lines])
            faults.passing("remembering-logged")

    def promote(self, proposal: MemoryRecord, move: Callable[[], None]) -> None:
        """The owner's yes to what has its place elsewhere: it is moved there, and its file goes."""
        with told(self._root), self._catalogue.writing(proposal.file):
            self.stamp(proposal, "approve", known=True)
            move()
            (self._root / proposal.file).unlink(missing_ok=True)
            sync_directory((self._root / proposal.file).parent)

    def remove(self, records: Sequence[MemoryRecord], op: Op, turn: int | None = None) -> None:
        """Their lines, then their files; of facts their entries, also in the days' logs."""
        for record in records:
            with told(self._root), self._catalogue.writing(*filter(None, [record.file])):
                self.stamp(record, op, turn, known=True)
                if record.file == keyed.FACTS:
                    self._facts.delete(record.key) if record.kind == "fact" else self._facts.clear_preamble()
                elif record.kind == "day" and record.origin is Origin.EXTERNAL:
                    daily.drop(self._root, record.file, record.tags)
                elif record.file:
                    (self._root / record.file).unlink(missing_ok=True)
                    sync_directory((self._root / record.file).parent)
                faults.passing("remembering-removed")

    def unlog(self, records: Sequence[MemoryRecord]) -> None:
        """Take what the days' logs have of them."""
        with told(self._root):
            for record in records:
                texts = [record.text, *([record.said.quote] if record.said else [])]
                long = [each for each in texts if text.lines(each)]
                if record.kind == "fact" or long:
                    self._catalogue.look(daily.forget(self._root, key=record.key, texts=long))
                faults.passing("remembering-unlogged")

    def profile(self, said: str) -> None:
        """Append to user_profile.md, what stands there untouched. Raises Refused where it is not surely the owner's
        own file."""
        directory = self._root.parent
        try:
            old = read_owned(directory, PROFILE)
            mode = (directory / PROFILE).lstat().st_mode & 0o777
        except FileNotFoundError:
            old, mode = b"", 0o600
        except UnsafePath as error:
            raise Refused(f"{PROFILE} is not written to: {error.message}") from error
        block = f"{settled(said)}\n".encode("utf-8", "replace")
        if f"\n{old.decode('utf-8', 'replace')}\n".find(f"\n{settled(said)}\n") != -1:
            return  # a crash came after it
        gap = b"" if not old else b"\n" if old.endswith(b"\n") else b"\n\n"
        with told(directory):
            write_atomic(directory / PROFILE, old + gap + block, mode)
        faults.passing("remembering-profile")

    def _directory(self, path: str) -> None:
        """There, and no link."""
        with suppress(FileNotFoundError):
            os.close(directory_beneath(self._root.parent, self._root.name))
        folder = (self._root / path).parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(directory_beneath(self._root, path.rpartition("/")[0]))


def _place(record: MemoryRecord) -> str:
    """The path of its file: where it is, if that may be."""
    fresh = tree.name_of(record)
    if record.file and record.file.startswith(f"{QUARANTINE}/") == fresh.startswith(f"{QUARANTINE}/"):
        return record.file
    return fresh


def _page(record: MemoryRecord) -> bytes:
    """The file of a record. One that is known by its place alone is not given an id."""
    return re.sub(rb'^id: "file:.*\n', b"", written(record), count=1, flags=re.MULTILINE)


@contextmanager
def told(root: Path) -> Iterator[None]:
    """What the disk refuses, as a sentence."""
    try:
        yield
    except UnsafePath as error:
        raise Refused(f"{root} is not written to: {error.message}") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(f"there is no room in {root}: nothing was kept", hint="make room, then try again") from error
        raise StorageError(f"{root} cannot be written to: {error.strerror}", hint="nothing was kept") from error
