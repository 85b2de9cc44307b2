"""Handovers: a session ends, and a successor begins with its manifest alone.

`begin` is the whole of it in the ledger, in one transaction: the manifest, the successor, and everything that waited.
The manifest is validated before anything else is touched, so one that may not be written changes nothing. Until the
successor's file begins with what was handed on its gate is shut, and no turn of it is handed out; `act` writes both
files and opens it, and comes to the same however often it is begun.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import anyio

from clawd import faults
from clawd.channel import NOTICE, ChannelLimits
from clawd.clock import Clock, moment_of, rfc3339
from clawd.config.home import Home
from clawd.files import directory_beneath, write_atomic
from clawd.ids import new_id
from clawd.ledger import contexts, deliveries, groups, handing, wakes
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.ledger.deliveries import Address
from clawd.lifecycle import estimate, manifest
from clawd.lifecycle.deciding import Decision, Thresholds
from clawd.lifecycle.manifest import HandoffManifest, ManifestRefused
from clawd.lifecycle.pinned import Item, Pinned
from clawd.locks import KeyedLocks
from clawd.model import Authority, Block, Part
from clawd.sessions.file import SessionFile
from clawd.trust import Origin, Role

log = logging.getLogger(__name__)

MOST_GOING_ON = 10  # successors in a row that begin by themselves, without a word of a person
MOST_NAMED = 50  # files and memories that a manifest names, the newest
OVERFLOW = "the provider says that it is longer than the model can read"
NO_GOAL = "Go on with this conversation. Nobody has stated a goal."
NO_ACTION = "Wait for what is said next."
_GO_ON = (
    "This session goes on by itself from the one before. What that held on to stands at its beginning: go on with what"
    f" was to be done next. If there is nothing to do, answer {wakes.NOTHING} and nothing else."
)
_WHY = {
    "hard_handoff": "its window is full",
    "verify_fail": "a summary of it would have left something out",
    "compact_ineffective": "compacting it frees too little",
    "phase_boundary": "a phase of the work is done",
    "manual": "that was asked for",
}


class HandingOver:
    """`alone` keeps others from a session's file; `deliver` and `wake` are told which chat, and which group, has news;
    `seeded` hears of a session whose file has its beginning; `tell` tells the owner."""

    def __init__(
        self,
        home: Home,
        ledger: Ledger,
        clock: Clock,
        *,
        alone: Callable[[str], AbstractAsyncContextManager[None]] | None = None,
        limits: Callable[[str], ChannelLimits] = lambda channel: NOTICE,
        deliver: Callable[[Address], None] = lambda at: None,
        wake: Callable[[str], None] = lambda group: None,
        seeded: Callable[[str], Awaitable[None]] | None = None,
        tell: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._home, self._ledger, self._clock = home, ledger, clock
        self._alone = alone or KeyedLocks().hold
        self._limits, self._deliver, self._wake, self._tell = limits, deliver, wake, tell
        self.seeded = seeded
        self._one = KeyedLocks()

    # ── in the ledger ──

    def begin(
        self,
        tx: Transaction,
        row: Row,
        decision: Decision,
        thresholds: Thresholds,
        now: str,
        confirmed_by: str | None = None,
    ) -> str | None:
        """Hand the session of `row` (of `context`) over. Gives its successor; None where it has none, because its
        conversation went on elsewhere (`/new`), or because it cannot be handed over, which `refused` of its row says:
        it is not tried again before its window has grown, but where a person asks for it. No turn of it may be at work.
        """
        row = contexts.of(tx, row["session"], now)
        session: str = row["session"]
        if row["sealed_at"] is not None:
            return contexts.heir(tx, session) if row["successor"] is not None else None
        assert not handing.is_at_work(tx, session)
        if decision.trigger != "manual" and contexts.is_refused(row):
            return None
        try:
            made = self._manifest(tx, row, decision, thresholds, now, confirmed_by)
            text = manifest.text_of(made)
        except ManifestRefused as error:
            why = {"window": row["window"], "why": error.message, "told": False}
            contexts.update(tx, session, now, refused=json.dumps(why))
            log.warning("a session cannot be handed over", extra={"session": session})
            return None
        contexts.drop_compactions(tx, session, "the session was handed over", now)
        sealed: dict[str, Any] = {
            "status": "handoff", "stopped_reason": "handoff", "gate": None, "sealed_at": now, "manifest": text,
            "confirmed_by": confirmed_by, "wanted": None, "confirm": None, "verify_failed": 0, "refused": None,
            "declined": None,
        }  # fmt: skip
        if not handing.is_newest(tx, session):  # the conversation went on without it
            contexts.update(tx, session, now, **sealed)
            newest = groups.session(tx, _base(tx, session))
            assert newest is not None
            if handing.move(tx, session, newest.id):
                self._notice(tx, newest.id, f"What waited in {session} goes on in {newest.id}.", now)
            return None
        successor = groups.next_segment(tx, _base(tx, session), now).id
        contexts.update(tx, session, now, successor=successor, **sealed)
        self._begins(tx, row, successor, made, text, now)
        handing.move(tx, session, successor)
        self._say(tx, row, successor, decision, now)
        log.info("a session was handed over", extra={"session": session, "trigger": decision.trigger})
        return successor

    def _begins(self, tx: Transaction, row: Row, successor: str, made: HandoffManifest, text: str, now: str) -> None:
        contexts.of(tx, successor, now)
        carried = ("tag", "profile", "soft", "hard", "require_confirm", "by_hand", "agent_id", "memory_namespace")
        contexts.update(
            tx,
            successor,
            now,
            **{name: row[name] for name in carried},
            goal="" if made.goal == NO_GOAL else made.goal,
            parent=row["session"],
            gate="seed",
            seed=text,
            window=estimate.tokens(len(manifest.shown(made))),
            estimated=1,
        )
        for item in (each for each in made.items() if each.text not in (NO_GOAL, NO_ACTION)):
            contexts.pin(
                tx, successor, item.cls, item.text, turn=None, at=item.at, origin=item.origin, trust=item.trust,
                inherited=True,
            )  # fmt: skip
        groups.distrust(tx, successor, _taint(tx, row, made.items()))

    def _say(self, tx: Transaction, row: Row, successor: str, decision: Decision, now: str) -> None:
        """One line to the chat, and the agent goes on where it knows with what."""
        session = row["session"]
        overflow = decision.reason == OVERFLOW  # then a message was at work, and is answered there
        why = "the model could not read any more of it" if overflow else _WHY.get(decision.trigger)
        why = why or f"decided by {decision.trigger}"
        line = f"This conversation goes on in a fresh session ({successor}); what it holds on to came along. ({why})"
        last = handing.last_turn(tx, session)
        if last is not None and not row["by_hand"] and not overflow and _names_next(tx, session, last["id"]):
            handing.take_back(tx, successor, now)  # of an earlier one, which waited behind what was said since
            count = 1 if handing.was_spoken_to(tx, session) else row["going_on"] + 1
            if count <= MOST_GOING_ON:
                contexts.update(tx, successor, now, going_on=count)
                acts = Authority(Role(last["authority"]), min(last["taint"], _session_taint(tx, successor)))
                wakes.put(
                    tx, "handoff", f"handoff:{session}", group=row["grp"], base=_base(tx, session),
                    to=Address.of(last), rule=f"handoff:{session}", acts=acts, origin=Origin.SYSTEM,
                    parts=[Part("typed", Origin.SYSTEM, _GO_ON)], now=now,
                    choice=json.loads(last["choice"]) if last["choice"] else None,
                )  # fmt: skip
            else:
                line += f" It went on by itself {MOST_GOING_ON} times in a row, and waits for a word of yours now."
        self._notice(tx, session, line, now, at=successor)

    def _notice(self, tx: Transaction, of: str, text: str, now: str, at: str | None = None) -> None:
        """Into the chat in which the session `of` speaks."""
        where = handing.last_turn(tx, of) or handing.place(tx, at or of)
        if where is not None:
            to = Address.of(where)
            deliveries.enqueue(
                tx, to, session=at or of, kind="notice", text=text, now=now, limits=self._limits(to.channel)
            )

    def _manifest(
        self, tx: Transaction, row: Row, decision: Decision, thresholds: Thresholds, now: str, confirmed_by: str | None
    ) -> HandoffManifest:
        """Raises ManifestRefused."""
        session = row["session"]
        items = [
            Item(each["class"], each["text"], Origin(each["origin"]), each["trust"], each["turn"], each["at"])
            for each in contexts.pinned(tx, session)
        ]
        known = {item.cls for item in items}
        usual = ("goal", row["goal"].strip() or NO_GOAL), ("next_safe_action", NO_ACTION)
        items += [Item(cls, text, Origin.SYSTEM, 1.0, at=now) for cls, text in usual if cls not in known]  # type: ignore[arg-type]
        parent = contexts.find(tx, row["parent"]) if row["parent"] else None
        before = json.loads(parent["manifest"])["manifest_id"] if parent is not None and parent["manifest"] else None
        trust = min([row["taint"], _session_taint(tx, session), *(item.trust for item in items)])
        return manifest.made(
            {
                "manifest_id": new_id(),
                "created_at": rfc3339(moment_of(now) or self._clock.now()),
                "session_id": session,
                "parent_manifest_id": before,
                "group_id": row["grp"],
                "agent_id": row["agent_id"],
                "memory_namespace": row["memory_namespace"],
                "profile": thresholds.profile,
                "trigger": decision.trigger,
                "open_questions": _questions(tx, session),
                "token_snapshot": {
                    "window": row["window"], "cumulative": row["cumulative"], "soft": thresholds.soft,
                    "hard": thresholds.hard, "estimated": bool(row["estimated"]),
                },
                "cost_snapshot_usd": None if row["nanos"] is None else row["nanos"] / 1e9,
                "compaction": {"count": row["compact_count"], "last_recall": row["last_recall"]},
                "artifacts": self._files(tx, session),
                "memory_refs": _memories(tx, session),
                "do_not": _denied(tx, session),
                "confirmed_by": confirmed_by,
                "trust": trust,
            },
            items,
        )  # fmt: skip

    def _files(self, tx: Transaction, session: str) -> list[dict[str, Any]]:
        """The newest files that its answers gave out, by name."""
        found: dict[str, dict[str, Any]] = {}
        for row in tx.all(
            "SELECT d.name, d.blob FROM delivery d JOIN turn t ON t.id = d.turn"
            " WHERE t.session = ? AND t.claimed_at IS NOT NULL"
            " AND d.kind = 'file' AND d.blob IS NOT NULL AND d.name IS NOT NULL ORDER BY d.id DESC LIMIT 200",
            session,
        ):
            with suppress(OSError):  # it is forgotten
                if row["name"] not in found and len(found) < MOST_NAMED and row["name"].strip():
                    size = (self._home.blobs / row["blob"]).stat().st_size
                    found[row["name"]] = {"path": row["name"], "sha256": row["blob"], "bytes": size}
        return list(reversed(found.values()))

    # ── in files ──

    async def act(self, session: str) -> None:
        """Write the manifest of a session that was handed over, and the beginning of its successor, then let that go
        on. Raises StorageError, UnsafePath, OSError; then try again."""
        row = await self._ledger.do(lambda tx: contexts.find(tx, session))
        if row is None:
            return
        if row["refused"] is not None:
            await self._tell_refused(row)
        if row["manifest"] is not None and row["manifest_file"] is None:
            async with self._one.hold(session):
                await self._write(row)
        if row["seed"] is not None:
            if row["parent"] is not None:  # its own file comes first
                await self.act(row["parent"])
            await self._seed(session)
        elif row["successor"] is not None:
            await self._seed(row["successor"])

    async def _write(self, row: Row) -> None:
        stem, folder = await self._ledger.do(lambda tx: _file(tx, row["session"]))
        text: str = row["manifest"]
        name = f"{_stamp(json.loads(text)['created_at'])}_{stem}.json"

        faults.passing("handed")

        def write() -> None:
            _directory(self._home.group(folder).root)
            write_atomic(self._home.group(folder).manifests / name, text.encode())

        await anyio.to_thread.run_sync(write)
        faults.passing("manifest_written")
        now = rfc3339(self._clock.now())
        await self._ledger.do(lambda tx: contexts.update(tx, row["session"], now, manifest_file=name))

    async def _seed(self, session: str) -> None:
        async with self._one.hold(session):
            row = await self._ledger.do(lambda tx: contexts.find(tx, session))
            if row is None or row["seed"] is None:
                return
            made = manifest.parse(row["seed"])
            stem, folder = await self._ledger.do(lambda tx: _file(tx, session))
            base = await self._ledger.do(lambda tx: _base(tx, session))
            path = self._home.group(folder).sessions / f"{stem}.md"
            async with self._alone(session):
                await anyio.to_thread.run_sync(_append, path, session, base, made)
                faults.passing("seeded")
                waits = await self._ledger.do(lambda tx: self._opened(tx, session))
        for address in waits:
            self._deliver(address)
        self._wake(row["grp"])
        if self.seeded is not None:
            await self.seeded(session)

    def _opened(self, tx: Transaction, session: str) -> set[Address]:
        row = contexts.find(tx, session)
        gate = row["gate"] if row is not None and row["gate"] != "seed" else None
        contexts.update(tx, session, rfc3339(self._clock.now()), seed=None, gate=gate)
        said = "SELECT * FROM delivery WHERE session = ? AND state = 'pending'"
        return {Address.of(each) for each in tx.all(said, session)}

    async def _tell_refused(self, row: Row) -> None:
        if (said := json.loads(row["refused"]))["told"]:
            return
        self._tell(f"The session {row['session']} cannot be handed over to a fresh one: {said['why']}.")
        now, told = rfc3339(self._clock.now()), json.dumps(said | {"told": True})
        await self._ledger.do(lambda tx: contexts.update(tx, row["session"], now, refused=told))


def _base(tx: Transaction, session: str) -> str:
    row = tx.one("SELECT base FROM session WHERE id = ?", session)
    assert row is not None
    return str(row["base"])


def _file(tx: Transaction, session: str) -> tuple[str, str]:
    row = tx.one("SELECT s.stem, g.folder FROM session s JOIN grp g ON g.name = s.grp WHERE s.id = ?", session)
    assert row is not None
    return row["stem"], row["folder"]


def _session_taint(tx: Transaction, session: str) -> float:
    row = tx.one("SELECT taint FROM session WHERE id = ?", session)
    return float(row["taint"]) if row is not None else 0.0


def _taint(tx: Transaction, row: Row, items: list[Item]) -> float:
    """How far a turn that reads the successor's beginning may be trusted: as far as one that read the session. The
    agent's own words over clean input, and what its tools gave inside, taint no turn there, nor here."""
    return min(float(row["taint"]), _session_taint(tx, row["session"]), Pinned(items).taint)


def _names_next(tx: Transaction, session: str, turn: int) -> bool:
    """Whether a turn said what is to be done next."""
    asked = "SELECT 1 FROM pinned WHERE session = ? AND class = 'next_safe_action' AND turn = ?"
    return tx.one(asked, session, turn) is not None


def _questions(tx: Transaction, session: str) -> list[str]:
    rows = tx.all("SELECT text FROM question WHERE session = ? AND state = 'open' ORDER BY id", session)
    return [row["text"] for row in rows]


def _memories(tx: Transaction, session: str) -> list[str]:
    """Ids of what memory gave its turns, the newest."""
    rows = tx.all(
        "SELECT memory, MAX(turn) AS last FROM recalled WHERE turn IN (SELECT id FROM turn WHERE session = ? AND"
        f" claimed_at IS NOT NULL) GROUP BY memory ORDER BY last DESC, memory LIMIT {MOST_NAMED}",
        session,
    )
    return [row["memory"] for row in rows]


def _denied(tx: Transaction, session: str) -> list[str]:
    """What the owner said no to when its turns asked."""
    rows = tx.all(
        "SELECT a.words FROM approval a JOIN turn t ON t.id = a.turn WHERE t.session = ? AND a.state = 'denied'"
        " ORDER BY a.id DESC LIMIT 20",
        session,
    )
    titles = [row["words"].partition("\n")[0].partition("may I ")[2].rstrip("?")[:300] for row in rows]
    return [f"The owner said no to this: {title}." for title in reversed(titles) if title]


def _stamp(created: str) -> str:
    """A moment as a file's name begins with it: 20261201T090000.123Z."""
    return f"{created[:23].replace('-', '').replace(':', '').partition('+')[0].rstrip('Z')}Z"


def _directory(root: Path) -> None:
    """The group's `manifests/`, no link. Raises UnsafePath, OSError."""
    os.close(directory_beneath(root, "manifests", make=0o700))


def _append(path: Path, session: str, base: str, made: HandoffManifest) -> None:
    said = {"manifest": made.manifest_id, "parent": made.session_id, "trust": made.trust}
    meta = {"handoff": said, "key": f"handoff:{made.manifest_id}", "n": "1/1", "base": base}
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    block = Block("system", manifest.shown(made), moment_of(made.created_at), meta=meta)
    SessionFile(path, session).append([block], None, redo=True)
