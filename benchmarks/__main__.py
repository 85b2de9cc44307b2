"""`python -m benchmarks [NAME…]`, or `python -m benchmarks locomo PATH`: every figure as a JSON line on stdout."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks import (
    channels,
    context,
    gateway,
    idle,
    locomo,
    memory,
    mmkr,
    schedules,
    sessions,
    startup,
    thinking,
    turn,
)
from benchmarks.figures import Figure, Share

ALL: dict[str, Callable[[], Iterator[Figure | Share]]] = {
    "version": startup.version,
    "ready": startup.ready,
    "idle": idle.idle,
    "warm": turn.warm,
    "unpause": turn.unpause,
    "cold": turn.cold,
    "crowd": turn.crowd,
    "groups": turn.groups,
    "thinking": thinking.thinking,
    "append": sessions.append,
    "gateway": gateway.gateway,
    "schedules": schedules.schedules,
    "channels": channels.channels,
    "memory": memory.memory,
    "mmkr": mmkr.mmkr,
    "context": context.context,
    "locomo": locomo.locomo,
}


def main(names: list[str]) -> int:
    todo = dict(ALL)
    if len(names) == 2 and names[0] == "locomo":
        path = Path(names.pop())
        if not path.is_file():
            print(f"there is no file {path}", file=sys.stderr)
            return 2
        todo["locomo"] = partial(locomo.locomo, path)
    if unknown := [name for name in names if name not in todo]:
        print(f"there is no benchmark {unknown[0]!r}; there are {', '.join(todo)}", file=sys.stderr)
        return 2
    for name in names or todo:
        for measured in todo[name]():
            print(measured.line(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
