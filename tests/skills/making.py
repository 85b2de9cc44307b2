"""Skills for tests."""

from __future__ import annotations

from pathlib import Path


def skill(root: Path, name: str, description: str = "Does it.", body: str = "Do it.", **files: str) -> Path:
    """A folder `root`/`name`; each file by its name, `__` for `/`."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "SKILL.md", f"---\nname: {name}\ndescription: {description}\n---\n{body}\n")
    for path, text in files.items():
        file = folder / path.replace("__", "/").replace("_DOT_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        _write(file, text)
    return folder


def _write(file: Path, text: str) -> None:
    """As an editor does that replaces a file."""
    new = file.with_name(f".{file.name}.new")
    new.write_text(text)
    new.chmod(0o644)
    new.replace(file)
