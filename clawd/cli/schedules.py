"""`clawd schedule list|add|show|run|pause|resume|remove|history|next`."""

from __future__ import annotations

import sys
from argparse import Namespace

from clawd.cli.clean import clean
from clawd.cli.page import cell, give, say, settled, when_shortly, write_json
from clawd.commands import writing
from clawd.config.home import Home

_OPTIONS = ("group", "id", "prompt", "tz", "skill", "session", "deliver_to", "catch_up", "catch_up_within", "jitter",
            "check", "until", "budget")  # fmt: skip


def listing(options: Namespace, home: Home) -> int:
    from clawd.commands import schedules

    columns = ("id", "expr", "tz", "next", "last", "enabled", "proposed", "error")
    empty = 'no schedules: clawd schedule add "every weekday at 9" "say good morning"'
    give(settled(schedules.listed(home, options.group)), options.json, columns, empty, beneath=("error",))
    return 0


def show(options: Namespace, home: Home) -> int:
    from clawd.commands import schedules

    found = schedules.show(home, options.id, options.group)
    if options.json:
        write_json(found)
        return 0
    give({key: value for key, value in found.items() if key not in ("id", "text", "history")}, False)
    sys.stdout.write(f"\n{clean(found['text'])}")
    for each in found["history"]:
        sys.stdout.write(cell(f"{when_shortly(each['due'])} {each['outcome']} {each['reason'] or ''}").rstrip() + "\n")
    return 0


def history(options: Namespace, home: Home) -> int:
    from clawd.commands import schedules

    columns = ("id", "due", "fired", "outcome", "reason", "turn")
    rows = schedules.history(home, options.id, options.group)
    give(rows, options.json, columns, "nothing was due yet", beneath=("reason",))
    return 0


def add(options: Namespace, home: Home) -> int:
    from clawd.commands import schedules

    asked = {name: getattr(options, name) for name in _OPTIONS}
    made = writing.call(home, "schedule.add", when=options.when, **asked)
    if options.json:
        write_json(made)
        return 0
    sys.stdout.write(cell(schedules.understood(made)) + "\n")
    say(f"it is in {made['file']}")
    return 0


def pause(options: Namespace, home: Home) -> int:
    return _change(options, home, "pause", "is paused: clawd schedule resume brings it back")


def resume(options: Namespace, home: Home) -> int:
    return _change(options, home, "resume", "is in force again")


def remove(options: Namespace, home: Home) -> int:
    return _change(options, home, "remove", "is removed; its file is kept as {kept}")


def run(options: Namespace, home: Home) -> int:
    """1 when it could not be begun."""
    return _change(options, home, "run", "runs now: clawd schedule history shows what became of it")


def _change(options: Namespace, home: Home, verb: str, sentence: str) -> int:
    result = writing.call(home, f"schedule.{verb}", id=options.id, group=options.group)
    failed = result.get("outcome") == "failed"
    if options.json:
        write_json(result)
    else:
        said = f"could not run: {result['reason']}" if failed else sentence.format(**result)
        sys.stdout.write(cell(f"{result['id']} {said}") + "\n")
    return 1 if failed else 0


def next_times(options: Namespace, home: Home) -> int:
    """1 when the rule is not understood, or is never due; why is printed either way."""
    from clawd.commands import schedules

    found = schedules.next_times(home, options.expr, options.zone, options.after, options.count)
    if options.json:
        write_json(found)
    for time in [] if options.json else found["times"]:
        sys.stdout.write(cell(time) + "\n")
    say(found["error"] or found["said"])
    return 1 if found["error"] else 0
