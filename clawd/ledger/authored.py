"""What an agent wrote that outlives its turn: schedules, watches, skills, known by their content for ever.

Whatever has no row here a person made on the host, and it is the owner's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

from clawd.ledger import turns
from clawd.ledger.approvals import canonical
from clawd.ledger.db import Transaction
from clawd.model import Authority
from clawd.trust import Origin, Role, lowest

Kind = Literal["schedule", "watch", "skill"]
OWNER = Authority(Role.OWNER, 1.0)


def digest(says: Mapping[str, Any]) -> str:
    """What a rule is known by that is no file of its own: the sha256 of all that it says."""
    return hashlib.sha256(canonical(says).encode("utf-8", "surrogatepass")).hexdigest()


def note(tx: Transaction, kind: Kind, group: str, name: str, sha256: str, turn: int, now: str) -> Authority:
    """A turn wrote this: before it can be found anywhere. What an earlier turn wrote in the same words acts for neither
    of them alone. Gives how it acts."""
    row = turns.get(tx, turn)
    acts = Authority(Role(row["authority"]), row["taint"])
    return _keep(tx, kind, group, name, sha256, turn, acts, now)


def acts(tx: Transaction, kind: Kind, group: str, sha256: str) -> Authority:
    """For whom what has this content acts, and how far it is trusted."""
    return of_agent(tx, kind, group, sha256) or OWNER


def of_agent(tx: Transaction, kind: Kind, group: str, sha256: str) -> Authority | None:
    """The same; None for what no agent wrote."""
    row = tx.one("SELECT * FROM authored WHERE kind = ? AND grp = ? AND sha256 = ?", kind, group, sha256)
    return Authority(Role(row["authority"]), row["taint"]) if row else None


def every(tx: Transaction, kind: Kind, group: str) -> dict[str, Authority]:
    """The same for all that the group's agent wrote, by its sha256."""
    rows = tx.all("SELECT sha256, authority, taint FROM authored WHERE kind = ? AND grp = ?", kind, group)
    return {row["sha256"]: Authority(Role(row["authority"]), row["taint"]) for row in rows}


def voice(tx: Transaction, kind: Kind, group: str, sha256: str) -> tuple[Authority, Origin]:
    """The same, and whose words they are: an agent's are never the owner's own, also where it acted for them. As far
    trusted as that turn was, no less: else a first reminder would keep the owner from making a second."""
    row = tx.one("SELECT * FROM authored WHERE kind = ? AND grp = ? AND sha256 = ?", kind, group, sha256)
    if row is None:
        return OWNER, Origin.OWNER
    return Authority(Role(row["authority"]), row["taint"]), Origin.AGENT


def carry(tx: Transaction, kind: Kind, group: str, before: str, after: str, now: str) -> None:
    """The daemon itself edits what an agent wrote, on somebody's word: it stays that turn's."""
    row = tx.one("SELECT * FROM authored WHERE kind = ? AND grp = ? AND sha256 = ?", kind, group, before)
    if row is not None and before != after:
        known = Authority(Role(row["authority"]), row["taint"])
        _keep(tx, kind, group, row["name"], after, row["turn"], known, now)


def _keep(
    tx: Transaction, kind: Kind, group: str, name: str, sha256: str, turn: int | None, acts: Authority, now: str
) -> Authority:
    old = tx.one("SELECT * FROM authored WHERE kind = ? AND grp = ? AND sha256 = ?", kind, group, sha256)
    if old is not None:
        acts = Authority(lowest([acts.role, Role(old["authority"])]), min(acts.taint, old["taint"]))
    tx.execute(
        "INSERT INTO authored (kind, grp, sha256, name, turn, authority, taint, made) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET authority = excluded.authority, taint = excluded.taint",
        *(kind, group, sha256, name, turn, acts.role, acts.taint, now),
    )
    return acts
