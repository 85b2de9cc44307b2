"""Texts of a foreign home: instructions, profiles, notes and daily logs, made ours group by group.

Several files of instructions become one CLAUDE.md, a section each, which says where it lay; so do several profiles, and
several logs of one day. One alone stays as it is. Nothing is reworded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from clawd.arrivals.items import Item, Kind
from clawd.bridges.foreign.place import Place, shown, text_of
from clawd.ids import folded, free
from clawd.memory import daily

INSTRUCTIONS = 768 << 10  # bytes of one group's, of the 1 MB that goes into prompts
_NAMED = 80  # characters of a note's name
_IMPORT = re.compile(r"^[ \t]*@[\w~./-]", re.MULTILINE)
_ENTRY = re.compile(r"^(?=### [0-2][0-9]:[0-5][0-9]|- \[[0-9]{4}-)", re.MULTILINE)
_DATED = re.compile(
    r"^\[([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)[^\]\n]{0,16}\][ \t]*", re.MULTILINE
)
_MENDED = "bytes that were no UTF-8 are replaced"


@dataclass
class _Part:
    source: str
    texts: list[str]
    changed: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts)


@dataclass
class _Page:
    """What becomes of one file of ours, by its parts."""

    kind: Kind
    parts: list[_Part] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


class Pages:
    def __init__(self, place: Place) -> None:
        self._place = place
        self._pages = dict[tuple[str, str], _Page]()  # by group, and where it goes
        self._notes = dict[str, set[str]]()  # what they are called, by group

    def instructions(self, group: str, path: str, *said: str) -> None:
        """A file of instructions of a group; `said` are sentences on it. Nothing where there is no such file."""
        self._add("instructions", group, "CLAUDE.md", path, said)

    def profile(self, group: str, path: str) -> None:
        """What it knows of its person."""
        self._add("profile", group, "user_profile.md", path)

    def memory(self, group: str, path: str, named: str) -> None:
        """A file of memory: a day's log where its name is a date, else a note, called like `named`, its path there."""
        name = named.rpartition("/")[2]
        if daily.day_of(name) is not None:
            self._add("day", group, f"memory/{name}", path)
            return
        stem = re.sub(r"[^\w-]+", "-", named.removesuffix(".md")).strip("-_").lower()[:_NAMED] or "note"
        taken = self._notes.setdefault(group, set())
        stem = free(stem, lambda each: folded(each) not in taken)
        if self._add("note", group, f"memory/notes/{stem}.md", path):
            taken.add(folded(stem))

    def history(self, group: str, path: str) -> None:
        """A file of paragraphs that begin with `[2026-04-03 10:00]`: entries of those days' logs; one without any is a
        note."""
        found = self._place.text(path, most=16 << 20)
        if found is None:
            return
        starts = [match for match in _DATED.finditer(found.text) if _moment(match[1], match[2])]
        if not starts:
            self.memory(group, path, "history.md")
            return
        lead = found.text[: starts[0].start()].strip()
        for n, match in enumerate(starts):
            end = starts[n + 1].start() if n + 1 < len(starts) else len(found.text)
            text = found.text[match.end() : end].strip()
            moment = _moment(match[1], match[2])
            assert moment is not None
            self.entry(group, path, moment, f"{lead}\n\n{text}" if lead and not n else text)

    def entry(self, group: str, source: str, at: datetime, text: str) -> None:
        """An entry of a day's log, by the local date."""
        text = _ENTRY.sub(r"\\", text_of(text).strip())
        if not text:
            return
        page = self._page("day", group, f"memory/{at:%Y-%m-%d}.md")
        if not page.parts or page.parts[-1].source != source:
            head = "" if page.parts else f"# Daily Memory — {at:%Y-%m-%d}\n\n"
            page.parts.append(_Part(source, [head], ["it is a part of that file, as entries of the day"]))
        page.parts[-1].texts.append(f"### {at:%H:%M:%S} — history\n\n{text}\n\n")

    def items(self) -> list[Item]:
        """What became of all of them."""
        return [self._item(group, to, page) for (group, to), page in sorted(self._pages.items())]

    def _page(self, kind: Kind, group: str, to: str) -> _Page:
        return self._pages.setdefault((group, to), _Page(kind))

    def _add(self, kind: Kind, group: str, to: str, path: str, said: Sequence[str] = ()) -> bool:
        """Whether it is one that is not left."""
        if (found := self._place.text(path)) is None:
            return False
        if not found.text.strip():
            self._place.leave(path, "it is empty")
            return False
        page = self._page(kind, group, to)
        if kind == "instructions" and sum(len(part.text.encode()) for part in page.parts) > INSTRUCTIONS - len(
            found.text.encode()
        ):
            self._place.leave(path, f"the instructions of a group may have {INSTRUCTIONS >> 10} KB")
            return False
        changed = [_MENDED] if found.mended else []
        if kind == "instructions" and _IMPORT.search(found.text):
            changed.append("lines of it that begin with @ name files that are not brought in with it")
        page.parts.append(_Part(path, [found.text], changed))
        page.said += [each for each in said if each not in page.said]
        return True

    def _item(self, group: str, to: str, page: _Page) -> Item:
        parts, several = page.parts, len(page.parts) > 1
        changed = [f"{shown(part.source)}: {each}" if several else each for part in parts for each in part.changed]
        if several and page.kind in ("instructions", "profile"):
            changed.insert(0, f"{len(parts)} files are sections of one")
            text = "\n".join(map(self._section, parts))
        elif several:
            changed.insert(0, f"{len(parts)} logs of this day are one")
            text = "\n".join(part.text.rstrip("\n") + "\n" for part in parts)
        else:
            text = parts[0].text
        source = ", ".join(dict.fromkeys(shown(part.source) for part in parts))
        return Item(page.kind, source, to, {"": text_of(text).encode()}, group, tuple(page.said + changed))

    def _section(self, part: _Part) -> str:
        where = shown(part.source).replace("--", "- -")
        name = where.rpartition("/")[2]
        return f"# {name}\n\n<!-- from {self._place.brought.source}: {where} -->\n\n{part.text.strip()}\n"


def _moment(day: str, clock: str) -> datetime | None:
    try:
        return datetime.fromisoformat(f"{day}T{clock}")
    except ValueError:
        return None
