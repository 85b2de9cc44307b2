"""What of a git repository is shut in a writable mount, so that the person's own git runs nothing of an agent's."""

from __future__ import annotations

from pathlib import Path


def closed(real: Path) -> tuple[tuple[Path, bool], ...] | None:
    """Paths that are shut (True: kept in place only); None where that cannot be done. `.git` itself is kept in
    its place: one that is moved away takes its locks along."""
    if ".git" in real.parts:
        return None
    if not real.is_dir():
        return ()
    git, shut = real / ".git", list[tuple[Path, bool]]()
    if git.is_symlink():
        return None
    if git.is_file():  # it says where the repository is
        return ((git, False),)
    if git.is_dir():
        shut.append((git, True))
    elif all((real / name).exists() for name in ("HEAD", "objects", "refs")):
        git = real  # a bare one
    else:
        return ()
    for name in ("hooks", "config", "config.worktree", "commondir", "modules", "worktrees"):
        path = git / name
        if path.is_symlink() or not path.exists():
            if path.is_symlink() or name in ("hooks", "config"):  # nothing is made on the host to be shut
                return None if git == real else ((git, False),)
            continue
        shut.append((path, False))
    return tuple(shut)
