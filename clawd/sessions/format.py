"""The session file's format: PythonClaw's Markdown, ESC dialect written, ESC and RAW read. Pure; reading
never raises.

    FILE  = "# Session: " id "\\n\\n" ("\\n" BLOCK)*
    BLOCK = marker line with META · heading · blank · [content · blank] · [tool calls · blank] · "---"

Beyond PythonClaw's own META keys (role, ts, tool_call_id), which it ignores when it meets others:
- `at`       when the message happened, RFC 3339 (`ts` is the same moment, local and naive as PythonClaw has
  it);
- `turn`, `n` the turn, and "k/N": block k of its N;
- `exact`    what escaping or stripping would lose: [leading, trailing] white space, or the whole content;
- `session`  in a file's first block, the exact id when the header could not show it;
- `base`     in the last block of a turn, the conversation of which this session is a later segment.

`at` and `exact` are undone on reading; every other key stays in `Block.meta`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from clawd.clock import moment_of, rfc3339
from clawd.model import Block

MARKER = "<!-- msg:"
RULE = "---"
_CALLS_OPEN = "<details><summary>Tool Calls</summary>"
_CALLS_CLOSE = "</details>"
_LABELS = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool"}
_ROLES = {label: role for role, label in _LABELS.items()}

_ENCODED = frozenset({"role", "tool_call_id", "exact"})  # fields of a Block: META says them once
_PROBLEMS = 100  # as many sentences as a person may want to read

# A line that begins a block. Count these bytes and you have counted the messages.
MARKER_LINE = re.compile(rb"^<!-- msg:.* -->", re.MULTILINE)
_MARKER_LINE = re.compile(r"^<!-- msg:(.*) -->", re.MULTILINE)
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNSHOWABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# Lone CRs end a line too: PythonClaw reads with universal newlines, so what follows one would be structure to
# it.
_LINE = re.compile(r"[^\r\n]+")


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a file says. `session` is None without a header; `problems` are sentences about what had to be
    mended."""

    session: str | None
    blocks: list[Block] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


# -- writing --


def header(session: str) -> bytes:
    """The first bytes of a session's file."""
    return f"# Session: {shown_id(session)}\n\n".encode()


def shown_id(session: str) -> str:
    """The id as the header can show it: on one line, and never a marker (PythonClaw finds those anywhere)."""
    return _UNSHOWABLE.sub("\ufffd", session).replace(MARKER, "<!-- msg\\:")


def write_block(block: Block) -> bytes:
    """One block in the exact grammar, without the newline that precedes it in a file."""
    text = escape(block.content)
    lines = [f"{MARKER}{_json(_meta(block))} -->\n", f"### {_moment(block)} — {_label(block.role)}\n\n"]
    if text:
        lines.append(f"{text}\n\n")
    if block.tool_calls:
        calls = _json(list(block.tool_calls), indent=2)
        lines.append(f"{_CALLS_OPEN}\n\n```json\n{calls}\n```\n\n{_CALLS_CLOSE}\n\n")
    return "".join([*lines, f"{RULE}\n"]).encode()


def write_file(session: str, blocks: Sequence[Block]) -> bytes:
    """A whole file, as appending block by block makes it."""
    return header(session) + b"".join(b"\n" + write_block(block) for block in named(session, blocks))


def named(session: str, blocks: Sequence[Block]) -> list[Block]:
    """The first blocks of a file: the first one names the session where the header cannot."""
    if not blocks or shown_id(session) == session:
        return list(blocks)
    return [replace(blocks[0], meta={"session": session} | blocks[0].meta), *blocks[1:]]


def escape(content: str) -> str:
    """ESC: a backslash before every structural line; a marker is broken wherever it stands."""

    def line(match: re.Match[str]) -> str:
        return ("\\" if _structural(match[0]) else "") + match[0]

    return _SURROGATE.sub("\ufffd", _LINE.sub(line, content)).replace(MARKER, "<!-- msg\\:")


def unescape(text: str) -> str:
    """The other way; RAW text without literal backslashed structure passes unchanged."""

    def line(match: re.Match[str]) -> str:
        rest = match[0][1:]
        ours = match[0][0] == "\\" and (_structural(rest) or rest.strip().startswith("<!-- msg\\:"))
        return rest if ours else match[0]

    return _LINE.sub(line, text).replace("<!-- msg\\:", MARKER)


def _structural(line: str) -> bool:
    bare = line.strip()
    opens = bare.startswith(("### ", "<details><summary>Tool Calls", MARKER))
    return opens or bare in (RULE, _CALLS_CLOSE)


def _meta(block: Block) -> dict[str, Any]:
    meta: dict[str, Any] = {"role": block.role}
    if block.at is not None:
        meta["ts"] = _local(block.at, "T")
    elif "ts" in block.meta:
        meta["ts"] = block.meta["ts"]
    if block.tool_call_id is not None:
        meta["tool_call_id"] = block.tool_call_id
    if block.at is not None:
        meta["at"] = rfc3339(block.at)
    exact = _exact(block.content)
    if exact is not None:
        meta["exact"] = exact
    return meta | {key: value for key, value in block.meta.items() if key not in meta and key not in _ENCODED}


def _exact(content: str) -> list[str] | str | None:
    seen = _seen(content)
    if seen == content:
        return None
    bare = content.strip()
    if seen != bare:
        return content
    lead = content[: len(content) - len(content.lstrip())] if bare else content
    return [lead, content[len(lead) + len(bare) :]]


def _seen(content: str) -> str:
    """What a reader makes of written content without our extra keys."""
    return unescape(escape(content)).strip()


def _moment(block: Block) -> str:
    if block.at is not None:
        return _local(block.at, " ")
    return _UNSHOWABLE.sub("\ufffd", str(block.meta.get("ts") or "undated")).replace(MARKER, "<!-- msg\\:")


def _label(role: str) -> str:
    return _LABELS.get(role) or _UNSHOWABLE.sub("\ufffd", role.title()).replace(MARKER, "<!-- msg\\:")


def _local(moment: datetime, between: str) -> str:
    return moment.astimezone().replace(tzinfo=None).isoformat(between, "seconds")


def _json(value: Any, indent: int | None = None) -> str:
    """JSON in which nothing looks like a marker or a tag, whatever its strings hold."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    text = _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    return text.replace("<", "\\u003c").replace(">", "\\u003e")


# -- reading --


def parse(data: bytes, whole: bool = True) -> Parsed:
    """Every block of a file, or of its tail from a marker on (`whole=False`). Never raises, whatever the
    bytes."""
    problems: list[str] = []
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        problems.append(f"invalid UTF-8 at byte {error.start}")
        text = data.decode("utf-8", "replace")
    text = text.removeprefix("\ufeff")
    markers = list(_MARKER_LINE.finditer(text))
    blocks: list[Block] = []
    for index, marker in enumerate(markers):
        last = index + 1 == len(markers)
        body_start, meta = _read_meta(text, marker)
        body = text[body_start : None if last else markers[index + 1].start()]

        def problem(what: str, at: int = marker.start()) -> None:
            if len(problems) < _PROBLEMS:
                problems.append(f"line {text.count(chr(10), 0, at) + 1}: {what}")

        blocks.append(_read_block(meta, body, last, problem))
    if not whole:
        return Parsed(None, blocks, problems)
    session = _header_id(text[: markers[0].start()] if markers else text)
    stated = blocks[0].meta.get("session") if blocks else None
    if isinstance(stated, str) and session in (None, shown_id(stated)):
        session = stated
        blocks[0] = replace(blocks[0], meta={k: v for k, v in blocks[0].meta.items() if k != "session"})
    return Parsed(session, blocks, problems)


def _header_id(preamble: str) -> str | None:
    match = re.search(r"^# Session: ([^\r\n]*)", preamble, re.MULTILINE)
    return match[1] if match else None


def _read_meta(text: str, marker: re.Match[str]) -> tuple[int, Any]:
    """Where the body starts, and META; None when it is not JSON."""
    start = marker.start(1) + len(marker[1]) - len(marker[1].lstrip(" "))
    try:
        # Not up to the first " -->": a RAW file may hold one inside a string.
        meta, end = json.JSONDecoder().raw_decode(text[start : marker.end()])
        if closing := re.compile(" +-->").match(text, start + end, marker.end()):
            return closing.end(), meta
    except (ValueError, RecursionError):
        pass
    return marker.start() + marker[0].index(" -->") + len(" -->"), None


def _read_block(meta: Any, body: str, last: bool, problem: Callable[[str], None]) -> Block:
    lines = body.split("\n")
    label = _take_heading(lines)
    if not isinstance(meta, dict):
        problem("META is not an object" if meta is not None else "META is not JSON")
        meta = {"role": _ROLES.get(label, label.lower())} if label else {}
    rest = dict(meta)
    role, call_id = rest.pop("role", None), rest.pop("tool_call_id", None)
    _take_rule(lines, escaped="at" in rest, last=last, problem=problem)
    calls = _take_calls(lines, problem)
    content = unescape("\n".join(lines)).strip()
    exact = rest.pop("exact", None)
    if isinstance(exact, str) and _seen(exact) == content:  # otherwise a person edited the text: theirs holds
        content = exact
    elif isinstance(exact, list) and len(exact) == 2 and all(isinstance(space, str) for space in exact):
        content = exact[0] + content + exact[1]
    return Block(
        role=role if isinstance(role, str) else "unknown" if role is None else str(role),
        content=content,
        at=_take_moment(rest),
        tool_calls=calls,
        tool_call_id=call_id if call_id is None or isinstance(call_id, str) else str(call_id),
        meta=rest,
    )


def _take_heading(lines: list[str]) -> str:
    """Remove the heading below a marker and give its label."""
    for index, line in enumerate(lines):
        if line.strip().startswith("### "):
            del lines[: index + 1]
            return line.strip().rpartition("— ")[2].strip()
        if line.strip():
            break
    return ""


def _take_rule(lines: list[str], escaped: bool, last: bool, problem: Callable[[str], None]) -> None:
    """Remove the closing rule, and a torn marker below it; other text below it stays content.

    In RAW the last rule closes, because a message may hold others; in ESC the first, and all others are
    structure.
    """
    rules = [index for index, line in enumerate(lines) if line.strip() == RULE]
    if not rules:
        problem("torn tail: the last block has no closing rule" if last else "the block has no closing rule")
        return
    closing = rules[0] if escaped else rules[-1]
    below = [line for line in lines[closing:] if line.strip() not in ("", RULE)]
    if below and len(below[0]) > 4 and (MARKER.startswith(below[0]) or below[0].startswith(MARKER)):
        del lines[closing:]
        problem("torn tail: half a marker is left out" if last else "half a marker is left out")
    elif below:
        problem("text outside of a block is read as part of this one")
    lines[closing:] = [line for line in lines[closing:] if line.strip() != RULE]


def _take_calls(lines: list[str], problem: Callable[[str], None]) -> tuple[dict[str, Any], ...]:
    """Remove the tool calls' section and give the calls. One that cannot be read stays text."""
    opened = next((i for i in reversed(range(len(lines))) if lines[i].rstrip() == _CALLS_OPEN), None)
    if opened is None:
        return ()
    bare = [line.strip() for line in lines[opened:]]
    try:
        first = bare.index("```json") + 1
        fence = bare.index("```", first)
        calls = json.loads("\n".join(lines[opened + first : opened + fence]))
        closed = bare.index(_CALLS_CLOSE, fence)
    except (ValueError, RecursionError):
        problem("the tool calls cannot be read")
        return ()
    if isinstance(calls, dict):
        calls = [calls]
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        problem("the tool calls are not objects")
        return ()
    del lines[opened : opened + closed + 1]
    return tuple(calls)


def _take_moment(meta: dict[str, Any]) -> datetime | None:
    """When the message happened, from `at`, else `ts`. A key that is not understood stays in META."""
    at = _moment_of(meta.get("at"))
    if at is not None:
        del meta["at"]
        meta.pop("ts", None)
        return at
    ts = _moment_of(meta.get("ts"))
    if ts is not None:
        del meta["ts"]
    return ts


def _moment_of(value: Any) -> datetime | None:
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = datetime.fromtimestamp(value).astimezone().isoformat()
    except (ValueError, OverflowError, OSError):
        return None
    return moment_of(value) if isinstance(value, str) else None
