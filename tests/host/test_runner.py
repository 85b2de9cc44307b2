"""The real runner against the real server: turns, rounds, crashes, stops, and what processes try to leave
behind."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import anyio
import pytest

from clawd.errors import UsageError
from clawd.turns.desk import Control, Final, Lease

from .conftest import Stage, eventually

pytestmark = pytest.mark.anyio


def bash(command: str) -> dict[str, object]:
    return {"name": "bash", "arguments": {"command": command}}


async def test_a_turn_makes_its_round_trip_in_two_requests(stage: Stage) -> None:
    async with stage.server():
        stage.runner()
        turn = stage.desk.submit("say hello there", engine="offline")
        final = await stage.desk.done(turn)
        assert (final.text, final.error, final.model) == ("hello there", None, "offline")
        assert final.shown == [100]
        assert stage.desk.calls == ["final"]
        assert len(stage.desk.hellos) == 1


async def test_four_turns_run_side_by_side(stage: Stage) -> None:
    async with stage.server():
        stage.runner()
        turns = [
            stage.desk.script(
                {"tool_calls": [bash(f"touch {n}; while [ ! -e go ]; do sleep 0.02; done")]}, {"text": "ok"}
            )
            for n in range(4)
        ]
        await eventually(lambda: len(list(stage.work.iterdir())) == 4)
        (stage.work / "go").touch()
        for turn in turns:
            assert (await stage.desk.done(turn)).text == "ok"


async def test_scripted_rounds_are_durable_steps(stage: Stage) -> None:
    async with stage.server():
        stage.runner()
        turn = stage.desk.script(
            {
                "text": "looking at {message}",
                "tool_calls": [bash("echo one; exit 3"), bash("echo two")],
                "usage": {"input": 5},
                "notes": {"verified": ["one"]},
            },
            {"tool_calls": [{"name": "send_message", "arguments": {"text": "on the way"}}]},
            {"text": "done", "usage": {"input": 7, "output": 2}, "notes": {"goal": "g"}},
            text="x",
        )
        final = await stage.desk.done(turn)
    assert final.text == "done" and final.notes == {"goal": "g"}
    assert final.usage is not None and (final.usage.input, final.usage.output, final.usage.window) == (12, 2, 9)
    assert stage.desk.notes == [{"verified": ["one"]}]
    roles = [step["role"] for step in turn.steps]
    assert roles == ["assistant", "tool", "tool", "assistant", "tool"]
    calls = turn.steps[0]["tool_calls"]
    assert [call["id"] for call in calls] == [step["tool_call_id"] for step in turn.steps[1:3]]
    assert json.loads(calls[1]["function"]["arguments"]) == {"command": "echo two"}
    assert [step["content"] for step in turn.steps[1:3]] == ["one\n[exit code 3]", "two"]
    assert len({call["id"] for step in turn.steps for call in step.get("tool_calls", ())}) == 3
    assert turn.events[0] == {"type": "delta", "text": "looking at x"}
    phases = [(event["name"], event["phase"]) for event in turn.events[1:]]
    assert phases == [(name, phase) for name in ("bash", "bash", "send_message") for phase in ("start", "end")][:-1]
    assert stage.sent == [("text", "on the way", None, None)]
    assert turn.steps[0]["at"].endswith("+02:00")


async def test_the_same_call_three_times_in_a_row_ends_the_turn_with_a_reason(stage: Stage) -> None:
    async with stage.server():
        stage.runner()
        turn = stage.desk.script(*[{"tool_calls": [bash("echo x >>said")]}] * 3, {"text": "never"})
        final = await stage.desk.done(turn)
    assert final.text == "" and "bash 3 times in a row" in (final.error or "")
    assert (stage.work / "said").read_text() == "x\nx\n"


async def test_a_turn_that_comes_to_no_end_ends_with_a_reason(stage: Stage) -> None:
    async with stage.server():
        stage.runner()
        calls = [{"name": "jot", "arguments": {"line": f"- {n}"}} for n in range(60)]
        final = await stage.desk.done(stage.desk.script(*[{"tool_calls": [call]} for call in calls]))
    assert "took 50 steps" in (final.error or "")
    assert (stage.work / "notes.md").read_text().splitlines()[-1] == "- 49"


async def test_an_attempt_goes_on_after_the_given_steps(stage: Stage) -> None:
    turn = stage.desk.script(
        {"tool_calls": [bash("echo ran >>log; echo first")]},
        {"tool_calls": [bash("echo ran >>log; echo second")]},
        {"text": "end"},
    )
    async with stage.server():
        stage.runner()
        await stage.desk.done(turn)
        again = stage.desk.submit("hi", **turn.context)
        again.lease = None
        again.steps = turn.steps[:2]
        assert (await stage.desk.done(again)).text == "end"
    assert [step["content"] for step in again.steps if step["role"] == "tool"] == ["first", "second"]
    assert (stage.work / "log").read_text() == "ran\n" * 3


async def test_a_runner_killed_in_mid_turn_is_continued_by_the_next(stage: Stage) -> None:
    send = {"name": "send_message", "arguments": {"text": "once"}}
    turn = stage.desk.script(
        {"tool_calls": [send]},
        {"tool_calls": [bash("echo x >>log; sleep 600")]},
        {"tool_calls": [send]},
        {"text": "end"},
    )
    async with stage.server():
        first = stage.runner()
        await eventually(lambda: (stage.work / "log").exists())
        stage.kill(first)
    stage.desk.requeue(turn)
    async with stage.server():
        stage.runner()
        assert (await stage.desk.done(turn)).text == "end"
    assert "interrupted" in turn.steps[3]["content"]
    assert (stage.work / "log").read_text() == "x\n"
    assert [text for _, text, _, _ in stage.sent] == [
        "once",
        "once",
    ]  # two calls of the script, each one effect
    assert turn.attempt == 2 and turn.finals == 1


@pytest.mark.parametrize("tool", [bash("sleep 600"), {"name": "sleep", "arguments": {"seconds": 100}}, None])
async def test_stop_ends_what_runs(stage: Stage, tool: dict[str, object] | None) -> None:
    steps = [{"tool_calls": [tool]}, {"text": "never"}] if tool else [{"delay_s": 600, "text": "never"}]
    async with stage.server():
        stage.runner()
        turn = stage.desk.script(*steps)
        await stage.desk.until(lambda: turn.confirmed)
        stage.desk.stop(turn)
        final = await stage.desk.done(turn, 10)
        assert (final.stop_reason, final.text, final.error) == ("stopped", "", None)
        assert stage.processes() == []
        assert (await stage.desk.done(stage.desk.submit("say next"))).text == "next"


ESCAPES = {
    "background": "sleep 611 &",
    "setsid and double fork": "setsid sh -c '(setsid sleep 611 >/dev/null 2>&1 </dev/null &) &' & sleep 0.1;",
    "without its tag": "env -i setsid sh -c '(sleep 611 &) &' >/dev/null 2>&1 & sleep 0.1;",
    "ignoring signals": "trap '' TERM HUP INT; (trap '' TERM; sleep 611; sleep 611) &",
    "breeding": "sh -c 'while :; do sleep 611 & sleep 0.01; done' >/dev/null 2>&1 &",
}


@pytest.mark.parametrize("command", ESCAPES.values(), ids=ESCAPES)
async def test_nothing_that_a_turn_started_outlives_it(stage: Stage, command: str) -> None:
    async with stage.server():
        runner = stage.runner()
        turn = stage.desk.script({"tool_calls": [bash(f"{command}\necho started")]}, {"text": "ok"})
        assert (await stage.desk.done(turn)).text == "ok"
        assert turn.steps[1]["content"] == "started"
        assert len(children(runner.pid)) == 1  # the forwarder


async def test_another_live_turn_keeps_its_processes(stage: Stage) -> None:
    async with stage.server():
        stage.runner()
        long = stage.desk.script(
            {"tool_calls": [bash("(setsid sleep 611 &) ; touch up; while [ ! -e go ]; do sleep 0.02; done")]},
            {"text": "long"},
        )
        await eventually(lambda: (stage.work / "up").exists())
        short = stage.desk.script({"tool_calls": [bash("sleep 612 &")]}, {"text": "short"})
        await stage.desk.done(short)
        left = []
        for pid in stage.processes():
            with contextlib.suppress(OSError):  # a `sleep 0.02` that is over
                left.append(Path(f"/proc/{pid}/cmdline").read_text())
        assert any("611" in line for line in left) and not any("612" in line for line in left)
        (stage.work / "go").touch()
        await stage.desk.done(long)
        assert stage.processes() == []


async def test_output_is_cut_and_made_visible(stage: Stage) -> None:
    async with stage.server():
        stage.runner()
        turn = stage.desk.script(
            {"tool_calls": [bash("echo first; head -c 10000000 /dev/zero | tr '\\0' y; echo last")]},
            {"tool_calls": [bash("printf 'a\\0b\\377c'")]},
            {"text": "with \0 and \ud800"},
        )
        final = await stage.desk.done(turn, 60)
    big, odd = (step["content"] for step in turn.steps if step["role"] == "tool")
    assert big.startswith("first\nyyy") and big.endswith("yyylast") and "bytes left out" in big
    assert len(big) < 31_000
    assert odd == "a\\x00b\\xffc"
    assert final.text == "with \\x00 and \\ud800"


async def test_what_went_wrong_is_a_sentence(stage: Stage) -> None:
    async with stage.server():
        stage.runner()
        turn = stage.desk.script(
            {"tool_calls": [bash("kill -9 $$"), bash("ulimit -f 1; head -c 100000 /dev/zero >big")]},
            {"tool_calls": [{"name": "no_such", "arguments": {}}, {"name": "../turn", "arguments": {}}]},
            {"error": "the script says no"},
        )
        final = await stage.desk.done(turn)
    killed, big, unknown, odd = (step["content"] for step in turn.steps if step["role"] == "tool")
    assert "probably used more memory than this group may" in killed
    assert "larger than this group may write" in big
    assert "send_file, send_message" in unknown and "no tool" in odd
    assert final.error == "the script says no"


async def test_an_engine_that_fails_or_is_missing_leaves_the_worker_alive(stage: Stage) -> None:
    stage.desk.parallel = 1
    async with stage.server():
        stage.runner()
        broken = stage.desk.script({"text": "x"}, ordinal="not a number")
        missing = stage.desk.submit("hi", engine="oracle")
        assert "failed (TypeError)" in str((await stage.desk.done(broken)).error)
        assert "There is no engine 'oracle'; there are offline," in str((await stage.desk.done(missing)).error)
        assert (await stage.desk.done(stage.desk.submit("say on"))).text == "on"


async def test_what_the_daemon_refuses_is_an_error_of_the_turn(stage: Stage) -> None:
    class Strict(type(stage.desk)):  # type: ignore[misc]
        async def final(self, lease: Lease, final: Final) -> None:
            if final.error is None:
                raise UsageError("no such file")
            await super().final(lease, final)

    stage.desk = Strict()
    async with stage.server():
        stage.runner()
        assert (await stage.desk.done(stage.desk.submit("say x"))).error == "The answer was refused: no such file"


async def test_a_forwarder_that_was_ended_ends_the_run(stage: Stage) -> None:
    async with stage.server():
        runner = stage.runner()
        await stage.desk.until(lambda: stage.desk.polls == 4)
        turn = stage.desk.script({"tool_calls": [bash(f"kill -9 {children(runner.pid)[0]}")]}, {"text": "ok"})
        assert (await stage.desk.done(turn)).text == "ok"
        assert await anyio.to_thread.run_sync(runner.wait, 20) == 1


async def test_a_lost_lease_is_dropped_quietly(stage: Stage) -> None:
    async with stage.server():
        stage.runner()
        turn = stage.desk.script(
            {"tool_calls": [bash("touch up; while [ ! -e go ]; do sleep 0.02; done")]}, {"text": "x"}
        )
        await eventually(lambda: (stage.work / "up").exists())
        assert turn.lease is not None
        turn.lease = type(turn.lease)("another", turn.id, 2, 0)
        (stage.work / "go").touch()
        assert (await stage.desk.done(stage.desk.submit("say on"))).text == "on"
        assert turn.final is None and len(turn.steps) == 1


async def test_the_runner_waits_out_a_daemon_that_restarts(stage: Stage) -> None:
    turn = stage.desk.script(
        {"tool_calls": [bash("touch up; while [ ! -e go ]; do sleep 0.02; done")]},
        {"tool_calls": [{"name": "send_message", "arguments": {"text": "after"}}]},
        {"text": "end"},
    )
    async with stage.server() as old:
        runner = stage.runner()
        await eventually(lambda: (stage.work / "up").exists())
    stage.socket.unlink()
    async with stage.server(runner=old.runner):
        await stage.desk.until(lambda: stage.desk.calls.count("events") > 1)  # the lease is renewed at once
        (stage.work / "go").touch()
        assert (await stage.desk.done(turn)).text == "end"
        assert (await stage.desk.done(stage.desk.submit("say warm"))).text == "warm"
    assert runner.poll() is None and len(stage.desk.hellos) == 1
    assert stage.sent == [("text", "after", None, None)]


async def test_shutdown_ends_the_runner(stage: Stage) -> None:
    class Leaving(type(stage.desk)):  # type: ignore[misc]
        async def control(self, run: str, wait: float) -> list[Control]:
            await self.until(lambda: self.polls >= 4)
            return [Control(None, "shutdown")]

    stage.desk = Leaving()
    async with stage.server():
        runner = stage.runner()
        with anyio.fail_after(20):
            code = await anyio.to_thread.run_sync(runner.wait)
        assert code == 0


def children(pid: int) -> list[str]:
    """The processes, zombies included, that have this parent."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
