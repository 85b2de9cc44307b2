"""What lies in a group's `memory/`, as a person and the daemon left it. The directory says the kind of a memory: what
lies in `episodes/`, `entities/`, `procedures/`, `reflections/`, `quarantine/`, however deep. MEMORY.md holds facts, a
daily log is a day, and any other Markdown file is an entity.

Nothing is followed, no file stops the others, and what is left out is said in a sentence, but for hidden files, an
editor's copies and what is no text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any, NamedTuple

from clawd.clock import moment_of
from clawd.errors import UnsafePath
from clawd.files import directory_beneath, open_beneath, walk_beneath
from clawd.memory import daily, keyed, record
from clawd.memory.keyed import FACTS, INDEX, LIMIT
from clawd.memory.record import FOLDERS, ID, PREFIXES, QUARANTINE, Kind, MemoryRecord, settled

_KINDS: dict[str, Kind] = {folder: kind for kind, folder in FOLDERS.items()}  # type: ignore[misc]
_BY_PREFIX: dict[str, Kind] = {prefix: kind for kind, prefix in PREFIXES.items()}  # type: ignore[misc]
_CHARACTER = re.compile(rb"[\xc0-\xff][\x80-\xbf]{0,2}\Z")  # of UTF-8, that may have been cut
_UNWRITABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_NAMED = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{4}Z-[0-9a-z]{10}(?:-[0-9]+)?")
_DATED = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?![0-9])")


class Stamp(NamedTuple):
    """By which it is known that a file is still the one that was read."""

    mtime_ns: int
    size: int
    ino: int


@dataclass(frozen=True, slots=True)
class RawMemory:
    """One memory as its file has it, of which nobody has said yet how far it is trusted. `at` is when it happened, or
    when the file was changed, aware. `title` is what it is called besides its text. Where it is not `whole`, the file
    is longer than what is read and must not be written again. `pieces` are those of a day."""

    id: str
    kind: Kind
    text: str
    path: str
    at: datetime
    fields: Mapping[str, Any] = field(default_factory=dict)
    head: str = ""
    title: str = ""
    whole: bool = True
    pieces: tuple[daily.Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class Looked:
    """What a file holds; `stamp` is None where it is gone or cannot be read."""

    memories: tuple[RawMemory, ...] = ()
    stamp: Stamp | None = None
    problems: tuple[str, ...] = ()


def walk(root: Path, problems: list[str]) -> Iterator[tuple[str, Stamp]]:
    """The files that hold memories, in no order, their paths relative to `root`; what is amiss is added to `problems`.
    Raises OSError where `root` cannot be opened."""
    if root.is_symlink():
        problems.append(f"{root} is a link: put the folder itself there")
    for path, status in walk_beneath(
        root, _passed_over, lambda path, why: problems.append(f"memory/{path!a} is left out: {why}")
    ):
        if _UNWRITABLE.search(path):
            problems.append(f"memory/{path!a} is left out: its name cannot be shown")
        elif path.endswith((".txt", ".markdown")):
            problems.append(f"memory/{path!a} is left out: Markdown files end with .md")
        elif path.endswith(".md"):
            yield path, _stamp(status)


def holds(path: str) -> bool:
    """Whether a path relative to `memory/` may be a file that is read."""
    return path.endswith(".md") and not _UNWRITABLE.search(path) and not any(map(_passed_over, path.split("/")))


def kind_of(path: str, id: str = "", said: str = "") -> Kind:
    """The kind that a place says; in quarantine/ the id does, or what the file says."""
    folder, below, _ = path.partition("/")
    if below and folder == QUARANTINE:
        claimed = _BY_PREFIX.get(id[:2]) if ID.fullmatch(id) else None
        return claimed or (said if said in PREFIXES else "episode")  # type: ignore[return-value]
    if not below:
        return "fact" if path == FACTS else "day" if daily.day_of(path) else "entity"
    return _KINDS.get(folder, "entity")


def name_of(memory: MemoryRecord) -> str:
    """The path of a new file, the same for the same memory: its moment (UTC), and the letters of its id. It says
    nothing of the text, for names are in logs."""
    folder = QUARANTINE if memory.status == "quarantined" else FOLDERS.get(memory.kind, QUARANTINE)
    return f"{folder}/{memory.created.astimezone(UTC):%Y-%m-%dT%H%MZ}-{memory.id[3:]}.md"


@contextmanager
def reading(root: Path) -> Iterator[Callable[[str], Looked]]:
    """A reader of files beneath `root`, fast for such as lie in one folder."""
    held: tuple[str, int] | None = None

    def read(path: str) -> Looked:
        nonlocal held
        folder, _, name = path.rpartition("/")
        try:
            if held is None or held[0] != folder:
                below = directory_beneath(root, folder)
                if held is not None:
                    os.close(held[1])
                held = folder, below
            return _looked(held[1], name, path)
        except FileNotFoundError:
            return Looked()
        except UnsafePath:
            return Looked(problems=(f"memory/{path!a} is a link, or no file: it is left out",))
        except OSError as error:
            return Looked(problems=(f"memory/{path!a} cannot be read: {error.strerror}",))

    try:
        yield read
    finally:
        if held is not None:
            os.close(held[1])


def look(root: Path, path: str) -> Looked:
    """One file."""
    with reading(root) as read:
        return read(path)


def _passed_over(name: str) -> bool:
    return name.startswith((".", "#")) or name.endswith(("~", ".tmp", ".bak", ".swp"))


def _stamp(status: os.stat_result) -> Stamp:
    return Stamp(status.st_mtime_ns, status.st_size, status.st_ino)


def _looked(folder: int, name: str, path: str) -> Looked:
    at = open_beneath(folder, name)
    try:
        status, data = os.fstat(at), b""
        while len(data) < LIMIT:
            more = os.read(at, want := min(status.st_size + 1, LIMIT - len(data)))
            data = data + more if data else more
            if len(more) < want:
                break
    finally:
        os.close(at)
    problems, whole = list[str](), status.st_size <= LIMIT
    if not whole:
        problems.append(f"memory/{path} is larger than {LIMIT >> 20} MB: what follows is not read")
        data = data[:-4] + _CHARACTER.sub(b"", data[-4:])
    found = _memories(path, data, status.st_mtime, whole, problems)
    return Looked(tuple(found), _stamp(status), tuple(problems))


def _memories(path: str, data: bytes, mtime: float, whole: bool, problems: list[str]) -> Iterator[RawMemory]:
    if path == FACTS:
        preamble, facts = keyed.parsed(data)
        for fact in facts.values():
            at = fact.updated or _local(mtime)
            yield RawMemory(f"fact:{fact.key}", "fact", fact.value, path, at, {"key": fact.key}, "", fact.key, whole)
        if text := settled(preamble.removeprefix(keyed.PREAMBLE.strip())):
            yield RawMemory(f"file:{path}", "entity", text, path, _local(mtime), whole=whole)
    elif (day := daily.day_of(path)) is not None:
        pieces, text = tuple(daily.parsed(data, day)), settled(data.decode("utf-8-sig", "replace"))
        noon = datetime.combine(day, time(12)).astimezone()
        yield RawMemory(f"day:{day}", "day", text, path, noon, title=str(day), whole=whole, pieces=pieces)
    else:
        page = record.read(data, f"memory/{path}")
        problems.extend(page.problems)
        if page.text:
            yield _page(path, page, mtime, whole)


def _page(path: str, page: record.Page, mtime: float, whole: bool) -> RawMemory:
    fields, stem = page.fields, path.rpartition("/")[2].removesuffix(".md")
    id = fields.get("id", "")
    if path == INDEX or not ID.fullmatch(id):
        id = f"file:{path}"
    dated = moment_of(match[0]) if (match := _DATED.match(stem)) else None
    at = fields.get("event_time") or fields.get("created") or dated or _local(mtime)
    title = fields.get("title")
    named = title if isinstance(title, str) else "" if _NAMED.fullmatch(stem) else stem
    kind = kind_of(path, id, fields.get("kind", ""))
    return RawMemory(id, kind, page.text, path, at, fields, page.head, named, whole)


def _local(mtime: float) -> datetime:
    return datetime.fromtimestamp(mtime, UTC).astimezone()
