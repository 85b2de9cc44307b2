"""Where the turns of a group keep and find memories: what its file says now, what its session began with, and what
other groups have in common with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from clawd.clock import SystemClock
from clawd.commands.memory_chat import _entry
from clawd.config.group import GroupConfig
from clawd.config.home import Home
from clawd.config.schema import MemoryTable
from clawd.errors import ConfigError, NotFound, StorageError, UsageError
from clawd.ledger import contexts, groups
from clawd.ledger.db import Ledger
from clawd.memory.protocol import Voice
from clawd.memory.store import GroupMemory
from clawd.scopes import Scopes
from clawd.trust import Origin
from clawd.turns.memory import Memories
from clawd.turns.spaces import MOST_BESIDE, Space, Spaces
from tests.turns.test_recall import claim

pytestmark = pytest.mark.anyio
NOW = "2026-12-01T09:00:00.000+00:00"


class Ground:
    """Groups with their files, which tests change as a person would."""

    def __init__(self, path: Path) -> None:
        self.home = Home(path)
        self.home.create()
        self.ledger, self.files, self.broken = Ledger.open(self.home.ledger_file), dict[str, GroupConfig](), set[str]()
        self.asked = list[str]()
        self.spaces = Spaces(self._config, lambda group: group not in self.broken, lambda: list(self.files))
        self.memories = Memories(self.home, self.ledger, SystemClock(), lambda group: MemoryTable(), spaces=self.spaces)

    def _config(self, group: str) -> GroupConfig:
        self.asked.append(group)
        if group == "unread":
            raise ConfigError([])
        return self.files[group]

    def group(self, name: str, *shared: str, **more: str) -> None:
        self.files[name] = GroupConfig(shared=list(shared), **more)

    async def keep(self, group: str, text: str, namespace: str, **how: object) -> str:
        voice = replace(Voice(namespace=namespace), **how)  # type: ignore[arg-type]
        return (await self.memories.do(group, lambda memory: memory.put(text, "episode", {}, voice))).id

    async def given(self) -> list[str]:
        return [hit.record.id for hit in (await self.memories.recall(claim("the gate"))).hits]


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    ground = Ground(tmp_path)
    ground.group("main", "shared/x")
    yield ground
    ground.ledger.close()


async def test_what_other_groups_share_is_given_for_as_long_as_both_list_it(ground: Ground) -> None:
    ground.group("b", "shared/x")
    id = await ground.keep("b", "the gate is green", "shared/x")
    await ground.keep("b", "the gate of b", "")
    await ground.keep("b", "the gate at home", "shared/x", private=True)
    assert await ground.given() == [f"group:b:{id}"]
    ground.group("b")
    assert await ground.given() == []
    ground.group("b", "shared/x")
    ground.group("main")
    assert await ground.given() == []
    ground.group("main", "shared/x")
    ground.broken.add("b")  # a mistake may be in what takes it away
    assert await ground.given() == []
    ground.broken = {"main"}
    assert await ground.given() == []
    ground.broken = set()
    assert await ground.given() == [f"group:b:{id}"]
    await ground.memories.forget("b", id, Voice())
    assert await ground.given() == []
    await ground.memories.close()


async def test_nobody_is_asked_for_anything_where_nothing_is_listed(ground: Ground) -> None:
    for name in ("main", "b", "c"):
        ground.group(name)
    assert await ground.given() == []
    assert set(ground.asked) == {"main"} and set(ground.memories._open) == {"main"}
    await ground.memories.close()


async def test_a_group_that_cannot_be_searched_keeps_nobody_from_the_rest(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("b", "c", "unread"):
        ground.files[name] = GroupConfig(shared=["shared/x"])
    id = await ground.keep("c", "the gate is green", "shared/x")
    find = GroupMemory.find

    def fails(self: GroupMemory, *given: object, **more: object) -> object:
        if self.group == "b":
            raise StorageError("no")
        return find(self, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(GroupMemory, "find", fails)
    scopes = Scopes("main", frozenset({"shared/x"}))
    hits, notes = await ground.memories.beside(scopes, "gate", 5, 1.0)
    assert [hit.record.id for hit in hits] == [f"group:c:{id}"]
    assert notes == ["the memory of the group b cannot be searched"]
    assert (await ground.memories.theirs(scopes, "c", id)).text == "the gate is green"
    for group in ("unread", "nobody", "main", "../c"):
        with pytest.raises(NotFound):
            await ground.memories.theirs(scopes, group, id)
    await ground.memories.close()


async def test_only_so_many_groups_are_looked_into(ground: Ground) -> None:
    for n in range(MOST_BESIDE + 2):
        ground.group(f"b{n:02}", "shared/x")
    _, notes = await ground.memories.beside(Scopes("main", frozenset({"shared/x"})), "gate", 5, 1.0)
    assert notes == ["2 more groups share something, and were not searched"]
    assert len(ground.memories._open) == MOST_BESIDE
    await ground.memories.close()


def test_what_a_session_began_with_goes_before_what_the_file_says(ground: Ground) -> None:
    ground.group("main", memory_namespace="private/a", agent_id="agent-1")

    def read(agent: str | None, namespace: str | None) -> Space:
        def work(tx: object) -> Space:
            groups.add(tx, "main", NOW)  # type: ignore[arg-type]
            session = groups.open_session(tx, "terminal:main", "main", NOW).id  # type: ignore[arg-type]
            row = {"session": session, "grp": "main"}
            before = ground.spaces.of(tx, row)  # type: ignore[arg-type]
            assert (before.agent_id, before.scopes.namespace) == ("agent-1", "private/a"), "it has no row yet"
            contexts.of(tx, session, NOW)  # type: ignore[arg-type]
            contexts.update(tx, session, NOW, agent_id=agent, memory_namespace=namespace)  # type: ignore[arg-type]
            space = ground.spaces.of(tx, row)  # type: ignore[arg-type]
            tx.execute("DELETE FROM context")  # type: ignore[attr-defined]
            return space

        return ground.ledger.tx(work)

    assert read(None, None) == Space(Scopes("main", frozenset(), "private/a"), "agent-1")
    assert read("agent-2", "team/b") == Space(Scopes("main", frozenset(), "team/b"), "agent-2")
    with pytest.raises(UsageError, match="is no namespace"):
        read(None, "../b")
    voice = read("agent-2", "team/b").bound(Voice(source="terminal:main#7"))
    assert (voice.source, voice.namespace, voice.spaces) == ("terminal:main#7 (agent-2)", "team/b", {"", "team/b"})


async def test_who_is_asked_for_a_yes_is_told_where_it_would_be(ground: Ground) -> None:
    voice = Voice(Origin.AGENT, taint=0.2, namespace="shared/x", spaces=frozenset({"", "shared/x"}))
    await ground.memories.do("main", lambda memory: memory.put("the gate", "episode", {}, voice))
    [waits] = await ground.memories.do("main", lambda memory: memory.pending())
    assert "It would be in shared/x, which every group reads that lists it." in _entry("main", waits, "why")
    await ground.memories.close()
