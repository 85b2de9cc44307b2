"""Skills of another claw, made such that ours reads them: a folder with a SKILL.md of the Agent Skills format.

Scripts are carried and never run; nothing is installed. Files that hold keys are left, their keys told by name.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from clawd import frontmatter
from clawd.arrivals import account
from clawd.arrivals.items import Item
from clawd.bridges import loose
from clawd.bridges.foreign import secrets
from clawd.bridges.foreign.place import JUNK, Place, rows, shown, table, text_of, within
from clawd.frontmatter import Unreadable
from clawd.ids import folded
from clawd.skills.manifest import DEEPEST, MOST_BYTES, MOST_FILES
from clawd.skills.skill import DESCRIPTION, FILE, MOST, NAME, name_like, name_refused
from clawd.text import unhidden

_NESTED = 6  # folders in which skills are grouped
_LOOKED = 5_000  # folders that are looked at
_CLAWS = ("openclaw", "clawdbot", "moltbot", "clawdis", "nanobot", "nanoclaw")
_FENCED = re.compile(r"\A\ufeff?\s*---[ \t]*\n(.*?)^---[ \t]*$\n?", re.DOTALL | re.MULTILINE)
_LINE = re.compile(r"^(name|description)[ \t]*:[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_INSTALLED = ("formula", "package", "module", "cask", "id")  # what a step of an installation names
_FILE = 8 << 20  # bytes of one file


class Skills:
    def __init__(self, place: Place) -> None:
        self._place = place
        self._items = dict[tuple[str, str], Item]()

    def folder(self, group: str, root: str, *said: str, but: Sequence[str] = ()) -> list[str]:
        """Every skill beneath a folder but those in folders of these names; gives the names of their folders. `said`
        are sentences on each."""
        found = []
        for path in _folders(self._place, root):
            name = path.rpartition("/")[2]
            if name not in but:
                found.append(name)
                self.add(group, path, *said)
        return found

    def add(self, group: str, path: str, *said: str) -> None:
        """One skill, by its folder, or by its only file."""
        single = self._place.kind(path) == "file"
        files = {FILE: path} if single else self._files(path)
        if FILE not in files:
            self._place.leave(path, f"it has no {FILE}")
            return
        data = self._place.content(files.pop(FILE), MOST)
        if data is None or (found := self._place.decoded(path, data)) is None:
            return
        name, text = _made(path.rpartition("/")[2].removesuffix(".md"), found.text, self._place.brought.source)
        changed = [*said, *text.changed]
        if found.mended:
            changed.append("bytes that were no UTF-8 are replaced")
        self._needs(name, text.head, changed)
        content = {FILE: text_of(text.text).encode() if text.changed or found.mended else data}
        size = 0
        for relative, source in files.items():
            data = self._place.content(source, _FILE)
            if data is None or secrets.held(self._place, source, data):
                continue
            if (size := size + len(data)) > MOST_BYTES - MOST:
                self._place.leave(path, f"it is larger than the {MOST_BYTES >> 20} MB that a skill may have")
                return
            content[relative] = data
        self._keep(group, name, path, content, changed)

    def items(self) -> list[Item]:
        return [item for _, item in sorted(self._items.items())]

    def _files(self, path: str) -> dict[str, str]:
        """Its files by their paths in it."""
        files = dict[str, str]()
        secrets.credentials(self._place, path)
        taken = set[str]()
        for source in self._place.files(path, deepest=DEEPEST - 1, most=MOST_FILES - 1):
            relative = source.removeprefix(f"{path}/")
            if not _showable(relative):
                self._place.leave(source, "nobody could read its name")
            elif why := account.refused("skill", "skills/it", {relative: b""}):
                self._place.leave(source, why)
            elif folded(relative) in taken:
                self._place.leave(source, "another file's name differs from it in case or composition alone")
            elif relative.lower() == FILE.lower():
                files.setdefault(FILE, source)
            else:
                taken.add(folded(relative))
                files[relative] = source
        return files

    def _needs(self, name: str, head: dict[str, Any], changed: list[str]) -> None:
        """What it says that it needs, and would have installed."""
        metadata = head.get("metadata", {})
        if isinstance(metadata, str):
            try:
                metadata = loose.read(metadata)
            except loose.NotJson:
                return
        for claw in _CLAWS:
            needs = table(table(metadata).get(claw))
            requires = table(needs.get("requires"))
            bins = [shown(each) for kind in ("bins", "anyBins") for each in _texts(requires.get(kind))]
            if bins:
                changed.append(f"it needs programs that the sandbox may not have: {', '.join(bins)}")
            for key in dict.fromkeys([*_texts(requires.get("env")), *_texts([needs.get("primaryEnv")])]):
                secrets.told(self._place, secrets.segment(key), f"skill {name}")
            for step in rows(needs.get("install")):
                what = next((text_of(step[key]) for key in _INSTALLED if step.get(key)), "something")
                changed.append(f"it would have installed {shown(what)}: nothing is installed")

    def _keep(self, group: str, name: str, path: str, content: dict[str, bytes], changed: list[str]) -> None:
        first, n = name, 1
        while (known := self._items.get((group, name))) is not None:
            if known.files == content:
                self._place.leave(path, f"it is the same as {known.source}")
                return
            n += 1
            name = f"{first[: NAME - 4]}-{n}"
        if n > 1:
            changed.append(f"there is another {first}: it is called {name}")
            content[FILE] = _renamed(content[FILE], name)
        self._items[group, name] = Item("skill", shown(path), f"skills/{name}", content, group, tuple(changed))


def _folders(place: Place, root: str) -> Iterator[str]:
    """Folders with a SKILL.md, however they are grouped."""
    waiting, looked = [(root, 0)], 0
    while waiting:
        at, depth = waiting.pop()
        below = []
        for name in place.folders(at):
            path, looked = within(at, name), looked + 1
            if name.startswith(".") or name in JUNK:
                continue
            if looked > _LOOKED:
                place.leave(root, f"it holds more than {_LOOKED:,} folders: not all were looked at")
                return
            if any(each.lower() == FILE.lower() for each in place.names(path)):
                yield path
            elif depth < _NESTED:
                below.append((path, depth + 1))
        waiting += reversed(below)


class _Made(NamedTuple):
    """A SKILL.md that ours reads, what its head says, and what is not as it was."""

    text: str
    head: dict[str, Any]
    changed: list[str]


def _made(folder: str, text: str, claw: str) -> tuple[str, _Made]:
    """A skill's name, and its SKILL.md, in which that name and a description stand. Text that needs nothing stays."""
    changed = list[str]()
    head: dict[str, Any]
    try:
        head, body, _ = frontmatter.read(text, FILE)
    except Unreadable as error:
        changed.append(f"{error.message}: it has a new one")
        fenced = _FENCED.match(text)
        found = _LINE.findall(fenced[1] if fenced else "")
        head = {key: _unquoted(value)[:DESCRIPTION] for key, value in found if value}
        body = text[fenced.end() :] if fenced else text
    said = head.get("name")
    wishes = _nfkc(said), _nfkc(folder)
    name = next((each for each in wishes if not name_refused(each)), None) or name_like(*reversed(wishes))
    if not isinstance(said, str) or _nfkc(said) != name or unhidden(said) != said:
        changed.append(f"its name is {name}" + (f" instead of {shown(said)}" if isinstance(said, str) and said else ""))
    if not isinstance(head.get("description"), str) or not unhidden(head["description"]).strip():
        changed.append("it had no description: it has one of its first words")
        head["description"] = _described(body) or f"The skill {name} of {claw}."
    if not changed:
        return name, _Made(text, head, changed)
    made = _written(head | {"name": name}, body)
    try:
        frontmatter.read(made, FILE)
    except Unreadable:  # too long, once all of it is quoted
        changed.append("only its name and description are kept of what it said of itself")
        made = _written({"name": name, "description": head["description"][:DESCRIPTION]}, body)
    return name, _Made(made, head, changed)


def _written(head: dict[str, Any], body: str) -> str:
    """Every value as JSON, which is YAML too."""
    first = [key for key in ("name", "description") if key in head]
    lines = [
        f"{_key(key)}: {json.dumps(_seen(head[key]), ensure_ascii=False)}\n"
        for key in [*first, *(key for key in head if key not in first)]
    ]
    return f"---\n{''.join(lines)}---\n{body if body.startswith(chr(10)) else chr(10) + body}"


def _renamed(content: bytes, name: str) -> bytes:
    head, body, _ = frontmatter.read(content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n"), FILE)
    return _written(head | {"name": name}, body).encode()


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z][\w-]*", key) else json.dumps(_seen(key), ensure_ascii=False)


def _seen(value: Any) -> Any:
    """A value of texts, lists and tables without what nobody sees."""
    if isinstance(value, dict):
        return {_seen(key): _seen(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_seen(each) for each in value]
    return unhidden(text_of(value))


def _described(body: str) -> str:
    """The first paragraph, on one line, else the first heading."""
    lines = [" ".join(unhidden(line).split()) for line in body.split("\n")]
    plain = [line for line in lines if line and not line.startswith(("#", "```", "---", "<!--", "|"))]
    headings = [line.lstrip("# ") for line in lines if line.startswith("#")]
    return next(iter([*plain, *headings]), "")[:DESCRIPTION].strip()


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


def _nfkc(name: Any) -> str:
    return unicodedata.normalize("NFKC", name.strip()) if isinstance(name, str) else ""


def _showable(path: str) -> bool:
    return unhidden(path) == path and not re.search("[\\\\\n\t\ud800-\udfff]", path)


def _texts(value: Any) -> list[str]:
    return [text_of(each) for each in value if text_of(each)] if isinstance(value, list) else []
