"""`clawd init` and `clawd config check`: a home and its config, before any daemon."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from pathlib import Path

from clawd.cli.page import cell, say, settled, table, write_json
from clawd.config.home import Home


def init(options: Namespace, home: Home) -> int:
    """Make a home at DIR, else where `--home`, `CLAWD_HOME` or the default say. What is there stays."""
    from clawd.commands import operations

    if options.directory:
        home = Home(Path(options.directory).expanduser().absolute())
    result = settled(operations.init(home))
    if options.json:
        write_json(result)
        return 0
    for path in result["made"]:
        sys.stdout.write(cell(path) + "\n")
    say(f"{home.root} is a home; talk to its agent: clawd --home {shlex.quote(str(home.root))} chat")
    return 0


def check(options: Namespace, home: Home) -> int:
    """1 when a file is not valid; what is wrong is printed either way."""
    from clawd.commands import looking

    file = Path(options.file).absolute() if options.file else None
    found = settled(looking.config_check(home, file))
    if options.json:
        write_json(found)
    elif found["ok"]:
        what = str(file) if file else f"{home.config_file}, every group.toml and every schedule"
        sys.stdout.write(f"{cell(what)}: valid\n")
    else:
        table(found["errors"], ("where", "what", "hint"), "not valid", beneath=("what", "hint"))
    return 0 if found["ok"] else 1
