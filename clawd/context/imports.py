"""`@path` in the owner's files: another file of the group that is sent after them, as Claude Code has it.

A path counts from the file that names it, or is absolute, or begins with `~/`; `\\ ` is a space in it, what follows a
`#` is no part of it; code and comments name nothing; at most four hops. What is imported is as much the owner's word as
the file that names it: so it lies beneath the group and outside of whatever an agent writes, and is nobody else's. What
is not so is refused aloud.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from clawd.config.home import THEIRS, GroupHome
from clawd.errors import UnsafePath
from clawd.files import OWNED_LIMIT, read_owned

HOPS = 4
MOST_BYTES = OWNED_LIMIT  # of all imports together
_NEVER = frozenset((".git", ".proposed"))  # anywhere on it
_IMPORT = re.compile(r"(?:^|\s)@((?:[^\s\\]|\\ )+)")
_PATH = re.compile(r"\./|~/|/.|[a-zA-Z0-9._-]")
# Missing, these are told of; `@alice` and `@scope/package` are only words.
_MEANT = re.compile(r"(\.{1,2}|~)?/.*|.*\.(md|mdx|markdown|txt|rst|org|adoc|toml|ya?ml|json|csv)", re.IGNORECASE)
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_ITEM = re.compile(r"\s*([-*+]|\d{1,9}[.)])(\s|$)")


@dataclass(frozen=True, slots=True)
class Imports:
    """`files` are (path beneath the group, text) in order; `refused` sentences for the person."""

    files: list[tuple[str, str]]
    refused: list[str]


def resolve(group: GroupHome, sources: Iterable[tuple[str, str]]) -> Imports:
    """What these files (name, text) of the group import, the nearest first. They themselves are never imported, nor is
    the person's profile: whether it is sent is decided elsewhere."""
    seen = {group.claude_md.name, group.user_profile.name}
    files: list[tuple[str, str]] = []
    refused: dict[str, None] = {}
    room = MOST_BYTES
    waiting = deque((name, text, 0) for name, text in sources)
    while waiting:
        source, text, hops = waiting.popleft()
        for mention in dict.fromkeys(mentions(text)):
            try:
                path = _beneath(group.root, source, mention)
                if path in seen:
                    continue
                if hops == HOPS:
                    raise UnsafePath(f"it is more than {HOPS} imports away from CLAUDE.md")
                data = read_owned(group.root, path)
                if b"\0" in data:
                    raise UnsafePath("it is no text")
                if len(data) > room:
                    raise UnsafePath(f"all imports together are larger than {MOST_BYTES >> 20} MB")
            except (FileNotFoundError, NotADirectoryError):
                if _MEANT.fullmatch(mention):
                    refused[f"@{mention} in {source} is not imported: there is no such file"] = None
                continue
            except (UnsafePath, OSError) as error:
                why = error.message if isinstance(error, UnsafePath) else f"it cannot be read: {error.strerror}"
                refused[f"@{mention} in {source} is not imported: {why}"] = None
                continue
            seen.add(path)
            room -= len(data)
            imported, trouble = decoded(path, data)
            refused |= dict.fromkeys(trouble)
            files.append((path, imported))
            waiting.append((path, imported, hops + 1))
    return Imports(files, list(refused))


def decoded(name: str, data: bytes) -> tuple[str, list[str]]:
    """The text of a file, byte for byte where it is UTF-8, else with a sentence on what is not."""
    try:
        return data.decode(), []
    except UnicodeDecodeError as error:
        told = f"{name}: byte {error.start} is not UTF-8; such bytes reach the model as \ufffd. Save it as UTF-8."
        return data.decode("utf-8", "replace"), [told]


def _beneath(root: Path, source: str, mention: str) -> str:
    """The path beneath the group that a mention in `source` means. Raises UnsafePath when it may not be one."""
    path = str(Path(mention).expanduser()) if mention.startswith("~/") else mention
    if path.startswith("/"):
        inside = [os.path.relpath(path, each) for each in (root, root.resolve())]
        relative = min(inside, key=len)
    else:
        relative = os.path.normpath(Path(source).parent / path)
    parts = Path(relative).parts
    if relative.startswith("/") or ".." in parts or not parts or "\0" in relative:
        raise UnsafePath("it lies outside of the group's folder")
    first = parts[0].casefold()
    # `work.20261201-…` is one that `groups clean` has kept aside
    if first.partition(".")[0] == "work" and (len(parts) > 1 or first == "work"):
        raise UnsafePath("what lies in work/ is the agent's, not yours")
    for name in THEIRS:
        if first == name or _same(root / parts[0], root / name):
            raise UnsafePath(f"what lies in {name}/ is not your own word")
    for part in parts:
        if part.casefold() in _NEVER:
            raise UnsafePath(f"nothing in {part} is imported")
    return relative


def _same(one: Path, other: Path) -> bool:
    """Whether both are the same directory, by whatever name."""
    try:
        return os.path.samestat(one.lstat(), other.lstat())
    except OSError:
        return False


# -- which words of a Markdown text are imports --


def mentions(text: str) -> Iterator[str]:
    """Paths that stand behind an `@` at the start of a word, in order; not in code, not in comments."""
    for paragraph in _paragraphs(text):
        for match in _IMPORT.finditer(_without_spans(paragraph)):
            path = match[1].partition("#")[0].replace("\\ ", " ")
            if _PATH.match(path):
                yield path


def _paragraphs(text: str) -> Iterator[str]:
    """The text without code blocks and comments, cut at blank lines."""
    lines: list[str] = []
    fence, comment, in_list = "", False, False
    after_blank = True  # of code that is only indented
    for each in re.split(r"\r\n|\n|\r", text.removeprefix("\ufeff")):
        line = each
        if fence:
            bare = line.strip()
            if len(line) - len(line.lstrip(" ")) < 4 and len(bare) >= len(fence) and bare == fence[0] * len(bare):
                fence = ""
            continue
        if comment:
            _, end, line = line.partition("-->")
            if not end:
                continue
            comment = False
        elif opening := _FENCE.match(line):
            fence, line = opening[1], ""
        while not fence and not comment and "<!--" in line:
            head, _, rest = line.partition("<!--")
            if head.count("`") % 2:  # it stands in a span of code
                break
            _, end, rest = rest.partition("-->")
            line, comment = head + rest, not end
        in_list = bool(_ITEM.match(line)) or (in_list and (not line.strip() or line[:1] in " \t"))
        code = after_blank and not in_list and line.startswith(("    ", "\t"))
        after_blank = code or not line.strip()
        if after_blank:
            if lines:
                yield "\n".join(lines)
            lines = []
        else:
            lines.append(line)
    if lines:
        yield "\n".join(lines)


def _without_spans(paragraph: str) -> str:
    """The paragraph with each span of code in it, from a run of backticks to the next one as long, become one."""
    runs = list(re.finditer(r"(?<!\\)`+", paragraph))
    closing: list[int | None] = [None] * len(runs)
    last: dict[int, int] = {}
    for at in range(len(runs) - 1, -1, -1):
        length = len(runs[at][0])
        closing[at] = last.get(length)
        last[length] = at
    kept, done, at = [], 0, 0
    while at < len(runs):
        if (end := closing[at]) is None:
            at += 1
            continue
        kept.append(paragraph[done : runs[at].start()])
        done, at = runs[end].end(), end + 1
    return "`".join([*kept, paragraph[done:]])
