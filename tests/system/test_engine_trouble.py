"""What goes wrong with the Engine, an image or a container while clawd runs: a sentence in the chat, once; nothing
lost, nothing doubled; and when the trouble is over all goes on without a command. What a restart of the daemon finds
is in `test_adoption.py`."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dockerd import Dockerd, client
from tests.engine import Engine
from tests.system.conftest import DEADLINE, call, until
from tests.system.ground import Ground, ground

pytestmark = pytest.mark.engine

KEEP = {"CLAWD_SANDBOX__KEEP": "true"}
WAIT = "until [ -e go ]; do sleep 0.05; done; echo it went on"
KEPT = "Your message is kept and will be answered as soon as that is possible: "
STEPS = (call("send_message", text="half of {message}"), call("bash", command=WAIT), {"text": "re {message}"})


@pytest.fixture
def home(engine: Engine) -> Iterator[Ground]:
    """Its agents live in containers."""
    with ground(engine=engine) as made:
        yield made


@pytest.fixture
def fragile(engine: Engine, dockerd: Dockerd) -> Iterator[Ground]:
    """On an Engine that the test may end."""
    with ground(engine=Engine(dockerd.host, engine.image)) as made:
        try:
            yield made
        finally:
            dockerd.freeze(False)
            dockerd.again()


def told(home: Ground, group: str = "main") -> list[str]:
    """What the chat of a group was told beside its replies, oldest first."""
    sql = "SELECT text FROM delivery WHERE kind = 'notice' AND session = ? ORDER BY id"
    return [row["text"] for row in home.rows(sql, f"terminal:{group}")]


def replies(home: Ground) -> list[str]:
    """What was said in turns, all of it sent, oldest first."""
    assert not home.rows("SELECT 1 FROM delivery WHERE state <> 'sent'")
    return [row["text"] for row in home.rows("SELECT text FROM delivery WHERE kind = 'text' ORDER BY id")]


def held(home: Ground, sentence: str, group: str = "main") -> None:
    """The group's newest message waits, and the chat was told why, once."""

    def waits() -> bool:
        rows = home.messages(group=group, state="held")
        return bool(rows) and sentence in rows[-1]["reason"]

    until(waits)
    assert len(until(lambda: told(home, group))) == 1, told(home, group)
    assert told(home, group)[0].startswith(KEPT) and sentence in told(home, group)[0]


def lines(home: Ground, group: str = "main") -> list[str]:
    """The command lines of the processes in a group's sandbox."""
    work, found = bytes(home.layout.group(group).work), []
    for pid in home.sandboxed():
        with contextlib.suppress(OSError):
            if work in Path(f"/proc/{pid}/mountinfo").read_bytes():
                found.append(Path(f"/proc/{pid}/cmdline").read_text())
    return found


def in_a_tool(home: Ground, group: str = "main") -> str:
    """A turn has sent a message and stands in its tool, which ends when there is `go`. Gives its container."""
    home.say(f"to {group}", group)
    until(lambda: any(WAIT in line for line in lines(home, group)))
    return container(home, group)


def let_it_end(home: Ground, group: str = "main") -> None:
    (home.layout.group(group).work / "go").touch()


def container(home: Ground, group: str = "main") -> str:
    """The id of the group's living container."""
    [id] = [row["id"] for row in home.ask("sandbox.list") if row["group"] == group]
    return str(id)


def by_hand(home: Ground, what: Callable[[Any, str], object], id: str) -> None:
    """What a person does to a container with the docker command."""
    assert home.engine
    with contextlib.closing(client(home.engine.host)) as docker:
        what(docker.api, id)


# ---- the Engine


def test_with_no_engine_at_all_messages_wait_and_are_answered_when_it_comes(fragile: Ground, dockerd: Dockerd) -> None:
    dockerd.kill(signal.SIGTERM)
    fragile.start()
    answer = fragile.answer("say one", code=1)
    assert "no Docker Engine is at" in answer["error"] and "systemctl start docker" in answer["error"], answer
    held(fragile, "no Docker Engine is at")
    fragile.kill()
    fragile.start()
    fragile.say("say two")
    until(lambda: len(fragile.messages(state="held")) == 2)
    until(lambda: len(told(fragile)) == 2)
    dockerd.again()
    fragile.settled(2)
    assert replies(fragile) == ["one", "two"] and len(told(fragile)) == 2
    assert [message["attempt"] for message in fragile.messages()] == [1, 1]


def test_a_paused_sandbox_whose_engine_crashed_is_told_once_and_replaced(fragile: Ground, dockerd: Dockerd) -> None:
    fragile.start(**KEEP)
    assert fragile.reply("say one") == "one"
    before = container(fragile)
    until(lambda: [each["state"] for each in fragile.ask("sandbox.list")] == ["paused"])
    dockerd.kill()
    fragile.say("say two")
    held(fragile, "no Docker Engine is at")
    dockerd.again()
    fragile.settled(2)
    assert replies(fragile) == ["one", "two"] and len(told(fragile)) == 1
    assert before not in [each.id for each in fragile.containers()]


def test_an_engine_that_hangs_blocks_nothing(fragile: Ground, dockerd: Dockerd) -> None:
    fragile.script(*STEPS)
    fragile.start(**KEEP)
    fragile.json("groups", "add", "other")
    in_a_tool(fragile)
    dockerd.freeze()
    fragile.say("to other", "other")
    held(fragile, "does not answer", "other")
    assert fragile.json("status")["turns"] == {"queued": 0, "running": 1, "held": 1}
    assert "does not answer" in fragile.done("doctor", code=1).stdout
    let_it_end(fragile)
    until(lambda: fragile.messages(group="main", state="recorded"))  # no Engine is needed for that
    fragile.kill()
    fragile.start(**KEEP)  # it answers, whatever the Engine does
    assert fragile.json("status")["ready"]
    fragile.say("more")
    began = time.monotonic()
    assert fragile.stop() == 0
    assert time.monotonic() - began < 10  # less than a call to the Engine may take
    dockerd.freeze(False)
    fragile.start(**KEEP)
    let_it_end(fragile, "other")
    fragile.settled(3)
    said = {f"{half} {text}" for half in ("half of", "re") for text in ("to main", "to other", "more")}
    assert set(replies(fragile)) == said and len(replies(fragile)) == len(said)
    assert (told(fragile), len(told(fragile, "other"))) == ([], 1)
    assert [message["attempt"] for message in fragile.messages()] == [1, 1, 1]


def test_a_container_that_does_not_die_is_told_and_its_turn_ends_when_it_does(
    fragile: Ground, dockerd: Dockerd
) -> None:
    fragile.script(*STEPS)
    fragile.start(**KEEP)
    before = in_a_tool(fragile)
    first, _ = fragile.sandbox_processes()
    by_hand(fragile, lambda api, id: api.pause(id), before)
    dockerd.freeze()
    fragile.say("/stop")
    fragile.script({"text": "re {message}"})
    fragile.say("after it")
    until(lambda: [text for text in told(fragile) if text.startswith(KEPT)])
    undying = Path(f"/proc/{first}").exists()  # where cgroups are of version 2, a frozen one can be killed
    assert ("does not end" if undying else "does not answer") in told(fragile)[1]
    assert fragile.messages()[0]["state"] == ("claimed" if undying else "stopped")
    dockerd.freeze(False)
    until(lambda: fragile.messages(state="recorded", turn=2))
    assert fragile.messages()[0]["state"] == "stopped"
    assert replies(fragile) == ["half of to main", "re after it"]
    assert before not in [each.id for each in fragile.containers()]
    assert [text.startswith(KEPT) for text in told(fragile)] == [False, True]  # "Stopped.", and why the next waits


@contextlib.contextmanager
def no_space(dockerd: Dockerd) -> Iterator[None]:
    """Where the Engine keeps its containers there is no room, as it sees it; no other has a part in that."""
    place = str(dockerd.cache / "data" / "containers")
    inside = ["nsenter", "--mount", "--target", str(dockerd.running())]
    full = ["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=1", "none", place]
    subprocess.run([*inside, *full], check=True)
    try:
        yield
    finally:
        subprocess.run([*inside, "umount", place], check=True)


def test_an_engine_without_space_is_told_once(fragile: Ground, dockerd: Dockerd) -> None:
    fragile.start()
    with no_space(dockerd):
        answer = fragile.answer("say one", code=1)
        assert "the Docker Engine has no space left (docker system df)" in answer["error"], answer
        held(fragile, "has no space left")
        until(lambda: fragile.logged().count("is held: ") > 1)  # tried again, and not told again
        assert fragile.containers() == []
    fragile.settled(1)
    assert replies(fragile) == ["one"] and len(told(fragile)) == 1


# ---- the image, and what a group asks for


def test_an_image_that_was_lost_holds_the_next_start_until_it_is_built(home: Ground) -> None:
    assert home.engine
    own = f"clawd-lost:{home.root.parent.name.lower().replace('_', '0')}"
    with contextlib.closing(client(home.engine.host)) as docker:
        docker.images.get(home.engine.image).tag(own)
        try:
            home.start(CLAWD_SANDBOX__IMAGE=own)
            home.json("groups", "add", "other")
            assert home.reply("say one") == "one"
            docker.images.remove(own)
            answer = home.answer("say two", "--group", "other", code=1)
            assert f"the image {own} is not built (clawd image build)" in answer["error"], answer
            assert home.reply("say three") == "three"  # its sandbox is there
            held(home, own, "other")
            home.done("image", "build", "--base", home.engine.image, CLAWD_SANDBOX__IMAGE=own)
            home.settled(3)
            assert sorted(replies(home)) == ["one", "three", "two"] and len(told(home, "other")) == 1
        finally:
            home.end()
            with contextlib.suppress(Exception):  # it is gone
                docker.images.remove(own)


def test_what_the_engine_refuses_holds_its_group_alone_with_the_engine_s_reason(home: Ground) -> None:
    home.start()
    home.json("groups", "add", "other")
    home.json("groups", "set", "other", "sandbox.memory", "1m")
    answer = home.answer("say one", "--group", "other", code=1)
    assert "the Docker Engine refused: Minimum memory limit allowed is" in answer["error"], answer
    assert home.reply("say two") == "two"
    held(home, "refused: Minimum memory", "other")
    home.json("groups", "set", "other", "sandbox.memory", "256m")
    home.settled(2)
    assert sorted(replies(home)) == ["one", "two"] and len(told(home, "other")) == 1
    assert len(home.containers()) == 2


# ---- containers


def test_one_that_runs_out_of_memory_costs_attempts_and_the_third_is_told(home: Ground) -> None:
    fills = [call("bash", command=f"until [ -e go{n} ]; do :; done; cat /dev/zero >/tmp/full") for n in range(3)]
    home.script(*fills, {"text": "re {message}"}, sandbox='memory = "64m"')
    home.start()
    waiting = home.chat("-m", "one")
    for n in range(3):
        until(lambda n=n: any(f"go{n} ]" in line for line in lines(home)))  # type: ignore[misc]
        # A hog of its own is killed in its place: only one that the kernel likes less does it harm.
        Path(f"/proc/{home.runner()}/oom_score_adj").write_text("1000")
        (home.layout.group("main").work / f"go{n}").touch()
    said, complaint = waiting.communicate(timeout=DEADLINE)
    assert "ran out of memory (it may use 64 MB)" in said + complaint and "3 times" in said + complaint, (
        said + complaint
    )
    [message] = home.settled(1, states=("failed",))
    assert message["attempt"] == 3 and len(told(home)) == 1
    home.script({"text": "re {message}"})
    assert home.reply("two") == "re two"


def test_what_a_person_does_to_a_container_in_mid_turn(home: Ground) -> None:
    groups = {"stopped": 2, "thawed": 1, "frozen": 1}
    home.script(*STEPS)
    home.start()
    for group in groups:
        home.json("groups", "add", group)
    ids = {group: in_a_tool(home, group) for group in groups}
    home.script({"text": "re {message}"})
    by_hand(home, lambda api, id: (api.pause(id), api.unpause(id)), ids["thawed"])
    by_hand(home, lambda api, id: api.pause(id), ids["frozen"])
    by_hand(home, lambda api, id: api.stop(id, timeout=1), ids["stopped"])
    let_it_end(home, "thawed")
    home.say("/stop", "frozen")  # what does not hear it is ended
    until(lambda: not [row for row in home.messages() if row["state"] not in ("recorded", "stopped")])
    assert {row["group"]: row["attempt"] for row in home.messages() if row["turn"]} == groups
    assert home.messages(group="frozen")[0]["state"] == "stopped"
    assert home.reply("again", "--group", "frozen") == "re again"
    half = [f"half of to {group}" for group in groups]
    assert sorted(replies(home)) == sorted([*half, "re to stopped", "re to thawed", "re again"])
    assert told(home, "stopped") == told(home, "thawed") == []


def test_what_a_person_does_to_an_idle_one_is_not_worth_a_word(home: Ground) -> None:
    done: dict[str, Callable[[Any, str], object]] = {
        "stopped": lambda api, id: api.stop(id, timeout=1),
        "removed": lambda api, id: api.remove_container(id, force=True),
        "thawed": lambda api, id: api.unpause(id),
    }
    home.start()
    for group in done:
        home.json("groups", "add", group)
        home.reply("say one", "--group", group)
    until(lambda: [row["state"] for row in home.ask("sandbox.list")] == ["paused"] * len(done))
    for group, what in done.items():
        by_hand(home, what, container(home, group))
    for group in done:
        assert home.reply("say two", "--group", group) == "two"
    assert [message["attempt"] for message in home.messages()] == [1] * 6
    assert not home.rows("SELECT 1 FROM delivery WHERE kind = 'notice'")
    assert len(home.containers()) == len(done)


@pytest.mark.parametrize("point", ["begun", "created", "made"])
def test_a_daemon_killed_while_it_makes_a_container_leaves_none(home: Ground, point: str) -> None:
    home.start(f"kill@{point}", **KEEP)
    with contextlib.suppress(ConnectionError):
        home.say("say one")
    assert home.wait() == -9
    left = [each.id for each in home.containers()]
    assert len(left) == (point != "begun")
    home.start(**KEEP)
    [message] = home.settled(1)
    assert message["attempt"] == 1 and replies(home) == ["one"] and not told(home)
    assert [each.id for each in home.containers()] == [container(home)]
    home.json("sandbox", "stop", "main")
    until(lambda: not home.containers())


def test_two_homes_on_one_engine_leave_each_other_alone(engine: Engine) -> None:
    with ground(engine=engine) as one, ground(engine=engine) as other:
        other.script(*STEPS)
        other.start(**KEEP)
        before = in_a_tool(other)
        one.start(**KEEP)
        assert one.reply("say one") == "one"
        one.kill()
        [left] = [each.id for each in one.containers()]
        by_hand(one, lambda api, id: api.remove_container(id, force=True), left)
        one.start(**KEEP)  # and looks for what is left
        assert one.reply("say two") == "two"
        one.json("sandbox", "stop", "main")
        assert one.stop() == 0 and one.containers() == []
        assert container(other) == before
        let_it_end(other)
        [message] = other.settled(1)
        assert message["attempt"] == 1 and replies(other) == ["half of to main", "re to main"]
        assert [each.id for each in other.containers()] == [before]
