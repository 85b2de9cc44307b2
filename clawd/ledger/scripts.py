"""What the engine `scripted` plays in a session of `clawd context run`: one a session, while that is not over."""

from __future__ import annotations

import json
from typing import Any

from clawd.ledger.db import Transaction


def keep(tx: Transaction, session: str, sha256: str, script: Any) -> None:
    """Have a session play this, from its next turn on."""
    text = json.dumps(script, ensure_ascii=False)
    tx.execute("INSERT OR REPLACE INTO play (session, sha256, script) VALUES (?, ?, ?)", session, sha256, text)


def of(tx: Transaction, session: str) -> Any | None:
    """The script of a session, None where it has none of its own."""
    row = tx.one("SELECT script FROM play WHERE session = ?", session)
    return json.loads(row["script"]) if row is not None else None


def drop(tx: Transaction, session: str) -> None:
    """It is over: nothing of its script is kept."""
    tx.execute("DELETE FROM play WHERE session = ?", session)
