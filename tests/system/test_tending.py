"""Reflexion through the whole daemon: what went wrong once is before the model when the task returns, on the next try
and in another conversation; and memories are consolidated by the daemon and without one."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawd.commands import memory, writing
from clawd.memory.store import OWNER
from tests.canary import CANARY
from tests.standin import Recorded, Reply, Standin
from tests.system.conftest import Home, homes, until

TASK = "Run the suite of project Helios"
REPORT = "The weekly report of project Helios goes to everybody in the team before noon on each Friday"
_BETTER = {"lesson": "Call make check-helios, never ./suite.", "applies_to": "tests of Helios"}


class Model:
    """Answers jobs with a lesson, and everything else with what a test told it."""

    def __init__(self, standin: Standin) -> None:
        self.standin, standin.decide = standin, self.decide
        self.asked: list[str] = []  # what it was asked in turns of people
        self.jobs = 0

    def decide(self, request: Recorded) -> Reply | None:
        body = json.dumps(request.body, ensure_ascii=False)
        if "Answer with one JSON value" in body:
            self.jobs += 1
            return Reply(json.dumps(_BETTER))
        self.asked.append(body)
        if not request.results:
            return Reply(calls=[("bash", {"command": "./suite"})])
        if len(self.asked) > 1 and "exit code" in request.results[0]:
            return Reply(calls=[("bash", {"command": "echo all is well"})])
        return Reply("done")


Thinking = tuple[Home, Model]


@pytest.fixture(scope="module")
def thinking() -> Iterator[Thinking]:
    with Standin(key=CANARY) as standin, homes() as make, tempfile.TemporaryDirectory() as beside:
        home, key = make(), Path(beside) / "key"
        key.write_text(CANARY)
        more = f'base_url = "{standin.url}"\nallow_private = true\ncredential = "${{file:{key}}}"'
        home.configure("messages", more=f"[services.anthropic]\n{more}", sandbox="warm_minutes = 60")
        config = home.layout.config_file
        config.write_text(config.read_text().replace('script = "script.json"', 'model = "standin-1"'))
        home.start()
        for group in ("main", "other"):
            home.ask("groups.add", name=group)
            home.layout.group(group).config_file.write_text('schema = 1\ngrants = ["anthropic"]\n')
        yield home, Model(standin)
        assert standin.problems == []


def lessons(home: Home, group: str) -> list[dict[str, Any]]:
    return memory.listed(memory.opened(home.layout, group), "reflection", memory.STATUSES)


def test_a_lesson_is_before_the_model_when_the_task_returns(thinking: Thinking) -> None:
    home, model = thinking
    home.say(TASK, session="a")
    [message] = home.settled(1)
    [lesson] = until(lambda: lessons(home, "main"))
    assert (lesson["status"], lesson["trust"], lesson["origin"]) == ("active", 0.7, "agent")
    assert TASK in lesson["text"]
    until(lambda: _BETTER["lesson"] in lessons(home, "main")[0]["text"])  # a job has put it better
    assert model.jobs == 1
    # In another conversation, in other words.
    before = len(model.asked)
    home.say("Please run the whole suite for Helios", session="b")
    home.settled(2)
    assert _BETTER["lesson"] in model.asked[before] and _BETTER["lesson"] not in model.asked[0]
    assert home.json("memory", "why", lesson["id"])["shown_in"] != []
    [again] = home.json("memory", "reflect", "--turn", str(message["turn"]))["reflections"]
    assert (again["turn"], again["status"]) == (message["turn"], "active")


def test_a_failed_turn_has_its_lesson_at_the_next_try(thinking: Thinking) -> None:
    home, model = thinking
    stuck = Reply(calls=[("bash", {"command": "./suite"})])
    model.standin.decide = lambda request: (
        Reply(json.dumps(_BETTER)) if "one JSON value" in str(request.body) else stuck
    )
    home.say(TASK, group="other")
    [message] = until(lambda: home.messages(group="other", state="failed"))
    until(lambda: lessons(home, "other"))
    model.standin.decide, before = model.decide, len(model.asked)
    home.ask("messages.retry", id=message["id"])
    until(lambda: home.messages(group="other", state="recorded"))
    assert f"When asked “{TASK}”: " in model.asked[before]


def test_memories_are_consolidated_by_hand_with_a_daemon_and_without(home: Home) -> None:
    home.start()
    for text in (REPORT, f"{REPORT}.", f"{REPORT} please"):
        home.ask("memory.write", text=text, kind="entity")
    old = home.ask("memory.write", text="The port of Helios is 8080", kind="entity")
    new = home.ask("memory.write", text="Correction: the port of Helios is 9090, not 8080", kind="entity")
    dry = home.ask("memory.consolidate", dry_run=True)
    assert dry["changed"] == 0 and sorted(each["action"] for each in dry["actions"]) == ["merge", "supersede"]
    done = home.json("memory", "consolidate")
    assert done["changed"] == 3 and done["actions"] == dry["actions"]
    known = memory.opened(home.layout, "main")
    assert len(known.every()) == 2 and known.get(old["id"]).status == "superseded"
    found, _ = known.find("which port has Helios", OWNER)
    assert [hit.record.id for hit in found if "9090" in hit.text or "8080" in hit.text] == [new["id"]]
    assert home.stop() == 0
    assert writing.call(home.layout, "memory.consolidate") == {"group": "main", "changed": 0, "actions": []}
    assert writing.call(home.layout, "memory.reflect") == {"group": "main", "reflections": []}
    known.put(f"{REPORT}!", "entity", {}, OWNER)
    said = home.cli("memory", "consolidate", "--dry-run")
    assert said.returncode == 0 and said.stdout.startswith("merge ") and len(known.every()) == 3
