"""The engine for tests, rehearsals and experiments: it plays a transcript, `{"steps": [{text?, tool_calls?,
delay_s?, error?, notes?, usage?}]}`, without a model.

A turn plays one group of steps. A group ends with the first step that has no `tool_calls`; its text is the
reply, its `error` fails the turn. The group is the turn's ordinal in its session, counted round. `{message}`
in a text or in an argument stands for what was typed so far, steering too. `delay_s` is how long a step
"thinks". Tools: `bash` {command} and `sleep` {seconds} run in the sandbox, other names are tools of the daemon."""

from __future__ import annotations

from agent.turn import Answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agent.turn import Turn

_KEYS = {"text", "tool_calls", "delay_s", "error", "notes", "usage"}
_USAGE = ("input", "output", "cached")


class Malformed(Exception):
    """The script cannot be played; the message names the place and what is wrong."""


def respond(turn: Turn) -> Answer:
    try:
        groups = groups_of(turn.context.get("script"))
    except Malformed as wrong:
        return Answer(error=f"The script cannot be played: {wrong}.", model="scripted")
    text, error, notes = "", None, None
    usage: dict[str, int] = {}
    for step in groups[turn.context.get("ordinal", 0) % len(groups)]:
        if step.get("delay_s") and not turn.replaying():
            turn.pause(float(step["delay_s"]))
        text = step.get("text") or text
        error = step.get("error")
        notes = step.get("notes")  # those of earlier steps went with them
        if "usage" in step:
            last = {kind: step["usage"].get(kind, 0) for kind in _USAGE}
            usage = {kind: usage.get(kind, 0) + last[kind] for kind in _USAGE}
            usage["window"] = last["input"] + last["output"]
        if step.get("tool_calls") and not error:
            message = typed(turn)
            calls = [(call["name"], filled(call.get("arguments", {}), message)) for call in step["tool_calls"]]
            turn.round(filled(step.get("text", ""), message), calls, notes=step.get("notes"))
            turn.more()
            turn.showing()
    turn.more()
    turn.showing()
    return Answer(filled(text, typed(turn)), error, notes=notes, usage=usage or None, model="scripted")


def typed(turn: Turn) -> str:
    """What was typed to the turn so far."""
    parts = [part for wake in turn.wakes for part in wake.get("parts", ()) if part.get("kind") == "typed"]
    return "\n".join(part.get("text", "") for part in parts)


def filled(value: Any, message: str) -> Any:
    """The same value with `{message}` replaced in every text of it."""
    if isinstance(value, str):
        return value.replace("{message}", message)
    if isinstance(value, list):
        return [filled(item, message) for item in value]
    if isinstance(value, dict):
        return {key: filled(item, message) for key, item in value.items()}
    return value


def groups_of(script: Any) -> list[list[dict[str, Any]]]:
    """The groups of a script, at least one. Raises Malformed."""
    if not isinstance(script, dict) or not isinstance(script.get("steps"), list):
        raise Malformed('it is not {"steps": [...]}')
    if not script["steps"]:
        raise Malformed("it has no steps")
    groups: list[list[dict[str, Any]]] = [[]]
    for number, step in enumerate(script["steps"], 1):
        check(step, f"step {number}")
        groups[-1].append(step)
        if not step.get("tool_calls") or step.get("error"):
            groups.append([])
    return groups if groups[-1] else groups[:-1]


def check(step: Any, where: str) -> None:
    if not isinstance(step, dict):
        raise Malformed(f"{where} is no object")
    if unknown := sorted(set(step) - _KEYS):
        raise Malformed(f"{where} has the unknown key {unknown[0]!r}")
    for key, kind, name in (
        ("text", str, "a text"),
        ("error", str, "a text"),
        ("notes", dict, "an object"),
        ("usage", dict, "an object"),
        ("tool_calls", list, "a list"),
    ):
        if key in step and not isinstance(step[key], kind):
            raise Malformed(f"{where}: {key} must be {name}")
    delay = step.get("delay_s", 0)
    if isinstance(delay, bool) or not isinstance(delay, (int, float)) or not 0 <= delay < 1e6:
        raise Malformed(f"{where}: delay_s must be a number of seconds")
    for kind, tokens in step.get("usage", {}).items():
        if kind not in _USAGE or type(tokens) is not int or tokens < 0:
            raise Malformed(f"{where}: usage holds input, output and cached, each a count")
    for call in step.get("tool_calls", ()):
        if not isinstance(call, dict) or not isinstance(call.get("name"), str) or set(call) - {"name", "arguments"}:
            raise Malformed(f"{where}: a tool call is {{name, arguments}}")
        if not isinstance(call.get("arguments", {}), dict):
            raise Malformed(f"{where}: the arguments of {call['name']} must be an object")
    if not {"text", "tool_calls", "error"} & set(step):
        raise Malformed(f"{where} has neither text, tool_calls nor error")
