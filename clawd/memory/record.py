"""What a memory is, and its file: YAML frontmatter, then the text as a person may write it.

The text is the truth; the frontmatter says to a person what is known of it, and the trust ledger decides. Reading never
raises, and no text is lost: frontmatter that cannot be understood is text like the rest. What a person added to it, in
its order and with its comments, stays when the file is written again.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal

from clawd import frontmatter
from clawd.clock import moment_of
from clawd.errors import Refused
from clawd.frontmatter import Unreadable
from clawd.scopes import is_namespace
from clawd.trust import Origin

Kind = Literal["profile", "episode", "entity", "procedure", "reflection", "fact", "day"]
Status = Literal["active", "proposed", "quarantined", "superseded"]
FOLDERS: dict[str, str] = {
    "episode": "episodes",
    "entity": "entities",
    "procedure": "procedures",
    "reflection": "reflections",
}
QUARANTINE = "quarantine"  # what nobody is to find, and proposals that have no other place: of profile, of facts
PREFIXES = {"episode": "ep", "entity": "en", "procedure": "pr", "reflection": "re", "profile": "up", "fact": "fp"}
ID = re.compile(r"(?:ep|en|pr|re|up|fp)_[0-9a-z]{10}")  # of a file; besides there are fact:KEY, day:DATE, file:PATH
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Said:
    """A citation: whole sentences that the owner typed in this message, at the owner's trust."""

    quote: str
    inbound: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """One memory with what is known of it. `trust` is that of `text`; the quote of `said` has its own, the owner's.
    `taint` is what reading it lowers a turn to. `private`: it comes from a private session. `key` is a fact's, with the
    `namespace` in front; that is "" where the whole group has it. `file` is relative to the group's `memory/`. Times
    are aware. `head` is the file's frontmatter where it is not ours alone, and `whole` says that all of the file was
    read: whoever writes it again passes both on."""

    id: str
    kind: Kind
    text: str
    created: datetime
    updated: datetime
    event_time: datetime
    source: str
    origin: Origin
    trust: float
    status: Status = "active"
    taint: float = 1.0
    derived_from: tuple[str, ...] = ()
    supersedes: str | None = None
    tags: tuple[str, ...] = ()
    said: Said | None = None
    private: bool = False
    key: str = ""
    file: str = ""
    head: str = ""
    whole: bool = True
    namespace: str = ""


# ── the file ──

MOST = 64 << 10  # characters of frontmatter that a person has written to
_FENCE = "---"
_COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
_HARD = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")  # JSON lets them stand, YAML does not
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Page:
    """A file as it was read. Of `fields` ours are as they should be (times are aware datetimes, lists tuples of texts,
    `said` is {quote, inbound}), others as they stand. `head` is the frontmatter, where it is not ours alone. `problems`
    are sentences for a person."""

    fields: dict[str, Any]
    text: str
    head: str = ""
    problems: tuple[str, ...] = ()


def settled(text: str) -> str:
    """A text as its file gives it back: lines end with a line feed, no white space around it, no half characters."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").strip()
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def written(record: MemoryRecord) -> bytes:
    """The file of a record: its values are JSON, which is YAML. Raises Refused where not all of a file was read."""
    if not record.whole:
        raise Refused(f"{record.file} is too large to be written again", hint="move parts of it to files of their own")
    said = {"inbound": record.said.inbound, "quote": record.said.quote} if record.said else None
    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "id": record.id,
        "kind": record.kind,
        "created": record.created.isoformat(timespec="seconds"),
        "updated": record.updated.isoformat(timespec="seconds"),
        "event_time": record.event_time.isoformat(timespec="seconds"),
        "source": record.source,
        "origin": record.origin.value,
        "trust": record.trust,
        "status": record.status,
        "derived_from": list(record.derived_from),
        "supersedes": record.supersedes,
        "tags": list(record.tags),
        **({"key": record.key} if record.key else {}),
        **({"memory_namespace": record.namespace} if record.namespace else {}),
        **({"said": said} if said else {}),
    }
    lines = {name: f"{name}: {_json(value)}" for name, value in fields.items()}
    head = _kept(record.head, lines) if record.head else "\n".join(lines.values())
    return f"{_FENCE}\n{head}\n{_FENCE}\n{settled(record.text)}\n".encode("utf-8", "replace")


def read(data: bytes, of: str = "the file") -> Page:
    """The page of a file, which sentences call `of`."""
    problems = list[str]()
    try:
        whole = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        whole = data.decode("utf-8-sig", "replace")
        problems.append(f"{of} is not UTF-8 (byte {error.start}): save it as UTF-8")
    whole = whole.replace("\r\n", "\n").replace("\r", "\n")
    if not whole.startswith(_FENCE):
        return Page({}, whole.strip(), problems=tuple(problems))
    end = whole.find(f"\n{_FENCE}\n", 3)
    if whole.startswith(f"{_FENCE}\n") and end > 0 and (simple := _simple(whole[4:end])) is not None:
        fields, by_us = simple
        text = whole[end + 5 :].strip()
        return Page(_normal(fields, of, problems), text, "" if by_us else whole[4:end], tuple(problems))
    try:
        head, body = frontmatter.parted(whole, of)
        fields, notes = frontmatter.understood(head, of, MOST) if _COMMENT.sub("", head).strip() else ({}, [])
    except Unreadable as error:
        problems.append(f"{error.message}; all of it counts as text")
        # Who it is still holds, so that a slip in an editor makes no other memory of it.
        ours = dict(each for line in whole[:MOST].split("\n")[1:40] if (each := _line(line)) is not None)
        return Page(_normal(ours, of, problems), whole.strip(), problems=tuple(problems))
    problems += notes
    return Page(_normal(fields, of, problems), body.strip(), head.strip("\n"), tuple(problems))


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    if not (text.isascii() and text.isprintable()):
        text = _HARD.sub(lambda each: f"\\u{ord(each[0]):04x}", _SURROGATE.sub("\ufffd", text))
    return text


# It needs no quotes in YAML, and is the same text.
_BARE = re.compile(r"(?!(?:Null|NULL)$)\w[\w.+/-]*(?:[: ]\w[\w.+/-]*)*", re.ASCII)


def _simple(head: str) -> tuple[dict[str, Any], bool] | None:
    """The fields of a head that has ours alone, a line each, and whether we wrote it, all in JSON; a person writes bare
    words. None of any other, which YAML reads."""
    lines = [line.partition(": ") for line in head.split("\n")]
    if not all(name in _HOW for name, _, _ in lines):
        return None
    if '"' in head and (fields := _table(lines)) is not None:
        return fields, True
    if not all(value == "null" or value[:1] == '"' or _BARE.fullmatch(value) for _, _, value in lines):
        return None
    quoted = [(name, "", value if value[0] == '"' else f'"{value}"') for name, _, value in lines if value != "null"]
    return (fields, False) if (fields := _table(quoted)) is not None else None


def _table(lines: Sequence[tuple[str, str, str]]) -> dict[str, Any] | None:
    try:
        fields = json.loads("{" + ",".join([f'"{name}":{value}' for name, _, value in lines]) + "}")
    except (ValueError, RecursionError):
        return None
    return fields if list(fields) == [name for name, _, _ in lines] else None


def _line(line: str) -> tuple[str, Any] | None:
    name, _, value = line.partition(": ")
    if name not in _HOW:
        return None
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return None


def _kept(head: str, lines: Mapping[str, str]) -> str:
    """A head in which our lines are new, and everything else stands as it stood."""
    new, left = list[str](), dict(lines)
    for name, block in _blocks(head):
        if name not in _HOW:
            new.append(block)
        elif name in left:
            new.append(left.pop(name))
    text = "\n".join([*new, *left.values()])
    others = {name: value for name, value in _known(head).items() if name not in _HOW}
    if {name: value for name, value in _known(text).items() if name not in _HOW} == others and _known(text):
        return text
    return "\n".join([*lines.values(), *(f"{_json(name)}: {_json(value)}" for name, value in others.items())])


def _known(head: str) -> dict[str, Any]:
    try:
        return frontmatter.understood(f"\n{head}\n", "", 2 * MOST)[0]
    except Unreadable:
        return {}


_NAME = re.compile(r"""(["']?)([^\s"'#\-\[{][^"'\n]*?)\1[ \t]*:(?=\s|$)""")


def _blocks(head: str) -> Iterator[tuple[str, str]]:
    """The lines of a head by the field that they belong to; a comment or an empty line has the name ""."""
    name, block = "", list[str]()
    for line in head.split("\n"):
        match = _NAME.match(line)
        if match or line.startswith("#"):
            if block:
                yield name, "\n".join(block)
            name, block = match[2] if match else "", [line]
        else:
            block.append(line)
    if block:
        yield name, "\n".join(block)


def _normal(fields: dict[str, Any], of: str, problems: list[str]) -> dict[str, Any]:
    """The same fields, ours as they should be; what cannot be is left out, with a sentence."""
    if "date" in fields and "event_time" not in fields:
        fields["event_time"] = fields["date"]
    found = {}
    for name, value in fields.items():
        how = _HOW.get(name)
        new = how(value) if how is not None else value
        if new is not None:
            found[name] = new
        elif value is not None:
            problems.append(f"{name} of {of} is not understood")
    return found


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) else str(value) if isinstance(value, int | float) else None


_moment = lru_cache(maxsize=4)(moment_of)  # the times of a page are mostly one


def _time(value: Any) -> datetime | None:
    return _moment(value) if isinstance(value, str) else None


def _several(value: Any) -> tuple[str, ...]:
    """A list as it may be written: also `a, b`, and `#a` for a tag."""
    each = re.split(r"[,\s]+", value) if isinstance(value, str) else value if isinstance(value, list) else ()
    return tuple(word for item in each if isinstance(item, str | int) and (word := str(item).strip().removeprefix("#")))


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _said(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, dict) or not isinstance(value.get("quote"), str):
        return None
    inbound = str(value.get("inbound"))
    return {"quote": value["quote"], "inbound": int(inbound) if re.fullmatch("[0-9]{1,18}", inbound) else None}


def _space(value: Any) -> str | None:
    return value if is_namespace(value) else None


_HOW: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("id", "kind", "source", "origin", "status", "supersedes", "key"), _word),
    **dict.fromkeys(("created", "updated", "event_time"), _time),
    **dict.fromkeys(("derived_from", "tags"), _several),
    **dict.fromkeys(("schema", "trust"), _number),
    "said": _said,
    "memory_namespace": _space,
}
