"""Whatever is killed on the way, every message gets one turn, one visible reply and its blocks once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from clawd.commands import looking
from tests.system.conftest import DEADLINE, Home, call, until

STEPS = (call("send_message", text="half of {message}"), {"text": "re {message}"})
SAID = [
    ("user", "one"),
    ("assistant", "calling send_message"),
    ("tool", '{"queued": "message"}'),
    ("assistant", "re one"),
]
# Every point, and where the turn passes it twice (two steps, two deliveries) the second passage too.
POINTS = ("received", "claimed", "step", "answered", "sending", "sent", "delivered", "appended", "recorded")
PASSAGES = (*POINTS, "step:2", "sending:2", "sent:2", "delivered:2")


def answered_once(home: Home, *, attempt: int = 1) -> None:
    """The message `one` was answered by one turn, visibly once, and stands in its session once."""
    [message] = home.settled(1)
    assert (message["turn"], message["attempt"]) == (1, attempt)
    sent = home.deliveries()
    assert [(each["turn"], each["kind"], each["state"]) for each in sent] == [(1, "text", "sent")] * 2
    assert looking.message(home.layout, message["id"])["reply"] == "half of one\n\nre one"
    assert home.said() == SAID


@pytest.mark.parametrize("passage", PASSAGES)
def test_a_daemon_killed_at_any_point_goes_on_after_its_restart(home: Home, passage: str) -> None:
    home.script(*STEPS)
    home.start(f"kill@{passage}")
    waiting = home.chat("-m", "one")
    assert home.wait() == -signal.SIGKILL
    home.start()
    said, told = waiting.communicate(timeout=DEADLINE)
    assert (waiting.returncode, said) == (0, "half of one\nre one\n"), told
    answered_once(home)


@pytest.mark.parametrize("point", POINTS)
def test_a_chat_whose_own_daemon_is_killed_gets_its_reply(home: Home, point: str) -> None:
    home.script(*STEPS)
    done = home.cli("chat", "-m", "one", CLAWD_FAULT=f"kill@{point}")
    assert (done.returncode, done.stdout) == (0, "half of one\nre one\n"), done.stderr
    home.start()
    answered_once(home)


@pytest.mark.parametrize(
    "point", ["claimed", "step", "answered", "sending", "sent", "delivered", "appended", "recorded"]
)
def test_an_error_at_any_point_costs_no_reply_and_no_daemon(home: Home, point: str) -> None:
    home.script(*STEPS)
    home.start(f"raise@{point}")
    done = home.cli("chat", "-m", "one")
    assert (done.returncode, done.stdout) == (0, "half of one\nre one\n"), done.stderr
    answered_once(home, attempt=2 if point in ("claimed", "step") else 1)
    assert home.stop() == 0


def runner(home: Home) -> int:
    return home.runner()


def outer(home: Home) -> int:
    return home.sandbox_processes()[0]


def first(home: Home) -> int:
    return home.sandbox_processes()[1]


# When the turn stands still, how many steps it has by then.
MOMENTS = {"claimed": 0, "in its tool": 3, "before its final": 4}


def standing(moment: str | None) -> tuple[dict[str, object], ...]:
    """A turn that sends a message, then runs a tool, then answers; it stands still at `moment`."""
    return (
        {**call("send_message", text="half of {message}"), "delay_s": 600 if moment == "claimed" else 0},
        call("sleep", seconds=100 if moment == "in its tool" else 0),
        {"text": "re {message}", "delay_s": 600 if moment == "before its final" else 0},
    )


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("victim", [runner, outer, first])
def test_a_turn_whose_sandbox_is_killed_goes_on_after_its_steps(
    home: Home, victim: Callable[[Home], int], moment: str
) -> None:
    home.script(*standing(moment))
    home.start()
    waiting = home.chat("-m", "one")
    until(lambda: home.messages(state="claimed"))
    until(lambda: len(looking.message(home.layout, 1)["steps"]) == MOMENTS[moment])
    home.script(*standing(None))
    os.kill(victim(home), signal.SIGKILL)
    said, told = waiting.communicate(timeout=DEADLINE)
    assert (waiting.returncode, said) == (0, "half of one\nre one\n"), told
    [message] = home.settled(1)
    assert message["attempt"] == 2
    result = "[interrupted: the sandbox ended while this ran. It was not run again.]"
    assert home.said() == [
        *SAID[:-1],
        ("assistant", "calling sleep"),
        ("tool", result if moment == "in its tool" else "slept 0 s"),
        ("assistant", "re one"),
    ]
    assert [each["state"] for each in home.deliveries()] == ["sent", "sent"]
