"""What the doctor looks at in memory: a backend that lacks its extra, files that cannot be read as they are meant, text
that was quarantined and lies elsewhere, what waits, the trust ledger, and what is in every prompt."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

from clawd.commands.memory import opened
from clawd.config.home import GroupHome, Home, group_folders
from clawd.config.load import load_config
from clawd.context.imports import decoded, resolve
from clawd.errors import ClawdError, StorageError
from clawd.files import read_owned
from clawd.health.findings import Finding, finding, settings_of_groups
from clawd.health.groups import named
from clawd.memory import tree
from clawd.memory.provenance import TrustLedger, stamp_of
from clawd.memory.record import ID, QUARANTINE

MOST_LINES, MOST_BYTES = 200, 25 << 10  # of what is in every prompt: what Claude Code reads of such a file
_NEEDS = ("wordllama", "tokenizers", "safetensors", "numpy")
_SHOWN = 5


def memory(home: Home) -> Iterator[Finding]:
    """Of each group, and of the ledger of trust."""
    sound = True
    for each in (*_ledger(home), *_groups(home)):
        sound = sound and each["level"] == "ok"
        yield each
    if sound:
        yield finding("memory", "ok", "every memory can be read, and is known")


def _groups(home: Home) -> Iterator[Finding]:
    every = list(settings_of_groups(home, load_config(home, dict(os.environ))))
    yield from _lonely(home, {group: settings.group.shared for group, settings in every})
    for group, settings in every:
        folder, backend = home.group(group), settings.memory.backend
        if backend in ("vector", "hybrid") and (lacking := [name for name in _NEEDS if find_spec(name) is None]):
            words = f"{', '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} not installed"
            message = f"the memory of group {group} is searched by words alone: {words}"
            yield finding("memory", "warn", message, "pip install 'clawd[vector]'")
        yield from _zone(group, folder)
        if folder.memory.is_dir():
            yield from _files(home, group, folder)


def _files(home: Home, group: str, folder: GroupHome) -> Iterator[Finding]:
    where = shlex.quote(str(folder.memory))
    with closing(opened(home, group)) as memory:
        problems = memory.look()
        list(tree.walk(folder.memory, problems))
        for sentence in problems[:_SHOWN]:
            yield finding("memory", "warn", f"the memory of group {group}: {sentence}", f"ls -la {where}")
        if len(problems) > _SHOWN:
            message = f"the memory of group {group}: {len(problems) - _SHOWN} more of that kind"
            yield finding("memory", "warn", message, f"clawd memory reindex --group {group}")
        moved = [
            each.file
            for each in memory.every(statuses=frozenset({"quarantined"}))
            if not each.file.startswith(f"{QUARANTINE}/")
        ]
        if moved:
            message = f"quarantined text lies in {named(moved)} of group {group}; it is not found there"
            yield finding("memory", "warn", message, f"clawd memory list --status quarantined --group {group}")
        if waits := len(memory.pending()):
            said = "one memory waits" if waits == 1 else f"{waits} memories wait"
            yield finding(
                "memory", "ok", f"{said} for your word in group {group}", f"clawd memory pending --group {group}"
            )


def _lonely(home: Home, lists: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """What a group lists to share, and no other does."""
    for group, names in lists.items():
        for name in names:
            if not any(name in others for other, others in lists.items() if other != group):
                message = f"group {group} lists {name}, and no other group does: nobody reads what is kept there"
                file = shlex.quote(str(home.group(group).config_file))
                yield finding("memory", "warn", message, f"edit {file}, or that of the group that is to read it")


def _zone(group: str, folder: GroupHome) -> Iterator[Finding]:
    """CLAUDE.md, user_profile.md and what they import: a model is told them each time."""
    texts: list[tuple[str, str]] = []
    for file in (folder.claude_md, folder.user_profile):
        try:
            texts.append((file.name, decoded(file.name, read_owned(file.parent, file.name))[0]))
        except (ClawdError, OSError):
            continue  # missing, or another finding
    found = resolve(folder, texts)
    for sentence in found.refused:
        message = f"group {group}: {sentence}"
        yield finding("memory", "warn", message, f"edit {shlex.quote(str(folder.claude_md))}")
    every = [text for _, text in (*texts, *found.files)]
    lines, size = sum(len(text.splitlines()) for text in every), sum(len(text.encode()) for text in every)
    if lines > MOST_LINES or size > MOST_BYTES:
        message = (
            f"CLAUDE.md and user_profile.md of group {group}, with what they import, have {lines} lines and"
            f" {-(-size // 1024)} KB, and are in every prompt: models follow {MOST_LINES} lines and 25 KB better"
        )
        yield finding("memory", "warn", message, f"edit {shlex.quote(str(folder.claude_md))}")


def _ledger(home: Home) -> Iterator[Finding]:
    """What is unknown there is trusted as a file that a person made: below the owner's own word."""
    file = home.state / "trust.jsonl"
    try:
        with TrustLedger(file).open() as lines:
            wrong = [n for n, line in enumerate(lines, 1) if not line.endswith(b"\n") or stamp_of(line) is None]
    except FileNotFoundError:
        if any(_has_ours(home.group(each).memory) for each in group_folders(home)):
            message = f"{file} is gone: memories that clawd wrote are trusted as files made by hand, or less"
            yield finding("memory", "error", message, "clawd memory trust FILE, for what is yours")
        return
    except StorageError as error:
        yield finding("memory", "error", error.message, f"ls -l {shlex.quote(str(file))}")
        return
    except OSError as error:
        message = f"{file} cannot be read ({error.strerror}): nobody knows what is to be trusted"
        yield finding("memory", "error", message, f"ls -l {shlex.quote(str(file))}")
        return
    if wrong:
        message = f"{file} has {len(wrong)} lines that are no stamps, the first is line {wrong[0]}; they are left out"
        yield finding("memory", "warn", message, f"sed -n {wrong[0]}p {shlex.quote(str(file))}")


def _has_ours(memory: Path) -> bool:
    """Whether there are memories that clawd gave an id."""
    looked = (tree.look(memory, path) for path, _ in (tree.walk(memory, []) if memory.is_dir() else ()))
    return any(ID.fullmatch(raw.id) for each in looked for raw in each.memories)
