"""Tool calls of one reply: as a step keeps them, what is wrong with one, and which may run side by side; and how what a
model, or a program around one, says is read."""

from __future__ import annotations

import json
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from agent.turn import Turn

_SIDE_BY_SIDE = 8
_STEP_ROOM = 400_000  # characters of arguments in one step, which holds 1 MiB once it is escaped


def as_step(calls: list[tuple[str, Any]], turn: int, first: int) -> list[dict[str, Any]]:
    """(name, arguments) as a step has them; arguments are an object, or the text that should be one."""
    room, made = _STEP_ROOM, []
    for number, (name, arguments) in enumerate(calls, first):
        raw = raw_of(arguments)
        raw = raw if len(raw) <= room else raw[:200]  # no JSON any more, which its result says
        room -= len(raw)
        function = {"name": name[:200], "arguments": raw}
        made.append({"id": f"call_{turn}_{number}", "type": "function", "function": function})
    return made


def batch_of(calls: list[Call]) -> list[Call]:
    """The first of the calls, and those after it that may run at the same time: they change nothing."""
    from agent.tools import only_reads

    count = 0
    while count < min(len(calls), _SIDE_BY_SIDE) and only_reads(calls[count].name, calls[count].arguments):
        count += 1
    return calls[: count or 1]


class Call:
    """A tool call as it stands in a step. `wrong` is what its caller is told instead of a result."""

    def __init__(self, call: dict[str, Any], turn: Turn) -> None:
        self.id: str = call["id"]
        self.name: str = call["function"]["name"]
        self.arguments, self.wrong = arguments_of(call["function"]["arguments"])
        self.nth = turn.count(self.name, json.dumps(self.arguments, sort_keys=True) + (self.wrong or ""))
        names = [tool["name"] for tool in turn.context.get("tools") or ()]
        if names and self.name not in names:
            self.wrong = f"[There is no tool {self.name!r}. There are: {', '.join(names)}.]"

    def bound(self, turn: Turn, resumed: bool) -> Callable[[], str]:
        """What runs it. `resumed`: an earlier attempt may have begun it."""
        from agent import tools

        return lambda: self.wrong or tools.run(turn, self.name, self.arguments, self.nth, resumed)


def arguments_of(raw: str) -> tuple[dict[str, Any], str | None]:
    """The arguments of a call, and what is wrong with them: a sentence for the model that wrote them."""
    try:
        arguments = json.loads(raw, parse_constant=_no_number)
        if isinstance(arguments, dict):
            return arguments, None
        wrong = "they are no object"
    except (ValueError, RecursionError) as error:
        wrong = str(error)
    return {}, (
        f"[Not run: the arguments are not one JSON object ({wrong}). They began: {raw[:100]!r}. Send them again, whole "
        "and as the tool's schema says; what is too long for one call goes in several.]"
    )


def raw_of(arguments: Any) -> str:
    """Arguments as text: as they came, or as JSON."""
    return arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)


def text_of(value: Any) -> str:
    """A text, the texts of a list of blocks, or whatever else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and isinstance(value.get("content"), (str, list)):
        return text_of(value["content"])
    if isinstance(value, list) and all(isinstance(block, dict) for block in value):
        return "\n".join(block["text"] for block in value if isinstance(block.get("text"), str))
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def as_json(data: bytes) -> Any:
    """A JSON object, or None."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def count(value: Any) -> int:
    """A number of tokens as a provider reports it; what cannot be one is 0."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1e9
    return int(value) if good else 0


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def side_by_side(doings: list[Callable[[], str]]) -> list[str]:
    """What each gives, all at once. Raises what the first of them raised, once all are over."""
    if len(doings) == 1:
        return [doings[0]()]
    given: list[Any] = [None] * len(doings)

    def do(number: int) -> None:
        try:
            given[number] = doings[number]()
        except BaseException as error:  # it belongs to the thread that waits for it
            given[number] = error

    threads = [threading.Thread(target=do, args=(number,), daemon=True) for number in range(len(doings))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in given:
        if isinstance(result, BaseException):
            raise result
    return given
