"""What `clawd context run` asks of the daemon: a session that is steered by hand, how it stands after each step, and
its end. JSON-ready data; each operation may be repeated, for a daemon that went away may have done it.

The steps themselves are messages of the owner like any other, under numbers that make a step the same message however
often it is sent.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from clawd import scopes
from clawd.clock import Clock, rfc3339
from clawd.commands import scripts as files
from clawd.commands.limits import in_force
from clawd.commands.operations import Operation, Operations, Params, text
from clawd.commands.standing import last_decision
from clawd.config.group import Effective
from clawd.config.home import Home
from clawd.config.schema import Config
from clawd.errors import ClawdError, NotFound, UsageError
from clawd.ids import check_session_id
from clawd.ledger import approvals, contexts, groups, scripts
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.scopes import Scopes
from clawd.signals import Signals
from clawd.trust import Origin

WAIT_S = 20.0  # of one look: whoever asks asks again
LOOK_S = 0.5  # between two looks, where no news comes
ACTIONS = ("compact", "handoff")
_ENDS = ("completed", "stopped", "failed")
_SHOWN = ("goal", "status", "stopped_reason", "step_index", "compact_count", "last_recall")


class RunOperations:
    """`settings` gives what holds for a group now; `soon` has the life cycle look after a session."""

    def __init__(
        self,
        home: Home,
        ledger: Ledger,
        clock: Clock,
        signals: Signals,
        config: Callable[[], Config],
        settings: Callable[[str], Effective],
        operations: Operations,
        soon: Callable[[str], None],
    ) -> None:
        self._home, self._ledger, self._clock, self._signals = home, ledger, clock, signals
        self._config, self._settings, self._operations, self._soon = config, settings, operations, soon

    def table(self) -> dict[str, Operation]:
        return {name: partial(operation, self) for name, operation in OPERATIONS.items()}

    def _now(self) -> str:
        return rfc3339(self._clock.now())

    async def prepare(self, params: Params) -> Params:
        """{session, goal, group?, script? (a path on this machine), profile?, soft?, hard?, require_confirm?,
        agent_id?, memory_namespace?} → how it stands (`settled`), with {turns: of its script|null, script:
        sha256|null}. With `resume` an earlier one goes on; what is given then holds from now on.

        Raises UsageError for a session that is there already, NotFound for one that is to go on and is not there,
        ClawdError for one that ended, ConfigError for thresholds that cannot be."""
        session, resume = check_session_id(text(params, "session")), bool(params.get("resume"))
        script = await asyncio.to_thread(files.read, Path(text(params, "script"))) if params.get("script") else None
        name = str(params.get("group") or "main")
        own: dict[str, Any] = {}
        if resume:
            row = await self._ledger.do(lambda tx: _resumable(tx, session))
            name, own = row["grp"], {key: row[key] for key in ("profile", "soft", "hard")}
        else:
            await self._operations.group(name)
            await self._operations.adopt_sessions()  # its file may have been put there just now
        values = self._values(name, params, own)
        if not resume:
            values |= {"goal": text(params, "goal"), "by_hand": 1}
        now = self._now()

        def prepare(tx: Transaction) -> None:
            if resume:
                _resumable(tx, session)
            else:
                _made(tx, session, name, now)
                contexts.pin(tx, session, "goal", values["goal"], turn=None, at=now, origin=Origin.OWNER, trust=1.0)
            opened = {"gate": None} if (contexts.of(tx, session, now)["gate"]) == "paused" else {}
            contexts.update(tx, session, now, status="running", stopped_reason=None, **values, **opened)
            if script is not None:
                scripts.keep(tx, session, script.sha256, {"steps": script.steps})

        await self._ledger.do(prepare)
        self._soon(session)
        played = await self._ledger.do(lambda tx: _played(tx, session))
        return await self._stands(session) | played

    def _values(self, group: str, params: Params, own: Params) -> dict[str, Any]:
        """The columns that are given, checked together with those that the session has of its `own`."""
        values = {name: params[name] for name in ("profile", "soft", "hard", "agent_id", "memory_namespace")
                  if params.get(name) is not None}  # fmt: skip
        if "agent_id" in values:
            values["agent_id"] = scopes.agent(values["agent_id"])
        if "memory_namespace" in values:
            named = scopes.namespace(values["memory_namespace"])
            Scopes(group, frozenset(self._settings(group).group.shared), named).write()
        limits = {name: (own | values).get(name) for name in ("profile", "soft", "hard")}
        in_force(self._home, self._config(), self._settings(group), **limits)
        if (confirm := params.get("require_confirm")) is not None:
            if not isinstance(confirm, list) or not set(confirm) <= set(ACTIONS):
                raise UsageError(f"what can be asked about first: {', '.join(ACTIONS)}")
            values["require_confirm"] = json.dumps(sorted(set(confirm)))
        return values

    async def settled(self, params: Params) -> Params:
        """{session, answered?: [approvals]} → how it stands, once the context of its last turn is settled: recorded,
        decided about, compacted or handed over, its files written; or once an approval other than the `answered` is
        waited for. `settled` is false when that takes longer: ask again."""
        session, answered = check_session_id(text(params, "session")), params.get("answered") or ()
        with self._signals.subscribe() as news, anyio.move_on_after(WAIT_S):
            while not await self._ledger.do(lambda tx: _settled(tx, session, answered)):
                with anyio.move_on_after(LOOK_S):
                    await news.__anext__()
                news.arrived()
            return await self._stands(session)
        return await self._stands(session) | {"settled": False}

    async def finish(self, params: Params) -> Params:
        """{session, status: completed|stopped|failed, reason, wait?} → how it stands, without `wait` once that is in
        its files. What ended otherwise stays so."""
        session, status = check_session_id(text(params, "session")), text(params, "status")
        if status not in _ENDS:
            raise UsageError(f"a run ends as one of {', '.join(_ENDS)}")
        reason = text(params, "reason")[:100]

        def finish(tx: Transaction) -> None:
            row = _row(tx, session)
            if row["status"] not in contexts.ENDED:
                contexts.update(tx, session, self._now(), status=status, stopped_reason=reason)
            if row["status"] in contexts.ENDED or status in contexts.ENDED:
                scripts.drop(tx, session)

        await self._ledger.do(finish)
        self._soon(session)
        return await (self._stands(session) if params.get("wait") is False else self.settled({"session": session}))

    async def _stands(self, session: str) -> Params:
        """{settled, session, group, goal, status, stopped_reason, step_index, compact_count, last_recall,
        tokens{window, cumulative}, usd|null, handoff_manifest|null, successor|null, pending_confirm|null,
        confirm_action|null, decision|null}"""

        def read(tx: Transaction) -> tuple[Row, Row, str | None]:
            place = tx.one(
                "SELECT s.stem, g.folder FROM session s JOIN grp g ON g.name = s.grp WHERE s.id = ?", session
            )
            assert place is not None
            row = _row(tx, session)
            asks = row["status"] == "awaiting_confirm" and row["confirm"] is not None
            step = json.loads(approvals.numbered(tx, row["confirm"])["effect"]) if asks else {}
            return row, place, step.get("action")

        row, place, asked = await self._ledger.do(read)
        folder = self._home.group(place["folder"])
        file = row["manifest_file"]
        return {
            "settled": True,
            "session": session,
            "group": row["grp"],
            **{name: row[name] for name in _SHOWN},
            "tokens": {"window": row["window"], "cumulative": row["cumulative"]},
            "usd": row["nanos"] / 1e9 if row["nanos"] is not None else None,
            "handoff_manifest": str(folder.root / "manifests" / file) if file else None,
            "successor": row["successor"],
            "pending_confirm": row["confirm"] if row["status"] == "awaiting_confirm" else None,
            "confirm_action": asked,
            "decision": await asyncio.to_thread(last_decision, self._home, place["folder"], place["stem"]),
        }


def _made(tx: Transaction, session: str, group: str, now: str) -> None:
    """A session in which nothing was said. Raises UsageError where there is one already."""
    known = groups.session(tx, session)
    row = contexts.find(tx, session)
    said = tx.one("SELECT 1 FROM turn WHERE session = ?", session)
    begun = known is not None and row is not None and row["by_hand"] and said is None
    if known is not None and not begun:
        raise UsageError(
            f"there is a session {session} already",
            hint=f"clawd context run --resume {session}, or another --session-id",
        )
    groups.open_session(tx, session, group, now)


def _resumable(tx: Transaction, session: str) -> Row:
    """Raises NotFound, and ClawdError for a session that does not go on."""
    known = groups.session(tx, session)
    row = contexts.find(tx, session)
    if row is None or known is None:
        raise NotFound(f"there is no session {session} that could go on", hint="clawd session list")
    if row["status"] in contexts.ENDED:
        why = f": it goes on as {row['successor']}" if row["successor"] else ""
        raise ClawdError(f"session {session} ended as {row['status']}{why}", hint="clawd context run with a new goal")
    if not row["by_hand"]:
        raise ClawdError(f"session {session} is a conversation, and none of clawd context run", hint="clawd chat")
    if known.id != session:
        raise ClawdError(f"session {session} is over: the conversation goes on as {known.id}")
    return row


def _played(tx: Transaction, session: str) -> Params:
    row = tx.one("SELECT sha256 FROM play WHERE session = ?", session)
    if row is None:
        return {"turns": None, "script": None}
    return {"turns": len(files.turns_of(scripts.of(tx, session)["steps"])), "script": row["sha256"]}  # type: ignore[index]


def _row(tx: Transaction, session: str) -> Row:
    row = contexts.find(tx, session)
    if row is None:
        raise NotFound(f"there is no session {session} of clawd context run", hint="clawd session list")
    return row


def _settled(tx: Transaction, session: str, answered: Sequence[int]) -> bool:
    row = _row(tx, session)
    if row["status"] == "awaiting_confirm":
        return row["confirm"] is not None and row["confirm"] not in answered
    return not tx.one(
        "SELECT 1 FROM turn WHERE session = ?1 AND recorded_at IS NULL"
        "  AND state IN ('claimed', 'answered', 'stopped', 'failed')"
        f" UNION ALL SELECT 1 FROM compaction WHERE session = ?1 AND {contexts.NOT_DONE}"
        " UNION ALL SELECT 1 FROM journal WHERE session = ?1"
        " UNION ALL SELECT 1 FROM context WHERE session IN (?1, ?2) AND (dirty > 0 OR seed IS NOT NULL)",
        session,
        row["successor"],
    )


OPERATIONS = {
    "context.prepare": RunOperations.prepare,
    "context.settled": RunOperations.settled,
    "context.finish": RunOperations.finish,
}
