"""Whatever is killed on the way, every message gets one turn, one visible reply and its blocks once."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

import pytest

from clawd.commands import looking
from clawd.ledger.deliveries import REPEAT
from tests.system.conftest import BOTH, DEADLINE, Home, call, until

STEPS = (call("send_message", text="half of {message}"), {"text": "re {message}"})
SAID = [
    ("user", "one"),
    ("assistant", "calling send_message"),
    ("tool", '{"queued": "message"}'),
    ("assistant", "re one"),
]
# Every point, and where the turn passes it twice (two steps, two deliveries) the second passage too.
POINTS = ("received", "claimed", "step", "answered", "sending", "sent", "delivered", "appended", "recorded")
PASSAGES = (*POINTS, "effect", "step:2", "sending:2", "sent:2", "delivered:2")


def on_both(points: tuple[str, ...], docker: tuple[str, ...]) -> pytest.MarkDecorator:
    """Every point with bubblewrap; with Docker those that find its sandbox in another state."""
    cases = [("bubblewrap", point) for point in points]
    cases += [pytest.param("docker", point, marks=pytest.mark.engine) for point in docker]
    return pytest.mark.parametrize(("backend", "point"), cases, indirect=["backend"])


def answered_once(home: Home, *, attempt: int = 1) -> None:
    """The message `one` was answered by one turn, visibly once, and stands in its session once."""
    [message] = home.settled(1)
    assert (message["turn"], message["attempt"]) == (1, attempt)
    sent = home.deliveries()
    assert [(each["turn"], each["kind"], each["state"]) for each in sent] == [(1, "text", "sent")] * 2
    assert looking.message(home.layout, message["id"])["reply"] == "half of one\n\nre one"
    assert home.said() == SAID


@on_both(PASSAGES, ("claimed", "step:2", "answered", "delivered:2"))
def test_a_daemon_killed_at_any_point_goes_on_after_its_restart(home: Home, point: str) -> None:
    home.script(*STEPS)
    home.start(f"kill@{point}")
    waiting = home.chat("-m", "one")
    assert home.wait() == -signal.SIGKILL
    home.start()
    said, told = waiting.communicate(timeout=DEADLINE)
    assert (waiting.returncode, said) == (0, "half of one\nre one\n"), told
    answered_once(home)


@on_both(POINTS, ("claimed", "answered", "recorded"))
def test_a_chat_whose_own_daemon_is_killed_gets_its_reply(home: Home, point: str) -> None:
    home.script(*STEPS)
    done = home.cli("chat", "-m", "one", CLAWD_FAULT=f"kill@{point}")
    assert (done.returncode, done.stdout) == (0, "half of one\nre one\n"), done.stderr
    if home.messages(state="recorded") and point != "recorded":
        assert not home.left_over()
    else:  # the fault came after the reply: the chat needed no daemon any more
        assert point in ("delivered", "appended", "recorded")
        home.start()
    answered_once(home)


@pytest.mark.parametrize("points", [POINTS[1:-1], POINTS[-1:]])  # a record that fails twice is told to the owner
def test_an_error_at_every_point_costs_no_reply_and_no_daemon(home: Home, points: tuple[str, ...]) -> None:
    home.script(*STEPS)
    home.start(",".join(f"raise@{point}" for point in points))
    done = home.cli("chat", "-m", "one")
    assert (done.returncode, done.stdout) == (0, "half of one\nre one\n"), done.stderr
    answered_once(home, attempt=1 + len({"claimed", "step"} & set(points)))  # these two are the turn's own faults
    errors = " ".join(line.get("exc", "") for line in home.log())
    assert all(f"raise@{point}" in errors for point in points)
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


@BOTH
@pytest.mark.parametrize(
    ("victim", "moment"),
    [*((victim, moment) for victim in (runner, outer) for moment in MOMENTS), (first, "in its tool")],
)
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


@BOTH
def test_a_poison_message_fails_after_three_attempts_and_blocks_nobody(home: Home) -> None:
    home.script({"error": "the model fell over"}, {"text": "re {message}"})
    home.start()
    poison = home.chat("-m", "poison")
    until(home.messages)
    done = home.cli("chat", "-m", "next")
    assert (done.returncode, done.stdout) == (0, "re next\n")
    told, complaint = poison.communicate(timeout=DEADLINE)
    assert poison.returncode == 1
    assert "the model fell over" in told + complaint and "clawd messages retry 1" in told + complaint
    failed, _ = home.settled(2, states=("failed", "recorded"))
    assert (failed["state"], failed["attempt"]) == ("failed", 3)
    assert home.said()[0] == ("user", "poison") and home.said()[-2:] == [("user", "next"), ("assistant", "re next")]

    home.script({"text": "mended {message}"})
    assert home.json("messages", "retry", "1")["state"] == "received"
    home.settled(2)
    texts = [content for _, content in home.said()]
    assert texts.count("poison") == 1 and texts[-1] == "mended poison"
    assert [each["state"] for each in home.deliveries()] == ["sent"] * 3
    again = home.cli("messages", "retry", "1")
    assert again.returncode == 1 and "only a failed one" in again.stderr


def stored(home: Home) -> list[tuple[str, bool]]:
    """What the platform `mute` was sent: (text, whether it was marked as a repeat)."""
    lines = (home.root / "mute.out").read_text().splitlines()
    return [(each["text"], each["repeat"]) for each in map(json.loads, lines)]


def mute(home: Home, fault: str) -> None:
    """A daemon with a platform that cannot tell whether a send arrived, killed while it answers there."""
    home.script({"text": "re {message}"})
    (home.root / "mute.in").write_text(json.dumps({"id": "m1", "text": "one"}) + "\n")
    (home.root / "mute.out").touch()
    (home.root / "people.toml").write_text(
        'schema = 1\n[[people]]\nname = "ann"\nrole = "owner"\naccounts = ["mute:7"]\n'
    )
    home.json("groups", "add", "main")
    home.json("groups", "set", "main", "bindings", '["terminal:main", "mute:7"]')
    home.start(fault, module="tests.system.elsewhere")
    assert home.wait() == -signal.SIGKILL


@pytest.mark.parametrize(("fault", "before"), [("kill@sending", 0), ("kill@sent", 1)])
def test_a_send_in_doubt_is_repeated_once_and_marked(home: Home, fault: str, before: int) -> None:
    mute(home, fault)
    assert [each["state"] for each in home.deliveries()] == ["sending"]
    (home.root / "mute.rules").write_text("refuse")
    home.start(module="tests.system.elsewhere")
    until(lambda: home.deliveries(state="unknown", error="the platform is busy"))
    for _ in range(2):  # the second start finds nothing left to do
        home.kill()
        (home.root / "mute.rules").unlink(missing_ok=True)
        home.start(module="tests.system.elsewhere")
        [message] = home.settled(1)
        assert message["channel"] == "mute"
        until(lambda: home.deliveries(state="resent") and len(stored(home)) == before + 1)
    assert stored(home) == [("re one", False)] * before + [(REPEAT + "re one", True)]
    assert home.said() == [("user", "one"), ("assistant", "re one")]


def test_a_repeat_that_is_in_doubt_too_is_left_at_that(home: Home) -> None:
    mute(home, "kill@sent")
    (home.root / "mute.rules").write_text("hang")
    home.start(module="tests.system.elsewhere")
    until(lambda: len(stored(home)) == 2)
    (home.root / "mute.rules").unlink()
    home.kill()
    home.start(module="tests.system.elsewhere")
    home.say("are you there")
    home.settled(2)
    assert [each["state"] for each in home.deliveries(channel="mute")] == ["resent"]
    assert stored(home) == [("re one", False), (REPEAT + "re one", True)]
