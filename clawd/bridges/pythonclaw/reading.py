"""Reading a PythonClaw home: all that clawd can use of it, as items that wait for the owner's word.

Nothing is followed, nothing is run, no value of a key leaves the home, and what is left says why. Its formats are those
of 0.7.2 and, where they differ, of 0.6.6.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from clawd.arrivals.items import Brought, Item, Kind
from clawd.bridges.foreign import secrets
from clawd.bridges.foreign.place import PAGE, Place, shown, table
from clawd.bridges.pythonclaw import home as homes
from clawd.bridges.pythonclaw import jobs, memories, sessions, settings, skills
from clawd.bridges.pythonclaw.home import CONFIG
from clawd.bridges.pythonclaw.sessions import SOURCE, Session
from clawd.config.load import machine_zone
from clawd.errors import ClawdError, UsageError
from clawd.ids import Stems, file_name, folded, free, group_like, safe_name
from clawd.memory import daily
from clawd.memory.keyed import FACTS, INDEX, Fact
from clawd.skills import manifest
from clawd.skills.skill import FILE

MAIN = "main"
_FILE = 64 << 20  # bytes of a session, or of a part of a memory
_GROUPS, _SESSIONS, _SKILLS = "context/groups", "context/sessions", "context/skills"
_INSTRUCTIONS = (
    ("context/soul", "Soul", None),
    ("context/persona", "Persona", None),
    ("context/tools", "Notes on tools", ("TOOLS.md",)),
)
_IMPORT = re.compile(r"((?:^|\s))@(?=[\w./~])")
_LEFT = {
    "context/compaction": "summaries that PythonClaw made of its own history: they are in its sessions, too",
    "context/logs": "logs of what happened there",
    "context/files": "files that it made or was sent: copy what you need into the group's work/ by hand",
    "daemon.log": "a log",
}
_OURS = frozenset(
    ("sessions", "memory", "groups", "skills", "cron", "soul", "persona", "tools", "knowledge", "compaction", "logs",
     "files")
)  # fmt: skip


def read(home: Path, group: str | None) -> Brought:
    """All that it has; with `group` all for that group, else the chats that have a memory of their own each for a group
    of their own. Raises UsageError for what is no such home."""
    return _Reading(Place(homes.found(home), SOURCE), group).all()


def memory_of(root: Path, group: str) -> str:
    """Where the memory lies there that is for this group: a chat's own, if it is named after one."""
    chats = _Reading(Place(root, SOURCE), None).chats
    return next((f"{_GROUPS}/{chat.safe}/memory" for chat in chats if chat.group == group), "context/memory")


def chats_facts(root: Path, groups: Collection[str]) -> dict[str, Fact]:
    """What chats have in memories of their own that are none of these groups, under the keys that they get where all is
    for one group."""
    place = Place(root, SOURCE)
    chats = [chat for chat in _Reading(place, None).chats if chat.group not in groups]
    own = place.content(f"context/memory/{FACTS}", _FILE) or b""
    each = {chat.safe: place.content(f"{_GROUPS}/{chat.safe}/memory/{FACTS}", _FILE) or b"" for chat in chats}
    before = memories.read(own)
    merged = memories.merged(before, {safe: memories.read(data) for safe, data in each.items()})
    return {key: fact for key, fact in merged.facts.items() if key not in before.facts}


@dataclass(frozen=True, slots=True)
class _Chat:
    """A chat with a memory of its own: its safe id, and the group that it is for."""

    safe: str
    group: str


class _Reading:
    def __init__(self, place: Place, group: str | None) -> None:
        self._place, self._brought, self._group = place, place.brought, group
        self._main = group or MAIN
        self._notes: dict[str, set[str]] = {}
        self.chats = self._found_chats()

    def all(self) -> Brought:
        self._settings()
        self._sessions()
        self._memories()
        self._skills()
        self._schedules()
        self._instructions()
        self._knowledge()
        self._rest()
        return self._brought

    def _add(self, kind: Kind, source: str, to: str, files: bytes | dict[str, bytes], group: str,
             changed: Iterable[str] = ()) -> None:  # fmt: skip
        whole = {"": files} if isinstance(files, bytes) else files
        self._brought.items.append(Item(kind, shown(source), to, whole, group, tuple(changed)))

    def _files(self, folder: str) -> Iterator[tuple[str, str]]:
        """The files anywhere beneath a folder: the path of each, and as it is in the folder."""
        for path in self._place.files(folder):
            name = path.removeprefix(f"{folder}/")
            if shown(name) == name:
                yield path, name
            else:
                self._place.leave(path, "its name cannot be shown")

    # ── chats ──

    def _found_chats(self) -> list[_Chat]:
        taken, chats = {folded(self._main)}, list[_Chat]()
        for safe in self._place.folders(_GROUPS):
            if shown(safe) != safe:
                self._place.leave(f"{_GROUPS}/{safe}", "its name cannot be shown")
                continue
            group = self._group or free(group_like(safe, "chat"), lambda each: folded(each) not in taken)
            taken.add(folded(group))
            chats.append(_Chat(safe, group))
            self._brought.chats.append(f"{safe} had a memory of its own: it is for the group {group}")
        return chats

    def _group_of(self, session: Session) -> str:
        safe = safe_name(session.id)
        return next((chat.group for chat in self.chats if chat.safe == safe), self._main)

    def _settings(self) -> None:
        said = self._place.json(CONFIG, PAGE)
        if said is None:
            return
        found = settings.of(table(said))
        self._brought.keys += found.keys
        self._brought.allowed += found.allowed
        self._brought.chats += found.chats
        self._place.leave(CONFIG, "settings are not brought in: clawd has its own in config.toml")

    # ── what was said ──

    def _sessions(self) -> None:
        found = dict[str, Session]()
        read = list[tuple[str, bytes]]()
        for path, name in self._files(_SESSIONS):
            if "/" in name:
                continue
            if not name.endswith(".md"):
                self._place.leave(path, "it is no session")
            elif (data := self._place.content(path, _FILE)) is not None:
                read.append((path, data))
        # One whose header fits its name has the id before another that only says so.
        read.sort(key=lambda each: not _is_own(*each))
        for path, data in read:
            session = sessions.read(path, data, found.keys())
            if session.blocks:
                found[session.id] = session
            else:
                self._place.leave(path, "it has no messages")
        stems = dict[str, Stems]()
        for session in sorted(found.values(), key=lambda each: each.path):
            group = self._group_of(session)
            stem, data, changed = sessions.file(session, stems.setdefault(group, Stems()))
            self._add("session", session.path, f"sessions/{stem}.md", data, group, changed)

    # ── what is remembered ──

    def _memories(self) -> None:
        folders = {"": "context/memory"} | {chat.safe: f"{_GROUPS}/{chat.safe}/memory" for chat in self.chats}
        groups = {"": self._main} | {chat.safe: chat.group for chat in self.chats}
        facts = dict[str, memories.Facts]()
        for safe, folder in folders.items():
            found = self._memory(folder, groups[safe], aside=bool(safe) and self._group is not None)
            if found is not None:
                facts[safe] = found
        if self._group is not None and len(facts) > 1:
            own = facts.pop("", memories.Facts({}))
            paths = ", ".join(f"{folders[safe]}/{FACTS}" for safe in ("", *facts))
            self._facts(paths, memories.merged(own, facts), self._group)
        else:
            for safe, each in facts.items():
                self._facts(f"{folders[safe]}/{FACTS}", each, groups[safe])

    def _facts(self, path: str, found: memories.Facts, group: str) -> None:
        if found.facts:
            data = memories.file(found.facts.values())
            self._add("facts", path, f"memory/{FACTS}", data, group, found.changed)
        elif found.changed:
            self._place.leave(path, "it has no facts")
        if found.preamble:
            why = ["it stands before the first fact of MEMORY.md, where PythonClaw does not read it"]
            self._note(f"{path} (its beginning)", "memory.md", f"{found.preamble}\n".encode(), group, why)

    def _memory(self, folder: str, group: str, aside: bool) -> memories.Facts | None:
        """What lies in one memory; its facts are given back. `aside`: another memory has the places of that group."""
        found = None
        for path, name in self._files(folder):
            if not name.endswith(".md"):
                self._place.leave(path, "it is no part of a memory")
                continue
            data = self._place.content(path, _FILE)
            if data is None or not data.strip():
                continue
            if name == FACTS:
                found = memories.read(data)
            elif name == INDEX and not aside:
                self._add("index", path, f"memory/{INDEX}", data, group)
            elif daily.day_of(name) and not aside:
                self._add("day", path, f"memory/{name}", data, group)
            else:
                chat = folder.split("/")[2] if aside else ""
                self._note(path, f"{chat}-{name}" if chat else name, data, group)
        return found

    def _note(self, path: str, name: str, data: bytes, group: str, changed: Iterable[str] = ()) -> None:
        plain = re.sub(r"\.(md|txt)$", "", file_name(name.replace("/", "-")), flags=re.IGNORECASE).strip(". #~")
        taken = self._notes.setdefault(group, set())
        stem = free(plain or "note", lambda each: folded(each) not in taken)
        taken.add(folded(stem))
        self._add("note", path, f"memory/notes/{stem}.md", data, group, changed)

    def _knowledge(self) -> None:
        for path, name in self._files("context/knowledge"):
            if not name.lower().endswith((".md", ".txt")):
                self._place.leave(path, "PythonClaw reads .md and .txt there")
            elif (data := self._place.content(path, _FILE)) and not secrets.held(self._place, path, data):
                self._note(path, name, data, self._main)

    def _instructions(self) -> None:
        """Soul, persona and TOOLS.md, which PythonClaw has in every prompt, as one CLAUDE.md."""
        pieces, paths, mentioned = list[str](), list[str](), False
        for folder, title, only in _INSTRUCTIONS:
            for path, name in self._files(folder):
                if "/" in name or not name.lower().endswith((".md", ".txt")) or (only and name not in only):
                    self._place.leave(path, "PythonClaw does not read it")
                    continue
                text = (self._place.content(path) or b"").decode("utf-8", "replace").removeprefix("\ufeff").strip()
                if text:
                    quoted = _IMPORT.sub(r"\1[@]", text)
                    mentioned = mentioned or quoted != text
                    pieces.append(f"## {title}\n\n{quoted}")
                    paths.append(path)
        if pieces:
            changed = [f"it is made of {', '.join(paths)}"]
            if mentioned:
                changed.append("an @ at the beginning of a word is [@]: it would have named another file here")
            text = "\n\n".join(["# From PythonClaw", *pieces]) + "\n"
            self._add(
                "instructions", ", ".join(paths), "CLAUDE.md", text.encode("utf-8", "replace"), self._main, changed
            )

    # ── what it can, and does by the clock ──

    def _skills(self) -> None:
        taken = set[str]()
        for category, folder in self._skill_folders():
            root = "/".join(filter(None, (_SKILLS, category, folder)))
            files, size = dict[str, bytes](), 0
            secrets.credentials(self._place, root)
            for path, name in self._files(root):
                data = self._place.content(path, manifest.MOST_BYTES)
                if data is not None and not secrets.held(self._place, path, data):
                    files[name] = data
                    size += len(data)
                if size > manifest.MOST_BYTES or len(files) > manifest.MOST_FILES:
                    break
            if size > manifest.MOST_BYTES or len(files) > manifest.MOST_FILES:
                self._place.leave(root, f"it has more than {manifest.MOST_FILES:,} files, or "
                                         f"{manifest.MOST_BYTES >> 20} MB")  # fmt: skip
                continue
            if FILE not in files:
                continue
            skill = skills.brought(files, folder, category, taken)
            taken.add(skill.name)
            self._add("skill", root, f"skills/{skill.name}", dict(skill.files), self._main, skill.changed)

    def _skill_folders(self) -> Iterable[tuple[str, str]]:
        """(category, folder) of each skill, as PythonClaw finds them."""
        for entry in self._place.folders(_SKILLS):
            if self._is_skill(entry):
                yield "", entry
                continue
            below = self._place.folders(f"{_SKILLS}/{entry}") if _is_read(entry) else []
            found = [each for each in below if self._is_skill(f"{entry}/{each}")]
            yield from ((entry, each) for each in found)
            for path in [f"{entry}/{each}" for each in below if each not in found] or ([] if found else [entry]):
                there = self._place.names(f"{_SKILLS}/{path}")
                yaml = f": PythonClaw does not read {skills.YAML}" if skills.YAML in there else ""
                self._place.leave(f"{_SKILLS}/{path}", f"it has no {FILE} that PythonClaw finds{yaml}")

    def _is_skill(self, path: str) -> bool:
        return _is_read(path.rpartition("/")[2]) and FILE in self._place.names(f"{_SKILLS}/{path}")

    def _schedules(self) -> None:
        zone, taken = machine_zone(), dict[str, str]()
        for name, parse in (("jobs.yaml", jobs.of_yaml), ("dynamic_jobs.json", jobs.of_json)):
            path = f"context/cron/{name}"
            data = self._place.content(path)
            if data is None or not data.strip():
                continue
            try:
                found = parse(data, path)
            except UsageError as error:
                self._place.leave(path, error.message)
                continue
            for job in found:
                try:
                    made = jobs.schedule(job, zone, [*taken])
                except ClawdError as error:
                    self._place.leave(job.where, error.message)
                    continue
                taken[made.id] = made.where
                self._add(
                    "schedule", made.where, f"schedules/{made.id}.toml", made.text.encode(), self._main, made.changed
                )

    def _rest(self) -> None:
        for path, why in _LEFT.items():
            if self._place.kind(path):
                self._place.leave(path, why)
        for name in self._place.names("context"):
            if name not in _OURS:
                self._place.leave(f"context/{name}", "clawd does not know what it is")
        for chat in self.chats:
            for name in self._place.names(f"{_GROUPS}/{chat.safe}"):
                if name != "memory":
                    self._place.leave(f"{_GROUPS}/{chat.safe}/{name}", "clawd does not know what it is")


def _is_read(name: str) -> bool:
    """Whether PythonClaw looks into a folder of this name beneath its skills."""
    return not name.startswith(("__", ".")) and shown(name) == name


def _is_own(path: str, data: bytes) -> bool:
    head = data[:4096].decode("utf-8", "replace").removeprefix("\ufeff")
    match = re.match(r"# Session: ([^\r\n]*)", head)
    return match is not None and path.endswith(f"/{safe_name(match[1])}.md")
