"""`clawd image build`: the image that containers are made from, and a group's own with its packages."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from clawd.cli.page import cell, console, give, say
from clawd.config.engines import CLAUDE_CODE
from clawd.config.home import Home, group_folders
from clawd.config.live import LiveConfig
from clawd.errors import ClawdError, UsageError

_SECONDS = 900.0  # without a word from the Engine: a step of a build may be silent for long


def build(options: Namespace, home: Home) -> int:
    """Build what `[sandbox] image` names, and what groups name that is not there yet; with --group what this group
    names, and what its packages make of it. The target claude-code is built on top, where the CLI is wanted."""
    from clawd.commands.looking import check_group
    from clawd.resources import shipped
    from clawd.sandbox import image
    from clawd.sandbox.engine import find_engine

    check_group(home, options.group)
    config = LiveConfig(home, dict(os.environ))
    settings = config.for_group(options.group).sandbox if options.group else config.current.sandbox
    packages = sorted(set(settings.packages)) if options.group else []
    others = set() if options.group else _named(home, config) - {settings.image}
    if packages and not options.yes:
        _confirm(options.group, packages)
    engine, containers = find_engine(config.current.sandbox.docker_host, dict(os.environ)), shipped("containers")
    cli = options.target == "claude-code" or settings.image == CLAUDE_CODE
    named = "image" in config.current.sandbox.model_fields_set  # an image of the person's own is the one that is used
    made = name = CLAUDE_CODE if cli and not named else settings.image
    agent = config.current.sandbox.image if made == CLAUDE_CODE else made

    def work(client: Any) -> str:
        id = image.build_agent(client, containers, agent, options.base, tell)
        base = (image.labels_of(client, agent) or {}).get(image.LABEL_FROM)
        if cli:
            tell(f"adding Claude Code to {made} …")
            id = image.build_claude_code(client, containers, id, made, tell)
        for other in sorted(others - {CLAUDE_CODE}):
            if image.labels_of(client, other) is None:
                tell(f"building {other} …")
                image.build_agent(client, containers, other, base, tell)
        return id

    with _progress() as tell:
        id = engine.run(work, _SECONDS)
        if packages:
            name = image.image_for(settings, options.group)
            id = engine.run(lambda client: image.build_packages(client, made, name, packages, tell), _SECONDS)
    if options.json:
        give({"image": name, "id": id, "group": options.group, "packages": packages}, True)
    else:
        say(f"{name} is built: new sandboxes are made from it")
        if settings.backend == "auto":
            say("a daemon that makes them with bubblewrap does so until its next start")
    return 0


def _named(home: Home, config: LiveConfig) -> set[str]:
    """The images that groups name, but for those with packages, which are asked about one by one."""
    named = set()
    for folder in group_folders(home):
        with suppress(ClawdError):  # a bad group.toml is told elsewhere, and keeps no other from its image
            table = config.for_group(folder).sandbox
            named |= set() if table.packages else {table.image}
    return named


def _confirm(group: str, packages: list[str]) -> None:
    say(f"group {group} asks for these Debian packages in its image:")
    for package in packages:
        say(f"  {package}")
    sys.stderr.write("Install them? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was built: there was no yes", hint="--yes does not ask")


@contextmanager
def _progress() -> Iterator[Callable[[str], Any]]:
    """Where lines of progress go: a terminal shows the last one, anything else the steps."""
    if not sys.stderr.isatty():
        yield lambda line: say(line) if line.startswith("Step ") or line.endswith("…") else None
        return
    with console(stderr=True).status("building …") as status:
        yield lambda line: status.update(cell(line)[: console(stderr=True).width - 3])
