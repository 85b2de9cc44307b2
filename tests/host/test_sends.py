"""What host tools send, over a real ledger: where it may go, by which rights, and what the outbox then holds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from clawd.approvals.approvals import Asked
from clawd.channel import ChannelLimits
from clawd.clock import TurnedClock
from clawd.errors import UsageError
from clawd.files import Blobs
from clawd.host.changes import Changes
from clawd.host.sends import Sends, address_of, binding_of, destination
from clawd.host.tools import ToolContext, built_in
from clawd.ledger import effects, turns
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.deliveries import Address
from clawd.model import Lease
from clawd.trust import Role
from tests.ledger.conftest import NOW, Desk

pytestmark = pytest.mark.anyio

OWN = Address("terminal", "", "main", "")
BINDINGS = ("terminal:main", "telegram:-100123", "slack:T012/C345", "gone:1")
CHANNELS = {"terminal": ChannelLimits(), "telegram": ChannelLimits(text=10, reactions=True), "slack": ChannelLimits()}


class Bench:
    """A live turn, and its tools."""

    def __init__(self, ledger: Ledger, root: Path, role: Role = Role.OWNER, taint: float = 1.0) -> None:
        self.ledger, desk = ledger, Desk(ledger)
        desk.accept("hi", role=role, id="p1")
        desk.run("r")
        claimed = ledger.tx(lambda tx: turns.claim(tx, "r", "main", 0, NOW))
        assert claimed is not None
        ledger.tx(lambda tx: turns.fall(tx, "r", taint))
        self.lease = Lease("r", claimed.turn["id"], claimed.attempt, 0)
        self.channels = dict(CHANNELS)
        self.asked: list[tuple[str, Mapping[str, Any], int | None]] = []
        self.state = "open"
        sends = Sends(self.lease.turn, self.channels.get, BINDINGS, self, NOW)
        clock = TurnedClock(datetime(2026, 12, 1, tzinfo=UTC))
        (root / "work").mkdir()
        (root / "work" / "a.txt").write_text("hello")
        self.context = ToolContext(
            self.lease, root / "work", Blobs(root / "blobs"), sends, Changes(1, self), "main", clock, lambda: None
        )

    def ask_in(self, tx: Transaction, kind: str, effect: Mapping[str, Any], *, turn: int | None) -> Asked:
        self.asked.append((kind, effect, turn))
        return Asked(100_000, self.state == "open", self.state)

    def do_in(self, tx: Transaction, kind: str, effect: Mapping[str, Any], *, turn: int) -> None:
        raise AssertionError("a send is asked for or made")

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        tool = built_in()[name]
        act = await tool.prepare(self.context, tool.Arguments(**arguments))
        assert not isinstance(act, dict)
        return self.ledger.tx(lambda tx: effects.do(tx, self.lease, name, arguments, None, act)).result

    def sent(self) -> list[tuple[Any, ...]]:
        columns = ("channel", "account", "chat", "kind", "text", "name", "target")
        rows = self.ledger.tx(lambda tx: tx.all("SELECT * FROM delivery ORDER BY id"))
        assert all((row["turn"], row["state"]) == (self.lease.turn, "pending") and row["effect"] for row in rows)
        return [tuple(row[name] for name in columns) for row in rows]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    ledger = Ledger.open(tmp_path / "ledger.db")
    yield ledger
    ledger.close()


@pytest.mark.parametrize("binding", BINDINGS)
def test_a_binding_names_a_chat_and_a_chat_its_binding(binding: str) -> None:
    assert binding_of(address_of(binding)) == binding


@pytest.mark.parametrize(
    ("to", "role", "taint", "missing"),
    [
        ("", Role.NONE, 0.0, None),
        ("terminal:main", Role.MEMBER, 0.2, None),  # its own chat
        ("telegram:-100123", Role.OWNER, 1.0, None),
        ("slack:T012/C345", Role.OWNER, 1.0, None),
        ("telegram:-100123", Role.ADMIN, 1.0, "acts for admin"),
        ("telegram:-100123", Role.MEMBER, 1.0, "acts for member"),
        ("telegram:-100123", Role.NONE, 1.0, "acts for none"),
        ("telegram:-100123", Role.OWNER, 0.9, r"its trust is 0\.9"),
        ("telegram:-100123", Role.MEMBER, 0.2, r"acts for member.*its trust is 0\.2"),
        ("telegram:7", Role.OWNER, 1.0, "is no binding of this group; it has telegram:-100123, slack:T012/C345"),
        ("terminal:other", Role.OWNER, 1.0, "is no binding"),
        ("telegram:-100123 ", Role.OWNER, 1.0, "is no binding"),
    ],
)
def test_where_a_send_may_go(to: str, role: Role, taint: float, missing: str | None) -> None:
    if missing is None:
        assert destination(to, OWN, BINDINGS, role, taint) == (address_of(to) if to else OWN, "")
    elif "binding" in missing:
        with pytest.raises(UsageError, match=missing):
            destination(to, OWN, BINDINGS, role, taint)
    else:
        address, short = destination(to, OWN, BINDINGS, role, taint)
        assert address == address_of(to) and re.search(missing, short)


async def test_what_goes_elsewhere_says_where_it_came_from(ledger: Ledger, tmp_path: Path) -> None:
    bench = Bench(ledger, tmp_path)
    await bench.call("send_message", text="hello")
    await bench.call("send_message", text="hello", to="slack:T012/C345")
    await bench.call("send_file", path="a.txt", to="slack:T012/C345")
    await bench.call("send_file", path="a.txt", caption="look", to="terminal:main")
    await bench.call("send_message", text="x", to="telegram:-100123")
    assert bench.sent()[:4] == [
        ("terminal", "", "main", "text", "hello", None, None),
        ("slack", "T012", "C345", "text", "From terminal:main:\nhello", None, None),
        ("slack", "T012", "C345", "file", "From terminal:main:", "a.txt", None),
        ("terminal", "", "main", "file", "look", "a.txt", None),
    ]
    split = bench.sent()[4:]  # by the limit of where it goes
    assert len(split) > 1 and "".join(row[4] for row in split) == "From terminal:main:\nx"


@pytest.mark.parametrize(("role", "taint"), [(Role.MEMBER, 1.0), (Role.OWNER, 0.2)])
async def test_rights_are_those_of_the_turn_as_the_ledger_has_it_and_without_them_the_owner_is_asked(
    ledger: Ledger, tmp_path: Path, role: Role, taint: float
) -> None:
    bench = Bench(ledger, tmp_path, role, taint)
    for name, arguments in (("send_message", {"text": "x"}), ("send_file", {"path": "a.txt"})):
        told = await bench.call(name, **arguments, to="telegram:-100123")
        assert told["waits"].startswith("nothing was sent to telegram:-100123 yet: ") and "is asked" in told["waits"]
    (_, message, asking), (_, file, _) = bench.asked
    assert not bench.sent() and asking == bench.lease.turn
    assert (message["to"], message["text"], message["blob"]) == ("telegram:-100123", "From terminal:main:\nx", None)
    assert (file["kind"], file["name"]) == ("file", "a.txt") and file["blob"]
    bench.state = "denied"
    with pytest.raises(UsageError, match="the owner said no to it"):
        await bench.call("send_message", text="y", to="telegram:-100123")
    assert await bench.call("send_message", text="x") == {"queued": "message"}


async def test_a_channel_that_is_not_there_is_refused_at_once(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the channel gone is not there"):
        await Bench(ledger, tmp_path).call("send_message", text="x", to="gone:1")


async def test_a_reaction_goes_to_a_message_where_the_channel_has_them(ledger: Ledger, tmp_path: Path) -> None:
    bench = Bench(ledger, tmp_path)
    with pytest.raises(UsageError, match="terminal has no reactions"):
        await bench.call("react", emoji="👍🏽")
    bench.channels["terminal"] = ChannelLimits(reactions=True)
    assert await bench.call("react", emoji="👍🏽") == {"queued": "reaction"}
    with pytest.raises(UsageError, match="no such message"):
        await bench.call("react", emoji="👍🏽", message=99)
    assert bench.sent() == [("terminal", "", "main", "reaction", "👍🏽", None, "p1")]


async def test_a_question_is_put_to_the_chat_and_a_second_one_takes_its_place(ledger: Ledger, tmp_path: Path) -> None:
    bench = Bench(ledger, tmp_path)
    asked = {"asked": "end your turn now; the answer comes as a message"}
    assert await bench.call("ask", question="Which?", choices=["red", "light  blue"]) == asked
    assert await bench.call("ask", question="Why?", expires_hours=1) == {**asked, "withdrawn": "your earlier question"}
    first, second = (row[4] for row in bench.sent())
    assert first == "The agent asks: Which?\n\n1. red\n2. light blue\n\nAnswer with a number or the words."
    place = "This takes the place of its earlier question."
    assert second == f"The agent asks: Why?\n\nYour next message is the answer. {place}"
    rows = ledger.tx(lambda tx: tx.all("SELECT * FROM question ORDER BY id"))
    assert [(row["state"], row["expires"][:16]) for row in rows] == [
        ("withdrawn", "2026-12-02T00:00"),
        ("open", "2026-12-01T01:00"),
    ]
