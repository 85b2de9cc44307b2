"""Which folders a watch may name, and how far what stands in them is trusted."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawd.config.home import Home
from clawd.wakes.folders import roots


@pytest.mark.parametrize(
    ("path", "trust", "refused"),
    [
        ("notes", 1.0, False),
        ("work/notes", None, False),
        ("work.20261201-090000", 0.2, False),
        ("inbox", 0.2, False),
        ("memory", 0.2, False),  # what other programs and agents wrote, too
        ("Memory/notes", 0.2, False),
        ("exports", 0.2, False),
        ("import", None, True),  # nobody said yes to that yet
        ("import/pythonclaw", None, True),
        ("Import/pythonclaw", None, True),
        ("sessions", None, True),
        (".proposed", None, True),
    ],
)
def test_how_far_a_folder_of_the_group_is_trusted(
    tmp_path: Path, path: str, trust: float | None, refused: bool
) -> None:
    folder = Home(tmp_path).group("main")
    [root] = roots("main", folder, [path], lambda: [], lambda *_: pytest.fail("no mount was named"))
    assert bool(root.problem) is refused
    assert refused or root.trust == trust
