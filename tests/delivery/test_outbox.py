"""The outbox against a stand-in platform that refuses, loses its answers, and remembers what it was sent."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawd.channel import NOTICE, ChannelLimits, NotSent, SendRefused, Unsure
from clawd.clock import SystemClock
from clawd.delivery.outbox import Outbox
from clawd.ledger import deliveries, groups
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.deliveries import Address
from clawd.model import Outgoing
from clawd.signals import Signals
from tests.ledger.conftest import NOW

pytestmark = pytest.mark.anyio
TO = Address("platform", "", "c1", "")


class Platform:
    """Each entry of `script` is what happens to one send: `ok`, or an exception that is raised before or after it."""

    name = "platform"
    blind = False  # it cannot tell after all

    def __init__(self, script: list[Any], tells: bool = False) -> None:
        self.script, self.limits = script, ChannelLimits(text=4000, tells=tells)
        self.stored: list[Outgoing] = []

    async def run(self, inbox: object) -> None: ...

    async def send(self, message: Outgoing) -> str:
        step = self.script.pop(0) if self.script else "ok"
        if isinstance(step, Exception):
            raise step
        self.stored.append(message)
        if step == "stored, answer lost":
            raise Unsure("timeout")
        return f"id{len(self.stored)}"

    async def find(self, message: Outgoing) -> str | None:
        if self.blind:
            raise Unsure("a right is missing")
        return "found" if any(each.nonce == message.nonce for each in self.stored) else None


def prepare(ledger: Ledger, texts: list[str], state: str | None = None) -> None:
    def work(tx: Transaction) -> None:
        groups.add(tx, "main", NOW)
        for text in texts:
            [id] = deliveries.enqueue(tx, TO, session="s", kind="text", text=text, now=NOW, limits=ChannelLimits())
            if state:
                tx.move("delivery", id, "send")

    ledger.tx(work)


async def drain(ledger: Ledger, platform: Platform, when: Callable[[], Awaitable[bool]]) -> None:
    async with anyio.create_task_group() as tasks:
        outbox = Outbox(ledger, Signals(), SystemClock(), {"platform": platform}, Path("/nowhere"), tasks)
        await outbox.start()
        with anyio.fail_after(20):
            while not (await when() and outbox.idle):
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()


@pytest.fixture
def ledger(tmp_path: Path) -> Any:
    ledger = Ledger.open(tmp_path / "ledger.db")
    yield ledger
    ledger.close()


async def states(ledger: Ledger) -> list[str]:
    rows = await ledger.do(lambda tx: tx.all("SELECT state FROM delivery WHERE channel = 'platform' ORDER BY id"))
    return [row["state"] for row in rows]


async def run(ledger: Ledger, platform: Platform) -> list[str]:
    async def decided() -> bool:
        return set(await states(ledger)) <= {"sent", "resent", "failed", "cancelled"}

    await drain(ledger, platform, decided)
    return await states(ledger)


async def test_rows_of_a_chat_leave_in_order(ledger: Ledger) -> None:
    prepare(ledger, ["a", "b", "c"])
    platform = Platform([NotSent("429", 0.01)])
    assert await run(ledger, platform) == ["sent"] * 3
    assert [each.text for each in platform.stored] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("script", "tells", "state", "seen"),
    [
        (["stored, answer lost"], False, "resent", 2),  # it cannot tell: once more, marked
        (["stored, answer lost"], True, "sent", 1),  # it can: nothing is sent again
        ([Unsure("reset")], True, "sent", 1),  # it can, and it had not got it
        ([Unsure("reset"), NotSent("refused", 0.01)], False, "resent", 1),  # the repeat surely did not arrive
        ([Unsure("reset"), Unsure("reset")], False, "resent", 0),  # never a third time
        ([SendRefused("chat gone")], False, "failed", 0),
        ([RuntimeError("a defect of the adapter")], False, "resent", 1),
    ],
)
async def test_what_becomes_of_a_send(ledger: Ledger, script: list[Any], tells: bool, state: str, seen: int) -> None:
    prepare(ledger, ["a"])
    platform = Platform(script, tells)
    assert await run(ledger, platform) == [state]
    assert len(platform.stored) == seen
    assert [each.repeat for each in platform.stored] == (
        [False, True][:seen] if seen == 2 else [state == "resent"] * seen
    )


async def test_where_it_cannot_be_told_after_all_it_is_repeated_once(ledger: Ledger) -> None:
    prepare(ledger, ["a"])
    platform = Platform(["stored, answer lost"], tells=True)
    platform.blind = True
    assert await run(ledger, platform) == ["resent"]
    assert [each.repeat for each in platform.stored] == [False, True]


async def test_rows_that_a_crash_left_in_sending_are_decided(ledger: Ledger) -> None:
    prepare(ledger, ["a", "b"], state="sending")
    platform = Platform([])
    assert await run(ledger, platform) == ["resent", "resent"]
    assert [each.repeat for each in platform.stored] == [True, True]


@pytest.mark.parametrize(
    ("trouble", "found", "state"),
    [
        (None, "pending", "sent"),
        (NotSent("429", 3600), "pending", "failed"),
        (SendRefused("no such message"), "pending", "failed"),
        (Unsure("reset"), "pending", "failed"),
        (RuntimeError("a defect of the adapter"), "pending", "failed"),
        (None, "sending", "failed"),  # since before a crash
        (None, "unknown", "failed"),
    ],
)
async def test_a_reaction_is_tried_once_and_nothing_waits_for_it(
    ledger: Ledger, trouble: Exception | None, found: str, state: str
) -> None:
    prepare(ledger, [])

    def react(tx: Transaction) -> None:
        to: dict[str, Any] = {"session": "s", "now": NOW, "limits": NOTICE}
        [id] = deliveries.enqueue(tx, TO, kind="reaction", text="👍", target="m7", **to)
        deliveries.enqueue(tx, TO, kind="text", text="behind it", **to)
        tx.execute("UPDATE delivery SET state = ? WHERE id = ?", found, id)

    ledger.tx(react)
    platform = Platform([trouble] if trouble else [])
    assert await run(ledger, platform) == [state, "sent"]
    assert [(each.kind, each.target) for each in platform.stored] == [("reaction", "m7")] * (state == "sent") + [
        ("text", None)
    ]


async def test_a_send_that_fails_for_good_is_told_at_the_owners_terminal(ledger: Ledger) -> None:
    prepare(ledger, ["a"])
    assert await run(ledger, Platform([SendRefused("chat gone")])) == ["failed"]
    notice = await ledger.do(lambda tx: tx.one("SELECT text FROM delivery WHERE channel = 'terminal'"))
    assert notice is not None and "chat gone" in notice["text"]


async def test_a_channel_that_is_not_there_fails_its_own_rows_alone(ledger: Ledger) -> None:
    prepare(ledger, ["a"])
    other = Address("nowhere", "", "c1", "")
    ledger.tx(lambda tx: deliveries.enqueue(tx, other, session="s", kind="text", text="x", now=NOW, limits=NOTICE))
    assert await run(ledger, Platform([])) == ["sent"]
