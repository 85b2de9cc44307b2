"""PythonClaw's files, byte for byte as PythonClaw 0.7.2 writes them for the same content. Pure.

Its own bytes are left only where its own loader would stumble over them, and by as little as helps:

- a marker within the JSON of tool calls, or ` -->` within META, ends what its reader takes for META: one character of
  it is written as an escape, which JSON reads back;
- a header, a heading or a key is one line;
- half characters cannot be written at all, and would keep its agent from ever saving again: U+FFFD is there for each;
- a line behind a lone carriage return is a line to its reader, so it is escaped like one;
- its restore step drops calls without their results, and results without their calls (`_sanitize_tool_pairs`): see
  `restorable`.

Source: pythonclaw 0.7.2, core/session_store.py, core/memory/storage.py and core/agent.py, and how these behave.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import Any

from clawd.ids import safe_name
from clawd.memory.keyed import PREAMBLE, Fact
from clawd.model import Block
from clawd.sessions.format import MARKER, escape, shown_id
from clawd.sessions.reading import NO_RESULT

CAP = 50  # messages that PythonClaw loads of a session, and keeps when it saves it
_SPLITS = re.compile(r"<!-- msg:(.*?) -->")  # where its reader begins a message, anywhere in the file
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNSHOWABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NO_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")  # JSON lets them stand
_LABELS = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool"}
_STRUCTURE = re.compile(r"(?<![^\r\n])(?=## |> Updated:)")  # of MEMORY.md
ORPHAN = "The result of a tool call that is not known{id}:\n\n{text}"


# ── sessions ──


def session_name(session: str) -> str:
    """The file's name in `context/sessions`."""
    return f"{safe_name(whole(session))}.md"


def session_bytes(session: str, blocks: Sequence[Block]) -> bytes:
    """The file of a session, of which PythonClaw restores every message."""
    texts = [f"{_header(session)}\n\n", *map(_message, restorable(blocks))]
    return "\n".join(texts).encode()


def restorable(blocks: Sequence[Block]) -> list[Block]:
    """The same messages, so that PythonClaw's restore step drops none: each call with an id and followed at once by its
    result, one that says so where there is none; a result without a call is text. The same list where it is so."""
    if _restored_whole(blocks):
        return list(blocks)
    asked: dict[str, int] = {}
    answers: dict[tuple[int, str], int] = {}
    named = [_with_ids(block, index) for index, block in enumerate(blocks)]
    for index, block in enumerate(named):
        if _calls(block):
            asked |= {call["id"]: index for call in block.tool_calls}
        elif block.role == "tool" and block.tool_call_id in asked:
            answers[asked.pop(block.tool_call_id), block.tool_call_id] = index
    taken, kept = set(answers.values()), list[Block]()
    for index, block in enumerate(named):
        if index in taken:
            continue
        if block.role == "tool":
            id = f" ({block.tool_call_id})" if block.tool_call_id else ""
            text = ORPHAN.format(id=id, text=block.content)
            kept.append(replace(block, role="assistant", content=text, tool_call_id=None, tool_calls=()))
            continue
        kept.append(block)
        for id in dict.fromkeys(call["id"] for call in _calls(block)):
            answer = answers.get((index, id))
            kept.append(Block("tool", NO_RESULT, block.at, tool_call_id=id) if answer is None else named[answer])
    return kept


def _restored_whole(blocks: Sequence[Block]) -> bool:
    """Whether its restore step keeps every message as it is, also of calls that share an id."""
    at = 0
    while at < len(blocks):
        block, at = blocks[at], at + 1
        if block.role == "tool":
            return False
        if calls := _calls(block):
            results = set[str | None]()
            while at < len(blocks) and blocks[at].role == "tool":
                results.add(blocks[at].tool_call_id)
                at += 1
            ids = [call.get("id") for call in calls]
            if not all(isinstance(id, str) and id and id in results for id in ids):
                return False
    return True


def _calls(block: Block) -> tuple[dict[str, Any], ...]:
    """The calls that its restore step looks at."""
    return block.tool_calls if block.role == "assistant" else ()


def _with_ids(block: Block, index: int) -> Block:
    """The block with an id in each call, as a text that is not empty."""
    if not _calls(block) or all(isinstance(call.get("id"), str) and call["id"] for call in block.tool_calls):
        return block
    calls = list[dict[str, Any]]()
    for n, call in enumerate(block.tool_calls):
        id = call.get("id")
        known = id if isinstance(id, str) else json.dumps(id) if isinstance(id, int | float) else ""
        calls.append({"id": known or f"call_{index}_{n}"} | {key: each for key, each in call.items() if key != "id"})
    return replace(block, tool_calls=tuple(calls))


def _header(session: str) -> str:
    line = f"# Session: {session}"
    return f"# Session: {shown_id(session)}" if _UNSHOWABLE.search(line) or _SPLITS.search(line) else line


def _message(block: Block) -> str:
    ts, shown = _moment(block)
    meta = {"role": block.role} | ({} if ts is None else {"ts": ts})
    if block.tool_call_id:
        meta["tool_call_id"] = block.tool_call_id
    lines = [f"{MARKER}{_meta(meta)} -->", f"### {shown} — {_label(block.role)}", ""]
    if block.content:
        lines += [escape(block.content), ""]
    if block.tool_calls:
        lines += ["<details><summary>Tool Calls</summary>", "", "```json", _json_of(list(block.tool_calls))]
        lines += ["```", "", "</details>", ""]
    return "\n".join([*lines, "---", ""])


def _meta(meta: dict[str, Any]) -> str:
    """META in one line, which ends where its reader believes it to end."""
    return whole(json.dumps(meta, ensure_ascii=False)).replace(" -->", " --\\u003e")


def _json_of(calls: list[dict[str, Any]]) -> str:
    text = whole(json.dumps(calls, ensure_ascii=False, indent=2))
    return text.replace(MARKER, "\\u003c!-- msg:") if _SPLITS.search(text) else text


def _moment(block: Block) -> tuple[Any, str]:
    """META's ts, and how the heading shows it: local time without a zone; what is no time, as it stands."""
    if block.at is not None:
        local = block.at.astimezone().replace(tzinfo=None)
        return local.isoformat(timespec="seconds"), local.strftime("%Y-%m-%d %H:%M:%S")
    ts = block.meta.get("ts")
    if not ts:
        return None, "undated"  # it gives it the time of its next save
    try:
        return ts, datetime.fromisoformat(ts).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, TypeError):
        return ts, _line(str(ts))


def _label(role: str) -> str:
    return _LABELS.get(role) or _line(role.title())


def _line(text: str) -> str:
    """A text that stays on its line and is no marker."""
    return _UNSHOWABLE.sub("\ufffd", text).replace(MARKER, "<!-- msg\\:")


def whole(text: str) -> str:
    """The text, in which U+FFFD stands for each half of a character."""
    return _SURROGATE.sub("\ufffd", text)


def quoted(value: Any) -> str:
    """A value as JSON that is YAML, too."""
    text = json.dumps(value, ensure_ascii=False)
    return _NO_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", whole(text))


# ── memory ──


def memory_bytes(facts: Iterable[Fact]) -> bytes:
    """MEMORY.md. Of two facts with one key the later value stands in the place of the first."""
    entries = {key: fact for fact in facts if (key := key_line(fact.key))}
    lines = [PREAMBLE]
    for key, fact in entries.items():
        updated = fact.updated.astimezone().strftime("%Y-%m-%d %H:%M:%S") if fact.updated else ""
        lines += [f"## {key}", f"> Updated: {updated}", "", _STRUCTURE.sub(r"\\", whole(fact.value)), ""]
    return "\n".join(lines).encode()


def key_line(key: str) -> str:
    """A key as one line: PythonClaw would read another key, or none, of any other."""
    return _UNSHOWABLE.sub(" ", key).strip()


def log_bytes(day: date, entries: Iterable[tuple[datetime, str, str]]) -> bytes:
    """The log of a day: (when, key, value) of each entry."""
    texts = [f"# Daily Memory — {day.isoformat()}\n\n"]
    texts += [f"### {at.astimezone():%H:%M:%S} — {key}\n\n{value}\n\n" for at, key, value in entries]
    return whole("".join(texts)).encode()


def index_bytes(text: str) -> bytes:
    """INDEX.md."""
    return f"{whole(text).strip()}\n".encode()
