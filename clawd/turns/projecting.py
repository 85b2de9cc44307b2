"""The files beside a session, written from the ledger: state.json, decisions.jsonl, metrics.jsonl. Each write is safe
to repeat.

Lines leave the ledger only once they are in their file, durably. The state is written with a new name and renamed; it
is what the ledger said when it was read, and written again whenever that changed.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from clawd import faults
from clawd.clock import Clock, rfc3339
from clawd.config.home import Home
from clawd.errors import ClawdError, Refused, UnsafePath
from clawd.files import open_beneath, put_beneath, read_beneath
from clawd.ledger import contexts
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.lifecycle import journal, pinned, state
from clawd.lifecycle.pinned import Pinned
from clawd.turns.ruling import DEFAULT, Rules

log = logging.getLogger(__name__)

_WINDOW = 64 << 10  # what is read of a file's end, beside as much as is to be written
_FILES = ("decisions", "metrics")


@dataclass(frozen=True, slots=True)
class _Pending:
    row: Row
    folder: str
    stem: str
    lines: Sequence[Row]
    held: Pinned
    engine: str | None


class Projector:
    def __init__(
        self, home: Home, ledger: Ledger, clock: Clock, rules: Callable[[Row], Rules] = lambda row: DEFAULT
    ) -> None:
        self._home, self._ledger, self._clock, self._rules = home, ledger, clock, rules
        self._ours: set[str] = set()  # sessions whose state.json is known to be one of ours

    async def act(self, session: str) -> None:
        """Bring the session's files up to the ledger. Raises OSError, UnsafePath where one of them is a link, Refused
        where a newer clawd wrote the state; then nothing of it left the ledger."""
        pending = await self._ledger.do(lambda tx: _pending(tx, session))
        if pending is None:
            return
        rules = self._rules(pending.row)
        now = rfc3339(self._clock.now())
        directory = self._home.group(pending.folder).sessions
        if session not in self._ours:
            await to_thread.run_sync(_look, directory, f"{pending.stem}.state.json")
            self._ours.add(session)
        if not await to_thread.run_sync(directory.parent.is_dir):
            return  # a person took the group's folder away: its next message makes it again, and this is written then
        await to_thread.run_sync(_write, directory, pending, rules, now)
        faults.passing("projected")
        upto = pending.lines[-1]["id"] if pending.lines else 0
        await self._ledger.do(lambda tx: contexts.written(tx, session, upto, pending.row["dirty"]))


def _pending(tx: Transaction, session: str) -> _Pending | None:
    row = contexts.find(tx, session)
    if row is None:
        return None
    lines = contexts.lines(tx, session)
    if not row["dirty"] and not lines:
        return None
    place = tx.one("SELECT s.stem, g.folder FROM session s JOIN grp g ON g.name = s.grp WHERE s.id = ?", session)
    if place is None or not place["stem"]:
        return None
    held = pinned.of_rows(contexts.pinned(tx, session))
    return _Pending(row, place["folder"], place["stem"], lines, held, contexts.last_engine(tx, session))


def _look(directory: Path, name: str) -> None:
    """What stands in the place of a state: one that cannot be read is told, and made anew. Raises Refused."""
    try:
        state.read(read_beneath(directory, name, state.MOST_BYTES + 1), name)
    except FileNotFoundError:
        pass
    except (Refused, UnsafePath):
        raise
    except ClawdError as error:
        log.warning("%s", error)


def _write(directory: Path, pending: _Pending, rules: Rules, now: str) -> None:
    directory.mkdir(mode=0o700, exist_ok=True)
    for kind in _FILES:
        if lines := [row["line"] for row in pending.lines if row["kind"] == kind]:
            add_lines(directory, f"{pending.stem}.{kind}.jsonl", lines)
            faults.passing(f"{kind}_written")
    size = 0
    with suppress(FileNotFoundError):
        size = (directory / f"{pending.stem}.md").stat(follow_symlinks=False).st_size
    made = state.state_of(
        pending.row, pending.held, rules.limits, stem=pending.stem, offset=size, engine=pending.engine, updated=now
    )
    put_beneath(directory, f"{pending.stem}.state.json", made.data())


def add_lines(directory: Path, name: str, lines: Sequence[str]) -> None:
    """Put lines at the end of a file, durably, in one write, but for those that are there. Raises OSError,
    UnsafePath."""
    with _held(directory, name, os.O_RDWR | os.O_CREAT) as descriptor:
        size = os.fstat(descriptor).st_size
        window = min(size, _WINDOW + 2 * sum(len(line.encode()) for line in lines))
        made = journal.append(os.pread(descriptor, window, size - window), size, lines)
        if made.keep < size:
            os.ftruncate(descriptor, made.keep)
        data, at = memoryview(made.data), made.keep
        while data:
            written = os.pwrite(descriptor, data, at)
            data, at = data[written:], at + written
        os.fdatasync(descriptor)


def rewrite(directory: Path, name: str, change: Callable[[bytes], bytes]) -> bool:
    """Put what `change` makes of a file's bytes in its place, whole or not at all; gives whether that is something
    else. Raises OSError, UnsafePath."""
    with _held(directory, name, os.O_RDONLY) as descriptor:
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read()
        if (new := change(data)) == data:
            return False
        put_beneath(directory, name, new)
        return True


@contextmanager
def _held(directory: Path, name: str, flags: int) -> Iterator[int]:
    """A file that nobody else of ours writes to meanwhile. Whoever waited may hold one that was replaced."""
    while True:
        descriptor = open_beneath(directory, name, flags)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), (directory / name).lstat()):
                    yield descriptor
                    return
        finally:
            os.close(descriptor)
