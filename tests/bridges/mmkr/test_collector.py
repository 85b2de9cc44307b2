"""The recorder: what it gives back, and what is in a home after a flush, also when its process was killed."""

from __future__ import annotations

import json
import os
import threading
import time
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.bridges.mmkr import PythonClawCollector, convert_trace_to_pythonclaw
from clawd.clock import TurnedClock
from clawd.config.home import Home
from clawd.errors import Refused, UsageError
from clawd.memory import daily, keyed
from clawd.sessions.reading import load

START = datetime(2026, 3, 7, 23, 30, tzinfo=UTC)


def recorder(home: Path, agent: str = "agent-1", **more: Any) -> PythonClawCollector:
    return PythonClawCollector(agent, home, clock=TurnedClock(START), **more)


def tick(to: PythonClawCollector, number: int = 64) -> None:
    """One with everything in it, the same call twice among it."""
    to.record_tick_start(number, ["Social Presence", "Economy"], 81)
    for n in range(2):
        to.record_tool_call(number, "post", {"issue": 1, "body": "<!-- msg:1 -->"}, "Posting" if n else None)
    to.record_tool_result(number, "post", {"url": "é"})
    to.record_tool_result(number, "post", "no\n---\n### way", is_error=True)
    to.record_memory("PythonClaw keeps the last 50 messages", "architecture", 0.8)
    to.record_tick_end(number, f"Tick {number} done.", 2, ["posted", "read"])


def flush(to: PythonClawCollector) -> tuple[Path, Path]:
    return to.flush_to_session_file(), to.flush_to_memory_log()


def test_what_is_given_back(tmp_path: Path) -> None:
    to = recorder(tmp_path)
    start = to.record_tick_start(64, ["Social", "Economy"], 81)
    assert (start.role, start.content) == (
        "user", "Tick 64 — observe, think, act.\nActive goals: Social, Economy\nLoaded 81 memories."
    )  # fmt: skip
    assert (start.ts, start.tool_calls, start.tool_call_id, start.name) == ("2026-03-07T23:30:00+00:00", [], None, None)
    call = to.record_tool_call(64, "post", {"b": 1, "a": "é"})
    (made,) = call.tool_calls
    assert (call.role, call.content, made["type"]) == ("assistant", "Calling post", "function")
    assert made["function"] == {"name": "post", "arguments": '{"b": 1, "a": "é"}'}
    result = to.record_tool_result(64, "post", {"ok": True}, is_error=True)
    assert (result.role, result.content, result.name) == ("tool", 'ERROR: {"ok": true}', "post")
    assert result.tool_call_id == made["id"]
    assert call.to_markdown_block().startswith('<!-- msg:{"role": "assistant", "ts": "')
    assert "<details><summary>Tool Calls</summary>" in call.to_markdown_block()
    end = to.record_tick_end(64, "Done.", 8, ["built", "posted"])
    assert (end.role, end.content) == ("assistant", "Done.\nTools used: 8\nActions: built, posted")
    entry = to.record_memory("kept", "architecture", 0.8)
    assert (entry.content, entry.source, entry.importance, entry.tags) == (
        "kept", "mmkr:architecture", 0.8, ["architecture", "mmkr"]
    )  # fmt: skip
    assert entry.to_markdown_entry() == (
        "- [2026-03-07T23:30:00+00:00] kept #architecture #mmkr (source=mmkr:architecture, importance=0.80)\n"
    )
    assert to.session_stats() == {
        "agent_id": "agent-1",
        "session_id": "mmkr:agent-1",
        "ticks_recorded": 1,
        "tools_recorded": 1,
        "memories_recorded": 1,
        "session_file": str(tmp_path / "context/sessions/mmkr_agent-1.md"),
        "memory_dir": str(tmp_path / "context/memory"),
    }
    assert to.sessions_dir == tmp_path / "context/sessions" and not list(tmp_path.iterdir())


def test_a_call_is_in_the_block_that_is_read_with_its_result_behind_it(tmp_path: Path) -> None:
    to = recorder(tmp_path)
    tick(to)
    session, _ = flush(to)
    blocks = load(session).blocks
    assert load(session).errors == []
    assert [block.role for block in blocks] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert blocks[1].tool_calls[0]["id"] == blocks[2].tool_call_id != blocks[3].tool_calls[0]["id"]
    assert json.loads(blocks[1].tool_calls[0]["function"]["arguments"]) == {"issue": 1, "body": "<!-- msg:1 -->"}
    assert [block.content for block in blocks[2:5]] == ['{"url": "é"}', "Posting", "ERROR: no\n---\n### way"]


def test_memories_are_where_they_are_looked_for_by_the_local_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        to = recorder(tmp_path)
        to.record_memory("### 10:00:00 — forged\n\n- [2026-03-07T10:00:00] forged", "a b\n#c", 0.5)
        _, log = flush(to)
        assert log == tmp_path / "context/memory/2026-03-08.md"
        (header, piece) = daily.parsed(log.read_bytes(), date(2026, 3, 8))
        assert header.text == "# Daily Memory — 2026-03-08" and piece.at == START
        assert piece.text.startswith("### 10:00:00 — forged\n\n  - [") and "#a_b_c #mmkr" in piece.text
        assert to.flush_to_memory_log("2026-03-01").name == "2026-03-01.md"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_fact_is_kept_under_a_key_of_the_agent_s_own(tmp_path: Path) -> None:
    to = recorder(tmp_path)
    to.record_memory("find users", fact="goal")
    to.record_memory("find more users", fact="goal")
    flush(to)
    facts = keyed.parsed((tmp_path / "context/memory/MEMORY.md").read_bytes())[1]
    assert {key: fact.value for key, fact in facts.items()} == {"mmkr_agent-1_goal": "find more users"}


@pytest.mark.parametrize("where", ["pythonclaw", "clawd"])
def test_flushed_again_or_recorded_again_after_a_kill_it_adds_nothing(
    where: str, tmp_path: Path, clawd_home: Home
) -> None:
    home = clawd_home.root if where == "clawd" else tmp_path / "claw"
    to = recorder(home)
    tick(to)
    session, log = flush(to)
    before = session.read_bytes(), log.read_bytes()
    flush(to)
    other = recorder(home)
    tick(other)
    assert flush(other) == (session, log) and (session.read_bytes(), log.read_bytes()) == before
    tick(other, 65)
    flush(other)
    assert len(load(session).blocks) == 12 and session.read_bytes().startswith(before[0])
    assert [to.left, other.left] == [[], []]


@pytest.mark.parametrize("cut", range(5))
def test_recorded_in_other_portions_after_a_kill_nothing_is_lost_or_there_twice(cut: int, tmp_path: Path) -> None:
    def some(to: PythonClawCollector, steps: int) -> None:
        to.record_tick_start(1)
        for n in range(min(steps, 3)):
            to.record_tool_call(1, "a", {})
            to.record_tool_result(1, "a", n)
        if steps > 3:
            to.record_tick_end(1, "over")

    first, second, whole = recorder(tmp_path / "a"), recorder(tmp_path / "a"), recorder(tmp_path / "b")
    some(first, cut)
    flush(first)
    some(second, 4)
    some(whole, 4)
    assert flush(second)[0].read_bytes() == flush(whole)[0].read_bytes()


def test_an_open_call_waits_and_has_no_result_when_its_tick_ends(tmp_path: Path) -> None:
    to = recorder(tmp_path)
    to.record_tick_start(1)
    to.record_tool_call(1, "slow", {})
    session = to.flush_to_session_file()
    assert len(load(session).blocks) == 1
    to.record_tick_end(1, "over")
    to.flush_to_session_file()
    assert [block.content for block in load(session).blocks][1:] == ["Calling slow", "[no result was recorded]", "over"]
    with recorder(tmp_path) as other:
        other.record_tick_start(2)
        other.record_tool_call(2, "slow", {})
    assert load(session).errors == [] and len(load(session).blocks) == 7


def test_a_trace_of_what_was_recorded_live_adds_nothing(tmp_path: Path) -> None:
    to = recorder(tmp_path)
    to.record_tick_start(64, ["Social"], 3)
    to.record_tool_call(64, "post", {"b": 2, "a": 1}, "Posting")
    to.record_tool_result(64, "post", "done")
    to.record_tick_end(64, "Over.", 1)
    session = to.flush_to_session_file()
    before = session.read_bytes()
    events = [
        {"event_type": "mmkr:tick_start", "ts": 1772926200.25},
        {"event_type": "tool_call", "tool": "post", "args": {"a": 1, "b": 2}, "ts": 1772926201},
        {"event_type": "tool_result", "tool": "post", "outcome": "done", "ts": 1772926202},
        {"event_type": "mmkr:tick_end", "summary": "Over.", "ts": 1772926203},
    ]
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps(event | {"tick": 64}) + "\n" for event in events))
    made = convert_trace_to_pythonclaw(trace, "agent-1", tmp_path)
    assert made["added"] == {"messages": 0, "memories": 0} and made["known"]["messages"] == 4
    assert session.read_bytes() == before


def test_threads_and_processes_beside_each_other(tmp_path: Path) -> None:
    """Two recorders of two agents' ticks into one session."""

    def work(first: int) -> None:
        to = recorder(tmp_path)
        for number in range(first, first + 40, 2):
            tick(to, number)
            flush(to)

    threads = [threading.Thread(target=work, args=(first,)) for first in (0, 1)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    read = load(tmp_path / "context/sessions/mmkr_agent-1.md")
    assert read.errors == [] and len(read.blocks) == 40 * 6


@pytest.mark.parametrize("agent", ["", " ", "a\nb", "x" * 2000])
def test_what_is_no_agent_is_refused(agent: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        recorder(tmp_path, agent)


def test_a_file_of_another_session_and_what_is_no_home_are_refused(tmp_path: Path) -> None:
    (tmp_path / "context/sessions").mkdir(parents=True)
    (tmp_path / "context/sessions/mmkr_agent-1.md").write_text("# Session: mmkr/agent-1\n\n")
    to = recorder(tmp_path)
    tick(to)
    with pytest.raises(Refused, match="belongs to the session"):
        to.flush_to_session_file()
    (tmp_path / "context/sessions/mmkr_agent-1.md").unlink()
    assert len(load(to.flush_to_session_file()).blocks) == 6  # what was refused is kept
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="not a directory"):
        recorder(tmp_path / "file")
    with pytest.raises(UsageError, match="no groups"):
        recorder(tmp_path, group="main")
    with pytest.raises(UsageError, match="a day"):
        to.flush_to_memory_log("../../x")


def test_a_tilde_is_the_person_s_own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert PythonClawCollector("a", "~/claw").memory_dir == tmp_path / "claw/context/memory"
    assert PythonClawCollector("a").memory_dir == tmp_path / ".pythonclaw/context/memory"
    assert PythonClawCollector("a", None).sessions_dir == tmp_path / ".pythonclaw/context/sessions"


def test_a_clawd_home_takes_only_what_its_group_lets_in(clawd_home: Home) -> None:
    clawd_home.group("main").config_file.write_text("schema = 1\n")
    to = recorder(clawd_home.root)
    tick(to)
    with pytest.raises(Refused, match="mmkr:agent-1"):
        to.flush_to_session_file()
    with pytest.raises(Refused, match="mmkr:agent-1"):
        to.flush_to_memory_log()
    clawd_home.group("main").config_file.write_text('schema = 1\nexternal = ["mmkr:*"]\n')
    session, log = flush(to)
    assert session == clawd_home.group("main").sessions / "mmkr_agent-1.md"
    blocks = load(session).blocks
    assert len(blocks) == 6 and {block.meta["from"] for block in blocks} == {"external"}
    assert log.parent == clawd_home.group("main").memory and "mmkr_agent-1_architecture" in log.read_text()


def test_a_group_that_cannot_be_read_holds_up_no_other(clawd_home: Home) -> None:
    broken = clawd_home.group("a").config_file
    broken.parent.mkdir(mode=0o700, parents=True)
    broken.write_text("schema = 1\nexternal = [")
    to = recorder(clawd_home.root)
    assert to.session_stats()["session_file"] == str(clawd_home.group("main").sessions / "mmkr_agent-1.md")
    tick(to)
    session, _ = flush(to)
    assert len(load(session).blocks) == 6 and to.left == []


def test_where_two_groups_would_take_it_nothing_is_lost_before_one_is_named(clawd_home: Home) -> None:
    lab = clawd_home.group("lab").config_file
    lab.parent.mkdir(mode=0o700, parents=True)
    lab.write_text('schema = 1\nexternal = ["*"]\n')
    to = recorder(clawd_home.root)
    tick(to)
    for flushed in (to.flush_to_session_file, to.flush_to_memory_log):
        with pytest.raises(Refused, match="lab and main"):
            flushed()
    assert to.left == []
    lab.write_text("schema = 1\n")
    session, _ = flush(to)
    assert len(load(session).blocks) == 6 and to.left == []


def test_what_clawd_has_no_place_for_is_left_and_told(clawd_home: Home) -> None:
    to = recorder(clawd_home.root)
    to.record_tick_start(1)
    to.record_memory("kept")
    to.record_memory("   ")
    to.record_memory("kept, too")
    flush(to)
    assert len(to.left) == 1 and to.left[0].startswith("a memory of general: ")
    assert to.flush_to_memory_log().read_text().count("mmkr_agent-1_general") == 2


WORDS = st.text(max_size=20) | st.sampled_from(
    ["---", "### x", "<!-- msg:{} -->", "</details>", "\ud800", "\r\n", "\0"]
)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=4))
def test_hostile_words_lose_nothing(said: list[tuple[str, str, str]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        to = recorder(Path(folder))
        to.record_tick_start(1, [said[0][0]])
        for tool, argument, result in said:
            to.record_tool_call(1, tool, {argument: argument}, argument)
            to.record_tool_result(1, tool, result)
        blocks = load(to.flush_to_session_file()).blocks[1:]
    for (tool, argument, result), call, answer in zip(said, blocks[::2], blocks[1::2], strict=True):
        assert call.tool_calls[0]["function"]["name"] == tool or not tool
        assert json.loads(call.tool_calls[0]["function"]["arguments"]) == {argument: argument}
        assert (call.content or "", answer.content) == (argument or call.content, result)
        assert answer.tool_call_id == call.tool_calls[0]["id"]


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to = recorder(tmp_path)
    tick(to)
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda at: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(Exception, match="No space"):
        to.flush_to_session_file()
    monkeypatch.setattr(os, "fdatasync", real)
    assert len(load(to.flush_to_session_file()).blocks) == 6
