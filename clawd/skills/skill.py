"""One skill: a folder with a `SKILL.md` of the Agent Skills format (agentskills.io), which anybody may have written.

Nothing that stands in a skill is an error of ours: `load` never raises for one. `errors` say why it is not used,
`warnings` what was put right or left out. The name is the folder's. Texts have no character in them that nobody sees;
what they say is data, to whoever puts them into a prompt too.
"""

from __future__ import annotations

import json
import re
import shlex
import stat
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clawd import frontmatter
from clawd.errors import UnsafePath
from clawd.files import read_owned
from clawd.frontmatter import Unreadable
from clawd.skills.manifest import look
from clawd.text import unhidden

FILE = "SKILL.md"
ARCHIVES = (".zip", ".skill", ".tar", ".tar.gz", ".tgz")
MOST = 256 << 10  # bytes of SKILL.md
NAME, DESCRIPTION, COMPATIBILITY = 64, 1024, 500  # characters, by the format
_LICENSE = 500
_TRIGGERS, _TRIGGER = 32, 100
_TOOLS, _TOOL = 100, 200
_FITNESS = ("fitness", "fitness_score")  # ours, and mmkr's
_KNOWN = frozenset(
    {"name", "description", "license", "allowed-tools", "metadata", "compatibility", "triggers", *_FITNESS}
)
_TOLD = 5
MOST_FIT = 1_000_000.0
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{0,30})?(?:[eE][+-]?[0-9]{1,2})?")
# Names that are devices on some systems, and ours.
_RESERVED = frozenset(
    {"con", "prn", "aux", "nul", "proposed", *(f"{name}{n}" for name in ("com", "lpt") for n in range(1, 10))}
)
_ALPHABETS = frozenset({"LATIN", "GREEK", "CYRILLIC"})  # whose letters look like each other's
_ONE_TOOL = re.compile(r"[^\s,()]+(?:\([^()]*\))?")


@dataclass(frozen=True, slots=True)
class Skill:
    """`allowed_tools` is None where the skill says nothing of tools. `triggers` are words, with `*` for any others.
    `fitness` is how well whoever made it says that it has done, None where nobody says so: it only orders what is equal
    otherwise."""

    name: str
    description: str
    body: str
    triggers: tuple[str, ...]
    allowed_tools: tuple[str, ...] | None
    compatibility: str
    license: str
    metadata: Mapping[str, str]
    path: Path
    shared: bool
    warnings: tuple[str, ...]
    errors: tuple[str, ...]
    fitness: float | None = None


@dataclass
class _Found:
    """What is wrong, as it is found."""

    warnings: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def text(self, value: Any, what: str, most: int) -> str:
        """A value that should be a text: what can be seen of it, on one line, not too long."""
        if not isinstance(value, str):
            value = json.dumps(value, ensure_ascii=False)
            self.warnings.append(f"{what} is not text: it is taken as it stands")
        shown = unhidden(value)
        if shown != value:
            self.warnings.append(f"{what} has characters that nobody sees: they are taken out")
        line = " ".join(shown.split())
        if len(line) > most:
            self.warnings.append(f"{what} has {len(line):,} characters: it is cut to {most:,}")
            line = line[: most - 1].rstrip() + "…"
        return line


def load(folder: Path, *, shared: bool) -> Skill:
    """The skill of a folder, usable or not."""
    found, name = _Found(), unicodedata.normalize("NFKC", folder.name)
    fields, body = dict[str, Any](), ""
    try:
        _tree(folder, found)
        if refusal := name_refused(name):
            found.errors.append(f"the folder {refusal}")
        text = _text(folder)
        fields, body, notes = frontmatter.read(text, FILE)
        found.warnings += notes
    except (UnsafePath, Unreadable) as error:
        found.errors.append(error.message)
    except OSError as error:
        found.errors.append(f"it cannot be read ({error.strerror})")
    else:
        _named(fields, name, found)
    description = found.text(fields.get("description", ""), "its description", DESCRIPTION)
    if not description and not found.errors:
        found.errors.append("it has no description: say what it does and when to use it")
    shown = unhidden(body)
    if shown != body:
        found.warnings.append("its instructions have characters that nobody sees: the agent is not told them")
    if not shown.strip() and not found.errors:
        found.warnings.append("it has no instructions beneath its frontmatter")
    if unknown := sorted(unhidden(key) for key in fields if key not in _KNOWN):
        found.warnings.append(f"the format does not know {_few(unknown)}: nothing comes of it")
    metadata = _metadata(fields.get("metadata", {}), found)
    fitness = _fitness([each[name] for each in (metadata, fields) for name in _FITNESS if name in each], found)
    return Skill(
        name=name,
        description=description,
        body=shown.strip("\n"),
        triggers=_triggers(fields.get("triggers", metadata.get("triggers", [])), found),
        allowed_tools=_tools(fields["allowed-tools"], found) if fields.get("allowed-tools") else None,
        compatibility=found.text(fields.get("compatibility", ""), "compatibility", COMPATIBILITY),
        license=found.text(fields.get("license", ""), "license", _LICENSE),
        metadata=metadata,
        path=folder,
        shared=shared,
        warnings=tuple(found.warnings),
        errors=tuple(found.errors),
        fitness=fitness,
    )


def name_refused(name: str) -> str | None:
    """Why no skill may have this name, in NFKC: completes "the folder …"; None where one may."""
    if not name or len(name) > NAME or not all(each.isalnum() or each == "-" for each in name):
        return f"{name[:NAME]!a} cannot be a skill's name: 1 to {NAME} lower-case letters, digits and hyphens"
    if name != name.lower():
        return f"{name!a} cannot be a skill's name: it must be lower case"
    if name.startswith("-") or name.endswith("-") or "--" in name:
        return f"{name!a} cannot be a skill's name: a hyphen stands alone, between letters or digits"
    if name in _RESERVED:
        return f"{name!a} cannot be a skill's name: it is reserved"
    if len(_ALPHABETS & {unicodedata.name(each, "").partition(" ")[0] for each in name}) > 1:
        return f"{name!a} cannot be a skill's name: it mixes alphabets whose letters look alike"
    return None


def name_like(*wishes: str) -> str:
    """A name that a skill may have, as like the first of these as can be, which has anything of one."""
    for wish in wishes:
        plain = "".join(each if each.isalnum() else "-" for each in unicodedata.normalize("NFKC", wish).lower())
        name = re.sub(r"-{2,}", "-", plain).strip("-")[:NAME].strip("-")
        for each in (name, re.sub(r"[^a-z0-9]+", "-", name).strip("-"), f"{name}-skill"[-NAME:]):
            if not name_refused(each):
                return each
    return "skill"


def called(folder: Path) -> str | None:
    """The name that a folder's SKILL.md gives its skill, if one may have it."""
    try:
        said = frontmatter.read(_text(folder), FILE)[0].get("name")
    except (UnsafePath, Unreadable, OSError):
        return None
    name = unicodedata.normalize("NFKC", said.strip()) if isinstance(said, str) else ""
    return None if name_refused(name) else name


def _tree(folder: Path, found: _Found) -> None:
    """What lies in the folder. Raises UnsafePath, OSError."""
    if not stat.S_ISDIR(kind := folder.lstat().st_mode):
        archive = folder.name.endswith(ARCHIVES)
        what = "a link" if stat.S_ISLNK(kind) else "an archive" if archive else "no folder"
        raise UnsafePath(f"it is {what}: clawd skills add {shlex.quote(str(folder))}")
    tree = look(folder)
    found.warnings += tree.warnings
    if tree.exposed:
        named, where = _few([ascii(path) for path in tree.exposed]), shlex.quote(str(folder))
        found.errors.append(f"others could change {named}: chown -R $(id -u) {where}; chmod -R go-w {where}")
    paths = {path for path, _ in tree.files}
    if FILE not in paths:
        left = next((each for each in tree.warnings if each.startswith(f"'{FILE}' ")), None)
        near = next((path for path in paths if path.lower() == FILE.lower()), None)
        raise UnsafePath(left or f"it has no {FILE}" + (f": rename {near} to that" if near else ""))


def _few(names: Sequence[str]) -> str:
    more = len(names) - _TOLD
    return ", ".join(name[:_TRIGGER] for name in names[:_TOLD]) + (f" and {more} more" if more > 0 else "")


def _text(folder: Path) -> str:
    """Raises UnsafePath, Unreadable, OSError."""
    try:
        content = read_owned(folder, FILE)
    except UnsafePath as error:
        raise UnsafePath(f"{FILE}: {error.message}") from None
    if len(content) > MOST:
        raise Unreadable(f"{FILE} is larger than {MOST >> 10} KB: move parts of it to files beside it")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"{FILE} is not UTF-8 (byte {error.start}): save it as UTF-8") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _named(fields: dict[str, Any], name: str, found: _Found) -> None:
    """What SKILL.md calls the skill, beside the folder's name, which counts."""
    said = fields.get("name", "")
    if not isinstance(said, str) or not said:
        found.warnings.append(f"{FILE} has no name: the folder's is taken")
    elif unhidden(said) != said:
        found.errors.append(f"the name in {FILE} has characters that nobody sees")
    elif unicodedata.normalize("NFKC", said.strip()) != name:
        found.warnings.append(f"{FILE} calls it {said[:NAME]!a}: the folder's name counts")


def _metadata(value: Any, found: _Found) -> dict[str, str]:
    if not isinstance(value, dict):
        if value:
            found.warnings.append("metadata is no table: it is left out")
        return {}
    return {
        unhidden(key): unhidden(each if isinstance(each, str) else json.dumps(each, ensure_ascii=False))
        for key, each in value.items()
    }


def _fitness(values: Sequence[Any], found: _Found) -> float | None:
    """Of the first that says something."""
    value = next(filter(None, values), "")
    said = value.strip() if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if not said:
        return None
    if not _NUMBER.fullmatch(said):
        found.warnings.append(f"fitness is {said[:32]!a}, and no number from 0 on: it is left out")
        return None
    if (number := float(said)) > MOST_FIT:
        found.warnings.append(f"fitness is {said[:32]}: {MOST_FIT:,.0f} is taken, which is the most")
    return min(number, MOST_FIT)


def _triggers(value: Any, found: _Found) -> tuple[str, ...]:
    """Words, or a list of them; in metadata, which holds texts alone, they stand between commas."""
    asked = re.split(r"[,\n]", value) if isinstance(value, str) else value
    if not isinstance(asked, list) or not all(isinstance(each, str) for each in asked):
        found.warnings.append("triggers is no list of words: it is left out")
        return ()
    words = dict.fromkeys(" ".join(unhidden(each).split()).casefold() for each in asked)
    kept = [each for each in words if each and len(each) <= _TRIGGER][:_TRIGGERS]
    if len(kept) < len([each for each in words if each]):
        found.warnings.append(f"triggers: the first {_TRIGGERS} of at most {_TRIGGER} characters each are taken")
    if any(not each.strip("* ") for each in kept):
        found.warnings.append("a trigger of * alone has the skill used for every message")
    return tuple(kept)


def _tools(value: Any, found: _Found) -> tuple[str, ...]:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        found.warnings.append("allowed-tools is a list: the format has them between spaces")
        value = " ".join(value)
    if not isinstance(value, str):
        found.warnings.append("allowed-tools cannot be understood: the skill is used without tools")
        return ()
    tools = [each for each in _ONE_TOOL.findall(unhidden(value)) if len(each) <= _TOOL][:_TOOLS]
    return tuple(dict.fromkeys(tools))
