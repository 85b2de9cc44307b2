"""Another program, whose agent ticks: each tick is put into a session as one piece, as two where the call's result
comes later, or as one of several that it is behind with. `python -m tests.system.recorder HOME SESSION FIRST LAST` says
how far it has come."""

from __future__ import annotations

import sys
from typing import Any

from clawd.bridges.client import Client, Message


def messages(tick: int) -> list[Message]:
    call: dict[str, Any] = {
        "id": f"call_{tick}", "type": "function", "function": {"name": "look", "arguments": f'{{"tick": {tick}}}'}
    }  # fmt: skip
    return [
        {"role": "user", "content": f"tick {tick} begins"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": f"saw {tick}\n---\n### {tick}", "tool_call_id": f"call_{tick}"},
        {"role": "assistant", "content": f"tick {tick} is over"},
    ]


def main(home: str, session: str, first: int, last: int) -> None:
    client = Client(home)
    tick = first
    while tick < last:
        said, number = messages(tick), 1
        if tick % 10 == 0:
            client.inject(session, said[:2], key=f"tick {tick}")
            client.inject(session, said[2:], key=f"tick {tick} ends")
        elif tick % 10 < 5:
            client.inject(session, said, key=f"tick {tick}")
        else:  # it came late to this, and catches up
            number = 10 - tick % 10
            client.inject_many(session, ((messages(each), f"tick {each}") for each in range(tick, tick + number)))
        tick += number
        print(tick - 1, flush=True)  # noqa: T201 (the test reads it)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
