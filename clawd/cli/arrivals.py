"""What a person is shown of what was brought in: by kind and group, what was left and why, keys by their names."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from clawd.cli.page import cell

_MOST = 20  # lines of one list on a screen; --json and REPORT.md have all
_STATES = {"waits": "wait", "accepted": "in use", "left": "left"}


def show_staged(found: Mapping[str, Any]) -> None:
    from clawd.arrivals.report import KINDS

    verb = "would be" if found["dry_run"] else "is"
    head = f"From {found['home']}" + (" (nothing is written)" if found["dry_run"] else "")
    lines = [f"{head}:"]
    for group in found["groups"]:
        rows = [row for row in found["came"] if row["group"] == group]
        lines.append(f"  into group {group}")
        for kind, name in KINDS.items():
            states = Counter(row["state"] for row in rows if row["kind"] == kind)
            if states:
                lines.append(f"    {name:<14} {sum(states.values()):>6,}  ({_counted(states)})")
    if not found["came"]:
        lines.append(f"  nothing that {verb} of use here")
    changes = [f"{row['from']}: {each}" for row in found["came"] for each in row["changed"] if row["state"] != "same"]
    lines += _list("changed on the way", changes)
    lines += _list("left there, and why", (f"{row['from']}: {row['why']}" for row in found["left"]))
    lines += _list("chats there", found["chats"])
    lines += _list("who was allowed what there (not taken over)", found["allowed"])
    lines += _list("keys that were found, by name: enter anew those that you use (docs/services.md)", found["keys"])
    _write(lines)


def show_accepted(found: Mapping[str, Any]) -> None:
    from clawd.arrivals.report import KINDS

    lines = []
    groups = dict.fromkeys(row["group"] for row in found["accepted"])
    for group in groups:
        kinds = Counter(row["kind"] for row in found["accepted"] if row["group"] == group)
        said = ", ".join(f"{name} ({kinds[kind]:,})" for kind, name in KINDS.items() if kinds[kind])
        lines.append(f"In use in group {group}: {said}.")
    by_hand = (f"{row['from']}: {each}" for row in found["accepted"] for each in row["changed"])
    lines += _list("taken", by_hand)
    lines += _list("left, and why", (f"{row['from']} ({row['group']}): {row['why']}" for row in found["left"]))
    _write(lines or [f"Nothing of {found['source']} waits: all of it is in use."])


def kinds_of(row: Mapping[str, Any]) -> str:
    """The kinds of one row of `clawd bridge list`, in words."""
    from clawd.arrivals.report import KINDS

    return row["error"] or ", ".join(
        f"{KINDS.get(kind, kind)} ({_counted({_STATES[state]: n for state, n in states.items()})})"
        for kind, states in row["kinds"].items()
    )


def _counted(states: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} {state}" for state, n in states.items() if n)


def _list(head: str, each: Iterable[str]) -> list[str]:
    found = list(dict.fromkeys(each))
    more = [f"    … and {len(found) - _MOST:,} more (--json, REPORT.md)"] if len(found) > _MOST else []
    return [f"  {head}", *(f"    {' '.join(line.split())}" for line in found[:_MOST]), *more] if found else []


def _write(lines: Iterable[str]) -> None:
    sys.stdout.write("".join(f"{cell(line)}\n" for line in lines))
