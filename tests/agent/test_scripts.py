"""Scripts as a command reads them, held to what the runner makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agent.engines.scripted import groups_of
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.commands import scripts
from clawd.errors import UsageError

CALL = {"tool_calls": [{"name": "bash", "arguments": {"command": "ls"}}]}
STEPS = st.fixed_dictionaries(
    {"text": st.just("said")},
    optional={"tool_calls": st.sampled_from([[], CALL["tool_calls"]]), "error": st.sampled_from(["", "broken"])},
)


@settings(max_examples=50)
@given(st.lists(STEPS, min_size=1, max_size=8))
def test_turns_are_those_of_the_runner(steps: list[dict[str, Any]]) -> None:
    assert scripts.turns_of(steps) == groups_of({"steps": steps})


@pytest.mark.parametrize(("name", "turns"), [("demo", 4), ("memory", 4)])
def test_what_ships_can_be_played(name: str, turns: int) -> None:
    script = scripts.read(scripts.found(name))
    assert script.turns == turns and len(groups_of({"steps": script.steps})) == turns


def test_the_demo_ends_at_245_000_tokens() -> None:
    steps = scripts.read(scripts.found("demo")).steps
    assert len(steps) == 4
    assert sum(step["usage"]["input"] + step["usage"]["output"] for step in steps) == 245_000


def test_a_file_goes_before_what_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").write_text('{"steps": [{"text": "mine"}]}')
    assert scripts.read(scripts.found("demo")).steps == [{"text": "mine"}]
    with pytest.raises(UsageError, match="there is no script nowhere"):
        scripts.found("nowhere")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "one step at least"),
        ('{"steps": []}', "one step at least"),
        ('{"steps": ["x"]}', "one step at least"),
        ('{"steps": {}}', "one step at least"),
    ],
)
def test_what_is_no_script_is_said(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "s.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=why):
        scripts.read(file)


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no file"):
        scripts.read(tmp_path)
    large = tmp_path / "large.json"
    large.write_text(json.dumps({"steps": [{"text": "x" * (4 << 20)}]}))
    with pytest.raises(UsageError, match="larger than 4 MB"):
        scripts.read(large)
