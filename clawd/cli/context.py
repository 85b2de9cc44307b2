"""`clawd context show` and `expand`."""

from __future__ import annotations

import sys
from argparse import Namespace

from clawd.cli.clean import clean
from clawd.cli.page import say, settled, table, write_json
from clawd.config.home import Home


def expand(options: Namespace, home: Home) -> int:
    from clawd.cli.looking import say_blocks
    from clawd.commands import expanding

    rows = settled(expanding.expand(home, options.session, options.compaction, options.group))
    if options.json:
        write_json(rows)
    else:
        say_blocks(rows)
    return 0


def show(options: Namespace, home: Home) -> int:
    from clawd.commands import context

    found = settled(context.show(home, options.group, options.session, options.wake))
    notes = found.pop("notes")
    if options.json:
        write_json(found)
    else:
        for part in found["parts"]:
            sys.stdout.write(f"── {clean(part['name'])} ──\n{clean(part['text'])}\n\n")
        rows = [{"part": part["name"], "bytes": part["bytes"], "tokens": part["tokens"]} for part in found["parts"]]
        rows.append({"part": "all", "bytes": found["bytes"], "tokens": found["tokens"]})
        for row in rows:
            row["tokens"] = f"≈ {row['tokens']}"
        table(rows, ("part", "bytes", "tokens"), "nothing")
    for note in notes:
        say(note)
    return 0
