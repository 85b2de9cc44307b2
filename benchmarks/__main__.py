"""`python -m benchmarks [NAME…]`: every figure as a JSON line on stdout."""

from __future__ import annotations

import sys

from benchmarks import channels, gateway, idle, memory, schedules, sessions, startup, thinking, turn

ALL = {
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
}


def main(names: list[str]) -> int:
    if unknown := [name for name in names if name not in ALL]:
        print(f"there is no benchmark {unknown[0]!r}; there are {', '.join(ALL)}", file=sys.stderr)
        return 2
    for name in names or ALL:
        for measured in ALL[name]():
            print(measured.line(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
