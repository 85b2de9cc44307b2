"""What turns did beside their answer, through host tools: each effect once, keyed by content (turn, tool, arguments,
nth equal call), committed together with its result.

Who asks without a number gets the results that it may not have heard yet, in order, before anything is done again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from clawd.ids import is_job
from clawd.ledger.db import Row, Transaction
from clawd.ledger.deliveries import Address
from clawd.ledger.turns import check_lease
from clawd.model import Effect, Lease

Act = Callable[[Transaction, int], dict[str, Any]]

# Of one turn: enough for any honest one. Each quota is for all the tools that it names together.
_QUOTAS: tuple[tuple[frozenset[str], int, str], ...] = (
    (frozenset({"send_message", "send_file", "ask", "react"}), 20, "sends"),
    (frozenset({"send_file"}), 10, "files"),
    (frozenset({"schedule"}), 5, "changes of schedules"),
    (frozenset({"skill_propose"}), 3, "proposals of skills"),
    (
        frozenset({"memory_write", "memory_update", "memory_delete", "memory_propose", "memory"}),
        100,
        "changes of memories",
    ),
)
_READING = frozenset({"skill_read", "tool_help", "memory_search", "memory_read"})  # what no skill takes away


def known(tx: Transaction, lease: Lease, tool: str, arguments: dict[str, Any], nth: int | None) -> Effect | None:
    """What a call gets without being done: the result that it has, or a refusal. Raises LeaseLost."""
    row = check_lease(tx, lease)
    if is_job(row["session"]):
        return Effect({"error": "a job has no tools"})
    if row["tools"] is not None and tool not in _READING and tool not in (left := json.loads(row["tools"])):
        allows = ", ".join(left) or "no tool of the daemon"
        return Effect({"error": f"a skill that this turn has read allows {allows}; say what is needed in your answer"})
    digest = _digest(arguments)
    old = tx.one(
        "SELECT id, result FROM effect WHERE turn = ? AND tool = ? AND arguments = ? AND nth = ?",
        lease.turn,
        tool,
        digest,
        _next(tx, lease, tool, digest) if nth is None else nth,
    )
    if old is not None:
        return Effect(json.loads(old["result"]), old["id"])
    counts = tx.all(
        "SELECT tool, COUNT(*) AS n FROM effect WHERE turn = ? AND state = 'done' GROUP BY tool", lease.turn
    )
    for tools, most, what in _QUOTAS:
        if tool in tools and sum(each["n"] for each in counts if each["tool"] in tools) >= most:
            return Effect(
                {"error": f"this turn has had its {most} {what}, which is the limit; say the rest in your answer"}
            )
    return None


def do(tx: Transaction, lease: Lease, tool: str, arguments: dict[str, Any], nth: int | None, act: Act) -> Effect:
    """Do an effect once; a repeated call gets the first one's result. What is refused leaves nothing."""
    if (old := known(tx, lease, tool, arguments, nth)) is not None:
        return old
    digest = _digest(arguments)
    nth = _next(tx, lease, tool, digest) if nth is None else nth
    id = tx.insert("effect", turn=lease.turn, tool=tool, arguments=digest, nth=nth, state="done", result="{}")
    result = act(tx, id)
    tx.execute("UPDATE effect SET result = ? WHERE id = ?", json.dumps(result, ensure_ascii=False), id)
    return Effect(result, id)


def given(tx: Transaction, lease: Lease, effect: int) -> None:
    """Its result was written to whoever asked, as far as anybody can know."""
    tx.execute("UPDATE effect SET attempt = ? WHERE id = ? AND turn = ?", lease.attempt, effect, lease.turn)


def done(tx: Transaction, turn: int) -> bool:
    """Whether a host tool did something in this turn: then an answer without words is no silence."""
    return tx.one("SELECT 1 FROM effect WHERE turn = ? AND state = 'done'", turn) is not None


def addresses(tx: Transaction, effect: Effect) -> list[Address]:
    """The chats to which an effect says something."""
    rows: list[Row] = tx.all("SELECT DISTINCT channel, account, chat, thread FROM delivery WHERE effect = ?", effect.id)
    return [Address.of(row) for row in rows]


def _next(tx: Transaction, lease: Lease, tool: str, digest: str) -> int:
    """Which of the equal calls one without a number is: the one after the last that this attempt was told of."""
    row = tx.one(
        "SELECT COALESCE(MAX(nth) + 1, 0) AS n FROM effect"
        " WHERE turn = ? AND tool = ? AND arguments = ? AND attempt = ?",
        lease.turn,
        tool,
        digest,
        lease.attempt,
    )
    assert row is not None
    return int(row["n"])


def _digest(arguments: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(arguments, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
