"""A writer beside the daemon: messages into a session, facts and log lines into the memory of its group.

Through the daemon's control socket where one runs, else under the home's lock, so that a live writer and the daemon
never overwrite each other. Everything that is written is `external`, whatever it says it is. A `key` names what is
written for ever: the same one again adds nothing, so that a writer that was killed may simply say all of it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TypedDict

from clawd.commands import writing
from clawd.commands.handed import handed
from clawd.config.home import Home
from clawd.control.client import ConnectionLost

_TRIES = 5  # daemons that may die under one request


class Message(TypedDict, total=False):
    """One message of a session, in the OpenAI shape. `tool_calls`: [{id, type: "function", function: {name, arguments:
    JSON text}}]; `at` in RFC 3339."""

    role: str
    content: str
    at: str
    tool_calls: list[dict[str, Any]]
    tool_call_id: str


class Client:
    """`home` is a clawd home; `group` the group, where the session's id does not say it."""

    def __init__(self, home: str | Path, group: str | None = None) -> None:
        self._home, self._group = Home(Path(home).expanduser().absolute()), group

    def inject(self, session: str, messages: Sequence[Message], key: str | None = None) -> dict[str, Any]:
        """Append messages to a session, all in one piece: {session, group, key, state: recorded|waits|known|later,
        waits[], why?}.

        `waits`: calls without a result are kept until their results come (role `tool`), then all are written side by
        side; whatever else comes first closes them. `later`: all of it is kept, and is written when the disk takes it.
        At most 64 MB. Raises ClawdError: Refused where the group does not allow it, UsageError for what is no
        message; without a key also ConnectionLost, when the daemon went away and may have accepted it."""
        return self._call("session.inject", session=session, blocks=list(messages), key=key)

    def remember(
        self,
        session: str,
        text: str,
        *,
        fact: str | None = None,
        at: datetime | None = None,
        tags: Sequence[str] = (),
        key: str | None = None,
    ) -> dict[str, Any]:
        """Keep something in the memory of the session's group: under `fact` in MEMORY.md, which replaces what this
        session kept there, else as a line of the day's log. {group, id, status, trust, why?, state: kept|known}."""
        return self._call(
            "memory.external",
            session=session,
            text=text,
            fact=fact,
            at=None if at is None else at.isoformat(),
            tags=list(tags),
            key=key,
        )

    def _call(self, op: str, **params: Any) -> dict[str, Any]:
        """What has a key is said again where the daemon went away: it may have been accepted, and is known then."""
        given = {name: value for name, value in params.items() if value is not None}
        if self._group:
            given["group"] = self._group
        for _ in range(_TRIES if params.get("key") is not None else 0):
            with suppress(ConnectionLost):
                return self._said(op, given)
        return self._said(op, given)

    def _said(self, op: str, given: dict[str, Any]) -> dict[str, Any]:
        with handed(self._home, given) as params:
            result: dict[str, Any] = writing.call(self._home, op, **params)
        return result
