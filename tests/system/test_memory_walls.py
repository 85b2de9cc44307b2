"""The wall between groups, and between a person and those who read along: a running daemon, every backend, kind and
tool. What one group keeps reaches no other by any name, path, link or import."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from clawd.commands import context
from clawd.commands import memory as looking
from tests.system.conftest import Home, call, until

BACKENDS = ("file", "vector", "hybrid")
KINDS = ("episode", "entity", "procedure", "reflection", "fact")
QUERY = "where is the key of the cellar kept"


def texts_of(home: Home, group: str) -> str:
    """All that was said to and by the model of a group's conversation."""
    return json.dumps([(block.role, block.content, block.tool_calls) for block in home.blocks(group)])


def recalled(home: Home, group: str, wake: str) -> str:
    """What memory gives the next turn by itself."""
    parts = asyncio.run(context.show(home.layout, group, None, wake))["parts"]
    return "".join(part["text"] for part in parts if part["name"] == "memories")


def kept(home: Home, group: str, mark: str) -> dict[str, str]:
    """A memory of each kind in a group, all found by the same question; ids by kind."""
    ids = {}
    for kind in KINDS:
        more = {"key": "cellar key"} if kind == "fact" else {}
        text = f"The key of the cellar is kept by {mark}, {kind}."
        ids[kind] = home.ask("memory.write", group=group, text=text, kind=kind, **more)["id"]
    return ids


def tried(other: str, ids: dict[str, str]) -> list[dict[str, Any]]:
    """Every tool on what is another group's, by every name that it may have."""
    names = [*ids.values(), f"{other}/{ids['entity']}", "../x", "day:../2026-12-01", f"../{other}/memory/MEMORY.md",
             f"fact:../../{other}/memory", f"file:../../{other}/CLAUDE.md"]  # fmt: skip
    own = [value for key, value in ids.items() if key != "fact"]  # both have a fact of that key
    calls = [call("memory_search", query=QUERY, k=20, include_untrusted=True)]
    calls += [call("memory_search", query=QUERY, kind=kind) for kind in KINDS]
    calls += [call("memory_read", id=name) for name in names]
    calls += [call("memory_update", id=id, content="taken over") for id in own[:2]]
    calls += [call("memory_delete", id=id) for id in own[:2]]
    calls += [call("memory_write", content="From it.", derived_from=[own[0]]),
              call("memory_propose", content="Instead.", kind="entity", supersedes=own[1])]  # fmt: skip
    for path in (
        f"/memories/../../{other}/memory/MEMORY.md",
        f"/memories/%2e%2e/{other}",
        "/memories/episodes/link.md",
    ):
        calls += [call("memory", command="view", path=path), call("memory", command="delete", path=path)]
    calls += [call("memory", command="view", path="/memories")]
    steps = [{"text": "trying", "tool_calls": [each for step in calls[at : at + 15] for each in step["tool_calls"]],
              "delay_s": 1.05 if at else 0} for at in range(0, len(calls), 15)]  # fmt: skip
    return [*steps, {"text": "tried"}]


def test_nothing_crosses_between_groups(home: Home) -> None:
    pairs = {name: (f"{name}-a", f"{name}-b") for name in BACKENDS}
    home.script({"text": "nothing"}, sandbox="max_live = 8")
    home.start()
    ids: dict[str, dict[str, str]] = {}
    for backend, pair in pairs.items():
        for group in pair:
            home.ask("groups.add", name=group)
            folder = home.layout.group(group)
            folder.config_file.write_text(f'[memory]\nbackend = "{backend}"\n[model]\nscript = "{group}.json"\n')
            ids[group] = kept(home, group, f"Mark-{group}")
    for pair in pairs.values():
        for group, other in (pair, pair[::-1]):
            theirs, mine = home.layout.group(other), home.layout.group(group)
            (mine.memory / "episodes").mkdir(exist_ok=True)
            target = next((theirs.memory / "entities").glob("*.md"))
            (mine.memory / "episodes" / "link.md").symlink_to(target)
            (mine.memory / "linked").symlink_to(theirs.memory)
            (mine.memory / "entities" / "id.md").write_text(
                f"---\nid: ../{other}\n---\nThe cellar @../../{other}/CLAUDE.md\n"
            )
            theirs.claude_md.write_text(f"Orders of Mark-{other}.\n")
            mine.claude_md.write_text(
                f"Orders of Mark-{group}.\n@../{other}/CLAUDE.md\n@memory/linked/MEMORY.md\n@memory/episodes/link.md\n"
                f"@{target}\n"
            )
            steps = tried(other, ids[other])
            (home.root / f"{group}.json").write_text(json.dumps({"steps": steps}))
            home.say(QUERY, group)
    home.settled(2 * len(BACKENDS))
    for backend, pair in pairs.items():
        for group, other in (pair, pair[::-1]):
            said = texts_of(home, group)
            assert f"Mark-{group}" in said and f"Mark-{other}" not in said, (group, said)
            memory = looking.opened(home.layout, group)
            assert memory.backend == backend
            for kind in KINDS:
                found = looking.searched(memory, QUERY, k=50, kind=kind, untrusted=True)["hits"]
                assert f"Mark-{group}" in json.dumps(found) and f"Mark-{other}" not in json.dumps(found)
            left = {row["id"]: row["text"] for row in looking.listed(memory, None, ())}
            memory.close()
            assert all(f"Mark-{group}" in left[id] for id in ids[group].values()), left
            shown = json.dumps(asyncio.run(context.show(home.layout, group, None, QUERY)))
            assert f"Orders of Mark-{group}." in shown and f"Mark-{other}" not in shown
            assert (home.layout.group(other).memory / "MEMORY.md").read_text().count(f"Mark-{other}") == 1


def test_what_is_private_is_shown_to_nobody_who_reads_along(home: Home) -> None:
    """A note of a talk between the owner and the agent, once somebody else has spoken in the group."""
    note = "The owner's birthday party for Max is a surprise."
    home.script(call("memory_write", content=note), {"text": "kept"}, {"text": "nothing"})
    home.start()
    home.ask("memory.write", group="main", text="The party room is on the second floor.", kind="entity")
    home.say("remember it")
    home.settled(1)
    memory = looking.opened(home.layout, "main")
    [private] = [each for each in memory.every() if "surprise" in each.text]
    assert private.private and "surprise" in recalled(home, "main", "birthday party")
    steps = [call("memory_search", query="birthday party surprise", include_untrusted=True),
             call("memory_read", id=private.id), call("memory_update", id=private.id, content="no surprise"),
             call("memory_delete", id=private.id), {"text": "looked"}]  # fmt: skip
    home.script({"text": "nothing"}, *steps, *steps)
    home.say("what is planned?", **{"as": "member:max"})
    home.settled(2)
    home.say("and now?")
    home.settled(3)
    said = [block.content for block in home.blocks() if block.role == "tool"][1:]
    assert len(said) == 8 and not [each for each in said if "surprise" in each or "birthday" in each], said
    assert any("second floor" in each for each in said), "what is not private is found"
    shown = recalled(home, "main", "birthday party")
    assert "second floor" in shown and "surprise" not in shown
    until(lambda: memory.get(private.id).text == note)
