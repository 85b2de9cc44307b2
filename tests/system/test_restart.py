"""One daemon a home; how it ends, goes on, takes a new config; and what a person can say to it meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from clawd.daemon import TURN_GRACE_S
from tests.system.conftest import BOTH, DEADLINE, Home, call, until

GRACE = 20.0  # seconds that a person is promised for an end in mid-turn


def asleep(home: Home, **more: Any) -> dict[str, Any]:
    """A turn of the group stands in a tool that a shell runs; gives its message."""
    home.say("go", **more)
    until(lambda: home.named("sleep 600"))
    [message] = home.messages(state="claimed")
    return message


SLEEP = call("bash", command="sleep 600")


def test_a_second_daemon_ends_with_3_and_names_the_first(home: Home) -> None:
    first = home.start()
    done = home.cli("run", "--json")
    assert done.returncode == 3
    assert str(first.pid) in done.stderr and str(first.pid) in json.loads(done.stdout)["error"]
    assert home.ask("status")["pid"] == first.pid


@BOTH
def test_sigterm_in_mid_turn_ends_in_time_and_the_turn_is_finished_after_the_restart(home: Home) -> None:
    home.script(SLEEP, {"text": "re {message}"})
    home.start()
    waiting = home.chat("-m", "one")
    until(lambda: home.named("sleep 600"))
    began = time.monotonic()
    assert home.stop() == 0
    assert time.monotonic() - began < 5 * GRACE
    assert not home.left_over()
    home.start()
    said, told = waiting.communicate(timeout=DEADLINE)
    assert (waiting.returncode, said) == (0, "re one\n"), told
    [message] = home.settled(1)
    assert message["attempt"] == 1
    assert [role for role, _ in home.said()] == ["user", "assistant", "tool", "assistant"]


@BOTH
def test_a_second_sigterm_ends_at_once_and_loses_nothing(home: Home) -> None:
    home.script(SLEEP, {"text": "re {message}"})
    daemon = home.start()
    asleep(home)
    daemon.terminate()
    until(lambda: any(line["msg"] == "ending" for line in home.log()))
    daemon.terminate()
    assert home.wait() == 1
    until(lambda: home.engine or not home.sandboxed())
    home.start()
    for pid in home.named("sleep 600"):  # a container waited for this daemon, and what runs in it went on
        os.kill(pid, signal.SIGKILL)
    [message] = home.settled(1)
    assert message["attempt"] == 1


@BOTH
def test_sigterm_while_idle_waits_for_nothing(home: Home) -> None:
    home.start()
    assert home.cli("chat", "-m", "say hi").stdout == "hi\n"
    began = time.monotonic()
    assert home.stop() == 0
    assert time.monotonic() - began < TURN_GRACE_S  # which a live turn would get
    assert not home.left_over()
    assert home.said() == [("user", "say hi"), ("assistant", "hi")]


def test_a_bad_config_is_refused_and_told_and_a_good_one_is_taken(home: Home) -> None:
    daemon = home.start()
    good = home.layout.config_file.read_text()
    home.layout.config_file.write_text(good + "[claww]\n")
    daemon.send_signal(signal.SIGHUP)
    until(lambda: home.deliveries(kind="notice", state="sent"))
    daemon.send_signal(signal.SIGHUP)
    until(lambda: sum("refused" in line["msg"] for line in home.log()) == 2)
    done = home.cli("chat", "-m", "say still here")
    assert done.stdout == "still here\n"
    talk = home.cli("chat", text="say and now\n")
    assert talk.stdout.count("refused") == 1 and "claww" in talk.stdout and talk.stdout.count("and now") == 1
    home.script({"text": "played {message}"}, more='[logging]\nlevel = "error"')
    daemon.send_signal(signal.SIGHUP)
    until(lambda: any("config reloaded" in line["msg"] for line in home.log()))
    assert home.cli("chat", "-m", "one").stdout == "played one\n"
    assert "from the next start on: logging.level: info → error" in home.cli("chat", text="two\n").stdout
    assert home.ask("status")["pid"] == daemon.pid


@BOTH
def test_a_conversation_goes_on_across_restarts_without_losing_or_repeating_a_line(home: Home) -> None:
    home.start()
    talk = home.chat()
    assert talk.stdin is not None and talk.stdout is not None
    os.set_blocking(talk.stdout.fileno(), False)
    heard = bytearray()

    def hears(text: str) -> bool:
        heard.extend(os.read(talk.stdout.fileno(), 1 << 16))  # type: ignore[union-attr]
        return text.encode() in heard

    for number, fault in enumerate([None, "kill@received", "kill@sent", None]):
        if number:  # by now it is connected; before, it would start a daemon of its own
            home.kill()
            home.start(fault)
        talk.stdin.write(f"say word{number}\n")
        talk.stdin.flush()
        if fault:
            assert home.wait() == -signal.SIGKILL
            home.start()
        until(lambda: hears(f"word{number}"))  # noqa: B023
    talk.stdin.close()
    talk.stdin = None
    assert talk.wait(DEADLINE) == 0
    with_rest = heard.decode() + talk.stdout.read()
    lines = [line for line in with_rest.splitlines() if line.startswith("word")]
    assert lines == [f"word{number}" for number in range(4)]
    home.settled(4)


@BOTH
def test_stop_ends_a_turn_and_everything_that_it_started(home: Home) -> None:
    home.script(SLEEP, {"text": "never said"})
    home.start()
    waiting = home.chat("-m", "one")
    until(lambda: home.named("sleep 600"))
    assert home.cli("chat", "-m", "/stop").stdout == "Stopped.\n"
    said, told = waiting.communicate(timeout=DEADLINE)
    assert waiting.returncode == 1 and "stopped" in told and "never said" not in said
    until(lambda: home.messages(state="stopped"))
    until(lambda: not home.named("sleep 600"))
    assert home.said()[-1] == ("system", "[stopped by the person]")
    home.script({"text": "re {message}"})
    assert home.cli("chat", "-m", "two").stdout == "re two\n"


@BOTH
def test_a_stop_holds_although_the_daemon_is_killed_right_after(home: Home) -> None:
    home.script(SLEEP, {"text": "never said"})
    home.start()
    asleep(home)
    home.say("/stop")
    home.kill()
    home.start()
    until(lambda: home.messages(state="stopped"))
    assert not home.named("sleep 600")
    until(lambda: home.said()[-1:] == [("system", "[stopped by the person]")])
    until(lambda: [(each["kind"], each["state"]) for each in home.deliveries()] == [("notice", "sent")])


def test_stop_all_clears_what_waits_too(home: Home) -> None:
    home.script(SLEEP, {"text": "never said"})
    home.start()
    asleep(home)
    for text in ("two", "three"):
        home.say(text)
    assert "2 waiting" in home.cli("chat", "-m", "/status").stdout
    assert home.cli("chat", "-m", "/stop all").stdout == "Stopped. 2 waiting messages cleared.\n"
    until(lambda: len(home.messages(state="stopped")) == 3)
    assert not home.deliveries(kind="text")


def test_new_begins_a_file_of_its_own_and_keeps_the_old_one(home: Home) -> None:
    home.start()
    assert home.cli("chat", "-m", "say one").stdout == "one\n"
    assert "terminal:main.2" in home.cli("chat", "-m", "/new").stdout
    assert home.json("chat", "-m", "say two")["session"] == "terminal:main.2"
    home.settled(3)
    assert home.said(session="terminal:main.2") == [("user", "say two"), ("assistant", "two")]
    first = Path(home.json("session", "list")[0]["file"])
    assert "say one" in first.read_text() and "say two" not in first.read_text()


def test_status_and_help_are_answered_while_a_turn_runs(home: Home) -> None:
    home.script(SLEEP, {"text": "never said"})
    home.start()
    turn = asleep(home)["turn"]
    done = home.cli("chat", "-m", "/status")
    assert f"working on turn {turn}, attempt 1" in done.stdout and "1 at work" in done.stdout
    assert done.stderr == "", "said twice"
    assert "/stop" in home.cli("chat", "-m", "/help").stdout


@BOTH
def test_a_warm_sandbox_serves_the_next_turn_too(home: Home) -> None:
    home.start()
    runs = []
    for text in ("one", "two"):
        assert home.cli("chat", "-m", f"say {text}").stdout == f"{text}\n"
        runs.append([row["run"] for row in home.ask("sandbox.list")])
    assert runs[0] == runs[1] and len(runs[0]) == 1


@BOTH
def test_a_sandbox_ends_when_it_was_warm_for_long_enough(home: Home) -> None:
    home.configure(sandbox="warm_minutes = 0.01")
    home.start()
    assert home.cli("chat", "-m", "say hi").stdout == "hi\n"
    until(lambda: home.ask("sandbox.list") == [])
    assert not home.left_over()
    assert home.cli("chat", "-m", "say again").stdout == "again\n"


@BOTH
def test_six_busy_groups_share_two_places(home: Home) -> None:
    home.script({"text": "re {message}"}, sandbox="max_live = 2")
    groups = [f"g{n}" for n in range(6)]
    for group in groups:
        home.layout.group(group).root.mkdir()
        home.layout.group(group).config_file.write_text('followups = "queue"\n')  # a turn for each message
    home.start()
    for text in ("one", "two"):
        for group in groups:
            home.say(text, group)

    def served() -> bool:
        assert len(home.ask("sandbox.list")) <= 2
        rows = home.messages()
        return len(rows) == 12 and {row["state"] for row in rows} == {"recorded"}

    until(served)
    for group in groups:
        assert home.said(group) == [("user", "one"), ("assistant", "re one"), ("user", "two"), ("assistant", "re two")]


@BOTH
def test_twenty_sessions_over_four_groups_are_all_served_at_once(home: Home) -> None:
    home.script({"text": "re {message}", "delay_s": 0.1})
    names = [(f"g{n % 4}", f"terminal:g{n % 4}:s{n}") for n in range(20)]
    for group, _ in names[:4]:
        home.layout.group(group).root.mkdir()
    home.start()
    talking: list[subprocess.Popen[str]] = []
    for group, session in names[:2]:
        talking.append(home.chat("-m", "hello", "--group", group, "--session", session))
    for group, session in names[2:]:
        home.say("hello", group, session=session)
    home.settled(20)
    for each in talking:
        assert each.communicate(timeout=DEADLINE)[0] == "re hello\n"
    for group, session in names:
        assert home.said(group, session) == [("user", "hello"), ("assistant", "re hello")]
