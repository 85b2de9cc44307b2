"""Files that a person made, through the store: what it does to them, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clawd.clock import TurnedClock
from clawd.errors import UsageError
from clawd.memory import tree
from clawd.memory.store import OWNER, GroupMemory

NOW = datetime(2026, 11, 29, 12, 52, 5, tzinfo=UTC)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[GroupMemory]:
    (tmp_path / "memory" / "entities").mkdir(parents=True)
    (tmp_path / "state").mkdir()
    with closing(GroupMemory(tmp_path / "memory", tmp_path / "state", "main", TurnedClock(NOW))) as made:
        yield made


def test_the_properties_of_a_person_survive_a_change(memory: GroupMemory) -> None:
    file = memory.root / "entities" / "boat.md"
    file.write_text("---\ntitle: The boat # as on its stern\naliases:\n- green one\n---\nThe boat is green.\n")
    memory.look()
    memory.change("file:entities/boat.md", "The boat is red, see [[Harbour]].", OWNER)
    text = file.read_text()
    assert text.startswith("---\ntitle: The boat # as on its stern\naliases:\n- green one\nschema: 1\n")
    assert text.endswith("\n---\nThe boat is red, see [[Harbour]].\n")


def test_to_forget_what_stands_before_the_facts_forgets_no_fact(memory: GroupMemory) -> None:
    (memory.root / "MEMORY.md").write_text("Words about the garden.\n\n## town\nGraz\n")
    memory.look()
    assert memory.forget("file:MEMORY.md", OWNER).texts == ["Words about the garden."]
    assert (memory.root / "MEMORY.md").read_text() == "# Long-Term Memory\n\n## town\nGraz\n"
    assert memory.get("fact:town").text == "Graz"


def test_what_is_not_read_to_its_end_is_never_cut(memory: GroupMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "LIMIT", 64 << 10)
    content = b"---\nid: en_0123456789\n---\n" + b"one line of many\n" * 5000
    (memory.root / "entities" / "large.md").write_bytes(content)
    memory.look()
    with pytest.raises(UsageError, match="changed with an editor"):
        memory.change("en_0123456789", "less", OWNER)
    moved = memory.quarantine("en_0123456789")
    assert moved.file.startswith("quarantine/") and (memory.root / moved.file).read_bytes() == content
    assert memory.get("en_0123456789").status == "quarantined"
