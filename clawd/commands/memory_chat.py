"""What `/memory`, `/remember`, and `/approve` of a memory say and do in a chat.

The owner alone sees what waits, and where nobody reads along; they say yes to a text as it was shown to them, and to no
other. Each may be carried out twice, and comes to the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Literal

from anyio import to_thread

from clawd.approvals.words import quoted
from clawd.channel import ChannelLimits
from clawd.commands.memory import is_id, why_it_waits
from clawd.config.home import Home, group_folders
from clawd.errors import NotFound, UsageError
from clawd.files import Blobs
from clawd.intake import Filed
from clawd.ledger.db import Row
from clawd.memory import admission, text
from clawd.memory.protocol import Voice
from clawd.memory.provenance import TrustLedger
from clawd.memory.record import MemoryRecord
from clawd.memory.store import GroupMemory
from clawd.scopes import is_shared
from clawd.text import made_visible, units
from clawd.trust import TRUST, Role, origin_of
from clawd.turns.digest import proposed
from clawd.turns.memory import Memories
from clawd.turns.redaction import Redacted

_HITS, _LINE = 8, 400  # of a search, and characters of each
_MOST = 256 << 10  # characters of what waits that are shown at once
_HOW = "Say /memory, /memory search WORDS, /memory why ID or /memory forget ID."
_PRIVATELY = "Say it to me in private: here others read along."


class MemoryTalk:
    """`owner` gives the owner's name whose account a sender is, else None; `limits` are those of a channel."""

    def __init__(
        self,
        home: Home,
        memories: Memories,
        owner: Callable[[str, str], str | None],
        limits: Callable[[str], ChannelLimits],
    ) -> None:
        self._home, self._memories = home, memories
        self._owner, self._limits, self._blobs = owner, limits, Blobs(home.blobs)
        self._trust = home.state / "trust.jsonl"
        self._shown: dict[str, tuple[str, str]] = {}  # of what waits: its group, and the hash of what was shown

    async def memory(self, row: Row, words: str) -> str | Filed:
        """`/memory …`. Raises ClawdError."""
        verb, _, rest = words.strip().partition(" ")
        rest = rest.strip()
        if not verb:
            return await self._waiting(row) if self._alone(row) else await self._counts(row)
        if verb == "search" and rest:
            return await self._search(row, rest)
        if verb in ("why", "forget") and is_id(rest):
            if not self._owns(row):
                raise UsageError(f"/memory {verb} is for the owner alone.")
            return await (self._why if verb == "why" else self._forget)(row, rest)
        raise UsageError(_HOW)

    async def remember(self, row: Row, said: str) -> str:
        """`/remember TEXT`: at the speaker's own trust, from this message. Raises ClawdError."""
        if not said.strip():
            raise UsageError("Say what: /remember TEXT")
        voice, when = self._voice(row), {"event_time": row["at"]}
        key = f"message {row['seq']}"
        kept = await self._memories.do(row["grp"], lambda memory: memory.put(said, "episode", when, voice, key=key))
        if kept.status == "proposed":
            self._memories.waits(row["grp"])
            return f"Noted as {kept.id}, and not used before the owner says yes: {kept.why}."
        forget = f"/memory forget {kept.id} forgets it." if self._owns(row) else "The owner can have it forgotten."
        return f"Kept as {kept.id}. {forget}"

    async def decide(self, row: Row, verdict: Literal["approve", "deny"], id: str) -> str:
        """`/approve` and `/deny` of a memory; "" where the id is no memory's. Raises ClawdError."""
        if not is_id(id):
            return ""
        if not self._owns(row):
            raise UsageError(f"/{verdict} is for the owner alone.")
        if not self._alone(row):
            raise UsageError(f"Say /{verdict} to me in private; here it does nothing.")
        group, hash = self._shown.get(id, (row["grp"], ""))

        def act(memory: GroupMemory) -> str:
            try:
                record = memory.get(id)
            except NotFound:  # a profile's or a fact's proposal is gone when it is decided
                if (last := self._last(group, id)) not in ("approve", "reject"):
                    raise
                return f"{id} was {'approved' if last == 'approve' else 'rejected'} already."
            if record.status == "active":
                return f"{id} holds already."
            if record.status != "proposed":
                raise UsageError(
                    f"{id} is {record.status}; on the command line `clawd memory approve {id}` can have it back"
                )
            if hash != _hash(record):
                raise UsageError(f"{id} is not as I showed it to you last, or I did not: say /memory, and look at it.")
            if verdict == "deny":
                memory.reject(id)
                return f"{id} is rejected: its text is known, and stays out."
            return _approved(memory.approve(id, sha256=text.digest(record.text)))

        return await self._memories.do(group, act)

    # ── /memory ──

    async def _waiting(self, row: Row) -> str | Filed:
        """To the owner alone: what waits, whole, of every group."""
        groups = await to_thread.run_sync(proposed, self._trust)
        there = {row["grp"], *(groups & set(group_folders(self._home)))}
        found: list[tuple[str, MemoryRecord, str]] = []
        for group in sorted(there, key=lambda each: (each != row["grp"], each)):
            found += [(group, *each) for each in await self._memories.do(group, _pending)]
        kept = _number(await self._memories.do(row["grp"], lambda memory: len(memory.every())))
        self._shown = {}
        if not found:
            return f"There {_be(kept)} here; nothing waits for your word. {_HOW}"
        entries, room = list[str](), _MOST
        for group, record, why in found:
            entry = _entry(group, record, why)
            if entries and len(entry) > room:
                break
            room -= len(entry)
            entries.append(entry)
            self._shown[record.id] = (group, _hash(record))
        rest = len(found) - len(entries)
        wait = "waits" if len(found) == 1 else "wait"
        head = f"{_number(len(found))} {wait} for your word: say /approve ID or /deny ID."
        more = [f"And {rest} more, which are shown once these are decided."] if rest else []
        return await self._filed(row, head, [*entries, *more, f"There {_be(kept)} here besides."])

    async def _filed(self, row: Row, head: str, entries: list[str]) -> str | Filed:
        """As a message, or as a file where it is long, or its client would make Markdown of it."""
        limits = self._limits(row["channel"])
        whole = "\n\n".join([head, *entries])
        if not limits.files or (units(whole) <= limits.text - 100 and limits.markup != "discord"):
            return whole
        blob = await to_thread.run_sync(self._blobs.add, f"{whole}\n".encode("utf-8", "replace"))
        return Filed(f"{head} They are in the file above, whole.", blob, "memories.txt")

    async def _counts(self, row: Row) -> str:
        """To anybody: of nothing private."""

        def count(memory: GroupMemory) -> tuple[int, int]:
            return tuple(sum(not each.private for each in some) for some in (memory.every(), memory.pending()))  # type: ignore[return-value]

        kept, waiting = await self._memories.do(row["grp"], count)
        how = " Say /memory to me in private, and I show what waits." if self._owns(row) else ""
        return f"There {_be(_number(kept))} that you can search here, {waiting} more wait for the owner's word.{how}"

    async def _search(self, row: Row, words: str) -> str:
        voice = self._voice(row)
        hits, lanes = await self._memories.do(row["grp"], lambda memory: memory.find(words, voice, k=_HITS))
        lines = []
        for hit in hits:
            said = hit.text if hit.trust >= admission.CLEAN else text.defanged(hit.text)
            said = " ".join(said.split())
            said = said if len(said) <= _LINE else f"{said[: _LINE - 1]}…"
            lines.append(
                made_visible(f"{hit.record.id} ({hit.record.event_time:%Y-%m-%d}, trusted at {hit.trust:g}): {said}")
            )
        amiss = [f"({each})" for each in lanes if ":" in each]
        return "\n".join([*(lines or ["Nothing is found."]), *amiss])

    async def _why(self, row: Row, id: str) -> str:
        if not self._alone(row):
            raise UsageError(_PRIVATELY)
        found = await self._memories.do(self._group_of(row, id), lambda memory: memory.why(id))
        lineage = ", ".join(found["lineage"]) or "nothing else"
        lines = [f"{id} is from {found['source'] or 'a file'}, by {found['origin']}, trusted at"
                 f" {found['trust']:g}, made from {lineage}."]  # fmt: skip
        for each in found["history"]:
            turn = f", turn {each['turn']}" if each.get("turn") else ""
            lines.append(f"{each['ts']} {each['op']}: {each['status']}, {each['trust']:g}{turn}")
        return made_visible("\n".join(lines))

    async def _forget(self, row: Row, id: str) -> str:
        try:
            also, done = await self._memories.forget(self._group_of(row, id), id, self._voice(row))
        except NotFound:
            if await to_thread.run_sync(self._last, self._group_of(row, id), id) != "delete":
                raise
            also, done = [], Redacted()
        went = [f"With it went what was made of it alone: {', '.join(also)}."] if also else []
        return " ".join([f"Forgotten: {id}.", *went, *(f"{each[:1].upper()}{each[1:]}." for each in done.left)])

    def _last(self, group: str, id: str) -> str:
        """What became of a memory last; "" where there was none."""
        ops = [each.op for each in TrustLedger(self._trust).read() if (each.group, each.id) == (group, id)]
        return ops[-1] if ops else ""

    # ── who speaks ──

    def _group_of(self, row: Row, id: str) -> str:
        return self._shown[id][0] if id in self._shown and self._alone(row) else str(row["grp"])

    def _owns(self, row: Row) -> bool:
        return Role(row["role"]) is Role.OWNER and self._owner(row["channel"], row["sender"]) is not None

    def _alone(self, row: Row) -> bool:
        """Whether only the owner reads what is answered."""
        return self._owns(row) and (row["channel"] == "terminal" or bool(row["direct"]))

    def _voice(self, row: Row) -> Voice:
        role = Role(row["role"])
        origin = origin_of(role)
        private = row["channel"] == "terminal" or bool(row["direct"])
        source = f"{row['session']}#message-{row['seq']}"
        return Voice(origin, role, TRUST[origin], source, private=private, others=not self._alone(row))


def _pending(memory: GroupMemory) -> list[tuple[MemoryRecord, str]]:
    return [(each, why_it_waits(each, memory.floor)) for each in memory.pending()]


def _entry(group: str, record: MemoryRecord, why: str) -> str:
    where = "" if group == "main" else f" of the group {group}"
    known = f"by {record.origin.value}, trusted at {record.trust:g}, {record.event_time:%Y-%m-%d %H:%M}"
    lines = [
        made_visible(f"{record.id}, {record.kind}{where}, from {record.source or 'a file'}, {known}"),
        made_visible(f"It waits: {why}."),
    ]
    if record.key:
        lines.append(f"Its key: {made_visible(record.key)}")
    if record.namespace:
        shared = ", which every group reads that lists it" if is_shared(record.namespace) else ""
        lines.append(f"It would be in {record.namespace}{shared}.")
    if record.tags:
        lines.append(f"Its tags: {made_visible(', '.join(record.tags))}")
    if record.said is not None:
        lines += ["Your own words, that it cites:", quoted(record.said.quote)]
    return "\n".join([*lines, quoted(record.text)])


def _approved(record: MemoryRecord) -> str:
    if record.kind == "profile":
        return "Approved: it stands in user_profile.md now."
    return f"Approved: {record.id} holds now, and is trusted as your own word."


def _hash(record: MemoryRecord) -> str:
    """Of all that is shown of it, letter by letter."""
    quote = record.said.quote if record.said is not None else ""
    parts: Iterable[str] = (record.kind, record.key, *record.tags, record.supersedes or "", quote, record.text)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _number(count: int) -> str:
    return "1 memory" if count == 1 else f"{count} memories"


def _be(number: str) -> str:
    return f"{'is' if number == '1 memory' else 'are'} {number}"
