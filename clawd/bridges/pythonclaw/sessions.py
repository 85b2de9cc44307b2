"""PythonClaw's sessions as ours: every message that a file holds, also of a damaged one. Pure.

Which session a file is, its header says; the name of the file says it only where no character of the id was replaced.
META keys that PythonClaw does not write are left out: some of them mean something here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from clawd.bridges.pythonclaw.forms import session_name, whole
from clawd.bridges.pythonclaw.home import lines
from clawd.errors import UsageError
from clawd.ids import Stems, check_session_id, safe_name
from clawd.model import Block
from clawd.sessions.format import escape, parse, unescape, write_file

SOURCE = "pythonclaw"
_DEEPEST = 60  # levels of the JSON of calls
REFRESH = "[Memory Refresh"  # what its system messages begin with that it makes at each restart
# Whose ids PythonClaw makes itself, with a colon (session_manager.py); and mmkr's.
_CHANNEL = re.compile(r"(discord)_(dm)_(.+)|(telegram|discord|whatsapp|cron|web|mmkr)_(.+)")


@dataclass(frozen=True, slots=True)
class Session:
    """`path` is where it lay; `problems` are sentences on what had to be mended."""

    id: str
    path: str
    blocks: tuple[Block, ...]
    problems: tuple[str, ...] = ()


def read(path: str, data: bytes, taken: Collection[str] = ()) -> Session:
    """A session's file. `taken` are the ids of files that were read before it."""
    parsed = parse(data)
    stem = path.rpartition("/")[2].removesuffix(".md")
    id, said = _id(parsed.session, stem, taken)
    blocks, dropped = list[Block](), set[str]()
    for block in parsed.blocks:
        dropped |= block.meta.keys() - {"ts", "source"}
        block = replace(block, meta={key: block.meta[key] for key in ("ts",) if key in block.meta})
        blocks.append(_shallow(block))
    if dropped:
        said.append(
            f"keys of META that PythonClaw does not write are left out: {', '.join(sorted(map(ascii, dropped))[:5])}"
        )
    return Session(id, path, tuple(blocks), (*said, *lines(parsed.problems)))


def _id(header: str | None, stem: str, taken: Collection[str]) -> tuple[str, list[str]]:
    """The id, and what is to be said of it."""
    said = list[str]()
    id = header
    if id is not None:
        try:
            check_session_id(id)
        except UsageError as error:
            said.append(f"its header cannot be used: {error.message}")
            id = None
    if id is not None and id in taken:
        said.append(f"another file has the session {id!a} already: this one is named after its file")
        id = None
    elif id is not None and safe_name(id) != stem:
        said.append(f"its header names {id!a}, whose file PythonClaw would call {session_name(id)}")
    if id is None:
        id = _guessed(stem, taken)
        said.append(
            f"its id cannot be told from its file's name, in which PythonClaw replaces characters: it is {id!a} here"
        )
    return id, said


def _guessed(stem: str, taken: Collection[str]) -> str:
    match = _CHANNEL.fullmatch(stem)
    likely = ":".join(filter(None, match.groups())) if match else stem
    for id in (likely, stem, *(f"{stem}.{n}" for n in range(2, len(taken) + 3))):
        try:
            if id not in taken:
                return check_session_id(id)
        except UsageError:
            continue
    return f"{SOURCE}-{len(taken) + 1}"


def marked(blocks: Iterable[Block]) -> list[Block]:
    """The blocks, each saying where it is from."""
    return [replace(block, meta={**block.meta, "source": SOURCE}) for block in blocks]


def file(session: Session, stems: Stems) -> tuple[str, bytes, tuple[str, ...]]:
    """The stem, bytes and changes of its file here, whose stem is one of `stems` from now on."""
    stem, changed = stems.choose(session.id), session.problems
    if stem != safe_name(session.id):
        changed = (
            *changed,
            f"its file is {stem}.md here: another session's name is the same to some file system, or it is too long",
        )
    return stem, write_file(session.id, marked(session.blocks)), changed


# ── what is the same ──


def gist(block: Block) -> tuple[str, str, str, str | None]:
    """By which a message is known to be the same on both sides: whatever PythonClaw keeps of it, but for its time."""
    text = unescape(escape(block.content)).replace("\r\n", "\n").replace("\r", "\n").strip()
    calls = whole(json.dumps(block.tool_calls, sort_keys=True, ensure_ascii=False)) if block.tool_calls else ""
    return whole(block.role), text, calls, whole(block.tool_call_id) if block.tool_call_id else None


def _shallow(block: Block) -> Block:
    """Calls that are nested without end, as text: nothing could write them again."""
    level: list[Any] = list(block.tool_calls)
    for _ in range(_DEEPEST):
        level = [
            each
            for value in level
            for each in (value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())
        ]
    if not level:
        return block
    text = f"{block.content}\n\n{json.dumps(block.tool_calls)}".strip()
    return replace(block, content=text, tool_calls=())
