"""What is behind `clawd backup`: thin, and in the command's own process. A daemon has no part in it: making one only
reads, and nothing is put back while a daemon runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clawd.backups import making, reading, restoring
from clawd.backups.index import Unsound
from clawd.clock import SystemClock
from clawd.config.home import Home
from clawd.config.load import load_config
from clawd.config.schema import Retention
from clawd.errors import ClawdError, Refused

Progress = Callable[[int, int], None]


def create(home: Home, group: str | None, label: str | None, to: str | None, progress: Progress) -> dict[str, Any]:
    """→ {archive, kind, group|null, label|null, files, bytes, skipped[{path, why}]}. Raises ClawdError."""
    made = making.create(
        home, SystemClock(), group=group, label=label, to=Path(to) if to else None, keep_free=_keep_free(home),
        progress=progress,
    )  # fmt: skip
    head = made.index.head
    return {
        "archive": str(made.archive),
        "kind": head.kind,
        "group": head.group,
        "label": head.label,
        "files": len(made.index.files),
        "bytes": made.index.bytes,
        "skipped": [{"path": each.path, "why": each.why} for each in made.skipped],
    }


def verify(home: Home, archive: str, progress: Progress) -> dict[str, Any]:
    """→ {ok, archive, kind|null, group|null, files, bytes, errors[]}. Raises NotFound, StorageError."""
    verdict = reading.verify(place(home, archive), progress)
    index = verdict.index
    return {
        "ok": verdict.ok,
        "archive": str(verdict.archive),
        "kind": index.head.kind if index else None,
        "group": index.head.group if index else None,
        "files": len(index.files) if index else 0,
        "bytes": index.bytes if index else 0,
        "errors": verdict.errors,
    }


def restore(home: Home, archive: str, group: str | None, progress: Progress) -> dict[str, Any]:
    """→ {restored, kind, group|null, files, replaced|null, notes[]}. Raises ClawdError."""
    path = place(home, archive)
    done = restoring.restore(
        home, path, SystemClock(), group=group, keep_free=_keep_free(home), progress=progress
    )  # fmt: skip
    return {
        "restored": str(path),
        "kind": done.index.head.kind if group is None else "group",
        "group": done.group,
        "files": done.files,
        "replaced": str(done.replaced) if done.replaced else None,
        "notes": done.notes,
    }


def what_of(home: Home, archive: str, group: str | None) -> str:
    """What a restore would put back, in words. Raises ClawdError."""
    path = place(home, archive)
    try:
        head = reading.index_of(path).head
    except Unsound as error:
        raise Refused(f"{path} is not sound: {error.message}", hint=f"clawd backup verify {path}") from None
    chosen = group or head.group
    return f"{f'group {chosen}' if chosen else 'the whole home'} as it was at {head.created}"


def listed(home: Home) -> list[dict[str, Any]]:
    """→ [{name, kind|null, group|null, label|null, created|null, files, bytes, size, groups[], error|null}], the newest
    first."""
    rows = []
    for path in sorted(home.backups.glob("*.tar.gz"), reverse=True) if home.backups.is_dir() else ():
        if path.name.startswith("."):
            continue
        index, error = None, None
        try:
            index = reading.index_of(path)
        except ClawdError as wrong:
            error = wrong.message
        head = index.head if index else None
        rows.append(
            {
                "name": path.name,
                "kind": head.kind if head else None,
                "group": head.group if head else None,
                "label": head.label if head else None,
                "created": head.created if head else None,
                "files": len(index.files) if index else 0,
                "bytes": index.bytes if index else 0,
                "size": path.stat().st_size,
                "groups": list(head.groups) if head else [],
                "error": error,
            }
        )
    return rows


def place(home: Home, archive: str) -> Path:
    """Where an archive lies: as its path says, else by its name in `state/backups`."""
    path = Path(archive).expanduser()
    if not path.exists() and path.name == archive and (known := home.backups / archive).exists():
        return known
    return path.absolute()


def _keep_free(home: Home) -> int:
    """A config that cannot be read keeps nobody from making it whole again."""
    try:
        return load_config(home, dict(os.environ)).retention.keep_free
    except ClawdError:
        return Retention().keep_free
