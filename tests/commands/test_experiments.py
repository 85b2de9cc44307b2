"""What an experiment reports: recall by table, and a page that runs nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clawd.commands import experiments
from clawd.commands.experiments import Fact


def write(text: str) -> dict[str, Any]:
    return {"tool_calls": [{"name": "memory_write", "arguments": {"content": text}}]}


def ask(query: str) -> dict[str, Any]:
    return {"tool_calls": [{"name": "memory_search", "arguments": {"query": query}}]}


def test_facts_are_asked_for_by_what_comes_later() -> None:
    steps = [ask("too early"), write("one"), ask("first"), {"text": "said"}, write("two"), ask("second")]
    assert experiments.facts_of(steps) == [Fact("one", ["first", "second"]), Fact("two", ["second"])]
    strange = [{"tool_calls": [{"name": "memory_write"}, {"name": "memory_search", "arguments": {"query": 7}}, "x"]}]
    assert experiments.facts_of(strange) == []


@pytest.mark.parametrize(
    ("facts", "hits", "found"),
    [
        ([Fact("Port  5433.", ["port"])], {"port": ["the port: PORT 5433. it is"]}, 1.0),
        ([Fact("one", ["q"]), Fact("two", ["q"])], {"q": ["two"]}, 0.5),
        ([Fact("one", ["p", "q"])], {"p": [], "q": ["one"]}, 1.0),
        ([Fact("one", ["q"]), Fact("nobody asks", [])], {"q": ["one", "nobody asks"]}, 0.5),
        ([Fact("one", [])], {}, None),
        ([], {}, None),
    ],
)
def test_recall(facts: list[Fact], hits: dict[str, list[str]], found: float | None) -> None:
    assert experiments.recall(facts, lambda query: hits[query]) == found


def test_the_report_is_a_page_that_runs_and_loads_nothing() -> None:
    row = {"completed": True, "steps": 4, "tokens": {"peak": 1, "cumulative": 245_000}, "recall": None,
           "interventions": 0, "wall_s": 1.5, "note": "<script>alert(1)</script>\u202e"}  # fmt: skip
    found = experiments.report("ab" * 32, '<img src="https://x">.json', {"file": row, "<b>": {"completed": False}})
    assert found["seed"] == 0xABABABAB and found["script_sha256"] == "ab" * 32
    assert json.loads(experiments.json_of(found)) == found
    page = experiments.page_of(found).decode()
    assert (
        "<script" not in page and "<img" not in page and "\u202e" not in page and "<b>" not in page.split("<table")[1]
    )
    assert "default-src &#x27;none&#x27;" in page and "245,000" in page
    assert "src=" not in page.replace("src=&quot;", "")
