"""The tools that engines share. Those of the sandbox are here; every other name is a tool of the daemon.

A tool gives text and never raises for what the agent did: what went wrong is a sentence in brackets. After a crash only
what reads, and what may be done twice, is done again: nobody knows how far the rest came. The daemon's tools know their
own repeats."""

from __future__ import annotations

import json

from agent.tools import arguments, child, files
from agent.tools.output import bound, cut

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agent.turn import Turn

INTERRUPTED = "[interrupted: the sandbox ended while this ran. It was not run again.]"
_REQUESTS = ("GET", "HEAD")


def only_reads(name: str, given: dict[str, Any]) -> bool:
    """Whether a call changes nothing: it may run beside others, and again."""
    if name == "fetch":
        return str(given.get("method", "GET")).upper() in _REQUESTS
    return name in ("read", "glob", "grep")


def run(turn: Turn, name: str, given: dict[str, Any], nth: int, resumed: bool) -> str:
    """The result of one tool call. `resumed`: an earlier attempt may have begun it. Raises Stopped and
    LeaseLost."""
    takes = arguments.schema(name)
    if takes is None:
        return cut(turn.host_tool(name, given, nth), bound(turn))
    wrong = arguments.wrong(name, takes, given)
    if wrong:
        return wrong
    if name == "jot":  # looks whether its line is there
        return files.note(turn, given["line"], resumed)
    # What is written again is the same; an edit would find its own text.
    if resumed and name != "write" and not only_reads(name, given):
        return INTERRUPTED
    if name in ("glob", "grep"):
        return child.program(turn, "search.py", name, str(bound(turn)), json.dumps(given))
    if name == "fetch":
        return child.program(turn, "fetch.py", turn.place.gateway, json.dumps(given))
    tool = {"bash": child.bash, "read": files.read, "write": files.write, "edit": files.edit, "sleep": sleep}[name]
    return tool(turn, **given)


def sleep(turn: Turn, seconds: float) -> str:
    longest = float(turn.limits["tool_s"])
    turn.pause(min(float(seconds), longest))
    return f"[The wait was ended after {longest:g} s.]" if seconds > longest else f"slept {seconds:g} s"
