"""What an agent's events say, in words: mmkr's own where it has some, so that a session reads the same whether it was
recorded live or converted from a trace. Pure.

Nothing of an event is left out. A field that no sentence has a place for follows on a line of its own, and the phase of
a call, a result, a prompt or a decision is in its block's META: their words are somebody's, and stay as they were.
"""

from __future__ import annotations

from collections.abc import Iterable

from clawd.bridges.mmkr.events import Event
from clawd.bridges.mmkr.messages import Telling, opening


def tell(event: Event, telling: Telling) -> None:
    """Add what an event says."""
    tick, at = event.tick, event.at
    if event.kind == "tick_start":
        words = tick_started(tick, event.goals, event.count, event.text)
        telling.start(tick, at, _lines(words, *_ended(event), *_rest(event)))
    elif event.kind == "tick_end":
        words = tick_ended(event.text or f"Tick {tick} complete", event.count, event.actions)
        telling.end(tick, at, _lines(words, *_ended(event), *_rest(event)), event.text)
    elif event.kind == "tool_call":
        telling.call(
            tick,
            at,
            event.tool,
            event.args,
            _lines(event.text or calling(event.tool), *_fields(event.more)),
            own_id=event.call,
            stand_in=_lines(event.result, event.outcome),
            failed=event.failed,
            phase=event.phase,
        )
    elif event.kind == "tool_result":
        known = event.result or event.error
        words = result_told(_lines(event.error, event.result) if known else event.outcome, event.failed)
        words = _lines(words, _named("Outcome", event.outcome if known else ""), *_fields(event.more))
        telling.result(tick, at, event.tool, words, own_id=event.call, phase=event.phase)
    elif event.kind in ("llm_prompt", "llm_response", "decision"):
        role = "user" if event.kind == "llm_prompt" else "assistant"
        telling.note(tick, at, event.kind, _lines(event.text, *_ended(event), *_fields(event.more)), role, event.phase)
    else:
        if kept := event.kind == "memory_write" and event.text:
            telling.keep(tick, at, event.text, event.category, event.importance, event.topic)
        if not kept or event.tool or event.outcome or event.failed or event.phase or event.more:
            telling.note(tick, at, event.kind, _note(event))


def tick_started(tick: int | None, goals: Iterable[str] = (), memories: int = 0, text: str = "") -> str:
    loaded = f"Loaded {memories} memories." if memories else ""
    return _lines(opening(tick), _named("Active goals", ", ".join(goals)), loaded, text)


def tick_ended(summary: str, tools_used: int = 0, actions: Iterable[str] = ()) -> str:
    used = f"Tools used: {tools_used}" if tools_used else ""
    return _lines(summary, used, _named("Actions", ", ".join(actions)))


def calling(tool: str) -> str:
    return f"Calling {tool or 'a tool'}"


def result_told(text: str, failed: bool) -> str:
    return f"ERROR: {text}" if failed else text


def _note(event: Event) -> str:
    """What is neither a tick, a call, a result nor somebody's words."""
    more = dict(event.more)
    place = f" in {event.phase}" if event.phase else ""
    tool = _named("Tool", event.tool)
    match event.kind:
        case "error":
            by = f" of {event.tool}" if event.tool else ""
            words = f"Error{place}{by}: {event.text}"
            return _lines(words, _named("Outcome", event.outcome), *_fields(event.more))
        case "phase_start":
            words = _titled(f"Phase {event.phase} begins", event.text)
            return _lines(words, tool, *_ended(event), *_fields(event.more))
        case "phase_complete":
            words = _titled(f"Phase {event.phase} complete", event.text)
            return _lines(words, tool, *_ended(event), *_fields(event.more))
        case "llm_call":
            took = f", {more.pop('duration_ms')} ms" if "duration_ms" in more else ""
            words = f"Model call{place}: {more.pop('model', 'of a model')}{took}{', failed' * event.failed}"
            return _lines(words, event.text, tool, _named("Outcome", event.outcome), *_fields(more.items()))
        case "wealth_update":
            change = f" ({more.pop('delta')})" if "delta" in more else ""
            words = f"Wealth: {more.pop('before', '?')} → {more.pop('after', '?')}{change}"
            return _lines(words, event.text, tool, *_ended(event), _named("Phase", event.phase), *_fields(more.items()))
        case "action":
            words = _titled(f"Action ({event.category})" if event.category else "Action", event.text)
            return _lines(words, tool, *_ended(event), _named("Result", event.result), *_rest(event))
        case "memory_write":
            words = f"A memory of {event.category}"
            return _lines(words, _named("Key", event.topic), tool, *_ended(event), *_rest(event))
        case _:
            kind = event.kind.replace("_", " ")
            words = _titled(kind[:1].upper() + kind[1:], event.text)
            return _lines(words, tool, *_ended(event), *_rest(event))


def _ended(event: Event) -> tuple[str, str]:
    return _named("Outcome", event.outcome), "Failed." if event.failed else ""


def _rest(event: Event) -> Iterable[str]:
    """The fields that no sentence has a place for."""
    return (_named("Phase", event.phase), *_fields(event.more))


def _fields(more: Iterable[tuple[str, str]]) -> Iterable[str]:
    return (f"{name}: {value}" for name, value in more)


def _named(name: str, value: str) -> str:
    return f"{name}: {value}" if value else ""


def _titled(title: str, text: str) -> str:
    return f"{title}: {text}" if text else title


def _lines(*parts: str) -> str:
    return "\n".join(part for part in parts if part)
