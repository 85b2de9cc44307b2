"""How the context of a session stands, and what is known of it as files: read beside a daemon, or without one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawd.commands.limits import in_force
from clawd.commands.looking import session_place
from clawd.config.group import Effective
from clawd.config.home import Home
from clawd.config.load import load_config, load_group, merged
from clawd.config.schema import Config
from clawd.errors import NotFound, Refused, UnsafePath
from clawd.files import open_beneath, put_beneath
from clawd.ids import check_session_id, is_job
from clawd.ledger import contexts, groups
from clawd.ledger.db import Transaction, peek
from clawd.lifecycle import pinned
from clawd.lifecycle.journal import lines_of, object_of

if TYPE_CHECKING:
    from clawd.lifecycle.exporting import Format

Params = dict[str, Any]
LARGEST = 256 << 20  # bytes of a journal that is exported
_LAST = 1 << 20  # bytes of a journal in which its last line is


def segment(tx: Transaction, session: str) -> groups.SessionRow | None:
    """The session that is meant: the one of exactly this id where it ended, else the newest segment of its
    conversation."""
    row = contexts.find(tx, session)
    if row is not None and row["status"] in contexts.ENDED:
        exact = tx.one("SELECT * FROM session WHERE id = ?", session)
        assert exact is not None
        return groups.SessionRow(exact["id"], exact["base"], exact["segment"], exact["grp"], exact["stem"])
    return groups.meant(tx, session)


def missing(session: str, group: str | None, held: str | None) -> NotFound:
    if held is not None:
        return NotFound(f"group {group} has no session {session!r}", hint=f"it is one of group {held}")
    return NotFound(f"there is no session {session!r}", hint="clawd session list")


def place(home: Home, session: str, group: str | None) -> tuple[str, str, str]:
    """(group, stem, exact id) of a session, also of one whose file a person put there. Raises NotFound."""
    check_session_id(session)
    found = None if is_job(session) else peek(home.ledger_file, lambda tx: _placed(tx, session))
    if found is None and not is_job(session) and (dropped := session_place(home, session)) is not None:
        found = (*dropped, session)
    if found is None or group not in (None, found[0]):
        raise missing(session, group, found[0] if found is not None else None)
    return found


def _placed(tx: Transaction, session: str) -> tuple[str, str, str] | None:
    row = segment(tx, session)
    return (groups.get(tx, row.group).folder, row.stem, row.id) if row is not None else None


def status(home: Home, session: str, group: str | None = None) -> Params:
    """How a session stands, in the fields of the contract. Raises NotFound, ConfigError."""
    group, stem, id = place(home, session, group)
    config = load_config(home, dict(os.environ))
    settings = merged(config, load_group(home, group))
    shown = peek(home.ledger_file, lambda tx: standing(tx, id, group, home, config, settings))
    shown = shown if shown is not None else standing(None, id, group, home, config, settings)
    return shown | {"last_decision": last_decision(home, group, stem)}


def standing(
    tx: Transaction | None, session: str, group: str, home: Home, config: Config, settings: Effective
) -> Params:
    """How a session stands by its row and what is pinned; as a new one where it has none."""
    row = contexts.find(tx, session) if tx is not None else None
    own = (row["profile"], row["soft"], row["hard"]) if row is not None else ()
    limits = in_force(home, config, settings, *own)
    known: Mapping[str, Any] = dict(row) if row is not None else {}
    manifest, nanos = known.get("manifest_file"), known.get("nanos")
    return {
        "session": session,
        "group": group,
        "status": known.get("status", "running"),
        "stopped_reason": known.get("stopped_reason"),
        "profile": limits.profile,
        "soft": limits.soft,
        "hard": limits.hard,
        "window_tokens": known.get("window", 0),
        "cumulative_tokens": known.get("cumulative", 0),
        "estimated": bool(known.get("estimated", False)),
        "step_index": known.get("step_index", 0),
        "compact_count": known.get("compact_count", 0),
        "last_recall": known.get("last_recall"),
        "parent": known.get("parent"),
        "successor": known.get("successor"),
        "handoff_manifest": str(home.group(group).root / "manifests" / manifest) if manifest else None,
        "pending_confirm": known.get("confirm") if known.get("status") == "awaiting_confirm" else None,
        "usd": nanos / 1e9 if nanos is not None else None,
        "agent_id": known.get("agent_id") or settings.group.agent_id,
        "memory_namespace": known.get("memory_namespace") or settings.group.memory_namespace,
        "ledger": pinned.of_rows(contexts.pinned(tx, session) if tx is not None else []).as_json(),
    }


def last_decision(home: Home, group: str, stem: str) -> Params | None:
    """The last line of a session's journal that is whole."""
    root, name = home.group(group).root, f"sessions/{stem}.decisions.jsonl"
    try:
        with os.fdopen(open_beneath(root, name), "rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - _LAST, 0))
            rows = lines_of(file.read(_LAST)).rows
    except (OSError, UnsafePath):
        return None
    return rows[-1] if rows else None


def outcome(home: Home, session: str, compaction: int) -> Params | None:
    """{method, before, after, recall, state, error, status, successor} of a compaction; None where there is none."""

    def read(tx: Transaction) -> Params | None:
        row = tx.one("SELECT * FROM compaction WHERE id = ? AND session = ?", compaction, session)
        context = contexts.find(tx, session)
        if row is None or context is None:
            return None
        found = {name: row[name] for name in ("method", "before", "after", "recall", "state", "error")}
        return found | {"status": context["status"], "successor": context["successor"]}

    return peek(home.ledger_file, read)


def export(home: Home, session: str, group: str | None, format: Format) -> tuple[Params, list[str]]:
    """({session, format, files[]}, a sentence for everything that is left out). What an earlier export wrote is
    replaced. Raises NotFound, Refused for what is too large, UnsafePath, StorageError."""
    from clawd.lifecycle import exporting

    group, stem, id = place(home, session, group)
    root = home.group(group).root
    metrics, decisions, state = (
        _read(root, f"sessions/{stem}.{name}") for name in ("metrics.jsonl", "decisions.jsonl", "state.json")
    )
    account = exporting.Account(id, group, object_of(state), lines_of(metrics), lines_of(decisions))
    written = []
    for name, data in exporting.files_of(account, format).items():
        relative = f"exports/{stem}/{name}"
        if (root / relative).is_symlink():
            raise UnsafePath(f"groups/{group}/{relative} is a link; remove it by hand")
        put_beneath(root, relative, data)
        written.append(str(root / relative))
    return {"session": id, "format": format, "files": written}, exporting.notes_of(account)


def _read(root: Path, relative: str) -> bytes:
    """All of a file; nothing where there is none."""
    try:
        with os.fdopen(open_beneath(root, relative), "rb") as file:
            if os.fstat(file.fileno()).st_size > LARGEST:
                raise Refused(f"{root / relative} is larger than {LARGEST >> 20} MB")
            return file.read(LARGEST)
    except FileNotFoundError:
        return b""
