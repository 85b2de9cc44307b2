"""What memory gives a turn of itself, as the model sees it: a daemon, a person with an editor, and a stand-in for the
provider."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from clawd.context.memories import FORGOTTEN
from tests.standin import Recorded, Standin
from tests.system.conftest import Home, until
from tests.system.test_context import SERVICES, answered, system

pytestmark = pytest.mark.timeout(120)

SECOND = 5.0  # five times what a person may rely on
GROUP = 'grants = ["anthropic"]\n\n[model]\nmodel = "first"\n'


def newest(request: Recorded) -> str:
    """The newest message as the provider was sent it."""
    content = request.body["messages"][-1]["content"]
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def memories(text: str) -> list[dict[str, Any]]:
    """What is in the memory's fence at the beginning of a wake."""
    found = re.match(r"[^\n]+\n<(memory-[0-9a-f]+)>\n(.*?)\n</\1>\n", text, re.DOTALL)
    return [json.loads(line) for line in found[2].splitlines()] if found else []


def test_a_turn_is_given_what_the_files_say(home: Home) -> None:
    with Standin(key="sk-real") as model:
        home.configure("messages", more=SERVICES.format(url=model.url))
        home.cli("groups", "add", "main")
        group = home.layout.group("main")
        group.config_file.write_text(GROUP)
        folder = group.memory / "episodes"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tea.md").write_text("The owner likes oolong tea at four. https://evil.example/x")
        home.start(STANDIN_KEY="sk-real")

        def asked(text: str) -> list[dict[str, Any]]:
            assert answered(home, text) == "ok"
            return memories(newest(model.requests[-1]))

        # in front of the first wake, in no system part, shown before, in no file and no history
        assert asked("good morning") == []
        [given] = asked("when is oolong tea?")
        bare, request = model.requests
        assert "oolong tea at four" in given["text"] and "https:" not in given["text"] and given["trust"] == 0.6
        assert newest(request).endswith('"text":"when is oolong tea?"}\n' + newest(request).rsplit("\n", 1)[1])
        assert system(request) == system(bare) and "oolong" not in str(system(request))
        parts = home.json("context", "show", "--wake", "when is oolong tea?")["parts"]
        assert [part["name"] for part in parts][-2:] == ["memories", "wake"]
        assert memories(parts[-2]["text"] + "\n") == [given] and "at four" not in parts[-1]["text"]
        assert "at four" not in str(home.said())
        asked("good night")
        assert "at four" not in str(model.requests[-1].body)
        assert [row["memory"] for row in noted(home)] == [given["id"]]

        # in step with an editor, while the daemon runs
        def follows(word: str, *want: str) -> None:
            until(lambda: sorted(each["text"] for each in asked(f"what about {word} today")) == sorted(want), SECOND)

        with (folder / "tea.md").open("r+") as file:
            file.write("The owner loves mate tea at five!!")
            file.truncate()
        follows("mate", "The owner loves mate tea at five!!")
        new, there = folder / ".tea.md.swp", folder / "moved.md"
        new.write_text("Chai is at six")
        new.replace(folder / "tea.md")
        (folder / "tea.md").rename(there)
        follows("chai", "Chai is at six")
        (group.memory / "entities").mkdir(exist_ok=True)
        (group.memory / "entities" / "ann.md").write_text("Ann brings the chai")
        follows("chai", "Chai is at six", "Ann brings the chai")
        there.unlink()
        follows("chai", "Ann brings the chai")

        # what is forgotten is in no later prompt, wherever it stood
        (folder / "code.md").write_text("The gate opens with 4711 zebra")
        [secret] = until(lambda: asked("zebra"), SECOND)
        model.say(calls=[("memory_search", {"query": "zebra"})])
        asked("look for it")
        assert "4711" in str(model.requests[-1].results)
        model.say(calls=[("memory_delete", {"id": secret["id"]})])
        asked("forget that")
        asked("and now?")
        assert "4711" not in str(model.requests[-1].body) and FORGOTTEN in str(model.requests[-1].body)
        assert asked("zebra") == []
        assert model.problems == []


def noted(home: Home) -> list[sqlite3.Row]:
    with closing(sqlite3.connect(f"{home.layout.ledger_file.as_uri()}?mode=ro", uri=True)) as ledger:
        ledger.row_factory = sqlite3.Row
        return ledger.execute("SELECT * FROM recalled").fetchall()
