"""Turns of a model, through the whole daemon: what is said to one at work, what ends one, and what is killed beneath
one, with a model that answers differently the second time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawd.commands import looking
from clawd.ledger.steering import INTERRUPTED
from tests.canary import CANARY
from tests.engine import Engine
from tests.standin import Recorded, Reply, Standin
from tests.system.conftest import EACH, Home, homes, until

SOON_S = 10.0  # five times what a person is promised of a stop
WAITS = "touch begun; until [ -e go ]; do sleep 0.02; done; rm go begun; echo went on"
FOR_EVER = "sleep 600"


class Thinking:
    """A home whose group `main` thinks with `model`; each case is a conversation of its own."""

    def __init__(self, home: Home, model: Standin, key: Path) -> None:
        self.home, self.model = home, model
        self.work = home.layout.group("main").work
        more = f'base_url = "{model.url}"\nallow_private = true\ncredential = "${{file:{key}}}"'
        home.configure("messages", more=f"[services.anthropic]\n{more}", sandbox="warm_minutes = 60")
        config = home.layout.config_file
        config.write_text(config.read_text().replace('script = "script.json"', 'model = "standin-1"'))
        home.start()
        home.json("groups", "add", "main")
        self.followups("steer")

    def followups(self, mode: str) -> None:
        config = f'schema = 1\nfollowups = "{mode}"\ngrants = ["anthropic"]\n'
        self.home.layout.group("main").config_file.write_text(config)

    def say(self, text: str, session: str, who: str = "owner") -> int:
        """A message's number."""
        receipt = self.home.say(text, session=session, **{"as": who})
        assert receipt["message"] is not None, receipt
        return int(receipt["message"])

    def message(self, seq: int) -> dict[str, Any]:
        return looking.message(self.home.layout, seq)

    def ended(self, *messages: int) -> list[tuple[str, str | None]]:
        """(state, reply) of each, once all are at their end."""

        def ends() -> list[tuple[str, str | None]]:
            shown = [self.message(seq) for seq in messages]
            done = all(each["state"] in ("recorded", "stopped", "failed") for each in shown)
            return [(each["state"], each["reply"]) for each in shown] if done else []

        return until(ends)

    def turn(self, seq: int) -> int:
        return int(self.message(seq)["turn"])

    def steps(self, seq: int) -> list[dict[str, Any]]:
        return list(self.message(seq)["steps"])

    def begins(self, text: str, session: str, command: str = WAITS) -> int:
        """A message at which the model calls this command, which has begun."""
        self.model.say(calls=[("bash", {"command": command})])
        seq = self.say(text, session)
        until(lambda: self.home.named(FOR_EVER) if command == FOR_EVER else (self.work / "begun").exists())
        return seq

    def goes_on(self) -> None:
        (self.work / "go").touch()

    def said(self, session: str) -> list[str]:
        return [f"{role}: {content}" for role, content in self.home.said(session=session)]


@pytest.fixture(scope="module", params=EACH)
def thinking(request: pytest.FixtureRequest) -> Iterator[Thinking]:
    engine = request.getfixturevalue("engine") if request.param == "docker" else None
    assert engine is None or isinstance(engine, Engine)
    with Standin(key=CANARY) as model, homes(engine) as make, tempfile.TemporaryDirectory() as beside:
        key = Path(beside) / "key"
        key.write_text(CANARY)
        key.chmod(0o600)
        yield Thinking(make(), model, key)


def newest(model: Standin) -> Recorded:
    return model.requests[-1]


def test_what_is_said_to_a_turn_at_work(thinking: Thinking) -> None:
    home, model = thinking.home, thinking.model

    # steer: the same turn answers both, and its model was shown the second behind the tool's result
    first = thinking.begins("paint it", "steer")
    second = thinking.say("in blue", "steer")
    waiting = home.chat("-m", "and twice", "--session", "steer", "--json")
    until(lambda: len(home.messages(session="steer")) == 3)
    third = home.messages(session="steer")[-1]["id"]
    model.say("Painted it blue, twice.")
    thinking.goes_on()
    assert thinking.ended(first, second, third) == [("recorded", "Painted it blue, twice.")] * 3
    assert {thinking.turn(seq) for seq in (first, second, third)} == {thinking.turn(first)}
    assert newest(model).results == ["went on"] and "in blue" in str(newest(model).body["messages"][-1])
    told = json.loads(waiting.communicate(timeout=60)[0])
    assert (told["reply"], told["turn"], told["error"]) == ("Painted it blue, twice.", thinking.turn(first), None)
    assert thinking.said("steer") == [
        "user: paint it", "assistant: ", "tool: went on", "user: in blue", "user: and twice",
        "assistant: Painted it blue, twice.",
    ]  # fmt: skip

    # queue: each has a turn of its own
    thinking.followups("queue")
    first = thinking.begins("paint it", "queue")
    second = thinking.say("in red", "queue")
    model.say("Painted.")
    model.say("Red now.")
    thinking.goes_on()
    assert thinking.ended(first, second) == [("recorded", "Painted."), ("recorded", "Red now.")]
    assert "in red" not in str(model.requests[-2].body["messages"]) and thinking.turn(first) != thinking.turn(second)

    # interrupt: the first ends at once, with its command, and says so
    thinking.followups("interrupt")
    runner = home.runner()
    first = thinking.begins("paint it", "interrupt", FOR_EVER)
    model.say("Never mind then.")
    second = thinking.say("rather not", "interrupt")
    until(lambda: thinking.message(first)["state"] == "stopped" and not home.named(FOR_EVER), SOON_S)
    assert thinking.ended(first, second) == [("stopped", INTERRUPTED), ("recorded", "Never mind then.")]
    assert thinking.said("interrupt")[-3:] == [
        "system: [stopped to answer a newer message]", "user: rather not", "assistant: Never mind then.",
    ]  # fmt: skip

    # /stop: the command's processes are gone, what waits is answered next
    thinking.followups("queue")
    first = thinking.begins("paint it", "stop", FOR_EVER)
    second = thinking.say("then this", "stop")
    model.say("This, then.")
    stop = thinking.say("/stop", "stop")
    until(lambda: thinking.message(first)["state"] == "stopped" and not home.named(FOR_EVER), SOON_S)
    assert thinking.ended(stop)[0][1] == "Stopped. 1 still waiting; /stop all clears them."
    assert thinking.ended(first, second) == [("stopped", None), ("recorded", "This, then.")]

    # /stop in a model's stream
    asked = len(model.requests)
    model.add(Reply("It begins, and never", hold=True))
    first = thinking.say("tell me", "stream")
    until(lambda: len(model.requests) > asked)
    thinking.say("/stop", "stream")
    until(lambda: thinking.message(first)["state"] == "stopped", SOON_S)
    audit = home.layout.state / "audit" / "audit.jsonl"
    until(lambda: [json.loads(each)["rule"] for each in audit.read_text().splitlines()][-1:] == ["aborted"], SOON_S)
    assert home.runner() == runner  # all of that cost no sandbox

    # a member's word enters the owner's turn in no way
    for mode in ("steer", "interrupt"):
        thinking.followups(mode)
        first = thinking.begins("paint it", f"member {mode}")
        second = thinking.say("and burn it", f"member {mode}", "member:bob")
        model.say("Painted.")
        model.say("I cannot.")
        thinking.goes_on()
        assert thinking.ended(first, second) == [("recorded", "Painted."), ("recorded", "I cannot.")]
        assert "burn" not in str(model.requests[-2].body["messages"]), mode
        assert "burn" in str(model.requests[-1].body["messages"])
    assert not model.problems


def test_whatever_is_killed_there_is_one_effect_and_one_reply(thinking: Thinking) -> None:
    home, model = thinking.home, thinking.model
    thinking.followups("steer")

    # the daemon, in the middle of an answer
    asked = len(model.requests)
    model.add(Reply("Half of an answer, and", hold=True))
    first = thinking.say("tell me", "daemon")
    until(lambda: len(model.requests) > asked)
    home.kill()
    model.say("A whole answer.")
    home.start("kill@effect")
    assert thinking.ended(first) == [("recorded", "A whole answer.")]
    assert thinking.said("daemon") == ["user: tell me", "assistant: A whole answer."]

    # the runner, between two tools: the first is not run again, and what was said meanwhile is not lost
    model.say("both", calls=[("bash", {"command": "echo once >> effects"}), ("bash", {"command": WAITS})])
    first = thinking.say("do both", "runner")
    until(lambda: len(thinking.steps(first)) == 2 and (thinking.work / "begun").exists())
    second = thinking.say("and tell me", "runner")
    model.say("Did both, another way.")
    model.say("Told you.")
    os.kill(home.runner(), signal.SIGKILL)
    assert thinking.ended(first, second) == [("recorded", "Did both, another way.\n\nTold you.")] * 2
    assert (thinking.work / "effects").read_text() == "once\n"
    assert thinking.message(first)["attempt"] == 2

    # the daemon and the sandbox, between a message that was sent and the word of it
    model.say(calls=[("send_message", {"text": "Halfway."})])
    first = thinking.say("keep me posted", "effect")
    assert home.wait() == -signal.SIGKILL
    for pid in home.sandboxed():
        with contextlib.suppress(ProcessLookupError):  # it went with another one
            os.kill(pid, signal.SIGKILL)
    model.say("There.")
    home.start()
    assert thinking.ended(first) == [("recorded", "Halfway.\n\nThere.")]
    assert [each["state"] for each in home.deliveries(turn=thinking.turn(first))] == ["sent", "sent"]
    assert newest(model).results == ['{"queued": "message"}']
    assert not model.problems
