"""What a person is shown of what went to another agent's home: how much by kind, what was left and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clawd.cli.arrivals import by_kind, listed, write


def show_exported(found: Mapping[str, Any]) -> None:
    lines = [_head(f"To {found['home']}, from group {found['group']}", found), *by_kind(found["wrote"])]
    if not found["wrote"]:
        lines.append("  nothing that it has a place for")
    write([*lines, *_changed(found["wrote"]), *_left(found)])


def show_synced(found: Mapping[str, Any]) -> None:
    lines = [_head(f"Between {found['home']} and group {found['group']}", found)]
    for head, rows in (("from there", found["came"]), ("to there", found["wrote"])):
        lines += [f"  {head}", *(by_kind(rows) or ["    nothing"])]
    write([*lines, *_changed([*found["came"], *found["wrote"]]), *_left(found)])


def show_for_claude_code(found: Mapping[str, Any]) -> None:
    lines = [_head(f"To {found['directory']}, from group {found['group']}", found)]
    lines += [f"    {name:<14} {len(found[name]):>6,}" for name in ("written", "same", "removed") if found[name]]
    memories = found["memories"]
    private = f", {memories['private']:,} of them from private chats" if memories["private"] else ""
    lines.append(f"    {'memories':<14} {memories['written']:>6,}{private}")
    lines += listed("written", found["written"])
    lines += listed("removed", found["removed"])
    write([*lines, *listed("left, and why", (f"{row['path']}: {row['why']}" for row in found["left"]))])


def _head(said: str, found: Mapping[str, Any]) -> str:
    return f"{said} (nothing is written):" if found["dry_run"] else f"{said}:"


def _changed(rows: list[dict[str, Any]]) -> list[str]:
    return listed(
        "changed on the way",
        (f"{row['from']}: {each}" for row in rows if row["state"] != "same" for each in row["changed"]),
    )


def _left(found: Mapping[str, Any]) -> list[str]:
    return listed("left, and why", (f"{row['from']}: {row['why']}" for row in found["left"]))
