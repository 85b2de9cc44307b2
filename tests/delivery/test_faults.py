"""Twenty chats on three channels whose sends fail at random, from a seed, through clean restarts: nothing is lost,
nothing doubled but what is marked, and the order of a chat is kept."""

import random
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawd.channel import ChatMoved, FormatRefused, NotSent, Rates, SendRefused, Unsure
from clawd.clock import SystemClock
from clawd.delivery import outbox as module
from clawd.delivery.outbox import Outbox
from clawd.ledger import deliveries, groups
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.deliveries import REPEAT, Address
from clawd.model import Outgoing
from clawd.signals import Signals
from clawd.tasks import Tasks
from tests.delivery.platform import Platform
from tests.ledger.conftest import NOW

pytestmark = pytest.mark.anyio
CHATS, ROUNDS = 20, 3
LIMITS = {
    "plain": {"markup": "plain", "rates": Rates(chat_s=0.002)},
    "spans": {"markup": "spans", "rates": Rates(all_s=0.0005)},
    "tells": {"markup": "discord", "tells": True},
}


class Faulty(Platform):
    """Refuses and loses at random. A message may be in doubt once where the platform cannot tell: that it is lost when
    its repeat is in doubt too is the price of never sending it again."""

    def __init__(self, name: str, chance: random.Random) -> None:
        super().__init__(name=name, text=120, **LIMITS[name])
        self.chance = chance
        self.moved: dict[str, str] = {}
        self.first: dict[str, str] = {}
        self.doubted: set[str] = set()

    async def send(self, message: Outgoing) -> str:
        self.tried.append(message)
        await anyio.sleep(self.chance.random() * 0.002)
        if (now := self.moved.get(message.chat)) is not None:
            raise ChatMoved(now)
        fault = self.chance.randrange(20)
        if fault < 3:
            raise NotSent("429", 0.005)
        if fault < 6:
            raise NotSent("500")
        if fault == 6 and message.formatted is not None:
            raise FormatRefused("can't parse entities")
        if fault == 7 and message.chat not in self.first:
            now = self.moved[message.chat] = f"{message.chat}'"
            self.first[now] = message.chat
            raise ChatMoved(now)
        if fault == 8 and message.edits is not None:
            raise SendRefused("message to edit not found")
        may_doubt = self.limits.tells or message.nonce not in self.doubted
        if fault in (9, 10) and may_doubt:
            self.doubted.add(message.nonce)
            raise Unsure("reset before")
        self.stored.append(message)
        id = message.edits or f"id{len(self.stored)}"
        if fault in (11, 12) and may_doubt:
            self.doubted.add(message.nonce)
            raise Unsure("reset after")
        return id


def fill(tx: Transaction, platforms: list[Faulty], chance: random.Random, round: int) -> None:
    for n in range(CHATS):
        platform = platforms[n % len(platforms)]
        to = Address(platform.name, "", f"c{n}", "")
        what: dict[str, Any] = {"session": "s", "now": NOW, "limits": platform.limits}
        for k in range(chance.randrange(1, 3)):
            text = f"**{round}.{k}** " + "word " * chance.choice([1, 1, 60])
            kind = chance.choice(["text", "notice", "stream"])
            edits = None
            if kind == "stream":
                [edits] = deliveries.enqueue(tx, to, kind="stream", text="…", **what)
            deliveries.enqueue(tx, to, kind="notice" if kind == "notice" else "text", text=text, edits=edits, **what)


@pytest.mark.parametrize("seed", range(2))
async def test_nothing_is_lost_and_nothing_doubled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(module, "backoff", lambda failures, chance: 0.003)
    chance = random.Random(seed)
    platforms = [Faulty(name, chance) for name in LIMITS]
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger._connection.execute("PRAGMA synchronous = OFF")
    ledger.tx(lambda tx: groups.add(tx, "main", NOW))
    try:
        for round in range(ROUNDS):
            ledger.tx(lambda tx, round=round: fill(tx, platforms, chance, round))  # type: ignore[misc]
            async with anyio.create_task_group() as group:
                channels = {each.name: each for each in platforms}
                outbox = Outbox(ledger, Signals(), SystemClock(), channels, tmp_path, Tasks(group))
                await outbox.start()
                if round < ROUNDS - 1:  # a clean end, wherever it is just then
                    await anyio.sleep(chance.random() * 0.2)
                    await outbox.close(0.1)
                else:
                    with anyio.fail_after(20):
                        while not outbox.idle:
                            await anyio.sleep(0.01)
                group.cancel_scope.cancel()
        check(ledger, platforms)
    finally:
        ledger.close()


def check(ledger: Ledger, platforms: list[Faulty]) -> None:
    told = "channel = 'terminal'"  # of repeats that are in doubt, too
    rows = ledger.tx(lambda tx: tx.all(f"SELECT * FROM delivery WHERE NOT {told} ORDER BY id"))
    assert {row["state"] for row in rows if row["kind"] != "stream"} <= {"sent", "resent"}
    for platform in platforms:
        for chat in {row["chat"] for row in rows if row["channel"] == platform.name}:
            seen = [each for each in platform.stored if platform.first.get(each.chat, each.chat) == chat]
            wanted = [row for row in rows if (row["channel"], row["chat"]) == (platform.name, chat)]
            arrived = list(dict.fromkeys(each.delivery for each in seen if each.kind != "stream"))
            assert arrived == [row["id"] for row in wanted if row["kind"] != "stream"], (platform.name, chat)
            for row in wanted:
                copies = [each for each in seen if each.delivery == row["id"]]
                plain = [each for each in copies if each.edits is None and not each.repeat]
                marked = [each for each in copies if each.repeat]
                assert len(plain) <= 1 and len(marked) <= 1, [each.text for each in copies]
                assert all(each.text == row["text"] for each in copies if not each.repeat)
                assert all(each.text == REPEAT + row["text"] for each in marked)
                assert bool(marked) == (row["state"] == "resent")
