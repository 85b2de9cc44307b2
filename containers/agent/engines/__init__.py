"""What answers a turn, by name. An engine is a module with `respond(turn) -> Answer`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.turn import Answer, Turn


ENGINES = ("offline", "scripted", "messages", "chat", "claude-code", "exec")


def engine(name: str) -> Callable[[Turn], Answer] | None:
    """The engine's `respond`, imported on first use; None when there is no such engine."""
    if name == "offline":
        from agent.engines.offline import respond

        return respond
    if name == "scripted":
        from agent.engines.scripted import respond

        return respond
    if name in ("messages", "chat"):
        from agent.engines.loop import respond

        return respond
    if name == "claude-code":
        from agent.engines.claude_code import respond

        return respond
    if name == "exec":
        from agent.engines.exec import respond

        return respond
    return None
