"""A session's context as its files have it, for the tests of what is made of them."""

from __future__ import annotations

import json
from typing import Any

from clawd.lifecycle.exporting import Account
from clawd.lifecycle.journal import lines_of

GOAL = "Ship <script>alert(1)</script> & \"keep\" 'every' row \u202e of it"


def jsonl(rows: list[dict[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def metric(step: int, window: int, total: int, usd: float | None = None, **more: Any) -> dict[str, Any]:
    return {
        "ts": f"2026-12-01T09:{step:02d}:00+01:00",
        "session_id": "mmkr:agent-1",
        "step_index": step,
        "event": "turn",
        "prompt_tokens": window - 500,
        "completion_tokens": 500,
        "cached_tokens": 0,
        "window_tokens": window,
        "total_tokens": total,
        "latency_ms": 1200,
        "input_cost_usd": usd,
        "output_cost_usd": usd,
        "total_cost_usd": usd and 2 * usd,
        "agent_id": None,
        "memory_namespace": None,
    } | more


def decision(step: int, action: str, trigger: str, tokens: int, **more: Any) -> dict[str, Any]:
    return {
        "seq": step,
        "ts": f"2026-12-01T09:{step:02d}:01+01:00",
        "session_id": "mmkr:agent-1",
        "step_index": step,
        "action": action,
        "trigger": trigger,
        "total_tokens": tokens,
        "soft": 60_000,
        "hard": 100_000,
        "estimated": False,
        "policy": None,
        "recall": None,
        "confirm": None,
        "reason": "",
    } | more


METRICS = [
    metric(1, 30_000, 30_000, 0.1),
    metric(2, 61_000, 91_000, 0.2),
    metric(3, 14_000, 105_000),
    metric(4, 101_000, 206_000, 0.05, memory_namespace="=cmd|' /C calc'!A0"),
]
DECISIONS = [
    decision(1, "continue", "none", 30_000),
    decision(2, "compact", "soft_compact", 61_000, recall=0.95, reason="it holds 61,000 tokens,\nmore than 60,000"),
    decision(3, "continue", "none", 14_000, estimated=True),
    decision(4, "handoff", "hard_handoff", 101_000, confirm={"required": True, "granted": True, "by": "@Ada"}),
]
STATE = {
    "schema": 1,
    "id": "mmkr:agent-1",
    "group": "main",
    "status": "handoff",
    "stopped_reason": "handoff",
    "step_index": 4,
    "window_tokens": 101_000,
    "cumulative_tokens": 206_000,
    "compact_count": 1,
    "last_recall": 0.95,
    "profile": "chat",
    "soft": 60_000,
    "hard": 100_000,
    "successor": "mmkr:agent-1.2",
    "ledger": {
        "goal": GOAL,
        "verified": ["1,204 rows <b>are</b> there"],
        "constraints": ["Never write to /srv/live"],
        "blockers": ["the key has expired"],
        "decisions": [],
        "next_safe_action": "Count again",
    },
    "updated_at": "2026-12-01T09:04:02+01:00",
}


def account(**more: Any) -> Account:
    found: dict[str, Any] = {
        "session": "mmkr:agent-1",
        "group": "main",
        "state": STATE,
        "metrics": lines_of(jsonl(METRICS)),
        "decisions": lines_of(jsonl(DECISIONS)),
    }
    return Account(**found | more)
