"""The index of an archive: its first member, `index.json`. What is in it can be known without reading the rest.

It is one JSON document, written a file a line, so that neither side holds more than a line of it as text. What an
index says may be anybody's: `parse` believes no path, number or length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal, TypeVar

from clawd.errors import ClawdError, Refused
from clawd.ids import is_group_name

NAME = "index.json"
SCHEMA = 1
MOST_BYTES = 256 << 20  # of an index
MOST_FILES = 500_000
MOST_LINE = 64 << 10
MOST_HEAD = 16 << 20
MOST_SKIPPED = 1000  # that are named; all are counted
MOST_PATH = 4096
MOST_PARTS = 100  # a walk goes down 64
LABEL = re.compile(r"[A-Za-z0-9_-]{1,40}")
ROOM = 240  # bytes of a line beside its path
_SHA256 = re.compile(r"[0-9a-f]{64}")
_STATE_FILES = frozenset(("state/ledger.db", "state/trust.jsonl", "state/known.json"))
_GROUP_FILES = frozenset(("state/ledger.jsonl", "state/trust.jsonl", "state/known.json"))
_TOP_FILES = frozenset(("config.toml", "people.toml"))
_STATE_FOLDERS = ("blobs", "audit", "calibrations")

Kind = Literal["home", "group"]
T = TypeVar("T")


class Unsound(ClawdError):
    """What a file that should be an archive has, or lacks, in one sentence."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file as it lies in the archive; `mode` has the nine bits alone. `agent`: the group's own user had it, not the
    daemon's."""

    path: str
    bytes: int
    mode: int
    sha256: str
    mtime_ns: int
    agent: bool = False


@dataclass(frozen=True, slots=True)
class Folder:
    """A directory: the archive has no member for it."""

    path: str
    mode: int
    agent: bool = False


@dataclass(frozen=True, slots=True)
class Skipped:
    """What lay there and is not in the archive, and why."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Head:
    """What an archive is. `people`: the senders whose messages the ledger knew then, None for too many to name;
    `ledger` is the schema of its ledger's rows. `skipped` names at most 1,000, `left` counts all."""

    kind: Kind
    group: str | None
    label: str | None
    created: str
    clawd: str
    ledger: int
    groups: tuple[str, ...]
    people: tuple[str, ...] | None
    skipped: tuple[Skipped, ...] = ()
    left: int = 0
    schema: int = SCHEMA


@dataclass(slots=True)
class Index:
    """All of it, by path."""

    head: Head
    folders: dict[str, Folder] = field(default_factory=dict)
    files: dict[str, Entry] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.files.values())


def room_for(path: str) -> int:
    """Bytes that no line about this path is longer than."""
    return len(_text(path)) + ROOM


def render(index: Index) -> bytes:
    """The document. It ends with a line break."""
    head = _head(index.head)
    lines = [head[:-1] + b', "folders": [']
    lines += _listed(_text(_folder(each)) for each in index.folders.values())
    lines.append(b'], "files": [')
    lines += _listed(_text(_file(each)) for each in index.files.values())
    return b"\n".join([*lines, b"]}", b""])


def head_room(head: Head) -> int:
    """Bytes that the document needs beside its lines."""
    return len(_head(head)) + 200


def parse(file: BinaryIO, size: int) -> Index:
    """The index out of a stream that is at its beginning, of which all `size` bytes are read. Raises Unsound for what
    is none, Refused for one of a newer clawd."""
    if size > MOST_BYTES:
        raise Unsound(f"its index has {size:,} bytes, which no index has")
    lines = _lines(file, size)
    first = next(lines, b"")
    opening = b', "folders": ['
    if not first.endswith(opening):
        raise Unsound("its index is not one of clawd's")
    index = Index(_head_of(_object(first.removesuffix(opening) + b"}")))
    for path, folder in _section(lines, b'], "files": [', index.head, _folder_of):
        index.folders[path] = folder
    for path, entry in _section(lines, b"]}", index.head, _file_of):
        if path in index.files or path in index.folders:
            raise Unsound(f"its index names {path!a} twice")
        index.files[path] = entry
    if any(line.strip(b" ") for line in lines):
        raise Unsound("its index goes on behind its end")
    _check_tree(index)
    return index


# ── writing ──


def _text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def _listed(rows: Iterator[bytes]) -> Iterator[bytes]:
    last: bytes | None = None
    for row in rows:
        if last is not None:
            yield last + b","
        last = row
    if last is not None:
        yield last


def _head(head: Head) -> bytes:
    said = {
        "schema": head.schema,
        "kind": head.kind,
        "group": head.group,
        "label": head.label,
        "created": head.created,
        "clawd": head.clawd,
        "ledger": head.ledger,
        "groups": head.groups,
        "people": head.people,
        "left": head.left,
        "skipped": [{"path": each.path, "why": each.why} for each in head.skipped],
    }
    return json.dumps(said).encode("ascii")


def _folder(folder: Folder) -> dict[str, Any]:
    return {"path": folder.path, "mode": folder.mode} | ({"agent": True} if folder.agent else {})


def _file(entry: Entry) -> dict[str, Any]:
    said = {"path": entry.path, "bytes": entry.bytes, "mode": entry.mode, "sha256": entry.sha256}
    return said | {"mtime_ns": entry.mtime_ns} | ({"agent": True} if entry.agent else {})


# ── reading ──


def _lines(file: BinaryIO, size: int) -> Iterator[bytes]:
    left, limit = size, MOST_HEAD
    while left:
        line = file.readline(min(left, limit + 1))
        if not line:
            raise Unsound("it ends within its index")
        left -= len(line)
        if len(line) > limit and line.strip(b" "):
            raise Unsound("a line of its index is too long")
        yield line.removesuffix(b"\n")
        limit = MOST_LINE


def _object(line: bytes) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        raise Unsound("its index is not one of clawd's") from None
    if not isinstance(said, dict):
        raise Unsound("its index is not one of clawd's")
    return said


def _section(lines: Iterator[bytes], end: bytes, head: Head, of: Any) -> Iterator[tuple[str, Any]]:
    for count, line in enumerate(lines):
        if line == end:
            return
        if count == MOST_FILES:
            raise Unsound(f"its index names more than {MOST_FILES:,} files")
        said = _object(line.removesuffix(b","))
        path = said.get("path")
        if not isinstance(path, str) or not is_path(path):
            raise Unsound(f"its index names {str(path)[:200]!a}, which is no path inside a home")
        if not is_place(path, head, folder=of is _folder_of):
            raise Unsound(f"its index names {path[:200]!a}, which a backup does not hold")
        yield path, of(path, said)
    raise Unsound("it ends within its index")


def _folder_of(path: str, said: dict[str, Any]) -> Folder:
    return Folder(path, _number(said, "mode", 0o777), said.get("agent") is True)


def _file_of(path: str, said: dict[str, Any]) -> Entry:
    sha256 = said.get("sha256")
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise Unsound(f"its index has no hash of {path!a}")
    bytes_, mode = _number(said, "bytes", 1 << 50), _number(said, "mode", 0o777)
    return Entry(path, bytes_, mode, sha256, _number(said, "mtime_ns", 1 << 63), said.get("agent") is True)


def _number(said: dict[str, Any], name: str, most: int) -> int:
    value = said.get(name)
    if type(value) is not int or not 0 <= value <= most:
        raise Unsound(f"its index has no usable {name!r} of a file")
    return value


def _head_of(said: dict[str, Any]) -> Head:
    schema = said.get("schema")
    if type(schema) is int and schema > SCHEMA:
        raise Refused(f"the archive has schema {schema}, this clawd knows up to {SCHEMA}", hint="use the newer clawd")
    kind, group, label = said.get("kind"), said.get("group"), said.get("label")
    groups, people, skipped = said.get("groups"), said.get("people"), said.get("skipped")
    sound = (
        schema == SCHEMA
        and (
            (kind == "home" and group is None) or (kind == "group" and isinstance(group, str) and is_group_name(group))
        )
        and (label is None or (isinstance(label, str) and LABEL.fullmatch(label)))
        and all(isinstance(said.get(name), str) for name in ("created", "clawd"))
        and type(said.get("ledger")) is int
        and _is_texts(groups)
        and (people is None or _is_texts(people))
        and isinstance(skipped, list)
        and type(said.get("left")) is int
    )
    if not sound:
        raise Unsound("its index is not one of clawd's")
    named = tuple(
        Skipped(str(each.get("path"))[:MOST_PATH], str(each.get("why"))[:200])
        for each in skipped or ()
        if isinstance(each, dict)
    )
    return Head(
        "home" if kind == "home" else "group", group, label, said["created"], said["clawd"], said["ledger"],
        tuple(groups or ()), None if people is None else tuple(people), named, said["left"],
    )  # fmt: skip


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def is_path(path: str) -> bool:
    """Whether it is relative, in its one spelling, and leaves no root."""
    parts = path.split("/")
    try:
        raw = [part.encode("utf-8", "surrogateescape") for part in parts]
    except UnicodeEncodeError:
        return False
    return (
        "\0" not in path
        and len(parts) <= MOST_PARTS
        and sum(map(len, raw)) + len(raw) <= MOST_PATH
        and all(part not in ("", ".", "..") and len(each) <= 255 for part, each in zip(parts, raw, strict=True))
    )


def is_place(path: str, head: Head, *, folder: bool) -> bool:
    """Whether a backup of this kind has something there."""
    top, _, rest = path.partition("/")
    if top == "groups" and rest:
        name = rest.partition("/")[0]
        within = folder or "/" in rest
        return is_group_name(name) and within and (head.group is None or head.group == name)
    if head.kind == "group":
        return not folder and path in _GROUP_FILES
    if top == "skills":
        return folder or bool(rest)
    if top == "state":
        name, _, below = rest.partition("/")
        return (name in _STATE_FOLDERS and (folder or bool(below))) or (not folder and path in _STATE_FILES)
    return not folder and path in _TOP_FILES


def _check_tree(index: Index) -> None:
    """No file is where another one has a directory."""
    for path in index.files:
        _check_above(index, path)
    for path in index.folders:
        if path in index.files:
            raise Unsound(f"its index names {path!a} twice")
        _check_above(index, path)


def _check_above(index: Index, path: str) -> None:
    above = path.rpartition("/")[0]
    while above:
        if above in index.files:
            raise Unsound(f"its index has {above!a} as a file and as a directory")
        above = above.rpartition("/")[0]


def clipped(skipped: Iterable[Skipped]) -> tuple[Skipped, ...]:
    """The first of them, with paths that fit into a line."""
    kept: list[Skipped] = []
    for each in skipped:
        if len(kept) == MOST_SKIPPED:
            break
        kept.append(Skipped(each.path[:500], each.why[:80]))
    return tuple(kept)
