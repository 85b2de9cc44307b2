"""Each dialect of a trace, each event kind and each quirk: what becomes of it, as files that were written by hand after
specs/pythonclaw-mmkr.md. Keys and call ids follow from hashes: in the files keys are left out, and the ids are counted.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd.bridges.mmkr import convert_trace_to_pythonclaw, pythonclaw_session_stats

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.jsonl"))


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def readable(text: str) -> str:
    """Without keys, and with the calls counted."""
    for n, id in enumerate(re.findall(r'"id": "(call_[0-9a-f]{16})"', text), 1):
        text = text.replace(id, f"call_{n}")
    return re.sub(r', "key": "[0-9a-f]{16}"', "", text)


def expected(name: str, kind: str) -> str:
    path = GOLDEN / f"{name}.{kind}"
    return path.read_text() if path.exists() else ""


def test_the_files_are_there() -> None:
    assert NAMES == ["blog", "collector", "docs", "engine", "hydra", "kinds", "odd", "quirks"]


@pytest.mark.parametrize("name", NAMES)
def test_messages_memories_and_figures(name: str, tmp_path: Path) -> None:
    trace = GOLDEN / f"{name}.jsonl"
    made = convert_trace_to_pythonclaw(trace, "golden", tmp_path)
    session = tmp_path / "context/sessions/mmkr_golden.md"
    assert readable(session.read_text()) == expected(name, "session.md")
    logs = [path.read_text() for path in sorted((tmp_path / "context/memory").glob("*.md"))]
    assert "".join(logs) == expected(name, "memory.md")
    figures = json.loads(expected(name, "stats.json"))
    stats = pythonclaw_session_stats(session)
    assert {each: (stats | made)[each] for each in figures if each != "broken_lines"} == {
        each: value for each, value in figures.items() if each != "broken_lines"
    }
    assert [each["line"] for each in made["broken_lines"]] == figures["broken_lines"]
    assert made["broken"] == len(figures["broken_lines"]) and made["mended"] == len(made["mended_lines"])
    assert stats["session_file"] == made["session_file"] == str(session) and made["session_id"] == "mmkr:golden"
    assert stats["file_size_kb"] == round(session.stat().st_size / 1024, 1)


@pytest.mark.parametrize("name", NAMES)
def test_once_more_adds_nothing(name: str, tmp_path: Path) -> None:
    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    first = convert_trace_to_pythonclaw(GOLDEN / f"{name}.jsonl", "golden", tmp_path)
    before = files()
    again = convert_trace_to_pythonclaw(GOLDEN / f"{name}.jsonl", "golden", tmp_path)
    assert files() == before
    assert again["added"] == {"messages": 0, "memories": 0} and again["known"] == first["added"]
    assert again["messages_generated"] == first["messages_generated"] == first["added"]["messages"]


@pytest.mark.parametrize("name", NAMES)
def test_a_trace_that_grows_line_by_line_is_as_one(name: str, tmp_path: Path) -> None:
    lines = (GOLDEN / f"{name}.jsonl").read_bytes().splitlines(keepends=True)
    growing, home, whole = tmp_path / "t.jsonl", tmp_path / "grown", tmp_path / "whole"
    growing.touch()
    for line in lines:
        with growing.open("ab") as file:
            file.write(line)
        convert_trace_to_pythonclaw(growing, "golden", home)
    convert_trace_to_pythonclaw(growing, "golden", whole)
    grown, one = (each / "context/sessions/mmkr_golden.md" for each in (home, whole))
    said = set(re.findall(r'"key": "([0-9a-f]{16})"', one.read_text()))
    keys = re.findall(r'"key": "([0-9a-f]{16})"', grown.read_text())
    assert said <= set(keys) and len(keys) == len(set(keys))
    for log in (whole / "context/memory").glob("*.md"):
        assert (home / "context/memory" / log.name).read_bytes() == log.read_bytes()
