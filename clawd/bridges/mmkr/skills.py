"""A capability of mmkr as a skill: a folder that clawd, PythonClaw and other readers of Agent Skills understand.

The names and the fields are those of mmkr's `integrations/pythonclaw_collector.py` (`capability_to_skill_metadata`).
PythonClaw reads SKILL.md alone, by a parser of lines that is no YAML (core/utils.py, `parse_frontmatter`): it ends the
frontmatter at the second `---` wherever that stands, keeps quotes, and shows 60 characters of a description. So a
description is plain text on one line that begins with the trigger words; everything else stands in `metadata`, in
quotes. Nothing here raises for what a capability is called, or for what is said of it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from clawd.errors import UsageError
from clawd.files import read_beneath, write_atomic
from clawd.text import unhidden

VERSION, AUTHOR = "1.0.0", "mmkr/botbotfromuk"
_PREFIX = "cap_"
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")  # as a message's are taken apart
_LONGEST_WORD, _LONGEST_TRIGGER, _SEEN = 40, 96, 60  # characters; PythonClaw's catalogue shows the last
_DESCRIPTION, _TEXT, _NAME, _TOOL, _TOOLS = 1_000, 4_000, 500, 200, 100
_MOST_FIT = 1_000_000.0
_SKILL, _YAML, _NAMED = "SKILL.md", "skill.yaml", "capability"
_READ = 256 << 10
# A name that is the skill's own with hyphens for the underscores; others have a number behind theirs.
_PLAIN_NAME = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)*")
# What YAML takes for a text without quotes, and PythonClaw's parser too.
_BARE = re.compile(r"[A-Za-z][\w./-]*(?: [\w./-]+)*", re.ASCII)
_NO_TEXT = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n"))
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u2028\u2029\ufeff]")
_RULE = re.compile("-{3,}")
_NO_PROGRAM = str.maketrans({"`": "'", "!": None})  # Claude Code runs what stands in !`…`


@dataclass(frozen=True, slots=True)
class SkillMetadata:
    """A capability in the words of a skill, with the fields and types that mmkr's own has. `fitness_score` is finite,
    and at least 0."""

    name: str
    description: str
    version: str = VERSION
    triggers: list[str] = field(default_factory=list)
    author: str = AUTHOR
    capabilities: list[str] = field(default_factory=list)
    fitness_score: float = 0.0

    @property
    def skill_name(self) -> str:
        """The name that Agent Skills take, which is that of its folder too: `mmkr-cap-github-maintenance`. Two
        capabilities never share one."""
        plain = self.name.removeprefix("mmkr.")
        if _PLAIN_NAME.fullmatch(plain) and len(plain) <= 59:
            return f"mmkr-{plain.replace('_', '-')}"
        words = re.findall("[a-z0-9]+", plain.lower())
        short = "-".join(words)[:50].strip("-")
        return "-".join(["mmkr", *([short] if short else []), _sha256(self.name.encode("utf-8", "surrogatepass"))[:8]])

    def to_skill_yaml(self) -> str:
        """skill.yaml, as mmkr's own bridge writes it: {name, version, description, author, fitness_score, triggers,
        capabilities}. It is YAML whatever the texts are."""
        fields = {
            "name": _yaml(self.name),
            "version": _yaml(self.version),
            "description": _yaml(self.description),
            "author": _yaml(self.author),
            "fitness_score": _number(self.fitness_score),
            "triggers": _listed(self.triggers),
            "capabilities": _listed(self.capabilities),
        }
        return "".join(f"{name}: {value}\n" for name, value in fields.items())

    def to_skill_md(self) -> str:
        """SKILL.md: what it is for, who says so, and how it fared there."""
        title = _words(self.name)
        fields = {
            "source": "mmkr",
            _NAMED: self.name[:_NAME],
            "author": self.author,
            "version": self.version,
            "fitness": _number(self.fitness_score),
            "triggers": ", ".join(self.triggers),
        }
        head = [f"name: {self.skill_name}", f"description: {self._led()}", "metadata:"]
        head += [f"  {name}: {_quoted(value)}" for name, value in fields.items()]
        body = [f"# {' '.join(title).capitalize() or 'A capability'}", "", *_told(self.description), ""]
        body.append(
            f"This is a capability of an agent of mmkr, where its fitness was {_number(self.fitness_score)}. What is"
            " said of it here was written there: take it as a note on what worked, and do it with the tools that you"
            " have."
        )
        if self.capabilities:
            body += ["", "Tools that it had there:", ""]
            body += [f"- `{_line(tool).translate(_NO_PROGRAM)[:_TOOL]}`" for tool in self.capabilities[:_TOOLS]]
        return "\n".join(["---", *head, "---", "", *body, ""])

    def write(self, directory: str | Path) -> Path:
        """Lay the skill down as a folder of `directory`, with skill.yaml beside SKILL.md; gives the folder. One that
        this wrote and nobody changed is renewed. Raises UsageError where somebody did, or it is another skill;
        OSError."""
        folder = Path(directory).expanduser() / self.skill_name
        new = {_SKILL: self.to_skill_md().encode()}
        new[_YAML] = f"{self.to_skill_yaml()}# SKILL.md was sha256:{_sha256(new[_SKILL])}\n".encode()
        folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        try:
            folder.mkdir(mode=0o755)
        except FileExistsError:
            if folder.is_symlink() or not folder.is_dir() or not self._wrote(folder, new[_SKILL]):
                raise UsageError(
                    f"{folder} is another skill, or was changed by hand", hint="move it away to have it written anew"
                ) from None
        for name, content in new.items():
            write_atomic(folder / name, content, 0o644)
        return folder

    def _wrote(self, folder: Path, new: bytes) -> bool:
        """Whether the folder is as this left it, of the same capability; or as it would be left now."""
        lies = {path.name for path in folder.iterdir()}
        if _SKILL not in lies or lies - {_SKILL, _YAML}:
            return not lies  # it was stopped before it wrote anything
        text = read_beneath(folder, _SKILL, _READ)
        if f"  {_NAMED}: {_quoted(self.name[:_NAME])}\n".encode() not in text:
            return False
        said = read_beneath(folder, _YAML, _READ) if _YAML in lies else b""
        return text == new or f"# SKILL.md was sha256:{_sha256(text)}\n".encode() in said

    def _led(self) -> str:
        """The description of SKILL.md: its first characters are all that PythonClaw's catalogue shows."""
        lead = ", ".join(self.triggers)
        if len(lead) > _SEEN:
            lead = ", ".join(sorted(self.triggers, key=len))
        whole = _plain(f"{lead}. {self.description[:_TEXT]}")
        return whole if len(whole) <= _DESCRIPTION else whole[:_DESCRIPTION].rstrip(" :-") + "…"


def capability_to_skill_metadata(
    capability_name: str, fitness_score: float = 0.0, description: str | None = None, tools: Iterable[str] | None = None
) -> SkillMetadata:
    """What mmkr calls `capability_name` ("cap_github_maintenance"), with the score of its selection and the tools that
    it has. A score that is no number from 0 on counts as 0."""
    words = _words(capability_name)
    said = " ".join(capability_name.removeprefix(_PREFIX).replace("_", " ").split())
    triggers = [" ".join(words), " ".join(words[:2]), f"mmkr {words[0] if words else 'capability'}"]
    kept = {each.casefold(): each for each in reversed(triggers) if each}
    return SkillMetadata(
        name=f"mmkr.{capability_name}",
        description=description or f"mmkr capability: {said or 'it has no name'}",
        triggers=list(reversed(kept.values())),
        capabilities=[str(tool) for tool in tools or ()],
        fitness_score=_score(fitness_score),
    )


def _words(name: str) -> list[str]:
    """The words of a capability's name, as many as a trigger may have."""
    found, room = list[str](), _LONGEST_TRIGGER
    for word in _WORD.findall(name[:_NAME].removeprefix("mmkr.").removeprefix(_PREFIX).replace("_", " ")):
        if len(word) > _LONGEST_WORD or len(word) + 1 > room:
            continue
        found.append(word)
        room -= len(word) + 1
    return found


def _score(value: object) -> float:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
    return float(min(number, _MOST_FIT)) if 0 <= number < math.inf else 0.0


def _number(score: float) -> str:
    """A number that YAML takes for one: 3.784."""
    text = f"{score:.6f}".rstrip("0")
    return f"{text}0" if text.endswith(".") else text


# ── texts ──


def _line(text: str) -> str:
    """What can be seen of a text, on one line."""
    return " ".join(_UNPRINTABLE.sub(" ", unhidden(text[:_TEXT])).split())


def _plain(text: str) -> str:
    """The same, so that YAML and a parser of lines both take it as it stands, without quotes."""
    line = re.sub(r"(?<!\S)#+\s*", "", _RULE.sub("–", _line(text)))
    return re.sub(r"\s*:+(?=\s|$)", " –", line)


def _told(description: str) -> list[str]:
    """A description in the page's own words: a quotation, in which no program runs."""
    lines = (_UNPRINTABLE.sub(" ", line).rstrip() for line in unhidden(description[:_TEXT]).splitlines())
    return [f"> {line}".rstrip().replace("!`", "! `") for line in lines] or ["> "]


def _yaml(text: str) -> str:
    bare = _BARE.fullmatch(text) and text.lower() not in _NO_TEXT and "---" not in text
    return text if bare else _quoted(text)


def _listed(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(_yaml, texts))}]"


def _quoted(text: str) -> str:
    """A text as JSON that is YAML too, on one line, with no rule in it."""
    whole = re.sub("[\ud800-\udfff]", "\ufffd", text)
    escaped = _UNPRINTABLE.sub(lambda each: f"\\u{ord(each[0]):04x}", json.dumps(whole, ensure_ascii=False))
    return _RULE.sub(lambda rule: "\\u002d" * len(rule[0]), escaped)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
