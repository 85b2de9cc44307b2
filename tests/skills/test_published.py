"""Skills that others published, as their packages bring them: all of them load, and can be added."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawd.skills.archive import add
from clawd.skills.skill import load
from tests.agents import SKILLS, skills


@pytest.mark.timeout(300)  # they may be fetched now
def test_published_skills_load_and_can_be_added(tmp_path: Path) -> None:
    names = set[str]()
    for package in SKILLS:
        for folder in skills(package):
            found = add(folder, tmp_path / "skills", shared=True).skill
            assert found == load(tmp_path / "skills" / found.name, shared=True)
            assert found.errors == () and found.description and len(found.body) > 200, folder
            names.add(found.name)
    assert len(names) >= 30 and {"typescript-lsp", "pitch-deck", "wednesday-dev"} <= names
