"""What other programs on this machine write into a home: messages of sessions, and memories. The same behind the
control socket and under the home's lock. All of it is `external`: the group's `external` says which sessions take it.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from clawd.clock import moment_of, rfc3339
from clawd.commands import external_memory, handed
from clawd.config.home import Home, group_folders
from clawd.errors import ConfigError, Refused, UsageError, findings
from clawd.ids import check_session_id, is_job, matches
from clawd.ledger import groups
from clawd.ledger.db import Ledger
from clawd.ledger.injected import Said
from clawd.turns.injecting import Injector
from clawd.turns.memory import Memories

if TYPE_CHECKING:
    from clawd.commands.operations import Operations

Params = dict[str, Any]

MOST_BLOCKS = 10_000  # of one piece
MOST_PIECES = 100
LONGEST_KEY = 200


class Function(BaseModel):
    model_config = ConfigDict(extra="ignore")
    name: str = Field(min_length=1)
    arguments: Annotated[str, BeforeValidator(lambda value: value if isinstance(value, str) else json.dumps(value))] = (
        "{}"
    )


class Call(BaseModel):
    """One tool call in the OpenAI shape."""

    model_config = ConfigDict(extra="ignore")
    id: str = Field(min_length=1, max_length=1024)
    type: Literal["function"] = "function"
    function: Function


class Message(BaseModel):
    """One message as whoever injects gives it."""

    model_config = ConfigDict(extra="forbid")
    role: Literal["user", "assistant", "tool"]
    content: Annotated[str, BeforeValidator(lambda value: "" if value is None else value)] = ""
    at: str | None = None
    tool_calls: list[Call] = []
    tool_call_id: str | None = None


_MESSAGES = TypeAdapter(list[Message])


def said(blocks: Any, now: str) -> list[Said]:
    """Messages that were given as the ledger keeps them. Raises UsageError with what is wrong in a sentence."""
    if not isinstance(blocks, list) or not blocks:
        raise UsageError("there is no message to put in")
    if len(blocks) > MOST_BLOCKS:
        raise UsageError(f"{len(blocks):,} messages are too many at a time", hint=f"at most {MOST_BLOCKS:,}")
    try:
        messages = _MESSAGES.validate_python(blocks)
    except ValidationError as error:
        raise UsageError(f"that is no message: {findings(error, 'the message')}") from error
    return [_said(message, n, now) for n, message in enumerate(messages, 1)]


def _said(message: Message, n: int, now: str) -> Said:
    role, calls = message.role, message.tool_calls
    at = moment_of(message.at) if message.at is not None else None
    ids = [call.id for call in calls]
    wrong = None
    if message.at is not None and at is None:
        wrong = f"{message.at[:40]!a} is no time in RFC 3339, like 2026-12-01T09:00:00+01:00"
    elif calls and role != "assistant":
        wrong = "only an assistant calls tools"
    elif len({*ids}) < len(ids):
        wrong = "two of its calls have the same id"
    elif role == "tool" and not message.tool_call_id:
        wrong = "a tool's result needs the id of its call (tool_call_id)"
    elif role != "tool" and message.tool_call_id is not None:
        wrong = "only a tool's result has a tool_call_id"
    elif role != "tool" and not calls and not message.content.strip():
        wrong = "it says nothing"
    if wrong:
        raise UsageError(f"message {n}: {wrong}")
    told: Said = {"role": role, "content": _unicode(message.content), "at": rfc3339(at) if at else now}
    if calls:
        told["tool_calls"] = [
            {name: _unicode(text) for name, text in (("id", call.id), *call.function)} for call in calls
        ]
    if role == "tool":
        told["tool_call_id"] = _unicode(str(message.tool_call_id))
    return told


def _key(key: Any) -> str | None:
    if key is not None and not (isinstance(key, str) and 0 < len(key) <= LONGEST_KEY and key.isprintable()):
        raise UsageError(f"a key is of 1 to {LONGEST_KEY} characters that can be printed")
    return key


def _unicode(text: str) -> str:
    """As it is when it came over a socket: halves of characters are none."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


class ExternalOperations:
    """`allowed` gives the patterns of session ids that may be written into from outside, of a group; it raises
    ConfigError."""

    def __init__(
        self,
        home: Home,
        ledger: Ledger,
        operations: Operations,
        injector: Injector,
        memories: Memories,
        allowed: Callable[[str], Sequence[str]],
    ) -> None:
        self._home, self._ledger, self._operations, self._injector = home, ledger, operations, injector
        self._memories, self._allowed = memories, allowed

    def table(self) -> dict[str, Callable[[Params], Awaitable[Params]]]:
        return {name: partial(self._taken, operation) for name, operation in _OPERATIONS.items()}

    async def _taken(
        self, operation: Callable[[ExternalOperations, Params], Awaitable[Params]], params: Params
    ) -> Params:
        """With the params that were meant, where they were handed over in a file."""
        if "file" not in params:
            return await operation(self, params)
        try:
            return await operation(self, await asyncio.to_thread(handed.taken, self._home, params))
        finally:
            await asyncio.to_thread(handed.drop, self._home, params)

    async def inject(self, params: Params) -> Params:
        """{session, group?, blocks[{role, content, at?, tool_calls?, tool_call_id?}], key?} → {session, group, key,
        state: recorded|waits|known|later, waits[], why?}. `later`: it is kept, and `why` it is not in the file yet.
        With `pieces[{blocks[], key?}]` in their place {group, pieces[…]}, one of these each: all of them, or none."""
        pieces = params.get("pieces", [params])
        if not isinstance(pieces, list) or not all(isinstance(each, Mapping) for each in pieces) or not pieces:
            raise UsageError("pieces is a list of {blocks, key?}")
        if len(pieces) > MOST_PIECES:
            raise UsageError(f"{len(pieces):,} pieces are too many at a time", hint=f"at most {MOST_PIECES:,}")
        keys = [_key(each.get("key")) for each in pieces]
        session, group = await self.place(params)
        now = rfc3339(self._operations.clock.now())
        told = await asyncio.to_thread(lambda: [said(each.get("blocks"), now) for each in pieces])
        done = await self._injector.inject_many(session, group, list(zip(told, keys, strict=True)))
        results = [self._injector.result(each, group) for each in done]
        return {"group": group, "pieces": results} if "pieces" in params else results[0]

    async def remember(self, params: Params) -> Params:
        """As `external_memory.remember`."""
        return await external_memory.remember(self._memories, *await self.place(params), params)

    async def place(self, params: Mapping[str, Any]) -> tuple[str, str]:
        """The session that is meant, and its group, which takes what is put into it from outside. Raises UsageError,
        NotFound, Refused with the command that helps, ConfigError."""
        session, asked = params.get("session"), params.get("group")
        if not isinstance(session, str):
            raise UsageError("session is missing")
        check_session_id(session)
        if is_job(session):
            raise UsageError(f"session ids that begin with job: are clawd's own; {session!r} is none to write into")
        if asked is not None and not isinstance(asked, str):
            raise UsageError("group is no name")
        known = await self._ledger.do(lambda tx: groups.session(tx, session))
        if known is None:  # its file may have been put there just now
            await self._operations.adopt_sessions()
            known = await self._ledger.do(lambda tx: groups.session(tx, session))
        group = asked or (known.group if known is not None else await self._only(session))
        if known is not None and known.group != group:
            raise Refused(
                f"session {session!r} belongs to group {known.group!r}, and an id belongs to one group for ever",
                hint=f"leave --group away, or say --group {known.group}",
            )
        await self._operations.group(group)
        patterns = self._allowed(group)
        if not any(matches(pattern, session) for pattern in patterns):
            raise _refused(session, group, patterns, known=known is not None)
        return session, group

    async def _only(self, session: str) -> str:
        """The group whose `external` names a session that is new."""
        folders = await asyncio.to_thread(self._asking)
        found, broken = [], list[str]()
        for folder in folders:
            try:
                if any(matches(pattern, session) for pattern in self._allowed(folder)):
                    found.append(folder)
            except ConfigError:
                broken.append(folder)
        if len(found) > 1:
            raise Refused(  # it is nothing that is wrong with what was said: that stays to be said
                f"session {session!r} fits what {' and '.join(found)} take from outside: say which is meant",
                hint=f"--group {found[0]}",
            )
        if found:
            return found[0]
        if broken:
            raise Refused(
                f"no group takes {session!r} from outside, but groups/{broken[0]}/group.toml cannot be read",
                hint="clawd config check says what is wrong with it",
            )
        raise _refused(session, None, ())

    def _asking(self) -> list[str]:
        """Groups whose file may say something of it."""
        found = []
        for folder in group_folders(self._home):
            try:
                if self._home.group(folder).says(b"external"):
                    found.append(folder)
            except OSError:
                continue
        return found


def _refused(session: str, group: str | None, patterns: Sequence[str], *, known: bool = False) -> Refused:
    """Whoever is refused chose the id: the command lets in no more than its kind, and of a conversation that there is
    that one alone."""
    space, colon, _ = session.partition(":")
    kind = bool(space and colon) and "*" not in space and not known
    more = [*patterns, f"{space}:*" if kind else session.replace("*", "")]
    whose = f"group {group}" if group else "no group"
    return Refused(
        f"{whose} {'does not take' if group else 'takes'} what is put into session {session!r} from outside",
        hint=f"clawd groups set {group or 'main'} external {shlex.quote(json.dumps(more, ensure_ascii=False))}",
    )


_OPERATIONS = {"session.inject": ExternalOperations.inject, "memory.external": ExternalOperations.remember}
OPERATIONS = tuple(_OPERATIONS)
