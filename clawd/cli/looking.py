"""The commands that only look: they read the ledger and the files, whether a daemon runs or not."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from clawd.cli.clean import clean
from clawd.cli.page import COLOURS, cell, console, give, say, settled, table, when, write_json
from clawd.config.home import Home
from clawd.errors import UsageError

_DELIVERY = ("id", "turn", "channel", "chat", "n", "kind", "state", "platform_id", "attempts", "error")
_MESSAGE = ("id", "group", "session", "sender", "state", "turn", "attempt", "received", "reason")


def status(options: Namespace, home: Home) -> int:
    """The daemon's own word where it answers, else what the home shows."""
    from clawd.commands import looking, writing
    from clawd.control.client import NoDaemon

    try:
        value = writing.ask(home, "status")
    except NoDaemon:
        value = settled(looking.status(home))
        say("no daemon runs now; clawd chat starts one for the time of a conversation")
    give(value, options.json)
    return 0


def doctor(options: Namespace, home: Home) -> int:
    """1 when something is an error."""
    from clawd import health

    findings = settled(health.recover(home) if options.recover else health.doctor(home))
    if options.json:
        write_json(findings)
    else:
        _say_findings(findings)
    return 1 if any(finding["level"] == "error" for finding in findings) else 0


def _say_findings(findings: Sequence[dict[str, Any]]) -> None:
    """One finding a line, and beneath it the command that mends it."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    for column in (True, True, False):
        grid.add_column(no_wrap=column, overflow="fold")
    for each in findings:
        message, command = cell(each["message"]), each["command"]
        grid.add_row(
            Text(each["level"], style=COLOURS[each["level"]]),
            cell(each["check"]),
            message + (f"\n→ {cell(command)}" if command else ""),
        )
    console().print(grid)


def groups(options: Namespace, home: Home) -> int:
    from clawd.commands import looking

    columns = ("group", "sessions", "bindings", "engine", "backend", "authority", "taint")
    give(settled(looking.groups(home)), options.json, columns, "no groups yet: clawd chat makes the first")
    return 0


def group(options: Namespace, home: Home) -> int:
    from clawd.commands import looking

    give(settled(looking.group(home, options.group)), options.json)
    return 0


def messages(options: Namespace, home: Home) -> int:
    from clawd.commands import looking

    found = settled(looking.messages(home, options.group, options.state, options.limit))
    give(found, options.json, _MESSAGE, "no messages", beneath=("reason",))
    return 0


def message(options: Namespace, home: Home) -> int:
    from clawd.commands import looking

    found = settled(looking.message(home, options.id))
    if options.json:
        write_json(found)
        return 0
    apart = ("forgotten", "parts", "wakes", "steps", "deliveries")
    give({key: value for key, value in found.items() if key not in apart}, False)
    if found["forgotten"]:
        say(f"its text has left the ledger; what the conversation keeps: clawd session show {found['session']}")
    sys.stdout.write("\n")
    for part in found["parts"]:
        _say_block(part["origin"], None, part["text"])
    for step in found["steps"]:
        _say_block(step["role"], step.get("at"), step.get("content"), step.get("tool_calls"))
    wakes = ("id", "kind", "authority", "trust", "origin", "state", "why")
    table(found["wakes"], wakes, "no wakes", beneath=("why",))
    sys.stdout.write("\n")
    table(found["deliveries"], _DELIVERY, "no deliveries", beneath=("error",))
    return 0


def _say_block(
    who: str, moment: str | None, content: str | None, calls: Sequence[dict[str, Any]] | None = None, margin: str = ""
) -> None:
    """A message as one would read it: who and when, what was said, which tools were called. With a `margin` before each
    line nothing that was said looks like another message."""
    console().print(cell(who) + (f"  {when(moment)}" if moment else ""), style="bold")
    lines = [content] if content else []
    for call in calls or ():
        function = call.get("function") or call
        lines.append(f"→ {function.get('name')} {function.get('arguments')}")
    text = clean("".join(f"{line}\n" for line in lines))
    sys.stdout.write("".join(f"{margin}{line}\n" for line in text.split("\n")[:-1]) + "\n")
    sys.stdout.flush()


def deliveries(options: Namespace, home: Home) -> int:
    from clawd.commands import looking

    give(settled(looking.deliveries(home)), options.json, _DELIVERY, "no deliveries", beneath=("error",))
    return 0


def sessions(options: Namespace, home: Home) -> int:
    from clawd.commands import looking

    columns = ("session", "group", "messages", "bytes", "updated", "file")
    found = settled(looking.sessions(home, options.group, options.session))
    give(found, options.json, columns, "no sessions", beneath=("file",))
    return 0


def session(options: Namespace, home: Home) -> int:
    """The conversation, as one would read it."""
    from clawd.commands import looking

    blocks = settled(looking.session_blocks(home, _session(options)))
    if options.json:
        write_json(blocks)
        return 0
    say_blocks(blocks)
    return 0


def say_blocks(blocks: list[dict[str, Any]]) -> None:
    """A conversation as one would read it."""
    for block in blocks:
        outside = "from" in block
        who = f"{block['role']} (from outside)" if outside else block["role"]
        _say_block(who, block["ts"], block["content"], block.get("tool_calls"), "│ " if outside else "")


def _session(options: Namespace) -> str:
    """The one that is named, by its place or by --session. Raises UsageError."""
    named = {each for each in (options.id, options.session) if each is not None}
    if len(named) != 1:
        raise UsageError("name one session" if named else "name the session", hint="clawd session list")
    return str(*named)


def session_check(options: Namespace, home: Home) -> int:
    """1 when the file is not valid."""
    from clawd.commands import looking

    found = settled(looking.session_check(home, _session(options)))
    give(found, options.json)
    return 0 if found["ok"] else 1


def channels(options: Namespace, home: Home) -> int:
    """How each channel is, by what was heard of it."""
    from clawd.commands import channels as known
    from clawd.commands import writing
    from clawd.control.client import NoDaemon

    try:
        rows = writing.ask(home, "channels.list")
    except NoDaemon:
        rows = known.closed(home)
        say("no daemon runs now: clawd run")
    columns = ("channel", "state", "last_inbound", "last_outbound", "error")
    give(rows, options.json, columns, "no channels are enabled in config.toml", beneath=("error",))
    return 0


def channel_test(options: Namespace, home: Home) -> int:
    """1 when something is missing."""
    from clawd.commands import channels as known

    found = settled(known.test(home, options.name))
    if options.json:
        write_json(found)
    else:
        _say_findings(
            [
                {
                    "level": "ok" if check["ok"] else "error",
                    "check": check["what"],
                    "message": check["hint"],
                    "command": None,
                }
                for check in found["checks"]
            ]
        )
    return 0 if found["ok"] else 1
