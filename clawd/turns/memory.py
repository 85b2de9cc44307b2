"""The memory of all groups, for the rooms that use it: opened at first need, kept in step with the files while it is
open, and bound to the turn that reads or writes. What a turn is given is in the ledger, and lowers it first."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import anyio
from anyio import to_thread

from clawd import faults
from clawd.clock import Clock, moment_of, rfc3339
from clawd.config.home import Home
from clawd.config.schema import MemoryTable
from clawd.context.memories import Recalled, query
from clawd.errors import ClawdError, NotFound, Refused, StorageError
from clawd.ledger import chats, inbound, recalled, turns
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.ledger.turns import Claim
from clawd.memory import across, admission
from clawd.memory.directory import Answer, Directory
from clawd.memory.protocol import Heard, MemoryHit, Voice
from clawd.memory.record import MemoryRecord
from clawd.memory.store import GroupMemory, Written
from clawd.model import Lease
from clawd.scopes import Scopes
from clawd.tasks import Whole
from clawd.trust import Origin, Role
from clawd.turns.following import Following
from clawd.turns.redaction import Redacted
from clawd.turns.spaces import MOST_BESIDE, Space, Spaces

log = logging.getLogger(__name__)
MOST_OPEN = 16
MOST_RECALLS = 4  # of a group at one time, also of those that nobody waits for any more
T = TypeVar("T")


async def _nowhere(group: str, texts: list[str]) -> Redacted:
    """Nobody else keeps texts."""
    return Redacted()


@dataclass(slots=True)
class _Open:
    """`turn`: one thread at a time works with a memory, and whoever waits for it holds none: forgetting needs others
    for what it takes out elsewhere."""

    memory: GroupMemory
    users: int = 0
    turn: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))


class Memories:
    """`settings` gives a group's `[memory]` as it is now. `forgotten` takes texts out of whatever else the group has of
    them, before they leave its memory; `waits` hears that something of a group waits for the owner. `following` sees
    to it that those that are open have what their files say."""

    def __init__(
        self,
        home: Home,
        ledger: Ledger,
        clock: Clock,
        settings: Callable[[str], MemoryTable],
        *,
        forgotten: Callable[[str, list[str]], Awaitable[Redacted]] = _nowhere,
        waits: Callable[[str], None] = lambda group: None,
        following: Following | None = None,
        spaces: Spaces | None = None,
    ) -> None:
        self._home, self._ledger, self._clock, self._settings = home, ledger, clock, settings
        self.forgotten, self.waits = forgotten, waits
        self._following = following or Following()
        self.spaces = spaces or Spaces()
        self._recalls, self._whole = Counter[str](), Whole()
        self._open: dict[str, _Open] = {}  # the one that was used last is the last
        self._spare: list[GroupMemory] = []  # to be closed by the next thread

    def of(self, group: str) -> GroupMemory:
        """The memory of a group; its calls block. It may be closed when this is awaited upon: `do` keeps it open."""
        return self._opened(group).memory

    async def do(self, group: str, work: Callable[[GroupMemory], T]) -> T:
        """Have a thread work with the memory of a group, which knows its files then."""
        opened = self._opened(group)
        opened.users += 1
        unused = [each for each, known in self._open.items() if not known.users]
        for each in unused[: max(0, len(self._open) - MOST_OPEN)]:
            self._spare.append(self._open.pop(each).memory)
            self._following.drop(each)
        try:
            await self._following.in_step(opened.memory)
            return await to_thread.run_sync(self._work, opened.memory, work, limiter=opened.turn)
        finally:
            opened.users -= 1

    @asynccontextmanager
    async def held(self, group: str) -> AsyncIterator[None]:
        """While much is written to a group's memory: see `GroupMemory.hold`."""
        opened = self._opened(group)
        opened.users += 1
        try:
            await to_thread.run_sync(opened.memory.hold, limiter=opened.turn)
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    await to_thread.run_sync(opened.memory.release, limiter=opened.turn)
        finally:
            opened.users -= 1

    def _opened(self, group: str) -> _Open:
        table, known = self._settings(group), self._open.pop(group, None)
        settled = (table.backend, table.floor, table.mem0)
        if (
            known is not None
            and not known.users
            and (known.memory.backend, known.memory.floor, known.memory.mem0) != settled
        ):
            self._spare.append(known.memory)
            known = None
        if known is None:
            root, state = self._home.group(group).memory, self._home.state
            backend, floor, mem0 = settled
            known = _Open(GroupMemory(root, state, group, self._clock, backend=backend, floor=floor, mem0=mem0))
        self._open[group] = known
        return known

    def _work(self, memory: GroupMemory, work: Callable[[GroupMemory], T]) -> T:
        with suppress(IndexError):  # other threads take of them, too
            while True:
                self._spare.pop().close()
        return work(memory)

    async def close(self) -> None:
        """Nobody uses one any more."""
        self._spare += [each.memory for each in self._open.values()]
        self._open.clear()
        while self._spare:
            await to_thread.run_sync(self._spare.pop().close)

    async def ready(self, group: str) -> None:
        """Open a group's memory before a turn is to be given of it: what turns words into vectors takes most of a
        second to load."""
        try:
            if self._settings(group).recall_k:
                await self.do(group, lambda memory: None)
        except Exception:  # the turn is told
            log.exception("the memory of %s cannot be opened", group)

    async def recall(self, claim: Claim) -> Recalled:
        """What memory gives a turn of itself. What was begun goes on where nobody waits any more. Raises what a search
        raises."""
        group = claim.turn["grp"]
        if not (k := self._settings(group).recall_k) or not query(claim.wakes):
            return Recalled()
        if self._recalls[group] >= MOST_RECALLS:
            raise StorageError("earlier searches of it have not come back")

        async def recall() -> Recalled:
            self._recalls[group] += 1
            try:
                alone, space = await self._ledger.do(
                    lambda tx: (chats.is_direct(tx, claim.turn), self.spaces.of(tx, claim.turn))
                )
                seen = replace(claim, others=claim.others or not alone)
                own = await self.do(group, lambda memory: recalled_of(memory, seen, k, space))
                theirs, _ = await self.beside(space.scopes, query(claim.wakes), k, claim.taint, lowering=False)
                return replace(own, hits=across.merged(own.hits, theirs, k)) if theirs else own
            finally:
                self._recalls[group] -= 1

        return await self._whole(recall())

    async def shown(self, turn: int, memories: Sequence[str]) -> None:
        """These are put before the model of a turn."""
        if memories:
            now = rfc3339(self._clock.now())
            await self._ledger.do(lambda tx: recalled.note(tx, turns.get(tx, turn)["grp"], memories, turn, now))

    async def voice(self, turn: int | Lease, origin: Origin = Origin.AGENT, *, citing: bool = False) -> Voice:
        """Who writes in a turn, as the ledger has it now; only one that is `citing` is given what was heard. Raises
        LeaseLost for a lease that does not hold."""

        def read(tx: Transaction) -> Voice:
            row = turns.check_lease(tx, turn) if isinstance(turn, Lease) else turns.get(tx, turn)
            return voice_of(tx, row["id"], self.spaces, origin, citing=citing)

        return await self._ledger.do(read)

    async def scopes(self, lease: Lease) -> Scopes:
        """What a turn may write and read. Raises LeaseLost."""
        return await self._ledger.do(lambda tx: self.spaces.of(tx, turns.check_lease(tx, lease)).scopes)

    async def beside(self, scopes: Scopes, query: str, k: int, taint: float, **filters: Any
                     ) -> tuple[list[MemoryHit], list[str]]:  # fmt: skip
        """What other groups have in what they share with this one, and sentences on what was not looked into. One that
        cannot be searched keeps nobody from the rest. `filters` are those of `across.find`."""
        if not scopes.lists:
            return [], []
        floor, hits, notes = self._settings(scopes.group).floor, list[MemoryHit](), list[str]()
        groups = await to_thread.run_sync(self.spaces.beside, scopes)
        for group, spaces in groups[:MOST_BESIDE]:
            work = partial(across.find, query=query, spaces=spaces, k=k, floor=floor, taint=taint, **filters)
            try:
                hits += await self.do(group, work)
            except (ClawdError, OSError) as error:
                log.warning("the memory of %s cannot be searched for %s: %s", group, scopes.group, error)
                notes.append(f"the memory of the group {group} cannot be searched")
        if left := len(groups) - MOST_BESIDE:
            notes += [f"{left} more groups share something, and were not searched"] if left > 0 else []
        return hits, notes

    async def theirs(self, scopes: Scopes, group: str, id: str) -> MemoryRecord:
        """A memory of another group. Raises NotFound for whatever a search does not find."""
        beside = dict(await to_thread.run_sync(self.spaces.beside, scopes))
        if group not in beside:
            raise NotFound(f"there is no memory {f'group:{group}:{id}'[:200]!a}", hint="clawd memory list")
        floor = self._settings(scopes.group).floor
        try:
            return await self.do(group, lambda memory: across.get(memory, id, beside[group], floor))
        except NotFound:
            raise
        except (ClawdError, OSError) as error:
            log.warning("the memory of %s cannot be read for %s: %s", group, scopes.group, error)
            raise StorageError(f"the memory of the group {group} cannot be read") from None

    async def forget(self, group: str, id: str, voice: Voice) -> tuple[list[str], Redacted]:
        """A memory and what was derived from it alone, and first whatever else has their texts: a crash between leaves
        the memory, which can be forgotten again. Gives what went with it, and what that changed. Raises NotFound,
        Refused, StorageError."""
        done = Redacted()

        def first(texts: list[str]) -> None:
            nonlocal done
            done = self.elsewhere(group)(texts)

        plan = await self.do(group, lambda memory: memory.forget(id, voice, first=first))
        return sorted({each.id for each in plan.gone} - {id}), done

    def elsewhere(self, group: str) -> Callable[[list[str]], Redacted]:
        """Takes texts out of whatever else a group has of them; for a thread of `do`."""

        async def redacted(texts: list[str]) -> Redacted:
            return await self.forgotten(group, texts)

        def first(texts: list[str]) -> Redacted:
            done = anyio.from_thread.run(redacted, texts)
            faults.passing("forgotten")
            return done

        return first


def recalled_of(memory: GroupMemory, claim: Claim, k: int, space: Space) -> Recalled:
    """What a claimed turn is given of its group's memory by itself: the best `k` that do not lower it, and how many of
    the best `k` of all would. Blocks."""
    row, asked = claim.turn, query(claim.wakes)
    voice = Voice(Origin.AGENT, claim.authority, claim.taint, f"{row['session']}#{row['id']}", row["id"],
                  others=claim.others)  # fmt: skip
    voice = space.bound(voice)
    hits, _ = memory.find(asked, voice, k=k, lowering=False)
    best, _ = memory.find(asked, voice, k=k)
    return Recalled(hits, sum(lowers_to(hit, memory.floor) < claim.taint for hit in best))


def voice_of(
    tx: Transaction, turn: int, spaces: Spaces, origin: Origin = Origin.AGENT, *, citing: bool = False
) -> Voice:
    row: Row = turns.get(tx, turn)
    alone = chats.is_direct(tx, row)
    others = turns.known(tx, row["grp"], row["session"])[1] or not alone  # who has not spoken may read along
    typed = inbound.typed_by_owner(tx, row, others) if citing else ()
    heard = tuple(Heard(seq, text, moment_of(at), alone) for seq, text, at, alone in typed)
    voice = Voice(origin, Role(row["authority"]), row["taint"], f"{row['session']}#{turn}", turn,
                  private=alone, others=others, heard=heard)  # fmt: skip
    return spaces.of(tx, row).bound(voice)


@dataclass(frozen=True, slots=True)
class TurnMemory:
    """The memory of one turn, for the tools that it calls. `fall` lowers the turn's trust, durably, before anything is
    given to it. What a call writes is made of its turn and its `key`, which says all that was asked for, so that the
    call can be made again after a crash. Each raises LeaseLost."""

    _memories: Memories
    _group: str
    _lease: Lease
    _fall: Callable[[float], Awaitable[None]]

    @property
    def floor(self) -> float:
        """Of trust, below which nothing is believed here."""
        return self._memories.of(self._group).floor

    async def write(
        self, content: str, kind: str, metadata: Mapping[str, Any], key: str, *, wait: bool = False
    ) -> Written:
        """With `wait` not before the owner says yes. Raises UsageError, NotFound, StorageError."""
        voice = await self._memories.voice(self._lease, citing="said" in metadata)
        seed = f"{self._lease.turn} {key}"
        return await self._write(lambda memory: memory.put(content, kind, metadata, voice, key=seed, wait=wait))

    async def update(self, id: str, content: str, said: Mapping[str, Any] | None, key: str) -> Written:
        """Raises NotFound, UsageError, StorageError."""
        voice = await self._memories.voice(self._lease, citing=said is not None)

        def change(memory: GroupMemory) -> Written:
            _open_to_agents(memory.get(id, voice))
            return memory.change(id, content, voice, key=f"{self._lease.turn} {key}", said=said)

        return await self._write(change)

    async def delete(self, id: str) -> None:
        """Raises NotFound, Refused, StorageError."""
        voice = await self._memories.voice(self._lease)
        _open_to_agents(await self._memories.do(self._group, lambda memory: memory.get(id, voice)))
        try:
            await self._memories.forget(self._group, id, voice)
        except Refused as refusal:
            raise Refused(refusal.message, hint=f"the owner can: clawd memory delete {id}") from None

    async def search(self, query: str, k: int, **filters: Any) -> tuple[list[MemoryHit], list[str]]:
        """`filters` are those of `GroupMemory.find`. What other groups share comes with it. Raises UsageError,
        StorageError."""
        voice, scopes = await self._memories.voice(self._lease), await self._memories.scopes(self._lease)

        def find(memory: GroupMemory) -> tuple[list[MemoryHit], list[str], float]:
            return *memory.find(query, voice, k=k, **filters), memory.floor

        hits, lanes, floor = await self._memories.do(self._group, find)
        asked = {name: value for name, value in filters.items() if name != "untrusted"}
        theirs, notes = await self._memories.beside(scopes, query, k, voice.taint, **asked)
        hits, lanes = across.merged(hits, theirs, k), [*lanes, *notes]
        await self._lower(*(lowers_to(hit, floor) for hit in hits))
        await self._memories.shown(self._lease.turn, [hit.record.id for hit in hits])
        return hits, lanes

    async def read(self, id: str) -> MemoryRecord:
        """A memory with the text and the trust of what is shown of it. Raises NotFound, Refused, StorageError."""
        if (parted := across.parted(id)) is not None:
            record, floor = await self._memories.theirs(await self._memories.scopes(self._lease), *parted), 0.0
        else:
            voice = await self._memories.voice(self._lease)
            record, floor = await self._memories.do(self._group, lambda memory: (memory.get(id, voice), memory.floor))
        _open_to_agents(record)
        text, trust, taint = admission.shown(record, floor)
        await self._lower(taint)
        await self._memories.shown(self._lease.turn, [record.id])
        return replace(record, text=text, trust=trust)

    async def directory(self, command: Mapping[str, Any], key: str) -> str:
        """What one command of Anthropic's memory tool says. Raises UsageError, NotFound, Refused, StorageError."""
        voice, first = await self._memories.voice(self._lease), self._memories.elsewhere(self._group)

        def act(memory: GroupMemory) -> Answer:
            return Directory(memory, voice, f"{self._lease.turn} {key}", first).call(command)

        answer = await self._memories.do(self._group, act)
        faults.passing("remembered")
        if answer.waits:
            self._memories.waits(self._group)
        await self._lower(answer.taint)
        return answer.text

    async def _write(self, work: Callable[[GroupMemory], Written]) -> Written:
        done = await self._memories.do(self._group, work)
        faults.passing("remembered")
        if done.status == "proposed":
            self._memories.waits(self._group)
        return done

    async def _lower(self, *trusts: float) -> None:
        if (trust := min(trusts, default=1.0)) < 1:
            await self._fall(trust)


def lowers_to(hit: MemoryHit, floor: float) -> float:
    """What a turn falls to that is given this. Of a memory that cites the owner the quote alone lowers nothing."""
    shown, _, taint = admission.shown(hit.record, floor)
    return taint if hit.text == shown else hit.record.taint


def _open_to_agents(record: MemoryRecord) -> None:
    if record.status == "quarantined":
        raise Refused(f"{record.id} is quarantined: only the owner reads or changes it")
