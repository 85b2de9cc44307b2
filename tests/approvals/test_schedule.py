"""Schedules that agents ask for: what may not be, what the owner is told, and that a yes to a change is for the file as
it was."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from clawd.approvals import alone
from clawd.approvals.schedule import Action
from clawd.errors import UsageError
from clawd.ledger import authored
from clawd.schedules import edits
from clawd.schedules.making import MOST
from clawd.trust import Role
from tests.approvals.conftest import STRETCH, World

pytestmark = pytest.mark.anyio
MINE = '# mine\nschema = 1\nevery = "1h" # of every day\nprompt = "look"\n'


def effect(action: Action = "add", text: str = STRETCH, id: str = "stretch") -> dict[str, Any]:
    return {"group": "main", "id": id, "action": action, "text": text, "sha256": edits.digest(text)}


def there(world: World) -> Any:
    return world.effects()["files"]


async def test_an_agent_may_not_fill_a_group(world: World) -> None:
    world.desk.accept()
    directory = world.home.group("main").schedules
    await world.ask("schedule", id="waits", text=STRETCH + "#", sha256=edits.digest(STRETCH + "#"))
    for n in range(MOST - 2):
        edits.put(directory, f"s{n}", MINE)
    number = await world.ask("schedule")  # the last that may be; its own place is not taken by itself
    with pytest.raises(UsageError, match="has 50 schedules"):
        await world.approvals.ask("schedule", effect(text=STRETCH + "\n", id="more"))
    async with world.working():
        await world.typed(number)
    assert world.state(number) == "done"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"text": STRETCH.replace("-100", "-7")}, "telegram:-7 is no binding of the group main; it has terminal:main"),
        ({"id": "mine"}, "there is a schedule mine already"),
        ({"action": "pause", "id": "mine"}, "the schedule mine was changed"),
        ({"action": "remove", "id": "other"}, "there is no schedule other"),
    ],
)
async def test_what_cannot_be_is_not_asked(world: World, change: dict[str, Any], why: str) -> None:
    world.desk.accept()
    edits.put(world.home.group("main").schedules, "mine", MINE)
    asked = effect() | change
    with pytest.raises(UsageError, match=why):
        await world.approvals.ask("schedule", {**asked, "sha256": edits.digest(asked["text"])})


async def test_the_same_words_of_another_turn_are_asked_once_also_after_a_no(world: World) -> None:
    world.desk.accept()
    number, later = await world.ask("schedule"), effect(text=STRETCH.replace("turn 1", "turn 2"))
    assert not (await world.approvals.ask("schedule", later)).fresh
    async with world.working():
        await world.typed(number, "deny")
    assert (await world.approvals.ask("schedule", later)).state == "denied" and there(world) == {}


async def test_for_whom_it_acts_is_said_by_what_is_known_and_not_by_what_is_written(world: World) -> None:
    turn = world.turn(Role.MEMBER, 0.2)
    lie = STRETCH.replace("member", "owner")
    world.ledger.tx(lambda tx: authored.note(tx, "schedule", "main", "x", edits.digest(lie), turn, world.now()))
    number = await world.ask("schedule", text=lie, sha256=edits.digest(lie))
    assert "It acts for nobody above member, and is trusted at 0.2" in world.row(number)["words"]
    edits.put(world.home.group("main").schedules, "mine", MINE)
    number = await world.ask("schedule", **effect("remove", MINE, "mine"))
    words = world.row(number)["words"]
    assert "may I take away the schedule mine of the group main?" in words and "It acts for you" in words


async def test_a_change_is_of_the_file_as_it_was_and_keeps_what_a_person_wrote(world: World) -> None:
    world.desk.accept()
    directory = world.home.group("main").schedules
    edits.put(directory, "mine", MINE)
    pause = await world.ask("schedule", **effect("pause", MINE, "mine"))
    remove = await world.ask("schedule", **effect("remove", MINE, "mine"))
    async with world.working():
        await world.typed(pause)
    paused = there(world)["mine"]
    assert paused == MINE + "enabled = false\n" and world.state(pause) == "done"
    async with world.working():
        await world.typed(remove)
    assert world.state(remove) == "void" and there(world) == {"mine": paused}
    async with world.working():
        await world.typed(await world.ask("schedule", **effect("resume", paused, "mine")))
    resumed = there(world)["mine"]
    assert resumed == MINE + "enabled = true\n"
    async with world.working():
        await world.typed(await world.ask("schedule", **effect("remove", resumed, "mine")))
    assert there(world) == {} and (directory / "done" / "mine.toml").read_text() == resumed


async def test_what_a_turn_may_do_by_itself_is_begun_and_only_a_failure_is_told(world: World) -> None:
    turn, other = world.turn(Role.OWNER, 1.0), effect(id="other")

    async def do(effect: dict[str, Any]) -> None:
        await world.ledger.do(lambda tx: world.approvals.do_in(tx, "schedule", effect, turn=turn))

    def told() -> list[str]:
        wakes = world.ledger.tx(lambda tx: tx.all("SELECT text FROM wake WHERE kind = 'approval'"))
        return [json.loads(wake["text"])[0]["text"] for wake in wakes]

    async with world.working(), anyio.create_task_group() as tasks:
        tasks.start_soon(world.approvals.run)
        await do(effect())
        world.approvals.look_again()
        with anyio.fail_after(10):
            while not world.scheduled:
                await anyio.sleep(0.005)
        assert there(world) == {"stretch": STRETCH} and not world.sent() and not told()
        await do(other)
        edits.put(world.home.group("main").schedules, "other", MINE)  # a person was faster
        world.approvals.look_again()
        with anyio.fail_after(10):
            while not told():
                await anyio.sleep(0.005)
        tasks.cancel_scope.cancel()
    why = "Nothing was done: what this rests on has changed since you were asked"
    assert told() == [f"You asked to add the schedule other. {why}."] and there(world)["other"] == MINE


async def test_without_a_daemon_it_is_decided(world: World) -> None:
    world.desk.accept()
    number = await world.ask("schedule")
    room = alone.approvals(world.home, world.ledger, world.clock)
    assert (await room.by_hand(number, "approve"))["state"] == "approved" and there(world) == {}
    world.restart()
    async with world.working():
        await world.approvals.recover()
    assert there(world) == {"stretch": STRETCH}
