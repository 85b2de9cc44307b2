"""A process that is killed at any point of a write leaves whole files, and an index that the next look puts right."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clawd import faults
from clawd.memory.catalogue import Catalogue
from clawd.memory.record import MemoryRecord
from clawd.memory.store import OWNER, GroupMemory
from tests.memory.conftest import AGENT, TAINTED, memory_at

OLD, NEW = "The gate by the river is green.", "The gate by the river is red."
Writes = Callable[[GroupMemory, dict[str, str]], Any]
OPS: dict[str, Writes] = {
    "put": lambda memory, ids: memory.put(NEW, "episode", {"supersedes": ids["entity"]}, AGENT, key="k"),
    "fact": lambda memory, ids: memory.put(NEW, "fact", {"key": "gate"}, AGENT, key="k"),
    "change": lambda memory, ids: memory.change(ids["entity"], NEW, OWNER),
    "approve": lambda memory, ids: memory.approve(ids["low"]),
    "approve a fact": lambda memory, ids: memory.approve(ids["low fact"]),
    "approve a profile": lambda memory, ids: memory.approve(ids["profile"]),
    "reject": lambda memory, ids: memory.reject(ids["low"]),
    "quarantine": lambda memory, ids: memory.quarantine(ids["entity"]),
    "forget": lambda memory, ids: memory.forget(ids["entity"], OWNER),
    "forget a fact": lambda memory, ids: memory.forget("fact:gate", OWNER),
}
DUMP = "SELECT id, piece, text, trust, status FROM documents ORDER BY id, piece"
POINTS = ["stamped", "written", "moved", "logged", "profile", "removed", "unlogged"]


def begun(path: Path) -> dict[str, str]:
    memory = memory_at(path)
    memory.put(OLD, "fact", {"key": "gate"}, AGENT)
    ids = {
        "entity": memory.put(OLD, "entity", {}, AGENT).id,
        "low": memory.put("Mallory says so about the gate.", "entity", {}, TAINTED).id,
        "low fact": memory.put("as Mallory says", "fact", {"key": "gate"}, TAINTED).id,
        "profile": memory.put("I live by the gate.", "profile", {}, AGENT).id,
    }
    memory.close()
    return ids


def killed(path: Path, point: str, does: Writes, ids: dict[str, str]) -> bool:
    """Do it in a process of its own, which dies at that point; whether it came by there."""
    child = os.fork()
    if not child:
        faults.load(f"kill@remembering-{point}")
        try:
            does(memory_at(path), ids)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(status := os.waitpid(child, 0)[1]) and os.WTERMSIG(status) == signal.SIGKILL


def known(memory: GroupMemory) -> dict[str, MemoryRecord]:
    return {
        each.id: each for each in memory.every(statuses=frozenset(("active", "proposed", "superseded", "quarantined")))
    }


@pytest.mark.parametrize("op", OPS)
def test_a_kill_leaves_everything_whole(tmp_path: Path, op: str) -> None:
    came_by = 0
    for point in POINTS:
        path = tmp_path / point
        ids = begun(path)
        if not killed(path, point, OPS[op], ids):
            continue
        came_by += 1
        memory = memory_at(path)
        before = {id: each for id, each in known(memory).items() if each.kind != "day"}
        assert not list(memory.root.rglob("*.tmp"))
        for id, record in before.items():
            assert record.text in (
                OLD,
                NEW,
                "Mallory says so about the gate.",
                "as Mallory says",
                "I live by the gate.",
            ), id
            low = "Mallory" in record.text and op[:7] != "approve"
            assert not (low and record.status == "active"), id
            assert not (record.text == OLD and record.trust > 0.7), "what was not yet written gives no trust"
        fresh = Catalogue(memory.root, path / "fresh.db", "main", memory._ledger, 0.5, None)
        fresh.reindex()
        one, two = (
            each.read(lambda db: db.execute(DUMP).fetchall()) for each in (memory._catalogue.index, fresh.index)
        )
        assert one == two
        fresh.close()
        try:
            OPS[op](memory, ids)  # once more: it ends what was begun, or says that it is done
        except Exception as error:
            assert type(error).__name__ in ("NotFound", "UsageError"), error
        after = known(memory)
        if op in ("put", "fact"):
            assert (
                sum(each.text == NEW and each.status == "active" for each in after.values() if each.kind != "day") == 1
            )
            assert (memory.root / "MEMORY.md").read_text().count("## gate") == 1
        elif op == "change":
            assert (after[ids["entity"]].text, after[ids["entity"]].trust) == (NEW, 1.0)
        elif op == "approve a fact":
            assert (after["fact:gate"].text, after["fact:gate"].trust) == ("as Mallory says", 1.0)
            assert ids["low fact"] not in after
        elif op == "approve a profile":
            assert (memory.root.parent / "user_profile.md").read_text() == "I live by the gate.\n"
        elif op == "forget":
            assert ids["entity"] not in after and not any(
                OLD in each.text for each in after.values() if each.kind == "entity"
            )
        elif op == "forget a fact":
            assert "fact:gate" not in after and OLD not in (memory.root / "2026-12-01.md").read_text()
        memory.close()
    assert came_by >= 1
