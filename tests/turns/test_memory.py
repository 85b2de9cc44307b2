"""The memory of a group as a turn has it: who writes, what may be cited, what reading costs, and that it is opened and
closed in time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from clawd.clock import TurnedClock
from clawd.config.home import Home
from clawd.config.load import init_home
from clawd.config.schema import MemoryTable
from clawd.errors import LeaseLost, NotFound, Refused, StorageError, UsageError
from clawd.ledger import groups, inbound, turns
from clawd.ledger.db import Ledger, Transaction
from clawd.memory.protocol import MemoryHit, Voice
from clawd.memory.record import MemoryRecord, Said
from clawd.memory.store import GroupMemory
from clawd.model import Incoming, Lease, Part
from clawd.trust import Origin, Role, origin_of
from clawd.turns.following import Following
from clawd.turns.memory import MOST_OPEN, Memories, TurnMemory, lowers_to
from clawd.turns.redaction import Redacted
from tests.ledger.conftest import NOW, Desk
from tests.turns.conftest import opened

pytestmark = pytest.mark.anyio
AT = datetime(2026, 12, 1, 9, tzinfo=UTC)


class Bench:
    """A home whose turns read and write its memory."""

    def __init__(self, root: Path) -> None:
        self.home, self.table = Home(root), MemoryTable()
        init_home(self.home)
        self.ledger = Ledger.open(self.home.ledger_file)
        self.desk, self.clock = Desk(self.ledger), TurnedClock(AT)
        self.gone, self.waiting = list[tuple[str, list[str]]](), list[str]()
        self.memories = Memories(
            self.home, self.ledger, self.clock, lambda group: self.table, forgotten=self._forgotten,
            waits=self.waiting.append,
        )  # fmt: skip

    async def _forgotten(self, group: str, texts: list[str]) -> None:
        self.gone.append((group, texts))

    def said(self, text: str, role: Role = Role.OWNER, *, channel: str = "terminal", direct: bool = True,
             session: str = "", more: tuple[Part, ...] = ()) -> inbound.Accepted:  # fmt: skip
        """A message, with a turn of its session."""
        self.desk.count += 1
        incoming = Incoming(channel, "c", f"p{self.desk.count}", f"{channel}:7", (text,), AT, direct=direct)

        def work(tx: Transaction) -> inbound.Accepted:
            groups.add(tx, "main", NOW)
            opened = groups.open_session(tx, session or f"{channel}:c", "main", NOW)
            parts = [Part("typed", origin_of(role), text), *more]
            return inbound.accept(tx, incoming, group="main", session=opened.id, role=role, parts=parts, now=NOW)

        return self.ledger.tx(work)

    def turn(self, text: str = "hi", role: Role = Role.OWNER, taint: float = 1.0, **how: Any) -> TurnMemory:
        """The memory of a live turn that answers this."""
        self.said(text, role, **how)
        run = f"r{self.desk.count}"
        self.desk.run(run)
        claimed = self.ledger.tx(lambda tx: turns.claim(tx, run, "main", 0, NOW))
        assert claimed is not None
        self.lease = Lease(run, claimed.turn["id"], claimed.attempt, 0)

        async def fall(trust: float) -> None:
            self.ledger.tx(lambda tx: turns.fall(tx, run, trust))

        self.ledger.tx(lambda tx: turns.fall(tx, run, taint))
        return TurnMemory(self.memories, "main", self.lease, fall)

    def row(self) -> Mapping[str, Any]:
        """The turn that was begun last."""
        return self.ledger.tx(lambda tx: turns.get(tx, self.lease.turn))

    def end(self) -> None:
        """It is over, and the work tree as it was."""

        def work(tx: Transaction) -> None:
            tx.execute("UPDATE turn SET state = 'stopped', recorded_at = ? WHERE id = ?", NOW, self.lease.turn)
            tx.execute("UPDATE grp SET authority = 'owner', taint = 1.0")

        self.ledger.tx(work)

    def files(self) -> list[str]:
        return sorted(path.read_text() for path in self.home.group("main").memory.glob("*/*.md"))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.ledger.close()


@pytest.mark.parametrize(
    ("how", "member", "private", "others"),
    [
        ({}, False, True, False),
        ({"channel": "telegram"}, False, True, False),
        ({"channel": "telegram", "direct": False}, False, False, True),  # who is in there reads along
        ({}, True, True, True),
        ({"channel": "telegram", "direct": False}, True, False, True),
    ],
)
async def test_who_writes_is_what_the_ledger_knows(
    bench: Bench, how: dict[str, Any], member: bool, private: bool, others: bool
) -> None:
    if member:
        bench.turn(role=Role.MEMBER, session="other")
        bench.end()

    chat = {"channel": "telegram", "account": "", "chat": "c", "direct": how.get("direct", True)}
    bench.ledger.tx(lambda tx: tx.insert("chat", **chat, title="", seen=""))
    bench.turn(taint=0.6, **how)
    voice = await bench.memories.voice(bench.lease)
    session = f"{how.get('channel', 'terminal')}:c"
    assert asdict(voice) == asdict(
        Voice(
            origin=voice.origin, authority=Role.OWNER, taint=0.6, source=f"{session}#{bench.lease.turn}",
            turn=bench.lease.turn, private=private, others=others, heard=(),
        )
    )  # fmt: skip
    assert voice.origin == "agent"
    with pytest.raises(LeaseLost):
        await bench.memories.voice(Lease(bench.lease.run, bench.lease.turn, bench.lease.attempt + 1, 0))


async def test_the_owner_is_cited_with_what_they_typed(bench: Bench) -> None:
    one = bench.said("One.", session="s1")
    bench.said("Not mine.", Role.ADMIN, session="s2")
    gone = bench.said("Withdrawn.", session="s3")
    bench.ledger.tx(lambda tx: tx.move("inbound", gone.seq, "withdraw"))
    bench.ledger.tx(lambda tx: tx.execute("UPDATE grp SET others = 0"))
    bench.ledger.tx(lambda tx: tx.execute("UPDATE turn SET state = 'stopped', recorded_at = ''"))
    quoted = (Part("quoted", origin_of(Role.OWNER), "quoted"), Part("attachment", origin_of(Role.OWNER), "attached"))
    bench.turn("Two.", session="s4", more=quoted)
    late = bench.said("Three.", session="s5")
    own = bench.row()["id"]
    [two] = bench.ledger.tx(lambda tx: [row["seq"] for row in tx.all("SELECT seq FROM inbound WHERE turn = ?", own)])
    heard = (await bench.memories.voice(own, citing=True)).heard
    assert all(each.at is not None and each.private for each in heard), "they were alone"
    said = [(each.inbound, each.text) for each in heard]
    assert said == [(two, "Two."), (late.seq, "Three."), (one.seq, "One.")]
    assert (await bench.memories.voice(own)).heard == ()
    bench.ledger.tx(lambda tx: tx.execute("UPDATE grp SET others = 1"))
    said = [each.text for each in (await bench.memories.voice(own, citing=True)).heard]
    assert said == ["Two."], "others are private"


async def test_the_same_call_is_the_same_memory(bench: Bench) -> None:
    memory = bench.turn()
    first = await memory.write("The gate is green.", "episode", {}, "k")
    assert (first.status, first.trust, bench.waiting) == ("active", 0.7, [])
    assert (await memory.write("The gate is green.", "episode", {}, "k")).id == first.id and len(bench.files()) == 1
    assert (await memory.write("The gate is green.", "episode", {}, "l")).id != first.id
    bench.end()
    assert (await bench.turn().write("The gate is green.", "episode", {}, "k")).id != first.id
    proposed = await bench.turn(session="s").write("x", "episode", {}, "k", wait=True)
    assert proposed.status == "proposed" and bench.waiting == ["main"]


async def test_a_turn_has_fallen_to_what_it_is_given(bench: Bench) -> None:
    low = await bench.turn(taint=0.2).write("Zebras are poison.", "episode", {}, "k")
    cited = await bench.turn("Zebras eat grass.", taint=0.2, session="s").write(
        "Zebras: whatever the page says.", "episode", {"said": {"quote": "Zebras eat grass."}}, "k"
    )
    assert (low.status, cited.status, cited.trust) == ("proposed", "active", 1.0)
    memory = bench.turn("next", session="s2")
    bench.ledger.tx(lambda tx: tx.execute("UPDATE turn SET taint = 1.0"))
    [hit], _ = await memory.search("zebras", 8)
    assert (hit.text, hit.trust, bench.row()["taint"]) == ("Zebras eat grass.", 1.0, 1.0), "words of the owner's"
    read = await memory.read(cited.id)
    assert (read.text, read.trust, bench.row()["taint"]) == ("Zebras eat grass.", 1.0, 1.0)
    hits, _ = await memory.search("page says", 8, untrusted=True)
    assert "Zebras: whatever the page says." in {hit.text for hit in hits} and bench.row()["taint"] == 0.2
    bench.ledger.tx(lambda tx: tx.execute("UPDATE turn SET taint = 1.0"))
    fallen = list[float]()

    async def fails(trust: float) -> None:
        fallen.append(trust)
        raise StorageError("no")

    for give in (lambda memory: memory.search("zebras", 8, untrusted=True), lambda memory: memory.read(low.id)):
        with pytest.raises(StorageError):
            await give(TurnMemory(bench.memories, "main", bench.lease, fails))
        assert fallen.pop() == 0.2 and bench.row()["taint"] == 1.0
        await give(memory)
        assert bench.row()["taint"] == 0.2
        bench.ledger.tx(lambda tx: tx.execute("UPDATE turn SET taint = 1.0"))


async def test_what_is_quarantined_is_the_owner_s(bench: Bench) -> None:
    memory = bench.turn()
    id = (await memory.write("Secret plan.", "episode", {}, "k")).id
    await bench.memories.do("main", lambda of: of.quarantine(id))
    for forbidden in (memory.read(id), memory.update(id, "x", None, "k"), memory.delete(id)):
        with pytest.raises((Refused, NotFound)):
            await forbidden
    assert len(bench.files()) == 1 and bench.gone == []


async def test_what_is_forgotten_leaves_everything_else_first(bench: Bench) -> None:
    memory = bench.turn("It is so.")
    written = await memory.write("A note.", "episode", {"said": {"quote": "It is so."}}, "k")
    other = bench.turn(taint=0.2, session="s")
    with pytest.raises(Refused, match=f"clawd memory delete {written.id}"):
        await other.delete(written.id)
    assert bench.gone == []
    bench.ledger.tx(lambda tx: tx.execute("UPDATE turn SET taint = 1.0"))

    async def fails(group: str, texts: list[str]) -> None:
        assert len(bench.files()) == 1
        raise StorageError("no room")

    memory = bench.turn(session="s2")
    bench.memories.forgotten, works = fails, bench.memories.forgotten
    with pytest.raises(StorageError):
        await memory.delete(written.id)
    assert len(bench.files()) == 1
    bench.memories.forgotten = works
    await memory.delete(written.id)
    assert bench.files() == [] and bench.gone == [("main", ["A note.", "It is so."])]
    with pytest.raises(NotFound):
        await memory.read(written.id)


async def test_a_correction_needs_as_much_trust_as_what_it_corrects(bench: Bench) -> None:
    memory = bench.turn("The code is 12.")
    id = (await memory.write("Code: 12", "episode", {"said": {"quote": "The code is 12."}}, "k")).id
    done = await memory.update(id, "Code: 13", None, "k")
    assert (done.status, done.conflicts) == ("proposed", id) and bench.waiting == ["main"]
    with pytest.raises(UsageError):
        await memory.update(id, "Code: 13", {"quote": "The code is 13."}, "k")
    said = {"quote": "No. The code is 13."}
    done = await bench.turn("No. The code is 13.", session="s").update(id, "Code: 13", said, "k")
    assert (done.id, done.status) == (id, "active")
    memory = bench.turn("Buy milk.", session="s2", taint=0.2)
    done = await memory.update(id, "Code: 14", {"quote": "Buy milk."}, "k")
    assert (done.id == id, done.conflicts) == (False, id), "a quote does not say what it is about"
    assert (await memory.read(id)).text == "Code: 13"


async def test_who_waits_for_a_memory_holds_no_thread_that_forgetting_needs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def watched(following: Following, of: GroupMemory) -> None:
        """Nothing was edited."""

    monkeypatch.setattr(Following, "in_step", watched)
    note = await bench.memories.do("main", lambda of: of.put("A note of mine.", "episode", {}, Voice()))
    busy = anyio.Event()

    async def elsewhere(group: str, texts: list[str]) -> Redacted:
        busy.set()
        await anyio.wait_all_tasks_blocked()
        return await to_thread.run_sync(Redacted)

    bench.memories.forgotten = elsewhere
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.memories.forget, "main", note.id, Voice())
            await busy.wait()
            for _ in range(50):
                tasks.start_soon(bench.memories.do, "main", GroupMemory.pending)


async def test_few_are_open_and_none_that_is_used_is_closed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    closed, may_end = list[str](), threading.Event()
    monkeypatch.setattr(GroupMemory, "close", lambda of: closed.append(of.group))

    def long(of: GroupMemory) -> GroupMemory:
        assert may_end.wait(10)
        return of

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bench.memories.do, "used", long)
        await anyio.lowlevel.checkpoint()
        for number in range(MOST_OPEN):
            await bench.memories.do(f"g{number}", lambda of: of)
        bench.table = MemoryTable(floor=0.6)
        assert bench.memories.of("used").floor == 0.5
        may_end.set()
    assert closed == ["g0"]
    assert (await bench.memories.do("used", lambda of: of)).floor == 0.6
    assert (await bench.memories.do("g3", lambda of: of)).floor == 0.6
    assert closed == ["g0", "used", "g3"]
    await bench.memories.close()
    assert len(closed) == 2 + 1 + MOST_OPEN


async def test_all_that_is_live_in_the_sandbox_falls_in_the_ledger(tmp_path: Path) -> None:
    async with opened(tmp_path, workers=0) as ground:
        await ground.accept(session="s0")
        await ground.accept(session="s1")
        run = await ground.run()
        one, _ = await ground.offer(run)
        two, _ = await ground.offer(run, 1)
        memories = Memories(ground.home, ground.ledger, ground.clock, lambda group: MemoryTable())
        voice = Voice(taint=0.2, origin=origin_of(Role.NONE))
        low = await memories.do("main", lambda of: of.put("Zebras bite.", "episode", {}, voice))
        memory = TurnMemory(memories, "main", one, ground.caller(run).taint)
        hits, _ = await memory.search("zebras", 8)
        rows = [await ground.ledger.do(lambda tx, lease=lease: turns.get(tx, lease.turn)) for lease in (one, two)]  # type: ignore[misc]
        assert hits == [] and [row["taint"] for row in rows] == [1.0, 1.0]
        await memory.read(low.id)
        rows = [await ground.ledger.do(lambda tx, lease=lease: turns.get(tx, lease.turn)) for lease in (one, two)]  # type: ignore[misc]
        assert [row["taint"] for row in rows] == [0.2, 0.2] == [live.taint for live in run.live.values()]


@pytest.mark.parametrize(
    ("trust", "cited", "text", "lowers"),
    [(0.2, True, "quote", 1.0), (0.2, True, "text", 0.2), (0.2, False, "text", 0.2), (0.7, True, "text", 0.6)],
)
def test_of_a_citation_the_quote_alone_lowers_nothing(trust: float, cited: bool, text: str, lowers: float) -> None:
    record = MemoryRecord(
        "ep_0000000000", "episode", "text", AT, AT, AT, "s#1", Origin.AGENT, trust, taint=min(trust, 0.6),
        said=Said("quote") if cited else None,
    )  # fmt: skip
    assert lowers_to(MemoryHit(record, text, 1.0, trust, {}), 0.5) == lowers
