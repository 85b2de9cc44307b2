"""`clawd context status|compact|handoff|signal|export|decide|calibrate`."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from typing import Any

from clawd.cli.clean import clean
from clawd.cli.page import cell, give, say, write_json
from clawd.cli.patience import patiently
from clawd.commands import writing
from clawd.config.home import Home
from clawd.errors import ClawdError, UsageError
from clawd.lifecycle.compaction import EARLY, EMPTY

PATIENCE_S, PAUSE_S, ALIVE_S = 900.0, 0.2, 5.0  # a summary by a model may take minutes
_OVER = ("written", "failed")
_DOING = {"compact": "compacted", "handoff": "handed over"}


def status(options: Namespace, home: Home) -> int:
    from clawd.commands import standing

    found = standing.status(home, options.session, options.group)
    if options.json:
        write_json(found)
        return 0
    ledger, last = found.pop("ledger"), found.pop("last_decision")
    found["estimated"] = "yes, by length" if found["estimated"] else "no"
    give({name: value for name, value in found.items() if value is not None}, False)
    if last is not None:
        sys.stdout.write(cell(f"last decision: {last.get('action')}, {last.get('trigger')}") + "\n")
    for name, each in ledger.items():
        for line in each if isinstance(each, list) else filter(None, [each]):
            sys.stdout.write(f"{name.replace('_', ' ')}: {clean(line)}\n")
    return 0


def compact(options: Namespace, home: Home) -> int:
    """1 when it was tried and nothing came of it; 0 where there was nothing to leave out."""
    found = _asked(options, home, "compact")
    shown = {name: found[name] for name in ("session", "action", "trigger", "state")}
    shown |= {"method": None, "before": None, "after": None, "recall": None, "successor": found["successor"]}
    if found["compaction"] is not None:
        shown |= _waited(home, found)
    error = shown.pop("error", None)
    if error is not None and (options.json or shown["successor"] is not None):  # else it is in the sentence
        say(error)
    if options.json:
        write_json(shown)
    else:
        shown["error"] = error
        sys.stdout.write(cell(_told(shown)) + "\n")
    return 1 if shown["state"] == "failed" and shown["successor"] is None else 0


def handoff(options: Namespace, home: Home) -> int:
    found = _asked(options, home, "handoff")
    stands = _handed_over(home, found["session"]) if found["successor"] is not None else {}
    shown = {
        "session": found["session"],
        "successor": found["successor"],
        "handoff_manifest": stands.get("handoff_manifest"),
        "state": "written" if found["successor"] is not None else found["state"],
    }
    if options.json:
        write_json(shown)
    else:
        sys.stdout.write(cell(_told(found)) + "\n")
    return 0


def signal(options: Namespace, home: Home) -> int:
    found = writing.call(home, "context.signal", session=options.session, group=options.group, phase_done=True)
    if options.json:
        write_json(found)
    else:
        sys.stdout.write(cell(f"session {found['session']} is handed over after its next turn") + "\n")
    return 0


def export(options: Namespace, home: Home) -> int:
    from clawd.commands import standing

    with patiently(lambda: f"exporting {options.session} …"):
        found, notes = standing.export(home, options.session, options.group, options.format)
    if options.json:
        write_json(found)
    else:
        sys.stdout.write("".join(f"{clean(file)}\n" for file in found["files"]))
    for note in notes:
        say(note)
    return 0


def decide(options: Namespace, home: Home) -> int:
    from clawd.commands import limits

    found = limits.decide(home, options.tokens, options.profile, options.phase_done, options.group)
    notes = found.pop("notes")
    give(found, options.json)
    for note in notes:
        say(note)
    return 0


def calibrate(options: Namespace, home: Home) -> int:
    from clawd.commands import limits

    found = limits.calibrate(home, options.profile, options.group, write=options.write)
    said = found.pop("said")
    give(found, options.json)
    say(said)
    return 0


def _asked(options: Namespace, home: Home, wish: str) -> dict[str, Any]:
    """What the operation says, once it has the yes that it may want. Raises UsageError without one."""
    call = {"session": options.session, "group": options.group}
    found: dict[str, Any] = writing.call(home, f"context.{wish}", **call, yes=bool(options.yes))
    if found["state"] == "unconfirmed":
        _confirm(found)
        found = writing.call(home, f"context.{wish}", **call, yes=True)
    return found


def _confirm(found: dict[str, Any]) -> None:
    doing = f"session {found['session']} is to be {_DOING[found['action']]}"
    if not sys.stdin.isatty():
        raise UsageError(f"{doing}, and its group wants a yes first", hint="say it again with --yes")
    sys.stderr.write(clean(f"{doing} ({found['trigger']}). Go on? [y/N] "))
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError(f"it was not confirmed: {doing}, and nothing was done")


def _waited(home: Home, found: dict[str, Any]) -> dict[str, Any]:
    """What became of a compaction; as it is when that takes too long, or no daemon goes on with it."""
    from clawd.commands import standing
    from clawd.control.client import NoDaemon

    session, began, asked = found["session"], time.monotonic(), time.monotonic()
    with patiently(lambda: f"compacting {session} …"):
        while True:
            now = standing.outcome(home, session, found["compaction"])
            if now is None:
                raise ClawdError(f"the compaction of session {session} is gone", hint="clawd context status")
            if now["state"] in _OVER or not found["waits"] or time.monotonic() - began > PATIENCE_S:
                break
            if time.monotonic() - asked > ALIVE_S:
                asked = time.monotonic()
                try:
                    writing.ask(home, "status")
                except NoDaemon:
                    break
            time.sleep(PAUSE_S)
    now.pop("status")
    now["error"] = now["error"] if now["state"] == "failed" else None
    if now["error"] in (EARLY, EMPTY):
        now |= {"state": "unchanged", "after": now["before"]}
    if now["state"] not in _OVER and now["state"] != "unchanged":
        now["state"] = "waits"
    return now


def _handed_over(home: Home, session: str) -> dict[str, Any]:
    from clawd.commands import standing

    return standing.status(home, session)


def _told(found: dict[str, Any]) -> str:
    """What happened, in a sentence."""
    session, state = found["session"], found["state"]
    doing = _DOING[found["action"]]
    if state == "later":
        return f"session {session} is at work: it is {doing} when the turn ends"
    if state == "asked":
        return f"session {session} is {doing} once the chat says yes: clawd approvals list"
    if found["successor"] is not None:
        return f"session {session} was handed over ({found['trigger']}): it goes on as {found['successor']}"
    if state == "written":
        recall = f", recall {found['recall']:.2f}" if found["recall"] is not None else ""
        return (
            f"session {session}: {found['before']:,} tokens are {found['after']:,} now (by {found['method']}{recall})"
        )
    if state in ("failed", "unchanged"):
        return f"session {session} is as it was: {found['error'] or 'nothing came of it'}"
    return f"session {session} is {doing} as soon as a daemon runs: clawd run"
