"""A writer beside the daemon: messages into a session, facts and log lines into the memory of its group.

Through the daemon's control socket where one runs, else under the home's lock, so that a live writer and the daemon
never overwrite each other. Everything that is written is `external`, whatever it says it is. A `key` names what is
written for ever: the same one again adds nothing, so that a writer that was killed may simply say all of it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, TypedDict

from clawd.commands import writing
from clawd.commands.handed import handed
from clawd.config.home import Home
from clawd.control.client import ConnectionLost

MOST = 100  # entries of one call
_TRIES = 5  # daemons that may die under one request


class Message(TypedDict, total=False):
    """One message of a session, in the OpenAI shape. `tool_calls`: [{id, type: "function", function: {name, arguments:
    JSON text}}]; `at` in RFC 3339."""

    role: str
    content: str
    at: str
    tool_calls: list[dict[str, Any]]
    tool_call_id: str


class Entry(TypedDict, total=False):
    """Something to remember: `text`, and what else `Client.remember` takes; `at` in RFC 3339."""

    text: str
    fact: str
    at: str
    tags: Sequence[str]
    key: str


class Client:
    """A writer to the clawd home at `home`, which may begin with `~`. `group` is the group; without it the one that has
    the session, or else the only one whose `external` names it. Nothing is open between calls, and a daemon may start
    and end between any two.

        client = Client("~/.clawd")
        client.inject("mmkr:agent-1", [{"role": "user", "content": "Tick 64"}], key="64")
        client.remember("mmkr:agent-1", "Answered issue 12.", tags=["social"], key="64-1")
        client.remember("mmkr:agent-1", "ship the bridge", fact="mmkr_agent-1_goal", key="64-2")
        client.remember_many("mmkr:agent-1", [{"text": "Slept.", "key": "64-3"}, {"text": "Woke.", "key": "64-4"}])

    Every call raises ClawdError with a sentence, and mostly a `hint`: Refused where the group takes nothing from this
    session (the hint is the command that changes that), UsageError for what cannot be kept as it was said, HomeBusy
    where a daemon holds the home and does not answer, DiskFull and StorageError where the disk does not take it. What
    was said with a `key` may simply be said again then."""

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

    def inject_many(self, session: str, pieces: Iterable[tuple[Sequence[Message], str]]) -> list[dict[str, Any]]:
        """The same of many, messages and their key each, in calls of a hundred, which is far cheaper than as many
        calls: what `inject` gives of each, in their order. Of a hundred that are wrong in one place none is put in."""
        found, left = list[dict[str, Any]](), iter(pieces)
        while some := [{"blocks": list(messages), "key": key} for messages, key in islice(left, MOST)]:
            found += self._call("session.inject", again=True, session=session, pieces=some)["pieces"]
        return found

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
        """Keep something in the memory of the session's group: {group, id, status, trust, why?, state: kept|known}.

        With `fact`, a key that begins with the session's name space (`mmkr_agent-1_` for `mmkr:agent-1`), it is one
        value under this key: `why` says what it waits for, `proposed` until the owner's yes, and it takes the place of
        what this session said there before. Without, it is a line of the log of the day of `at` (default: now; naive is
        local time), called by the name space and the first of `tags`. `trust` is .2 in any case. Raises Refused also
        for what the owner rejected or forgot."""
        when = None if at is None else at.astimezone().isoformat()
        return self._call("memory.external", session=session, text=text, fact=fact, at=when, tags=list(tags), key=key)

    def remember_many(self, session: str, entries: Iterable[Entry]) -> list[dict[str, Any]]:
        """The same of many, in calls of a hundred, which is far cheaper than as many calls: {id, status, trust, why?,
        state: kept|known|refused} of each, in their order. Of a hundred that are wrong in one place none is kept."""
        found, left = list[dict[str, Any]](), iter(entries)
        while some := [dict(each) for each in islice(left, MOST)]:
            every = all(each.get("key") is not None for each in some)
            found += self._call("memory.external", again=every, session=session, entries=some)["entries"]
        return found

    def _call(self, op: str, *, again: bool = False, **params: Any) -> dict[str, Any]:
        """What has a key is said again where the daemon went away: it may have been accepted, and is known then."""
        given = {name: value for name, value in params.items() if value is not None}
        if self._group:
            given["group"] = self._group
        for _ in range(_TRIES if again or params.get("key") is not None else 0):
            with suppress(ConnectionLost):
                return self._said(op, given)
        return self._said(op, given)

    def _said(self, op: str, given: dict[str, Any]) -> dict[str, Any]:
        with handed(self._home, given) as params:
            result: dict[str, Any] = writing.call(self._home, op, **params)
        return result
