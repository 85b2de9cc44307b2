"""What others published and tests use for real, command lines and skills: fetched once into `.cache/agents` by the
names of their packages, from whatever registry this machine's npm uses. None of it is ever part of the repository.
Before the tests, `python -m tests.agents` fetches it.

A program lies alone in its directory, which sandboxes are shown read-only.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.dockerd import CACHE

CLAUDE_CODE = "@anthropic-ai/claude-code-linux-x64@2.1.332"  # the one that the wheel claude-agent-sdk 0.2.189 bundles
CODEX = "@openai/codex@0.171.0-linux-x64"
SKILLS = (
    "ai-labs-claude-skills@2.0.1",
    "@plaited/development-skills@0.8.1",
    "@wednesday-solutions-eng/ai-agent-skills@1.1.0",
)
_AGENTS = CACHE.with_name("agents")


def claude() -> Path:
    return program("claude", CLAUDE_CODE)


def codex() -> Path:
    return program("codex", CODEX)


def program(name: str, package: str) -> Path:
    """The program of this name in this npm package, fetched if it is not there yet."""
    return _fetched(package, name) / name


def skills(package: str) -> list[Path]:
    """The folders of the skills in this npm package."""
    return sorted(each.parent for each in _fetched(package).rglob("SKILL.md"))


def _fetched(package: str, name: str | None = None) -> Path:
    """A directory with one program of a package alone, or with all of it."""
    directory = _AGENTS / package.rpartition("/")[2]
    _AGENTS.mkdir(parents=True, exist_ok=True)
    with (_AGENTS / f"{directory.name}.lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        if not (directory / name if name else directory).exists():
            _fetch(package, directory, name)
    return directory


def _fetch(package: str, directory: Path, name: str | None) -> None:
    beside = directory.with_name(f"{directory.name}.new")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    command = ["npm", "pack", "--silent", "--pack-destination", str(beside), package]
    try:
        done = subprocess.run(command, cwd=beside, capture_output=True, text=True, check=False, timeout=300)
        why = done.stderr.strip()[-500:] or "npm says nothing" if done.returncode else ""
    except OSError as error:
        why = f"npm: {error.strerror}"
    if why:
        pytest.fail(f"{package}, which this test runs for real, could not be fetched with npm: {why}")
    with tarfile.open(next(beside.glob("*.tgz"))) as archive:
        if name is None:
            archive.extractall(beside / "whole", filter="data")
            (beside / "whole").rename(directory)
        else:
            member = next(each for each in archive if each.isfile() and each.name.endswith(f"/{name}"))
            archive.extract(member, beside, filter="data")
            directory.mkdir(exist_ok=True)
            (beside / member.name).rename(directory / name)
    shutil.rmtree(beside)


if __name__ == "__main__":
    claude()
    codex()
    for each in SKILLS:
        skills(each)
