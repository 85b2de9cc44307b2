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
    verb = "would be" if found["dry_run"] else "is"
    head = f"From {found['home']}" + (" (nothing is written)" if found["dry_run"] else "")
    lines = [f"{head}:"]
    for group in found["groups"]:
        rows = [row for row in found["came"] if row["group"] == group]
        new = " (a new one)" if group in found["made"] else ""
        lines.append(f"  into group {group}{new}: groups/{group}/import/{found['source']}/")
        lines += by_kind(rows)
    if not found["came"]:
        lines.append(f"  nothing that {verb} of use here")
    changes = [f"{row['from']}: {each}" for row in found["came"] for each in row["changed"] if row["state"] != "same"]
    lines += listed("changed on the way", changes)
    lines += listed("left there, and why", (f"{row['from']}: {row['why']}" for row in found["left"]))
    lines += listed("chats there", found["chats"])
    lines += listed("who was allowed what there (not taken over)", found["allowed"])
    lines += listed("keys that were found, by name: enter anew those that you use (docs/services.md)", found["keys"])
    write(lines)


def next_step(found: Mapping[str, Any]) -> str:
    """What there is to do about what was brought in; empty where nothing came."""
    waits = sum(row["use"] == "waits" for row in found["came"])
    if not waits:
        return "Nothing of it waits: clawd bridge list says what is in use, and what was left." if found["came"] else ""
    some = waits < len(found["came"])
    whole = (f"What waits ({waits:,}) is not" if some else "Nothing of it is") + " used yet."
    reports = " and ".join(f"groups/{each}/import/{found['source']}/REPORT.md" for each in found["groups"][:3])
    return f"{whole} Read {reports}, then: clawd bridge accept {found['source']}"


def show_accepted(found: Mapping[str, Any]) -> None:
    from clawd.arrivals.report import KINDS

    lines = []
    groups = dict.fromkeys(row["group"] for row in found["accepted"])
    for group in groups:
        kinds = Counter(row["kind"] for row in found["accepted"] if row["group"] == group)
        said = ", ".join(f"{name} ({kinds[kind]:,})" for kind, name in KINDS.items() if kinds[kind])
        lines.append(f"In use in group {group}: {said}.")
    by_hand = (f"{row['from']}: {each}" for row in found["accepted"] for each in row["changed"])
    lines += listed("taken", by_hand)
    lines += listed("left, and why", (f"{row['from']} ({row['group']}): {row['why']}" for row in found["left"]))
    write(lines or [f"Nothing of {found['source']} waits: all of it is in use."])


def kinds_of(row: Mapping[str, Any]) -> str:
    """The kinds of one row of `clawd bridge list`, in words."""
    from clawd.arrivals.report import KINDS

    return row["error"] or ", ".join(
        f"{KINDS.get(kind, kind)} ({_counted({_STATES[state]: n for state, n in states.items()})})"
        for kind, states in row["kinds"].items()
    )


def by_kind(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """How many of each kind, and how they compare with what was there."""
    from clawd.arrivals.report import KINDS

    states: dict[str, Counter[str]] = {}
    for row in rows:
        states.setdefault(row["kind"], Counter())[row["state"]] += 1
    return [
        f"    {name:<14} {states[kind].total():>6,}  ({_counted(states[kind])})"
        for kind, name in KINDS.items()
        if kind in states
    ]


def _counted(states: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} {state}" for state, n in states.items() if n)


def listed(head: str, each: Iterable[str]) -> list[str]:
    """A list with its head, cut; empty where there is nothing."""
    found = list(dict.fromkeys(each))
    more = [f"    … and {len(found) - _MOST:,} more (--json has all)"] if len(found) > _MOST else []
    return [f"  {head}", *(f"    {' '.join(line.split())}" for line in found[:_MOST]), *more] if found else []


def write(lines: Iterable[str]) -> None:
    sys.stdout.write("".join(f"{cell(line)}\n" for line in lines))
