"""Engine "claude-code" in the real runner, with a small program in the place of the CLI: which process serves which
turn, and when it ends. What the real one says is tried in `tests/system/test_foreign.py`."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from .conftest import Stage, eventually
from .memory_desk import HeldTurn

pytestmark = pytest.mark.anyio

# It answers with its pid, what it was asked, and whether it was to resume; "die" ends it, "leave" starts an orphan.
CLI = """
import json, os, subprocess, sys
for line in sys.stdin:
    said = json.loads(line)["message"]["content"]
    if "die" in said:
        sys.stderr.write("out of luck")
        os._exit(7)
    if "leave" in said:
        subprocess.Popen(["sleep", "613"], start_new_session=True, stdout=subprocess.DEVNULL)
    resumed = "--resume" in sys.argv
    result = {"type": "result", "is_error": False, "result": f"{os.getpid()} {resumed} {said}"}
    print(json.dumps(result), flush=True)
"""


def submit(stage: Stage, text: str, session: str = "terminal:main", **context: Any) -> HeldTurn:
    command = {"command": [sys.executable, "-c", CLI]}
    turn = stage.desk.submit(text, engine="claude-code", **{"session": session, "exec": command, **context})
    for wake in turn.wakes:
        wake |= {"text": text, "joined": 0}
    return turn


async def answer(stage: Stage, text: str, *said: str, **context: Any) -> tuple[int, str]:
    """The pid that answered, and what it said; `said` is the conversation before."""
    roles = ("user", "assistant")
    history = [{"role": roles[n % 2], "content": each} for n, each in enumerate(said)]
    final = await stage.desk.done(submit(stage, text, history=history, **context))
    assert final.error is None, final
    pid, _, rest = final.text.partition(" ")
    return int(pid), rest


def alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")  # noqa: PTH110


async def test_a_process_is_kept_for_the_conversation_that_it_holds(stage: Stage) -> None:
    async with stage.server():
        stage.runner()
        first, said = await answer(stage, "one")
        assert said == "False one"
        second, said = await answer(stage, "leave", "one", f"{first} False one")
        assert (second, said) == (first, "False leave")
        await eventually(lambda: stage.processes() == [first])  # what it started in a later turn is gone with that
        state = f"/proc/{first}/stat"
        await eventually(lambda: open(state).read().rpartition(") ")[2][0] == "T")  # noqa: SIM115, PTH123
        edited, said = await answer(stage, "three", "one", "something else")
        assert edited != first and said == "True three" and not alive(first)
        rows = next(stage.work.glob(".claude-state/projects/*/*.jsonl")).read_text()
        assert "something else" in rows
        other, _ = await answer(stage, "four", "a", "b", authority="member")
        assert not alive(edited)
        crowd = [(await answer(stage, "x", session=f"terminal:{n}", authority="member"))[0] for n in range(3)]
        await eventually(lambda: not alive(other) and not alive(crowd[0]))
        assert alive(crowd[1]) and alive(crowd[2])  # two may wait


async def test_one_that_dies_or_is_missing_is_a_sentence_and_a_second_attempt_is_told(stage: Stage) -> None:
    async with stage.server():
        stage.runner()
        final = await stage.desk.done(submit(stage, "die"))
        assert final.error == "Claude Code ended in the middle (exit code 7): out of luck"
        assert stage.processes() == []
        final = await stage.desk.done(submit(stage, "x", exec={"command": ["claude-is-not-here"]}))
        assert 'the command "claude-is-not-here" is not there' in (final.error or "")
        assert "clawd image build --target claude-code" in (final.error or "")
        turn = submit(stage, "x", session="terminal:other")
        message = {"role": "assistant", "content": "did it", "at": "2026-11-29T14:00:00.000+02:00"}
        turn.steps.append(message)
        final = await stage.desk.done(turn)
        assert "True [clawd: the sandbox ended while you were at work on this." in final.text
        rows = [path.read_text() for path in stage.work.glob(".claude-state/projects/*/*.jsonl")]
        assert any("did it" in each for each in rows)
