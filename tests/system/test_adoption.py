"""Containers outlive their daemon: the next one goes on with them, whatever ended the first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dockerd import Dockerd
from tests.engine import Engine
from tests.system.conftest import Home, call, homes, until

pytestmark = pytest.mark.engine

KEEP = {"CLAWD_SANDBOX__KEEP": "true"}


@pytest.fixture
def home(engine: Engine) -> Iterator[Home]:
    """Its agents live in containers."""
    with homes(engine) as make:
        yield make()


@pytest.fixture
def fragile(engine: Engine, dockerd: Dockerd) -> Iterator[Home]:
    """On an Engine that the test may end."""
    with homes(Engine(dockerd.host, engine.image)) as make:
        yield make()
        dockerd.again()


def sandbox(home: Home, state: str) -> dict[str, Any]:
    """The one sandbox, once it is in this state."""

    def found() -> dict[str, Any] | None:
        rows = home.ask("sandbox.list")
        return rows[0] if [row["state"] for row in rows] == [state] else None

    shown: dict[str, Any] = until(found)  # type: ignore[assignment]
    return shown


def containers(home: Home) -> list[tuple[str, str]]:
    """Id and status of each."""
    return [(each.id, each.status) for each in home.containers()]


def in_a_tool(home: Home) -> dict[str, Any]:
    """A turn stands in its tool, which ends when there is a file. Gives its sandbox."""
    home.script(call("bash", command=WAIT), {"text": "re {message}"})
    home.start(**KEEP)
    home.say("one")
    until(lambda: any(WAIT.encode() in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in home.sandboxed()))
    return sandbox(home, "busy")


def let_it_end(home: Home) -> None:
    (home.layout.group("main").work / "go").touch()


def answered(home: Home, *, attempt: int = 1) -> None:
    """One reply."""
    [message] = home.settled(1)
    assert message["attempt"] == attempt
    assert [each["kind"] for each in home.deliveries()].count("text") == 1


WAIT = "until [ -e go ]; do sleep 0.05; done; echo it went on"


@pytest.mark.parametrize("end", ["kill -9", "sigterm"])
def test_a_daemon_that_ends_in_mid_turn_leaves_its_tool_running_and_the_next_has_the_one_reply(
    home: Home, end: str
) -> None:
    before = in_a_tool(home)
    if end == "kill -9":
        home.kill()
    else:
        assert home.stop() == 0
    [message] = home.messages()
    assert (message["state"], message["attempt"]) == ("claimed", 1)
    home.start(**KEEP)
    after = sandbox(home, "busy")
    assert (after["run"], after["id"]) == (before["run"], before["id"])
    let_it_end(home)
    answered(home)
    assert [role for role, _ in home.said()] == ["user", "assistant", "tool", "assistant"]
    assert "it went on" in home.said()[2][1] and [id for id, _ in containers(home)] == [before["id"]]


@pytest.mark.parametrize("end", ["kill -9", "sigterm"])
def test_a_warm_sandbox_is_paused_left_adopted_and_paused_again(home: Home, end: str) -> None:
    home.start(**KEEP)
    assert home.cli("chat", "-m", "say one").stdout == "one\n"
    before = sandbox(home, "paused")
    assert containers(home) == [(before["id"], "paused")]
    if end == "kill -9":
        home.kill()
    else:
        assert home.stop() == 0
        assert containers(home) == [(before["id"], "running")]
    home.start(**KEEP)
    assert sandbox(home, "paused")["run"] == before["run"]
    assert home.cli("chat", "-m", "say two").stdout == "two\n"
    done = home.cli("sandbox", "exec", "--", "echo", "hello")
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    assert sandbox(home, "paused")["run"] == before["run"]
    assert containers(home) == [(before["id"], "paused")]
    home.json("sandbox", "stop", "main")
    until(lambda: not containers(home))


def test_what_is_not_to_be_kept_ends_with_its_daemon(home: Home) -> None:
    home.start()
    assert home.cli("chat", "-m", "say one").stdout == "one\n"
    assert home.stop() == 0
    assert not home.left_over()
    assert home.cli("chat", "-m", "say two", **KEEP).stdout == "two\n"  # by a daemon that ends with it
    until(lambda: not home.left_over())


def test_one_that_died_while_no_daemon_ran_gives_its_turn_back_without_a_fault(home: Home) -> None:
    in_a_tool(home)
    home.kill()
    home.containers()[0].remove(force=True)
    home.script({"text": "re {message}"})
    home.start(**KEEP)
    answered(home)


def test_one_that_is_removed_by_hand_costs_its_turn_an_attempt(home: Home) -> None:
    in_a_tool(home)
    home.script({"text": "re {message}"})
    home.containers()[0].remove(force=True)
    answered(home, attempt=2)


# ---- the Engine's own trouble


def test_an_engine_that_is_restarted_in_mid_turn_costs_no_attempt(fragile: Home, dockerd: Dockerd) -> None:
    in_a_tool(fragile)
    fragile.script({"text": "re {message}"})
    dockerd.restart()
    answered(fragile)


def test_an_engine_that_crashes_in_mid_turn_is_not_needed_for_its_end(fragile: Home, dockerd: Dockerd) -> None:
    before = in_a_tool(fragile)
    dockerd.kill()
    let_it_end(fragile)
    answered(fragile)
    assert fragile.deliveries(kind="notice") == []
    dockerd.again()  # and takes its containers along
    assert fragile.cli("chat", "-m", "two").returncode == 0
    assert before["id"] not in [id for id, _ in containers(fragile)]


def test_with_an_engine_that_is_away_at_the_start_turns_wait_are_told_once_and_go_on(
    fragile: Home, dockerd: Dockerd
) -> None:
    in_a_tool(fragile)
    fragile.kill()
    dockerd.kill()
    fragile.script({"text": "re {message}"})
    fragile.start(**KEEP)
    fragile.say("two", session="terminal:another")
    until(lambda: fragile.messages(state="held"))
    assert [each["state"] for each in fragile.messages()] == ["claimed", "held"]
    dockerd.again()
    first, second = fragile.settled(2)
    assert (first["attempt"], second["attempt"]) == (1, 1)
    kinds = [each["kind"] for each in fragile.deliveries()]
    assert (kinds.count("text"), kinds.count("notice")) == (2, 2)
