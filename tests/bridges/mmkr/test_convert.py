"""Traces made into sessions: torn anywhere, grown, after others wrote there, and without holding them in memory."""

from __future__ import annotations

import json
import os
import random
import time
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from clawd.bridges.mmkr import convert, convert_trace_to_pythonclaw, pythonclaw_session_stats
from clawd.bridges.mmkr.convert import Progress
from clawd.cli.main import run
from clawd.config.home import Home
from clawd.errors import ClawdError, NotFound, UsageError
from clawd.sessions.format import write_file
from clawd.sessions.reading import load

AT = 1772877600


def written(path: Path, events: Iterable[dict[str, Any]]) -> Path:
    with path.open("w") as file:
        file.writelines(json.dumps(each) + "\n" for each in events)
    return path


def tick(number: int) -> list[dict[str, Any]]:
    at = AT + 60 * number
    return [
        {"event_type": "mmkr:tick_start", "tick": number, "ts": at},
        {"event_type": "tool_call", "tool": "read", "args": {"n": number, "x": "<!-- msg:{} --> é"}, "ts": at + 1},
        {"event_type": "tool_result", "tool": "read", "outcome": "a\n---\n### b\n\n", "ts": at + 2},
        {"event_type": "memory_write", "content": f"of {number}\n\n- [x] y", "category": "plan", "ts": at + 3},
        {"event_type": "memory_write", "content": "the same each time", "ts": at + 3},
        {"event_type": "mmkr:tick_end", "summary": "over —", "ts": at + 4},
    ]


def session_of(home: Path) -> Path:
    return home / "context/sessions/mmkr_a.md"


def log_of(home: Path) -> Path:
    (log,) = (home / "context/memory").glob("*.md")
    return log


@pytest.mark.parametrize("which", [session_of, log_of])
def test_killed_at_any_byte_and_run_again_it_is_as_one_run(which: Any, tmp_path: Path) -> None:
    trace = written(tmp_path / "t.jsonl", [*tick(1), *tick(2)])
    convert_trace_to_pythonclaw(trace, "a", tmp_path)
    path = which(tmp_path)
    whole = path.read_bytes()
    cuts = random.Random(0).sample(range(len(whole)), 150)
    for cut in {0, 1, len(whole) - 1, len(whole) - 2, *cuts}:
        path.write_bytes(whole[:cut])
        convert_trace_to_pythonclaw(trace, "a", tmp_path)
        assert path.read_bytes() == whole, whole[max(0, cut - 40) : cut]


def test_a_grown_trace_adds_what_is_new(tmp_path: Path) -> None:
    trace = written(tmp_path / "t.jsonl", [*tick(1), *tick(2)[:2]])
    convert_trace_to_pythonclaw(trace, "a", tmp_path)
    assert load(session_of(tmp_path)).blocks[-1].content == "[no result was recorded]"
    written(trace, [*tick(1), *tick(2), *tick(3)])
    made = convert_trace_to_pythonclaw(trace, "a", tmp_path)
    read = load(session_of(tmp_path))
    assert read.errors == [] and made["ticks_converted"] == 3
    # The call of tick 2 stands there twice: once without a result, and once more with it.
    assert made["messages_generated"] == 12 and len(read.blocks) == 14
    assert [block.content for block in read.blocks[7:10]] == [
        "[the result of an earlier call of read]", "a\n---\n### b\n\n", "over —"
    ]  # fmt: skip
    assert convert_trace_to_pythonclaw(trace, "a", tmp_path)["added"] == {"messages": 0, "memories": 0}


def test_an_agent_that_began_anew_says_the_same_again(tmp_path: Path) -> None:
    trace = written(tmp_path / "t.jsonl", [*tick(1), *tick(2), *tick(1), *tick(2)])
    made = convert_trace_to_pythonclaw(trace, "a", tmp_path)
    assert (made["ticks_converted"], made["messages_generated"], made["memories"]) == (4, 16, 8)
    assert len(load(session_of(tmp_path)).blocks) == 16


def test_what_pythonclaw_wrote_anew_is_still_known(tmp_path: Path) -> None:
    """When it saves a session that it has open it keeps no keys, and only the seconds of a time."""
    trace = written(tmp_path / "t.jsonl", [*tick(1), *tick(2)])
    convert_trace_to_pythonclaw(trace, "a", tmp_path)
    blocks = load(session_of(tmp_path)).blocks
    kept = [(block.role, block.content.strip(), block.at, block.tool_calls, block.tool_call_id) for block in blocks]
    session_of(tmp_path).write_bytes(write_file("mmkr:a", [type(blocks[0])(*each) for each in kept]))
    written(trace, [*tick(1), *tick(2), *tick(3)])
    made = convert_trace_to_pythonclaw(trace, "a", tmp_path)
    assert made["added"]["messages"] == 4 and len(load(session_of(tmp_path)).blocks) == 12


def test_what_others_wrote_between_stays(tmp_path: Path) -> None:
    trace = written(tmp_path / "t.jsonl", tick(1))
    convert_trace_to_pythonclaw(trace, "a", tmp_path)
    with session_of(tmp_path).open("a") as file:
        file.write('\n<!-- msg:{"role": "user", "ts": "2026-03-07T12:00:00"} -->\n### x — User\n\nhalf a bl')
    with log_of(tmp_path).open("a") as file:
        file.write("a person's line without an end")
    written(trace, [*tick(1), *tick(2)])
    convert_trace_to_pythonclaw(trace, "a", tmp_path)
    contents = [block.content for block in load(session_of(tmp_path)).blocks]
    assert contents[4] == "half a bl" and len(contents) == 9
    assert "a person's line without an end\n- [" in log_of(tmp_path).read_text()


def test_into_a_clawd_home(tmp_path: Path, clawd_home: Home) -> None:
    trace = written(tmp_path / "t.jsonl", [*tick(1), *tick(2)])
    made = convert_trace_to_pythonclaw(trace, "a", clawd_home.root)
    session = clawd_home.group("main").sessions / "mmkr_a.md"
    assert made["session_file"] == str(session) and made["left"] == []
    assert made["added"] == {"messages": 8, "memories": 4}
    assert load(session).errors == [] and len(load(session).blocks) == 8
    again = convert_trace_to_pythonclaw(trace, "a", clawd_home.root)
    assert again["added"] == {"messages": 0, "memories": 0} and again["known"] == made["added"]


def test_a_memory_without_a_time_goes_to_the_day_of_the_trace(tmp_path: Path) -> None:
    trace = written(tmp_path / "t.jsonl", [{"event": "memory_write", "content": "x"}])
    os.utime(trace, (AT, AT))
    convert_trace_to_pythonclaw(trace, "a", tmp_path)
    assert log_of(tmp_path).name == f"{time.strftime('%Y-%m-%d', time.localtime(AT))}.md"


@pytest.mark.parametrize(("name", "error"), [("none", NotFound), ("folder", UsageError), ("pipe", UsageError)])
def test_what_is_no_trace_is_told(name: str, error: type[ClawdError], tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(error):
        convert_trace_to_pythonclaw(tmp_path / name, "a", tmp_path / "home")


def test_an_empty_trace_makes_an_empty_report(tmp_path: Path) -> None:
    made = convert_trace_to_pythonclaw(written(tmp_path / "t.jsonl", []), "a", tmp_path)
    assert (made["lines"], made["ticks_converted"], made["messages_generated"]) == (0, 0, 0)


def test_its_memory_does_not_grow_with_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "_AT_ONCE", 16 << 10)
    peaks, told = [], list[Progress]()
    for ticks in (60, 600):
        trace = written(tmp_path / f"{ticks}.jsonl", (each for n in range(ticks) for each in tick(n)))
        tracemalloc.start()
        convert_trace_to_pythonclaw(trace, "a", tmp_path / str(ticks), progress=told.append)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + (1 << 19) < 4 << 20
    assert told[-1] == Progress(trace.stat().st_size, trace.stat().st_size, 2400)
    assert len(told) > 10 and [each.done for each in told[-9:]] == sorted(each.done for each in told[-9:])


def test_figures_of_mmkr_s_own_files(tmp_path: Path) -> None:
    """Its recorder puts calls into the text, and names the tool of a result."""
    path = tmp_path / "s.md"
    path.write_text(
        '<!-- msg:{"role":"assistant","ts":"2026-03-07T10:00:01"} -->\n### x — Assistant\n\nCalling post\n\n---\n'
        '<!-- msg:{"role":"tool","ts":"2026-03-07T10:00:02","tool_call_id":"call_post_1","name":"post"} -->\n'
        "### x — Tool\n\nok\n\n---\n<!-- msg:1 -->\n<!-- msg:{broken -->\n### x — User\n\nhi\n\n---\n"
    )
    assert pythonclaw_session_stats(path) == {
        "session_file": str(path),
        "total_messages": 4,
        "ticks_estimated": 1,
        "role_distribution": {"assistant": 1, "tool": 1, "unknown": 1, "user": 1},
        "tools_invoked": 1,
        "unique_tools": ["post"],
        "file_size_kb": 0.3,
    }
    with pytest.raises(NotFound):
        pythonclaw_session_stats(tmp_path / "none.md")


class TestCommand:
    def test_into_this_home(self, tmp_path: Path, clawd_home: Home, capsys: pytest.CaptureFixture[str]) -> None:
        trace = written(tmp_path / "t.jsonl", tick(1))
        with trace.open("a") as file:
            file.write("{torn\n")
        words = ["--home", str(clawd_home.root), "bridge", "mmkr", "convert", str(trace), "--agent-id", "a"]
        assert run(words) == 0
        out, err = capsys.readouterr()
        assert "1 tick of mmkr:a: 4 messages and 2 memories added" in err and "line 7: it is no JSON" in err
        assert str(clawd_home.group("main").sessions / "mmkr_a.md") in out
        assert run([*words, "--json"]) == 0
        made = json.loads(capsys.readouterr().out)
        assert made["added"] == {"messages": 0, "memories": 0} and made["broken"] == 1

    def test_what_is_no_trace(self, tmp_path: Path, clawd_home: Home, capsys: pytest.CaptureFixture[str]) -> None:
        trace = tmp_path / "t.jsonl"
        trace.write_text("# notes\nof mine\n")
        words = ["--home", str(clawd_home.root), "bridge", "mmkr", "convert", str(trace), "--agent-id", "a"]
        assert run(words) == 2
        out, err = capsys.readouterr()
        assert out == "" and "is no trace of mmkr" in err and "line 1: it is no JSON" in err
        trace.write_text("")
        assert run(words) == 0
        out, err = capsys.readouterr()
        assert out == "" and "0 ticks of mmkr:a" in err

    def test_into_another_home_without_one_of_ours(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("CLAWD_HOME", str(tmp_path / "none"))
        trace = written(tmp_path / "t.jsonl", tick(1))
        words = ["bridge", "mmkr", "convert", str(trace), "--agent-id", "a"]
        assert run([*words, "--output", str(tmp_path / "claw")]) == 0
        assert session_of(tmp_path / "claw").exists()
        assert run(words) == NotFound.code and "there is no home" in capsys.readouterr().err
        assert run(["bridge", "mmkr", "convert", str(tmp_path / "x"), "--agent-id", "a", "--output", "y"]) == 5

    def test_a_line_of_progress_when_it_takes_longer(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(convert, "_AT_ONCE", 1)
        monkeypatch.setattr("clawd.cli.traces.FIRST_S", -1.0)
        trace = written(tmp_path / "t.jsonl", [*tick(1), *tick(2)])
        assert run(["bridge", "mmkr", "convert", str(trace), "--agent-id", "a", "--output", str(tmp_path)]) == 0
        assert "0 of 0 MB" in capsys.readouterr().err


def test_of_very_much_that_is_left_the_rest_is_counted(
    tmp_path: Path, clawd_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convert, "NAMED", 1)
    large = [{"event_type": "memory_write", "tick": 1, "content": f"{n}" * 70_000, "ts": AT} for n in range(3)]
    made = convert_trace_to_pythonclaw(written(tmp_path / "t.jsonl", large), "a", clawd_home.root)
    assert len(made["left"]) == 2 and made["left"][1] == "and 2 more"
