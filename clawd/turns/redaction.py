"""What memory forgot leaves the conversations that it was said in: the group's session files and the ledger's rows have
`[forgotten]` in its place, and what memory's tools gave before is not shown to a model again. What sessions hold on to,
their states, journals, manifests and exports have it neither, nor what was brought in from elsewhere and lies in
`import/`.

Not touched: what an agent wrote in `work/` itself, and the ledger's backups in `state/backups`.
"""

from __future__ import annotations

import logging
import stat
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import anyio
from anyio import to_thread

from clawd.clock import Clock, rfc3339
from clawd.config.home import Home
from clawd.errors import UnsafePath
from clawd.files import read_beneath, walk_beneath, write_atomic
from clawd.ledger import recalled, redact
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.redact import PLACES
from clawd.memory import keyed
from clawd.memory.forgotten import Forgotten
from clawd.sessions.file import SessionFile
from clawd.sessions.format import MARKER_LINE, parse, write_block
from clawd.turns import projecting

log = logging.getLogger(__name__)

_ELSEWHERE = "backups of the ledger (state/backups), and what an agent wrote in work/ itself, are as they were"
_ACCOUNTS = ("import.json", "REPORT.md")
_TRIES = 20  # while somebody reads the ledger, its journal cannot be cut


@dataclass(frozen=True, slots=True)
class Redacted:
    """How many session files and rows were changed. `short`: texts of less than 8 letters, which are not looked for:
    they would stand in too much else. `whole`: no byte of what was taken out is left in the ledger's journal."""

    sessions: int = 0
    rows: int = 0
    short: int = 0
    whole: bool = True

    @property
    def left(self) -> list[str]:
        """Sentences for the person on what may still have it."""
        said = [_ELSEWHERE]
        if self.short:
            said.append("a text of less than 8 letters is not looked for in conversations")
        if not self.whole:
            said.append("the ledger is being read just now: the last bytes leave its journal with the next upkeep")
        return said


class Redaction:
    """`alone` holds a session against whoever records its turns; a command that holds the home's lock needs none."""

    def __init__(
        self,
        home: Home,
        ledger: Ledger,
        clock: Clock,
        alone: Callable[[str], AbstractAsyncContextManager[None]] = lambda session: nullcontext(),
    ) -> None:
        self._home, self._ledger, self._clock, self._alone = home, ledger, clock, alone
        self._later: dict[int, set[str]] = {}

    async def redact(self, group: str, texts: Sequence[str]) -> Redacted:
        """Take the texts out of a group's conversations. A turn that runs now goes on, and what it says of them is
        taken out once it is recorded. Raises StorageError, OSError; it may be repeated."""
        forgotten = await to_thread.run_sync(Forgotten, texts)
        live = await self._ledger.do(lambda tx: self._forget(tx, group))
        if not forgotten:
            return Redacted(short=forgotten.short)
        for turn in live:
            self._later.setdefault(turn, set()).update(texts)
        rows, files = await self._rows(group, forgotten), await self._files(group, forgotten)
        whole = not rows or await self._cut_journal()
        log.info("forgotten: %s", group, extra={"sessions": files, "rows": rows})
        return Redacted(files, rows, forgotten.short, whole)

    async def recorded(self, group: str, turn: int) -> None:
        """A turn is at its end: what it said of texts that were forgotten while it ran goes, too."""
        if texts := self._later.get(turn):
            await self.redact(group, sorted(texts))
            del self._later[turn]

    def _forget(self, tx: Transaction, group: str) -> list[int]:
        recalled.set_forgot(tx, group, rfc3339(self._clock.now()))
        return [row["id"] for row in tx.all("SELECT id FROM turn WHERE grp = ? AND recorded_at IS NULL"
                                            " AND state NOT IN ('queued', 'held')", group)]  # fmt: skip

    async def _rows(self, group: str, forgotten: Forgotten) -> int:
        changed = 0
        for place in PLACES:
            after: redact.Key | None = None
            while True:
                rows, following = await self._ledger.do(partial(redact.read, place=place, group=group, after=after))
                made = await to_thread.run_sync(redact.changes, place, rows, forgotten.out_of, forgotten.out_of_value)
                if made:
                    count = await self._ledger.do(partial(redact.write, place=place, made=made))
                    changed += count
                    if count < len(made):  # somebody wrote in between: the same slice once more
                        continue
                if following is None:
                    break
                after = following
        return changed

    async def _files(self, group: str, forgotten: Forgotten) -> int:
        """What was brought in first: nothing of it is accepted anew then, while the conversations are gone through."""
        directory, arrivals = self._home.group(group).sessions, self._home.group(group).arrivals
        changed = await to_thread.run_sync(_brought_in, arrivals, forgotten)
        known = await self._ledger.do(
            lambda tx: {row["stem"]: row["id"] for row in tx.all("SELECT id, stem FROM session WHERE grp = ?", group)}
        )
        for path in await to_thread.run_sync(_conversations, directory):
            stem = path.name.partition(".md")[0]
            async with self._alone(known.get(stem, stem)):
                changed += await to_thread.run_sync(_rewritten, path, forgotten)
        await to_thread.run_sync(_beside, self._home.group(group).root, forgotten)
        return changed

    async def _cut_journal(self) -> bool:
        for _ in range(_TRIES):
            if await to_thread.run_sync(self._ledger.checkpoint):
                return True
            await anyio.sleep(0.1)
        return False


def _conversations(directory: Path) -> list[Path]:
    """Every session file, and what was torn out of one; nothing that a link leads to."""
    return [path for path in sorted(directory.glob("*.md*")) if path.is_file() and not path.is_symlink()]


def _brought_in(arrivals: Path, forgotten: Forgotten) -> int:
    """Of all files that were brought in, whatever they are; the account of them has no text of theirs. No link is
    followed."""
    changed = 0
    if arrivals.is_symlink() or not arrivals.is_dir():
        return changed
    with keyed.alone(arrivals):
        for source in sorted(arrivals.iterdir()):
            if source.is_symlink() or not source.is_dir():
                continue
            for path, status in list(walk_beneath(source)):
                clean = without if path.startswith("sessions/") else _plain
                with suppress(FileNotFoundError, UnsafePath):
                    data = read_beneath(source, path, status.st_size)
                    if path not in _ACCOUNTS and (new := clean(data, forgotten)) != data:
                        write_atomic(source / path, new, stat.S_IMODE(status.st_mode))
                        changed += 1
    return changed


def _beside(root: Path, forgotten: Forgotten) -> None:
    """Of the files that were written of sessions: their states and journals, manifests, exports. A page that has it in
    a form of its own is taken away: it can be made again."""
    import html

    for folder, pattern in (("sessions", "*.json*"), ("manifests", "*.json"), ("exports", "*/*")):
        if (root / folder).is_symlink():
            continue
        for path in sorted((root / folder).glob(pattern)):
            with suppress(FileNotFoundError, UnsafePath):
                projecting.rewrite(root, str(path.relative_to(root)), lambda data: _plain(data, forgotten))
                shown = html.unescape(path.read_text("utf-8", "replace")) if path.suffix == ".html" else ""
                if shown and forgotten.out_of(shown) != shown:
                    path.unlink()


def _rewritten(path: Path, forgotten: Forgotten) -> bool:
    clean = without if path.suffix == ".md" else _plain
    return SessionFile(path, path.stem).rewrite(lambda data: clean(data, forgotten))


def without(data: bytes, forgotten: Forgotten) -> bytes:
    """A session's file without those texts: what a block says, what its calls were given. Headers, headings, what else
    META has, and every block that has none of them stay byte for byte."""
    starts = [match.start() for match in MARKER_LINE.finditer(data)]
    head, line, rest = data[: starts[0] if starts else len(data)].partition(b"\n")
    pieces = [head, line, _plain(rest, forgotten)]
    for start, end in pairwise([*starts, len(data)]):
        written = data[start:end]
        pieces.append(written)
        for block in parse(written, whole=False).blocks:
            calls = tuple(forgotten.out_of_value(call, _CALL) for call in block.tool_calls)
            changed = replace(block, content=forgotten.out_of(block.content), tool_calls=calls)
            if changed != block:
                bare = written.rstrip(b"\n")
                pieces[-1] = write_block(changed).rstrip(b"\n") + written[len(bare) :]
    return b"".join(pieces)


_CALL = frozenset(("id", "name", "type"))


def _plain(data: bytes, forgotten: Forgotten) -> bytes:
    return forgotten.out_of(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
