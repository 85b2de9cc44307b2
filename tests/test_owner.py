"""Where the owner is told what goes wrong: where they spoke last and it can be heard, else at the terminal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from clawd.config.begin import init_home
from clawd.config.home import Home
from clawd.ledger.db import Ledger
from clawd.ledger.deliveries import Address
from clawd.signals import News, Signals
from tests.approvals.conftest import ADA, TERMINAL, World

pytestmark = pytest.mark.anyio
CLEO = Address("telegram", "", "9", "")


@pytest.fixture
def world(tmp_path: Path) -> World:
    home = Home(tmp_path / "h")
    init_home(home, user="Ada")
    return World(home, Ledger.open(home.ledger_file))


def people(old: str, new: str) -> Callable[[World], None]:
    def edit(world: World) -> None:
        file = world.home.people_file
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))

    return edit


def only(*live: str) -> Callable[[World], None]:
    def edit(world: World) -> None:
        world.live.clear()
        world.live |= set(live)

    return edit


@pytest.mark.parametrize(
    ("change", "but_not", "at"),
    [
        (lambda world: None, None, ADA),
        (lambda world: world.meet("telegram", "9", "telegram:9", "Cleo"), None, CLEO),
        (lambda world: world.meet("telegram", "8", "telegram:8", "bob"), None, ADA),  # no owner
        (lambda world: world.meet("telegram", "-5", "telegram:9", "Cleo", direct=False), None, ADA),  # others read it
        (lambda world: world.meet("slack", "D1", "slack:T012/U345", "Ada"), "telegram", Address("slack", "", "D1", "")),
        (only("slack"), None, TERMINAL),
        (only(), None, TERMINAL),
        (lambda world: None, "telegram", TERMINAL),
        (people('"telegram:7", ', ""), None, CLEO),  # an account that is hers no more
        (people('name = "Ada"\nrole = "owner"', 'name = "Ada"\nrole = "member"'), None, CLEO),
        (people("schema", "nonsense"), None, TERMINAL),
    ],
)
async def test_where_they_are_told(
    world: World, change: Callable[[World], None], but_not: str | None, at: Address
) -> None:
    change(world)
    await world.owner.tell("it broke", but_not)
    assert [row["text"] for row in world.sent(at)] == ["it broke"] and world.told == [at]
    assert world.ledger.tx(lambda tx: tx.all("SELECT COUNT(*) AS n FROM delivery"))[0]["n"] == 1
    world.ledger.close()


async def test_at_the_terminal_once_while_nobody_has_seen_it(world: World) -> None:
    world.live.clear()
    await world.owner.tell("it broke")
    world.ledger.tx(lambda tx: tx.execute("UPDATE delivery SET state = 'sent'"))
    await world.owner.tell("it broke")
    assert len(world.sent(TERMINAL)) == 1
    world.ledger.tx(lambda tx: tx.execute("UPDATE delivery SET seen = 1"))
    await world.owner.tell("it broke")
    assert len(world.sent(TERMINAL)) == 2
    world.ledger.close()


async def test_the_same_trouble_is_told_once_a_day(world: World) -> None:
    signals = Signals()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.owner.troubles, signals)
        await anyio.wait_all_tasks_blocked()
        for ahead, count in ((0, 1), (80_000, 1), (6_401, 2)):
            world.clock.advance(ahead)
            signals.emit(News("trouble", data={"what": "it broke"}))
            with anyio.fail_after(10):
                while len(world.told) < count:
                    await anyio.sleep(0.005)
        signals.emit(News("trouble", data={"what": "something else"}))
        with anyio.fail_after(10):
            while len(world.told) < 3:
                await anyio.sleep(0.005)
        tasks.cancel_scope.cancel()
    assert [row["text"] for row in world.sent()] == ["it broke", "it broke", "something else"]
    world.ledger.close()
