"""`clawd bridge mmkr convert`."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from clawd.cli.page import console, give, say
from clawd.cli.patience import AGAIN_S, FIRST_S
from clawd.config.home import Home, require_home
from clawd.errors import UsageError

if TYPE_CHECKING:
    from clawd.bridges.mmkr.convert import Progress


def convert(options: Namespace, home: Home) -> int:
    from clawd.bridges.mmkr import convert_trace_to_pythonclaw

    output = options.output or require_home(home).root
    with _progress() as tell:
        made = convert_trace_to_pythonclaw(options.trace, options.agent_id, output, group=options.group, progress=tell)
    if made["broken"] == made["lines"] > 0:
        first = made["broken_lines"][0]
        raise UsageError(
            f"{options.trace} is no trace of mmkr: not one of its lines can be read;"
            f" line {first['line']}: {first['why']}"
        )
    if options.json:
        give(made, True)
        return 0
    added, known = made["added"], made["known"]
    ticks = f"{_number(made['ticks_converted'], 'tick')} of {made['session_id']}"
    say(f"{ticks}: {_counted(added)} added, {_counted(known)} there before")
    _name(made["broken"], "line of the trace was left out", "lines of the trace were left out")
    _which(made["broken_lines"])
    _name(made["mended"], "line was mended", "lines were mended")
    _which(made["mended_lines"])
    for why in made["left"]:
        say(f"  left: {why}")
    there = {"session_file": made["messages_generated"], "memory_log": made["memories"]}
    if any(there.values()):
        give({name: made[name] for name, count in there.items() if count}, False)
    return 0


def _counted(of: dict[str, int]) -> str:
    return f"{_number(of['messages'], 'message')} and {_number(of['memories'], 'memory', 'memories')}"


def _number(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def _which(lines: list[dict[str, Any]]) -> None:
    for each in lines:
        say(f"  line {each['line']}: {each['why']}")


def _name(count: int, one: str, many: str) -> None:
    if count:
        say(_number(count, one, many))


@contextmanager
def _progress() -> Iterator[Callable[[Progress], Any]]:
    """Where progress goes: a terminal shows it at once, anything else a line when it takes longer."""
    if sys.stderr.isatty():
        with console(stderr=True).status("reading …") as status:
            yield lambda progress: status.update(_line(progress))
        return
    due = time.monotonic() + FIRST_S

    def tell(progress: Progress) -> None:
        nonlocal due
        if progress.done < progress.total and time.monotonic() > due:
            say(_line(progress))
            due = time.monotonic() + AGAIN_S

    yield tell


def _line(progress: Progress) -> str:
    share = progress.done / progress.total if progress.total else 1
    return f"{progress.done >> 20:,} of {progress.total >> 20:,} MB ({share:.0%}), {progress.messages:,} messages"
