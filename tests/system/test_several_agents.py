"""Several agents of one claw: each keeps what it remembers in its own namespace, and two groups have in common what
both list, for as long as both do. Through the daemon and the memory's own tools."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from clawd.commands import context
from clawd.commands import memory as looking
from clawd.ledger import contexts
from clawd.ledger.db import peek
from tests.system.conftest import Home, call, until

GROUP = """schema = 1
bindings = ["telegram:-{n}"]
agent_id = "agent-{name}"
memory_namespace = "{space}"
shared = [{shared}]
[model]
script = "{name}.json"
"""


def group(home: Home, name: str, space: str, *shared: str) -> None:
    listed = ", ".join(f'"{each}"' for each in shared)
    home.layout.group(name).config_file.write_text(
        GROUP.format(n=ord(name), name=name, space=space, shared=listed),
    )


def does(home: Home, name: str, count: int, *calls: dict[str, Any]) -> list[Any]:
    """What a turn of a group's shared chat with these calls is given."""
    (home.root / f"{name}.json").write_text(json.dumps({"steps": [*calls, {"text": "done"}]}))
    home.ask("schedule.run", id=f"{name}/go")
    session = f"telegram:-{ord(name)}"
    until(lambda: home.said(name, session).count(("assistant", "done")) == count)
    return [content for role, content in home.said(name, session) if role == "tool"][-len(calls) :]


def test_two_groups_and_what_they_share(home: Home) -> None:
    home.script({"text": "nothing"})
    home.start()
    for name, space in (("a", "private/a"), ("b", "shared/garden")):
        home.ask("groups.add", name=name)
        group(home, name, space, "shared/garden")
        home.ask("schedule.add", group=name, id="go", when="every day at 9", prompt="the garden gate")
    b = does(home, "b", 1, call("memory_write", content="The garden gate is green."),
             call("memory_write", content="7", kind="fact", key="gate"))  # fmt: skip
    kept = json.loads(b[0])["id"]
    assert json.loads(b[1])["id"] == "fact:shared/garden/gate"
    theirs = f"group:b:{kept}"
    said = does(
        home, "a", 1, call("memory_write", content="The garden gate of a squeaks."),
        call("memory_search", query="garden gate"), call("memory_read", id=theirs),
        call("memory_update", id=theirs, content="red"), call("memory_delete", id=theirs),
        call("memory_write", content="x", kind="fact", key="../b/gate"),
        call("memory_write", content="x", namespace="shared/garden"),
    )  # fmt: skip
    assert theirs in said[1] and "The garden gate is green." in said[1] and "squeaks" in said[1]
    assert "group:b (agent-b)" in said[1] and '"trust":0.7' in said[1].replace(" ", "").replace("\\", "")
    assert "The garden gate is green." in said[2]
    assert all("is the group b's" in each for each in said[3:5]), said
    assert "has a /" in said[5] and "namespace" in said[6] and "id" not in said[6].split()
    assert "squeaks" not in does(home, "b", 2, call("memory_search", query="garden gate squeaks"))[0]

    parts = asyncio.run(context.show(home.layout, "a", None, "the garden gate"))["parts"]
    given = {part["name"]: part["text"] for part in parts}
    assert "The garden gate is green." in given["memories"]
    assert not [name for name, text in given.items() if name not in ("memories", "history") and "is green" in text]
    for name, text in (("a", "squeaks"), ("b", "green")):
        memory = looking.opened(home.layout, name)
        rows = looking.listed(memory, None, ())
        assert {row["namespace"] for row in rows if row["kind"] == "episode"} == {
            {"a": "private/a", "b": "shared/garden"}[name]
        }
        assert [text in row["text"] for row in rows if row["kind"] == "episode"] == [True]
        memory.close()
    row = peek(home.layout.ledger_file, lambda tx: contexts.find(tx, f"telegram:-{ord('a')}"))
    assert row is not None and (row["agent_id"], row["memory_namespace"]) == ("agent-a", "private/a")

    group(home, "b", "private/b")  # it lists it no more
    assert "green" not in does(home, "a", 2, call("memory_search", query="garden gate"))[0]
    assert "no memory" in does(home, "a", 3, call("memory_read", id=theirs))[0]
    group(home, "b", "private/b", "shared/garden")
    assert "green" in does(home, "a", 4, call("memory_search", query="garden gate"))[0]
    home.ask("memory.delete", group="b", id=kept)
    assert "green" not in does(home, "a", 5, call("memory_search", query="garden gate"))[0]


def test_two_agents_of_one_group_and_their_manifests(home: Home) -> None:
    """Namespaces team/shared and private/a: an agent that has the former has all that is kept there, and nobody has
    the latter but its own."""
    home.start()

    def run(session: str, agent: str, space: str, *calls: dict[str, Any], code: int = 0) -> str:
        file = home.root / f"{session}.json"
        steps = [*calls, {"text": "done", "usage": {"input": 30_000, "output": 10, "cached": 0}}]
        file.write_text(json.dumps({"steps": steps}))
        done = home.cli(
            "context", "run", "--goal", "the gate", "--script", str(file), "--session-id", session, "--agent-id", agent,
            "--memory-namespace", space, "--soft-compact", "5000", "--hard-handoff", "20000", "--json",
        )  # fmt: skip
        assert done.returncode == code, done
        if code:
            return done.stderr
        manifest = json.loads(Path(json.loads(done.stdout)["handoff_manifest"]).read_text())
        assert (manifest["agent_id"], manifest["memory_namespace"]) == (agent, space)
        return (home.layout.group("main").sessions / f"{session}.md").read_text()

    search = call("memory_search", query="gate")
    run("one", "agent-1", "team/shared", call("memory_write", content="The gate is green."))
    own = run("two", "agent-1", "private/a", call("memory_write", content="The gate squeaks."), search)
    assert "is green" not in own and own.count("squeaks") > 1, "what it wrote, and what it found"
    team = run("three", "agent-2", "team/shared", search)
    assert "is green" in team and "squeaks" not in team and "(agent-1)" in team
    for space, why in (("../team", "is no namespace"), ("shared/x", "does not list shared/x")):
        assert why in run("four", "agent-2", space, search, code=2 if "../" in space else 4)
    row = peek(home.layout.ledger_file, lambda tx: contexts.find(tx, "one.2"))
    assert row is not None and (row["agent_id"], row["memory_namespace"]) == ("agent-1", "team/shared")
