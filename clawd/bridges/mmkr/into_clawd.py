"""Into a clawd home: messages and memories of other programs, of the group whose `external` names the session, through
the daemon where one runs, else under the home's lock."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path

from clawd.bridges.client import Client, Message
from clawd.bridges.mmkr.messages import Kept, Piece
from clawd.bridges.mmkr.targets import Written, fact_key
from clawd.clock import rfc3339
from clawd.config.home import Home, group_folders
from clawd.errors import Refused, UsageError
from clawd.ids import matches, session_stem
from clawd.model import Block

SPACE = "mmkr"  # of the keys
_SILENT = "[nothing]"


class ClawdTarget:
    def __init__(self, home: Home, session: str, group: str | None = None) -> None:
        self._home, self._session, self._group = home, session, group
        self._client = Client(home.root, group)
        self._let_in = False

    @property
    def session_file(self) -> Path:
        from clawd.sessions.names import session_of

        sessions = self._home.group(self._folder()).sessions
        plain, own = (sessions / f"{session_stem(self._session, taken)}.md" for taken in (False, True))
        held = session_of(plain)
        return own if held is not None and held != self._session else plain

    @property
    def memory_dir(self) -> Path:
        return self._home.group(self._folder()).memory

    def write(self, pieces: Sequence[Piece]) -> Written:
        written = Written()
        for piece in pieces:
            # A call that was told to have no result has another key than the same call with one: if the result comes
            # after all, both are told.
            key = f"{SPACE}:{piece.result_key or piece.key}"
            try:
                answer = self._client.inject(self._session, [_message(block) for block in piece.blocks], key)
            except UsageError as error:
                written.left.append(f"a message of {piece.blocks[0].role}: {error.message}")
                continue
            self._group, self._let_in = answer["group"], True
            added = answer["state"] != "known"
            written.added += len(piece.blocks) * added
            written.known += len(piece.blocks) * (not added)
        return written

    def keep(self, memories: Sequence[Kept], now: datetime, day: date | None = None) -> Written:
        written = Written()
        for each in memories:
            at = each.at or now
            if day is not None:
                local = at.astimezone()
                at = datetime.combine(day, local.time()).astimezone()
            try:
                answer = self._client.remember(
                    self._session,
                    each.content,
                    fact=fact_key(self._session, each.topic) if each.topic else None,
                    at=at,
                    tags=[each.category, SPACE],
                    key=f"{SPACE}:{each.key}",
                )
            except (UsageError, Refused) as error:
                # The first refusal may be that of the group, which is no matter of one memory.
                if isinstance(error, Refused) and not self._let_in:
                    raise
                written.left.append(f"a memory of {each.category}: {error.message}")
                continue
            self._group, self._let_in = answer["group"], True
            added = answer["state"] != "known"
            written.added, written.known = written.added + added, written.known + (not added)
        return written

    def _folder(self) -> str:
        """The group that the home answered with, or that was named, else the only one that lets the session in."""
        if self._group is None:
            self._group = self._only()
        return self._group

    def _only(self) -> str:
        from clawd.config.load import load_group

        for name in group_folders(self._home):
            if any(matches(pattern, self._session) for pattern in load_group(self._home, name).external):
                return name
        return "main"


def _message(block: Block) -> Message:
    message: Message = {"role": block.role, "content": block.content}
    if not block.content.strip() and not block.tool_calls and block.role != "tool":
        message["content"] = _SILENT
    if block.at is not None:
        message["at"] = rfc3339(block.at)
    if block.tool_calls:
        message["tool_calls"] = list(block.tool_calls)
    if block.tool_call_id is not None:
        message["tool_call_id"] = block.tool_call_id
    return message
