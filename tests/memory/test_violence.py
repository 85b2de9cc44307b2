"""What others do to the files of a memory, its index and its ledger while it is open."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from clawd.errors import DiskFull, Refused, StorageError
from clawd.memory.store import OWNER, GroupMemory
from tests.memory.conftest import found


def test_lines_of_the_ledger_that_are_no_stamps_are_left_out(memory: GroupMemory) -> None:
    kept = memory.put("The lighthouse is green.", "episode", {}, OWNER)
    ledger = memory._ledger.path
    good = json.loads(ledger.read_bytes())
    wrong = {
        "trust": ["high", None, 2, -1, 10**400, math.nan], "taint": ["x", math.inf], "id": [[1], None, "\ud800"],
        "sha256": [{}, 3], "status": [[], "wild"], "op": [7, []], "lines": ["abc"[:0] or [1], [None]],
        "group": [["main"]], "source": [4], "ts": [None, "yesterday", "2026-12-01"], "private": ["no"],
    }  # fmt: skip
    lines = [json.dumps({**good, name: value}) for name, values in wrong.items() for value in values]
    with ledger.open("a") as file:
        file.write("\n".join([*lines, "[]", "{", '{"ts": "2026', ""]))
    assert found(memory, "lighthouse", OWNER) == [kept.id]
    assert memory.get(kept.id).trust == 1 and len(list(memory._ledger.read())) == 1
    memory.put("The harbour is blue.", "episode", {}, OWNER)
    assert not memory.why(kept.id)["notes"] and len(list(memory._ledger.read())) == 2


def test_a_ledger_that_is_no_file_is_told(memory: GroupMemory, tmp_path: Path) -> None:
    memory.put("The lighthouse is green.", "episode", {}, OWNER)
    ledger = memory._ledger.path
    ledger.rename(tmp_path / "moved")
    for make in (lambda: ledger.symlink_to(tmp_path / "moved"), ledger.mkdir, lambda: os.mkfifo(ledger)):
        make()
        for use in (memory.look, lambda: memory.put("The harbour is blue.", "episode", {}, OWNER)):
            with pytest.raises(StorageError, match=r"trust\.jsonl is a link, or no file"):
                use()
        ledger.rename(tmp_path / "away") if ledger.is_dir() and not ledger.is_symlink() else ledger.unlink()


def test_an_index_that_is_damaged_under_a_search_is_filled_before_it_answers(memory: GroupMemory) -> None:
    kept = memory.put("The lighthouse is green.", "episode", {}, OWNER)
    memory.close()
    index = memory._file
    whole = index.read_bytes()
    for at in range(0, len(whole), 4096):
        index.write_bytes(whole[:at] + b"\xff" * 4096 + whole[at + 4096 :])
        assert found(memory, "lighthouse", OWNER) == [kept.id], at
        memory.close()


def test_a_fact_that_is_edited_in_place_is_found_though_a_folder_changed(memory: GroupMemory) -> None:
    facts = memory.root / "MEMORY.md"
    facts.write_text("## animal\nzebra\n")
    (memory.root / "entities").mkdir()
    memory.look()
    os.utime(memory.root / "entities", (1, 1))
    with facts.open("a") as file:
        file.write("\n## boat\ngreen\n")
    assert found(memory, "green", OWNER) == ["fact:boat"]


def test_a_memory_that_is_a_link_is_not_followed_and_told(memory: GroupMemory, tmp_path: Path) -> None:
    memory.root.rename(tmp_path / "elsewhere")
    memory.root.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused, match="is a link"):
        memory.put("The lighthouse is green.", "procedure", {}, OWNER)
    assert not any((tmp_path / "elsewhere").iterdir())
    assert any("is a link" in each for each in memory.look())


def test_what_is_kept_is_kept_though_its_index_has_no_room(memory: GroupMemory) -> None:
    memory.look()
    pages = memory._catalogue.index.read(lambda db: db.execute("PRAGMA page_count").fetchone()[0])
    memory._catalogue.index.read(lambda db: db.execute(f"PRAGMA max_page_count = {pages}").fetchone())
    kept = memory.put("The lighthouse is green. " * 4000, "episode", {}, OWNER)
    with pytest.raises(DiskFull, match="no room"):
        memory.look()
    memory._catalogue.index.close()
    assert kept.status == "active" and found(memory, "lighthouse", OWNER) == [kept.id]
