"""The commands that only look: they read the ledger and the files, whether a daemon runs or not."""

from __future__ import annotations

import sys
from argparse import Namespace

from clawd.cli.clean import clean
from clawd.cli.page import cell, console, give, settled, table, write_json
from clawd.config.home import Home

_DELIVERY = ("id", "turn", "channel", "chat", "n", "kind", "state", "platform_id", "attempts", "error")
_MESSAGE = ("id", "group", "session", "sender", "state", "turn", "attempt", "received", "reason")


def status(options: Namespace, home: Home) -> int:
    """The daemon's own word where it answers, else what the home shows."""
    from clawd.cli import writing
    from clawd.commands import looking
    from clawd.control.client import NoDaemon

    try:
        value = writing.ask(home, "status")
    except NoDaemon:
        value = settled(looking.status(home))
    give(value, options.json)
    return 0


def doctor(options: Namespace, home: Home) -> int:
    """1 when something is an error."""
    from clawd import health

    findings = settled(health.recover(home) if options.recover else health.doctor(home))
    if options.json:
        write_json(findings)
    else:
        table(findings, ("level", "check", "message", "command"), "nothing was checked")
    return 1 if any(finding["level"] == "error" for finding in findings) else 0


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
    give(found, options.json, _MESSAGE, "no messages")
    return 0


def message(options: Namespace, home: Home) -> int:
    from clawd.commands import looking

    give(settled(looking.message(home, options.id)), options.json)
    return 0


def deliveries(options: Namespace, home: Home) -> int:
    from clawd.commands import looking

    give(settled(looking.deliveries(home)), options.json, _DELIVERY, "no deliveries")
    return 0


def sessions(options: Namespace, home: Home) -> int:
    from clawd.commands import looking

    columns = ("session", "group", "messages", "bytes", "updated", "file")
    give(settled(looking.sessions(home, options.group)), options.json, columns, "no sessions")
    return 0


def session(options: Namespace, home: Home) -> int:
    """The conversation, as one would read it."""
    from clawd.commands import looking

    blocks = settled(looking.session_blocks(home, options.id))
    if options.json:
        write_json(blocks)
        return 0
    out = console()
    for block in blocks:
        out.print(f"{cell(block['role'])}  {cell(block.get('ts'))}", style="bold")
        for call in block.get("tool_calls") or ():
            sys.stdout.write(f"→ {cell(call)}\n")
        sys.stdout.write(clean(block["content"] or "") + "\n\n")
        sys.stdout.flush()
    return 0


def session_check(options: Namespace, home: Home) -> int:
    """1 when the file is not valid."""
    from clawd.commands import looking

    found = settled(looking.session_check(home, options.id))
    give(found, options.json)
    return 0 if found["ok"] else 1
