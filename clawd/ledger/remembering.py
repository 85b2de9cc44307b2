"""What the owner was told of memories that wait for their word."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from clawd.clock import moment_of, rfc3339
from clawd.ledger.db import Transaction


def told(tx: Transaction, group: str) -> tuple[datetime | None, frozenset[str]]:
    """When the owner was last told of what waits in a group, and of which ids."""
    row = tx.one("SELECT told, waits FROM remembering WHERE grp = ?", group)
    return (moment_of(row["told"] or ""), frozenset(json.loads(row["waits"]))) if row else (None, frozenset())


def tell(tx: Transaction, group: str, ids: Sequence[str], now: datetime) -> None:
    """They are told of these now."""
    tx.execute(
        "INSERT INTO remembering (grp, told, waits) VALUES (?, ?, ?)"
        " ON CONFLICT (grp) DO UPDATE SET told = excluded.told, waits = excluded.waits",
        group,
        rfc3339(now),
        json.dumps(sorted(ids)),
    )
