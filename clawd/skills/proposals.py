"""Skills that an agent asks for: `groups/<g>/skills/.proposed/<name>/`, a copy that nobody uses before the owner said
yes, and the way from there to `skills/<name>`.

What an agent wrote is copied beneath-only, from a folder directly in its `work/`, which it cannot exchange for a link.
"""

from __future__ import annotations

import json
import secrets
import threading
import unicodedata
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from clawd.errors import ClawdError, UnsafePath, UsageError
from clawd.files import remove_tree, sync_directory
from clawd.ids import folded
from clawd.skills.archive import KEPT, set_aside
from clawd.skills.catalogue import PROPOSED
from clawd.skills.manifest import Manifest, look, manifest, version
from clawd.skills.shelf import copy
from clawd.skills.skill import FILE, load, name_refused

MOST_WAITING = 5  # for the owner's word, in one group
MOST_FILES, MOST_BYTES = 200, 5 << 20  # of a proposal: it is hashed while the ledger waits
_moving = threading.Lock()  # what was looked at is what is moved


@contextmanager
def drafted(skills: Path, name: str, work: Path | None, text: str) -> Iterator[tuple[Path, Manifest]]:
    """A copy of the folder `name` of `work`, or without it a folder with `text` as its SKILL.md, that is a sound skill:
    a temporary one, beside where it is to lie. Raises UsageError, UnsafePath, OSError."""
    if refusal := name_refused(name):
        raise UsageError(f"the folder {refusal}")
    if name != unicodedata.normalize("NFKC", name):
        raise UsageError(f"{name!a} is written in another way than it reads: write it plainly")
    for twin in skills.iterdir() if skills.is_dir() else ():
        if twin.name != name and folded(unicodedata.normalize("NFKC", twin.name)) == folded(name):
            raise UsageError(f"{name!a} is too much like {twin.name!a}, which is there: choose another name")
    proposed = skills / PROPOSED
    proposed.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = proposed / f".{secrets.token_hex(8)}"
    try:
        temporary.mkdir(mode=0o700)
        draft = temporary / name
        if work is not None:
            _check(work / name, name)
            copy(work / name, draft)
        else:
            draft.mkdir(mode=0o755)
            (draft / FILE).write_text(text, "utf-8")
            (draft / FILE).chmod(0o644)
        if errors := load(draft, shared=False).errors:
            raise UsageError(f"{name} is no skill yet: {'; '.join(errors)}")
        yield draft, manifest(draft)
    finally:
        remove_tree(temporary)


def _check(folder: Path, name: str) -> None:
    try:
        files = look(folder).files
    except (FileNotFoundError, UnsafePath) as error:
        why = error.message if isinstance(error, UnsafePath) else "it is not there"
        raise UsageError(f"work/{name} cannot be proposed: {why}") from None
    if len(files) > MOST_FILES or sum(status.st_size for _, status in files) > MOST_BYTES:
        raise UsageError(f"a proposed skill has at most {MOST_FILES} files and {MOST_BYTES >> 20} MB")


def skill_md(name: str, description: str, body: str) -> str:
    """A SKILL.md of these texts."""
    said = json.dumps(" ".join(description.split()), ensure_ascii=False)  # which is YAML, too
    return f"---\nname: {name}\ndescription: {said}\n---\n{body.strip()}\n"


def place(skills: Path, name: str, draft: Path) -> None:
    """The draft takes the place of what was proposed by this name."""
    with _moving:
        remove_tree(skills / PROPOSED / name)
        draft.rename(skills / PROPOSED / name)


def withdraw(skills: Path, name: str, sha256: str | None = None) -> None:
    """A proposal is gone; with a `sha256` only if it is still this one."""
    at = skills / PROPOSED / name
    with _moving:
        if sha256 in (None, version(at)):
            remove_tree(at)


def clear(skills: Path, theirs: Collection[str], waiting: Collection[str]) -> None:
    """Of what lies there as proposed, all is gone but what is `waiting`, by name, and what is not `theirs`, by its
    sha256: a person's hand was in it. Raises OSError."""
    proposed = skills / PROPOSED
    for at in list(proposed.iterdir()) if proposed.is_dir() else ():
        if at.name not in {*waiting, KEPT} and (at.name[0] == "." or version(at) in theirs):
            remove_tree(at)


def accept(skills: Path, name: str, sha256: str) -> None:
    """Move this proposal to where it is used; what lies there is kept aside. It may be called again. Raises
    ClawdError where it is another one, OSError."""
    at, to = skills / PROPOSED / name, skills / name
    with _moving:
        if version(at) != sha256:
            if not at.exists() and version(to) == sha256:
                return  # a crash came after it
            raise ClawdError(f"{at} is not what was proposed")
        if to.exists() or to.is_symlink():
            set_aside(to)
        at.rename(to)
        sync_directory(skills)
