"""PythonClaw's skills as ours, and ours as its. Pure.

Its SKILL.md has no YAML but lines of its own: `key: value`, `>` and `|` with lines further in behind them, and it ends
at the second `---` wherever that stands. It knows name, description, dependencies (names for pip) and a `metadata` with
an emoji; nothing chooses a skill but the words of its description, of which a catalogue shows 60 characters.

Source: pythonclaw 0.7.2, core/utils.py (parse_frontmatter), core/skill_loader.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from clawd.bridges.pythonclaw.forms import quoted, whole
from clawd.ids import free
from clawd.skills.skill import COMPATIBILITY, DESCRIPTION, FILE, NAME, Skill, name_like
from clawd.text import unhidden

SETUP, YAML = "check_setup.sh", "skill.yaml"
_PATH = "{skill_path}"
_HINT = "Paths that begin with `./` are beneath the folder of this skill.\n\n"
_NONE = "No description."
_KEPT = ("license", "allowed-tools")
_ITEM = re.compile(r"[,\n]")


@dataclass(frozen=True, slots=True)
class Brought:
    """`files` are the folder's, by path; `changed` sentences."""

    name: str
    files: Mapping[str, bytes]
    changed: tuple[str, ...] = ()


def parted(text: str) -> tuple[dict[str, str], str]:
    """Its fields as PythonClaw reads them, and the instructions."""
    pieces = text.split("---", 2)
    if not text.startswith("---") or len(pieces) < 3:
        return {}, text
    fields, key, lines, folded = dict[str, str](), None, list[str](), False
    for line in [*pieces[1].strip().splitlines(), ":"]:
        bare = line.strip()
        if line[:1] in (" ", "\t") and key is not None:
            lines.append(bare)
        elif ":" in bare:
            if key is not None and lines:
                fields[key] = (" " if folded else "\n").join(lines).strip()
            name, _, value = bare.partition(":")
            key, value = name.strip(), value.strip()
            folded = value == ">"
            lines = [value] if value not in ("", ">", "|") else []
    return fields, pieces[2].strip()


def brought(files: Mapping[str, bytes], folder: str, category: str = "", taken: Collection[str] = ()) -> Brought:
    """A skill's folder as one that is ours; `taken` are names of others. Never raises, whatever the bytes."""
    changed = list[str]()
    data = files.get(FILE, b"")
    text = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    if "\ufffd" in text and "\ufffd".encode() not in data:
        changed.append(f"{FILE} is not UTF-8: U+FFFD stands for what is none")
    fields, body = parted(text.removeprefix("\ufeff"))
    if text.startswith("\ufeff"):
        changed.append(f"{FILE} began with a mark that kept PythonClaw from reading its frontmatter")
    said = _plain(fields.get("name", "")) or folder
    like = name_like(said)
    name = free(like, lambda each: each not in taken, NAME)
    if name != said:
        why = "another has that name" if like == said else "a name has lower-case letters, digits and hyphens"
        changed.append(f"it was called {said[:80]!a}: {why}")
    description = _plain(fields.get("description", "")) or _NONE
    head = {"name": name, "description": " ".join(unhidden(description).split())[:DESCRIPTION]}
    metadata = _block(fields.get("metadata", ""))
    if category:
        metadata["category"] = category
    if needs := dependencies(fields.get("dependencies", "")):
        head["compatibility"] = f"Needs these Python packages: {', '.join(needs)}"[:COMPATIBILITY]
        metadata["dependencies"] = ", ".join(needs)
        changed.append(f"it needs Python packages, which were not installed: {', '.join(needs)[:200]}")
    for key in _KEPT:
        if value := _plain(fields.get(key, "")):
            head[key] = value
    triggers = [
        each for word in _ITEM.split(fields.get("triggers", "").strip("[]")) if (each := _plain(word.strip(" -")))
    ]
    others = sorted(fields.keys() - {"name", "description", "metadata", "dependencies", "triggers", *_KEPT})
    metadata |= {key: fields[key] for key in others if re.fullmatch(r"[\w.-]{1,64}", key)}
    if SETUP in files:
        changed.append(f"{SETUP} came along and is never run by itself, as PythonClaw does")
    if YAML in files:
        changed.append(f"{YAML} is a file like any other, as PythonClaw has it")
    if _PATH in body:
        body = _HINT + body.replace(_PATH, ".")
        changed.append(f"{_PATH} is . now, with a line on what that means")
    return Brought(name, {**files, FILE: _written(head, triggers, metadata, body)}, tuple(changed))


def dependencies(text: str) -> list[str]:
    """`a, b` or `[a, b]`."""
    return [each for word in text.strip().strip("[]").split(",") if (each := word.strip().strip("\"'- "))]


def _plain(value: str) -> str:
    """A value without what PythonClaw keeps and nobody means: quotes around it, the mark of a block."""
    value = re.sub(r"\A[>|][+-]\n", "", value).strip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return value.strip()


def _block(text: str) -> dict[str, str]:
    """`metadata:` as PythonClaw reads it: a line each."""
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {
        key.strip(): value.strip().strip("\"'") for key, _, value in pairs if re.fullmatch(r"[\w.-]{1,64}", key.strip())
    }


def _written(head: Mapping[str, str], triggers: list[str], metadata: Mapping[str, str], body: str) -> bytes:
    lines = ["---", *(f"{key}: {quoted(value)}" for key, value in head.items())]
    if triggers:
        lines.append(f"triggers: {quoted(triggers)}")
    if metadata:
        lines += ["metadata:", *(f"  {quoted(key)}: {quoted(value)}" for key, value in metadata.items())]
    return whole("\n".join([*lines, "---", "", body.strip(), ""])).encode()


# ── ours, for PythonClaw ──


def given(skill: Skill) -> bytes:
    """The SKILL.md of a skill of ours as PythonClaw's reader takes it: one line a field, nothing that would end the
    frontmatter before its time, and the words that choose the skill where its catalogue shows them."""
    words = [each for each in skill.triggers if each.strip("* ") and each not in skill.description.casefold()]
    description = " ".join(skill.description.split())
    if words:
        description = f"{', '.join(words)[:60]}: {description}"
    lines = [f"name: {skill.name}", f"description: {_one(description)}"]
    if needs := skill.metadata.get("dependencies"):
        lines.append(f"dependencies: {_one(needs)}")
    if emoji := skill.metadata.get("emoji"):
        lines += ["metadata:", f"  emoji: {_one(emoji)}"]
    body = skill.body.replace(f"/group/skills/{skill.name}", _PATH).replace(f"/skills/{skill.name}", _PATH)
    if body.startswith(_HINT):
        body = body.removeprefix(_HINT).replace("./", f"{_PATH}/")
    return whole("\n".join(["---", *lines, "---", body.strip(), ""])).encode()


def _one(text: str) -> str:
    return re.sub("-{3,}", "--", " ".join(text.split()))
