"""mem0 as a way to search: an index over what we keep, and never the truth. The extra `mem0`, or an in-memory client.

What mem0 is given are the texts of our own index, with a key each; what it gives back are keys, which our index turns
into documents under the same filter as for every other method. So floors, taint, quarantine and forgetting are ours,
and a text that mem0 still has and we do not is found by nobody. Texts that are not vouched for are kept under a user of
their own: however many of them there are, they crowd out nothing.

A client is whatever has these methods, as mem0 2 has them. What one raises costs a search nothing but its meaning: it
is done by words then, and its lanes say so.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import math
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from clawd.files import read_owned
from clawd.search import ranking, tables
from clawd.search.document import Found, Where
from clawd.search.index import Index

log = logging.getLogger(__name__)

IN_MEMORY = "in-memory"
_EVERY = 1_000_000  # entries of a user: all of them
_ADD_S = 5.0  # how long one search adds what is new; the rest is added by the next ones
_POOL = 4  # candidates for each hit that is wanted: filters come after


class Client(Protocol):
    """What is used of mem0's `Memory`. Each gives {"results": [{"id", "memory", "metadata", "score"?}]} or one such
    entry; any of them may raise anything."""

    def add(self, messages: str, *, user_id: str, metadata: Mapping[str, Any], infer: bool) -> dict[str, Any]: ...

    def search(self, query: str, *, top_k: int, filters: Mapping[str, Any]) -> dict[str, Any]: ...

    def get(self, memory_id: str) -> dict[str, Any] | None: ...

    def update(self, memory_id: str, data: str) -> dict[str, Any]: ...

    def delete(self, memory_id: str) -> dict[str, Any]: ...

    def get_all(self, *, filters: Mapping[str, Any], top_k: int) -> dict[str, Any]: ...


class InMemory:
    """A client without a model and without a network, for experiments and tests: texts are alike by the runs of three
    letters that they share. Nothing of it outlives its process."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, Any]] = {}
        self._next = 0

    def add(self, messages: str, *, user_id: str, metadata: Mapping[str, Any], infer: bool = False) -> dict[str, Any]:
        self._next += 1
        entry = {"id": f"m{self._next}", "memory": messages, "metadata": dict(metadata), "user_id": user_id}
        self._kept[str(entry["id"])] = entry
        return {"results": [{**entry, "event": "ADD"}]}

    def search(self, query: str, *, top_k: int = 20, filters: Mapping[str, Any]) -> dict[str, Any]:
        asked = _runs(query)
        scored = [{**entry, "score": _alike(asked, _runs(entry["memory"]))} for entry in self._of(filters)]
        scored.sort(key=lambda entry: (-entry["score"], entry["id"]))
        return {"results": [entry for entry in scored[:top_k] if entry["score"] > 0]}

    def get(self, memory_id: str) -> dict[str, Any] | None:
        return self._kept.get(memory_id)

    def update(self, memory_id: str, data: str) -> dict[str, Any]:
        self._kept[memory_id]["memory"] = data
        return {"message": "updated"}

    def delete(self, memory_id: str) -> dict[str, Any]:
        del self._kept[memory_id]
        return {"message": "deleted"}

    def get_all(self, *, filters: Mapping[str, Any], top_k: int = 20) -> dict[str, Any]:
        return {"results": self._of(filters)[:top_k]}

    def _of(self, filters: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [entry for entry in self._kept.values() if entry["user_id"] == filters["user_id"]]


def _runs(text: str) -> Counter[str]:
    words = "".join(each if each.isalnum() else " " for each in text.casefold()).split()
    return Counter(word[at : at + 3] for word in (f" {word} " for word in words) for at in range(len(word) - 2))


def _alike(one: Counter[str], other: Counter[str]) -> float:
    size = math.sqrt(sum(n * n for n in one.values()) * sum(n * n for n in other.values()))
    return sum(n * other[run] for run, n in one.items()) / size if size else 0.0


class Mem0:
    """The memory of one group as a client searches it. `name` is what the lanes call it."""

    def __init__(self, client: Client, group: str, name: str = "mem0") -> None:
        self._client, self._group, self.name = client, group, name
        self._known: dict[str, str] | None = None  # key → the client's id
        self._seen: Any = None  # the index as it was when all of it was there
        self._rows: dict[str, int] = {}
        self._waiting = 0

    def search(self, index: Index, query: str, k: int, where: Where, now: float) -> Found:
        """The best `k` of what `where` allows."""
        try:
            self.in_step(index)
            near = self._near(query, k, where)
        except Exception as error:  # it is somebody else's program
            log.warning("mem0 cannot search the memory of group %s: %s", self._group, type(error).__name__)
            self._known = self._seen = None
            found = index.search(query, k, where, now=now)
            return Found(found.hits, [*found.lanes, f"{self.name}: failed ({type(error).__name__})"])
        documents = index.read(lambda db: tables.load(db, list(near), where))
        lanes = [self.name, *([f"{self.name}: {self._waiting} wait to be added"] if self._waiting else [])]
        return Found(ranking.ranked(documents, {"mem0": near}, now)[:k], lanes)

    def _near(self, query: str, k: int, where: Where) -> dict[int, float]:
        """How near each row is, 0…1."""
        near: dict[int, float] = {}
        for vouched in (True,) if where.floor >= ranking.VOUCHED else (True, False):
            user = {"user_id": self._user(vouched)}
            for entry in self._client.search(query, top_k=max(40, _POOL * k), filters=user)["results"]:
                if (row := self._rows.get(_key_of(entry))) is not None:
                    near[row] = min(1.0, max(0.0, float(entry.get("score") or 0.0)))
        return near

    def in_step(self, index: Index, seconds: float = _ADD_S) -> None:
        """Have the client know what our index knows: what is gone first, then what is new, for so long."""
        version = index.read(index.version)
        if self._known is not None and version == self._seen:
            return
        wanted = index.read(_outline)
        if self._known is None:
            users = [{"user_id": self._user(vouched)} for vouched in (True, False)]
            entries = [each for user in users for each in self._client.get_all(filters=user, top_k=_EVERY)["results"]]
            self._known = {_key_of(entry) or f"unknown {entry['id']}": entry["id"] for entry in entries}
        self._rows = {key: row for key, (row, _, _) in wanted.items()}
        for key in [each for each in self._known if each not in wanted]:
            self._client.delete(self._known[key])
            del self._known[key]
        missing = [key for key in wanted if key not in self._known]
        deadline = time.monotonic() + seconds
        for added, key in enumerate(missing):
            if time.monotonic() > deadline:
                self._waiting, self._seen = len(missing) - added, None
                return
            _, vouched, text = wanted[key]
            made = self._client.add(text, user_id=self._user(vouched), metadata={"clawd": key}, infer=False)
            self._known[key] = made["results"][0]["id"]
        self._waiting, self._seen = 0, version

    def forget(self, index: Index) -> None:
        """What our index has lost is to be lost there, too, now. What a client cannot remove is removed by the next
        search, and found by none."""
        try:
            self.in_step(index, 0.0)
        except Exception as error:
            log.warning("mem0 forgets of group %s with the next search: %s", self._group, type(error).__name__)
            self._known = self._seen = None

    def close(self) -> None:
        """A store on the disk is locked while it is open."""
        try:
            getattr(self._client, "close", lambda: None)()
        except Exception:  # a client of somebody else's: there is nothing left to be done with it
            log.warning("mem0 could not be closed", exc_info=True)

    def _user(self, vouched: bool) -> str:
        return f"clawd/{self._group}/{'vouched' if vouched else 'other'}"


def _key_of(entry: Mapping[str, Any]) -> str:
    return str((entry.get("metadata") or {}).get("clawd") or "")


def _outline(db: sqlite3.Connection) -> dict[str, tuple[int, bool, str]]:
    """key → (row, vouched, text) of all that may ever be found."""
    rows = db.execute(
        "SELECT row, id, piece, title, text, trust FROM documents WHERE status IN ('active', 'proposed')"
    ).fetchall()
    found = {}
    for row, id, piece, title, text, trust in rows:
        vouched, said = trust >= ranking.VOUCHED, f"{title} {text}" if title else text
        seed = json.dumps([id, piece, vouched, said])
        found[hashlib.sha256(seed.encode()).hexdigest()[:32]] = (row, vouched, said)
    return found


def opened(setting: str | None, home: Path, group: str) -> tuple[Mem0 | None, str]:
    """mem0 for a group, and why there is none though there should be. `setting` is `[memory] mem0`: the JSON file
    beneath the home that mem0's `Memory.from_config` is given, or `in-memory`."""
    if setting == IN_MEMORY:
        return Mem0(InMemory(), group, "mem0 (in-memory client)"), ""
    if not setting:
        return None, 'mem0 is not used: [memory] mem0 = "FILE.json" names what its Memory.from_config is given'
    try:
        return Mem0(_client(home, setting), group), ""
    except Exception as error:  # what is not there, and whatever it raises of a config
        return None, f"mem0 is not used, and words are searched: {setting} ({type(error).__name__}: {str(error)[:200]})"


def _client(home: Path, file: str) -> Client:
    config = json.loads(read_owned(home, file))
    os.environ.setdefault("MEM0_TELEMETRY", "False")  # both are read when it is imported
    os.environ.setdefault("MEM0_DIR", str(home / "state" / "index" / "mem0"))
    memory = importlib.import_module("mem0").Memory
    client: Client = memory.from_config({**config, "history_db_path": ":memory:"})  # else it keeps what is forgotten
    return client
