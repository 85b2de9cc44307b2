"""Putting a backup back: into a tree that lies aside, then in the place of the present one, which is kept.

Up to the journal, `state/restoring.json`, nothing of the home was touched: a crash leaves the old tree. From it on the
new one is meant: whoever holds the home's lock next finishes it (`finish`), step by step, each of which does nothing
when it was done. No daemon runs meanwhile: the lock is held.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import Any

from clawd import faults
from clawd.backups import reading, settling
from clawd.backups.index import Index
from clawd.backups.making import LEDGER, Room
from clawd.clock import Clock, rfc3339
from clawd.config.home import Home
from clawd.errors import DiskFull, HomeBusy, NotFound, Refused, StorageError, UsageError
from clawd.files import sync_directory, write_atomic
from clawd.ids import is_group_name
from clawd.ledger import groups, moved
from clawd.ledger.db import Ledger
from clawd.ledger.groups import UID_BASE
from clawd.ledger.restored import Settled
from clawd.locks import HomeLock

JOURNAL = "restoring.json"
RESTORING = ".restoring-"
PIECES = (
    "config.toml", "people.toml", "skills", "groups", "state/ledger.db", "state/blobs", "state/audit",
    "state/calibrations",
)  # fmt: skip
DERIVED = ("state/ledger.db-wal", "state/ledger.db-shm", "state/index")
_WAIT_S = 10.0

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Restored:
    """What was put back, and where that lies which it replaced."""

    index: Index
    group: str | None
    files: int
    replaced: Path | None = None
    notes: list[str] = field(default_factory=list)


def restore(
    home: Home,
    archive: Path,
    clock: Clock,
    *,
    group: str | None = None,
    keep_free: int = 0,
    progress: Progress = lambda done, total: None,
) -> Restored:
    """Put back all of an archive, or one group of it. Raises NotFound, Refused, HomeBusy, DiskFull, StorageError: then
    the home is as it was."""
    verdict = reading.verify(archive, progress)
    if verdict.index is None or not verdict.ok:
        if verdict.index is None:
            reading.extract(archive, home.backups, lambda path: False, progress)  # its own sentence
        raise Refused(f"{archive} is not sound: {verdict.errors[0]}", hint="clawd backup verify ARCHIVE says all")
    group = chosen(verdict.index, group)
    home.create()
    lock = HomeLock(home.lock_file)
    lock.acquire()
    try:
        finish(home)
        return _restore(home, archive, clock, verdict.index, group, keep_free, progress)
    except OSError as error:
        raise StorageError(
            f"it was not restored: {error.strerror or error} ({error.filename or home.backups})",
            hint="free some space or mend the file's rights; what had begun is finished by the next command",
        ) from error
    finally:
        lock.release()


def chosen(index: Index, group: str | None) -> str | None:
    """The group that is to be restored, None for a home. Raises UsageError, NotFound."""
    head = index.head
    if head.kind == "group":
        if group not in (None, head.group):
            raise UsageError(f"the archive is of group {head.group!r}; a group is restored under its own name")
        return head.group
    if group is not None and f"groups/{group}" not in index.folders:
        raise NotFound(f"the archive has no group {group!a}; it has {', '.join(head.groups) or 'none'}")
    return group


def _restore(
    home: Home, archive: Path, clock: Clock, index: Index, group: str | None, keep_free: int, progress: Progress
) -> Restored:
    _one_disk(home)
    if not Room(home.backups, keep_free).has(index.bytes):
        raise DiskFull(
            f"the disk that holds {home.backups} has no room for {index.bytes:,} bytes more"
            " ([retention] keep_free stays free)",
            hint="free some space; nothing was changed",
        )
    sweep(home)
    stage = home.backups / f"{RESTORING}{secrets.token_hex(6)}"
    new = stage / "new"
    new.mkdir(mode=0o700, parents=True)
    stage.chmod(0o700)
    try:
        done = _stage(home, archive, clock, index, group, new, progress)
        faults.passing("restore-staged")
        moment = clock.now().astimezone(UTC)
        kept = _free(home.backups / "-".join(filter(None, (f"replaced-{moment:%Y%m%dT%H%M%SZ}", group))))
        os.sync()
        write_atomic(home.state / JOURNAL, _journal(stage, kept, group, rfc3339(clock.now())))
    except BaseException:
        _remove(stage)
        raise
    faults.passing("restore-decided")
    done.notes += finish(home)
    done.replaced = kept if kept.exists() else None
    return done


def _stage(
    home: Home, archive: Path, clock: Clock, index: Index, group: str | None, new: Path, progress: Progress
) -> Restored:
    """Everything that can be refused is done here."""

    def wanted(path: str) -> bool:
        if group is None:
            return True
        whose = path == f"groups/{group}" or path.startswith(f"groups/{group}/")
        return whose or (path.startswith("state/") and path.count("/") == 1)

    index = reading.extract(archive, new, wanted, progress)
    files = sum(map(wanted, index.files))
    (new / "groups").mkdir(mode=0o700, exist_ok=True)
    (new / "state").mkdir(mode=0o700, exist_ok=True)
    (new / "groups").chmod(0o700)
    done = Restored(index, group, files)
    settling.trust_lines(home, new, group, new.parent / "trust.jsonl")
    if group is None:
        settled, asked = settling.home_ledger(home, new, clock)
        done.notes += _notes(home, new, settled, asked)
        _own(new, index, new / LEDGER)
    else:
        (new / "groups" / group).mkdir(mode=0o700, exist_ok=True)
        rows, said = settling.group_rows(index, new, group), settling.known(new)
        ledger = Ledger.open(home.ledger_file, home.backups)
        try:
            ledger.tx(lambda tx: moved.check(tx, group, rows))
        finally:
            ledger.close()
        facts = {"rows": rows, "known": said, "agent": any(each.agent for each in index.folders.values())}
        (new.parent / "rows.json").write_text(json.dumps(facts), "ascii")
    return done


def _notes(home: Home, new: Path, settled: Settled, asked: bool) -> list[str]:
    notes = []
    if settled.messages:
        which = ", ".join(map(str, settled.messages[:20])) + (" …" if len(settled.messages) > 20 else "")
        notes.append(
            f"{len(settled.messages)} messages had no answer yet in the backup ({which}): they may have been answered"
            " since, so they have failed; clawd messages retry ID tries one again"
        )
    if settled.deliveries:
        notes.append(f"{settled.deliveries} messages were on their way out in the backup: they are not sent again")
    if settled.approvals:
        notes.append(f"{settled.approvals} approvals were open in the backup: they are void")
    if settled.since:
        notes.append(f"{settled.since} messages came in since the backup: they are known, and not answered again")
    if settled.unanswered:
        notes.append(f"{settled.unanswered} of those had no answer yet: whoever sent them must send them again")
    if not asked:
        notes.append(
            "the present ledger cannot be read: a channel may bring what came in since the backup once more, and how"
            " far sessions have fallen since is not known"
        )
    if not _same(home.people_file, new / "people.toml"):
        notes.append("people.toml is the backup's: clawd people list says who may speak now")
    notes += [f"the backup has no {piece}: the present one stays" for piece in PIECES[:3]
              if (home.root / piece).exists() and not (new / piece).exists()]  # fmt: skip
    return notes


def _same(one: Path, other: Path) -> bool:
    try:
        return not other.exists() or one.read_bytes() == other.read_bytes()
    except OSError:
        return False


def _own(new: Path, index: Index, ledger_file: Path) -> None:
    """Where the daemon may give files away, a group's user has its own again."""
    if os.geteuid() != 0:
        return
    ledger = Ledger.read_only(ledger_file)
    try:
        numbers = {row.folder: UID_BASE + row.number for row in ledger.tx(groups.every)}
    finally:
        ledger.close()
    reading.give(new, index, numbers.get)


# ── from the journal on ──


def _journal(stage: Path, kept: Path, group: str | None, now: str) -> bytes:
    return json.dumps({"schema": 1, "stage": stage.name, "kept": kept.name, "group": group, "at": now}).encode()


def is_unfinished(home: Home) -> bool:
    """Whether a restore was decided and is not over."""
    return (home.state / JOURNAL).exists()


def finish_alone(home: Home) -> None:
    """Finish a restore that was cut off, under the home's lock. Raises HomeBusy where somebody else keeps it."""
    deadline = time.monotonic() + _WAIT_S
    while is_unfinished(home):
        lock = HomeLock(home.lock_file)
        try:
            lock.acquire()
        except HomeBusy:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
            continue
        try:
            finish(home)
        finally:
            lock.release()


def finish(home: Home) -> list[str]:
    """Finish a restore that was decided; whoever calls holds the home's lock. Gives sentences of what is not as it was.
    Raises Refused where what it needs is gone."""
    try:
        said = json.loads((home.state / JOURNAL).read_bytes())
        stage, kept, group = home.backups / said["stage"], home.backups / said["kept"], said["group"]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError):
        raise Refused(f"{home.state / JOURNAL} cannot be read", hint="it is clawd's own: keep it, and ask") from None
    new, notes = stage / "new", list[str]()
    if group is not None and not is_group_name(group):
        raise Refused(f"{home.state / JOURNAL} names no group")
    if not stage.exists():
        raise Refused(
            f"{stage}, which {home.state / JOURNAL} speaks of, was taken away before the restore was over",
            hint=f"move back what lies in {kept}, then remove {home.state / JOURNAL}",
        )
    kept.mkdir(mode=0o700, exist_ok=True)
    if (stage / "trust.jsonl").exists():
        settling.tell_trust(home, stage / "trust.jsonl")
    faults.passing("restore-trust")
    if group is not None:
        notes = _take_rows(home, stage, group, said["at"])
    faults.passing("restore-ledger")
    for piece in (*DERIVED,) if group is None else _indexes(home, group):
        _set_aside(home.root / piece, kept / piece)
    for piece in PIECES if group is None else (f"groups/{group}",):
        _swap(new / piece, home.root / piece, kept / piece)
        faults.passing("restore-moved")
    for directory in (home.root, home.groups, home.state, home.backups):
        sync_directory(directory)
    faults.passing("restore-swapped")
    (home.state / JOURNAL).unlink()
    sync_directory(home.state)
    _remove(stage)
    with suppress(OSError):
        kept.rmdir()  # nothing was replaced
    return notes


def _take_rows(home: Home, stage: Path, group: str, now: str) -> list[str]:
    facts: dict[str, Any] = json.loads((stage / "rows.json").read_bytes())
    ledger = Ledger.open(home.ledger_file, home.backups)
    try:
        notes = ledger.tx(lambda tx: moved.put(tx, group, facts["rows"], facts["known"], now))
        row = ledger.tx(lambda tx: groups.get(tx, group))
    finally:
        ledger.close()
    if facts["agent"] and os.geteuid() == 0 and (work := stage / "new" / "groups" / group / "work").is_dir():
        _chown(work, UID_BASE + row.number)
    return notes


def _chown(work: Path, uid: int) -> None:
    """Of a group's work tree, which lies in a directory of ours alone."""
    with suppress(OSError):
        for path in (work, *work.rglob("*")):
            os.chown(path, uid, uid, follow_symlinks=False)


def _indexes(home: Home, group: str) -> list[str]:
    return [str(path.relative_to(home.root)) for path in sorted((home.state / "index").glob(f"{group}.db*"))]


def _set_aside(there: Path, kept: Path) -> None:
    if os.path.lexists(there):
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        there.rename(_free(kept))


def _swap(new: Path, there: Path, kept: Path) -> None:
    """Once `new` is gone, it is done."""
    if not os.path.lexists(new):
        return
    if not os.path.lexists(kept) or (there.is_dir() and any(there.iterdir())):
        _set_aside(there, kept)
    there.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    faults.passing("restore-between")
    new.rename(there)  # what a command made there meanwhile is an empty directory


def _free(path: Path) -> Path:
    number, free = 1, path
    while os.path.lexists(free):
        number += 1
        free = path.with_name(f"{path.name}.{number}")
    return free


def _one_disk(home: Home) -> None:
    places = [place for place in (home.root, home.groups, home.skills, home.state, home.backups) if place.exists()]
    if len({place.stat().st_dev for place in places}) > 1:
        raise Refused(
            f"the folders of {home.root} lie on several disks, so nothing of it can be exchanged at once",
            hint="restore into a new home on one disk, and move it: clawd init DIR",
        )


def sweep(home: Home) -> None:
    """Take away what a restore left that was killed before it was decided; whoever calls holds the home's lock."""
    for path in home.backups.glob(f"{RESTORING}*"):
        _remove(path)


def _remove(tree: Path) -> None:
    def again(function: Any, path: str, _: Any) -> None:
        with suppress(OSError):
            Path(path).parent.chmod(0o700)
            function(path)

    shutil.rmtree(tree, onerror=again)
