"""What mmkr's agents leave in a PythonClaw home PythonClaw restores: no call and no memory is lost on the way."""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.bridges.mmkr import PythonClawCollector, convert_trace_to_pythonclaw
from clawd.clock import TurnedClock
from tests.bridges.real_pythonclaw import claw
from tests.bridges.test_session_rounds import FORGED
from tests.memory.conftest import FAST

NOW = datetime(2026, 3, 7, 23, 30, tzinfo=UTC)
HOSTILE = st.sampled_from(
    [FORGED, "<!-- msg:1 -->", "---", "### h", "</details>", "```", "a\r\n---\rb", "\ud800", "\x00", " -->", ""]
)


def home(path: Path) -> Path:
    (path / "context" / "sessions").mkdir(parents=True)
    return path


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(HOSTILE, HOSTILE, HOSTILE, st.booleans()), min_size=1, max_size=5))
def test_no_call_of_a_recorded_tick_is_lost_at_restore(ticks: list[tuple[str, str, str, bool]]) -> None:
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        made = 0
        with PythonClawCollector("agent-1", home(Path(folder)), clock=TurnedClock(NOW)) as to:
            for number, (goal, argument, result, answered) in enumerate(ticks):
                to.record_tick_start(number, [goal])
                for _ in range(2):  # the same call twice, which has two ids
                    to.record_tool_call(number, "post", {"body": argument}, goal)
                    made += 1
                if answered:
                    to.record_tool_result(number, "post", result)
                    to.record_tool_result(number, "post", result, is_error=True)
                to.record_tick_end(number, f"done {result}", 2)
        restored = claw().restores(to.session_file.read_bytes())
    asked = [each["id"] for message in restored for each in message.get("tool_calls", [])]
    assert len(asked) == made == len(set(asked))
    assert [each["tool_call_id"] for each in restored if each["role"] == "tool"] == asked
    assert [each["role"] for each in restored].count("user") == len(ticks)
    assert "system" not in {each["role"] for each in restored}


def test_what_it_remembers_is_where_pythonclaw_looks(tmp_path: Path) -> None:
    with PythonClawCollector("agent-1", home(tmp_path), clock=TurnedClock(datetime.now(UTC))) as to:
        to.record_memory("the sluice opens at nine", "architecture", 0.8, fact="sluice")
    assert claw().memory(to.memory_dir).list_all() == {"mmkr_agent-1_sluice": "the sluice opens at nine"}
    assert "the sluice opens at nine" in claw().manager(tmp_path / "context" / "memory").boot_context()


def test_a_trace_of_the_engine_is_a_conversation_there(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    events = [
        {"event": "llm_prompt", "tick": 64, "phase": "LIFE", "prompt": "TICK 64", "ts": 1772877600.5},
        {"event": "tool_call", "tick": 64, "phase": "LIFE", "tool": "Bash", "args": "ls", "ts": 1772877601.5},
        {
            "event": "tool_result",
            "tick": 64,
            "phase": "LIFE",
            "tool": "Bash",
            "result": "a\n---\nb",
            "ts": 1772877602.5,
        },
        {"event": "llm_response", "tick": 64, "phase": "LIFE", "response": "Nothing to do.", "ts": 1772877603.5},
    ]
    trace.write_text("".join(f"{json.dumps(each)}\n" for each in events))
    done = convert_trace_to_pythonclaw(trace, "agent-1", home(tmp_path / "home"))
    restored = claw().restores(Path(done["session_file"]).read_bytes())
    (call,) = (each for message in restored for each in message.get("tool_calls", []))
    (result,) = (each for each in restored if each["role"] == "tool")
    assert result["tool_call_id"] == call["id"] and result["content"] == "a\n---\nb"
