"""Memory as a store: all of a group's, or what came from a channel or a person in any group. A part of it is erased as
the owner's own command forgets it: the trust ledger keeps its hashes, so that nobody plants it again, and no name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from clawd.clock import Clock
from clawd.config.home import Home, group_folders
from clawd.errors import NotFound
from clawd.files import remove_tree, walk_beneath, write_atomic
from clawd.ledger.db import peek
from clawd.memory.provenance import Stamp, TrustLedger
from clawd.memory.record import MemoryRecord
from clawd.memory.store import OWNER, GroupMemory
from clawd.stores import Scope

_EVERY = frozenset({"active", "proposed", "quarantined", "superseded"})


class MemoryStore:
    """`locate` gives files, and `MEMORY.md: fact:KEY` for what is a part of one."""

    name = "memory"

    def __init__(self, home: Home, clock: Clock) -> None:
        self._home, self._clock = home, clock
        self._trust = TrustLedger(home.state / "trust.jsonl")

    def locate(self, scope: Scope) -> list[Path | str]:
        if scope.kind == "group":
            folder = self._home.group(scope.name).memory
            files = sorted(folder / relative for relative, _ in walk_beneath(folder))
            lines = sum(stamp.group == scope.name for stamp in self._trust.read())
            return [*files, *self._index(scope.name), *([f"trust.jsonl: {lines} lines"] if lines else [])]
        return [
            f"{each.file}: {each.id}" if each.id.startswith(("fact:", "day:")) else memory.root / each.file
            for memory, found in self._found(scope)
            for each in found
        ]

    def erase(self, scope: Scope) -> None:
        if scope.kind == "group":
            remove_tree(self._home.group(scope.name).memory)
            for path in self._index(scope.name):
                path.unlink(missing_ok=True)
            self._rewrite(lambda fields: None if fields.get("group") == scope.name else fields)
            return
        ids = set[tuple[str, str]]()
        for memory, found in self._found(scope):
            for each in found:
                ids.add((memory.group, each.id))
                with suppress(NotFound):  # it was derived from one before it
                    memory.forget(each.id, OWNER)
        nameless = ids | self._ids(scope)
        self._rewrite(
            lambda fields: {name: value for name, value in fields.items() if name != "source"}
            if (fields.get("group"), fields.get("id")) in nameless else fields
        )  # fmt: skip

    def back_up(self, scope: Scope, target: Path) -> None:
        """The files, and what is known of their trust; an index is made anew."""
        for path in self.locate(scope):
            if isinstance(path, Path) and path.is_relative_to(self._home.groups):
                copy = target / path.relative_to(self._home.root)
                copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                shutil.copy2(path, copy, follow_symlinks=False)
        if scope.kind == "group" and self._trust.path.exists():
            kept = [line for line in self._trust.path.read_bytes().splitlines(keepends=True)
                    if _fields(line).get("group") == scope.name]  # fmt: skip
            copy = target / self._trust.path.relative_to(self._home.root)
            copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(copy, b"".join(kept))

    def _found(self, scope: Scope) -> Iterator[tuple[GroupMemory, list[MemoryRecord]]]:
        """The records that came from a channel or a person, by group."""
        ids = self._ids(scope)
        for group in group_folders(self._home):
            if any(of == group for of, _ in ids):
                with closing(
                    GroupMemory(self._home.group(group).memory, self._home.state, group, self._clock)
                ) as memory:
                    memory.look()
                    yield memory, [each for each in memory.every(statuses=_EVERY) if (group, each.id) in ids]

    def _ids(self, scope: Scope) -> set[tuple[str, str]]:
        """(group, id) of whatever a turn of theirs wrote."""
        of = self._turns(scope.name) if scope.kind == "person" else frozenset[int]()

        def theirs(stamp: Stamp) -> bool:
            return stamp.turn in of if scope.kind == "person" else stamp.source.startswith(f"{scope.name}:")

        return {(each.group, each.id) for each in self._trust.read() if theirs(each)}

    def _turns(self, person: str) -> frozenset[int]:
        query = "SELECT DISTINCT turn FROM inbound WHERE sender = ? AND turn IS NOT NULL"
        rows = peek(self._home.ledger_file, lambda tx: tx.all(query, person))
        return frozenset(row["turn"] for row in rows or ())

    def _index(self, group: str) -> list[Path]:
        return sorted(self._home.state.glob(f"index/{group}.db*"))

    def _rewrite(self, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
        """The trust ledger with other lines; None takes one out."""
        try:
            lines = self._trust.path.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return
        kept = []
        for line in lines:
            fields = _fields(line)
            if (new := change(fields)) == fields:
                kept.append(line)
            elif new is not None:
                kept.append(json.dumps(new, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
        write_atomic(self._trust.path, b"".join(kept))


def _fields(line: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}
