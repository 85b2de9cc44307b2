"""A group's memory as the directory that Anthropic's memory tool (`memory_20250818`) knows: six commands beneath
/memories, with the tool's own sentences.

No path that is said here ever reaches a file system: it is looked up among those of the memories that the voice may
see. A memory is where its file is in `memory/`; what this tool made is where it said, which is kept as a tag, so that
no name of an agent's becomes a name on the disk. Every write is one of the store's, with its gate.
"""

from __future__ import annotations

import inspect
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from clawd.errors import Refused, UsageError
from clawd.memory import admission, text
from clawd.memory.protocol import Voice
from clawd.memory.record import FOLDERS, MemoryRecord
from clawd.memory.store import GroupMemory, Written

ROOT = "/memories"
_LEVELS = 2  # of a listing
_LONGEST, _LONGEST_NEW = 255, 64  # characters of a path; a new one is a tag
_PART = re.compile(r"[^\s./\\%~][^/\\%]{0,99}")
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_KINDS = {folder: kind for kind, folder in FOLDERS.items()}
_FACTS = f"{ROOT}/MEMORY.md"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the tool says. `taint` is what a turn falls to before it is told; `waits`: the owner is to decide."""

    text: str
    taint: float = 1.0
    waits: bool = False


class Directory:
    """For one voice. `key` makes a command the same one, however often it comes; `first` is given the texts that are to
    be forgotten, before they are gone. Calls block."""

    def __init__(
        self, of: GroupMemory, voice: Voice, key: str = "", first: Callable[[list[str]], object] = lambda texts: None
    ) -> None:
        self._of, self._voice, self._key, self._first = of, voice, key, first

    def call(self, command: Mapping[str, Any]) -> Answer:
        """One command as the tool has it: {command, path, …}. Raises UsageError, NotFound, Refused, StorageError, with
        the tool's own sentence where it has one."""
        known: dict[str, Callable[..., Answer]] = {
            "view": self.view, "create": self.create, "str_replace": self.str_replace, "insert": self.insert,
            "delete": self.delete, "rename": self.rename,
        }  # fmt: skip
        given = {name: value for name, value in command.items() if name != "command" and value is not None}
        if (does := known.get(str(command.get("command")))) is None:
            raise UsageError(f"Unknown command: {command.get('command')}; there are {', '.join(known)}")
        try:
            inspect.signature(does).bind(**given)
        except TypeError:
            raise UsageError(f"{command['command']} does not take {', '.join(sorted(given)) or 'nothing'}") from None
        return does(**given)

    def view(self, path: str, view_range: list[int] | None = None) -> Answer:
        at, files = checked(path), self._files()
        if at not in files:
            return _listing(at, files)
        shown = [(each, *self._shown(each)) for each in files[at]]
        lines = "\n".join(self._harmless(each, said) for each, said, _, _ in shown).split("\n")
        start, end = view_range if view_range and len(view_range) == 2 else (1, -1)
        start = max(1, start)
        within = lines[start - 1 : len(lines) if end == -1 else end]
        head = f"Here's the content of {at} with line numbers:\n"
        return Answer(head + _numbered(within, start), min(taint for _, _, _, taint in shown))

    def create(self, path: str, file_text: str) -> Answer:
        at = checked(path)
        if at == ROOT or at in (files := self._files()) or any(each.startswith(f"{at}/") for each in files):
            raise UsageError(f"File {path} already exists")
        if at == _FACTS:
            raise UsageError(f"{at} has facts: keep one with memory_write, kind fact and a key")
        written = self._put(at, file_text, {})
        return Answer(f"File created successfully at: {at}{_waiting(written)}", waits=_waits(written))

    def str_replace(self, path: str, old_str: str, new_str: str = "") -> Answer:
        at, record = self._file(path)
        before, _, taint = self._shown(record)
        found = [place.start() for place in re.finditer(f"(?={re.escape(old_str)})", before)] if old_str else []
        if not found:
            raise UsageError(f"No replacement was performed, old_str `{old_str}` did not appear verbatim in {at}.")
        if len(found) > 1:
            where = ", ".join(str(before.count("\n", 0, place) + 1) for place in found)
            raise UsageError(
                f"No replacement was performed. Multiple occurrences of old_str `{old_str}` in lines: {where}. Please"
                " ensure it is unique"
            )
        after = before[: found[0]] + new_str + before[found[0] + len(old_str) :]
        written = self._change(record, after)
        line = before.count("\n", 0, found[0])
        start, lines = max(0, line - 2), after.split("\n")
        snippet = _numbered([self._harmless(record, each) for each in lines[start : line + 3]], start + 1)
        said = "The memory file has been edited. Here is the snippet showing the change (with line numbers):"
        return Answer(f"{said}\n{snippet}{_waiting(written)}", taint, _waits(written))

    def insert(self, path: str, insert_line: int, insert_text: str) -> Answer:
        at, record = self._file(path)
        lines = self._shown(record)[0].split("\n")
        if not 0 <= insert_line <= len(lines):
            raise UsageError(
                f"Invalid `insert_line` parameter: {insert_line}. It should be within the range of lines of the file:"
                f" [0, {len(lines)}]"
            )
        lines.insert(insert_line, insert_text.rstrip("\n"))
        written = self._change(record, "\n".join(lines))
        return Answer(f"The file {at} has been edited.{_waiting(written)}", waits=_waits(written))

    def delete(self, path: str) -> Answer:
        at = checked(path)
        if at == ROOT:
            raise UsageError("Cannot delete the /memories directory itself")
        records = [record for _, record in self._beneath(at, "The path {} does not exist")]
        for record in records:  # all of them, or none
            if refusal := admission.may_change(self._voice, record):
                raise Refused(refusal)

        for record in records:
            self._of.forget(record.id, self._voice, first=self._first)
        return Answer(f"Successfully deleted {at}")

    def rename(self, old_path: str, new_path: str) -> Answer:
        """Another path is another memory that supersedes the first: whatever folder gives more weight to a text is
        behind the same gate."""
        old, new = checked(old_path), checked(new_path)
        if old == ROOT:
            raise UsageError("Cannot rename the /memories directory itself")
        moved = self._beneath(old, "The path {} does not exist")
        taken = any(f"{each}/".startswith(f"{new}/") for each in self._files())
        if new in (ROOT, _FACTS) or new.startswith(f"{old}/") or taken:
            raise UsageError(f"The destination {new} already exists")
        said = ""
        for path, record in moved:
            more = {"supersedes": record.id, "derived_from": [record.id], "event_time": record.event_time.isoformat()}
            written = self._put(new + path[len(old) :], self._shown(record)[0], more, record)
            said = said or _waiting(written)
        return Answer(f"Successfully renamed {old} to {new}{said}", waits=bool(said))

    # ── what there is ──

    def _files(self) -> dict[str, list[MemoryRecord]]:
        """The memories of each path; only facts share one. Of two at one path the one that is trusted more is seen, or
        the newer one."""
        found: dict[str, list[MemoryRecord]] = {}
        for record in sorted(self._of.every(self._voice), key=lambda each: each.trust):
            if self._shown(record)[1] < self._of.floor:
                continue
            if record.kind == "fact":
                found.setdefault(_FACTS, []).append(record)
            else:
                found[path_of(record)] = [record]
        return found

    def _file(self, path: str) -> tuple[str, MemoryRecord]:
        at, files = checked(path), self._files()
        if at not in files:
            if any(each.startswith(f"{at}/") for each in files):
                raise UsageError(f"The path {at} is not a file.")
            raise UsageError(f"The path {at} does not exist. Please provide a valid path.")
        return at, _alone(at, files[at])

    def _beneath(self, at: str, otherwise: str) -> list[tuple[str, MemoryRecord]]:
        found = [(path, _alone(path, each)) for path, each in self._files().items() if f"{path}/".startswith(f"{at}/")]
        if not found:
            raise UsageError(otherwise.format(at))
        return found

    def _shown(self, record: MemoryRecord) -> tuple[str, float, float]:
        """What may be seen of it, as it was written, how far that is trusted, and what it lowers a turn to."""
        return admission.shown(record, self._of.floor)

    def _harmless(self, record: MemoryRecord, said: str) -> str:
        said = f"{record.key}: {said}" if record.kind == "fact" else said
        return said if self._shown(record)[1] >= admission.CLEAN else text.defanged(said)

    # ── writing ──

    def _put(self, at: str, content: str, more: Mapping[str, Any], old: MemoryRecord | None = None) -> Written:
        if len(at) > _LONGEST_NEW:
            raise UsageError(f"{at} is too long: a path has at most {_LONGEST_NEW} characters")
        top = at.split("/")[2]
        kind = _KINDS.get(top, "entity") if at.count("/") > 2 else "entity"
        tags = [at, *(each for each in (old.tags if old else ()) if not each.startswith(f"{ROOT}/"))]
        return self._of.put(content, kind, {"tags": tags, **more}, self._voice, key=f"{self._key} {at}")

    def _change(self, record: MemoryRecord, content: str) -> Written:
        return self._of.change(
            record.id, content, self._voice, key=self._key, edited=self._shown(record)[0] is record.text
        )


def checked(path: str) -> str:
    """The path in its one spelling. Raises UsageError for what is not beneath /memories, or might be read as another
    one by anybody."""
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise UsageError(f"Path must start with /memories, got: {path}")
    parts = path.removesuffix("/").split("/")[2:]
    if len(path) > _LONGEST or not all(map(_is_plain, parts)):
        raise UsageError(f"Path {path} would escape /memories directory")
    return "/".join([ROOT, *parts])


def path_of(record: MemoryRecord) -> str:
    """Where a memory is seen."""
    for tag in record.tags:
        if tag.startswith(f"{ROOT}/"):
            try:
                return checked(tag)
            except UsageError:
                continue
    return f"{ROOT}/{record.file}"


def _is_plain(part: str) -> bool:
    hidden = any(unicodedata.category(letter) in _HIDDEN for letter in part)
    return _PART.fullmatch(part) is not None and not hidden and unicodedata.normalize("NFKC", part) == part


def _alone(path: str, records: list[MemoryRecord]) -> MemoryRecord:
    if records[0].kind == "fact":
        raise UsageError(f"{path} has facts: change one with memory_update, or forget it with memory_delete")
    return records[0]


def _waiting(written: Written) -> str:
    return (
        ""
        if written.status == "active"
        else f"\nIt waits for the owner's word, and is not seen until then: {written.why}"
    )


def _waits(written: Written) -> bool:
    return written.status != "active"


def _numbered(lines: list[str], start: int) -> str:
    return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(lines, start))


def _listing(at: str, files: Mapping[str, list[MemoryRecord]]) -> Answer:
    """What lies beneath. A name that an agent chose lowers who reads it; sizes and our own names say nothing."""
    beneath = {path: each for path, each in files.items() if path.startswith(f"{at}/")}
    if not beneath and at != ROOT:
        raise UsageError(f"The path {at} does not exist. Please provide a valid path.")
    sizes: dict[tuple[str, ...], int] = {}
    taint = 1.0
    for path, records in beneath.items():
        parts = path[len(at) + 1 :].split("/")
        size = sum(len(each.text.encode("utf-8", "replace")) for each in records)
        for depth in range(1, min(len(parts), _LEVELS) + 1):
            name = (*parts[:depth], "") if depth < len(parts) else tuple(parts)
            sizes[name] = sizes.get(name, 0) + size
        if any(path != f"{ROOT}/{each.file}" for each in records if each.kind != "fact"):
            taint = min(taint, *(each.taint for each in records))
    whole = sum(len(each.text.encode("utf-8", "replace")) for records in beneath.values() for each in records)
    head = f"Here're the files and directories up to 2 levels deep in {at}, excluding hidden items and node_modules:"
    lines = [f"{_size(size)}\t{at}/{'/'.join(name)}" for name, size in sorted(sizes.items())]
    return Answer("\n".join([head, f"{_size(whole)}\t{at}", *lines]), taint)


def _size(size: float) -> str:
    units = iter("BKM")
    unit = next(units)
    while size >= 1024 and (larger := next(units, "")):
        size, unit = size / 1024, larger
    return f"{size:.1f}".removesuffix(".0") + unit
