"""Skills as folders of a test."""

from __future__ import annotations

from pathlib import Path

HEAD = "name: {name}\ndescription: Sums up a day. Use it for digests.\n"
BODY = "Read the notes, then write five lines.\n"


def skill(root: Path, name: str, head: str = HEAD, body: str = BODY, **files: str) -> Path:
    """A folder with a SKILL.md; `files` are beside it, `__` in a name is a directory."""
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\n{head.replace('{name}', name)}---\n\n{body}", encoding="utf-8")
    for path, text in files.items():
        file = folder / path.replace("__", "/")
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return folder
