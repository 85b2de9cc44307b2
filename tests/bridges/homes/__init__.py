"""Homes of other claws, made by hand after their documentation. `SECRET` stands wherever they keep something secret."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from clawd.arrivals.items import Brought, Item

SECRET = "SENTINEL-k3y-7f4e2b"
NOW = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)


def files(root: Path, tree: Mapping[str, str | bytes]) -> Path:
    """Files by their paths."""
    for path, content in tree.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def database(path: Path, schema: str, rows: Mapping[str, Sequence[Sequence[object]]] | None = None) -> Path:
    """A database with rows of its tables."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(path) as db:
        db.executescript(schema)
        for table, several in (rows or {}).items():
            marks = ", ".join("?" for _ in several[0])
            db.executemany(f"INSERT INTO {table} VALUES ({marks})", several)
    db.close()
    return path


def item(brought: Brought, to: str, group: str = "main") -> Item:
    """The only item that goes there."""
    (found,) = (each for each in brought.items if (each.group, each.to) == (group, to))
    return found


def text(brought: Brought, to: str, group: str = "main") -> str:
    return item(brought, to, group).files[""].decode()


def places(brought: Brought) -> list[tuple[str, str, str]]:
    """Kind, group and place of every item."""
    return [(each.kind, each.group, each.to) for each in brought.items]


def why(brought: Brought, source: str) -> str:
    """Why that was left."""
    (found,) = (left.why for left in brought.left if left.source == source)
    return found


def told(brought: Brought) -> str:
    """All that a person is told of it, and every byte of it, as one text."""
    items = [
        f"{each.kind} {each.source} {each.to} {each.group} {each.changed} "
        + " ".join(f"{path} {data.decode('utf-8', 'replace')}" for path, data in each.files.items())
        for each in brought.items
    ]
    return "\n".join([*items, repr(brought.left), repr(brought.keys), repr(brought.allowed), repr(brought.chats)])
